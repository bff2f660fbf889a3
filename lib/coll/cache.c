/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The schedule cache. See cache.h.
 *
 * Two calls share a schedule if they differ in size only and get the same algorithm. A proof
 * (TUTTI_CHECK=1) builds the schedules of all ranks: it is for tests and debugging, not for
 * normal use.
 */
#include "coll/cache.h"

#include "base/log.h"
#include "base/status.h"
#include "coll/cost.h"
#include "coll/algorithms.h"
#include "coll/files.h"
#include "coll/prove.h"

#include <stdlib.h>
#include <string.h>

struct tutti__cache_entry {
    tutti__choice_t choice;
    uint32_t root;
    int in_place;
    int staged; /* device memory, but the call runs in host memory */
    const tutti__sched_t *sched;
    tutti__sched_t *built; /* NULL: sched belongs to a file, or is staged_sched */
    tutti__cache_entry_t *next;
};

/* A logged choice, and the size of the call for which it was logged. */
struct tutti__cache_told {
    tutti__want_t want;
    tutti__cache_entry_t key;
    tutti__cache_told_t *next;
};

struct tutti__cache_pair {
    uint32_t dest, source;
    tutti__sched_t *sched, *heads; /* NULL: not built yet */
    tutti__cache_pair_t *next;
};

void tutti__cache_init(tutti__cache_t *cache, const tutti__shape_t *shape, uint32_t rank,
                       const char *override, tutti__association_t association, uint32_t prove)
{
    memset(cache, 0, sizeof(*cache));
    cache->shape = shape;
    cache->rank = rank;
    cache->override = override;
    cache->association = association;
    cache->prove = prove;
}

void tutti__cache_for_device(tutti__cache_t *cache, const tutti__device_limits_t *limits)
{
    cache->on_device = 1;
    cache->device_limits = *limits;
}

void tutti__cache_fini(tutti__cache_t *cache)
{
    while (cache->entries != NULL) {
        tutti__cache_entry_t *entry = cache->entries;

        cache->entries = entry->next;
        tutti__sched_free(entry->built);
        free(entry);
    }
    while (cache->told != NULL) {
        tutti__cache_told_t *told = cache->told;

        cache->told = told->next;
        free(told);
    }
    tutti__sched_free(cache->leaders);
    for (int i = 0; i < TUTTI__CACHE_PAIRS; i++) {
        while (cache->pairs[i] != NULL) {
            tutti__cache_pair_t *pair = cache->pairs[i];

            cache->pairs[i] = pair->next;
            tutti__sched_free(pair->sched);
            tutti__sched_free(pair->heads);
            free(pair);
        }
    }
}

static int same_choice(const tutti__cache_entry_t *a, const tutti__cache_entry_t *b)
{
    return a->choice.algorithm == b->choice.algorithm && a->choice.sub == b->choice.sub &&
           a->choice.radix == b->choice.radix && a->choice.streams == b->choice.streams &&
           a->staged == b->staged;
}

/*
 * Does a logged size imply this choice? If the next smaller or the next larger logged size has the
 * same choice, the choice for this size is not logged.
 */
static int is_told(const tutti__cache_t *cache, const tutti__want_t *want,
                   const tutti__cache_entry_t *key)
{
    const tutti__cache_told_t *below = NULL, *above = NULL;

    for (const tutti__cache_told_t *told = cache->told; told != NULL; told = told->next) {
        if (told->want.collective != want->collective || told->want.ordered != want->ordered)
            continue;
        if (told->want.bytes <= want->bytes &&
            (below == NULL || told->want.bytes > below->want.bytes))
            below = told;
        if (told->want.bytes >= want->bytes &&
            (above == NULL || told->want.bytes < above->want.bytes))
            above = told;
    }
    return (below != NULL && same_choice(&below->key, key)) ||
           (above != NULL && same_choice(&above->key, key));
}

