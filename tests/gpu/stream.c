/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls in streams, as an application makes them (tutti/cuda.h), with TUTTI_DEVICE and ranks that a
 * launcher or TUTTI_BOOT started.
 *
 *      stream                  does later work in the stream read right results?
 *      stream measure [BYTES [TIMES]]  microseconds of an allreduce of 8 bytes to 64 MiB, or BYTES:
 *                              blocking and in a stream, Tutti's and NCCL's, medians of blocks of
 *                              TIMES calls (100, large ones 20). One GPU for each rank
 */
#include "gpu/gpu.h"

#include "base/time.h"

#include <tutti/cuda.h>

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    COUNT = 5000,
    ROUNDS = 9
};

typedef struct {
    gpu_t gpu;
    rank_t rank;
    struct CUstream_st *stream; /* the stream of `gpu` */
    char *memory;
    tutti__nccl_t *nccl;
    size_t count; /* elements of the measured call */
    int times;
} world_t;

static void begin(world_t *w, size_t bytes)
{
    const char *versions;

    memset(w, 0, sizeof(*w));
    CHECK_OK(tutti_init(NULL));
    w->rank =
        (rank_t){ tutti_rank(tutti_world()), tutti_size(tutti_world()), tutti_world(), NULL, NULL };
    w->gpu.rank = &w->rank;
    CHECK_OK(gpu_module(&w->gpu.ops, &versions));
    CHECK(tutti_cuda_device(tutti_world()) >= 0);
    CHECK_OK(w->gpu.ops->use(tutti_cuda_device(tutti_world())));
    CHECK_OK(w->gpu.ops->stream_make(0, &w->gpu.stream));
    CHECK_OK(w->gpu.ops->event_make(&w->gpu.event));
    w->stream = (struct CUstream_st *)w->gpu.stream;
    w->memory = gpu_alloc(&w->gpu, bytes);
}

static void end(world_t *w)
{
    CHECK_OK(tutti_barrier(w->rank.comm));
    w->gpu.ops->free(w->memory);
    gpu_end(&w->gpu);
    CHECK_OK(tutti_finalize());
}

/* ---- results ---- */

/* Read device memory into `host`, whose old contents are overwritten first. */
static void look(const world_t *w, int32_t *host, const char *device)
{
    gpu_finish(&w->gpu);
    memset(host, 0x55, 4 * COUNT);
    gpu_copy(&w->gpu, host, device, 4 * COUNT);
}

/* Ten maxima and a sum, each over the previous result, with copies before, between and after them.
   The first operand is written late. */
static void sums(world_t *w, int32_t *host)
{
    int32_t want = w->rank.rank;
    char *other = w->memory + 4 * COUNT;

    for (int i = 0; i < COUNT; i++)
        host[i] = want + i % 7;
    gpu_busy(&w->gpu, w->memory + 8 * COUNT, w->gpu.stream);
    CHECK_OK(w->gpu.ops->copy(w->memory, host, 4 * COUNT, w->gpu.stream));
    for (int k = 0; k < 10; k++) {
        CHECK_OK(tutti_cuda_allreduce(w->memory, other, COUNT, TUTTI_INT32, TUTTI_MAX, w->rank.comm,
                                      w->stream));
        CHECK_OK(w->gpu.ops->copy(w->memory, other, 4 * COUNT, w->gpu.stream));
    }
    CHECK_OK(tutti_cuda_allreduce(w->memory, w->memory, COUNT, TUTTI_INT32, TUTTI_SUM, w->rank.comm,
                                  w->stream));
    look(w, host, w->memory);
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(host[i], w->rank.size * (w->rank.size - 1 + i % 7));
}

static void others(world_t *w, int32_t *host)
{
    char *other = w->memory + 4 * COUNT;
    tutti_call_t call = TUTTI_CALL_INIT;
    tutti_request_t *request;

    for (int i = 0; i < COUNT; i++)
        host[i] = 3 * w->rank.rank + i;
    CHECK_OK(w->gpu.ops->copy(w->memory, host, 4 * COUNT, w->gpu.stream));
    call.kind = TUTTI_CALL_BROADCAST;
    call.recvbuf = w->memory;
    call.count = COUNT;
    call.dtype = TUTTI_INT32;
    call.root = w->rank.size - 1;
    CHECK_OK(tutti_cuda_run(&call, w->rank.comm, w->stream));
    call.kind = TUTTI_CALL_ALLREDUCE;
    call.sendbuf = w->memory;
    call.recvbuf = other;
    call.op = TUTTI_SUM;
    call.root = 0;
    call.name = "sum";
    CHECK_OK(tutti_cuda_submit(&call, 1, w->rank.comm, w->stream, &request));
    CHECK_OK(tutti_wait(request, -1));
    look(w, host, other);
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(host[i], w->rank.size * (3 * (w->rank.size - 1) + i));
    CHECK_STATUS(
        tutti_cuda_allreduce(host, host, 1, TUTTI_INT32, TUTTI_SUM, w->rank.comm, w->stream),
        TUTTI_ERR_INVALID_ARGUMENT);
}

