/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TUTTI_STREAM_WAIT=device: requests with work for the host are handed over to a stream that waits
 * for them on the device. The host continues at once, and later work reads the results. No stream
 * may wait for ever, even if all semaphores are in use, or a rank dies, is late, or frees the
 * communicator.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/device/device_user.h"

#include "base/time.h"
#include "engine/state.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    COUNT = 3000, /* float: several chunks */
    TENSORS = 6,
    SLOT = 4 * COUNT * (int)sizeof(float), /* of four ranks */
    SMALL = 2 * TUTTI__DEVICE_WORDS,       /* more tensors than semaphores */
    DELAY_US = 300,
    SHORT_MS = 1500,
    LONG_MS = 120000,
    SOON_US = 30000,
    LATER_US = 2400000 /* longer than SHORT_MS with all additions, which must not apply to this
                          wait */
};

static atomic_int opened; /* 1: the gate is open, and no stream waits at it */
static atomic_int given;

static void begin(user_t *u, rank_t *self)
{
    user_begin(u, self, (size_t)TENSORS * SLOT, 0);
}

/* ---- a gate in a stream ---- */

static void pass_gate(void *args)
{
    (void)args;
    while (!atomic_load(&opened))
        usleep(100);
}

static void put_gate(user_t *u)
{
    CHECK_OK(pretend_launch(u->stream, pass_gate, "", 1));
}

static void close_gate(rank_t *self)
{
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&opened, 0);
    CHECK_OK(tutti_barrier(self->comm));
}

/* ---- calls ---- */

static void *slot(user_t *u, int t)
{
    return u->job.memory + (size_t)t * SLOT;
}

static float *host_slot(user_t *u, int t)
{
    return (float *)(void *)(u->in + (size_t)t * SLOT);
}

static float value(int rank, int t, size_t i)
{
    return (float)(rank + 2 * t + (int)(i % 11));
}

static void put(user_t *u, int t)
{
    for (size_t i = 0; i < COUNT; i++)
        host_slot(u, t)[i] = value(u->job.self->rank, t, i);
    CHECK_OK(u->job.ops->copy(slot(u, t), host_slot(u, t), COUNT * sizeof(float), u->stream));
}

static void get(user_t *u, int t)
{
    CHECK_OK(u->job.ops->copy(host_slot(u, t), slot(u, t), COUNT * sizeof(float), u->stream));
}

static void verify(user_t *u, int t, float times)
{
    int size = u->job.self->size;

    for (size_t i = 0; i < COUNT; i++) {
        float want = (float)(size * (size - 1) / 2) + (float)size * value(0, t, i);

        if (host_slot(u, t)[i] != times * want)
            ranks_fail(__FILE__, __LINE__, "tensor %d, element %zu: %g, wanted %g", t, i,
                       (double)host_slot(u, t)[i], (double)(times * want));
    }
}

/* Make the call: as a direct call, or submitted and handed over. */
static void run_direct(user_t *u, const tutti_call_t *call)
{
    tutti_call_t direct = *call;

    direct.name = NULL;
    CHECK_OK(tutti_cuda_run(&direct, u->job.self->comm, user_stream(u)));
}

static void hand_over(user_t *u, tutti_call_t *call)
{
    tutti_request_t *request;

    CHECK_OK(tutti_cuda_submit(call, 1, u->job.self->comm, user_stream(u), &request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(u)));
}

/* Checks the exclusive or of all ranks' bits. */
static void verify_xor(user_t *u, int t)
{
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t want = 0, got;
        float x;

        for (int r = 0; r < u->job.self->size; r++) {
            uint32_t bits;

            x = value(r, t, i);
            memcpy(&bits, &x, sizeof(bits));
            want ^= bits;
        }
        memcpy(&got, &host_slot(u, t)[i], sizeof(got));
        CHECK(got == want);
    }
}

/* ---- the host continues ---- */

