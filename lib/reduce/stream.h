/* SPDX-License-Identifier: BSD-3-Clause */
/* Copying around the caches. */
#ifndef TUTTI__REDUCE_STREAM_H
#define TUTTI__REDUCE_STREAM_H

#include <stddef.h>

/*
 * As memcpy, but what is written goes to memory at once: lines of dst are neither fetched before
 * nor kept in the caches afterwards. Pays where dst is so large that nothing of it would stay, and
 * src is in a cache. Where the processor has no such stores it is memcpy.
 *
 * Such stores are in no order with others. Before anybody is told that all is there, the thread
 * that has copied calls tutti__stream_end once. It waits until they have reached memory, which
 * after each KiB would take longer than the copies.
 */
void tutti__stream_copy(void *dst, const void *src, size_t bytes);
void tutti__stream_end(void);

#endif
