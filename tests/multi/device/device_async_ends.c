/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous calls on device memory that mismatch, are refused, or end with their communicator.
 * Also ranks that have joined, and the numbers of launches and events.
 */
#include "device_world.h"

#include "base/status.h"
#include "base/time.h"
#include "node/nccl/nccl.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    N = 300,
    LARGE = 5000, /* float: more than the fuse memory of the jobs here */
    GROUP = 8,
    MANY = 1100 /* more calls than the engine has events */
};

static void fill(float *device, size_t count, double value)
{
    float *host = malloc(count * sizeof(*host));

    for (size_t i = 0; i < count; i++)
        host[i] = (float)(value + (double)(i % 10));
    pretend_write(device, host, count * sizeof(*host));
    free(host);
}

static void verify(const float *device, size_t count, double value, double slope)
{
    float *host = malloc(count * sizeof(*host));

    pretend_read(host, device, count * sizeof(*host));
    for (size_t i = 0; i < count; i++)
        if (host[i] != (float)(value + slope * (double)(i % 10)))
            ranks_fail(__FILE__, __LINE__, "element %zu: %g, wanted %g", i, (double)host[i],
                       value + slope * (double)(i % 10));
    free(host);
}

static double sum_of_ranks(int size)
{
    return size * (size - 1) / 2;
}

static void allreduce(gpu_rank_t *gpu, const char *name, float *x, size_t count)
{
    tutti__entry_t entry = device_entry(name, x, x, count);

    fill(x, count, gpu->rank->rank);
    CHECK_OK(tutti__engine_wait(device_submit(gpu, &entry), -1));
    verify(x, count, sum_of_ranks(gpu->rank->size), gpu->rank->size);
}

static void expect_words(const char *words)
{
    if (strstr(tutti_last_error(), words) == NULL)
        ranks_fail(__FILE__, __LINE__, "\"%s\" instead of \"%s\"", tutti_last_error(), words);
}

/* ---- mismatches and refusals ---- */

/* Some ranks pass host memory, others device memory. */
static void clash(gpu_rank_t *gpu, float *x)
{
    float host[N] = { 0 };
    int mine = gpu->rank->rank != 1;
    tutti__entry_t entry = device_entry("clash", mine ? x : host, mine ? x : host, N);

    entry.call.on_device = mine;
    CHECK_STATUS(tutti__engine_wait(device_submit(gpu, &entry), -1), TUTTI_ERR_MISMATCH);
    expect_words("in device memory");
    expect_words("rank 1 has an allreduce of 300 elements of float32, sum");
}

static void captured(gpu_rank_t *gpu, float *x)
{
    tutti__entry_t entries[2] = { device_entry("captured 0", x, x, 1),
                                  device_entry("captured 1", x + 1, x + 1, 1) };
    tutti_request_t *requests[2];

    entries[1].call.stream = gpu->stream;
    entries[1].call.has_stream = 1;
    pretend_capture(gpu->stream, 1);
    CHECK_STATUS(tutti__engine_submit(gpu->engine, entries, 2, requests), TUTTI_ERR_UNSUPPORTED);
    expect_words("captured into a graph");
    pretend_capture(gpu->stream, 0);
    /* Nothing was queued, so the names are free. */
    fill(x, 2, gpu->rank->rank);
    CHECK_OK(tutti__engine_submit(gpu->engine, entries, 2, requests));
    CHECK_OK(tutti__engine_wait(requests[0], -1));
    CHECK_OK(tutti__engine_wait(requests[1], -1));
    verify(x, 2, sum_of_ranks(gpu->rank->size), gpu->rank->size);
}

static void refused(rank_t *self)
{
    gpu_rank_t gpu;
    float *x;

    device_begin(&gpu, self);
    x = device_alloc(&gpu, N);
    for (int i = 0; i < 3; i++) {
        clash(&gpu, x);
        captured(&gpu, x);
        allreduce(&gpu, "fits", x, N);
    }
    CHECK_OK(tutti_barrier(self->comm));
    device_free(&gpu, x);
    device_end(&gpu);
}

