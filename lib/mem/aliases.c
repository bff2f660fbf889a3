/* SPDX-License-Identifier: BSD-3-Clause */
/* See aliases.h. */
#include "mem/aliases.h"

#include <assert.h>

static int search(const tutti__aliases_t *aliases, uintptr_t begin, size_t bytes,
                  uint64_t *ret_offset)
{
    uint32_t used = tutti__load_acquire(&aliases->used);

    for (uint32_t i = 0; i < used; i++) {
        const tutti__alias_t *alias = &aliases->at[i];
        uint64_t first = tutti__load64_acquire(&alias->begin);
        uint64_t length = tutti__load64_acquire(&alias->bytes);
        uint64_t before = begin - first;

        if (length == 0 || begin < first || before > length || bytes > length - before)
            continue;
        *ret_offset = tutti__load64_acquire(&alias->offset) + before;
        return 1;
    }
    return 0;
}

int tutti__aliases_find(const tutti__aliases_t *aliases, uintptr_t begin, size_t bytes,
                        uint64_t *ret_offset)
{
    for (;; tutti__pause()) {
        uint32_t version = tutti__load_acquire(&aliases->version);
        int found = search(aliases, begin, bytes, ret_offset);

        /* The loads in `search` are acquire loads, so the next load of `version` is after them. */
        if (version % 2 == 0 && tutti__load_relaxed(&aliases->version) == version)
            return found;
    }
}

static void set(tutti__aliases_t *aliases, uint32_t i, uintptr_t begin, size_t bytes,
                uint64_t offset)
{
    uint32_t version = tutti__load_relaxed(&aliases->version);

    tutti__store_relaxed(&aliases->version, version + 1);
    /* Release stores: a reader that sees one of these stores also sees the odd version. */
    tutti__store64_release(&aliases->at[i].begin, begin);
    tutti__store64_release(&aliases->at[i].bytes, bytes);
    tutti__store64_release(&aliases->at[i].offset, offset);
    tutti__store_release(&aliases->version, version + 2);
}

int tutti__aliases_add(tutti__aliases_t *aliases, uintptr_t begin, size_t bytes, uint64_t offset)
{
    uint32_t used = tutti__load_relaxed(&aliases->used), i = 0;

    while (i < used && tutti__load64_acquire(&aliases->at[i].bytes) > 0)
        i++;
    if (i == TUTTI__ALIASES)
        return 0;
    set(aliases, i, begin, bytes, offset);
    if (i == used)
        tutti__store_release(&aliases->used, used + 1);
    return 1;
}

void tutti__aliases_remove(tutti__aliases_t *aliases, uintptr_t begin)
{
    uint32_t used = tutti__load_relaxed(&aliases->used), i = 0;

    while (i < used && (tutti__load64_acquire(&aliases->at[i].begin) != begin ||
                        tutti__load64_acquire(&aliases->at[i].bytes) == 0))
        i++;
    assert(i < used);
    if (i < used)
        set(aliases, i, 0, 0, 0);
}
