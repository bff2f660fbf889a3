/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --peer nccl: NCCL's collective on the same device memory, in a communicator of all ranks, on the
 * harness's stream. Its time ends when an event after the call has completed, because Tutti's
 * direct call also returns with a complete result.
 */
#include "harness/device.h"
#include "harness/peers.h"

#include "base/status.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Wait until NCCL has accepted a call. Before that, no other call may be queued. */
static tutti_status_t settle(const bench_device_t *device)
{
    tutti_status_t status;

    while ((status = device->ops->nccl_poll(device->nccl)) == TUTTI__AGAIN)
        sched_yield();
    return status;
}

/* Rank 0's id is distributed eight bytes at a time, by the harness's functions. */
void bench_nccl_open(const bench_world_t *world)
{
    bench_device_t *device = world->device;
    tutti__nccl_id_t id = { { 0 } };
    const float zero = 0.0f;

    if (world->rank == 0)
        bench_device_check(world, device->ops->nccl_id(&id), "nccl_id");
    for (size_t at = 0; at < sizeof(id); at += sizeof(uint64_t)) {
        uint64_t part;

        memcpy(&part, id.bytes + at, sizeof(part));
        part = bench_same(world, part);
        memcpy(id.bytes + at, &part, sizeof(part));
    }
    bench_device_check(
        world,
        device->ops->nccl_open(&id, (uint32_t)world->rank, (uint32_t)world->size, 1, &device->nccl),
        "nccl_open");
    bench_device_check(world, settle(device), "nccl_open");
    device->one = bench_device_alloc(world, sizeof(zero));
    bench_device_copy(world, device->one, &zero, sizeof(zero));
}

void bench_nccl_close(const bench_world_t *world)
{
    bench_device_t *device = world->device;

    if (device->nccl == NULL)
        return;
    device->ops->nccl_close(device->nccl);
    bench_device_free(world, device->one);
    device->nccl = NULL;
}

void bench_nccl_queue(const bench_world_t *world, const tutti__nccl_call_t *calls, size_t ncalls)
{
    const bench_device_t *device = world->device;

    bench_device_check(world, device->ops->nccl_call(device->nccl, calls, ncalls, device->stream),
                       "nccl_call");
    bench_device_check(world, settle(device), "nccl_call");
}

/* Make one call from `src` to recvbuf. Reductions are sums, and the root is rank 0. */
static int run_one(const bench_call_t *call, tutti__nccl_kind_t kind, const void *src)
{
    tutti__nccl_call_t nccl = { kind,      src, call->recvbuf, call->count, call->type->dtype,
                                TUTTI_SUM, 0 };

    bench_nccl_queue(call->world, &nccl, 1);
    bench_device_wait(call->world);
    return 0;
}

int bench_nccl_allreduce(const bench_call_t *call)
{
    return run_one(call, TUTTI__NCCL_ALLREDUCE, call->sendbuf);
}

int bench_nccl_reduce(const bench_call_t *call)
{
    return run_one(call, TUTTI__NCCL_REDUCE, call->sendbuf);
}

int bench_nccl_allgather(const bench_call_t *call)
{
    return run_one(call, TUTTI__NCCL_ALLGATHER, call->sendbuf);
}

int bench_nccl_broadcast(const bench_call_t *call)
{
    return run_one(call, TUTTI__NCCL_BROADCAST, call->recvbuf);
}

/* Room for the calls of a group. A program always needs the same number. */
static tutti__nccl_call_t *calls_of(size_t ncalls)
{
    static tutti__nccl_call_t *calls;

    if (calls == NULL)
        calls = bench_allocate(ncalls, sizeof(*calls));
    return calls;
}

/* NCCL has no call for parts of different lengths. So queue a group of reductions, one to each
   rank. */
static void queue_uneven(const bench_call_t *call, void *result)
{
    int size = call->world->size;
    tutti__nccl_call_t *calls = calls_of((size_t)size);
    size_t ncalls = 0;

    for (int i = 0; i < size; i++) {
        size_t share = bench_share(call->count, size, i);
        size_t begin = bench_share_begin(call->count, size, i) * call->type->bytes;

        if (share > 0)
            calls[ncalls++] = (tutti__nccl_call_t){ TUTTI__NCCL_REDUCE,
                                                    (const char *)call->sendbuf + begin,
                                                    i == call->world->rank ? result : NULL,
                                                    share,
                                                    call->type->dtype,
                                                    TUTTI_SUM,
                                                    (uint32_t)i };
    }
    bench_nccl_queue(call->world, calls, ncalls);
}

/* In place, NCCL's result is at this rank's part, and Tutti's at the beginning of the buffer. So
   the result is copied there; the measured time includes the copy. */
int bench_nccl_reduce_scatter(const bench_call_t *call)
{
    const bench_world_t *world = call->world;
    const bench_device_t *device = world->device;
    size_t share = bench_share(call->count, world->size, world->rank);
    size_t begin = bench_share_begin(call->count, world->size, world->rank) * call->type->bytes;
    char *result = (char *)call->recvbuf + (call->in_place ? begin : 0);
    tutti__nccl_call_t nccl = { TUTTI__NCCL_REDUCE_SCATTER, call->sendbuf, result, share,
                                call->type->dtype,          TUTTI_SUM,     0 };

    if (call->count % (size_t)world->size == 0)
        bench_nccl_queue(world, &nccl, 1);
    else
        queue_uneven(call, result);
    if (result != call->recvbuf)
        bench_device_check(
            world,
            device->ops->copy(call->recvbuf, result, share * call->type->bytes, device->stream),
            "copy");
    bench_device_wait(world);
    return 0;
}

/* As in NCCL's manual: a group of messages to and from each rank, including this rank. */
int bench_nccl_alltoall(const bench_call_t *call)
{
    const bench_world_t *world = call->world;
    tutti__nccl_call_t *calls = calls_of(2 * (size_t)world->size);
    size_t bytes = call->count * call->type->bytes;

    for (uint32_t i = 0; i < (uint32_t)world->size; i++) {
        const char *src = (const char *)call->sendbuf + i * bytes;
        char *dst = (char *)call->recvbuf + i * bytes;
        tutti_dtype_t dtype = call->type->dtype;

        calls[2 * i] =
            (tutti__nccl_call_t){ TUTTI__NCCL_SEND, src, NULL, call->count, dtype, TUTTI_SUM, i };
        calls[2 * i + 1] =
            (tutti__nccl_call_t){ TUTTI__NCCL_RECV, NULL, dst, call->count, dtype, TUTTI_SUM, i };
    }
    bench_nccl_queue(world, calls, 2 * (size_t)world->size);
    bench_device_wait(world);
    return 0;
}

/* NCCL has no barrier. So, as in PyTorch's process group, the host waits for an allreduce of one
   element. */
int bench_nccl_barrier(const bench_call_t *call)
{
    void *one = call->world->device->one;
    tutti__nccl_call_t nccl = { TUTTI__NCCL_ALLREDUCE, one, one, 1, TUTTI_FLOAT32, TUTTI_SUM, 0 };

    bench_nccl_queue(call->world, &nccl, 1);
    bench_device_wait(call->world);
    return 0;
}
