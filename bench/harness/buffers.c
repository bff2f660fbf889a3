/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The send and receive buffers.
 *
 * All calls use one pair of buffers. With --buffers rotate there is a pool larger than the caches,
 * and each call uses the next pair:
 *
 *      send  | pair 0 |page| pair 1 |page| pair 2 | ...
 *      recv  | pair 0 |page| pair 1 |page| pair 2 | ...
 *
 * All contestants use the same pool.
 *
 * With -d the buffers are in device memory. One pair has a mirror in host memory, where its data is
 * filled in and checked.
 */
#include "harness/device.h"

#include <stdlib.h>
#include <string.h>

enum {
    SEND,
    RECV,
    PAGE = 4096,
    LINE = 64
};

static const size_t pool_bytes = (size_t)256 << 20; /* of both regions together */

size_t bench_share(size_t count, int ranks, int rank)
{
    return count / (size_t)ranks + ((size_t)rank < count % (size_t)ranks);
}

size_t bench_share_begin(size_t count, int ranks, int rank)
{
    size_t more = count % (size_t)ranks;

    return count / (size_t)ranks * (size_t)rank + ((size_t)rank < more ? (size_t)rank : more);
}

size_t bench_extent(bench_extent_t extent, const bench_call_t *call)
{
    switch (extent) {
    case BENCH_COUNT:
        return call->count;
    case BENCH_ALL_RANKS:
        return call->count * (size_t)call->world->size;
    case BENCH_SHARE:
        return bench_share(call->count, call->world->size, call->world->rank);
    default:
        return 0;
    }
}

static bench_call_t empty_call(const bench_t *bench, size_t bytes)
{
    return (bench_call_t){
        .count = bytes / bench->options.type->bytes,
        .in_place = bench->options.in_place,
        .type = bench->options.type,
        .world = &bench->world,
    };
}

/* Bytes of each buffer at this size; in place, the single buffer has room for both. */
static void extents(const bench_t *bench, size_t bytes, size_t *ret_both)
{
    const bench_collective_t *collective = bench->program->collective;
    bench_call_t call = empty_call(bench, bytes);

    ret_both[SEND] = bench_extent(collective->send, &call) * call.type->bytes;
    ret_both[RECV] = bench_extent(collective->recv, &call) * call.type->bytes;
    if (call.in_place) {
        if (ret_both[SEND] > ret_both[RECV])
            ret_both[RECV] = ret_both[SEND];
        ret_both[SEND] = 0;
    }
}

/* The first address of a buffer at the present place of --align. Each further pair begins a stride
   behind the previous pair. */
static char *begin(const bench_t *bench, int which)
{
    const bench_align_t *align = &bench->options.aligns[bench->buffers.align];
    char *memory = bench->buffers.memory[which];

    if (memory == NULL)
        return NULL;
    return memory + (-(uintptr_t)memory & (align->bytes - 1)) + align->offset;
}

/* The extra bytes of a region, for a pair at any place of --align. Host memory begins at a page. */
static size_t align_room(const bench_t *bench)
{
    size_t most = 0;

    for (int i = 0; i < bench->options.naligns; i++) {
        const bench_align_t *align = &bench->options.aligns[i];
        size_t room = align->offset;

        if (align->bytes > PAGE || bench->world.device != NULL)
            room += align->bytes;
        most = room > most ? room : most;
    }
    return most;
}

/* The size of a region for the largest message. -M limits the pool, but not a single pair. */
static size_t region_bytes(const bench_t *bench, size_t extent)
{
    size_t bytes = 4 * extent;

    if (!bench->options.rotate)
        return extent;
    if (bytes < pool_bytes / 2)
        bytes = pool_bytes / 2;
    if (bytes > bench->options.memory_bytes)
        bytes = bench->options.memory_bytes;
    return bytes > extent ? bytes : extent;
}

static void *get_pages(const bench_t *bench, size_t bytes)
{
    void *memory = NULL;

    if (posix_memalign(&memory, PAGE, bytes) != 0) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", bench->world.rank, bytes);
        bench_stop(&bench->world);
    }
    memset(memory, 0, bytes); /* allocates the pages */
    return memory;
}

static void *get_region(const bench_t *bench, size_t bytes)
{
    void *memory = NULL;

    if (bench->world.device != NULL)
        return bench_device_alloc(&bench->world, bytes);
    if (!bench->options.shared)
        return get_pages(bench, bytes);
    if (tutti_mem_alloc(bench->world.comm, bytes, &memory) != TUTTI_OK)
        bench_die(&bench->world, "tutti_mem_alloc");
    memset(memory, 0, bytes);
    return memory;
}