/* Log a choice. All ranks choose alike, so only rank 0 logs it at info. */
static void tell(tutti__cache_t *cache, const tutti__want_t *want, const tutti__cache_entry_t *key,
                 const char *why)
{
    const tutti__choice_t *choice = &key->choice;
    int is_forced = why == tutti__why_forced && want->bytes > 0 && cache->shape->nhosts > 1 &&
                    tutti__files_of(cache->shape->files, choice->algorithm) == NULL;
    tutti__cache_told_t *told;
    char bytes[40] = "", radix[16] = "", streams[24] = "", expected[40] = "";
    tutti__cost_t cost;

    if (is_told(cache, want, key))
        return;
    if (want->bytes > 0) /* 0: not known to all ranks */
        snprintf(bytes, sizeof(bytes), " of %zu bytes", want->bytes);
    if (choice->radix > 0)
        snprintf(radix, sizeof(radix), "(%u)", choice->radix);
    if (choice->streams > 1)
        snprintf(streams, sizeof(streams), ", %u streams", choice->streams);
    /* The model describes only calls in host memory. */
    if (!cache->on_device && (why == tutti__why_cost || choice->sub != NULL || is_forced) &&
        tutti__cost_of(choice->algorithm, choice->sub, cache->shape, &cost))
        snprintf(expected, sizeof(expected), ", expected %.1f us",
                 (double)tutti__cost_ps(&cost, want->bytes) / 1e6);
    TUTTI__LOG(cache->rank == 0 ? TUTTI__LOG_INFO : TUTTI__LOG_DEBUG, "%s%s: %s%s%s%s%s, %s%s",
               tutti__collective_name(want->collective), bytes, choice->algorithm->name,
               choice->sub != NULL ? "/" : "", choice->sub != NULL ? choice->sub : "", radix,
               streams, why, expected);
    told = malloc(sizeof(*told));
    if (told == NULL)
        return; /* the choice will be logged again */
    *told = (tutti__cache_told_t){ *want, *key, cache->told };
    cache->told = told;
}

/* The schedule of a call that is staged: it has no operations, and is never run. */
static const tutti__sched_t staged_sched = { .name = "staged" };

static tutti_status_t build(const tutti__cache_t *cache, tutti__cache_entry_t *entry)
{
    const tutti__algorithm_t *algorithm = entry->choice.algorithm;
    const tutti__file_t *file = tutti__files_of(cache->shape->files, algorithm);
    tutti__coll_args_t args = { cache->rank,          entry->root,         entry->in_place,
                                entry->choice.sub,    entry->choice.radix, cache->on_device,
                                entry->choice.streams };
    tutti_status_t status = TUTTI_OK;

    if (entry->staged || file != NULL) {
        entry->sched = entry->staged ? &staged_sched : file->sched; /* proved already */
        return TUTTI_OK;
    }
    if (cache->prove > 0)
        status = tutti__coll_prove(algorithm, cache->shape, &args, cache->prove);
    if (status == TUTTI_OK)
        status = algorithm->build(cache->shape, &args, &entry->built);
    entry->sched = entry->built;
    return status;
}

static tutti_status_t add(tutti__cache_t *cache, const tutti__cache_entry_t *key,
                          tutti__cache_entry_t **ret_entry)
{
    tutti__cache_entry_t *entry = malloc(sizeof(*entry));
    tutti_status_t status;

    if (entry == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "schedule");
    *entry = *key;
    status = build(cache, entry);
    if (status != TUTTI_OK) {
        free(entry);
        return status;
    }
    entry->next = cache->entries;
    cache->entries = entry;
    *ret_entry = entry;
    return TUTTI_OK;
}

static int same_want(const tutti__want_t *a, const tutti__want_t *b)
{
    return a->bytes == b->bytes && a->root == b->root && a->ordered == b->ordered;
}