/* Calls by NCCL and between hosts; a scaled call, which is staged; and direct calls, by NCCL and
   staged. All of them wait behind a gate, on all ranks or on one rank. */
static void ahead(rank_t *self, int held)
{
    tutti_async_options_t scale = TUTTI_ASYNC_OPTIONS_INIT;
    unsigned awaits = pretend_counts(self->rank, PRETEND_AWAITS);
    user_t u;

    begin(&u, self);
    scale.prescale = 0.5;
    scale.postscale = 4;
    device_forbid_alloc(self, 1);
    close_gate(self);
    if (held < 0 || held == self->rank)
        put_gate(&u);
    for (int t = 0; t < 2; t++) {
        tutti_call_t call = ranks_sum(t == 0 ? "plain" : "scaled", slot(&u, t), COUNT);

        call.options = t == 0 ? NULL : &scale;
        put(&u, t);
        hand_over(&u, &call);
        get(&u, t);
    }
    for (int t = 2; t < 4; t++) {
        tutti_call_t call = ranks_sum(NULL, slot(&u, t), COUNT);

        call.dtype = t == 2 ? TUTTI_FLOAT32 : TUTTI_UINT32;
        call.op = t == 2 ? TUTTI_SUM : TUTTI_BXOR; /* NCCL has no such operation */
        put(&u, t);
        run_direct(&u, &call);
        get(&u, t);
    }
    CHECK_INT(user_look(&u), TUTTI__AGAIN);
    usleep(SOON_US);
    CHECK_INT(u.job.ops->query(u.end), TUTTI__AGAIN);
    CHECK_INT(pretend_counts(self->rank, PRETEND_AWAITS) - awaits, 4);
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&opened, 1);
    user_wait(&u);
    for (int t = 0; t < 3; t++)
        verify(&u, t, t == 1 ? 2 : 1);
    verify_xor(&u, 3);
    device_forbid_alloc(self, 0);
    user_end(&u);
}

static void all_held(rank_t *self)
{
    ahead(self, -1);
}

static void one_held(rank_t *self)
{
    ahead(self, 1);
}

/* Calls one after another on the same data, under one name: each call begins after the wait for the
   previous call, and no call is launched earlier. Direct calls are made between them. */
static void in_a_row(rank_t *self)
{
    float times = 1;
    user_t u;

    begin(&u, self);
    device_forbid_alloc(self, 1);
    pretend_delays(17, DELAY_US);
    for (int round = 0; round < 3; round++) {
        for (int t = 0; t < TENSORS; t++)
            put(&u, t);
        times = 1;
        for (int k = 0; k < 4; k++) {
            for (int t = 0; t < TENSORS; t++) {
                tutti_call_t call = ranks_sum("same", slot(&u, t), COUNT);

                if (t == TENSORS - 1 && k == 2)
                    CHECK_OK(tutti_cuda_allreduce(slot(&u, t), slot(&u, t), COUNT, TUTTI_FLOAT32,
                                                  TUTTI_SUM, self->comm, user_stream(&u)));
                else
                    hand_over(&u, &call);
            }
            times *= k > 0 ? (float)self->size : 1;
        }
        for (int t = 0; t < TENSORS; t++)
            get(&u, t);
        user_wait(&u);
        for (int t = 0; t < TENSORS; t++)
            verify(&u, t, times);
    }
    device_forbid_alloc(self, 0);
    user_end(&u);
}

