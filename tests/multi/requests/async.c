/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Named tensors: in any order, from several threads, fused and not fused; mismatches, names,
 * shutdown.
 */
#include "ranks.h"
#include "long.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TENSORS = 60,
    THREADS = 3,
    STEPS = 5
};

/* The sequence is the same on every rank. Sizes are from 0 to more than a bucket's temporary
   limit. */
static size_t count_of(int i)
{
    static const size_t counts[] = { 1, 3, 1000, 17, 0, 50000, 256, 9, 120000, 4096 };

    return counts[i % 10];
}

static tutti_dtype_t dtype_of(int i)
{
    return i % 7 == 3 ? TUTTI_INT64 : TUTTI_FLOAT32;
}

static tutti_op_t op_of(int i)
{
    return i % 11 == 5 ? TUTTI_MAX : TUTTI_SUM;
}

typedef struct {
    char name[32];
    void *send, *recv;
    tutti_request_t *request;
} tensor_t;

static double value_of(int rank, int tensor, size_t i, int step)
{
    return (double)((rank * 3 + tensor + (int)(i % 100) + step) % 50);
}

static double expected(int size, int tensor, size_t i, int step)
{
    double sum = 0, max = 0;

    for (int r = 0; r < size; r++) {
        double v = value_of(r, tensor, i, step);

        sum += v;
        max = v > max ? v : max;
    }
    return op_of(tensor) == TUTTI_MAX ? max : sum;
}

static void fill(tensor_t *t, int rank, int tensor, int step)
{
    for (size_t i = 0; i < count_of(tensor); i++) {
        double v = value_of(rank, tensor, i, step);

        if (dtype_of(tensor) == TUTTI_INT64)
            ((int64_t *)t->send)[i] = (int64_t)v;
        else
            ((float *)t->send)[i] = (float)v;
    }
}

static void verify(const tensor_t *t, int size, int tensor, int step)
{
    for (size_t i = 0; i < count_of(tensor); i++) {
        double want = expected(size, tensor, i, step);
        double got = dtype_of(tensor) == TUTTI_INT64 ? (double)((int64_t *)t->recv)[i]
                                                     : ((float *)t->recv)[i];

        if (got != want)
            ranks_fail(__FILE__, __LINE__, "tensor %d, element %zu, step %d: %g, wanted %g", tensor,
                       i, step, got, want);
    }
}

static tensor_t *make_tensors(void)
{
    tensor_t *all = calloc(TENSORS, sizeof(*all));

    for (int i = 0; i < TENSORS; i++) {
        size_t bytes = count_of(i) * tutti_dtype_bytes(dtype_of(i)) + 1;

        snprintf(all[i].name, sizeof(all[i].name), "layer%d/weight", i);
        all[i].send = malloc(bytes);
        all[i].recv = i % 2 ? all[i].send : malloc(bytes);
    }
    return all;
}

static void free_tensors(tensor_t *all)
{
    for (int i = 0; i < TENSORS; i++) {
        if (all[i].recv != all[i].send)
            free(all[i].recv);
        free(all[i].send);
    }
    free(all);
}

/* ---- any order, several threads ---- */

typedef struct {
    rank_t *rank;
    tensor_t *tensors;
    int thread, step;
} worker_t;

static void *work(void *arg)
{
    worker_t *w = arg;
    int order[TENSORS], n = 0;
    unsigned seed = (unsigned)(w->rank->rank * 977 + w->thread * 31 + w->step);

    for (int i = w->thread; i < TENSORS; i += THREADS)
        order[n++] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(rand_r(&seed) % (unsigned)(i + 1)), swap = order[i];

        order[i] = order[j];
        order[j] = swap;
    }
    for (int k = 0; k < n; k++) {
        tensor_t *t = &w->tensors[order[k]];

        fill(t, w->rank->rank, order[k], w->step);
        CHECK_OK(tutti_allreduce_async(t->name, t->send, t->recv, count_of(order[k]),
                                       dtype_of(order[k]), op_of(order[k]), w->rank->comm, NULL,
                                       &t->request));
    }
    for (int k = n - 1; k >= 0; k--) {
        tensor_t *t = &w->tensors[order[k]];
        int done;

        CHECK_OK(tutti_test(t->request, &done));
        CHECK_OK(tutti_wait(t->request, -1));
        verify(t, w->rank->size, order[k], w->step);
    }
    return NULL;
}

