/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests handed over to a stream (tutti_cuda_wait): the host continues, later work of the stream
 * reads the results, and a lane's next bucket does not overwrite memory that is still in use. Some
 * cases still wait on the host: callbacks, tutti_wait, host memory.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_user.h"

#include "base/time.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TENSORS = 14,
    STEPS = 6,
    MOST = 5000, /* elements of one rank's tensor */
    RANKS = 4,
    SLOT = RANKS * MOST * (int)sizeof(float),
    LARGE = 16384,
    DELAY_US = 300,
    SOON_US = 50000 /* an event without dependences completes within this time */
};

static void begin(user_t *u, rank_t *self)
{
    user_begin(u, self, (size_t)TENSORS * SLOT, (size_t)TENSORS * SLOT * STEPS);
}

static void put(user_t *u, const float *values, size_t count)
{
    memcpy(u->in, values, count * sizeof(float));
    CHECK_OK(u->job.ops->copy(u->job.memory, u->in, count * sizeof(float), u->stream));
}

static void expect(user_t *u, float want)
{
    float got;

    pretend_read(&got, u->job.memory, sizeof(got));
    if (got != want)
        ranks_fail(__FILE__, __LINE__, "%g, wanted %g", (double)got, (double)want);
}

/* ---- steps, as a trainer's ---- */

/* Tensors are small or large, in buckets of several tensors or of one; some are scaled, gathered,
   staged. */
static tutti_call_t tensor(user_t *u, int t, char *name, tutti_async_options_t *scale)
{
    char *x = u->job.memory + (size_t)t * SLOT;
    tutti_call_t call = ranks_sum(name, x, t % 5 == 4 ? MOST : (size_t)(100 * t + 7));

    snprintf(name, 32, "tensor %d", t);
    if (t % 7 == 2) {
        call.options = scale;
    } else if (t % 7 == 3) {
        call.dtype = TUTTI_INT16; /* NCCL does not serve it */
    } else if (t % 7 == 5) {
        call.kind = TUTTI_CALL_REDUCE_SCATTER;
    } else if (t % 7 == 6) {
        call.kind = TUTTI_CALL_ALLGATHER;
        call.sendbuf = x + (size_t)u->job.self->rank * call.count * sizeof(float);
    }
    return call;
}

static size_t elements(const tutti_call_t *call, int size)
{
    return call->kind == TUTTI_CALL_ALLREDUCE ? call->count : call->count * (size_t)size;
}

static float value(int rank, int t, int step, size_t i)
{
    return (float)(rank + 2 * t + step + (int)(i % 11));
}

static float summed(int size, int t, int step, size_t i)
{
    return (float)(size * (size - 1) / 2) + (float)size * value(0, t, step, i);
}

static void set(const tutti_call_t *call, char *to, size_t i, float v)
{
    if (call->dtype == TUTTI_INT16)
        ((int16_t *)(void *)to)[i] = (int16_t)v;
    else
        ((float *)(void *)to)[i] = v;
}

static float get(const tutti_call_t *call, const char *from, size_t i)
{
    if (call->dtype == TUTTI_INT16)
        return ((const int16_t *)(const void *)from)[i];
    return ((const float *)(const void *)from)[i];
}

static void verify(user_t *u, const tutti_call_t *call, int t, int step)
{
    const char *got = u->out + (size_t)(step * TENSORS + t) * SLOT;
    int size = u->job.self->size, rank = u->job.self->rank;
    size_t n = call->kind == TUTTI_CALL_ALLGATHER ? elements(call, size) : call->count;

    for (size_t i = 0; i < n; i++) {
        float want = summed(size, t, step, i);

        if (call->kind == TUTTI_CALL_ALLGATHER)
            want = value((int)(i / call->count), t, step, i);
        else if (call->kind == TUTTI_CALL_REDUCE_SCATTER)
            want = summed(size, t, step, (size_t)rank * call->count + i);
        else if (call->options != NULL)
            want *= 2; /* prescale 0.5, postscale 4 */
        if (get(call, got, i) != want)
            ranks_fail(__FILE__, __LINE__, "step %d, tensor %d, element %zu: %g, wanted %g", step,
                       t, i, (double)get(call, got, i), (double)want);
    }
}

