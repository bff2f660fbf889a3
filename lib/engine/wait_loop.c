/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wait loop. See wait.h.
 *
 * If each rank has a processor, a waiter first spins for about as long as it takes to wake a
 * sleeping thread, then yields, and then sleeps. Between hosts it also yields now and then while it
 * spins, because ranks of another host may use its processor. If ranks of a host share a core, a
 * waiter does not spin: yielding is enough, because each rank runs once per yield. A waiter checks
 * deadlines and deaths of peers only between sleeps.
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

/* Should a waiter that spins yield after this poll? Yes after each poll, if a yield has shown that
   other ranks use this processor, and wait as well. */
static int shares(tutti__wait_t *w)
{
    uint64_t until;

    if (w->ops->share == 0)
        return 0;
    until = atomic_load_explicit(&w->engine->shared_ns, memory_order_relaxed);
    if (TUTTI__LIKELY(until == 0))
        return w->looks % w->ops->share == 0;
    if (tutti__now_ns() >= until)
        atomic_store_explicit(&w->engine->shared_ns, 0, memory_order_relaxed);
    return 1;
}

/* Note what a yield has shown. After a long yield, other programs compute on this processor, for a
   time that doubles with each long yield and shrinks with each short one. So a rank that computed
   once in its call hardly counts, and a program that computes all the time does. */
static void note_yield(tutti__engine_t *e, uint64_t now, uint64_t took)
{
    uint32_t ns = atomic_load_explicit(&e->crowded_for_ns, memory_order_relaxed);

    if (took > TUTTI__CROWDED_YIELD_NS) {
        ns = TUTTI__MIN(TUTTI__MAX(2 * ns, TUTTI__CROWDED_LEAST_NS), TUTTI__CROWDED_NS);
        atomic_store_explicit(&e->crowded_ns, now + ns, memory_order_relaxed);
    } else {
        ns -= ns / 8;
        if (took > TUTTI__SHARED_YIELD_NS)
            atomic_store_explicit(&e->shared_ns, now + TUTTI__CROWDED_NS, memory_order_relaxed);
    }
    atomic_store_explicit(&e->crowded_for_ns, ns, memory_order_relaxed);
}

static void yield(tutti__wait_t *w)
{
    uint64_t before = tutti__now_ns(), now, took;

    sched_yield();
    now = tutti__now_ns();
    took = now - before;
    w->yielded_ns += (uint32_t)TUTTI__MIN(took, w->ops->yield_ns);
    note_yield(w->engine, now, took);
}

/* Spin or yield once. 0: the wait has lasted so long that the waiter should sleep. */
static int back_off(tutti__wait_t *w)
{
    const tutti__wait_ops_t *ops = w->ops;

    if (tutti__engine_spins(w->engine)) {
        int crowded = is_crowded(w->engine);

        if (w->looks >= (crowded ? TUTTI__CROWDED_LOOKS : ops->spins + ops->yields))
            return 0;
        if (w->looks < ops->spins && (crowded || !shares(w)))
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
