/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums of float32 whose rounding shows the order of the additions. An asynchronous allreduce gets
 * the same bits in a bucket of its own, in a bucket with other tensors, and in a learned plan. With
 * TUTTI_DETERMINISTIC=strict, these are also the bits of a direct call, of jobs without plans, and
 * of jobs with other buckets.
 *
 * Sums of bfloat16, and submission groups, also keep their bits when a plan begins.
 */
#include "engine/state.h"
#include "long.h"
#include "ranks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    LARGE = 100000, /* elements: between hosts more than a bucket of this plan holds; on one host
                       less */
    SMALL = 700,
    TENSORS = 12, /* every fourth tensor is large */
    ALL = TENSORS / 4 * LARGE + (TENSORS - TENSORS / 4) * SMALL,
    STEPS = 7 /* the first step submits one tensor at a time; from the fifth step on there is a
                 plan */
};

/* A job's settings. */
typedef struct {
    int strict, plans;
    uint64_t fusion_bytes;
} kind_t;

static kind_t kind; /* of the current job */

/* Shared by all processes: rank 0's result in the first job with this placing of the ranks. */
static float *first_bits;
static int is_first;

static void settings(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.strict = (uint64_t)kind.strict;
    conf->shared.plans = (uint64_t)kind.plans;
    conf->shared.fusion_bytes = kind.fusion_bytes;
}

static void fill(const rank_t *self, float *x)
{
    for (size_t i = 0; i < ALL; i++)
        x[i] = 1.0f / (float)(1 + (i * 31 + (size_t)self->rank * 17) % 1009);
}

static void check_bits(const float *x, const float *want, const char *when, int step)
{
    if (memcmp(x, want, ALL * sizeof(*x)) == 0)
        return;
    for (size_t i = 0; i < ALL; i++)
        if (memcmp(&x[i], &want[i], sizeof(*x)) != 0)
            ranks_fail(__FILE__, __LINE__, "%s, step %d: element %zu is %.9g, not %.9g", when, step,
                       i, (double)x[i], (double)want[i]);
}

/* In the first step each tensor is done before the next one. */
static void run_step(const rank_t *self, float *x, int step)
{
    tutti_request_t *request[TENSORS];
    char name[16];

    for (int t = 0; t < TENSORS; t++) {
        size_t count = t % 4 == 1 ? LARGE : SMALL;

        snprintf(name, sizeof(name), "tensor %d", t);
        CHECK_OK(tutti_allreduce_async(name, x, x, count, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &request[t]));
        if (step == 0)
            CHECK_OK(tutti_wait(request[t], -1));
        x += count;
    }
    if (step > 0)
        CHECK_OK(tutti_wait_all(request, TENSORS, -1));
}