static void one_step(user_t *u, tutti_call_t *calls, int step, int by_one)
{
    const tutti__device_ops_t *ops = u->job.ops;
    rank_t *self = u->job.self;
    tutti_request_t *requests[TENSORS];

    for (int t = 0; t < TENSORS; t++) {
        size_t n = elements(&calls[t], self->size), bytes = n * tutti_dtype_bytes(calls[t].dtype);

        /* The only wait of the host: the previous step's copies may still use the pinned memory. */
        if (t == 0)
            user_wait(u);
        for (size_t i = 0; i < n; i++)
            set(&calls[t], u->in + (size_t)t * SLOT, i, value(self->rank, t, step, i));
        CHECK_OK(ops->copy(u->job.memory + (size_t)t * SLOT, u->in + (size_t)t * SLOT, bytes,
                           u->stream));
        if (by_one)
            CHECK_OK(tutti_cuda_submit(&calls[t], 1, self->comm, user_stream(u), &requests[t]));
    }
    if (!by_one)
        CHECK_OK(tutti_cuda_submit(calls, TENSORS, self->comm, user_stream(u), requests));
    /* In a different order on each rank. */
    for (int k = 0; k < TENSORS; k++)
        CHECK_OK(tutti_cuda_wait(requests[(k * (self->rank % 2 ? 3 : 1) + self->rank) % TENSORS],
                                 -1, user_stream(u)));
    for (int t = 0; t < TENSORS; t++)
        CHECK_OK(ops->copy(u->out + (size_t)(step * TENSORS + t) * SLOT,
                           u->job.memory + (size_t)t * SLOT, SLOT, u->stream));
}

static void steps(rank_t *self)
{
    tutti_async_options_t scale = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_call_t calls[TENSORS];
    char names[TENSORS][32];
    user_t u;

    begin(&u, self);
    scale.prescale = 0.5;
    scale.postscale = 4;
    for (int t = 0; t < TENSORS; t++)
        calls[t] = tensor(&u, t, names[t], &scale);
    device_forbid_alloc(self, 1);
    pretend_delays(31, DELAY_US);
    for (int step = 0; step < STEPS; step++)
        one_step(&u, calls, step, step % 2);
    user_wait(&u);
    for (int step = 0; step < STEPS; step++)
        for (int t = 0; t < TENSORS; t++)
            verify(&u, &calls[t], t, step);
    CHECK_INT(pretend_counts(self->rank, PRETEND_FORBIDDEN), 0);
    device_forbid_alloc(self, 0);
    user_end(&u);
}

/* ---- the host continues ---- */

/* Two tensors are one bucket. For one tensor the host continues at once; for the other it waits. */
static void ahead(rank_t *self)
{
    float *values = malloc(LARGE * sizeof(*values));
    tutti_request_t *requests[2];
    tutti_call_t calls[2];
    tutti_status_t first, second;
    uint64_t begun;
    user_t u;
    int done;

    begin(&u, self);
    for (int i = 0; i < LARGE; i++)
        values[i] = (float)self->rank;
    put(&u, values, LARGE);
    user_wait(&u);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_rates(0, 2 * LARGE * sizeof(float)); /* some 0.5 s */
    calls[0] = ranks_sum("a", u.job.memory, LARGE / 2);
    calls[1] = ranks_sum("b", u.job.memory + LARGE * 2, LARGE / 2);
    begun = tutti__now_ns();
    CHECK_OK(tutti_cuda_submit(calls, 2, self->comm, user_stream(&u), requests));
    CHECK_OK(tutti_cuda_wait(requests[0], -1, user_stream(&u)));
    first = user_look(&u);
    usleep(SOON_US);
    second = u.job.ops->query(u.end);
    CHECK_OK(tutti_test(requests[1], &done));
    /* If more time has passed, this rank itself was late, and nothing can be checked. */
    if (tutti__now_ns() - begun < 450000000u) {
        CHECK_INT(first, TUTTI__AGAIN);
        CHECK_INT(second, TUTTI__AGAIN);
        CHECK_INT(done, 0);
    }
    CHECK_OK(tutti_wait(requests[1], -1));
    pretend_read(values, u.job.memory, LARGE * sizeof(float));
    for (int i = 0; i < LARGE; i++)
        CHECK(values[i] == (float)(self->size * (self->size - 1) / 2));
    free(values);
    user_end(&u);
}

/* More buckets than may be queued at the same time. Each name may be used again at once. */
static void many(rank_t *self)
{
    float one = 1, want = 1;
    user_t u;

    begin(&u, self);
    put(&u, &one, 1);
    pretend_delays(8, DELAY_US);
    for (int k = 0; k < 30; k++) {
        tutti_call_t call = ranks_sum("same", u.job.memory, 1);
        tutti_request_t *request;

        CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
        CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
        want = k % 10 == 9 ? 1 : want * (float)self->size;
        if (k % 10 == 9)
            put(&u, &one, 1);
    }
    user_wait(&u);
    expect(&u, want);
    user_end(&u);
}

