/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks with devices. See devteam.h. */
#include "unit/exec/devteam.h"

#include "base/time.h"
#include "unit/exec/far.h"
#include "unit/exec/lag.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LANE 2
#define PATIENCE_NS 20000000000u /* longest time without a step; then the test has failed */

static const tutti__device_ops_t *ops(void)
{
    return pretend_device();
}

static void *device_memory(size_t bytes)
{
    void *ptr;

    assert_int_equal(ops()->alloc(bytes, &ptr), TUTTI_OK);
    return ptr;
}

static void *pinned_memory(size_t bytes)
{
    void *ptr;

    assert_int_equal(ops()->host_alloc(bytes, &ptr), TUTTI_OK);
    return ptr;
}

static tutti__node_t *open_nccl(devteam_t *team, uint32_t r)
{
    const tutti__shape_t *shape = &team->shape->shape;
    uint32_t h = shape->host_of[r];
    tutti__nccl_open_t with = { .ops = ops(),
                                .device = (int)r,
                                .me = shape->local_of[r],
                                .nlocal = shape->host_first[h + 1] - shape->host_first[h],
                                .leader = (int32_t)shape->by_host[shape->host_first[h]],
                                .host = team->host[r],
                                .order = &team->order[h],
                                .id = &team->id[h],
                                .stage_bytes = 1024 };
    tutti__node_t *node;

    assert_int_equal(tutti__nccl_node_open(&with, &node), TUTTI_OK);
    return node;
}

/* Make the device's part of the one lane in use. */
static void make_lane(const devteam_t *team, tutti__device_lane_t *lane)
{
    assert_int_equal(ops()->stream_make(0, &lane->down), TUTTI_OK);
    assert_int_equal(ops()->stream_make(0, &lane->up), TUTTI_OK);
    for (int s = 0; s < TUTTI__SCHED_STREAMS; s++)
        assert_int_equal(ops()->event_make(&lane->copied[s]), TUTTI_OK);
    lane->stage = pinned_memory(team->options.stage_bytes);
    if (team->options.gpu_direct_bytes == 0)
        return;
    assert_int_equal(ops()->stream_make(0, &lane->between), TUTTI_OK);
    lane->gpu_direct =
        device_memory(team->options.stage_bytes +
                      team->options.gpu_direct_slots * team->options.gpu_direct_bytes);
}

static void open_device(devteam_t *team, uint32_t r)
{
    const devteam_options_t *options = &team->options;

    assert_int_equal(ops()->use((int)r), TUTTI_OK);
    team->device[r] = (tutti__exec_device_t){ .ops = ops(),
                                              .device = (int)r,
                                              .node = open_nccl(team, r),
                                              .chunk_bytes = options->chunk_bytes,
                                              .stage_bytes = options->stage_bytes,
                                              .gpu_direct_bytes = options->gpu_direct_bytes,
                                              .gpu_direct_slots = options->gpu_direct_slots };
    make_lane(team, &team->device[r].lane[LANE]);
    team->in[r] = device_memory(options->buffer_bytes);
    team->out[r] = device_memory(options->buffer_bytes);
    team->pinned[r] = pinned_memory(options->buffer_bytes);
    assert_int_equal(ops()->stream_make(0, &team->stream[r]), TUTTI_OK);
    assert_int_equal(ops()->event_make(&team->ready[r]), TUTTI_OK);
}

static void open_host(devteam_t *team, uint32_t r)
{
    const devteam_options_t *options = &team->options;

    team->host[r] = world_node(&team->world, r);
    team->xport[r] = world_xport(&team->world, r, options->slot_bytes, options->credits);
    if (options->is_lagging)
        team->lag[r] = lag_open(team->xport[r], r, LAG_CREDITS);
    for (uint32_t peer = 0; peer < team->world.n; peer++)
        team->table[r][peer] = options->is_lagging ? team->lag[r] : team->xport[r];
    if (options->gpu_direct_bytes > 0)
        team->far[r] = far_open(team->table[r][r], r);
    for (uint32_t peer = 0; peer < team->world.n && options->gpu_direct_bytes > 0; peer++)
        if (team->shape->shape.host_of[peer] != team->shape->shape.host_of[r])
            team->table[r][peer] = team->far[r];
    team->table[r][r] = NULL;
    team->env[r] = (tutti__exec_env_t){ .rank = r,
                                        .size = team->world.n,
                                        .xport = team->table[r],
                                        .node = team->host[r],
                                        .slot_bytes = options->slot_bytes,
                                        .device = &team->device[r] };
    tutti__run_init(&team->run[r], &team->env[r], LANE);
}