static void results(void)
{
    void *host;
    world_t w;

    begin(&w, 8 * COUNT + gpu_busy_bytes());
    CHECK_OK(w.gpu.ops->host_alloc(4 * COUNT, &host));
    for (int i = 0; i < 3; i++) {
        sums(&w, host);
        others(&w, host);
    }
    w.gpu.ops->host_free(host);
    end(&w);
}

/* ---- times ---- */

static void settle(const world_t *w)
{
    tutti_status_t status;

    while ((status = w->gpu.ops->nccl_poll(w->nccl)) == TUTTI__AGAIN)
        sched_yield();
    CHECK_OK(status);
}

static void blocking(const world_t *w)
{
    CHECK_OK(
        tutti_allreduce(w->memory, w->memory, w->count, TUTTI_FLOAT32, TUTTI_SUM, w->rank.comm));
}

static void in_stream(const world_t *w)
{
    CHECK_OK(tutti_cuda_allreduce(w->memory, w->memory, w->count, TUTTI_FLOAT32, TUTTI_SUM,
                                  w->rank.comm, w->stream));
}

static void nccl_in_stream(const world_t *w)
{
    const tutti__nccl_call_t call = { TUTTI__NCCL_ALLREDUCE, w->memory, w->memory, w->count,
                                      TUTTI_FLOAT32,         TUTTI_SUM, 0 };

    CHECK_OK(w->gpu.ops->nccl_call(w->nccl, &call, 1, w->gpu.stream));
    settle(w);
}

static void nccl_blocking(const world_t *w)
{
    nccl_in_stream(w);
    gpu_finish(&w->gpu);
}

typedef void (*contestant_t)(const world_t *w);

/* The two contestants that use NCCL are last. If NCCL is missing, they are omitted. */
static const contestant_t contestants[] = { blocking, in_stream, nccl_blocking, nccl_in_stream };

/* Measures a block of calls, in microseconds per call; the work in the stream ends with the
   block. */
static double block(const world_t *w, contestant_t contestant)
{
    uint64_t began;

    CHECK_OK(tutti_barrier(w->rank.comm));
    began = tutti__now_ns();
    for (int i = 0; i < w->times; i++)
        contestant(w);
    gpu_finish(&w->gpu);
    return (double)(tutti__now_ns() - began) / 1e3 / w->times;
}

static int less(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void cell(double us, double peers_us)
{
    if (gpu_has_nccl())
        printf(" %14.2f %14.2f %8.3f", us, peers_us, us / peers_us);
    else
        printf(" %14.2f %14s %8s", us, "-", "-");
}

/* Print a row of medians. Each round measures all contestants, one after another. */
static void row(world_t *w)
{
    size_t count = gpu_has_nccl() ? COUNT_OF(contestants) : 2;
    double us[COUNT_OF(contestants)][ROUNDS] = { { 0 } };

    for (int r = -1; r < ROUNDS; r++)
        for (size_t c = 0; c < count; c++)
            us[c][r < 0 ? 0 : r] = block(w, contestants[c]);
    for (size_t c = 0; c < count; c++)
        qsort(us[c], ROUNDS, sizeof(double), less);
    if (w->rank.rank != 0)
        return;
    printf("%-10zu", 4 * w->count);
    cell(us[0][ROUNDS / 2], us[2][ROUNDS / 2]);
    cell(us[1][ROUNDS / 2], us[3][ROUNDS / 2]);
    printf("\n");
}

static void open_nccl(world_t *w)
{
    tutti__nccl_id_t id;

    if (w->rank.rank == 0)
        CHECK_OK(w->gpu.ops->nccl_id(&id));
    CHECK_OK(tutti_broadcast(&id, sizeof(id), TUTTI_UINT8, 0, w->rank.comm));
    CHECK_OK(
        w->gpu.ops->nccl_open(&id, (uint32_t)w->rank.rank, (uint32_t)w->rank.size, 1, &w->nccl));
    settle(w);
}

static void measure(size_t most_bytes, int times)
{
    world_t w;

    begin(&w, most_bytes);
    if (gpu_has_nccl())
        open_nccl(&w);
    if (w.rank.rank == 0)
        printf("# %-8s %14s %14s %8s %14s %14s %8s\n", "Bytes", "Blocking(us)", "NCCL", "/NCCL",
               "In stream(us)", "NCCL", "/NCCL");
    for (size_t bytes = 8; bytes <= most_bytes; bytes *= 8) {
        w.count = bytes / 4;
        w.times = times > 0 ? times : bytes < 65536 ? 100 : 20;
        row(&w);
    }
    CHECK_OK(tutti_barrier(w.rank.comm));
    if (gpu_has_nccl())
        w.gpu.ops->nccl_close(w.nccl);
    end(&w);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "measure") == 0)
        measure(argc > 2 ? (size_t)strtoull(argv[2], NULL, 10) : (size_t)64 << 20,
                argc > 3 ? atoi(argv[3]) : 0);
    else
        results();
    return 0;
}