/* All semaphores are in use: a rank without a free semaphore waits on the host. */
static void too_many(rank_t *self)
{
    static char names[SMALL][32];
    tutti_request_t *requests[SMALL], *left[SMALL];
    tutti_call_t calls[SMALL];
    int nleft = 0;
    user_t u;

    begin(&u, self);
    atomic_store(&given, 0);
    for (int t = 0; t < SMALL && self->rank == 0; t++)
        snprintf(names[t], sizeof(names[t]), "small %d", t);
    close_gate(self);
    put_gate(&u);
    put(&u, 0);
    for (int t = 0; t < SMALL; t++)
        calls[t] = ranks_sum(names[t], (float *)slot(&u, 0) + t, 1);
    CHECK_OK(tutti_cuda_submit(calls, SMALL, self->comm, user_stream(&u), requests));
    for (int t = 0; t < SMALL; t++) {
        tutti_status_t status = tutti_cuda_wait(requests[t], nleft > 0 ? 0 : 200, user_stream(&u));

        if (status == TUTTI_ERR_TIMEOUT)
            left[nleft++] = requests[t];
        else
            CHECK_OK(status);
    }
    atomic_fetch_add(&given, SMALL - nleft);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_INT(atomic_load(&given), TUTTI__DEVICE_WORDS);
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&opened, 1);
    for (int t = 0; t < nleft; t++)
        CHECK_OK(tutti_cuda_wait(left[t], -1, user_stream(&u)));
    get(&u, 0);
    user_wait(&u);
    for (size_t i = 0; i < SMALL; i++)
        CHECK(host_slot(&u, 0)[i] ==
              (float)(self->size * (self->size - 1) / 2) + (float)self->size * value(0, 0, i));
    user_end(&u);
}

/* ---- cases that wait on the host ---- */

static void as_ever(rank_t *self)
{
    tutti_async_options_t told = TUTTI_ASYNC_OPTIONS_INIT;
    unsigned awaits = pretend_counts(self->rank, PRETEND_AWAITS);
    tutti__dstream_t *urgent;
    tutti_request_t *request;
    atomic_int calls = 0;
    tutti_call_t call;
    user_t u;

    begin(&u, self);
    pretend_delays(4, 10 * DELAY_US);
    put(&u, 0);
    told.callback = user_count;
    told.callback_arg = &calls;
    call = ranks_sum("told", slot(&u, 0), COUNT);
    call.options = &told;
    hand_over(&u, &call);
    CHECK_INT(atomic_load(&calls), 1);
    get(&u, 0);
    user_wait(&u);
    verify(&u, 0, 1);

    put(&u, 1);
    user_wait(&u);
    call = ranks_sum("again", slot(&u, 1), COUNT);
    CHECK_OK(tutti_persistent_create(&call, self->comm, &request));
    CHECK_OK(tutti_start(request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    CHECK_OK(tutti_request_free(request));
    get(&u, 1);
    user_wait(&u);
    verify(&u, 1, 1);

    /* For an urgent stream the host waits: work of the library might be queued behind the work of
       this stream. */
    CHECK_OK(u.job.ops->stream_make(1, &urgent));
    put(&u, 2);
    call = ranks_sum("urgent", slot(&u, 2), COUNT);
    CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_OK(tutti_cuda_wait(request, -1, (struct CUstream_st *)(void *)urgent));
    CHECK_OK(u.job.ops->copy(host_slot(&u, 2), slot(&u, 2), COUNT * sizeof(float), urgent));
    u.job.ops->stream_drop(urgent); /* drops it when its work is done */
    verify(&u, 2, 1);
    CHECK_INT(pretend_counts(self->rank, PRETEND_AWAITS), awaits);
    user_end(&u);
}

static void *open_later(void *arg)
{
    (void)arg;
    usleep(LATER_US);
    atomic_store(&opened, 1);
    return NULL;
}

static void add(void *dst, const void *left, const void *right, size_t count, tutti_dtype_t dtype,
                void *arg)
{
    const float *l = left, *r = right;
    float *d = dst;

    (void)dtype;
    (void)arg;
    for (size_t i = 0; i < count; i++)
        d[i] = l[i] + r[i];
}

/* A user-defined operation may be freed when no request is pending. */
static void op_freed(rank_t *self)
{
    static tutti_op_t op;
    tutti_request_t *request;
    pthread_t opener;
    tutti_call_t call;
    user_t u;

    begin(&u, self);
    if (self->rank == 0)
        CHECK_OK(tutti_op_create(add, NULL, 1, &op));
    close_gate(self);
    put_gate(&u);
    put(&u, 0);
    call = ranks_sum("own", slot(&u, 0), COUNT);
    call.op = op;
    CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_INT(pthread_create(&opener, NULL, open_later, NULL), 0);
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0)
        CHECK_OK(tutti_op_free(op));
    CHECK_INT(pthread_join(opener, NULL), 0);
    get(&u, 0);
    user_wait(&u);
    verify(&u, 0, 1);
    user_end(&u);
}

typedef struct {
    user_t *u;
    tutti_status_t status;
    atomic_int ended;
} told_t;

static void call_in_stream(void *arg, tutti_status_t status)
{
    told_t *told = arg;

    CHECK_OK(status);
    told->status = tutti_cuda_allreduce(slot(told->u, 1), slot(told->u, 1), COUNT, TUTTI_FLOAT32,
                                        TUTTI_SUM, told->u->job.self->comm, user_stream(told->u));
    atomic_store(&told->ended, 1);
}

/* The stream would wait for work that only the thread in the callback can do. */
static void in_callback(rank_t *self)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    user_t u;
    told_t told = { .u = &u };
    tutti_request_t *request;
    tutti_call_t call;
    float x = 1;

    begin(&u, self);
    close_gate(self);
    put_gate(&u);
    put(&u, 0);
    call = ranks_sum("handed over", slot(&u, 0), COUNT);
    hand_over(&u, &call);
    options.callback = call_in_stream;
    options.callback_arg = &told;
    call = ranks_sum("host", &x, 1);
    call.options = &options;
    CHECK_OK(tutti_submit(&call, 1, self->comm, &request));
    CHECK_OK(tutti_wait(request, -1));
    while (!atomic_load(&told.ended))
        usleep(100);
    CHECK_INT(told.status, TUTTI_ERR_UNSUPPORTED);
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&opened, 1);
    get(&u, 0);
    user_wait(&u);
    verify(&u, 0, 1);
    user_end(&u);
}

