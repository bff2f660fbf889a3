/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The taken ranges of an arena: offsets only, no memory is touched.
 *
 * First fit in address order keeps the file short; adjacent free ranges are joined. Arenas have a
 * few dozen long-lived ranges, so a list suffices. No lock of its own.
 */
#ifndef TUTTI__MEM_RANGES_H
#define TUTTI__MEM_RANGES_H

#include <stdint.h>

typedef struct tutti__ranges tutti__ranges_t;

/* One free range [0, span); NULL without memory. */
tutti__ranges_t *tutti__ranges_create(uint64_t span);
void tutti__ranges_destroy(tutti__ranges_t *ranges);

/* Take `bytes` > 0 anywhere. 0 if no free range is that long, or without memory. */
int tutti__ranges_take(tutti__ranges_t *ranges, uint64_t bytes, uint64_t *ret_offset);

/* Take `bytes` at a multiple of `align` that is at least `from`. */
int tutti__ranges_take_aligned(tutti__ranges_t *ranges, uint64_t bytes, uint64_t from,
                               uint64_t align, uint64_t *ret_offset);

/*
 * Giving a range back has two steps, so that its memory can be emptied in between without a lock:
 * leave() returns its length and makes a second leave() fail; give() makes it free again. leave()
 * returns 0 if no taken range begins at `offset`.
 */
uint64_t tutti__ranges_leave(tutti__ranges_t *ranges, uint64_t offset);
void tutti__ranges_give(tutti__ranges_t *ranges, uint64_t offset);

/* Bytes that are not free. */
uint64_t tutti__ranges_taken(const tutti__ranges_t *ranges);

#endif