/* ---- launches and events ---- */

/* All tensors are one bucket, so there is one launch to pack and one launch to unpack. */
static void launches(gpu_rank_t *gpu, float *x)
{
    tutti__entry_t entries[GROUP];
    tutti_request_t *requests[GROUP];
    char names[GROUP][16];
    unsigned before = pretend_counts(gpu->rank->rank, PRETEND_PACKS);

    for (int i = 0; i < GROUP; i++) {
        snprintf(names[i], sizeof(names[i]), "part %d", i);
        entries[i] = device_entry(names[i], x + i * 20, x + i * 20, (size_t)(10 + i));
        entries[i].call.postscale = 0.5;
        fill(x + i * 20, (size_t)(10 + i), gpu->rank->rank);
    }
    CHECK_OK(tutti__engine_submit(gpu->engine, entries, GROUP, requests));
    for (int i = 0; i < GROUP; i++) {
        CHECK_OK(tutti__engine_wait(requests[i], -1));
        verify(x + i * 20, (size_t)(10 + i), 0.5 * sum_of_ranks(gpu->rank->size),
               0.5 * gpu->rank->size);
    }
    CHECK_INT(pretend_counts(gpu->rank->rank, PRETEND_PACKS) - before, 2);
}

/* A single plain tensor is served in place. */
static void no_launches(gpu_rank_t *gpu, float *x)
{
    unsigned before = pretend_counts(gpu->rank->rank, PRETEND_PACKS);

    allreduce(gpu, "alone", x, N);
    CHECK_INT(pretend_counts(gpu->rank->rank, PRETEND_PACKS) - before, 0);
}

/* These calls need more events than were made at set-up; later calls reuse the events. */
static void events(gpu_rank_t *gpu, float *x)
{
    static const char *const when[] = { "first", "again" };
    tutti_request_t **requests = calloc(MANY, sizeof(tutti_request_t *));

    for (int round = 0; round < 2; round++) {
        unsigned before = pretend_counts(gpu->rank->rank, PRETEND_MADE);

        for (int i = 0; i < MANY; i++) {
            char name[32];
            tutti__entry_t entry = device_entry(name, x + i, x + i, 1);

            snprintf(name, sizeof(name), "%s %d", when[round], i);
            entry.call.stream = gpu->stream;
            entry.call.has_stream = 1;
            fill(x + i, 1, gpu->rank->rank + i);
            /* The last rank submits after all others have submitted. */
            if (i == 0 && gpu->rank->rank == gpu->rank->size - 1)
                CHECK_OK(tutti_barrier(gpu->rank->comm));
            requests[i] = device_submit(gpu, &entry);
        }
        if (gpu->rank->rank != gpu->rank->size - 1)
            CHECK_OK(tutti_barrier(gpu->rank->comm));
        for (int i = 0; i < MANY; i++) {
            CHECK_OK(tutti__engine_wait(requests[i], -1));
            verify(x + i, 1, sum_of_ranks(gpu->rank->size) + gpu->rank->size * i, 0);
        }
        if (gpu->rank->rank != gpu->rank->size - 1)
            CHECK_INT(pretend_counts(gpu->rank->rank, PRETEND_MADE) - before,
                      round == 0 ? MANY - 1024 : 0);
    }
    free(requests);
}

static void counted(rank_t *self)
{
    gpu_rank_t gpu;
    float *x;

    device_begin(&gpu, self);
    x = device_alloc(&gpu, MANY);
    launches(&gpu, x);
    no_launches(&gpu, x);
    events(&gpu, x);
    CHECK_OK(tutti_barrier(self->comm));
    device_free(&gpu, x);
    device_end(&gpu);
}

/* ---- counts that are asked for ---- */

