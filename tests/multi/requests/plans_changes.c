/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that deviate from a learned plan, permanently or once, and programs that make groups
 * while a plan runs: results, errors and counters.
 *
 * Each program has a single tensor, or a single submission group, on a communicator. So a bucket is
 * never partly submitted, and no pause of a thread stops the plan.
 */
#include "engine/steps.h"
#include "long.h"
#include "ranks.h"

#include <unistd.h>

enum {
    BAD_ELEMENTS = 1024
};

/* The engine's counter of plans. It is read without the engine's token, so only while no request is
   pending. */
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

/* A call of "x". */
typedef struct {
    size_t count;
    tutti_dtype_t dtype;
    tutti_op_t op;
    double prescale;
} call_t;

/* Each rank contributes its number. Elements behind the call's elements stay -1. */
static void check_call(const rank_t *self, const call_t *call)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    double last = self->size - 1, sum = last * self->size / 2;
    double want = call->prescale * (call->op == TUTTI_SUM ? sum : last), d[4];
    float f[4];
    int is_double = call->dtype == TUTTI_FLOAT64;
    void *x = is_double ? (void *)d : f;
    tutti_request_t *request;

    for (size_t i = 0; i < 4; i++) {
        d[i] = i < call->count ? self->rank : -1;
        f[i] = (float)d[i];
    }
    options.prescale = call->prescale;
    CHECK_OK(tutti_allreduce_async("x", x, x, call->count, call->dtype, call->op, self->comm,
                                   &options, &request));
    CHECK_OK(tutti_wait(request, -1));
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(is_double ? d[i] : (double)f[i], i < call->count ? want : -1);
}

/* One property of the call of "x" changes on all ranks: the plan stops, and a new plan is
   learned. */
