/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that this process can still get.
 *
 * Linux does not refuse memory: a memfd takes pages until the machine or the container is full, and
 * then the out-of-memory killer ends a process. So the library checks the available memory before a
 * large allocation.
 */
#ifndef TUTTI__MEM_AVAIL_H
#define TUTTI__MEM_AVAIL_H

#include <stdint.h>

/*
 * Bytes available now: the machine's free and easily freed memory and swap, limited by the control
 * groups (version 1 and 2) of this process. UINT64_MAX if nothing is known. This is an estimate,
 * because other processes allocate at the same time.
 *
 * root     "" ; tests pass a folder with a /proc and a /sys of its own
 * ret_who  the origin of the limit: "this machine", or "its control group"
 */
uint64_t tutti__mem_available(const char *root, const char **ret_who);

#endif
