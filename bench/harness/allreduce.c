/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce, sum.
 */
#include "harness/allreduce.h"

int bench_allreduce_direct(const bench_call_t *call)
{
    tutti_status_t status = tutti_allreduce(call->sendbuf, call->recvbuf, call->count,
                                            call->type->dtype, TUTTI_SUM, call->world->comm);

    return bench_check(call->world, status, "tutti_allreduce");
}

int bench_allreduce_async(const bench_call_t *call)
{
    tutti_request_t *request = NULL;
    tutti_status_t status =
        tutti_allreduce_async("bench", call->sendbuf, call->recvbuf, call->count, call->type->dtype,
                              TUTTI_SUM, call->world->comm, NULL, &request);

    return bench_check_wait(call->world, status, request, "tutti_allreduce_async");
}

int bench_allreduce_ordered(const bench_call_t *call)
{
    tutti_request_t *request = NULL;
    tutti_status_t status =
        tutti_allreduce_async(NULL, call->sendbuf, call->recvbuf, call->count, call->type->dtype,
                              TUTTI_SUM, call->world->comm, NULL, &request);

    return bench_check_wait(call->world, status, request, "tutti_allreduce_async");
}

/* With every algorithm, a rank sends and receives at least 2 (n-1)/n of the buffer. */
static double bus_factor(int ranks)
{
    return 2.0 * (ranks - 1) / ranks;
}

/* n inputs are read, n outputs written. */
static double traffic(int ranks, int in_place)
{
    (void)in_place;
    return 2.0 * ranks;
}

static size_t count_wrong(const bench_call_t *call)
{
    return bench_wrong_sum(call->recvbuf, call->type, 0, call->count, call->world->size);
}

const bench_collective_t bench_allreduce = {
    .send = BENCH_COUNT,
    .recv = BENCH_COUNT,
    .in_place = BENCH_SAME_BUFFER,
    .sums = 1,
    .same_everywhere = 1,
    .bus_factor = bus_factor,
    .traffic = traffic,
    .fill = bench_fill_send,
    .count_wrong = count_wrong,
};
