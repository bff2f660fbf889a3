/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TUTTI_STREAM_WAIT=device: requests with work for the host are handed over to a stream that waits
 * for them on the device. The host continues at once, and later work reads the results. No stream
 * may wait for ever, even if all semaphores are in use.
 */
#include "multi/device/handover.h"

#include "base/time.h"
#include "engine/state.h"
#include "long.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum {
    SMALL = 2 * TUTTI__DEVICE_WORDS /* more tensors than semaphores */
};

static atomic_int given;

/* Make the call: as a direct call, or submitted and handed over. */
static void run_direct(user_t *u, const tutti_call_t *call)
{
    tutti_call_t direct = *call;

    direct.name = NULL;
    CHECK_OK(tutti_cuda_run(&direct, u->job.self->comm, user_stream(u)));
}

/* Checks the exclusive or of all ranks' bits. */
static void verify_xor(user_t *u, int t)
{
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t want = 0, got;
        float x;

        for (int r = 0; r < u->job.self->size; r++) {
            uint32_t bits;

            x = handover_value(r, t, i);
            memcpy(&bits, &x, sizeof(bits));
            want ^= bits;
        }
        memcpy(&got, &handover_host_slot(u, t)[i], sizeof(got));
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

    handover_begin(&u, self);
    scale.prescale = 0.5;
    scale.postscale = 4;
    device_forbid_alloc(self, 1);
    gate_close(self);
    if (held < 0 || held == self->rank)
        gate_put(&u);
    for (int t = 0; t < 2; t++) {
        tutti_call_t call = ranks_sum(t == 0 ? "plain" : "scaled", handover_slot(&u, t), COUNT);

        call.options = t == 0 ? NULL : &scale;
        handover_put(&u, t);
        hand_over(&u, &call);
        handover_get(&u, t);
    }
    for (int t = 2; t < 4; t++) {
        tutti_call_t call = ranks_sum(NULL, handover_slot(&u, t), COUNT);

        call.dtype = t == 2 ? TUTTI_FLOAT32 : TUTTI_UINT32;
        call.op = t == 2 ? TUTTI_SUM : TUTTI_BXOR; /* NCCL has no such operation */
        handover_put(&u, t);
        run_direct(&u, &call);
        handover_get(&u, t);
    }
    CHECK_INT(user_look(&u), TUTTI__AGAIN);
    usleep(SOON_US);
    CHECK_INT(u.job.ops->query(u.end), TUTTI__AGAIN);
    CHECK_INT(pretend_counts(self->rank, PRETEND_AWAITS) - awaits, 4);
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&gate_opened, 1);
    user_wait(&u);
    for (int t = 0; t < 3; t++)
        handover_verify(&u, t, t == 1 ? 2 : 1);
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

    handover_begin(&u, self);
    device_forbid_alloc(self, 1);
    pretend_delays(17, DELAY_US);
    for (int round = 0; round < 3; round++) {
        for (int t = 0; t < TENSORS; t++)
            handover_put(&u, t);
        times = 1;
        for (int k = 0; k < 4; k++) {
            for (int t = 0; t < TENSORS; t++) {
                tutti_call_t call = ranks_sum("same", handover_slot(&u, t), COUNT);

                if (t == TENSORS - 1 && k == 2)
                    CHECK_OK(tutti_cuda_allreduce(handover_slot(&u, t), handover_slot(&u, t), COUNT,
                                                  TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                                  user_stream(&u)));
                else
                    hand_over(&u, &call);
            }
            times *= k > 0 ? (float)self->size : 1;
        }
        for (int t = 0; t < TENSORS; t++)
            handover_get(&u, t);
        user_wait(&u);
        for (int t = 0; t < TENSORS; t++)
            handover_verify(&u, t, times);
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

    handover_begin(&u, self);
    atomic_store(&given, 0);
    for (int t = 0; t < SMALL && self->rank == 0; t++)
        snprintf(names[t], sizeof(names[t]), "small %d", t);
    gate_close(self);
    gate_put(&u);
    handover_put(&u, 0);
    for (int t = 0; t < SMALL; t++)
        calls[t] = ranks_sum(names[t], (float *)handover_slot(&u, 0) + t, 1);
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
    atomic_store(&gate_opened, 1);
    for (int t = 0; t < nleft; t++)
        CHECK_OK(tutti_cuda_wait(left[t], -1, user_stream(&u)));
    handover_get(&u, 0);
    user_wait(&u);
    for (size_t i = 0; i < SMALL; i++)
        CHECK(handover_host_slot(&u, 0)[i] == (float)(self->size * (self->size - 1) / 2) +
                                                  (float)self->size * handover_value(0, 0, i));
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

    handover_begin(&u, self);
    pretend_delays(4, 10 * DELAY_US);
    handover_put(&u, 0);
    told.callback = user_count;
    told.callback_arg = &calls;
    call = ranks_sum("told", handover_slot(&u, 0), COUNT);
    call.options = &told;
    hand_over(&u, &call);
    CHECK_INT(atomic_load(&calls), 1);
    handover_get(&u, 0);
    user_wait(&u);
    handover_verify(&u, 0, 1);

    handover_put(&u, 1);
    user_wait(&u);
    call = ranks_sum("again", handover_slot(&u, 1), COUNT);
    CHECK_OK(tutti_persistent_create(&call, self->comm, &request));
    CHECK_OK(tutti_start(request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    CHECK_OK(tutti_request_free(request));
    handover_get(&u, 1);
    user_wait(&u);
    handover_verify(&u, 1, 1);

    /* For an urgent stream the host waits: work of the library might be queued behind the work of
       this stream. */
    CHECK_OK(u.job.ops->stream_make(1, &urgent));
    handover_put(&u, 2);
    call = ranks_sum("urgent", handover_slot(&u, 2), COUNT);
    CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_OK(tutti_cuda_wait(request, -1, (struct CUstream_st *)(void *)urgent));
    CHECK_OK(u.job.ops->copy(handover_host_slot(&u, 2), handover_slot(&u, 2), COUNT * sizeof(float),
                             urgent));
    u.job.ops->stream_drop(urgent); /* drops it when its work is done */
    handover_verify(&u, 2, 1);
    CHECK_INT(pretend_counts(self->rank, PRETEND_AWAITS), awaits);
    user_end(&u);
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

    handover_begin(&u, self);
    if (self->rank == 0)
        CHECK_OK(tutti_op_create(add, NULL, 1, &op));
    gate_close(self);
    gate_put(&u);
    handover_put(&u, 0);
    call = ranks_sum("own", handover_slot(&u, 0), COUNT);
    call.op = op;
    CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_INT(pthread_create(&opener, NULL, gate_open_later, NULL), 0);
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0)
        CHECK_OK(tutti_op_free(op));
    CHECK_INT(pthread_join(opener, NULL), 0);
    handover_get(&u, 0);
    user_wait(&u);
    handover_verify(&u, 0, 1);
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
    told->status = tutti_cuda_allreduce(handover_slot(told->u, 1), handover_slot(told->u, 1), COUNT,
                                        TUTTI_FLOAT32, TUTTI_SUM, told->u->job.self->comm,
                                        user_stream(told->u));
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

    handover_begin(&u, self);
    gate_close(self);
    gate_put(&u);
    handover_put(&u, 0);
    call = ranks_sum("handed over", handover_slot(&u, 0), COUNT);
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
    atomic_store(&gate_opened, 1);
    handover_get(&u, 0);
    user_wait(&u);
    handover_verify(&u, 0, 1);
    user_end(&u);
}

/* A request cannot be handed over before it has begun; a mismatch is returned as an error. */
static void refused(rank_t *self)
{
    tutti_request_t *request;
    tutti_call_t call;
    user_t u;

    handover_begin(&u, self);
    call = ranks_sum("late", handover_slot(&u, 0), COUNT);
    handover_put(&u, 0);
    if (self->rank > 0) {
        CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
        CHECK_STATUS(tutti_cuda_wait(request, 1, user_stream(&u)), TUTTI_ERR_TIMEOUT);
    }
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0)
        CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    call = ranks_sum("clash", handover_slot(&u, 1), self->rank == 1 ? 2 : 1);
    CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(&u), &request));
    CHECK_STATUS(tutti_cuda_wait(request, -1, user_stream(&u)), TUTTI_ERR_MISMATCH);
    handover_get(&u, 0);
    user_wait(&u);
    handover_verify(&u, 0, 1);
    case_works(self);
    CHECK_STATUS(tutti_cuda_allreduce(handover_slot(&u, 2), handover_slot(&u, 2),
                                      self->rank == 1 ? 2 : 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                      user_stream(&u)),
                 TUTTI_ERR_MISMATCH);
    CHECK_STATUS(
        tutti_cuda_allreduce(u.in, u.in, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, user_stream(&u)),
        TUTTI_ERR_INVALID_ARGUMENT);
    pretend_capture(u.stream, 1);
    CHECK_STATUS(tutti_cuda_allreduce(handover_slot(&u, 2), handover_slot(&u, 2), 1, TUTTI_FLOAT32,
                                      TUTTI_SUM, self->comm, user_stream(&u)),
                 TUTTI_ERR_UNSUPPORTED);
    pretend_capture(u.stream, 0);
    handover_put(&u, 3);
    CHECK_OK(tutti_cuda_allreduce(handover_slot(&u, 3), handover_slot(&u, 3), COUNT, TUTTI_FLOAT32,
                                  TUTTI_SUM, self->comm, user_stream(&u)));
    handover_get(&u, 3);
    user_wait(&u);
    handover_verify(&u, 3, 1);
    user_end(&u);
}