void bench_buffers_open(bench_t *bench)
{
    bench_buffers_t *buffers = &bench->buffers;
    size_t largest[2];

    extents(bench, bench->options.max_bytes, largest);
    for (int i = SEND; i <= RECV; i++) {
        /* A share may be empty on some ranks. But all ranks must allocate, because tutti_mem_alloc
           is collective. So each rank allocates one element more. */
        if (i == RECV && bench->program->collective->recv == BENCH_SHARE)
            largest[i] += bench->options.type->bytes;
        if (largest[i] == 0)
            continue;
        buffers->bytes[i] = region_bytes(bench, largest[i]);
        buffers->memory[i] = get_region(bench, buffers->bytes[i] + align_room(bench));
        if (bench->world.device != NULL)
            buffers->mirror[i] = get_pages(bench, largest[i]);
    }
    buffers->pairs = 1;
}

void bench_buffers_close(bench_t *bench)
{
    for (int i = SEND; i <= RECV; i++) {
        void *memory = bench->buffers.memory[i];

        if (bench->world.device != NULL)
            bench_device_free(&bench->world, memory);
        else if (bench->options.shared)
            tutti_mem_free(bench->world.comm, memory);
        else
            free(memory);
        free(bench->buffers.mirror[i]);
    }
}

size_t bench_pairs(bench_t *bench, size_t bytes)
{
    bench_buffers_t *buffers = &bench->buffers;
    size_t now[2];
    size_t pairs = SIZE_MAX;
    double least;

    buffers->next = 0;
    buffers->pairs = 1;
    if (!bench->options.rotate)
        return 1;
    extents(bench, bytes, now);
    for (int i = SEND; i <= RECV; i++) {
        if (buffers->memory[i] == NULL)
            continue;
        /* Whole pages plus a line: with whole pages, all pairs would share a few cache sets. */
        buffers->stride[i] = (now[i] + PAGE - 1) / PAGE * PAGE + LINE;
        if (now[i] == 0)
            buffers->stride[i] = PAGE + LINE;
        if (pairs > (buffers->bytes[i] - now[i]) / buffers->stride[i] + 1)
            pairs = (buffers->bytes[i] - now[i]) / buffers->stride[i] + 1;
    }
    /* The shares of ranks differ, but all ranks must rotate through the same number of pairs. */
    least = pairs == SIZE_MAX ? -1.0 : -(double)pairs;
    bench_max(&bench->world, &least, 1);
    buffers->pairs = (size_t)-least;
    return buffers->pairs;
}

bench_call_t bench_next_call(bench_t *bench, size_t bytes)
{
    const bench_collective_t *collective = bench->program->collective;
    bench_buffers_t *buffers = &bench->buffers;
    bench_call_t call = empty_call(bench, bytes);
    char *send = begin(bench, SEND);
    char *recv = begin(bench, RECV);
    size_t part = bench_extent(collective->send, &call) * call.type->bytes;

    if (send != NULL)
        send += buffers->next * buffers->stride[SEND];
    if (recv != NULL)
        recv += buffers->next * buffers->stride[RECV];
    if (++buffers->next >= buffers->pairs)
        buffers->next = 0;
    if (send == NULL)
        send = recv;
    if (call.in_place && collective->in_place == BENCH_OWN_PART)
        send += part * (size_t)bench->world.rank;
    call.sendbuf = send;
    call.recvbuf = recv;
    return call;
}

bench_call_t bench_host_call(const bench_t *bench, const bench_call_t *call)
{
    void *const *mirror = bench->buffers.mirror;
    bench_call_t host = *call;

    if (bench->world.device == NULL)
        return host;
    host.recvbuf = mirror[RECV];
    host.sendbuf = mirror[SEND];
    if (host.sendbuf == NULL) /* one buffer: at the same offset in the mirror */
        host.sendbuf = (char *)mirror[RECV] + ((const char *)call->sendbuf - (char *)call->recvbuf);
    return host;
}

void bench_push(const bench_t *bench, const bench_call_t *call, const bench_call_t *host)
{
    size_t bytes[2];

    if (bench->world.device == NULL)
        return;
    extents(bench, call->count * call->type->bytes, bytes);
    if (bench->buffers.memory[SEND] != NULL)
        bench_device_copy(&bench->world, (void *)(uintptr_t)call->sendbuf, host->sendbuf,
                          bytes[SEND]);
    bench_device_copy(&bench->world, call->recvbuf, host->recvbuf, bytes[RECV]);
}

void bench_pull(const bench_t *bench, const bench_call_t *call, const bench_call_t *host)
{
    size_t bytes[2];

    if (bench->world.device == NULL)
        return;
    extents(bench, call->count * call->type->bytes, bytes);
    bench_device_copy(&bench->world, host->recvbuf, call->recvbuf, bytes[RECV]);
}

static const char *kind(const bench_t *bench)
{
    if (bench->world.device != NULL)
        return bench->world.device->ops->name;
    return bench->options.shared ? "shared" : "private";
}

void bench_buffers_describe(const bench_t *bench, char *text, size_t bytes)
{
    const bench_options_t *options = &bench->options;

    snprintf(text, bytes, "%s%s, %s%s%s", kind(bench), options->rotate ? " and rotating" : "",
             options->in_place ? "in place" : "out of place",
             options->align_text != NULL ? ", at " : "",
             options->align_text != NULL ? options->align_text : "");
}