tutti_status_t tutti__cache_get(tutti__cache_t *cache, const tutti__want_t *want, int in_place,
                                const tutti__sched_t **ret_sched)
{
    tutti__cache_entry_t key = { .root = want->root, .in_place = in_place != 0 }, *entry;
    char device_why[TUTTI__DEVICE_WHY] = "";
    tutti__shape_t shape;
    const char *why;
    tutti_status_t status;

    if (cache->last[want->collective][key.in_place].sched != NULL &&
        same_want(&cache->last[want->collective][key.in_place].want, want)) {
        *ret_sched = cache->last[want->collective][key.in_place].sched;
        return TUTTI_OK;
    }
    shape = *cache->shape;
    shape.device_scope = cache->device_scope;
    shape.on_device = cache->on_device;
    status = tutti__algorithm_choose(want, &shape, cache->override, cache->association, &key.choice,
                                     &why);
    if (status != TUTTI_OK)
        return status;
    key.staged = cache->on_device &&
                 tutti__device_stages(want, cache->shape, &key.choice, why == tutti__why_forced,
                                      cache->association, &cache->device_limits, device_why);
    for (entry = cache->entries; entry != NULL; entry = entry->next) {
        if (same_choice(entry, &key) && entry->root == key.root && entry->in_place == key.in_place)
            break;
    }
    if (entry == NULL) {
        status = add(cache, &key, &entry);
        if (status != TUTTI_OK)
            return status;
    }
    tell(cache, want, &key, device_why[0] != '\0' ? device_why : why);
    cache->last[want->collective][key.in_place].want = *want;
    cache->last[want->collective][key.in_place].sched = entry->sched;
    *ret_sched = entry->sched;
    return TUTTI_OK;
}

tutti_status_t tutti__cache_leaders(tutti__cache_t *cache, const tutti__sched_t **ret_sched)
{
    const tutti__algorithm_t *algorithm;
    tutti__coll_args_t args = { .rank = cache->rank, .in_place = 1 };
    tutti_status_t status = TUTTI_OK;

    if (cache->leaders == NULL) {
        algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "leaders");
        if (cache->prove > 0)
            status = tutti__coll_prove(algorithm, cache->shape, &args, cache->prove);
        if (status == TUTTI_OK)
            status = algorithm->build(cache->shape, &args, &cache->leaders);
    }
    *ret_sched = cache->leaders;
    return status;
}

static tutti_status_t find_pair(tutti__cache_t *cache, uint32_t dest, uint32_t source,
                                tutti__cache_pair_t **ret_pair)
{
    tutti__cache_pair_t **first = &cache->pairs[(dest + 31 * source) % TUTTI__CACHE_PAIRS];
    tutti__cache_pair_t *pair = *first;

    while (pair != NULL && (pair->dest != dest || pair->source != source))
        pair = pair->next;
    if (pair == NULL) {
        pair = malloc(sizeof(*pair));
        if (pair == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "schedule");
        *pair = (tutti__cache_pair_t){ .dest = dest, .source = source, .next = *first };
        *first = pair;
    }
    *ret_pair = pair;
    return TUTTI_OK;
}

tutti_status_t tutti__cache_sendrecv(tutti__cache_t *cache, uint32_t dest, uint32_t source,
                                     const tutti__sched_t **ret_sched)
{
    tutti__cache_pair_t *pair = NULL;
    tutti_status_t status = find_pair(cache, dest, source, &pair);

    if (status == TUTTI_OK && pair->sched == NULL)
        status = tutti__coll_build_sendrecv(cache->shape, cache->rank, dest, source, &pair->sched);
    if (status == TUTTI_OK)
        *ret_sched = pair->sched;
    return status;
}

tutti_status_t tutti__cache_heads(tutti__cache_t *cache, uint32_t dest, uint32_t source,
                                  const tutti__sched_t **ret_sched)
{
    tutti__cache_pair_t *pair = NULL;
    tutti_status_t status = find_pair(cache, dest, source, &pair);

    if (status == TUTTI_OK && pair->heads == NULL)
        status = tutti__coll_build_heads(cache->shape, cache->rank, dest, source, &pair->heads);
    if (status == TUTTI_OK)
        *ret_sched = pair->heads;
    return status;
}
