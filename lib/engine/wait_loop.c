/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wait loop. See wait.h.
 *
 * If each rank has a processor, a waiter first spins for about as long as it takes to wake a
 * sleeping thread, then yields, and then sleeps. If ranks share a core, a waiter does not spin:
 * yielding is enough, because each rank runs once per yield. A waiter checks deadlines and deaths
 * of peers only between sleeps.
 */
#include "engine/wait.h"

#include "base/constants.h"
#include "base/time.h"
#include "engine/state.h"

#include <sched.h>

/* Do other programs use this rank's processor? If they do, a waiter should sleep. A waiter that
   spins uses up its time slice, and must wait for its next time slice when its data arrive. A
   waiter that sleeps gets the processor as soon as it is woken. */
static int is_crowded(tutti__engine_t *e)
{
    uint64_t until = atomic_load_explicit(&e->crowded_ns, memory_order_relaxed);

    if (TUTTI__LIKELY(until == 0))
        return 0;
    if (tutti__now_ns() < until)
        return 1;
    atomic_store_explicit(&e->crowded_ns, 0, memory_order_relaxed);
    return 0;
}

/* Yield. If the yield takes long, other programs use the processor: note this in crowded_ns. */
static void yield(tutti__wait_t *w)
{
    uint64_t before = tutti__now_ns(), now, took;

    sched_yield();
    now = tutti__now_ns();
    took = now - before;
    w->yielded_ns += (uint32_t)TUTTI__MIN(took, w->ops->yield_ns);
    if (took > TUTTI__CROWDED_YIELD_NS)
        atomic_store_explicit(&w->engine->crowded_ns, now + TUTTI__CROWDED_NS,
                              memory_order_relaxed);
}

/* Spin or yield once. 0: the wait has lasted so long that the waiter should sleep. */
static int back_off(tutti__wait_t *w)
{
    const tutti__wait_ops_t *ops = w->ops;

    if (tutti__engine_spins(w->engine)) {
        uint32_t most = is_crowded(w->engine) ? TUTTI__CROWDED_LOOKS : ops->spins + ops->yields;

        if (w->looks >= most)
            return 0;
        if (w->looks < ops->spins)
            tutti__pause();
        else
            yield(w);
        return 1;
    }
    if (ops->yield_ns == 0 ? w->looks >= ops->yields : w->yielded_ns >= ops->yield_ns)
        return 0;
    yield(w);
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
        if (TUTTI__LIKELY(w->engine != NULL) &&
            TUTTI__UNLIKELY(tutti__engine_help_others(w->engine)))
            w->helped_ns = tutti__now_ns();
        if (!w->rests && back_off(w))
            continue;
        status = w->ops->sleep(w);
        if (status != TUTTI_OK)
            return status;
    }
}