static void changes(rank_t *self)
{
    enum {
        STEPS = 30
    };
    static const call_t calls[] = { { 4, TUTTI_FLOAT32, TUTTI_SUM, 1 },
                                    { 3, TUTTI_FLOAT32, TUTTI_SUM, 1 },
                                    { 3, TUTTI_FLOAT32, TUTTI_MAX, 1 },
                                    { 3, TUTTI_FLOAT32, TUTTI_MAX, 2 },
                                    { 3, TUTTI_FLOAT64, TUTTI_MAX, 2 } };
    uint64_t planned = 0;

    for (int i = 0; i < (int)(sizeof(calls) / sizeof(calls[0])); i++) {
        tutti_stats_t stats;

        for (int step = 0; step < STEPS; step++)
            check_call(self, &calls[i]);
        stats = read_stats(self);
        CHECK_INT(stats.plan_breaks, i);
        CHECK_INT(plans(self), i + 1);
        /* The last steps are planned: at most 6 steps are needed to learn, and one step ends the
           old plan. */
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

/* Make equal steps. There are so many that the end of the plan does not double the number of steps
   to learn. */
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

/* ---- one rank deviates in a submission group ---- */

enum {
    CALLS = 5,
    BARRIER = 3, /* this call is a barrier */
    ELEMENTS = 100
};

/* How one rank's submission differs from the other ranks' submissions. Each value also determines
   the results. */
typedef enum {
    LATE,
    PRIORITY,
    LARGER, /* the group's last call has another count */
    TURNED, /* the calls are in another order */
    ALONE,  /* the calls are in no group */
    PARTLY, /* the first call is missing */
    OTHER,  /* the group has another call instead of the first */
    GROUP_WAYS
} group_way_t;

/* The last call and the third call share a bucket. So the group has several buckets, and its calls
   are not in the order of the buckets. */
static void small_buckets(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.fusion_bytes = 1000;
}

/* Submit the group, changed as `way` requires; returns the number of requests. */
static size_t submit_group(const rank_t *self, int way, int (*x)[ELEMENTS],
                           tutti_request_t **request)
{
    static const char *const names[] = { "a", "b", "c", "d", "e" };
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_call_t calls[CALLS];
    size_t n = way == PARTLY ? CALLS - 1 : CALLS;

    options.priority = 1;
    for (size_t i = 0; i < n; i++) {
        size_t k = way == TURNED ? n - 1 - i : way == PARTLY ? i + 1 : i;

        calls[i] = (tutti_call_t)TUTTI_CALL_INIT;
        calls[i].kind = k == BARRIER ? TUTTI_CALL_BARRIER : TUTTI_CALL_ALLREDUCE;
        calls[i].dtype = TUTTI_INT32;
        calls[i].op = k == 1 ? TUTTI_MAX : TUTTI_SUM;
        calls[i].name = way == OTHER && k == 0 ? "other" : names[k];
        calls[i].count = ELEMENTS - (way == LARGER && i + 1 == n ? 0 : 1);
        if (k == BARRIER) /* a barrier has no such field */
            calls[i].count = (size_t)self->rank;
        calls[i].sendbuf = calls[i].recvbuf = x[k];
        calls[i].options = way == PRIORITY && k == 1 ? &options : NULL;
        for (int e = 0; e < ELEMENTS; e++)
            x[k][e] = self->rank + (int)k;
    }
    for (size_t i = 0; i < n && way == ALONE; i++)
        CHECK_OK(tutti_submit(&calls[i], 1, self->comm, &request[i]));
    if (way != ALONE)
        CHECK_OK(tutti_submit(calls, n, self->comm, request));
    return n;
}

/* Wait for a submitted group. If its calls do not match, no buffer was changed. */
static void finish_group(const rank_t *self, size_t n, int (*x)[ELEMENTS],
                         tutti_request_t **request, tutti_status_t wanted)
{
    int last = self->size - 1;

    for (size_t i = 0; i < n; i++)
        CHECK_STATUS(tutti_wait(request[i], -1), wanted);
    for (int k = CALLS - (int)n; k < CALLS; k++) {
        int result = k == 1 ? last + k : self->size * last / 2 + self->size * k;

        for (int e = 0; e < ELEMENTS - 1 && k != BARRIER; e++)
            CHECK_INT(x[k][e], wanted == TUTTI_OK ? result : self->rank + k);
    }
}

static void deviate_in_group(const rank_t *self, int rank, int way, int (*x)[ELEMENTS])
{
    tutti_request_t *request[CALLS];
    int deviates = self->rank == rank;
    size_t n = 0;

    for (int turn = 0; turn < 2; turn++) {
        if (deviates == turn) {
            n = submit_group(self, deviates ? way : LATE, x, request);
            tutti__engine_settle(self->inside->engine);
        }
        CHECK_OK(tutti_barrier(self->comm));
    }
    finish_group(self, n, x, request, way > PRIORITY ? TUTTI_ERR_MISMATCH : TUTTI_OK);
}

/* The calls of a group are planned, although they have several buckets. If one rank deviates, the
   plan serves no bucket of the group. After that the group is learned again. */
static void group_deviations(rank_t *self)
{
    int x[CALLS][ELEMENTS];
    tutti_request_t *request[CALLS];
    tutti_stats_t stats = TUTTI_STATS_INIT, before, after;
    uint32_t n = 0;

    for (int rank = 0; rank < self->size; rank += self->size - 1)
        for (int way = LATE; way < GROUP_WAYS; way++) {
            for (int step = 0; step < 30; step++) {
                finish_group(self, submit_group(self, LATE, x, request), x, request, TUTTI_OK);
                if (step == 6)
                    stats = read_stats(self);
            }
            before = read_stats(self);
            CHECK_INT(plans(self), n + 1);
            CHECK_INT(before.plan_breaks, n);
            CHECK(before.plan_steps >= stats.plan_steps + 23);
            CHECK(before.plan_hits - stats.plan_hits > before.plan_steps - stats.plan_steps);
            CHECK_INT(before.announcements_sent, stats.announcements_sent);
            CHECK_INT(before.bucket_messages_sent, stats.bucket_messages_sent);
            deviate_in_group(self, rank, way, x);
            after = read_stats(self);
            n += way != LATE;
            CHECK_INT(after.plan_breaks, n);
            if (way != LATE)
                CHECK_INT(after.plan_hits, before.plan_hits);
            check_equal(self, after.plan_hits);
        }
}

/* ---- groups while a plan runs ---- */

/* Submit "x" on a communicator; each rank contributes 1. */
static tutti_request_t *submit_one(tutti_comm_t *comm, int *x)
{
    tutti_request_t *request;

    *x = 1;
    CHECK_OK(tutti_allreduce_async("x", x, x, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, &request));
    return request;
}

static void finish_one(tutti_comm_t *comm, tutti_request_t *request, const int *x)
{
    CHECK_OK(tutti_wait(request, -1));
    CHECK_INT(*x, tutti_size(comm));
}

/* While a planned tensor is pending: make or free a group. kind 0: split the communicator into two;
   1: create a group from a list of all ranks. */
static void change_group(const rank_t *self, int kind, tutti_comm_t **group)
{
    int ranks[8];

    for (int r = 0; r < self->size; r++)
        ranks[r] = self->size - 1 - r;
    if (*group != NULL) {
        CHECK_OK(tutti_comm_free(*group));
        *group = NULL;
    } else if (kind == 0)
        CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, -self->rank, group));
    else
        CHECK_OK(tutti_comm_create(self->comm, ranks, self->size, group));
}

