/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transport for tests that takes device memory: direct ends of ranks in one process. As strict as
 * it may be: what is sent is read as late as allowed, messages come into all slots that are posted
 * as soon as they can, and a slot that was given back holds rubbish. Device memory is reached by
 * pretend_read and pretend_write, which end the test if it is none. Other ends are those of the
 * transport below. Rank threads may use it: what is wrong ends the process.
 */
#ifndef TESTS_UNIT_EXEC_FAR_H
#define TESTS_UNIT_EXEC_FAR_H

#include "xport/xport.h"

/* rank: whose. Closed before `below`. */
tutti__xport_t *far_open(tutti__xport_t *below, uint32_t rank);
/* Messages that went from device memory to device memory, of all ranks, since the last question. */
unsigned far_messages(void);
/* Messages that were expected and not read; those that nobody has read. */
size_t far_missing(const tutti__xport_t *xport);

#endif
