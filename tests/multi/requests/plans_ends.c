/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Learned plans and ranks that leave before, in and after a bucket of the plan, on one host and on
 * several. Ranks are processes, because ranks that are threads leave together.
 */
#include "base/time.h"
#include "engine/steps.h"
#include "ranks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Submit the only tensor of the program. */
static tutti_status_t submit(const rank_t *self, float *x, size_t count,
                             tutti_request_t **ret_request)
{
    return tutti_allreduce_async("x", x, x, count, TUTTI_FLOAT32, TUTTI_MAX, self->comm, NULL,
                                 ret_request);
}

/* Make equal steps until there is a plan. A world of one rank learns no plan. */
static void learn(const rank_t *self, float *x, size_t count)
{
    tutti_request_t *request;

    for (int step = 0; step < 8; step++) {
        CHECK_OK(submit(self, x, count, &request));
        CHECK_OK(tutti_wait(request, -1));
    }
    /* No request is pending, so the engine's token is not needed. */
    CHECK(self->size == 1 || self->inside->engine->its_owners.agreed.plan.plans > 0);
}

/* All ranks but rank 0 leave. */
static void leaves(rank_t *self)
{
    float x = 1;
    tutti_request_t *request;

    learn(self, &x, 1);
    if (self->rank > 0 || self->size == 1)
        return;
    CHECK(submit(self, &x, 1, &request) != TUTTI_OK ||
          tutti_wait(request, -1) == TUTTI_ERR_SHUTDOWN);
}

/* After a departure, a plan lane gives back a bucket without starting it. */
static void starts_nothing(const rank_t *self)
{
    tutti__engine_t *e = self->inside->engine;
    tutti__plan_requests_t *plan;
    tutti__lanes_t *lanes;

    tutti__token_await(&e->token);
    plan = &tutti__owned(e)->agreed.plan;
    lanes = &tutti__owned(e)->lanes;
    CHECK(tutti__planned_end(plan, plan->started + 1) == NULL);
    tutti__engine_step(e, TUTTI__STEP_WAITER);
    CHECK_INT(lanes->planned, 0);
    /* A bucket without requests starts as a barrier. */
    CHECK_INT(lanes->lane[TUTTI__PLAN_LANE].call.kind, TUTTI_CALL_ALLREDUCE);
    tutti__engine_yield(e, TUTTI__STEP_WAITER);
}

/* The last rank leaves. Rank 0 has started a bucket, but the middle ranks never submit its tensors.
   Rank 0's request ends soon, as without plans. */
static void leaves_some(rank_t *self)
{
    float x = 1;
    tutti_request_t *request;
    uint64_t began;

    learn(self, &x, 1);
    if (self->rank == 0) {
        CHECK_OK(submit(self, &x, 1, &request));
        tutti__engine_settle(self->inside->engine);
    }
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == self->size - 1)
        return;
    if (self->rank > 0) {
        /* This rank makes no calls until rank 0 has left as well. */
        for (int i = 0; i < 6000 && !tutti__watch_has_left(self->inside->engine->env.watch, 0); i++)
            usleep(10000);
        return;
    }
    began = tutti__now_ns();
    CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_SHUTDOWN);
    /* The library's own deadline is 120 s here. */
    CHECK(tutti__now_ns() - began < 60000000000u);
    starts_nothing(self);
}

/* Submit a group whose calls are in two buckets. */
static tutti_status_t submit_group(const rank_t *self, float *x, tutti_request_t **ret_requests)
{
    static const char *const names[] = { "sum", "max" };
    tutti_call_t calls[2];

    for (int i = 0; i < 2; i++) {
        calls[i] = (tutti_call_t)TUTTI_CALL_INIT;
        calls[i].kind = TUTTI_CALL_ALLREDUCE;
        calls[i].dtype = TUTTI_FLOAT32;
        calls[i].op = i == 0 ? TUTTI_SUM : TUTTI_MAX;
        calls[i].name = names[i];
        calls[i].sendbuf = calls[i].recvbuf = &x[i];
        calls[i].count = 1;
    }
    return tutti_submit(calls, 2, self->comm, ret_requests);
}

/* The same with a planned submission group: all of its calls end. */
static void leaves_group(rank_t *self)
{
    float x[2] = { 0 };
    tutti_request_t *request[2];

    for (int step = 0; step < 8; step++) {
        CHECK_OK(submit_group(self, x, request));
        CHECK_OK(tutti_wait_all(request, 2, -1));
    }
    CHECK(self->inside->engine->its_owners.agreed.plan.plans > 0);
    if (self->rank == 0) {
        CHECK_OK(submit_group(self, x, request));
        tutti__engine_settle(self->inside->engine);
    }
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == self->size - 1)
        return;
    for (int i = 0; self->rank > 0 && i < 6000; i++) {
        if (tutti__watch_has_left(self->inside->engine->env.watch, 0))
            return;
        usleep(10000);
    }
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(tutti_wait(request[i], -1), TUTTI_ERR_SHUTDOWN);
}