/* Rank r sends r elements. So rank 0 sends none, and only recvbuf shows that it uses device
   memory. */
static void gather_unknown(gpu_rank_t *gpu, float *x, float *all)
{
    uint32_t size = (uint32_t)gpu->rank->size, at = 0;
    size_t counts[PRETEND_RANKS];
    tutti__entry_t entry = device_entry("unknown", x, NULL, (size_t)gpu->rank->rank);
    tutti_request_t *request;

    entry.call.kind = TUTTI_CALL_ALLGATHERV;
    entry.call.on_device = gpu->rank->rank > 0;
    entry.counts_later = 1;
    fill(x, N, gpu->rank->rank);
    request = device_submit(gpu, &entry);
    CHECK_OK(tutti__engine_recvcounts(request, -1, counts));
    CHECK_OK(tutti__engine_receive(request, all, NULL));
    CHECK_OK(tutti__engine_wait(request, -1));
    for (uint32_t r = 0; r < size; at += r++) {
        CHECK_INT(counts[r], r);
        verify(all + at, r, r, 1);
    }
}

static void unknown(rank_t *self)
{
    gpu_rank_t gpu;
    float *x, *all;

    device_begin(&gpu, self);
    x = device_alloc(&gpu, N);
    all = device_alloc(&gpu, N);
    for (int i = 0; i < 3; i++)
        gather_unknown(&gpu, x, all);
    CHECK_OK(tutti_barrier(self->comm));
    device_free(&gpu, x);
    device_free(&gpu, all);
    device_end(&gpu);
}

/* ---- ranks that have joined ---- */

/* The sum over the ranks from `first` on; the ranks before `first` have joined. */
static double sum_from(int first, int size)
{
    return sum_of_ranks(size) - sum_of_ranks(first);
}

static void batch(gpu_rank_t *gpu, float *x, int step)
{
    int size = gpu->rank->size, n = size - step;
    double sum = sum_from(step, size);
    size_t part = N / 10 * 10;
    tutti__entry_t entries[4] = { device_entry("small", x, x, N),
                                  device_entry("another", x + N, x + N, 7),
                                  device_entry("large", x + 2 * N, x + 2 * N, LARGE),
                                  device_entry("int16", x + 3 * N + LARGE, x + 3 * N + LARGE, N) };
    tutti__entry_t scatter = device_entry("scatter", x, x + (size_t)gpu->rank->rank * part, part);
    tutti_request_t *requests[4];

    entries[3].call.dtype = TUTTI_INT16; /* NCCL does not serve it */
    fill(x, 4 * N + LARGE, gpu->rank->rank);
    pretend_write(x + 3 * N + LARGE, (int16_t[N]){ 5 }, N * sizeof(int16_t));
    CHECK_OK(tutti__engine_submit(gpu->engine, entries, 4, requests));
    for (int i = 0; i < 4; i++)
        CHECK_OK(tutti__engine_wait(requests[i], -1));
    verify(x, N, sum, n);
    verify(x + N, 7, sum, n);
    verify(x + 2 * N, LARGE, sum, n);
    {
        int16_t got[N];

        pretend_read(got, x + 3 * N + LARGE, sizeof(got));
        CHECK_INT(got[0], 5 * n);
        CHECK_INT(got[1], 0);
    }
    fill(x, (size_t)size * part, gpu->rank->rank);
    scatter.call.kind = TUTTI_CALL_REDUCE_SCATTER;
    CHECK_OK(tutti__engine_wait(device_submit(gpu, &scatter), -1));
    verify(x + (size_t)gpu->rank->rank * part, part, sum, n);
}