void devteam_open(devteam_t *team, shape_t *shape, const devteam_options_t *options)
{
    uint32_t n = shape->shape.size;

    memset(team, 0, sizeof(*team));
    team->shape = shape;
    team->options = *options;
    world_open(&team->world, n, shape->host_of);
    assert_int_equal(pretend_prepare((int)n), 0);
    for (uint32_t h = 0; h < shape->shape.nhosts; h++)
        assert_int_equal(ops()->nccl_id(&team->id[h]), TUTTI_OK);
    for (uint32_t r = 0; r < n; r++) {
        open_host(team, r);
        open_device(team, r);
    }
    for (uint32_t r = 0; r < n; r++)
        while (tutti__nccl_node_settle(team->device[r].node) == TUTTI__AGAIN)
            sched_yield();
    pthread_barrier_init(&team->begin, NULL, n);
    pretend_forbid_alloc(1);
}

static void close_device(devteam_t *team, uint32_t r)
{
    tutti__device_lane_t *lane = &team->device[r].lane[LANE];

    team->device[r].node->ops->close(team->device[r].node);
    ops()->stream_drop(lane->down);
    ops()->stream_drop(lane->up);
    ops()->stream_drop(team->stream[r]);
    for (int s = 0; s < TUTTI__SCHED_STREAMS; s++)
        ops()->event_drop(lane->copied[s]);
    ops()->event_drop(team->ready[r]);
    if (lane->between != NULL)
        ops()->stream_drop(lane->between);
    if (lane->gpu_direct != NULL)
        ops()->free(lane->gpu_direct);
    ops()->host_free(lane->stage);
    ops()->host_free(team->pinned[r]);
    ops()->free(team->in[r]);
    ops()->free(team->out[r]);
}

void devteam_close(devteam_t *team)
{
    pretend_forbid_alloc(0);
    for (uint32_t r = 0; r < team->world.n; r++) {
        tutti__run_fini(&team->run[r]);
        close_device(team, r);
        team->host[r]->ops->close(team->host[r]);
        if (team->far[r] != NULL)
            team->far[r]->ops->close(team->far[r]);
        if (team->lag[r] != NULL)
            team->lag[r]->ops->close(team->lag[r]);
        team->xport[r]->ops->close(team->xport[r]);
        assert_int_equal(pretend_counts((int)r, PRETEND_FORBIDDEN), 0);
        assert_int_equal(pretend_counts((int)r, PRETEND_SYNCS_IN_NCCL), 0);
        assert_int_equal(pretend_counts((int)r, PRETEND_BLOCKING_COPIES), 0);
        assert_int_equal(pretend_counts((int)r, PRETEND_CLOSED_BUSY), 0);
    }
    assert_int_equal(pretend_reset(), 0);
    pthread_barrier_destroy(&team->begin);
    world_close(&team->world);
    shape_free(team->shape);
}

/* ---- calls ---- */

void devteam_settle(devteam_t *team)
{
    for (uint32_t r = 0; r < team->world.n; r++)
        while (ops()->query(team->ready[r]) == TUTTI__AGAIN)
            sched_yield();
}