/* While the device is busy, new tensors are collected and fused. */
static void collected(rank_t *self)
{
    enum {
        N = 60
    };
    tutti_request_t *requests[N];
    char names[N][32];
    unsigned calls;
    uint64_t begun;
    user_t u;

    begin(&u, self);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_rates(0, 100 * sizeof(float) / 0.01); /* 10 ms for 100 elements */
    calls = pretend_counts(self->rank, PRETEND_NCCL_CALLS);
    begun = tutti__now_ns();
    for (int t = 0; t < N; t++) {
        tutti_call_t call = ranks_sum(names[t], u.job.memory + 512 * t, 100);

        snprintf(names[t], sizeof(names[t]), "small %d", t);
        CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &requests[t]));
        usleep(300); /* longer than it takes to queue one call */
    }
    begun = tutti__now_ns() - begun;
    for (int t = 0; t < N; t++)
        CHECK_OK(tutti_cuda_wait(requests[t], -1, user_stream(&u)));
    /* NCCL makes at most half as many calls as there are tensors, and one more for each 10 ms that
       the submission took. */
    CHECK(pretend_counts(self->rank, PRETEND_NCCL_CALLS) - calls < N / 2 + begun / 10000000);
    user_end(&u);
}

/* ---- cases that wait on the host ---- */

static void as_ever(rank_t *self)
{
    tutti_async_options_t told = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *request;
    atomic_int calls = 0;
    tutti_call_t call;
    float x = 1;
    user_t u;

    begin(&u, self);
    pretend_delays(4, 20 * DELAY_US);
    told.callback = user_count;
    told.callback_arg = &calls;
    call = ranks_sum("told", u.job.memory, 1);
    call.options = &told;
    put(&u, &x, 1);
    CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    CHECK_INT(atomic_load(&calls), 1);
    expect(&u, (float)self->size);

    call = ranks_sum("host", &x, 1);
    CHECK_OK(tutti_submit(&call, 1, self->comm, &request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    CHECK(x == (float)self->size);

    call = ranks_sum("again", u.job.memory, 1);
    CHECK_OK(tutti_persistent_create(&call, self->comm, &request));
    CHECK_STATUS(tutti_cuda_wait(request, -1, user_stream(&u)), TUTTI_ERR_INVALID_ARGUMENT);
    for (int i = 1; i < 4; i++) {
        x = (float)i;
        put(&u, &x, 1);
        user_wait(&u);
        CHECK_OK(tutti_start(request));
        CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
        user_wait(&u);
        expect(&u, (float)(i * self->size));
    }
    CHECK_OK(tutti_request_free(request));
    user_end(&u);
}

/* Calls without names: rank 0 submits them as a list, the other ranks one by one. */
static void nameless(rank_t *self)
{
    enum {
        N = 3
    };
    tutti_request_t *requests[N];
    tutti_call_t calls[N];
    float values[N] = { 1, 2, 3 };
    user_t u;

    begin(&u, self);
    put(&u, values, N);
    for (int i = 0; i < N; i++)
        calls[i] = ranks_sum(NULL, u.job.memory + (size_t)i * sizeof(float), 1);
    if (self->rank == 0)
        CHECK_OK(tutti_cuda_submit(calls, N, self->comm, user_stream(&u), requests));
    for (int i = 0; self->rank != 0 && i < N; i++)
        CHECK_OK(tutti_cuda_submit(&calls[i], 1, self->comm, user_stream(&u), &requests[i]));
    for (int i = 0; i < N; i++)
        CHECK_OK(tutti_wait(requests[i], -1));
    pretend_read(values, u.job.memory, sizeof(values));
    for (int i = 0; i < N; i++)
        CHECK_INT(values[i], (i + 1) * self->size);
    user_end(&u);
}

/* ---- errors ---- */

static void refused(rank_t *self)
{
    tutti_request_t *request;
    float one = 1;
    tutti_call_t call;
    user_t u;

    begin(&u, self);
    CHECK_STATUS(tutti_cuda_wait(NULL, -1, user_stream(&u)), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS("request is NULL");
    put(&u, &one, 1);
    call = ranks_sum("x", u.job.memory, 1);
    CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    pretend_capture(u.stream, 1);
    CHECK_STATUS(tutti_cuda_wait(request, -1, user_stream(&u)), TUTTI_ERR_UNSUPPORTED);
    CHECK_WORDS("captured into a graph");
    pretend_capture(u.stream, 0);
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    user_wait(&u);
    expect(&u, (float)self->size);
    /* One rank is late, so no work is queued at this time. */
    call = ranks_sum("late", u.job.memory, 1);
    if (self->rank > 0) {
        CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
        CHECK_STATUS(tutti_cuda_wait(request, 1, user_stream(&u)), TUTTI_ERR_TIMEOUT);
    }
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0)
        CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    user_wait(&u);
    expect(&u, (float)(self->size * self->size));
    call = ranks_sum("clash", u.job.memory, self->rank == 1 ? 2 : 1);
    CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_STATUS(tutti_cuda_wait(request, -1, user_stream(&u)), TUTTI_ERR_MISMATCH);
    case_works(self);
    user_end(&u);
}

/* NCCL hangs with queued work. One request was handed over. The other request, and later requests,
   end when a rank ends the communicator. */
static void hangs(rank_t *self)
{
    tutti_request_t *requests[2];
    tutti_call_t calls[2];
    tutti_status_t status;
    user_t u;

    begin(&u, self);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_hang(self->rank, 0);
    CHECK_OK(tutti_barrier(self->comm));
    calls[0] = ranks_sum("a", u.job.memory, 100);
    calls[1] = ranks_sum("b", u.job.memory + 4096, 100);
    CHECK_OK(tutti_cuda_submit(calls, 2, self->comm, user_stream(&u), requests));
    CHECK_OK(tutti_cuda_wait(requests[0], -1, user_stream(&u)));
    CHECK_STATUS(tutti_wait(requests[1], 50), TUTTI_ERR_TIMEOUT);
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0)
        tutti_abort(self->comm, "enough");
    status = tutti_wait(requests[1], -1);
    CHECK(status != TUTTI_OK && status != TUTTI_ERR_TIMEOUT);
    CHECK(tutti_barrier(self->comm) != TUTTI_OK);
    user_drop(&u);
}

/* The error of a request at its deadline says that it is queued. */
static void late(rank_t *self)
{
    tutti_request_t *request;
    tutti_call_t call;
    user_t u;

    begin(&u, self);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_hang(self->rank, 0);
    ranks_set_deadline(self, self->comm, 2000);
    call = ranks_sum("late", u.job.memory, 100);
    CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_TIMEOUT);
    CHECK_WORDS("tensor 'late': it is queued on device");
    user_drop(&u);
}

