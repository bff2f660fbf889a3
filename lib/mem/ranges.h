/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The taken ranges of an arena, as offsets. These functions do not access the arena's memory.
 *
 * First fit in address order keeps the arena's memfd short; adjacent free ranges are joined. Arenas
 * have a few dozen long-lived ranges, so a list suffices. The caller holds the arena's lock.
 */
#ifndef TUTTI__MEM_RANGES_H
#define TUTTI__MEM_RANGES_H

#include <stdint.h>

typedef struct tutti__ranges tutti__ranges_t;

/* Make a list with one free range, [0, span). Returns NULL if there is no memory. */
tutti__ranges_t *tutti__ranges_create(uint64_t span);
void tutti__ranges_destroy(tutti__ranges_t *ranges);

/* Take a range of `bytes` > 0 anywhere. Returns 0 if no free range is that long, or no memory. */
int tutti__ranges_take(tutti__ranges_t *ranges, uint64_t bytes, uint64_t *ret_offset);

/* The same, at an offset that is a multiple of `align` and at least `from`. */
int tutti__ranges_take_aligned(tutti__ranges_t *ranges, uint64_t bytes, uint64_t from,
                               uint64_t align, uint64_t *ret_offset);

/*
 * Giving a range back has two steps, leave() and give(). Between these steps the range's memory can
 * be emptied without a lock. leave() returns the range's length, or 0 if no taken range begins at
 * `offset`. A second leave() also returns 0. give() makes the range free.
 */
uint64_t tutti__ranges_leave(tutti__ranges_t *ranges, uint64_t offset);
void tutti__ranges_give(tutti__ranges_t *ranges, uint64_t offset);

/* Bytes that are not free. */
uint64_t tutti__ranges_taken(const tutti__ranges_t *ranges);

#endif
