/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Below MPI_THREAD_MULTIPLE the engine's thread sends no messages between hosts. So if a direct
 * call on device memory follows an asynchronous call in the launch order, only the thread in the
 * direct call may do the work of the asynchronous call, and it must. This also holds if the
 * asynchronous call is another communicator's. A thread that waits for a request must also do the
 * work of other communicators' requests, because other ranks may wait for those requests first.
 * Such threads are woken when there is such work, and poll often for it (chain and begins_work test
 * this without a device). Callbacks on the engine's thread may not make direct calls between hosts.
 *
 * The transport between the hosts is one of shared memory that refuses the engine's thread.
 */
#include "engine/steps.h"
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum {
    COUNT = 5000,
    ROUNDS = 40,
    LINKS = 100
};

static int not_the_engine(tutti__xport_t *xport, int is_engine)
{
    (void)xport;
    return !is_engine;
}

static atomic_int disguised; /* how often the engine's thread posed as another thread */

static atomic_int refused; /* refused direct calls in callbacks on the engine's thread */

static int is_the_engine(void)
{
    char name[16] = "";

    pthread_getname_np(pthread_self(), name, sizeof(name));
    return strcmp(name, "tutti") == 0;
}

static int count_disguised(tutti__xport_t *xport, int is_engine)
{
    (void)xport;
    if (!is_engine && is_the_engine())
        atomic_fetch_add(&disguised, 1);
    return !is_engine;
}

/* Must be called before any call is in flight. */
static void refuse_the_engine(tutti__comm_t *comm, tutti__xport_ops_t *ops)
{
    ranks_poll_far(comm, ops);
    ops->may_progress = not_the_engine;
}

/* Let the asynchronous call make progress for a while, on this rank only. */
static void look(tutti_request_t *request, int times)
{
    int done = 0;

    for (int i = 0; i < times && !done; i++) {
        CHECK_OK(tutti_test(request, &done));
        usleep(300);
    }
}

static void one_round(rank_t *self, tutti_comm_t *async, float *a, int round)
{
    tutti_request_t *request;

    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_allreduce_async("x", a, a + COUNT, COUNT, TUTTI_FLOAT32, TUTTI_SUM, async, NULL,
                                   &request));
    /* A call that has begun, and a call that has progressed as far as possible. */
    look(request, self->rank % 2 ? 1 + round % 7 : 20 + round % 5);
    CHECK_OK(tutti_allreduce(a, a + 2 * COUNT, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK_OK(tutti_wait(request, -1));
}

/* Requests of two communicators, on device memory and on host memory; ranks wait or test in
   different orders. */
static void cross(rank_t *self, tutti_comm_t *part, float *a, int round)
{
    int part_first = (round % 2 ? self->rank : self->rank / 2) % 2;
    tutti_request_t *request[2];
    int done = 1;

    for (int i = 0; i < 2; i++)
        CHECK_OK(tutti_allreduce_async("y", a, a + (1 + i) * COUNT, COUNT, TUTTI_FLOAT32, TUTTI_SUM,
                                       i == 0 ? self->comm : part, NULL, &request[i]));
    if (round % 8 > 3) {
        look(request[part_first], 10000);
        CHECK_OK(tutti_test(request[part_first], &done));
    }
    CHECK(done);
    for (int i = 0; i < 2; i++)
        CHECK_OK(tutti_wait(request[part_first ? 1 - i : i], -1));
}

typedef struct {
    rank_t *self;
    float *host;
    atomic_int calls;
    tutti_request_t *request;
} caller_t;

/* A callback. It usually runs on the engine's thread, because no thread waits. */
static void submit_another(void *arg, tutti_status_t status)
{
    caller_t *c = arg;

    CHECK_INT(status, TUTTI_OK);
    if (is_the_engine()) {
        /* Any rank's message to another host uses that transport. */
        CHECK_INT(tutti_send(c->host, 1, TUTTI_FLOAT32, (c->self->rank + 2) % 4, c->self->comm),
                  TUTTI_ERR_UNSUPPORTED);
        CHECK(strstr(tutti_last_error(), "the library's thread may not use MPI") != NULL);
        atomic_fetch_add(&refused, 1);
    }
    CHECK_OK(tutti_allreduce_async("second", c->host, c->host, COUNT, TUTTI_FLOAT32, TUTTI_MAX,
                                   c->self->comm, NULL, &c->request));
    atomic_fetch_add(&c->calls, 1);
}

/* In a callback, even the thread that submits counts as the engine's thread. `part` is a group of
   one host. */
static void call_back(rank_t *self, tutti_comm_t *part, float *host)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    caller_t c = { .self = self, .host = host };
    tutti_request_t *first;

    options.callback = submit_another;
    options.callback_arg = &c;
    CHECK_OK(tutti_allreduce_async("first", host + COUNT, host + COUNT, COUNT, TUTTI_FLOAT32,
                                   TUTTI_SUM, part, &options, &first));
    for (int i = 0; i < 60000 && atomic_load(&c.calls) == 0; i++)
        usleep(1000);
    CHECK_INT(atomic_load(&c.calls), 1);
    CHECK_OK(tutti_wait(first, -1));
    CHECK_OK(tutti_wait(c.request, -1));
    CHECK_INT(atomic_load(&disguised), 0);
}