static tutti_status_t sum_in_stream(user_t *u, int t)
{
    return tutti_cuda_allreduce(handover_slot(u, t), handover_slot(u, t), COUNT, TUTTI_FLOAT32,
                                TUTTI_SUM, u->job.self->comm, user_stream(u));
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

    handover_begin(&u, self);
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&given, 0);
    CHECK_OK(tutti_barrier(self->comm));
    handover_put(&u, 0);
    if (self->rank == 0) {
        CHECK_INT(pthread_create(&thread, NULL, first_call, &u), 0);
        while (tutti__pending_count(&self->inside->engine->pending) == 0)
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
    handover_get(&u, 0);
    user_wait(&u);
    handover_verify(&u, 0, 1);
    user_end(&u);
}

/* A group of one host and its NCCL communicator share the device with the other communicators. The
   group may be made and ended while requests of other communicators are handed over. */
static void groups(rank_t *self)
{
    int color = self->rank < self->size - 1, nranks;
    tutti_comm_t *comm;
    user_t u;

    handover_begin(&u, self);
    pretend_delays(23, DELAY_US);
    for (int i = 0; i < 3; i++) {
        tutti_call_t call = ranks_sum("before", handover_slot(&u, 2), COUNT);

        handover_put(&u, 2);
        hand_over(&u, &call);
        CHECK_OK(tutti_comm_split(self->comm, color, self->rank, &comm));
        if (i < 2) {
            hand_over(&u, &call);
            CHECK_OK(tutti_comm_free(comm));
        }
    }
    nranks = tutti_size(comm);
    gate_close(self);
    gate_put(&u);
    for (int t = 0; t < 2; t++)
        handover_put(&u, t);
    for (int k = 0; k < 2; k++) {
        tutti_call_t call = ranks_sum("world", handover_slot(&u, k), COUNT);

        hand_over(&u, &call);
        CHECK_OK(tutti_cuda_allreduce(handover_slot(&u, k), handover_slot(&u, k), COUNT,
                                      TUTTI_FLOAT32, TUTTI_SUM, comm, user_stream(&u)));
        handover_get(&u, k);
    }
    CHECK_INT(user_look(&u), TUTTI__AGAIN);
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&gate_opened, 1);
    user_wait(&u);
    for (int t = 0; t < 2; t++)
        handover_verify(&u, t, (float)nranks);
    CHECK_OK(tutti_comm_free(comm));
    user_end(&u);
}

int main(void)
{
    static const char *const hosts[] = { "aab", "ab", "aabb" };
    int failures = 0, places = test_is_long("two of three placings on hosts") ? 3 : 1;

    for (int i = 0; i < places; i++) {
        failures += handover_run(all_held, hosts[i], handover_settings, 0);
        failures += handover_run(one_held, hosts[i], handover_settings, 0);
        failures += handover_run(in_a_row, hosts[i], handover_settings, 0);
    }
    failures += handover_run(as_ever, "aab", handover_settings, 0);
    failures += handover_run(op_freed, "ab", handover_settings, 0);
    failures += handover_run(in_callback, "ab", handover_settings, 0);
    failures += handover_run(two_threads, "ab", handover_settings, 0);
    failures += handover_run(groups, "aab", handover_settings, 0);
    failures += handover_run(refused, "aab", handover_settings, 0);
    failures += handover_run(too_many, "ab", handover_settings, 0);
    return failures != 0;
}
