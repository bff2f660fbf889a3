/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti_join on device memory: ranks with different numbers of batches. A rank that has joined
 * contributes zeros to the calls of the other ranks. The zeros are on its device; if a call is
 * staged, they are in host memory. Small calls are fused, large calls are not.
 */
#include "device_user.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL = 300,
    LARGE = 40000, /* larger than the fuse memory */
    PART = 50,     /* elements of a rank, in the reduce_scatter */
    SUM = 0,       /* tensors */
    AVERAGE,
    LARGE_SUM,
    SCATTER,
    REDUCED,
    TOLD,
    TENSORS
};

static const char *const names[TENSORS] = { "sum",     "average", "large",
                                            "scatter", "reduced", "told" };

/* Rank r has r batches. The last rank has the most, and is the root. */
static int works(int rank, int step)
{
    return step < rank;
}

static float value(int rank, int step, size_t i)
{
    return (float)(rank * 8 + step + (int)(i % 16));
}

static float sum_of(int size, int step, size_t i)
{
    float sum = 0;

    for (int r = 0; r < size; r++)
        sum += works(r, step) ? value(r, step, i) : 0;
    return sum;
}

/* Elements that a rank passes to the call of a tensor. */
static size_t elements_of(int size, int t)
{
    return t == LARGE_SUM ? LARGE : t == SCATTER ? PART * (size_t)size : SMALL;
}

static float *place(const rank_t *self, char *memory, int t)
{
    size_t before = 0;

    for (int k = 0; k < t; k++)
        before += elements_of(self->size, k);
    return (float *)(void *)memory + before;
}

/* The calls of a batch, all in place except the reduce_scatter. */
static void submit(rank_t *self, user_t *u, tutti_request_t **ret_requests)
{
    for (int t = 0; t < TENSORS; t++) {
        float *x = place(self, u->job.memory, t);
        tutti_call_t call = ranks_sum(names[t], x, elements_of(self->size, t));

        if (t == AVERAGE)
            call.op = TUTTI_AVG;
        if (t == REDUCED || t == TOLD) {
            call.kind = t == REDUCED ? TUTTI_CALL_REDUCE : TUTTI_CALL_BROADCAST;
            call.root = self->size - 1;
        }
        if (t == SCATTER) {
            call.kind = TUTTI_CALL_REDUCE_SCATTER;
            call.count = PART;
            call.recvbuf = place(self, u->job.memory, TENSORS);
        }
        CHECK_OK(tutti_cuda_submit(&call, 1, self->comm, user_stream(u), &ret_requests[t]));
    }
}

static void verify(const rank_t *self, const float *result, int t, int step)
{
    size_t first = t == SCATTER ? PART * (size_t)self->rank : 0;
    size_t n = t == SCATTER ? PART : elements_of(self->size, t);

    if (t == REDUCED && self->rank != self->size - 1)
        return;
    for (size_t i = 0; i < n; i++) {
        float wanted = t == TOLD ? value(self->size - 1, step, i)
                                 : sum_of(self->size, step, first + i);

        if (t == AVERAGE)
            wanted /= (float)self->size; /* the average is over all ranks, joined or not */
        if (result[i] != wanted)
            ranks_fail(__FILE__, __LINE__, "%s, step %d, element %zu: %g, wanted %g", names[t],
                       step, i, result[i], wanted);
    }
}

static void batch(rank_t *self, user_t *u, int step)
{
    size_t bytes = (size_t)((char *)place(self, u->in, TENSORS) - u->in);
    tutti_request_t *requests[TENSORS];

    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < elements_of(self->size, t); i++)
            place(self, u->in, t)[i] = value(self->rank, step, i);
    CHECK_OK(u->job.ops->copy(u->job.memory, u->in, bytes, u->stream));
    submit(self, u, requests);
    for (int t = 0; t < TENSORS; t++)
        CHECK_OK(tutti_cuda_wait(requests[t], -1, user_stream(u)));
    CHECK_OK(u->job.ops->copy(u->out, u->job.memory, bytes + PART * sizeof(float), u->stream));
    user_wait(u);
    for (int t = 0; t < TENSORS; t++)
        verify(self, place(self, u->out, t == SCATTER ? TENSORS : t), t, step);
}

static void epochs(rank_t *self)
{
    size_t bytes = PART * sizeof(float);
    int last = -1;
    user_t u;

    for (int t = 0; t < TENSORS; t++)
        bytes += elements_of(self->size, t) * sizeof(float);
    user_begin(&u, self, bytes, bytes);
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int step = 0; works(self->rank, step); step++)
            batch(self, &u, step);
        CHECK_OK(tutti_join(self->comm, &last));
        if (self->size > 1)
            CHECK_INT(last, self->size - 1);
    }
    user_end(&u);
}

/* Allreduces of several hosts pass through host memory. */
static void staged(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->shared.device_staged_bytes = SIZE_MAX;
}

int main(void)
{
    static const struct {
        int size;
        const char *hosts;
    } places[] = { { 1, NULL }, { 2, NULL }, { 3, NULL }, { 3, "aab" }, { 4, "abab" } };
    int failures = 0;

    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        job_t job = { .size = places[i].size,
                      .hosts = places[i].hosts,
                      .threads = !ranks_can_fork(),
                      .fn = epochs };

        failures += device_run_job(&job);
        job.settings = staged;
        if (job.hosts != NULL)
            failures += device_run_job(&job);
    }
    return failures != 0;
}
