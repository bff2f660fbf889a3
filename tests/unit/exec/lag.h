/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of the executor: a transport before another one, as slow and as strict as an xport may
 * be.
 *
 * A send reads its data at the last possible moment, so what is overwritten before flush() said OK
 * arrives wrong. A message is lent in a piece of memory of its own, which is gone when it is given
 * back. Each message must have been expected.
 */
#ifndef TESTS_UNIT_EXEC_LAG_H
#define TESTS_UNIT_EXEC_LAG_H

#include "xport/xport.h"

/* `inner` stays the caller's, and is closed after this one. */
tutti__xport_t *lag_open(tutti__xport_t *inner, uint32_t seed);

/* Messages that were expected and did not come, over all channels. */
size_t lag_missing(const tutti__xport_t *xport);

/* Goes up when a call was put off: that, too, is progress. Of all of them together. */
extern uint64_t lag_ticks;

#endif
