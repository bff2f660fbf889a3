/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much memory could this process still get?
 *
 * Linux does not refuse: a memfd takes pages until the machine or the container is full, and then
 * the out-of-memory killer ends a process. So a large request asks here first.
 */
#ifndef TUTTI__MEM_AVAIL_H
#define TUTTI__MEM_AVAIL_H

#include <stdint.h>

/*
 * Bytes that can be had now: free and easily freed memory and swap of the machine, and what the
 * control groups (version 1 and 2) of this process leave. UINT64_MAX where nothing can be found
 * out. An estimate: others allocate at the same time.
 *
 * root     "" ; tests give a folder with a /proc and a /sys of their own
 * ret_who  what sets the limit: "this machine", or "its control group"
 */
uint64_t tutti__mem_available(const char *root, const char **ret_who);

#endif
