/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backoff of a waiter on a host with a processor for each rank: when the waiter yields, and
 * what the time of a yield shows about other ranks and programs. The test replaces sched_yield,
 * which takes at least the time that the test sets. The checks allow for longer yields on a busy
 * machine.
 */
#include "base/constants.h"
#include "base/time.h"
#include "engine/state.h"
#include "engine/wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define LIMIT_NS 50000000000u

enum {
    LOOKS = 100 * TUTTI__SHARE_LOOKS
};

static tutti__engine_t engine;
static uint64_t yield_takes_ns;
static uint32_t looks, yields, sleeps;

int sched_yield(void);

/* Replaces the C library's function. */
int sched_yield(void)
{
    uint64_t end = tutti__now_ns() + yield_takes_ns;

    yields++;
    while (yield_takes_ns > 0 && tutti__now_ns() <= end)
        ;
    return 0;
}

static tutti_status_t poll(tutti__wait_t *w)
{
    (void)w;
    return ++looks < LOOKS ? TUTTI__AGAIN : TUTTI_OK;
}

static tutti_status_t sleep_never(tutti__wait_t *w)
{
    (void)w;
    sleeps++;
    return TUTTI_OK;
}

static const tutti__wait_ops_t near = { .poll = poll, .sleep = sleep_never, .spins = LOOKS };
static const tutti__wait_ops_t far = {
    .poll = poll, .sleep = sleep_never, .spins = LOOKS, .share = TUTTI__SHARE_LOOKS
};

static void wait_with(const tutti__wait_ops_t *ops, uint64_t takes_ns)
{
    tutti__wait_t w = { .ops = ops, .engine = &engine };

    yield_takes_ns = takes_ns;
    looks = yields = sleeps = 0;
    assert_int_equal(tutti__wait_loop(&w), TUTTI_OK);
}

static void clear(void)
{
    memset(&engine, 0, sizeof(engine));
    engine.world = &engine;
    engine.spin = 1;
}

/* Wait again if a yield took so long that other programs seem to compute on the processor. */
static void wait_without_others(const tutti__wait_ops_t *ops, uint64_t takes_ns)
{
    uint64_t end = tutti__now_ns() + LIMIT_NS;

    do {
        assert_true(tutti__now_ns() < end);
        clear();
        wait_with(ops, takes_ns);
    } while (atomic_load(&engine.crowded_for_ns) > 0);
}

static void near_spins(void **state)
{
    (void)state;
    clear();
    wait_with(&near, 0);
    assert_int_equal(yields, 0);
    assert_int_equal(sleeps, 0);
}

static void far_yields_now_and_then(void **state)
{
    (void)state;
    wait_without_others(&far, 0);
    assert_in_range(yields, LOOKS / TUTTI__SHARE_LOOKS - 1, LOOKS - 1);
}

/* A yield of more than SHARED_YIELD_NS shows that another rank uses the processor. After that, the
   waiter yields after each poll. */
static void others_run(void **state)
{
    (void)state;
    wait_without_others(&far, 2 * TUTTI__SHARED_YIELD_NS);
    assert_true(atomic_load(&engine.shared_ns) > 0);
    assert_true(yields > LOOKS / 2);
}

/* Each yield of more than CROWDED_YIELD_NS doubles the period in which other programs are assumed
   to compute on the processor, up to CROWDED_NS. In this period the waiter does not yield, and
   sleeps after CROWDED_LOOKS polls. Each shorter yield shortens the next period. */
static void others_compute(void **state)
{
    uint64_t end = tutti__now_ns() + LIMIT_NS;
    uint32_t before = 0, now;

    (void)state;
    clear();
    do {
        assert_true(tutti__now_ns() < end);
        atomic_store(&engine.crowded_ns, 0); /* as if the time were over */
        wait_with(&far, TUTTI__CROWDED_YIELD_NS + 1);
        now = atomic_load(&engine.crowded_for_ns);
        assert_true(yields > 0 && now >= TUTTI__CROWDED_LEAST_NS && now <= TUTTI__CROWDED_NS);
        assert_true(now >= TUTTI__MIN(2 * before, TUTTI__CROWDED_NS));
        before = now;
    } while (now < TUTTI__CROWDED_NS);
    atomic_store(&engine.crowded_ns, tutti__now_ns() + LIMIT_NS);
    wait_with(&far, 0);
    assert_int_equal(yields, 0);
    assert_int_equal(sleeps, LOOKS - TUTTI__CROWDED_LOOKS);
    atomic_store(&engine.crowded_ns, 0);
    while (atomic_load(&engine.crowded_for_ns) > TUTTI__CROWDED_LEAST_NS) {
        assert_true(tutti__now_ns() < end);
        wait_with(&far, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_spins),
        cmocka_unit_test(far_yields_now_and_then),
        cmocka_unit_test(others_run),
        cmocka_unit_test(others_compute),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
