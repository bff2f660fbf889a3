/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two lanes of a learned plan between hosts. While one lane is held, buckets of the other lane
 * complete. A deviation is found in each lane. If a rank leaves, the lanes end independently.
 * Without a delay, and on one host, a plan has one lane.
 *
 * The last rank is alone on its host, so the other ranks need its messages. Each tensor is a bucket
 * of its own.
 */
#include "base/time.h"
#include "engine/steps.h"
#include "ranks.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_RANKS = 3,
    MOST = 3,
    COUNT = 300,
    ENDS = 64
};

/* The link has a delay, so a plan has two lanes. Each tensor is a bucket. The library's own
   deadlines do not end a plan or a call here. */
static void settings(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.link_ns = 1000000;
    conf->shared.fusion_bytes = 1;
    conf->shared.timeout_ms = 600000;
    conf->shared.stall_ms = 600000;
}

/* ---- a lane that is held ---- */

/* The last rank's transport, which does not send in the held lane. Only this rank uses it: the
   engine, and direct calls. */
static struct {
    tutti__xport_ops_t ops, base;
    pthread_mutex_t lock; /* protects the following fields */
    struct {
        const tutti__chan_t *chan;
        uint32_t lane;
    } end[ENDS];
    int nends;
    uint32_t lane; /* 0: no lane is held */
} held = { .lock = PTHREAD_MUTEX_INITIALIZER };

static tutti_status_t note_send(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    tutti_status_t status = held.base.open_send(xport, key, ret_chan);

    CHECK_OK(status);
    pthread_mutex_lock(&held.lock);
    CHECK(held.nends < ENDS);
    held.end[held.nends].chan = *ret_chan;
    held.end[held.nends++].lane = key->lane;
    pthread_mutex_unlock(&held.lock);
    return TUTTI_OK;
}

static tutti_status_t send_unless_held(tutti__chan_t *chan, const void *data, size_t bytes,
                                       uint32_t signature, int *ret_pending, tutti__hint_t *hint)
{
    int is_held = 0;

    pthread_mutex_lock(&held.lock);
    for (int i = 0; i < held.nends && held.lane > 0; i++)
        is_held |= held.end[i].chan == chan && held.end[i].lane == held.lane;
    pthread_mutex_unlock(&held.lock);
    return is_held ? TUTTI__AGAIN : held.base.send(chan, data, bytes, signature, ret_pending, hint);
}

/* Call it before the first asynchronous call. */
static void prepare(const rank_t *self)
{
    static tutti__xport_ops_t ops[MOST_RANKS];
    int holds = self->rank == self->size - 1;

    ranks_poll_far(self->inside, holds ? &held.ops : &ops[self->rank]);
    if (!holds)
        return;
    held.base = held.ops;
    held.ops.open_send = note_send;
    held.ops.send = send_unless_held;
}

static void hold(const rank_t *self, uint32_t lane)
{
    if (self->rank != self->size - 1)
        return;
    pthread_mutex_lock(&held.lock);
    held.lane = lane;
    pthread_mutex_unlock(&held.lock);
}

/* ---- the program ---- */

static tutti_request_t *submit(const rank_t *self, int t, int *x, size_t count)
{
    static const char *const names[MOST] = { "x", "y", "z" };
    tutti_request_t *request;

    for (int i = 0; i < COUNT; i++)
        x[i] = self->rank + t + i;
    CHECK_OK(tutti_allreduce_async(names[t], x, x, count, TUTTI_INT32, TUTTI_SUM, self->comm, NULL,
                                   &request));
    return request;
}

static void check(const rank_t *self, int t, const int *x)
{
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(x[i], self->size * (self->size - 1) / 2 + self->size * (t + i));
}

/* Make equal steps until there is a plan that has lasted. */
static void learn(const rank_t *self, int ntensors)
{
    int x[MOST][COUNT];
    tutti_request_t *request[MOST];

    for (int step = 0; step < 30; step++) {
        for (int t = 0; t < ntensors; t++)
            request[t] = submit(self, t, x[t], COUNT);
        CHECK_OK(tutti_wait_all(request, (size_t)ntensors, -1));
        for (int t = 0; t < ntensors; t++)
            check(self, t, x[t]);
    }
}

/* The engine's state, when no request is pending. */
static const tutti__owned_t *idle(const rank_t *self)
{
    return &self->inside->engine->its_owners;
}

/* The lane of the plan's next bucket. */
static uint32_t next_lane(const rank_t *self)
{
    const tutti__plan_requests_t *plan = &idle(self)->agreed.plan;

    CHECK(plan->runs);
    CHECK_INT(plan->plan.nbuckets, plan->plan.ntensors);
    return TUTTI__PLAN_LANE + (uint32_t)(plan->started % TUTTI__PLAN_LANES);
}

/* ---- two buckets in flight ---- */

static void check_pending(const rank_t *self, tutti_request_t *const *request)
{
    tutti__engine_t *e = self->inside->engine;
    int done;

    for (int t = 0; t < MOST; t += 2) {
        CHECK_OK(tutti_test(request[t], &done));
        CHECK_INT(done, 0);
    }
    tutti__token_await(&e->token);
    /* The third request may still be in the queue. */
    tutti__engine_step(e, TUTTI__STEP_WAITER);
    CHECK_INT(tutti__owned(e)->lanes.planned, 2);
    tutti__engine_yield(e, TUTTI__STEP_WAITER);
}

/* The lane of the first and third bucket is held, so the second bucket completes first. A step has
   three buckets, so each lane is held in turn. */
