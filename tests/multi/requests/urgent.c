/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An urgent tensor is done before larger tensors that wait for a lane, and before a tensor of a
 * learned plan that another rank has not submitted.
 *
 * The order does not depend on time: one rank takes no steps, or does not submit a tensor, until
 * the other ranks have reached a certain state.
 */
#include "agree/tensors.h"
#include "engine/steps.h"
#include "ranks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    LANES = TUTTI__BUCKET_LANES,
    TENSORS = 5 * LANES, /* the first LANES tensors occupy the lanes */
    LARGE = 50000
};

/* Flags that all processes share. */
typedef struct {
    atomic_int announced; /* the last rank has announced all its tensors */
    atomic_int agreed;    /* the urgent tensor is agreed on, and waits for a lane */
} board_t;

static board_t *board;

/* Each tensor is a bucket. */
static void no_fusion(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.fusion_bytes = 0;
}

/* Wait for a flag, for a limited time. If the flag is still not set, later checks fail. */
static void await(atomic_int *flag)
{
    for (int i = 0; i < 40000 && !atomic_load(flag); i++)
        usleep(500);
    CHECK(atomic_load(flag));
}

static void submit_large(const rank_t *self, float *x, tutti_request_t **ret_request)
{
    char name[16];

    for (int t = 0; t < TENSORS; t++) {
        for (int i = 0; i < LARGE; i++)
            x[t * LARGE + i] = (float)(self->rank + t);
        snprintf(name, sizeof(name), "large %d", t);
        CHECK_OK(tutti_allreduce_async(name, x + t * LARGE, x + t * LARGE, LARGE, TUTTI_FLOAT32,
                                       TUTTI_SUM, self->comm, NULL, &ret_request[t]));
    }
}

static tutti_request_t *submit_urgent(const rank_t *self, float *x)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *request;

    options.priority = 1;
    CHECK_OK(tutti_allreduce_async("urgent", x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                   &options, &request));
    return request;
}

/* Run steps until `count` buckets are in lanes. The caller has the token. */
static void fill_lanes(tutti__engine_t *e, uint32_t count)
{
    for (int i = 0; i < 40000 && tutti__owned(e)->lanes.in_flight < count; i++) {
        tutti__engine_step(e, TUTTI__STEP_WAITER);
        usleep(500);
    }
    CHECK_INT(tutti__owned(e)->lanes.in_flight, count);
}

/* The last rank announces all its tensors, and then runs no steps, so no bucket can end. */
static tutti_request_t *hold_up(const rank_t *self, float *x, float *y, tutti_request_t **ret_large)
{
    tutti__engine_t *e = self->inside->engine;
    tutti_request_t *urgent;

    tutti__token_await(&e->token);
    submit_large(self, x, ret_large);
    urgent = submit_urgent(self, y);
    tutti__engine_step(e, TUTTI__STEP_WAITER);
    atomic_store(&board->announced, 1);
    await(&board->agreed);
    tutti__engine_yield(e, TUTTI__STEP_WAITER);
    return urgent;
}

/* For the coordinator. 1: all ranks have announced the urgent tensor, so it waits for a lane. */
static int is_agreed(tutti__engine_t *e)
{
    const tutti__tensor_t *t = tutti__owned(e)->agreed.agree->ready_first;

    while (t != NULL && t->msg.metadata.priority == 0)
        t = t->next;
    return t != NULL;
}

/* After buckets have filled all lanes, rank 0 submits the urgent tensor. */
static tutti_request_t *come_late(const rank_t *self, float *x, float *y,
                                  tutti_request_t **ret_large)
{
    tutti__engine_t *e = self->inside->engine;
    tutti_request_t *urgent;

    await(&board->announced);
    tutti__token_await(&e->token);
    submit_large(self, x, ret_large);
    fill_lanes(e, LANES);
    urgent = submit_urgent(self, y);
    for (int i = 0; i < 40000 && !is_agreed(e); i++) {
        tutti__engine_step(e, TUTTI__STEP_WAITER);
        usleep(500);
    }
    CHECK(is_agreed(e));
    CHECK_INT(tutti__owned(e)->lanes.agreed_served, 0);
    atomic_store(&board->agreed, 1);
    tutti__engine_yield(e, TUTTI__STEP_WAITER);
    return urgent;
}

