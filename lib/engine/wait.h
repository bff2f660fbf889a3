/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wait loop of direct calls, tutti_wait and similar calls: backoff, help for other
 * communicators, sleeping, deadlines.
 */
#ifndef TUTTI__ENGINE_WAIT_H
#define TUTTI__ENGINE_WAIT_H

#include "engine/engine.h"

typedef struct tutti__wait tutti__wait_t;

/* The functions and limits in which the waits differ. */
typedef struct {
    /* Advance the work. Returns AGAIN to continue the wait. In this case poll may have set w->hint,
       w->moved and w->rests. OK, or any other status, ends the wait. */
    tutti_status_t (*poll)(tutti__wait_t *w);
    /* Sleep for a while, and check the deadline. Any status but OK ends the wait. */
    tutti_status_t (*sleep)(tutti__wait_t *w);
    uint32_t spins;  /* if each rank has a processor: polls before the waiter yields */
    uint32_t yields; /* further polls, each followed by a yield, before the waiter sleeps */
    /* If ranks share processors: the time of all yields before the waiter sleeps. 0: `yields` is
       the limit. */
    uint32_t yield_ns;
} tutti__wait_ops_t;

struct tutti__wait {
    const tutti__wait_ops_t *ops;
    tutti__engine_t *engine; /* NULL: several engines. poll steps them, and always sets `rests` */
    tutti__hint_t hint;
    int moved; /* 1: there was progress, so the backoff begins anew */
    int rests; /* 1: call `sleep` after this poll, without a backoff */
    uint32_t looks, yielded_ns;
    uint64_t helped_ns; /* when this thread last advanced another engine's work; 0: never */
};

/* How long to sleep now, in microseconds. far_nap_us: in a call between hosts, where arriving data
   do not always wake the sleeper. poll_nap_us: while work in flight advances only when polled.
   waited_ns: time since the last progress. */
uint32_t tutti__far_nap_us(uint64_t waited_ns);
int64_t tutti__poll_nap_us(const tutti__engine_t *engine, uint64_t waited_ns);

/* Returns the status of poll or sleep that ended the wait. */
tutti_status_t tutti__wait_loop(tutti__wait_t *w);

#endif