void devteam_set(devteam_t *team, tutti__sched_t *const *scheds, size_t count, tutti_dtype_t dtype,
                 tutti_op_t op, int in_place)
{
    size_t bytes = count * tutti_dtype_bytes(dtype);

    team->scheds = scheds;
    for (uint32_t r = 0; r < team->world.n; r++) {
        assert_int_equal(ops()->use((int)r), TUTTI_OK);
        assert_int_equal(ops()->copy(team->in[r], team->pinned[r], bytes, team->stream[r]),
                         TUTTI_OK);
        assert_int_equal(ops()->record(team->ready[r], team->stream[r]), TUTTI_OK);
        team->call[r] = (tutti__exec_call_t){ .in = team->in[r],
                                              .out = in_place ? team->in[r] : team->out[r],
                                              .count = count,
                                              .dtype = dtype,
                                              .op = op,
                                              .signature = 77,
                                              .on_device = 1,
                                              .ready = team->ready[r] };
    }
}

static tutti_status_t start(devteam_t *team, uint32_t r)
{
    ops()->use((int)r);
    return tutti__run_start(&team->run[r], team->scheds[r], &team->call[r]);
}

static int may_sleep(const tutti__hint_t *hint)
{
    return hint->word != NULL && tutti__load_relaxed(hint->word) == hint->value;
}

static tutti_status_t to_end(devteam_t *team, uint32_t r)
{
    tutti_status_t status = start(team, r);
    tutti__hint_t hint;

    while (status == TUTTI_OK) {
        uint64_t since = tutti__now_ns();

        status = tutti__run_step(&team->run[r], &hint);
        if (status != TUTTI__AGAIN)
            return status;
        do {
            if (team->options.nap_us > 0)
                usleep(team->options.nap_us);
            else
                sched_yield();
            if (tutti__now_ns() - since > PATIENCE_NS)
                return tutti__fail(TUTTI_ERR_TIMEOUT, "asleep for too long");
        } while (may_sleep(&hint));
        status = TUTTI_OK;
    }
    return status;
}

typedef struct {
    devteam_t *team;
    uint32_t r;
    double seconds;
} seat_t;

static void *rank_thread(void *arg)
{
    seat_t *seat = arg;
    devteam_t *team = seat->team;
    uint64_t begin;

    pthread_barrier_wait(&team->begin);
    begin = tutti__now_ns();
    team->status[seat->r] = to_end(team, seat->r);
    seat->seconds = (double)(tutti__now_ns() - begin) / 1e9;
    snprintf(team->error[seat->r], TUTTI__ERROR_BYTES, "%s", tutti_last_error());
    return NULL;
}

void devteam_threads(devteam_t *team)
{
    pthread_t thread[WORLD_RANKS];
    seat_t seat[WORLD_RANKS];

    for (uint32_t r = 0; r < team->world.n; r++) {
        seat[r] = (seat_t){ team, r, 0 };
        assert_int_equal(pthread_create(&thread[r], NULL, rank_thread, &seat[r]), 0);
    }
    team->seconds = 0;
    for (uint32_t r = 0; r < team->world.n; r++) {
        pthread_join(thread[r], NULL);
        team->seconds = TUTTI__MAX(team->seconds, seat[r].seconds);
    }
}

void devteam_turns(devteam_t *team)
{
    uint32_t open = (1u << team->world.n) - 1;
    tutti__hint_t hint[WORLD_RANKS];
    uint64_t since = tutti__now_ns();

    for (uint32_t r = 0; r < team->world.n; r++) {
        memset(&hint[r], 0, sizeof(hint[r]));
        team->status[r] = start(team, r);
        open &= ~((uint32_t)(team->status[r] != TUTTI_OK) << r);
    }
    for (uint32_t r = 0; open != 0; r = (r + 1) % team->world.n) {
        if (!(open >> r & 1) || may_sleep(&hint[r]))
            continue;
        if (tutti__now_ns() - since > PATIENCE_NS)
            fail_msg("ranks of the set %#x do not go on", open);
        ops()->use((int)r);
        team->status[r] = tutti__run_step(&team->run[r], &hint[r]);
        snprintf(team->error[r], TUTTI__ERROR_BYTES, "%s", tutti_last_error());
        if (team->status[r] != TUTTI__AGAIN)
            open &= ~(1u << r);
    }
}
