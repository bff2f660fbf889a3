/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fills the buffers of calls. Checks whether results are right, and whether all ranks have the same
 * bits.
 */
#include "harness/bench.h"

#include <string.h>

void bench_fill_send(const bench_call_t *call, bench_put_t put)
{
    put((void *)(uintptr_t)call->sendbuf, call->type, 0, call->count, call->world->rank);
}

static void run(const bench_t *bench, int who, const bench_call_t *call)
{
    if (bench->contestants[who]->run(call) == 0)
        return;
    fprintf(stderr, "rank %d: %s failed with %zu elements\n", bench->world.rank, bench->names[who],
            call->count);
    bench_stop(&bench->world);
}

static size_t result_bytes(const bench_t *bench, const bench_call_t *call)
{
    return bench_extent(bench->program->collective->recv, call) * call->type->bytes;
}

/* --spoil: damage a result, as an error of the collective would. Rank 0 is the root. */
static void spoil(const bench_t *bench, const bench_call_t *call)
{
    size_t bytes = result_bytes(bench, call);

    if (bench->options.spoil && bench->world.rank == 0 && bytes > 0)
        ((unsigned char *)call->recvbuf)[bytes - 1] ^= 0x40;
}

/* Makes a call once. Returns the call on host memory, whose buffers have the results. */
static bench_call_t call_once(bench_t *bench, int who, size_t bytes, bench_put_t put)
{
    bench_call_t call, host;

    bench->buffers.align = bench->align[who];
    call = bench_next_call(bench, bytes);
    host = bench_host_call(bench, &call);
    memset(host.recvbuf, 0xa5, result_bytes(bench, &host));
    bench->program->collective->fill(&host, put);
    bench_push(bench, &call, &host);
    bench_barrier(&bench->world);
    run(bench, who, &call);
    bench_pull(bench, &call, &host);
    spoil(bench, &host);
    return host;
}

int bench_result_right(bench_t *bench, int who, size_t bytes)
{
    bench_call_t call = call_once(bench, who, bytes, bench_fill);
    size_t wrong = bench->program->collective->count_wrong(&call);
    double all = (double)wrong;

    if (wrong > 0)
        fprintf(stderr, "rank %d: %s: %zu elements are wrong\n", bench->world.rank,
                bench->names[who], wrong);
    bench_sum(&bench->world, &all, 1);
    return all == 0.0;
}

int bench_result_same(bench_t *bench, int who, size_t bytes)
{
    bench_call_t call;

    if (!bench->program->collective->same_everywhere)
        return -1;
    call = call_once(bench, who, bytes, bench_fill_rough);
    return bench_agree(&bench->world, bench_hash(call.recvbuf, result_bytes(bench, &call)));
}
