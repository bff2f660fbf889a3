/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * While no request is pending, the library sleeps: it uses no processor time and sends no message,
 * also between the steps of a learned plan. During a long wait it uses little processor time.
 *
 * The checks do not depend on speed: on a busy machine ranks use less processor time, not more.
 */
#include "fault/fault.h"

#include "engine/state.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Most milliseconds of processor time in an idle second. Measured: 0; a thread that polls every
   millisecond takes 30. */
#define IDLE_MS 20
/* Most times that threads of the process begin to sleep in this second; main itself sleeps once. */
#define IDLE_SLEEPS 12
/* A waiter's largest share of a processor. Measured: 2 to 5 %; a waiter that only yields takes half
   a processor. */
#define WAITER_SHARE 0.3
/* Most sleeps of a waiter in the barrier below. Sleeps become longer, so there are some 70. If each
   took 2 ms, there would be 340. */
#define WAITER_SLEEPS 200

static void some_work(rank_t *self)
{
    static float x[70000];
    tutti_request_t *request[40];
    char name[32];

    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "tensor %d", i);
        CHECK_OK(tutti_allreduce_async(name, x + 1000 * i, x + 1000 * i, 1000, TUTTI_FLOAT32,
                                       TUTTI_MAX, self->comm, NULL, &request[i]));
    }
    for (int i = 0; i < 40; i++)
        CHECK_OK(tutti_wait(request[i], -1));
    for (int i = 0; i < 100; i++)
        CHECK_OK(tutti_allreduce(x, x, 70000, TUTTI_FLOAT32, TUTTI_MAX, self->comm));
    CHECK_OK(tutti_barrier(self->comm));
}

static long sleeps(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw;
}

/* Make steps with one tensor, until there is a plan. */
static void learn(rank_t *self)
{
    tutti_request_t *request;
    float x = 1;

    for (int step = 0; step < 8; step++) {
        CHECK_OK(tutti_allreduce_async("planned", &x, &x, 1, TUTTI_FLOAT32, TUTTI_MAX, self->comm,
                                       NULL, &request));
        CHECK_OK(tutti_wait(request, -1));
    }
    CHECK(atomic_load(&self->inside->engine->signals.plans));
}

/* Messages of the agreement that this rank has sent so far. */
static uint64_t messages(const rank_t *self)
{
    tutti_stats_t stats = TUTTI_STATS_INIT;

    CHECK_OK(tutti_comm_get_stats(self->comm, &stats));
    return stats.announcements_sent + stats.bucket_messages_sent + stats.other_messages_sent;
}

/* Check the processor time and the messages of the process in one idle second. */
static void check_idle(rank_t *self, const char *when)
{
    uint64_t sent;
    double cpu, wall;
    long slept;

    /* Wait until the other ranks have finished the last calls. */
    atomic_fetch_add(&board->ready, 1);
    while (atomic_load(&board->ready) % self->size != 0)
        usleep(1000);
    usleep(100000);
    cpu = cpu_ms();
    wall = wall_ms();
    slept = sleeps();
    sent = messages(self);
    usleep(1000000);
    cpu = cpu_ms() - cpu;
    slept = sleeps() - slept;
    wall = (wall_ms() - wall) / 1e3;
    CHECK_INT(messages(self), sent);
    if (cpu > IDLE_MS * wall || (double)slept > IDLE_SLEEPS * wall)
        ranks_fail(__FILE__, __LINE__, "idle %s: %.1f ms, %ld sleeps in %.1f s", when, cpu, slept,
                   wall);
    atomic_fetch_add(&board->done, 1);
    while (atomic_load(&board->done) % self->size != 0)
        usleep(1000);
}

static void idle(rank_t *self)
{
    if (self->size == 2)
        check_idle(self, "after the start");
    some_work(self);
    check_idle(self, "after work");
    learn(self);
    check_idle(self, "with a plan");
}

typedef enum {
    IN_BARRIER,
    IN_LARGE,
    IN_WAIT,
    PLACES
} place_t;

/* All other ranks wait for the last rank. */
static void wait_long(rank_t *self)
{
    static float x[300000];
    const place_t *place = self->arg;
    tutti_request_t *request = NULL;
    int late = self->rank == self->size - 1;
    double cpu, wall;
    long slept;

    some_work(self);
    /* The last rank enters the barrier after all others have begun to wait. */
    while (late && atomic_load(&board->ready) < self->size - 1)
        usleep(1000);
    if (late)
        usleep(700000);
    cpu = cpu_ms();
    wall = wall_ms();
    slept = sleeps();
    atomic_fetch_add(&board->ready, 1);
    if (*place == IN_BARRIER)
        CHECK_OK(tutti_barrier(self->comm));
    if (*place == IN_LARGE)
        CHECK_OK(tutti_allreduce(x, x, 300000, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    if (*place == IN_WAIT) {
        CHECK_OK(tutti_allreduce_async("late", x, x, 1000, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &request));
        CHECK_OK(tutti_wait(request, -1));
    }
    cpu = cpu_ms() - cpu;
    wall = wall_ms() - wall;
    slept = sleeps() - slept;
    if (late)
        return;
    if (wall < 400)
        ranks_fail(__FILE__, __LINE__, "did not wait for the last rank: %.0f ms", wall);
    if (cpu > WAITER_SHARE * wall)
        ranks_fail(__FILE__, __LINE__, "waiting took %.0f ms of %.0f", cpu, wall);
    if (*place == IN_BARRIER && self->inside->shape.nhosts == 1 && slept > WAITER_SLEEPS)
        ranks_fail(__FILE__, __LINE__, "waiting took %ld sleeps in %.0f ms", slept, wall);
}

int main(void)
{
    static const char *const hosts[] = { NULL, NULL, "aabb" };
    static const int sizes[] = { 2, 8, 4 };
    int failures = 0;

    if (!ranks_can_fork()) {
        fprintf(stderr, "ranks must be processes\n");
        return 77;
    }
    board_open();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        job_t job = { .size = sizes[i], .hosts = hosts[i], .fn = idle };

        board_clear();
        RUN_JOB(failures, &job);
        for (int place = 0; place < PLACES; place++) {
            place_t arg = (place_t)place;

            job.fn = wait_long;
            job.arg = &arg;
            board_clear();
            RUN_JOB(failures, &job);
        }
    }
    return failures != 0;
}