/* The groups have plans of their own, with a tensor of the same name. No plan stops. */
static void groups(rank_t *self)
{
    enum {
        KINDS = 2
    };
    tutti_comm_t *group[KINDS] = { NULL, NULL };
    tutti_stats_t stats = TUTTI_STATS_INIT;

    for (int step = 0; step < 60; step++) {
        int x, y[KINDS];
        tutti_request_t *request = submit_one(self->comm, &x), *its[KINDS];

        for (int kind = 0; kind < KINDS; kind++) {
            if (step % 20 == 6 + 3 * kind || step % 20 == 17 + kind)
                change_group(self, kind, &group[kind]);
            its[kind] = group[kind] != NULL ? submit_one(group[kind], &y[kind]) : NULL;
        }
        finish_one(self->comm, request, &x);
        for (int kind = 0; kind < KINDS; kind++)
            if (its[kind] != NULL)
                finish_one(group[kind], its[kind], &y[kind]);
        if (step % 20 == 16) {
            CHECK_OK(tutti_comm_get_stats(group[1], &stats));
            CHECK(stats.plan_hits > 0);
        }
    }
    CHECK(group[0] == NULL && group[1] == NULL);
    stats = read_stats(self);
    CHECK_INT(stats.plan_breaks, 0);
    CHECK_INT(plans(self), 1);
    CHECK(stats.plan_hits > 50);
}

/* ---- calls that no algorithm serves ---- */

static void appended(void *dst, const void *left, const void *right, size_t count,
                     tutti_dtype_t dtype, void *arg)
{
    (void)dtype;
    (void)arg;
    for (size_t i = 0; i < count; i++)
        ((int *)dst)[i] = 10 * ((const int *)left)[i] + ((const int *)right)[i];
}

static tutti_op_t append; /* used by all ranks, which may be threads of this process */

static void large_in_a_ring(tutti__conf_t *conf, int rank)
{
    (void)rank;
    snprintf(conf->shared.algorithm, sizeof(conf->shared.algorithm), "allreduce:1k-:ring");
    conf->shared.fusion_bytes = 1;
    conf->log_level = TUTTI__LOG_NONE;
}

/* A step with a submission group of two calls. bad: index of the call that a ring does not serve,
   or -1. */
static void refused_step(rank_t *self, const char *const *names, int bad)
{
    static _Thread_local int x[2][BAD_ELEMENTS];
    tutti_call_t calls[2];
    tutti_request_t *request[2];
    int sum = self->size * (self->size + 1) / 2;

    for (int i = 0; i < 2; i++) {
        calls[i] = (tutti_call_t)TUTTI_CALL_INIT;
        calls[i].kind = TUTTI_CALL_ALLREDUCE;
        calls[i].dtype = TUTTI_INT32;
        calls[i].op = i == bad ? append : TUTTI_SUM;
        calls[i].name = names[i];
        calls[i].count = i == bad ? BAD_ELEMENTS : 1;
        calls[i].sendbuf = calls[i].recvbuf = x[i];
        x[i][0] = (self->rank + 1) * (i + 1);
    }
    CHECK_OK(tutti_submit(calls, 2, self->comm, request));
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(tutti_wait(request[i], -1), i == bad ? TUTTI_ERR_UNSUPPORTED : TUTTI_OK);
        if (i != bad)
            CHECK_INT(x[i][0], sum * (i + 1));
    }
}

/* A call of a group fails on all ranks in each step, and one rank is late. The group's other call,
   and later groups, have the right results. */
static void refused(rank_t *self)
{
    static const char *const names[2][2] = { { "bad", "good" }, { "good 2", "bad 2" } };
    static const char *const later[2] = { "p", "q" };

    for (int bad = 0; bad < 2; bad++)
        for (int step = 0; step < 8; step++) {
            if (self->rank == self->size - 1)
                usleep(5000);
            refused_step(self, names[bad], bad);
        }
    for (int step = 0; step < 10; step++)
        refused_step(self, later, -1);
}

int main(void)
{
    static const char *const hosts[] = { "aaa", "aabb", "aa", "abc", "aaaab" };
    int failures = 0, whole = test_is_long("three of five placings");

    if (tutti_op_create(appended, NULL, 0, &append) != TUTTI_OK)
        return 1;
    for (int i = 0; i < (whole ? 5 : 2); i++) {
        job_t job = { .size = (int)strlen(hosts[i]),
                      .hosts = hosts[i],
                      .threads = !ranks_can_fork(),
                      .fn = changes };

        RUN_JOB(failures, &job);
        job.fn = deviations;
        RUN_JOB(failures, &job);
        job.fn = groups;
        RUN_JOB(failures, &job);
        job.fn = group_deviations;
        job.settings = small_buckets;
        RUN_JOB(failures, &job);
        job.fn = refused;
        job.settings = large_in_a_ring;
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
