/* SPDX-License-Identifier: BSD-3-Clause */
/* The schedule cache. See cache.h. */
#include "coll/cache.h"

#include "base/log.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

struct tutti__cache_entry {
    const tutti__algorithm_t *algorithm;
    const char *sub;
    uint32_t root;
    int in_place;
    tutti__sched_t *sched;
    tutti__cache_entry_t *next;
};

void tutti__cache_init(tutti__cache_t *cache, const tutti__shape_t *shape, uint32_t rank,
                       const char *override, tutti__association_t association)
{
    memset(cache, 0, sizeof(*cache));
    cache->shape = shape;
    cache->rank = rank;
    cache->override = override;
    cache->association = association;
}

void tutti__cache_fini(tutti__cache_t *cache)
{
    while (cache->entries != NULL) {
        tutti__cache_entry_t *entry = cache->entries;

        cache->entries = entry->next;
        tutti__sched_free(entry->sched);
        free(entry);
    }
}

static tutti_status_t add(tutti__cache_t *cache, const tutti__cache_entry_t *key,
                          tutti__cache_entry_t **ret_entry)
{
    tutti__cache_entry_t *entry = malloc(sizeof(*entry));
    tutti__coll_args_t args = { cache->rank, key->root, key->in_place, key->sub };
    tutti_status_t status;

    if (entry == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "schedule");
    *entry = *key;
    status = key->algorithm->build(cache->shape, &args, &entry->sched);
    if (status != TUTTI_OK) {
        free(entry);
        return status;
    }
    TUTTI__LOG(TUTTI__LOG_DEBUG, "%s: algorithm %s%s%s",
               tutti__collective_name(key->algorithm->collective), key->algorithm->name,
               key->sub != NULL ? "/" : "", key->sub != NULL ? key->sub : "");
    entry->next = cache->entries;
    cache->entries = entry;
    *ret_entry = entry;
    return TUTTI_OK;
}

tutti_status_t tutti__cache_get(tutti__cache_t *cache, tutti__collective_t collective, size_t bytes,
                                uint32_t root, int in_place, const tutti__sched_t **ret_sched)
{
    tutti__cache_entry_t key = { NULL, NULL, root, in_place != 0, NULL, NULL }, *entry;
    tutti_status_t status;

    if (cache->last[collective][key.in_place].sched != NULL &&
        cache->last[collective][key.in_place].bytes == bytes &&
        cache->last[collective][key.in_place].root == root) {
        *ret_sched = cache->last[collective][key.in_place].sched;
        return TUTTI_OK;
    }
    status = tutti__algorithm_choose(collective, cache->shape, bytes, cache->override,
                                     cache->association, &key.algorithm, &key.sub);
    if (status != TUTTI_OK)
        return status;
    for (entry = cache->entries; entry != NULL; entry = entry->next)
        if (entry->algorithm == key.algorithm && entry->sub == key.sub && entry->root == root &&
            entry->in_place == key.in_place)
            break;
    if (entry == NULL) {
        status = add(cache, &key, &entry);
        if (status != TUTTI_OK)
            return status;
    }
    cache->last[collective][key.in_place].bytes = bytes;
    cache->last[collective][key.in_place].root = root;
    cache->last[collective][key.in_place].sched = entry->sched;
    *ret_sched = entry->sched;
    return TUTTI_OK;
}
