/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kill -9 at any time: the pending calls of all other ranks soon end with PEER_LOST and name a
 * killed rank. Every later call returns the same error at once.
 *
 * A thread of each victim kills the victim after a delay, so the kill may hit any place in the
 * library. With a delay of 0 the victim may die before its first call.
 */
#include "fault/fault.h"
#include "long.h"

#include "base/time.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    int async;
    size_t count;
    int delay_us;
    unsigned victims; /* bit r: rank r is killed */
} plan_t;

enum {
    TENSORS = 12
};

static void die(void)
{
    unsigned long long none = 0;

    /* Only the first victim sets the time. */
    atomic_compare_exchange_strong(&board->when_ns, &none, tutti__now_ns());
    kill(getpid(), SIGKILL);
}

static void *killer(void *arg)
{
    const plan_t *plan = arg;

    usleep((useconds_t)plan->delay_us);
    die();
    return NULL;
}

/* One step of named tensors; returns the first status that is not OK. */
static tutti_status_t step_async(rank_t *self, const plan_t *plan, float *x)
{
    tutti_request_t *request[TENSORS];
    tutti_status_t status = TUTTI_OK;
    char name[32];
    int n = 0;

    while (n < TENSORS && status == TUTTI_OK) {
        size_t at = plan->count * (size_t)n / TENSORS;

        snprintf(name, sizeof(name), "tensor %d", n);
        status = tutti_allreduce_async(name, x + at, x + at, plan->count / TENSORS, TUTTI_FLOAT32,
                                       TUTTI_MAX, self->comm, NULL, &request[n]);
        if (status == TUTTI_OK)
            n++;
    }
    while (n-- > 0) {
        tutti_status_t s = tutti_wait(request[n], -1);

        status = s != TUTTI_OK ? s : status;
    }
    return status;
}

/* A survivor's error must name a killed rank. */
static void check_name(const plan_t *plan)
{
    char want[32];

    for (int r = 0; r < 8; r++) {
        snprintf(want, sizeof(want), "rank %d was lost", r);
        if ((plan->victims >> r & 1) != 0 && strstr(tutti_last_error(), want) != NULL)
            return;
    }
    ranks_fail(__FILE__, __LINE__, "victims are %x, but: '%s'", plan->victims, tutti_last_error());
}

static void run(rank_t *self)
{
    const plan_t *plan = self->arg;
    int victim = (int)(plan->victims >> self->rank & 1);
    float *x = calloc(plan->count, sizeof(*x));
    tutti_status_t status;
    pthread_t thread;

    CHECK_OK(tutti_barrier(self->comm));
    /* The first rank that leaves a barrier must not kill itself while others are still in it. */
    atomic_fetch_add(&board->ready, 1);
    while (victim && atomic_load(&board->ready) < self->size)
        usleep(100);
    if (victim && plan->delay_us == 0)
        die();
    if (victim)
        pthread_create(&thread, NULL, killer, self->arg);
    do {
        status = plan->async
                     ? step_async(self, plan, x)
                     : tutti_allreduce(x, x, plan->count, TUTTI_FLOAT32, TUTTI_MAX, self->comm);
    } while (status == TUTTI_OK);
    if (victim) {
        /* This victim's call has failed because another victim has died first. */
        CHECK_STATUS(status, TUTTI_ERR_PEER_LOST);
        pthread_join(thread, NULL);
    }
    CHECK(board_age_s() < SOON_S);
    CHECK_STATUS(status, TUTTI_ERR_PEER_LOST);
    check_name(plan);
    check_dead(self, TUTTI_ERR_PEER_LOST, "was lost");
    free(x);
}

/* Run the job with all plans for these victims. */
static int kill_some(job_t *job, unsigned victims, const size_t *counts, int ncounts)
{
    static int turn;
    int failures = 0;

    for (int i = 0; i < ncounts; i++) {
        for (int async = 0; async < 2; async++) {
            plan_t plan = { async, counts[i], turn % 4 * 3000 + turn % 3 * 100, victims };

            turn++;
            board_clear();
            job->fn = run;
            job->arg = &plan;
            job->killed = victims;
            if (ranks_run(job) == 0)
                continue;
            failures++;
            fprintf(stderr,
                    "FAILED: %d ranks, hosts %s, algorithm %s, victims %x, %s, %zu elements, "
                    "after %d us\n",
                    job->size, job->hosts ? job->hosts : "one",
                    job->algorithm ? job->algorithm : "default", victims,
                    async ? "async" : "direct", counts[i], plan.delay_us);
        }
    }
    return failures;
}

int main(void)
{
    static const int sizes[] = { 2, 3, 5, 8 };
    static const char *const hosts[] = { "aabb", "aaabb", "ab", "aabbbccc" };
    static const size_t counts[] = { 24, 600000 }, some = 120000;
    int failures = 0, whole;

    if (!ranks_can_fork()) {
        fprintf(stderr, "ranks must be processes\n");
        return 77;
    }
    whole = test_is_long("5 and 8 ranks of one host, 2, 5 and 8 of several");
    board_open();
    for (size_t i = 0; i < (whole ? sizeof(sizes) / sizeof(sizes[0]) : 2); i++) {
        int n = sizes[i];
        unsigned all = (1u << n) - 1;
        job_t job = { .size = n }, ring = { .size = n, .algorithm = "allreduce:ring" };

        failures += kill_some(&job, 1u, counts, 2);
        failures += kill_some(&job, 1u << (n - 1), counts, 2);
        failures += kill_some(&ring, 1u << n / 2, &some, 1);
        if (n > 2) {
            failures += kill_some(&job, all & ~1u, counts, 2);
            failures += kill_some(&job, all & ~2u, counts, 2);
            failures += kill_some(&ring, all & ~(1u << (n - 1)), &some, 1);
        }
    }
    for (size_t i = 0; i < (whole ? sizeof(hosts) / sizeof(hosts[0]) : 1); i++) {
        job_t job = { .size = (int)strlen(hosts[i]), .hosts = hosts[i] };
        int leader = (int)(strchr(hosts[i], 'b') - hosts[i]);

        failures += kill_some(&job, 1u, counts, 2);
        failures += kill_some(&job, 1u << leader, counts, 2);
        failures += kill_some(&job, 1u << (job.size - 1), counts, 2);
        if (job.size > 2) {
            failures += kill_some(&job, 2u, counts, 2);
            failures += kill_some(&job, (1u << job.size) - 2, &some, 1);
            failures += kill_some(&job, ((1u << job.size) - 1) >> 1, &some, 1);
        }
    }
    return failures != 0;
}