static void any_order(rank_t *self)
{
    tensor_t *tensors = make_tensors();

    for (int step = 0; step < (ranks_can_fork() ? STEPS : 2); step++) {
        pthread_t threads[THREADS];
        worker_t workers[THREADS];
        int32_t one = 1;

        for (int t = 0; t < THREADS; t++) {
            workers[t] = (worker_t){ self, tensors, t, step };
            pthread_create(&threads[t], NULL, work, &workers[t]);
        }
        /* Direct calls are made at the same time. */
        CHECK_OK(tutti_allreduce(&one, &one, 1, TUTTI_INT32, TUTTI_SUM, self->comm));
        CHECK_INT(one, self->size);
        for (int t = 0; t < THREADS; t++)
            pthread_join(threads[t], NULL);
    }
    free_tensors(tensors);
}

/* ---- many tiny tensors: more control messages than a ring holds ---- */

static void flood(rank_t *self)
{
    enum {
        N = 1200
    };
    tutti_request_t **requests = calloc(N, sizeof(*requests));
    float *x = calloc(N, sizeof(*x));
    char name[200];

    for (int i = 0; i < N; i++) {
        int k = self->rank % 2 ? N - 1 - i : i;

        x[k] = (float)(k + self->rank);
        snprintf(name, sizeof(name), "a-rather-long-name-that-fills-the-rings-%0120d", k);
        CHECK_OK(tutti_allreduce_async(name, &x[k], &x[k], 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &requests[k]));
    }
    for (int i = 0; i < N; i++) {
        CHECK_OK(tutti_wait(requests[i], -1));
        CHECK_INT(x[i], i * self->size + self->size * (self->size - 1) / 2);
    }
    free(requests);
    free(x);
}

/* ---- mistakes ---- */

static void mismatches(rank_t *self)
{
    float x[8] = { 0 };
    tutti_request_t *r, *again;
    int last = self->rank == self->size - 1;

    CHECK_OK(tutti_allreduce_async("count", x, x, last ? 7 : 8, TUTTI_FLOAT32, TUTTI_SUM,
                                   self->comm, NULL, &r));
    CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "'count'") != NULL);
    CHECK(strstr(tutti_last_error(), "rank") != NULL);
    CHECK_OK(tutti_allreduce_async("type", x, x, 4, last ? TUTTI_INT32 : TUTTI_FLOAT32, TUTTI_SUM,
                                   self->comm, NULL, &r));
    CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "int32") != NULL);
    CHECK(strstr(tutti_last_error(), "float32") != NULL);
    CHECK_OK(tutti_allreduce_async("op", x, x, 4, TUTTI_FLOAT32, last ? TUTTI_MIN : TUTTI_SUM,
                                   self->comm, NULL, &r));
    CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_MISMATCH);
    /* The communicator works as before. */
    x[0] = 1;
    if (last)
        CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(
        tutti_allreduce_async("count", x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &r));
    if (!last) {
        CHECK_STATUS(tutti_allreduce_async("count", x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                           NULL, &again),
                     TUTTI_ERR_INVALID_ARGUMENT);
        CHECK_OK(tutti_barrier(self->comm));
    }
    CHECK_OK(tutti_wait(r, -1));
    CHECK_INT(x[0], self->size);
}

