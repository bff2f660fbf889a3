/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transport for tests that accepts device memory: direct ends of ranks in one process. As strict
 * as allowed: sent data are read as late as possible, messages arrive in all posted slots as early
 * as possible, and a released slot has garbage. Device memory is accessed by pretend_read and
 * pretend_write, which end the test for other memory. Other ends are those of the transport below.
 * Ranks may be threads; an error ends the process.
 */
#ifndef TESTS_UNIT_EXEC_FAR_H
#define TESTS_UNIT_EXEC_FAR_H

#include "xport/xport.h"

/* rank: the owner. Close it before `below`. */
tutti__xport_t *far_open(tutti__xport_t *below, uint32_t rank);
/* Messages from device memory to device memory, of all ranks, since the last call. */
unsigned far_messages(void);
/* Messages that were expected and not read, and messages that no rank has read. */
size_t far_missing(const tutti__xport_t *xport);

#endif
