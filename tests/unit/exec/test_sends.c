/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SENDs that are not complete when the executor continues. test_exec runs all algorithms with them;
 * in this test a stream starts consecutive SENDs together if the transport completes them only when
 * the stream polls.
 */
#include "sched/build.h"
#include "unit/exec/lag.h"
#include "unit/exec/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    N = 3,
    MOST = 200
};

static const tutti__at_t in = { TUTTI__IN, 0 };
static const tutti__at_t out = { TUTTI__OUT, 0 };

/* Rank 0 sends to rank 1 first. But rank 1 first receives from rank 2, and rank 2 passes on a
   message of rank 0. */
static void build(tutti__sched_t **scheds)
{
    for (uint32_t r = 0; r < N; r++) {
        tutti__build_t *b = tutti__build_begin("burst", r, N, 1, 0, 1);

        tutti__build_loop(b);
        if (r == 0) {
            tutti__build_send(b, 1, in, 1);
            tutti__build_send(b, 2, in, 1);
        } else if (r == 1) {
            tutti__build_recv(b, 2, 0, out, 1);
            tutti__build_recv(b, 0, 0, out, 1);
        } else {
            tutti__build_recv(b, 0, 0, out, 1);
            tutti__build_send(b, 1, out, 1);
        }
        tutti__build_end_loop(b);
        assert_int_equal(tutti__build_end(b, &scheds[r]), TUTTI_OK);
    }
}

static void test_burst(void **state)
{
    static const size_t counts[] = { 1, 8, 9, MOST };
    static int64_t from[MOST], to[N][MOST];
    tutti__sched_t *scheds[N];
    tutti__exec_call_t calls[N];
    team_t team;
    crew_t crew;

    (void)state;
    build(scheds);
    team_open(&team, N, NULL, 64, 1, LAG_ZERO_CREDITS);
    for (uint32_t r = 0; r < N; r++)
        team.lag[r]->sends_alone = 0;
    crew_open(&crew, &team, 1);
    for (uint32_t i = 0; i < 4 * ORDERS; i++) {
        size_t count = counts[i / ORDERS];

        for (size_t k = 0; k < count; k++)
            from[k] = (int64_t)(k * 1000 + i);
        memset(to, 0, sizeof(to));
        for (uint32_t r = 0; r < N; r++)
            calls[r] = (tutti__exec_call_t){
                .in = from, .out = to[r], .count = count, .dtype = TUTTI_INT64, .op = TUTTI_SUM
            };
        crew_set(&crew, scheds, calls);
        crew_finish(&crew, (order_t)(i % ORDERS), i, "burst");
        assert_memory_equal(to[1], from, count * sizeof(*from));
        assert_memory_equal(to[2], from, count * sizeof(*from));
    }
    crew_close(&crew);
    team_close(&team);
    for (uint32_t r = 0; r < N; r++)
        tutti__sched_free(scheds[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_burst),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
