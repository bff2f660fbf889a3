/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transport for tests that accepts device memory: GPU-direct ends of ranks in one process. It is
 * as strict as a transport may be: it reads sent data as late as possible, fills all posted slots
 * as early as possible, and fills a released slot with garbage. Device memory is accessed by
 * pretend_read and pretend_write, which end the test if other memory is passed. For ends that are
 * not GPU-direct, this transport uses the transport `below`, which far_open takes. Ranks may be
 * threads; an error ends the process.
 */
#ifndef TESTS_UNIT_EXEC_FAR_H
#define TESTS_UNIT_EXEC_FAR_H

#include "xport/xport.h"

/* rank: the owner. Close this transport before `below`. */
tutti__xport_t *far_open(tutti__xport_t *below, uint32_t rank);
/* Messages from device memory to device memory, of all ranks, since the last call. */
unsigned far_messages(void);
/* The number of expected messages that this rank has not read, and of sent messages that no rank
   has read. */
size_t far_missing(const tutti__xport_t *xport);

#endif