/* A request cannot be handed over before it has begun; a mismatch is returned as an error. */
static void refused(rank_t *self)
{
    tutti_request_t *request;
    tutti_call_t call;
    user_t u;

    begin(&u, self);
    call = ranks_sum("late", slot(&u, 0), COUNT);
    put(&u, 0);
    if (self->rank > 0) {
        CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
        CHECK_STATUS(tutti_cuda_wait(request, 1, user_stream(&u)), TUTTI_ERR_TIMEOUT);
    }
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0)
        CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    call = ranks_sum("clash", slot(&u, 1), self->rank == 1 ? 2 : 1);
    CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_STATUS(tutti_cuda_wait(request, -1, user_stream(&u)), TUTTI_ERR_MISMATCH);
    get(&u, 0);
    user_wait(&u);
    verify(&u, 0, 1);
    case_works(self);
    CHECK_STATUS(tutti_cuda_allreduce(slot(&u, 2), slot(&u, 2), self->rank == 1 ? 2 : 1,
                                      TUTTI_FLOAT32, TUTTI_SUM, self->comm, user_stream(&u)),
                 TUTTI_ERR_MISMATCH);
    CHECK_STATUS(
        tutti_cuda_allreduce(u.in, u.in, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, user_stream(&u)),
        TUTTI_ERR_INVALID_ARGUMENT);
    pretend_capture(u.stream, 1);
    CHECK_STATUS(tutti_cuda_allreduce(slot(&u, 2), slot(&u, 2), 1, TUTTI_FLOAT32, TUTTI_SUM,
                                      self->comm, user_stream(&u)),
                 TUTTI_ERR_UNSUPPORTED);
    pretend_capture(u.stream, 0);
    put(&u, 3);
    CHECK_OK(tutti_cuda_allreduce(slot(&u, 3), slot(&u, 3), COUNT, TUTTI_FLOAT32, TUTTI_SUM,
                                  self->comm, user_stream(&u)));
    get(&u, 3);
    user_wait(&u);
    verify(&u, 3, 1);
    user_end(&u);
}

