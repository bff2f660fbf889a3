/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies with non-temporal stores. */
#ifndef TUTTI__REDUCE_NONTEMPORAL_H
#define TUTTI__REDUCE_NONTEMPORAL_H

#include <stddef.h>

/*
 * A copy that bypasses the caches (non-temporal stores): cache lines of dst are neither fetched
 * before the copy nor kept after it. This is faster than memcpy if dst is too large for the caches,
 * and src is in a cache. On a processor without such stores this function calls memcpy.
 *
 * Non-temporal stores are not ordered with other stores. The thread that has copied calls
 * tutti__nontemporal_end once: after its last copy, and before it reports the data as complete.
 * tutti__nontemporal_end waits until the stores have reached memory. If it were called after each
 * KiB, these waits would take longer than the copies.
 */
void tutti__nontemporal_copy(void *dst, const void *src, size_t bytes);
void tutti__nontemporal_end(void);

#endif
