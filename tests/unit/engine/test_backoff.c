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

/* The transport to other hosts. */
static int may(tutti__xport_t *xport, int is_engine)
{
    (void)xport;
    (void)is_engine;
    return 1;
}

static const tutti__xport_ops_t far_ops = { .may_progress = may };
static tutti__xport_t far = { .ops = &far_ops };

static void wait_with(uint64_t takes_ns)
{
    static const tutti__wait_ops_t ops = { .poll = poll, .sleep = sleep_never, .spins = LOOKS };
    tutti__wait_t w = { .ops = &ops, .engine = &engine };

    yield_takes_ns = takes_ns;
    looks = yields = sleeps = 0;
    assert_int_equal(tutti__wait_loop(&w), TUTTI_OK);
}

static void clear(void)
{
    memset(&engine, 0, sizeof(engine));
    engine.world = &engine;
    engine.far = &far;
    engine.spin = 1;
}

static void one_host_spins(void **state)
{
    (void)state;
    clear();
    engine.far = NULL;
    wait_with(0);
    assert_int_equal(yields, 0);
    assert_int_equal(sleeps, 0);
}

/* One yield after every SHARE_LOOKS polls. Wait again if a yield took long. */
static void hosts_yield_now_and_then(void **state)
{
    uint64_t end = tutti__now_ns() + LIMIT_NS;

    (void)state;
    do {
        assert_true(tutti__now_ns() < end);
        clear();
        wait_with(0);
    } while (atomic_load(&engine.crowded_for_ns) > 0 || atomic_load(&engine.shared_ns) > 0);
    assert_int_equal(yields, LOOKS / TUTTI__SHARE_LOOKS - 1);
    assert_int_equal(sleeps, 0);
}

/* A yield of more than SHARED_YIELD_NS shows that another rank uses the processor. After that, the
   waiter yields after each poll, and each of these polls counts more. */
static void others_run(void **state)
{
    uint64_t end = tutti__now_ns() + LIMIT_NS;

    (void)state;
    do {
        assert_true(tutti__now_ns() < end);
        clear();
        wait_with(2 * TUTTI__SHARED_YIELD_NS);
    } while (atomic_load(&engine.crowded_for_ns) > 0);
    assert_true(atomic_load(&engine.shared_ns) > 0);
    assert_in_range(yields, LOOKS / (TUTTI__SHARE_LOOKS + 1) - 1, LOOKS / TUTTI__SHARE_LOOKS);
    assert_true(sleeps > LOOKS / 2);
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
        wait_with(TUTTI__CROWDED_YIELD_NS + 1);
        now = atomic_load(&engine.crowded_for_ns);
        assert_true(yields > 0 && now >= TUTTI__CROWDED_LEAST_NS && now <= TUTTI__CROWDED_NS);
        assert_true(now >= TUTTI__MIN(2 * before, TUTTI__CROWDED_NS));
        before = now;
    } while (now < TUTTI__CROWDED_NS);
    atomic_store(&engine.crowded_ns, tutti__now_ns() + LIMIT_NS);
    wait_with(0);
    assert_int_equal(yields, 0);
    assert_int_equal(sleeps, LOOKS - TUTTI__CROWDED_LOOKS);
    atomic_store(&engine.crowded_ns, 0);
    while (atomic_load(&engine.crowded_for_ns) > TUTTI__CROWDED_LEAST_NS) {
        assert_true(tutti__now_ns() < end);
        wait_with(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_host_spins),
        cmocka_unit_test(hosts_yield_now_and_then),
        cmocka_unit_test(others_run),
        cmocka_unit_test(others_compute),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