static tutti_status_t sum_in_stream(user_t *u, int t)
{
    return tutti_cuda_allreduce(slot(u, t), slot(u, t), COUNT, TUTTI_FLOAT32, TUTTI_SUM,
                                u->job.self->comm, user_stream(u));
}

static void *first_call(void *arg)
{
    CHECK_OK(sum_in_stream(arg, 0));
    return NULL;
}

/* Rank 0's direct call waits for the other ranks. A second direct call at this time is an error. */
static void two_threads(rank_t *self)
{
    pthread_t thread;
    user_t u;

    begin(&u, self);
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&given, 0);
    CHECK_OK(tutti_barrier(self->comm));
    put(&u, 0);
    if (self->rank == 0) {
        CHECK_INT(pthread_create(&thread, NULL, first_call, &u), 0);
        while (atomic_load(&self->inside->engine->pending.count) == 0)
            usleep(100);
        CHECK_STATUS(sum_in_stream(&u, 1), TUTTI_ERR_INVALID_ARGUMENT);
        CHECK_WORDS("another thread is in a direct call on this communicator");
        atomic_store(&given, 1);
        CHECK_INT(pthread_join(thread, NULL), 0);
    } else {
        while (!atomic_load(&given))
            usleep(100);
        first_call(&u);
    }
    get(&u, 0);
    user_wait(&u);
    verify(&u, 0, 1);
    user_end(&u);
}

/* A group of one host and its NCCL communicator share the device with the other communicators. The
   group may be made and ended while requests of other communicators are handed over. */
static void groups(rank_t *self)
{
    int color = self->rank < self->size - 1, nranks;
    tutti_comm_t *comm;
    user_t u;

    begin(&u, self);
    pretend_delays(23, DELAY_US);
    for (int i = 0; i < 3; i++) {
        tutti_call_t call = ranks_sum("before", slot(&u, 2), COUNT);

        put(&u, 2);
        hand_over(&u, &call);
        CHECK_OK(tutti_comm_split(self->comm, color, self->rank, &comm));
        if (i < 2) {
            hand_over(&u, &call);
            CHECK_OK(tutti_comm_free(comm));
        }
    }
    nranks = tutti_size(comm);
    close_gate(self);
    put_gate(&u);
    for (int t = 0; t < 2; t++)
        put(&u, t);
    for (int k = 0; k < 2; k++) {
        tutti_call_t call = ranks_sum("world", slot(&u, k), COUNT);

        hand_over(&u, &call);
        CHECK_OK(tutti_cuda_allreduce(slot(&u, k), slot(&u, k), COUNT, TUTTI_FLOAT32, TUTTI_SUM,
                                      comm, user_stream(&u)));
        get(&u, k);
    }
    CHECK_INT(user_look(&u), TUTTI__AGAIN);
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&opened, 1);
    user_wait(&u);
    for (int t = 0; t < 2; t++)
        verify(&u, t, (float)nranks);
    CHECK_OK(tutti_comm_free(comm));
    user_end(&u);
}

/* ---- stall warnings ---- */

static atomic_int reports[PRETEND_DEVICES]; /* stall warnings about a device's work */

/* Receives the log of this process, which has all ranks. */
static void count_reports(void *arg, tutti_log_level_t level, const char *text)
{
    const char *at = strstr(text, ": the work of bucket ");
    unsigned bucket, device = PRETEND_DEVICES;

    (void)arg;
    (void)level;
    if (at != NULL)
        sscanf(at, ": the work of bucket %u has been queued on device %u for", &bucket, &device);
    if (device < PRETEND_DEVICES)
        atomic_fetch_add(&reports[device], 1);
    else
        fprintf(stderr, "%s\n", text);
}

/* ---- the end ---- */

/* The communicator is freed while the caller's own work lasts longer than the deadline. This must
   not be reported as an error of a peer. */
