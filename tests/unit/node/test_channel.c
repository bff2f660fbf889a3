/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs the real code of channels over shared memory in many interleavings of 2 ranks: random ones,
 * and all those with up to two switches at chosen points. See test_interleave.c.
 */
#include "interleave.h"

#include "unit/node/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum {
    MESSAGES = 7
};

typedef struct {
    world_t *world;
    tutti__xport_t *xport[IL_RANKS];
    int wrong;
} chan_run_t;

/* Rank 0 sends data to rank 1. Rank 1 adds one to each element, and sends the data back. */
static void chan_rank(int rank, void *arg)
{
    chan_run_t *run = arg;
    tutti__xport_t *x = run->xport[rank];
    tutti__chan_key_t key = { .peer = (uint32_t)(1 - rank) };
    tutti__chan_t *in, *out;
    tutti__hint_t hint;

    if (x->ops->open_recv(x, &key, &in) != TUTTI_OK || x->ops->open_send(x, &key, &out) != TUTTI_OK)
        run->wrong = 1;
    for (int i = 0; i < MESSAGES && !run->wrong; i++) {
        uint64_t value = (uint64_t)(i * 2 + rank);
        const void *data;
        int pending;

        while (x->ops->send(out, &value, sizeof(value), 7, &pending, &hint) == TUTTI__AGAIN)
            il_idle();
        if (i < 1)
            continue;
        while (x->ops->view(in, sizeof(value), 7, &data, &hint) == TUTTI__AGAIN)
            il_idle();
        memcpy(&value, data, sizeof(value));
        run->wrong |= value != (uint64_t)((i - 1) * 2 + (1 - rank));
        x->ops->release(in);
    }
}

static uint32_t chan_once(world_t *w, uint32_t credits, const il_plan_t *plan)
{
    chan_run_t run = { .world = w };
    uint32_t points;

    world_wipe(w);
    for (uint32_t r = 0; r < w->n; r++)
        run.xport[r] = world_xport(w, r, 64, credits);
    points = il_run((int)w->n, chan_rank, &run, plan);
    if (points == 0 || run.wrong)
        fail_msg("channel: %s; credits %u, seed %u, places %u %u %u",
                 points == 0 ? "deadlock" : "wrong message", credits, plan->seed, plan->place[0],
                 plan->place[1], plan->place[2]);
    for (uint32_t r = 0; r < w->n; r++)
        run.xport[r]->ops->close(run.xport[r]);
    return points;
}

static void test_channel(void **state)
{
    (void)state;
    for (uint32_t credits = 2; credits <= 3; credits++) {
        world_t w;
        uint32_t points = 1;

        world_open(&w, 2, NULL);
        for (uint32_t i = 0; i < 1000; i++) {
            il_plan_t plan = { .seed = i + 1, .percent = 10 + i % 80, .first = i };

            chan_once(&w, credits, &plan);
        }
        for (uint32_t a = 0; a <= points; a++) {
            for (uint32_t b = a; b <= points; b += 1 + (a == 0) * points) {
                il_plan_t plan = { .nplaces = 2, .place = { a, b } };

                points = chan_once(&w, credits, &plan);
            }
        }
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