/* The urgent tensor is bucket number LANES, after the buckets that filled the lanes. So bucket
   2 LANES, which is large tensor 2 LANES - 1, follows the urgent tensor in its lane. */
static void overtakes_waiting(rank_t *self)
{
    float *x = malloc(TENSORS * LARGE * sizeof(*x)), y = (float)self->rank;
    float ranks = (float)(self->size * (self->size - 1) / 2);
    tutti_request_t *large[TENSORS], *urgent;
    int done;

    CHECK(x != NULL);
    if (self->rank == self->size - 1)
        urgent = hold_up(self, x, &y, large);
    else if (self->rank == 0)
        urgent = come_late(self, x, &y, large);
    else {
        submit_large(self, x, large);
        urgent = submit_urgent(self, &y);
    }
    CHECK_OK(tutti_wait(large[2 * LANES - 1], -1));
    CHECK_OK(tutti_test(urgent, &done));
    CHECK(done);
    CHECK_OK(tutti_wait(urgent, -1));
    CHECK_INT(y, ranks);
    for (int t = 0; t < TENSORS; t++) {
        if (t != 2 * LANES - 1)
            CHECK_OK(tutti_wait(large[t], -1));
        for (int i = 0; i < LARGE; i++)
            CHECK_INT(x[t * LARGE + i], ranks + (float)(self->size * t));
    }
    free(x);
}

static tutti_request_t *submit_planned(const rank_t *self, float *x)
{
    tutti_request_t *request;

    for (int i = 0; i < LARGE; i++)
        x[i] = (float)self->rank;
    CHECK_OK(tutti_allreduce_async("planned", x, x, LARGE, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                   NULL, &request));
    return request;
}

/* The last rank submits the planned tensor after the urgent tensor is done on all ranks. The plan
   continues. */
static void overtakes_planned(rank_t *self)
{
    tutti_stats_t before = TUTTI_STATS_INIT, after = TUTTI_STATS_INIT;
    float *x = malloc(LARGE * sizeof(*x)), ranks = (float)(self->size * (self->size - 1) / 2);
    int is_last = self->rank == self->size - 1, done = 0;

    CHECK(x != NULL);
    for (int step = 0; step < 8; step++)
        CHECK_OK(tutti_wait(submit_planned(self, x), -1));
    CHECK_OK(tutti_comm_get_stats(self->comm, &before));
    for (int step = 0; step < 4; step++) {
        tutti_request_t *planned = is_last ? NULL : submit_planned(self, x);
        float y = (float)self->rank;

        CHECK_OK(tutti_wait(submit_urgent(self, &y), -1));
        CHECK_INT(y, ranks);
        if (!is_last)
            CHECK_OK(tutti_test(planned, &done));
        CHECK(!done);
        CHECK_OK(tutti_barrier(self->comm));
        if (is_last)
            planned = submit_planned(self, x);
        CHECK_OK(tutti_wait(planned, -1));
        for (int i = 0; i < LARGE; i++)
            CHECK_INT(x[i], ranks);
    }
    CHECK_OK(tutti_comm_get_stats(self->comm, &after));
    CHECK_INT(before.plan_breaks + after.plan_breaks, 0);
    CHECK_INT(after.plan_hits, before.plan_hits + 4);
    free(x);
}

int main(void)
{
    static const char *const hosts[] = { "aa", "aaa", "aab", "abc", "aabb" };
    int failures = 0;

    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    for (int i = 0; i < 5; i++) {
        job_t job = { .size = (int)strlen(hosts[i]),
                      .hosts = hosts[i],
                      .threads = !ranks_can_fork(),
                      .settings = no_fusion,
                      .fn = overtakes_waiting };

        memset(board, 0, sizeof(*board));
        RUN_JOB(failures, &job);
        job.settings = NULL;
        job.fn = overtakes_planned;
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
