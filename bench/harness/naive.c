/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --peer naive: a simple implementation by hand. Each rank exchanges messages with each other rank
 * by MPI_Isend and MPI_Irecv, waits for all of them, and adds in a plain loop.
 */
#include "harness/peers.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_MPI

/* Kept between calls. */
static char *scratch;
static size_t scratch_bytes;
static MPI_Request *requests;
static int pending;

static char *room(size_t bytes)
{
    if (bytes > scratch_bytes) {
        free(scratch);
        scratch = bench_allocate(bytes, 1);
        scratch_bytes = bytes;
    }
    return scratch;
}

static MPI_Request *next_request(const bench_call_t *call)
{
    if (requests == NULL)
        requests = bench_allocate(2 * (size_t)call->world->size, sizeof(*requests));
    return &requests[pending++];
}

static void get(const bench_call_t *call, void *data, size_t count, int rank)
{
    MPI_Irecv(data, (int)count, bench_mpi_type(call->type), rank, 0, MPI_COMM_WORLD,
              next_request(call));
}

static void put(const bench_call_t *call, const void *data, size_t count, int rank)
{
    MPI_Isend(data, (int)count, bench_mpi_type(call->type), rank, 0, MPI_COMM_WORLD,
              next_request(call));
}

static int wait_all(void)
{
    int status = MPI_Waitall(pending, requests, MPI_STATUSES_IGNORE);

    pending = 0;
    return status == MPI_SUCCESS ? 0 : -1;
}

/* The buffers may begin at any byte (--align), hence memcpy. */
#define ADD(type)                                                                                  \
    for (size_t i = 0; i < count; i++) {                                                           \
        type a, b;                                                                                 \
                                                                                                   \
        memcpy(&a, (char *)sum + i * sizeof(type), sizeof(type));                                  \
        memcpy(&b, (const char *)more + i * sizeof(type), sizeof(type));                           \
        a = (type)(a + b);                                                                         \
        memcpy((char *)sum + i * sizeof(type), &a, sizeof(type));                                  \
    }

static void add(const bench_call_t *call, void *sum, const void *more, size_t count)
{
    switch (call->type->dtype) {
    case TUTTI_FLOAT32:
        ADD(float);
        break;
    case TUTTI_FLOAT64:
        ADD(double);
        break;
    case TUTTI_INT32:
        ADD(uint32_t);
        break;
    case TUTTI_INT64:
        ADD(uint64_t);
        break;
    default:
        ADD(uint8_t);
        break;
    }
}

/* Receive `count` elements from each other rank, and store their sum with `own`, this rank's part,
   in recvbuf. All sends of this rank have been posted. */
static int receive_sum(const bench_call_t *call, const void *own, size_t count)
{
    size_t bytes = count * call->type->bytes;
    char *parts = room((size_t)call->world->size * bytes);

    for (int i = 0; i < call->world->size; i++) {
        if (i != call->world->rank)
            get(call, parts + (size_t)i * bytes, count, i);
    }
    if (wait_all() != 0)
        return -1;
    if (own != call->recvbuf)
        memmove(call->recvbuf, own, bytes); /* in place, both may overlap */
    for (int i = 0; i < call->world->size; i++) {
        if (i != call->world->rank)
            add(call, call->recvbuf, parts + (size_t)i * bytes, count);
    }
    return 0;
}

int bench_naive_allreduce(const bench_call_t *call)
{
    for (int i = 0; i < call->world->size; i++) {
        if (i != call->world->rank)
            put(call, call->sendbuf, call->count, i);
    }
    return receive_sum(call, call->sendbuf, call->count);
}

int bench_naive_reduce(const bench_call_t *call)
{
    if (call->world->rank == 0)
        return receive_sum(call, call->sendbuf, call->count);
    put(call, call->sendbuf, call->count, 0);
    return wait_all();
}

/* Rank i's part of a buffer that is divided as in reduce_scatter. */
static const char *part_of(const bench_call_t *call, int i)
{
    size_t begin = bench_share_begin(call->count, call->world->size, i);

    return (const char *)call->sendbuf + begin * call->type->bytes;
}

int bench_naive_reduce_scatter(const bench_call_t *call)
{
    int size = call->world->size;
    int rank = call->world->rank;

    for (int i = 0; i < size; i++) {
        if (i != rank)
            put(call, part_of(call, i), bench_share(call->count, size, i), i);
    }
    return receive_sum(call, part_of(call, rank), bench_share(call->count, size, rank));
}

int bench_naive_allgather(const bench_call_t *call)
{
    size_t bytes = call->count * call->type->bytes;
    int rank = call->world->rank;
    char *to = call->recvbuf;

    for (int i = 0; i < call->world->size; i++) {
        if (i == rank)
            continue;
        get(call, to + (size_t)i * bytes, call->count, i);
        put(call, call->sendbuf, call->count, i);
    }
    if (!call->in_place)
        memcpy(to + (size_t)rank * bytes, call->sendbuf, bytes);
    return wait_all();
}

int bench_naive_broadcast(const bench_call_t *call)
{
    if (call->world->rank != 0)
        get(call, call->recvbuf, call->count, 0);
    for (int i = 1; i < call->world->size && call->world->rank == 0; i++)
        put(call, call->recvbuf, call->count, i);
    return wait_all();
}

int bench_naive_alltoall(const bench_call_t *call)
{
    size_t bytes = call->count * call->type->bytes;
    size_t all = (size_t)call->world->size * bytes;
    const char *from = call->sendbuf;
    char *to = call->recvbuf;
    int rank = call->world->rank;

    if (call->in_place)
        from = memcpy(room(all), call->sendbuf, all);
    for (int i = 0; i < call->world->size; i++) {
        if (i == rank)
            continue;
        get(call, to + (size_t)i * bytes, call->count, i);
        put(call, from + (size_t)i * bytes, call->count, i);
    }
    memcpy(to + (size_t)rank * bytes, from + (size_t)rank * bytes, bytes);
    return wait_all();
}

int bench_naive_barrier(const bench_call_t *call)
{
    for (int i = 0; i < call->world->size; i++) {
        if (i == call->world->rank)
            continue;
        get(call, NULL, 0, i);
        put(call, NULL, 0, i);
    }
    return wait_all();
}

#endif