static void async(rank_t *self)
{
    float *x = malloc(ALL * sizeof(*x)), *want = malloc(ALL * sizeof(*want));
    float *sent = malloc(ALL * sizeof(*sent));
    tutti_stats_t stats = TUTTI_STATS_INIT;

    CHECK(x != NULL && want != NULL && sent != NULL);
    fill(self, sent);
    for (int step = 0; step < STEPS; step++) {
        memcpy(x, sent, ALL * sizeof(*x));
        run_step(self, x, step);
        if (step == 0)
            memcpy(want, x, ALL * sizeof(*x));
        check_bits(x, want, "alone and with others", step);
    }
    CHECK_OK(tutti_comm_get_stats(self->comm, &stats));
    CHECK_INT(stats.plan_hits > 0, kind.plans);
    if (kind.strict) {
        memcpy(x, sent, ALL * sizeof(*x));
        CHECK_OK(tutti_allreduce(x, x, ALL, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
        check_bits(x, want, "direct", 0);
        if (is_first && self->rank == 0)
            memcpy(first_bits, want, ALL * sizeof(*x));
        CHECK_OK(tutti_barrier(self->comm));
        check_bits(want, first_bits, "first job", 0);
    }
    free(x);
    free(want);
    free(sent);
}

/* The sum has the same bits with and without a plan: 256 + 1 + 1, rounded once. */
static void same_bits(rank_t *self)
{
    static const uint16_t values[] = { 0x4380, 0x3f80, 0x3f80, 0 }; /* bfloat16 */
    tutti_request_t *request;

    for (int step = 0; step < 12; step++) {
        uint16_t x = values[self->rank];

        CHECK_OK(tutti_allreduce_async("x", &x, &x, 1, TUTTI_BFLOAT16, TUTTI_SUM, self->comm, NULL,
                                       &request));
        CHECK_OK(tutti_wait(request, -1));
        CHECK_INT(x, 0x4381);
    }
    CHECK(self->inside->engine->its_owners.lanes.plan_served > 0);
}

/* A submission group of an allreduce and a reduce, whose roundings show the order of the additions:
   the results have the same bits in each step. */
static void same_bits_in_group(rank_t *self)
{
    enum {
        COUNT = 700
    };
    static const char *const names[] = { "all", "one" };
    float x[2][COUNT], first[2][COUNT];
    tutti_request_t *request[2];
    tutti_call_t calls[2];

    for (int step = 0; step < 12; step++) {
        for (size_t i = 0; i < COUNT; i++)
            x[0][i] = x[1][i] = 1.0f / (float)(1 + (i * 31 + (size_t)self->rank * 17) % 1009);
        for (int k = 0; k < 2; k++) {
            calls[k] = (tutti_call_t)TUTTI_CALL_INIT;
            calls[k].kind = k == 0 ? TUTTI_CALL_ALLREDUCE : TUTTI_CALL_REDUCE;
            calls[k].dtype = TUTTI_FLOAT32;
            calls[k].op = TUTTI_SUM;
            calls[k].root = k;
            calls[k].name = names[k];
            calls[k].sendbuf = calls[k].recvbuf = x[k];
            calls[k].count = COUNT;
        }
        CHECK_OK(tutti_submit(calls, 2, self->comm, request));
        CHECK_OK(tutti_wait_all(request, 2, -1));
        if (step == 0)
            memcpy(first, x, sizeof(x));
        CHECK(memcmp(x, first, sizeof(x)) == 0);
    }
    CHECK(self->inside->engine->its_owners.lanes.plan_served > 0);
}

static int bits_of_plans(void)
{
    job_t job = { .size = 4, .hosts = "aaab", .threads = !ranks_can_fork(), .fn = same_bits };
    int failures = 0;

    RUN_JOB(failures, &job);
    job.fn = same_bits_in_group;
    RUN_JOB(failures, &job);
    job.hosts = NULL;
    RUN_JOB(failures, &job);
    return failures;
}

int main(void)
{
    static const char *const hosts[] = { "aaaa", "aabbc", "abc", "aabb", "abcdef" };
    static const kind_t kinds[] = { { 1, 1, TUTTI__CONF_AUTO },
                                    { 1, 0, TUTTI__CONF_AUTO },
                                    { 1, 1, SMALL * sizeof(float) * 3 },
                                    { 1, 0, 0 },
                                    { 0, 1, TUTTI__CONF_AUTO } };
    int failures = 0, whole = test_is_long("three of five placings on hosts");

    first_bits = mmap(NULL, ALL * sizeof(*first_bits), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (first_bits == MAP_FAILED)
        return 1;
    for (int i = 0; i < (whole ? 5 : 2); i++) {
        for (int k = 0; k < 5; k++) {
            job_t job = {
                .size = (int)strlen(hosts[i]), .hosts = hosts[i], .settings = settings, .fn = async
            };

            kind = kinds[k];
            is_first = k == 0;
            RUN_JOB(failures, &job);
        }
    }
    failures += bits_of_plans();
    return failures != 0;
}
