/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that leave a learned plan for good, or once: results, errors and counters.
 *
 * Each program has a single tensor. So a bucket is never partly submitted, and no pause of a thread
 * stops the plan.
 */
#include "engine/steps.h"
#include "ranks.h"

/* What the engine has counted. Read without the engine's token, so only when nothing is pending. */
static uint32_t plans(const rank_t *self)
{
    return self->inside->engine->its_owners.agreed.plan.plans;
}

/* Read the statistics when no rank has a pending call. */
static tutti_stats_t read_stats(const rank_t *self)
{
    tutti_stats_t stats = TUTTI_STATS_INIT;

    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_get_stats(self->comm, &stats));
    CHECK_OK(tutti_barrier(self->comm));
    return stats;
}

/* All ranks must have the same value. */
static void check_equal(const rank_t *self, uint64_t value)
{
    uint64_t extreme[2] = { value, ~value };

    CHECK_OK(tutti_allreduce(extreme, extreme, 2, TUTTI_UINT64, TUTTI_MAX, self->comm));
    CHECK_INT(extreme[0], ~extreme[1]);
}

/* One property of the call of "x" changes on all ranks: the plan stops, and is learned again. */
static void changes(rank_t *self)
{
    enum {
        STEPS = 30
    };
    static const struct {
        size_t count;
        tutti_op_t op;
        double prescale;
    } call[] = {
        { 4, TUTTI_SUM, 1 }, { 3, TUTTI_SUM, 1 }, { 3, TUTTI_MAX, 1 }, { 3, TUTTI_MAX, 2 }
    };
    uint64_t planned = 0;

    for (int i = 0; i < (int)(sizeof(call) / sizeof(call[0])); i++) {
        tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
        tutti_stats_t stats;

        options.prescale = call[i].prescale;
        for (int step = 0; step < STEPS; step++) {
            float x[4] = { (float)self->rank, (float)self->rank, (float)self->rank, -1 };
            float last = (float)(self->size - 1), sum = last * (float)self->size / 2;
            tutti_request_t *request;

            CHECK_OK(tutti_allreduce_async("x", x, x, call[i].count, TUTTI_FLOAT32, call[i].op,
                                           self->comm, &options, &request));
            CHECK_OK(tutti_wait(request, -1));
            CHECK(x[2] == (float)call[i].prescale * (call[i].op == TUTTI_SUM ? sum : last));
            CHECK(x[3] == (call[i].count == 4 ? -(float)self->size : -1));
        }
        stats = read_stats(self);
        CHECK_INT(stats.plan_breaks, i);
        CHECK_INT(plans(self), i + 1);
        /* The last steps are planned: at most 6 steps are learned, and one ends the old plan. */
        CHECK(stats.plan_steps >= planned + STEPS - 7 && stats.plan_steps < planned + STEPS);
        CHECK_INT(stats.plan_hits, stats.plan_steps);
        check_equal(self, stats.plan_steps);
        planned = stats.plan_steps;
    }
}

/* ---- one rank deviates in one step ---- */

typedef enum {
    URGENT,   /* its call has a priority */
    MISMATCH, /* its call has another count */
    WAYS
} way_t;

/* Equal steps. After so many of them, the plan has lasted long enough that its end does not double
   the number of steps to learn. */
static void learn(const rank_t *self)
{
    tutti_request_t *request;

    for (int step = 0; step < 30; step++) {
        int x[2] = { self->rank, step };

        CHECK_OK(tutti_allreduce_async("x", x, x, 2, TUTTI_INT32, TUTTI_SUM, self->comm, NULL,
                                       &request));
        CHECK_OK(tutti_wait(request, -1));
        CHECK_INT(x[0], self->size * (self->size - 1) / 2);
        CHECK_INT(x[1], self->size * step);
    }
}

/* The other ranks start their bucket, and then this rank submits another call. */
static void deviate(const rank_t *self, int rank, way_t way)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *request = NULL;
    int x[2] = { 1, self->rank }, deviates = self->rank == rank;

    options.priority = deviates && way == URGENT;
    for (int turn = 0; turn < 2; turn++) {
        if (deviates == turn) {
            CHECK_OK(tutti_allreduce_async("x", x, x, 2 - (deviates && way == MISMATCH),
                                           TUTTI_INT32, TUTTI_SUM, self->comm, &options, &request));
            tutti__engine_settle(self->inside->engine);
        }
        CHECK_OK(tutti_barrier(self->comm));
    }
    CHECK_STATUS(tutti_wait(request, -1), way == MISMATCH ? TUTTI_ERR_MISMATCH : TUTTI_OK);
    CHECK_INT(x[0], way == MISMATCH ? 1 : self->size);
    CHECK_INT(x[1], way == MISMATCH ? self->rank : self->size * (self->size - 1) / 2);
}

/* The deviation is counted once on each rank. The bucket that the other ranks have started is the
   beginning of a step, but it is not served. */
static void deviations(rank_t *self)
{
    int n = 0;

    for (int rank = 0; rank < self->size; rank += self->size - 1)
        for (way_t way = 0; way < WAYS; way++, n++) {
            tutti_stats_t before, after;

            learn(self);
            before = read_stats(self);
            CHECK_INT(plans(self), n + 1);
            deviate(self, rank, way);
            after = read_stats(self);
            CHECK_INT(before.plan_breaks, n);
            CHECK_INT(after.plan_breaks, n + 1);
            CHECK_INT(after.plan_steps, before.plan_steps + (self->rank != rank));
            CHECK_INT(after.plan_hits, before.plan_hits);
            check_equal(self, after.plan_hits);
        }
}

int main(void)
{
    static const char *const hosts[] = { "aa", "aaa", "aabb", "abc", "aaaab" };
    int failures = 0;

    for (int i = 0; i < 5; i++) {
        job_t job = { .size = (int)strlen(hosts[i]),
                      .hosts = hosts[i],
                      .threads = !ranks_can_fork(),
                      .timeout_s = 240,
                      .fn = changes };

        RUN_JOB(failures, &job);
        job.fn = deviations;
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
