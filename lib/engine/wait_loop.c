/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wait loop. See wait.h.
 *
 * If each rank has a processor, a waiter first spins for about as long as it takes to wake a
 * sleeping thread. After that it yields, which is enough if ranks share a core: each rank runs
 * once per call. After that it sleeps. It checks deadlines and deaths of peers only between sleeps.
 */
#include "engine/wait.h"

#include "base/constants.h"
#include "base/time.h"
#include "engine/state.h"

#include <sched.h>

/* Spin or yield once. 0: neither, because the wait has lasted so long that it should sleep. */
static int back_off(tutti__wait_t *w)
{
    const tutti__wait_ops_t *ops = w->ops;
    uint64_t before;

    if (tutti__engine_spins(w->engine)) {
        if (w->looks >= ops->spins + ops->yields)
            return 0;
        if (w->looks < ops->spins)
            tutti__pause();
        else
            sched_yield();
        return 1;
    }
    if (ops->yield_ns == 0) {
        if (w->looks >= ops->yields)
            return 0;
        sched_yield();
        return 1;
    }
    if (w->yielded_ns >= ops->yield_ns)
        return 0;
    before = tutti__now_ns();
    sched_yield();
    w->yielded_ns += (uint32_t)TUTTI__MIN(tutti__now_ns() - before, ops->yield_ns);
    return 1;
}

uint32_t tutti__far_nap_us(uint64_t waited_ns)
{
    uint64_t waited_us = waited_ns / 1000;

    if (waited_us < TUTTI__FAR_EARLY_US)
        return TUTTI__FAR_SLEEP_US;
    return (uint32_t)TUTTI__MIN(waited_us / TUTTI__SLEEP_SHARE, TUTTI__FAR_SLEEP_MOST_US);
}

/* A device is polled often, because its work takes microseconds, and no thread sleeps on it. */
int64_t tutti__poll_nap_us(const tutti__engine_t *e, uint64_t waited_ns)
{
    return e->env.exec->device != NULL ? TUTTI__POLL_SLEEP_US : tutti__far_nap_us(waited_ns);
}

tutti_status_t tutti__wait_loop(tutti__wait_t *w)
{
    tutti_status_t status;

    for (;;) {
        status = w->ops->poll(w);
        if (status != TUTTI__AGAIN)
            return status;
        if (w->moved)
            w->looks = w->yielded_ns = 0;
        w->looks++;
        if (TUTTI__LIKELY(w->engine != NULL))
            tutti__engine_help_others(w->engine);
        if (!w->rests && back_off(w))
            continue;
        status = w->ops->sleep(w);
        if (status != TUTTI_OK)
            return status;
    }
}
