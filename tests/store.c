/* SPDX-License-Identifier: BSD-3-Clause */
/* A store in shared memory. See store.h. */
#include "store.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    ENTRIES = 4096,
    VALUE_BYTES = 1024
};

typedef struct {
    atomic_int ready; /* set by the writer after the other fields; read first by readers */
    char key[128];
    size_t bytes;
    char value[VALUE_BYTES];
} entry_t;

typedef struct {
    atomic_int taken;
    entry_t entry[ENTRIES];
} table_t;

static table_t *table;

void store_open(void)
{
    if (table != NULL)
        munmap(table, sizeof(*table));
    table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED) {
        perror("mmap of the store");
        _exit(1);
    }
}

/* A key may be set again: the last value is the valid one. */
int store_set(void *context, const char *key, const void *value, size_t bytes)
{
    int i = atomic_fetch_add(&table->taken, 1);
    entry_t *entry = &table->entry[i];

    (void)context;
    if (i >= ENTRIES || bytes > VALUE_BYTES || strlen(key) >= sizeof(entry->key))
        return ENOSPC;
    strcpy(entry->key, key);
    memcpy(entry->value, value, bytes);
    entry->bytes = bytes;
    atomic_store(&entry->ready, 1);
    return 0;
}

static const entry_t *find(const char *key)
{
    for (int i = atomic_load(&table->taken); i-- > 0;)
        if (i < ENTRIES && atomic_load(&table->entry[i].ready) &&
            strcmp(table->entry[i].key, key) == 0)
            return &table->entry[i];
    return NULL;
}

int store_get(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
              int timeout_ms)
{
    const entry_t *entry;

    (void)context;
    for (int waited = 0; (entry = find(key)) == NULL; waited++) {
        if (waited >= timeout_ms)
            return ETIMEDOUT;
        usleep(1000);
    }
    if (entry->bytes > room)
        return ENOSPC;
    memcpy(value, entry->value, entry->bytes);
    *ret_bytes = entry->bytes;
    return 0;
}

int store_count(void)
{
    return atomic_load(&table->taken);
}

tutti_store_t store_with(const char *prefix)
{
    return (tutti_store_t){ sizeof(tutti_store_t), NULL, prefix, store_set, store_get };
}

tutti_options_t store_options(const tutti_store_t *store, int rank, int nranks)
{
    tutti_options_t options = TUTTI_OPTIONS_INIT;

    options.store = store;
    options.rank = rank;
    options.nranks = nranks;
    return options;
}