static void in_callbacks(rank_t *self)
{
    static tutti__xport_ops_t ops[PRETEND_RANKS]; /* until the end */
    static float host[PRETEND_RANKS][2 * COUNT];
    tutti_comm_t *part;
    device_job_t job;

    device_begin(&job, self, 64);
    CHECK_OK(tutti_comm_split(self->comm, tutti_host_rank(self->comm), 0, &part));
    refuse_the_engine(self->inside, &ops[self->rank]);
    ops[self->rank].may_progress = count_disguised;
    for (int i = 0; i < 20; i++)
        call_back(self, part, host[self->rank]);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK(atomic_load(&refused) > 0);
    CHECK_OK(tutti_comm_free(part));
    device_end(&job);
}

static void funneled(rank_t *self)
{
    static tutti__xport_ops_t ops[PRETEND_RANKS], part_ops[PRETEND_RANKS]; /* until the end */
    static float host[PRETEND_RANKS][3 * COUNT];
    tutti_comm_t *part;
    device_job_t job;

    device_begin(&job, self, 3 * COUNT * sizeof(float));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    refuse_the_engine(self->inside, &ops[self->rank]);
    refuse_the_engine(ranks_inside(part), &part_ops[self->rank]);
    for (int i = 0; i < ROUNDS; i++)
        one_round(self, i % 2 ? part : self->comm, (float *)(void *)job.memory, i);
    for (int i = 0; i < ROUNDS; i++)
        cross(self, part, i % 4 < 2 ? (float *)(void *)job.memory : host[self->rank], i);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(part));
    device_end(&job);
}

/* ---- without a device ---- */

static tutti_request_t *sum_later(const char *name, float *x, tutti_comm_t *comm)
{
    tutti_request_t *request;

    CHECK_OK(tutti_allreduce_async(name, x, x, 8, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL, &request));
    return request;
}

/*
 * Rank 0 waits for a request of `part`, a group of one host. Rank 1 first waits for many requests
 * of the world. Each request begins after the previous one has ended, and needs rank 0's only
 * thread. If each request waited for that thread's next check of deadlines, half a second later,
 * all requests together would take 50 s, and rank 0's wait would reach its deadline of 45 s.
 */
static void chain(rank_t *self)
{
    static tutti__xport_ops_t ops[PRETEND_RANKS]; /* until the end */
    float x[LINKS + 1][8] = { { 0 } };
    tutti_request_t *request[LINKS];
    tutti_comm_t *part;
    char name[16];

    CHECK_OK(tutti_comm_split(self->comm, tutti_host_rank(self->comm), 0, &part));
    refuse_the_engine(self->inside, &ops[self->rank]);
    CHECK_OK(tutti_barrier(self->comm));
    for (int i = 0; i < LINKS; i++) {
        snprintf(name, sizeof(name), "link %d", i);
        x[i][7] = (float)i;
        request[i] = sum_later(name, x[i], self->comm);
        if (self->rank != 0)
            CHECK_OK(tutti_wait(request[i], -1));
    }
    CHECK_OK(tutti_wait(sum_later("last", x[LINKS], part), -1));
    for (int i = 0; self->rank == 0 && i < LINKS; i++)
        CHECK_OK(tutti_wait(request[i], -1));
    for (int i = 0; i < LINKS; i++)
        CHECK(x[i][7] == (float)(self->size * i));
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(part));
}