static void joined(rank_t *self)
{
    gpu_rank_t gpu;
    float *x;
    int last;

    device_begin(&gpu, self);
    x = device_alloc(&gpu, 4 * N + LARGE + (size_t)self->size * N);
    /* The lanes have already been used for other data. */
    for (int i = 0; i < 8; i++)
        allreduce(&gpu, "before", x, N);
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int step = 0; step <= self->rank; step++)
            batch(&gpu, x, step);
        CHECK_OK(tutti__engine_join(gpu.engine, &last));
        CHECK_INT(last, self->size - 1);
    }
    CHECK_OK(tutti_barrier(self->comm));
    device_free(&gpu, x);
    device_end(&gpu);
}

/* ---- ends ---- */

static void count(void *arg, tutti_status_t status)
{
    CHECK_INT(status, TUTTI_OK);
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void submit_all(gpu_rank_t *gpu, float *x, const char *prefix, tutti_request_t **requests)
{
    for (int i = 0; i < GROUP; i++) {
        char name[32];
        tutti__entry_t entry = device_entry(name, x + i * N, x + i * N, N);

        snprintf(name, sizeof(name), "%s %d", prefix, i);
        entry.call.stream = gpu->stream;
        entry.call.has_stream = 1;
        requests[i] = device_submit(gpu, &entry);
    }
}

/* A device hangs until a rank ends the communicator. Then all requests end, and no work of the
   device writes into their buffers after that. */
static void killed(rank_t *self)
{
    tutti_request_t *requests[GROUP];
    gpu_rank_t gpu;
    int ended = 0;
    float *x;

    device_begin(&gpu, self);
    x = device_alloc(&gpu, GROUP * N);
    allreduce(&gpu, "fits", x, N);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_hang(0, 0);
    CHECK_OK(tutti_barrier(self->comm));
    submit_all(&gpu, x, "hangs", requests);
    CHECK_OK(tutti_barrier(self->comm)); /* a submission after the end would fail */
    usleep(20000);
    if (self->rank == self->size - 1)
        CHECK_STATUS(tutti__engine_kill(gpu.engine, TUTTI_ERR_TIMEOUT, "enough"),
                     TUTTI_ERR_TIMEOUT);
    for (int i = 0; i < GROUP; i++) {
        tutti_status_t status = tutti__engine_wait(requests[i], -1);

        CHECK(status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_TRANSPORT || status == TUTTI_OK);
        ended += status == TUTTI_OK;
    }
    /* The other ranks may already have received all that they need from rank 0. */
    CHECK(self->rank != 0 || ended < GROUP);
    CHECK_OK(tutti_barrier(self->comm));
    /* NCCL's work must be over here, and not only after device_end, which aborts unfinished
       work. */
    CHECK_STATUS(tutti__nccl_node_settle(gpu.device.node), TUTTI_ERR_TRANSPORT);
    expect_words("was aborted");
    device_end(&gpu);
    CHECK_OK(gpu.ops->use(self->rank));
    device_free(&gpu, x);
}

/* As `killed`, but while data are copied through host memory: NCCL has no run that could be
   cancelled. */
static void killed_staged(rank_t *self)
{
    tutti_request_t *requests[3];
    gpu_rank_t gpu;
    float *x;

    device_begin(&gpu, self);
    x = device_alloc(&gpu, N);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_delays(7, 100000);
    for (int i = 0; i < 3; i++) {
        char name[16];
        tutti__entry_t entry = device_entry(name, x + i, x + i, 1);

        snprintf(name, sizeof(name), "staged %d", i);
        entry.call.dtype = TUTTI_INT16;
        requests[i] = device_submit(&gpu, &entry);
    }
    CHECK_OK(tutti_barrier(self->comm));
    usleep(2000);
    (void)tutti__engine_kill(gpu.engine, TUTTI_ERR_TIMEOUT, "enough");
    for (int i = 0; i < 3; i++) {
        tutti_status_t status = tutti__engine_wait(requests[i], -1);

        CHECK(status == TUTTI_ERR_TIMEOUT || status == TUTTI_OK);
    }
    CHECK_OK(tutti_barrier(self->comm));
    device_end(&gpu);
    CHECK_OK(gpu.ops->use(self->rank));
    device_free(&gpu, x);
}

/* In a job of one rank, the rank waits only for its device. Even this wait must not be long. */
static void alone(rank_t *self)
{
    tutti__entry_t entry;
    atomic_int ended = 0;
    tutti_request_t *request;
    gpu_rank_t gpu;
    float *x;

    device_begin(&gpu, self);
    x = device_alloc(&gpu, N);
    pretend_delays(3, 2000);
    entry = device_entry("alone", x, x, N);
    entry.callback = count;
    entry.callback_arg = &ended;
    request = device_submit(&gpu, &entry);
    for (int i = 0; i < 60000 && atomic_load(&ended) == 0; i++)
        usleep(1000);
    CHECK_INT(atomic_load(&ended), 1);
    CHECK_OK(tutti__engine_wait(request, -1));
    device_free(&gpu, x);
    device_end(&gpu);
}

/* All ranks close the engine while calls are running. */
static void closed(rank_t *self)
{
    tutti_request_t *requests[GROUP];
    uint64_t begin;
    gpu_rank_t gpu;
    float *x;

    device_begin(&gpu, self);
    x = device_alloc(&gpu, GROUP * N);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_delays(5, 3000);
    submit_all(&gpu, x, "left", requests);
    CHECK_OK(tutti_barrier(self->comm));
    begin = tutti__now_ns();
    device_end(&gpu);
    CHECK((tutti__now_ns() - begin) / 1000000u < 60000);
    for (int i = 0; i < GROUP; i++) {
        tutti_status_t status = tutti__engine_wait(requests[i], -1);

        CHECK(status == TUTTI_ERR_SHUTDOWN || status == TUTTI_OK || status == TUTTI_ERR_TRANSPORT);
    }
    CHECK_OK(gpu.ops->use(self->rank));
    device_free(&gpu, x);
}

/* A process dies while the others have work in flight. */
static void dies(rank_t *self)
{
    tutti_request_t *requests[GROUP];
    gpu_rank_t gpu;
    float *x;

    device_begin(&gpu, self);
    x = device_alloc(&gpu, GROUP * N);
    allreduce(&gpu, "fits", x, N);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_delays(9, 2000);
    submit_all(&gpu, x, "lost", requests);
    /* After this barrier all ranks have begun. A slow rank may already get the error of the lost
       peer. */
    (void)tutti_barrier(self->comm);
    if (self->rank == 1)
        kill(getpid(), SIGKILL);
    for (int i = 0; i < GROUP; i++) {
        tutti_status_t status = tutti__engine_wait(requests[i], -1);

        CHECK(status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_TRANSPORT || status == TUTTI_OK);
    }
    CHECK_STATUS(tutti__watch_alive(gpu.watch), TUTTI_ERR_PEER_LOST);
    device_end(&gpu);
    CHECK_OK(gpu.ops->use(self->rank));
    device_free(&gpu, x);
}

int main(void)
{
    int failures = 0;

    device_options = (device_options_t){ .fuse_bytes = 16384, .stage_bytes = 1 << 16 };
    failures += run_device_jobs(refused, 2, NULL, 0);
    failures += run_device_jobs(refused, 3, "aab", 0);
    failures += run_device_jobs(counted, 2, NULL, 0);
    failures += run_device_jobs(unknown, 3, NULL, 0);
    failures += run_device_jobs(joined, 3, NULL, 0);
    failures += run_device_jobs(joined, 4, "aabb", 0);
    failures += run_device_jobs(killed, 3, NULL, 0);
    failures += run_device_jobs(killed_staged, 2, NULL, 0);
    failures += run_device_jobs(alone, 1, NULL, 0);
    failures += run_device_jobs(closed, 3, NULL, 0);
    failures += run_device_jobs(dies, 3, NULL, 2);
    return failures != 0;
}