/* The same on several hosts. Then the two remaining ranks exchange messages. */
static void leaves_talkers(rank_t *self)
{
    tutti_request_t *request;
    float x = 1;

    learn(self, &x, 1);
    if (self->rank == 2)
        return;
    if (self->rank == 0) {
        CHECK(submit(self, &x, 1, &request) != TUTTI_OK ||
              tutti_wait(request, -1) == TUTTI_ERR_SHUTDOWN);
        x = 5;
        CHECK_OK(tutti_send(&x, 1, TUTTI_FLOAT32, 1, self->comm));
        CHECK_OK(tutti_recv(&x, 1, TUTTI_FLOAT32, 1, self->comm));
        CHECK_INT(x, 6);
    } else {
        CHECK_OK(tutti_recv(&x, 1, TUTTI_FLOAT32, 0, self->comm));
        CHECK_INT(x, 5);
        x = 6;
        CHECK_OK(tutti_send(&x, 1, TUTTI_FLOAT32, 0, self->comm));
    }
}

/* ---- a rank leaves while a bucket's data move between hosts ---- */

static atomic_int *is_closed; /* shared by all processes. 1: rank 2 has closed its communicator */

static void set_closed(void)
{
    atomic_store(is_closed, 1);
}

static const tutti__watch_t *watched;

/* Over UCX, cancelling a lane may close connections that other lanes use. */
static void cancel_at_end(tutti__xport_t *xport, uint32_t lane)
{
    (void)xport;
    (void)lane;
    CHECK(tutti__watch_has_ended(watched));
}

/* Submit the tensor, and step until the bucket's data move, or until it is done. Ranks 0 and 1 then
   stop until rank 2 has left. The calling thread has the token, so no other thread runs steps. */
static void move_and_leave(const rank_t *self, float *x, size_t count,
                           tutti_request_t **ret_request)
{
    tutti__engine_t *e = self->inside->engine;
    const tutti__lane_t *lane;

    tutti__token_await(&e->token);
    lane =
        &tutti__owned(e)
             ->lanes.lane[TUTTI__PLAN_LANE + tutti__owned(e)->agreed.plan.started %
                                                 (tutti__owned(e)->lanes.end - TUTTI__PLAN_LANE)];
    CHECK_OK(submit(self, x, count, ret_request));
    for (int i = 0;
         i < 120000 && lane->op.at != TUTTI__AT_RUN && tutti__pending_count(&e->pending) > 0; i++) {
        tutti__engine_step(e, TUTTI__STEP_WAITER);
        usleep(500);
    }
    CHECK(lane->op.at == TUTTI__AT_RUN || tutti__pending_count(&e->pending) == 0);
    for (int i = 0; self->rank < 2 && i < 120000 && !atomic_load(is_closed); i++)
        usleep(500);
    tutti__engine_yield(e, TUTTI__STEP_WAITER);
}

/* Rank 2 leaves in the middle of a bucket. This ends the communicator of the other ranks. If the
   bucket is done before rank 2 leaves, the communicator continues. */
static void leaves_moving(rank_t *self)
{
    enum {
        COUNT = 1 << 18
    };
    static float x[COUNT];
    static tutti__xport_ops_t ops;
    tutti_request_t *request;
    tutti_status_t status, state;

    ranks_poll_far(self->inside, &ops);
    learn(self, x, COUNT);
    watched = self->inside->engine->env.watch;
    if (self->rank == 2)
        atexit(set_closed);
    else
        ops.cancel = cancel_at_end;
    move_and_leave(self, x, COUNT, &request);
    if (self->rank == 2)
        return;
    status = tutti_wait(request, -1);
    CHECK(status == TUTTI_OK || status == TUTTI_ERR_SHUTDOWN);
    CHECK_OK(tutti_comm_state(self->comm, &state, NULL, 0));
    CHECK_INT(state, status);
}

static void over_ucx(tutti__conf_t *conf, int rank)
{
    (void)rank;
    snprintf(conf->shared.transport, sizeof(conf->shared.transport), "ucx");
    snprintf(conf->module_dir, sizeof(conf->module_dir), "%s", getenv("TUTTI_MODULE_DIR"));
}

/* Is the library's module for UCX built? */
static int has_ucx(void)
{
    const char *dir = getenv("TUTTI_MODULE_DIR");
    char path[4096];

    return dir != NULL && snprintf(path, sizeof(path), "%s/ucx.so", dir) < (int)sizeof(path) &&
           access(path, R_OK) == 0;
}

static int on_one_host(void)
{
    static const int sizes[] = { 1, 2, 3, 5 };
    int failures = 0;

    for (int i = 0; i < 4; i++) {
        job_t job = { .size = sizes[i], .fn = leaves };

        RUN_JOB(failures, &job);
        job.fn = leaves_some;
        if (job.size > 2)
            RUN_JOB(failures, &job);
        job.fn = leaves_group;
        if (job.size > 1)
            RUN_JOB(failures, &job);
    }
    return failures;
}

int main(void)
{
    job_t job = { .size = 3, .hosts = "abc", .fn = leaves_talkers };
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    is_closed =
        mmap(NULL, sizeof(*is_closed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (is_closed == MAP_FAILED)
        return 1;
    failures += on_one_host();
    RUN_JOB(failures, &job);
    job.fn = leaves_group;
    RUN_JOB(failures, &job);
    job.fn = leaves_talkers;
    job.settings = over_ucx;
    if (has_ucx())
        RUN_JOB(failures, &job);
    job.settings = NULL;
    job.algorithm = "allreduce:ring";
    job.fn = leaves_moving;
    RUN_JOB(failures, &job);
    return failures != 0;
}
