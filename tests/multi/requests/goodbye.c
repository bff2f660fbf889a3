/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goodbyes that are being forwarded through the tree: a leader leaves while rank 0 sends it a
 * bucket; a rank finishes a plan's bucket long after other ranks have left; and ranks die or abort
 * after rank 0, which forwards all reports, has left.
 *
 * The hosts are pretended. The transport between them is shared memory, but the library must poll
 * it, like a transport between machines.
 */
#include "base/time.h"
#include "engine/steps.h"
#include "ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

/* States that the ranks reach, in this order. */
enum {
    SUBMITTED_3 = 1, /* rank 3 has submitted its request */
    IS_HELD,         /* no thread of rank 0 runs steps */
    SUBMITTED_1,
    LEAVES, /* rank 2 is about to leave */
    SENT,   /* rank 2 has sent its part of the result */
    DONE
};

static struct {
    atomic_int step;
    atomic_int is_late; /* 1: rank 0 was scheduled too late, so any status is accepted */
    _Atomic uint64_t leaves_ns;
} * shared;

static void await(int step)
{
    for (int i = 0; i < 60000 && atomic_load(&shared->step) < step; i++)
        usleep(1000);
    CHECK(atomic_load(&shared->step) >= step);
}

static void reach(int step)
{
    atomic_store(&shared->step, step);
}

static int not_the_engine(tutti__xport_t *xport, int is_engine)
{
    (void)xport;
    return !is_engine;
}

/* ---- a leader's goodbye and a bucket ---- */

/* Rank 2 has sent its goodbye, but rank 0 agrees on the message before it reads this goodbye. */
static void coordinate(rank_t *self)
{
    tutti__engine_t *e = self->inside->engine;

    await(SUBMITTED_3);
    usleep(100000);
    tutti__token_await(&e->token);
    reach(IS_HELD);
    await(LEAVES);
    usleep(20000);
    tutti__owned(e)->polls = 1; /* this step does not read sockets */
    atomic_store(&e->news, 0);
    tutti__engine_step(e, TUTTI__STEP_WAITER);
    if (tutti__now_ns() - atomic_load(&shared->leaves_ns) > 150000000u)
        atomic_store(&shared->is_late, 1);
    tutti__engine_yield(e, TUTTI__STEP_WAITER);
    await(DONE);
}

/* Rank 3 sends a message to rank 1. Rank 0 agrees on the message, and rank 2 is the leader of rank
   3's host. The two ranks of the message must not wait until the deadline. */
static void leader_leaves(rank_t *self)
{
    static tutti__xport_ops_t ops;
    tutti_request_t *r;
    float x = 3;

    ranks_poll_far(self->inside, &ops);
    CHECK_OK(tutti_barrier(self->comm));
    switch (self->rank) {
    case 0:
        coordinate(self);
        return;
    case 2:
        await(SUBMITTED_1);
        atomic_store(&shared->leaves_ns, tutti__now_ns());
        reach(LEAVES);
        return;
    case 3:
        CHECK_OK(tutti_send_async("m", &x, 1, TUTTI_FLOAT32, 1, self->comm, NULL, &r));
        reach(SUBMITTED_3);
        break;
    default:
        await(IS_HELD);
        CHECK_OK(tutti_recv_async("m", &x, 1, TUTTI_FLOAT32, 3, self->comm, NULL, &r));
        reach(SUBMITTED_1);
    }
    tutti_status_t status = tutti_wait(r, -1);

    if (!atomic_load(&shared->is_late))
        CHECK(status == TUTTI_OK || status == TUTTI_ERR_SHUTDOWN);
    if (self->rank == 1)
        reach(DONE);
    await(DONE);
}

/* ---- a plan's last bucket ---- */

/* Ranks 0 and 1 have the result, and leave. Rank 2 has sent its part, but continues only 3 s later.
   Rank 3 waits for rank 2. */
static void slow_leader(rank_t *self)
{
    static tutti__xport_ops_t ops;
    tutti_request_t *r;
    float x = 1;
    int done = 0;

    ranks_poll_far(self->inside, &ops);
    ops.may_progress = not_the_engine;
    CHECK_OK(tutti_barrier(self->comm));
    for (int step = 0; step < 8; step++) {
        CHECK_OK(
            tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_MAX, self->comm, NULL, &r));
        CHECK_OK(tutti_wait(r, -1));
    }
    CHECK(self->inside->engine->its_owners.agreed.plan.plans > 0);
    if (self->rank < 2)
        await(SENT);
    CHECK_OK(tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_MAX, self->comm, NULL, &r));
    if (self->rank == 2) {
        for (int i = 0; i < 20; i++) {
            CHECK_OK(tutti_test(r, &done));
            CHECK(!done);
            usleep(10000);
        }
        reach(SENT);
        sleep(3);
    }
    CHECK_OK(tutti_wait(r, -1));
}

/* ---- the end without rank 0 ---- */

static void await_goodbye(const rank_t *self)
{
    for (int i = 0; i < 60000 && !tutti__watch_any_left(self->inside->watch); i++)
        usleep(1000);
    CHECK(tutti__watch_any_left(self->inside->watch));
}

/* If *arg is 1, rank 1 dies; if 0, it aborts. Rank 2 waits for a message of rank 1; rank 3 only
   polls. */
static void without_root(rank_t *self)
{
    int dies = *(const int *)self->arg;
    const char *words = dies ? "rank 1 was lost" : "the disk is full";
    tutti_status_t state = TUTTI_OK;
    char text[200] = "";
    float x;

    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0)
        return;
    await_goodbye(self);
    if (self->rank == 1) {
        usleep(100000);
        if (dies)
            raise(SIGKILL);
        CHECK_OK(tutti_abort(self->comm, "the disk is full"));
        return;
    }
    if (self->rank == 2) {
        CHECK_STATUS(tutti_recv(&x, 1, TUTTI_FLOAT32, 1, self->comm), TUTTI_ERR_PEER_LOST);
        CHECK_WORDS(words);
        return;
    }
    for (int i = 0; i < 60000 && state == TUTTI_OK; i++) {
        usleep(1000);
        CHECK_OK(tutti_comm_state(self->comm, &state, text, sizeof(text)));
    }
    CHECK_INT(state, TUTTI_ERR_PEER_LOST);
    CHECK(strstr(text, words) != NULL);
}

static int run_shared(const job_t *job)
{
    memset(shared, 0, sizeof(*shared));
    return ranks_run(job);
}

int main(void)
{
    static int dies[] = { 0, 1 };
    job_t leader = { .size = 4, .hosts = "aabb", .fn = leader_leaves };
    job_t slow = { .size = 4, .hosts = "aabb", .fn = slow_leader };
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    failures += run_shared(&leader) != 0;
    failures += run_shared(&slow) != 0;
    for (int i = 0; i < 2; i++) {
        job_t job = { .size = 4, .fn = without_root, .arg = &dies[i], .killed = i ? 1u << 1 : 0 };

        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