/* Unfinished work in the caller's own stream is not blamed on a peer. */
static atomic_int opened;

static void stand(void *args)
{
    (void)args;
    while (!atomic_load(&opened))
        usleep(1000);
}

static void no_data(rank_t *self)
{
    tutti_request_t *request;
    tutti_call_t call;
    user_t u;

    begin(&u, self);
    ranks_set_deadline(self, self->comm, 2000);
    CHECK_OK(pretend_launch(u.stream, stand, NULL, 0));
    call = ranks_sum("early", u.job.memory, 100);
    call.dtype = TUTTI_INT16; /* not served by NCCL: the data are staged */
    CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_TIMEOUT);
    CHECK_WORDS("tensor 'early': what is before it on device");
    atomic_store(&opened, 1);
    user_drop(&u);
}

/* A communicator that is freed right after the call: its work completes. */
static void freed(rank_t *self)
{
    tutti_request_t *request;
    tutti_comm_t *comm;
    tutti_call_t call;
    float one = 1;
    user_t u;

    begin(&u, self);
    CHECK_OK(tutti_comm_split(self->comm, 0, self->rank, &comm));
    put(&u, &one, 1);
    pretend_delays(3, 10 * DELAY_US);
    call = ranks_sum("x", u.job.memory, 1);
    CHECK_OK(tutti_cuda_submit(&call, 1, comm, user_stream(&u), &request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    /* No rank may free the communicator before all ranks have queued the call. */
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(comm));
    user_wait(&u);
    expect(&u, (float)self->size);
    user_end(&u);
}

int main(void)
{
    static const char *const hosts[] = { NULL, "ab", "aabb" };
    job_t hung = { .size = 2, .threads = 1, .fn = late, .settings = device_settings };
    int failures = 0;

    for (int i = 0; i < 3; i++) {
        int size = hosts[i] == NULL ? 3 : (int)strlen(hosts[i]);

        for (int threads = i != 1 && ranks_can_fork() ? 0 : 1; threads < 2; threads++)
            failures += device_run(steps, size, hosts[i], threads);
        failures += device_run(many, size, hosts[i], 1);
        failures += device_run(as_ever, size, hosts[i], 1);
        failures += device_run(nameless, size, hosts[i], 1);
        failures += device_run(refused, size, hosts[i], 1);
    }
    failures += device_run(steps, 1, NULL, 1);
    failures += device_run(many, 1, NULL, 1);
    failures += device_run(ahead, 2, NULL, 1);
    failures += device_run(collected, 2, NULL, 1);
    failures += device_run(freed, 2, NULL, 1);
    failures += device_run(hangs, 2, NULL, 1);
    failures += device_run_job(&hung);
    hung.fn = no_data;
    failures += device_run_job(&hung);
    return failures != 0;
}