static void freed_late(rank_t *self)
{
    pthread_t opener;
    tutti_comm_t *comm;
    tutti_call_t call;
    tutti_request_t *request;
    user_t u;

    begin(&u, self);
    CHECK_OK(tutti_comm_split(self->comm, 0, self->rank, &comm));
    close_gate(self);
    put_gate(&u);
    put(&u, 0);
    call = ranks_sum("late", slot(&u, 0), COUNT);
    CHECK_OK(tutti_cuda_submit(&call, 1, comm, user_stream(&u), &request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    ranks_set_deadline(self, comm, SHORT_MS);
    CHECK_INT(pthread_create(&opener, NULL, open_later, NULL), 0);
    CHECK_OK(tutti_comm_free(comm));
    CHECK_INT(pthread_join(opener, NULL), 0);
    get(&u, 0);
    user_wait(&u);
    verify(&u, 0, 1);
    user_end(&u);
}

/* The communicator is freed while the host still has work to do. A rank that joins has no pending
   requests. */
static void freed(rank_t *self)
{
    tutti_request_t *request;
    tutti_comm_t *comm;
    tutti_status_t status;
    tutti_call_t call;
    uint64_t begun;
    int last;
    user_t u;

    begin(&u, self);
    for (int t = 0; t < 2; t++) {
        CHECK_OK(tutti_comm_split(self->comm, 0, self->rank, &comm));
        put(&u, t);
        user_wait(&u);
        CHECK_OK(tutti_barrier(self->comm));
        pretend_rates(COUNT * sizeof(float) * 5, 0); /* 0.2 s for each copy */
        call = ranks_sum("x", slot(&u, t), COUNT);
        begun = tutti__now_ns();
        CHECK_OK(tutti_cuda_submit(&call, 1, comm, user_stream(&u), &request));
        CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
        status = user_look(&u);
        /* If more time has passed, this rank itself was late, and nothing can be checked. */
        if (tutti__now_ns() - begun < 200000000u)
            CHECK_INT(status, TUTTI__AGAIN);
        if (t == 1)
            CHECK_OK(tutti_join(comm, &last));
        CHECK_OK(tutti_comm_free(comm));
        pretend_rates(0, 0);
        get(&u, t);
        user_wait(&u);
        verify(&u, t, 1);
    }
    user_end(&u);
}

/* Wait until the communicator has ended by itself. */
static void check_ends(rank_t *self, tutti_status_t expected, const char *words)
{
    uint64_t limit = tutti__now_ns() + 50000000000u;
    tutti_status_t status;

    while ((status = tutti__watch_alive(self->inside->watch)) == TUTTI_OK &&
           tutti__now_ns() < limit)
        usleep(1000);
    CHECK_STATUS(tutti_barrier(self->comm), expected);
    CHECK_WORDS(words);
}

typedef enum {
    BY_ABORT,
    BY_SIGNAL,
    BY_DEADLINE
} how_t;

/* Work in the stream continues when the communicator dies. */
static void dies(rank_t *self, how_t how, tutti_status_t expected, const char *words)
{
    tutti_call_t call;
    user_t u;

    begin(&u, self);
    close_gate(self);
    if (self->rank == 1)
        put_gate(&u);
    put(&u, 0);
    call = ranks_sum("lost", slot(&u, 0), COUNT);
    hand_over(&u, &call);
    CHECK_OK(tutti_barrier(self->comm));
    if (how == BY_DEADLINE)
        ranks_set_deadline(self, self->comm, SHORT_MS);
    if (self->rank == 0) {
        usleep(SOON_US);
        CHECK_INT(user_look(&u), TUTTI__AGAIN);
        if (how == BY_ABORT)
            tutti_abort(self->comm, "enough");
    }
    if (self->rank == 1 && how == BY_SIGNAL) {
        usleep(20 * SOON_US);
        kill(getpid(), SIGKILL);
    }
    check_ends(self, expected, words);
    if (self->rank == 0)
        user_wait(&u);
    atomic_store(&opened, 1);
    user_drop(&u);
}

static void aborted(rank_t *self)
{
    dies(self, BY_ABORT, TUTTI_ERR_PEER_LOST, "enough");
}

static void killed(rank_t *self)
{
    dies(self, BY_SIGNAL, TUTTI_ERR_PEER_LOST, "rank 1 was lost");
}

/* Rank 1's data do not arrive. */
static void late(rank_t *self)
{
    dies(self, BY_DEADLINE, TUTTI_ERR_TIMEOUT, "s for tensor 'lost': rank");
}

/* The caller's own work takes long on all ranks: longer than the deadline, or until there are
   `wanted` reports of this rank's device. This is allowed. */
static void slow(rank_t *self, int wanted)
{
    tutti_call_t call;
    user_t u;

    begin(&u, self);
    close_gate(self);
    put_gate(&u);
    put(&u, 0);
    call = ranks_sum("slow", slot(&u, 0), COUNT);
    hand_over(&u, &call);
    if (wanted == 0) {
        ranks_set_deadline(self, self->comm, SHORT_MS);
        usleep(4700000); /* the deadline, and everything that is added to it */
        ranks_set_deadline(self, self->comm, LONG_MS);
    }
    for (int i = 0; i < 40000 && atomic_load(&reports[self->rank]) < wanted; i++)
        usleep(1000);
    CHECK(atomic_load(&reports[self->rank]) >= wanted);
    CHECK_INT(user_look(&u), TUTTI__AGAIN);
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&opened, 1);
    get(&u, 0);
    user_wait(&u);
    verify(&u, 0, 1);
    user_end(&u);
}

static void slow_input(rank_t *self)
{
    slow(self, 0);
}

/* All requests are handed over, so no request waits. Each rank warns again and again. */
static void reported(rank_t *self)
{
    slow(self, 2);
}

static void settings(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->shared.stream_wait = 1;
}

static void warning_settings(tutti__conf_t *conf, int rank)
{
    settings(conf, rank);
    conf->shared.stall_ms = 200;
}

static int run(rank_fn_t fn, const char *hosts, void (*how)(tutti__conf_t *, int), unsigned ends)
{
    job_t job = { .size = (int)strlen(hosts),
                  .hosts = hosts,
                  .threads = ends == 0,
                  .fn = fn,
                  .settings = how,
                  .killed = ends };

    return device_run_job(&job);
}

int main(void)
{
    static const char *const hosts[] = { "aab", "ab", "aabb" };
    int failures = 0, places = test_is_long("two of three placings on hosts") ? 3 : 1;

    for (int i = 0; i < places; i++) {
        failures += run(all_held, hosts[i], settings, 0);
        failures += run(one_held, hosts[i], settings, 0);
        failures += run(in_a_row, hosts[i], settings, 0);
    }
    failures += run(as_ever, "aab", settings, 0);
    failures += run(op_freed, "ab", settings, 0);
    failures += run(in_callback, "ab", settings, 0);
    failures += run(two_threads, "ab", settings, 0);
    failures += run(groups, "aab", settings, 0);
    failures += run(refused, "aab", settings, 0);
    failures += run(freed_late, "ab", settings, 0);
    failures += run(too_many, "ab", settings, 0);
    failures += run(freed, "aab", settings, 0);
    failures += run(aborted, "aab", settings, 0);
    failures += run(aborted, "ab", settings, 0);
    failures += run(late, "aab", settings, 0);
    failures += run(slow_input, "aab", settings, 0);
    failures += tutti_log_set_callback(count_reports, NULL) != TUTTI_OK;
    failures += run(reported, "aa", warning_settings, 0);
    failures += tutti_log_set_callback(NULL, NULL) != TUTTI_OK;
    if (ranks_can_fork())
        failures += run(killed, "aba", settings, 1 << 1);
    return failures != 0;
}
