/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How well do the stages of an allreduce on device memory overlap? This is not a test. It prints
 * the share of the slowest stage's bandwidth that the allreduce reaches. Pretend devices, their
 * NCCL and the channels run at given rates. Rates are low, so that processors do not limit them.
 *
 *      device_share [MiB of the buffer [KiB of a chunk [MB/s of the slowest stage]]]
 *
 * The pretended NCCL has costs of its own. So the program also times the same node operations
 * alone, one after another.
 */
#include "unit/exec/devteam.h"

#include "base/time.h"
#include "sched/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOSTS 2
#define ROUNDS 3

/* ---- a transport with a given rate ---- */

static double link_rate; /* rate of each channel */

struct tutti__chan {
    const tutti__xport_ops_t *ops; /* the inner channel's */
    tutti__chan_t *inner;
    uint64_t free_at; /* ns */
};

typedef struct {
    tutti__xport_t xport;
    tutti__xport_t *inner;
} paced_t;

static tutti_status_t wrap(tutti__xport_t *xport, tutti_status_t status, tutti__chan_t *inner,
                           tutti__chan_t **ret_chan)
{
    tutti__chan_t *chan = calloc(1, sizeof(*chan)); /* never freed */

    chan->ops = ((paced_t *)xport)->inner->ops;
    chan->inner = inner;
    *ret_chan = chan;
    return status;
}

static tutti_status_t open_send(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    tutti__xport_t *inner = ((paced_t *)xport)->inner;
    tutti__chan_t *chan = NULL;
    tutti_status_t status = inner->ops->open_send(inner, key, &chan);

    return wrap(xport, status, chan, ret_chan);
}

static tutti_status_t open_recv(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    tutti__xport_t *inner = ((paced_t *)xport)->inner;
    tutti__chan_t *chan = NULL;
    tutti_status_t status = inner->ops->open_recv(inner, key, &chan);

    return wrap(xport, status, chan, ret_chan);
}

static tutti_status_t paced_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                 uint32_t signature, int *ret_pending, tutti__hint_t *hint)
{
    uint64_t now = tutti__now_ns();
    tutti_status_t status;

    if (now < chan->free_at) {
        hint->word = NULL;
        hint->peer = 0;
        return TUTTI__AGAIN;
    }
    status = chan->ops->send(chan->inner, data, bytes, signature, ret_pending, hint);
    if (status == TUTTI_OK) {
        uint64_t from = now - chan->free_at < 1000000 ? chan->free_at : now;

        chan->free_at = from + (uint64_t)((double)bytes / link_rate * 1e9);
    }
    return status;
}

static tutti_status_t paced_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                                 const void **ret_data, tutti__hint_t *hint)
{
    return chan->ops->view(chan->inner, bytes, signature, ret_data, hint);
}

static void paced_release(tutti__chan_t *chan)
{
    chan->ops->release(chan->inner);
}

static const tutti__xport_ops_t paced_ops = {
    .name = "paced",
    .open_send = open_send,
    .open_recv = open_recv,
    .send = paced_send,
    .view = paced_view,
    .release = paced_release,
};

/* ---- figures ---- */

/* An allreduce on device memory with its node operations only. */
static void build_alone(const shape_t *shape, uint32_t blocks, tutti__sched_t **ret_scheds)
{
    for (uint32_t r = 0; r < shape->shape.size; r++) {
        tutti__build_t *b = tutti__build_begin("alone", r, shape->shape.size,
                                               blocks * shape->shape.min_local, 0, 1);

        tutti__build_stage(b, 0, blocks, 4);
        tutti__build_loop(b);
        tutti__build_node(b, TUTTI__NODE_REDUCE_SCATTER, (tutti__at_t){ TUTTI__IN, 0 },
                          (tutti__at_t){ TUTTI__OUT, 0 }, blocks, shape->shape.min_local, 0);
        tutti__build_node(b, TUTTI__NODE_ALLGATHER, (tutti__at_t){ TUTTI__OUT, 0 },
                          (tutti__at_t){ TUTTI__OUT, 0 }, blocks, shape->shape.min_local, 0);
        tutti__build_end_loop(b);
        assert_int_equal(tutti__build_end(b, &ret_scheds[r]), TUTTI_OK);
    }
}

static double best_seconds(devteam_t *team, tutti__sched_t *const *scheds, size_t bytes)
{
    double best = 1e9;

    for (int i = 0; i < ROUNDS; i++) {
        devteam_set(team, scheds, bytes / sizeof(float), TUTTI_FLOAT32, TUTTI_SUM, 0);
        devteam_settle(team);
        devteam_threads(team);
        for (uint32_t r = 0; r < team->world.n; r++)
            if (team->status[r] != TUTTI_OK)
                fail_msg("%s", team->error[r]);
        best = TUTTI__MIN(best, team->seconds);
    }
    return best;
}

static void show(uint32_t each, const char *sub, const char *slowest, size_t bytes, size_t chunk,
                 double copy, double nccl, double link)
{
    static devteam_t team;
    static paced_t paced[WORLD_RANKS];
    shape_t *shape = shape_even(HOSTS, each);
    set_t set = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical"),
                  .sub = sub,
                  .shape = shape,
                  .on_device = 1 };
    devteam_options_t options = { .slot_bytes = 65536,
                                  .chunk_bytes = chunk,
                                  .stage_bytes = chunk * 16,
                                  .credits = 4,
                                  .buffer_bytes = bytes,
                                  .nap_us = 30 };
    double part = (double)bytes / each, ideal, took;

    set_build(&set);
    devteam_open(&team, shape, &options);
    for (uint32_t r = 0; r < team.world.n; r++) {
        paced[r] = (paced_t){ { .ops = &paced_ops }, team.xport[r] };
        for (uint32_t peer = 0; peer < team.world.n; peer++)
            team.table[r][peer] = peer == r ? NULL : &paced[r].xport;
    }
    pretend_rates(copy, nccl);
    link_rate = link;
    took = best_seconds(&team, set.scheds, bytes);
    /* On two hosts a part is sent once. */
    ideal = TUTTI__MAX(part / copy, part / link);
    if (each > 1) {
        tutti__sched_t *alone[WORLD_RANKS];

        build_alone(shape, set.scheds[0]->stage_blocks, alone);
        ideal = TUTTI__MAX(ideal, best_seconds(&team, alone, bytes));
        for (uint32_t r = 0; r < team.world.n; r++)
            tutti__sched_free(alone[r]);
    }
    printf("%ux%u %-20s %-14s %8.1f ms, slowest stage %8.1f ms: %5.1f %%\n", HOSTS, each, sub,
           slowest, took * 1e3, ideal * 1e3, 100 * ideal / took);
    fflush(stdout);
    pretend_rates(0, 0);
    set_free(&set);
    devteam_close(&team);
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 32) << 20;
    size_t chunk = (argc > 2 ? strtoull(argv[2], NULL, 10) : 256) << 10;
    double slow = (argc > 3 ? strtod(argv[3], NULL) : 20) * 1e6, fast = 10 * slow;
    static const char *const subs[] = { "recursive_doubling", "ring" };

    for (int i = 0; i < 2; i++) {
        for (uint32_t each = 1; each <= 2; each++) {
            show(each, subs[i], "copies", bytes, chunk, slow, 4 * fast, fast);
            show(each, subs[i], "between hosts", bytes, chunk, fast, 4 * fast, slow);
            if (each > 1)
                show(each, subs[i], "NCCL", bytes, chunk, fast, 4 * slow, fast);
            show(each, subs[i], "all alike", bytes, chunk, slow, 4 * slow, slow);
        }
    }
    return 0;
}