static atomic_int submitted; /* by ranks other than 0, for short_step */

/* Submit the first call without a name. The engine's thread cannot start this call, and must set
   `polling`. */
static tutti_request_t *barred(tutti__engine_t *e, tutti_comm_t *comm, float *x)
{
    tutti_request_t *request;

    tutti__token_await(&e->token);
    request = sum_later(NULL, x, comm);
    tutti__token_leave(&e->token);
    tutti__engine_ring_self(e);
    while (atomic_load(&e->pending.queued))
        usleep(100);
    tutti__token_await(&e->token); /* the engine thread's step is over */
    CHECK_INT(atomic_load(&e->signals.polling), 1);
    tutti__engine_yield(e, TUTTI__STEP_BRIEF);
    return request;
}

/* A thread makes only one short step, which begins work. This step must wake the threads that sleep
   in a wait of any communicator. From then on they only sleep for a short time. */
static tutti_request_t *short_step(tutti__engine_t *e, tutti__engine_t *other, tutti_comm_t *comm,
                                   float *x)
{
    tutti_request_t *request;
    uint32_t epoch, other_epoch;

    /* The other ranks have stopped to poll until rank 0 waits, so rank 0's part of the call cannot
       end. */
    while (atomic_load(&submitted) < 3)
        usleep(100);
    tutti__token_await(&e->token);
    epoch = atomic_load(&e->pending.epoch);
    other_epoch = atomic_load(&other->pending.epoch);
    CHECK_INT(tutti__help_is_due(other), 0);
    request = sum_later("short", x, comm);
    while (!atomic_load(&e->signals.polling)) {
        tutti__engine_step(e, TUTTI__STEP_BRIEF);
        usleep(100);
    }
    CHECK(atomic_load(&e->pending.epoch) != epoch);
    CHECK(atomic_load(&other->pending.epoch) != other_epoch);
    CHECK_INT(tutti__help_is_due(other), 1);
    tutti__engine_yield(e, TUTTI__STEP_BRIEF);
    atomic_store(&submitted, 0);
    return request;
}

static void begins_work(rank_t *self)
{
    static tutti__xport_ops_t ops[PRETEND_RANKS]; /* until the end */
    tutti__engine_t *e = self->inside->engine;
    tutti_request_t *request;
    float x[8] = { 0 };
    tutti_comm_t *part;

    CHECK_OK(tutti_comm_split(self->comm, tutti_host_rank(self->comm), 0, &part));
    refuse_the_engine(self->inside, &ops[self->rank]);
    CHECK_OK(tutti_barrier(self->comm));
    request = self->rank == 0 ? barred(e, self->comm, x) : sum_later(NULL, x, self->comm);
    CHECK_OK(tutti_wait(request, -1));
    if (self->rank == 0) {
        request = short_step(e, ranks_inside(part)->engine, self->comm, x);
    } else {
        request = sum_later("short", x, self->comm);
        atomic_fetch_add(&submitted, 1);
        while (atomic_load(&submitted) > 0)
            usleep(100);
    }
    CHECK_OK(tutti_wait(request, -1));
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(part));
}

static void without_device(tutti__conf_t *conf, int rank)
{
    (void)rank;
    snprintf(conf->device, sizeof(conf->device), "none");
    conf->shared.timeout_ms = 45000;
}

int main(void)
{
    job_t job = {
        .size = 4, .hosts = "aabb", .threads = 1, .fn = funneled, .settings = device_settings
    };
    int failures = device_run_job(&job);

    job.fn = in_callbacks;
    failures += device_run_job(&job);
    job.settings = without_device;
    job.algorithm = "allreduce:leaders"; /* so that rank 0 has messages to the other host */
    job.fn = chain;
    failures += device_run_job(&job);
    job.fn = begins_work;
    return (failures += device_run_job(&job)) != 0;
}
