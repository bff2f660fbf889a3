/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Aliases: second addresses of ranges of an arena. The arena's owner maps such a range a second
 * time, at the addresses of the program's registered memory (blocks.h).
 *
 * Any thread may search without a lock, even while another thread adds or removes an alias. The
 * search is repeated if `version` has changed meanwhile (a sequence lock).
 */
#ifndef TUTTI__MEM_ALIASES_H
#define TUTTI__MEM_ALIASES_H

#include "base/atomic.h"

#include <stddef.h>
#include <stdint.h>

#define TUTTI__ALIASES 64

typedef struct {
    tutti__word64_t begin; /* an address */
    tutti__word64_t bytes; /* 0: the entry is free */
    tutti__word64_t offset;
} tutti__alias_t;

/* A new structure must be zeroed. */
typedef struct {
    tutti__word_t version; /* odd: an entry is being changed */
    tutti__word_t used;    /* entries from this index on are free */
    tutti__alias_t at[TUTTI__ALIASES];
} tutti__aliases_t;

/* Is [begin, begin + bytes) in an alias? If so, store the offset of `begin` in the arena. */
int tutti__aliases_find(const tutti__aliases_t *aliases, uintptr_t begin, size_t bytes,
                        uint64_t *ret_offset);

/* ---- one thread at a time ---- */

/* Add an alias. Returns 0 if all entries are in use. */
int tutti__aliases_add(tutti__aliases_t *aliases, uintptr_t begin, size_t bytes, uint64_t offset);
/* Remove the alias that begins at `begin`. */
void tutti__aliases_remove(tutti__aliases_t *aliases, uintptr_t begin);

#endif