static void overlaps(rank_t *self)
{
    tutti_request_t *request[MOST];
    int x[MOST][COUNT];

    prepare(self);
    learn(self, MOST);
    for (int step = 0; step < 4; step++) {
        hold(self, next_lane(self));
        for (int t = 0; t < MOST; t++)
            request[t] = submit(self, t, x[t], COUNT);
        CHECK_OK(tutti_wait(request[1], -1));
        check(self, 1, x[1]);
        check_pending(self, request);
        CHECK_OK(tutti_barrier(self->comm));
        hold(self, 0);
        for (int t = 0; t < MOST; t += 2) {
            CHECK_OK(tutti_wait(request[t], -1));
            check(self, t, x[t]);
        }
    }
    CHECK_INT(idle(self)->agreed.plan.plans, 1);
    CHECK_OK(tutti_barrier(self->comm));
}

static void without_delay(tutti__conf_t *conf, int rank)
{
    settings(conf, rank);
    conf->shared.link_ns = 1000;
}

static void has_one_lane(rank_t *self)
{
    learn(self, MOST);
    CHECK(idle(self)->lanes.plan_served > 0);
    CHECK_INT(idle(self)->lanes.end, TUTTI__PLAN_LANE + 1);
    CHECK_OK(tutti_barrier(self->comm));
}

/* ---- deviations ---- */

/* The other ranks start both buckets, and then this rank submits one of them with another count. */
static void deviate(const rank_t *self, int rank, int which)
{
    int x[2][COUNT], deviates = self->rank == rank;
    tutti_request_t *request[2];

    for (int turn = 0; turn < 2; turn++) {
        for (int t = 0; t < 2 && deviates == turn; t++)
            request[t] = submit(self, t, x[t], COUNT - (size_t)(deviates && t == which));
        tutti__engine_settle(self->inside->engine);
        CHECK_OK(tutti_barrier(self->comm));
    }
    CHECK_STATUS(tutti_wait(request[which], -1), TUTTI_ERR_MISMATCH);
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(x[which][i], self->rank + which + i);
    CHECK_OK(tutti_wait(request[1 - which], -1));
    check(self, 1 - which, x[1 - which]);
}

/* The number of buckets that have returned to agreement. When all requests are done, the rank that
   deviates may still have a bucket without requests in a lane. */
static uint64_t returned(const rank_t *self)
{
    tutti__engine_t *e = self->inside->engine;
    uint64_t n;

    tutti__token_await(&e->token);
    for (int i = 0; i < 120000 && tutti__owned(e)->lanes.planned > 0; i++) {
        tutti__engine_step(e, TUTTI__STEP_WAITER);
        usleep(500);
    }
    CHECK_INT(tutti__owned(e)->lanes.planned, 0);
    n = tutti__owned(e)->lanes.plan_returned;
    tutti__engine_yield(e, TUTTI__STEP_WAITER);
    return n;
}

/* For each lane, a rank submits another count for the lane's bucket. A rank starts its buckets in
   their order. So if it deviates in the first bucket, no rank serves the second one either. */
static void deviations(rank_t *self)
{
    uint32_t n = 1;

    for (uint32_t lane = TUTTI__PLAN_LANE; lane < TUTTI__LANES; lane++)
        for (int rank = 0; rank < self->size; rank += self->size - 1, n++) {
            uint64_t before;
            int which;

            learn(self, 2);
            CHECK_INT(idle(self)->agreed.plan.plans, n);
            which = next_lane(self) != lane;
            before = returned(self);
            deviate(self, rank, which);
            CHECK_INT(returned(self), before + 2 - (unsigned)which);
        }
    CHECK_OK(tutti_barrier(self->comm));
}

/* ---- departures ---- */

/* The last rank leaves when the second bucket is done, and has sent nothing of the first one. The
   other ranks give up the first bucket, and their communicator continues. */
static void leaves(rank_t *self)
{
    tutti_request_t *request[2];
    int x[2][COUNT], word = 5;
    tutti_status_t state;
    uint64_t began;

    prepare(self);
    learn(self, 2);
    hold(self, next_lane(self));
    for (int t = 0; t < 2; t++)
        request[t] = submit(self, t, x[t], COUNT);
    CHECK_OK(tutti_wait(request[1], -1));
    check(self, 1, x[1]);
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == self->size - 1)
        return;
    began = tutti__now_ns();
    CHECK_STATUS(tutti_wait(request[0], -1), TUTTI_ERR_SHUTDOWN);
    /* The library's own deadline is 600 s here. */
    CHECK(tutti__now_ns() - began < 60000000000u);
    CHECK_OK(tutti_comm_state(self->comm, &state, NULL, 0));
    CHECK_OK(state);
    if (self->rank == 0)
        CHECK_OK(tutti_send(&word, 1, TUTTI_INT32, 1, self->comm));
    else
        CHECK_OK(tutti_recv(&word, 1, TUTTI_INT32, 0, self->comm));
}

int main(void)
{
    static const char *const hosts[] = { "ab", "abc", "aab" };
    job_t job = { .size = 2, .threads = !ranks_can_fork(), .settings = settings };
    int failures = 0;

    job.fn = has_one_lane;
    RUN_JOB(failures, &job);
    job.hosts = "ab";
    job.settings = without_delay;
    RUN_JOB(failures, &job);
    job.settings = settings;
    for (int i = 0; i < 3; i++) {
        job.hosts = hosts[i];
        job.size = (int)strlen(hosts[i]);
        held.nends = 0;
        job.fn = overlaps;
        RUN_JOB(failures, &job);
        job.fn = deviations;
        RUN_JOB(failures, &job);
    }
    /* Ranks that are threads leave together. */
    job.hosts = "abc";
    job.fn = leaves;
    if (ranks_can_fork())
        RUN_JOB(failures, &job);
    return failures != 0;
}
