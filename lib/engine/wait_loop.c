/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wait loop. See wait.h.
 *
 * If each rank of a host has a processor, a waiter spins, then yields, and then sleeps. On one
 * host, a waiter for a request spins for 20 us. All other waiters spin for about a millisecond.
 * Between hosts, a waiter that spins yields after every eighth poll, because a rank of another
 * host, such as another container, may use this processor. If a long yield shows that another
 * program computes on this processor, the waiters sleep after a few polls for some time.
 *
 * If the ranks of a host share processors, a waiter does not spin. It yields, and then sleeps: in
 * each yield, every other rank of the processor runs once.
 *
 * A waiter checks its deadline in `sleep`. There a direct call also detects deaths of peers.
 */
#include "engine/wait.h"

#include "base/constants.h"
#include "base/time.h"
#include "engine/state.h"

#include <sched.h>

/* Does another program use this rank's processor? If it does, a waiter should sleep. A waiter that
   spins uses up its time slice, and when its data arrive, it must wait for its next time slice. A
   waiter that sleeps gets the processor as soon as its sleep ends. */
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

/* Should a waiter that spins yield after this poll? In a world of one host, it does not yield. In a
   world of several hosts, it yields after every SHARE_LOOKS polls. Until shared_ns, it yields after
   each poll, because a yield has shown that other ranks, which also yield, use this processor. */
static int shares(tutti__wait_t *w)
{
    uint64_t until;

    if (w->engine->world->far == NULL)
        return 0;
    until = atomic_load_explicit(&w->engine->shared_ns, memory_order_relaxed);
    if (TUTTI__LIKELY(until == 0))
        return w->looks % TUTTI__SHARE_LOOKS == 0;
    if (tutti__now_ns() >= until)
        atomic_store_explicit(&w->engine->shared_ns, 0, memory_order_relaxed);
    w->looks += TUTTI__SHARE_LOOKS; /* a yield may take as long as many polls */
    return 1;
}

/* A yield has ended at the time `now`, and took `took` ns. After a long yield, another program is
   assumed to compute on this processor until crowded_ns. The length of this period, crowded_for_ns,
   doubles with each long yield, and shrinks by an eighth with each shorter yield. So a rank that
   computes once causes a short period, and a program that computes all the time causes a long
   period. After a yield of medium length, other ranks are assumed to use this processor. */
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

/* Spin or yield once, and return 1. Return 0 if the waiter should sleep. */
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
