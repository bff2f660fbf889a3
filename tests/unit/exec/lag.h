/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of the executor: a transport put before another one. It is as slow and as strict as an
 * xport may be.
 *
 * A send reads its data at the last possible moment, so data overwritten before flush() returns OK
 * arrive wrong. A message is lent in separate memory, which is freed when it is released. Each
 * message must have been expected. The place of a message has garbage from the moment in which the
 * message is expected.
 *
 * With zero credits a send is complete only when the receiver has asked for its message by view().
 */
#ifndef TESTS_UNIT_EXEC_LAG_H
#define TESTS_UNIT_EXEC_LAG_H

#include "exec/exec.h"

enum {
    LAG_CREDITS = 1,
    LAG_ZERO_CREDITS
};

/* The caller keeps `inner`, and closes it after this transport. kind: a value of the enum above.
   All ranks of a test are in one process. The ranks of an earlier test must be closed. */
tutti__xport_t *lag_open(tutti__xport_t *inner, uint32_t rank, int kind);

/* Count the messages that a channel sends, or that are received from it, from lag_begin on. */
void lag_begin(tutti__chan_t *chan);
size_t lag_count(const tutti__chan_t *chan);
/* Is this an end of a channel of lag.c? */
int lag_is_end(const tutti__end_t *end);

/* The number of messages that were expected and have not come, over all channels. */
size_t lag_missing(const tutti__xport_t *xport);

/* Increases when a call is delayed, which counts as progress. All ranks share this counter. */
extern uint64_t lag_ticks;
/* The number of messages that were received in their place. */
extern uint64_t lag_places;

#endif