static void direct_mismatch(rank_t *self)
{
    float x[8192] = { 0 };
    size_t n = self->rank == 1 ? 3 : 4;

    CHECK_STATUS(tutti_allreduce(x, x, n, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "rank 1") != NULL);
    /* Rank 0's call is chunked, the others' calls are one-shot. */
    n = self->rank == 0 ? 8192 : 4;
    CHECK_STATUS(tutti_allreduce(x, x, n, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_MISMATCH);
    x[0] = 1;
    CHECK_OK(tutti_allreduce(x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK_INT(x[0], self->size);
}

/* If a kind of call does not use a field, this field may differ between the ranks, also if a rank
   has joined. */
static void unused_fields(rank_t *self)
{
    static const tutti_call_kind_t kinds[] = { TUTTI_CALL_ALLREDUCE, TUTTI_CALL_BROADCAST,
                                               TUTTI_CALL_BARRIER };
    int last;

    for (int i = 0; i < 4; i++) {
        float x = 1;
        tutti_call_t call = ranks_sum("unused", &x, 1);
        tutti_request_t *r;

        call.kind = kinds[i % 3];
        if (call.kind == TUTTI_CALL_ALLREDUCE)
            call.root = 1 + self->rank;
        else
            call.op = self->rank == 0 ? TUTTI_MAX : TUTTI_SUM;
        if (i == 3 && self->rank == 0)
            break;
        CHECK_OK(tutti_submit(&call, 1, self->comm, &r));
        CHECK_OK(tutti_wait(r, -1));
        CHECK_INT(x, i == 0 ? self->size : i == 3 ? self->size - 1 : 1);
    }
    CHECK_OK(tutti_join(self->comm, &last));
}

/* Only rank 0 submits a tensor; the other ranks finalize. */
static void shutdown_pending(rank_t *self)
{
    float x = 1;
    tutti_status_t status;
    tutti_request_t *r;

    if (self->rank != 0) {
        usleep(200000);
        return;
    }
    CHECK_OK(
        tutti_allreduce_async("alone", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &r));
    status = tutti_wait(r, 50);
    if (self->size == 1) {
        CHECK_OK(status);
        return;
    }
    /* On a busy machine the others may have left before this submission. */
    if (status != TUTTI_ERR_SHUTDOWN) {
        CHECK_STATUS(status, TUTTI_ERR_TIMEOUT);
        status = tutti_wait(r, -1);
    }
    CHECK_STATUS(status, TUTTI_ERR_SHUTDOWN);
    CHECK(strstr(tutti_last_error(), "tutti_finalize") != NULL);
    CHECK_STATUS(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_SHUTDOWN);
}

/* A request that is waited for after its communicator was freed. */
static void outlives(rank_t *self)
{
    static __thread float x;
    tutti_request_t *r;

    if (self->size == 1)
        return;
    if (self->rank == 0) {
        CHECK_OK(tutti_allreduce_async("late", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &r));
        CHECK_OK(tutti_barrier(self->comm)); /* so that no rank leaves before this submission */
        tutti__comm_close(self->inside);
        self->inside = NULL;
        CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_SHUTDOWN);
    } else {
        CHECK_OK(tutti_barrier(self->comm));
    }
}

static void settings(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.fusion_bytes = 100000;
}

static void everything(rank_t *self)
{
    any_order(self);
    flood(self);
    mismatches(self);
    any_order(self);
}

int main(void)
{
    static const int sizes[] = { 1, 2, 5, 3, 4, 7, 8 };
    static const char *const hosts[] = { "aaabb", "abc", "ab", "aabb", "aaaab" };
    int failures = 0, threads = !ranks_can_fork();
    int whole = test_is_long("3 to 8 ranks of one host, and four of five placings on hosts");

    for (size_t i = 0; i < (whole ? sizeof(sizes) / sizeof(sizes[0]) : 2); i++) {
        job_t job = { .size = sizes[i], .threads = threads, .fn = everything };
        job_t small = {
            .size = sizes[i], .threads = threads, .fn = any_order, .settings = settings
        };
        job_t end = { .size = sizes[i], .threads = threads, .fn = shutdown_pending };

        if (threads && (sizes[i] == 1 || sizes[i] > 3))
            continue;
        if (sizes[i] > 1)
            RUN_JOB(failures, &job);
        RUN_JOB(failures, &small);
        if (threads)
            continue;
        RUN_JOB(failures, &end);
        end.fn = outlives;
        RUN_JOB(failures, &end);
        end.fn = direct_mismatch;
        if (sizes[i] > 1)
            RUN_JOB(failures, &end);
        end.fn = unused_fields;
        if (sizes[i] > 1)
            RUN_JOB(failures, &end);
    }
    for (size_t i = 0; i < (whole ? sizeof(hosts) / sizeof(hosts[0]) : threads ? 2 : 1); i++) {
        job_t job = {
            .size = (int)strlen(hosts[i]), .hosts = hosts[i], .threads = threads, .fn = everything
        };

        if (threads && (i > 2 || (i == 0 && !whole)))
            continue;
        RUN_JOB(failures, &job);
        job.fn = shutdown_pending;
        if (!threads)
            RUN_JOB(failures, &job);
        job.fn = unused_fields;
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
