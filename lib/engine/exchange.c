/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives whose ranks do not know each other's counts: gatherv, scatterv, alltoallv, and
 * allgatherv without recvcounts.
 *
 * Before any data moves, all ranks sum one array, in which each rank has written the counts that it
 * knows. So each rank can compare every pair, and all ranks come to the same result:
 *
 *   counts differ           MISMATCH on all ranks; nothing was moved
 *   counts are equal        the data follows in the same lane at once
 *   a rank has no buffer,   the bucket ends here. Each rank announces the tensor again, as phase 1,
 *   because it did not      when it has a buffer; so no lane waits for a user
 *   know the size
 *
 * The array, with n ranks:
 *   gatherv, scatterv   [n] given counts, by rank; [n] expected counts
 *   allgatherv          [n] given; [n] expected, summed over the ranks that know; [1] their number
 *   alltoallv           [n][n] rank r gives to s; [n][n] r expects from s; [n] does r know that?
 */
#include "engine/state.h"

#include "base/names.h"

#include <string.h>

static size_t entries(tutti_call_kind_t kind, size_t n)
{
    switch (kind) {
    case TUTTI_CALL_ALLTOALLV:
        return 2 * n * n + n;
    case TUTTI_CALL_ALLGATHERV:
        return 2 * n + 1;
    default:
        return 2 * n;
    }
}

static void put(uint64_t *to, const size_t *counts, size_t n)
{
    for (size_t i = 0; counts != NULL && i < n; i++)
        to[i] = counts[i];
}

/* Write the counts that this rank knows. */
static void put_mine(const tutti__request_t *r, uint32_t rank, size_t n, uint64_t *array)
{
    const tutti__call_t *call = &r->call;

    memset(array, 0, entries(call->kind, n) * sizeof(*array));
    if (r->is_zero)
        return;
    switch (call->kind) {
    case TUTTI_CALL_GATHERV:
        array[rank] = call->count;
        put(array + n, call->recvcounts, n);
        break;
    case TUTTI_CALL_SCATTERV:
        put(array, call->sendcounts, n);
        array[n + rank] = call->count;
        break;
    case TUTTI_CALL_ALLGATHERV:
        array[rank] = call->count;
        put(array + n, call->recvcounts, n);
        array[2 * n] = !r->counts_later;
        break;
    default:
        put(array + rank * n, call->sendcounts, n);
        put(array + n * n + rank * n, call->recvcounts, n);
        array[2 * n * n + rank] = !r->counts_later;
        break;
    }
}

tutti_status_t tutti__exchange_call(tutti__engine_t *e, tutti__lane_t *lane,
                                    tutti__call_t *ret_call)
{
    const tutti__request_t *r = lane->first->first;
    size_t n = entries(r->call.kind, e->size);
    tutti_status_t status = tutti__fuse_memory(e, lane, n * sizeof(uint64_t));

    if (status != TUTTI_OK)
        return status;
    put_mine(r, e->rank, e->size, (uint64_t *)(void *)lane->fuse);
    *ret_call = (tutti__call_t){
        .kind = TUTTI_CALL_ALLREDUCE,
        .dtype = TUTTI_UINT64,
        .op = TUTTI_SUM,
        .sendbuf = lane->fuse,
        .recvbuf = lane->fuse,
        .count = n,
        .prescale = 1,
        .postscale = 1,
    };
    return TUTTI_OK;
}

/* ---- evaluation ---- */

typedef struct {
    uint32_t from, to;
    uint64_t given, expected;
} pair_t;

/* Compare one count per rank; the expected counts are sums over `times` ranks. */
static int one_each(const uint64_t *array, size_t n, uint64_t times, pair_t *ret_pair)
{
    for (uint32_t r = 0; r < n; r++) {
        if (array[r] * times == array[n + r])
            continue;
        *ret_pair = (pair_t){ r, r, array[r], times > 0 ? array[n + r] / times : 0 };
        return 0;
    }
    return 1;
}

static int all_pairs(const uint64_t *array, size_t n, pair_t *ret_pair)
{
    const uint64_t *gives = array, *expects = array + n * n, *knows = array + 2 * n * n;

    for (uint32_t to = 0; to < n; to++) {
        for (uint32_t from = 0; knows[to] && from < n; from++) {
            if (gives[from * n + to] == expects[to * n + from])
                continue;
            *ret_pair = (pair_t){ from, to, gives[from * n + to], expects[to * n + from] };
            return 0;
        }
    }
    return 1;
}

/* Are the counts of all pairs equal? */
static int fits(const tutti__call_t *call, const uint64_t *array, size_t n, pair_t *ret_pair)
{
    int fit;

    switch (call->kind) {
    case TUTTI_CALL_ALLTOALLV:
        return all_pairs(array, n, ret_pair);
    case TUTTI_CALL_ALLGATHERV:
        return one_each(array, n, array[2 * n], ret_pair);
    default:
        fit = one_each(array, n, 1, ret_pair);
        if (call->kind == TUTTI_CALL_GATHERV)
            ret_pair->to = call->root;
        else
            ret_pair->from = call->root;
        return fit;
    }
}

/* Does every rank know its receive counts? */
static int all_know(tutti_call_kind_t kind, const uint64_t *array, size_t n)
{
    if (kind == TUTTI_CALL_ALLGATHERV)
        return array[2 * n] == n;
    for (size_t r = 0; kind == TUTTI_CALL_ALLTOALLV && r < n; r++)
        if (array[2 * n * n + r] == 0)
            return 0;
    return 1;
}

static void mismatch(char *text, size_t bytes, const tutti__request_t *r, const pair_t *pair)
{
    const char *name = tutti__call_name(r->call.kind);
    unsigned long long given = pair->given, expected = pair->expected;

    if (r->call.kind == TUTTI_CALL_ALLGATHERV)
        snprintf(text, bytes,
                 "tensor '%.200s': in %s rank %u gives %llu elements, others expect "
                 "%llu",
                 r->name, name, pair->from, given, expected);
    else
        snprintf(text, bytes,
                 "tensor '%.200s': in %s rank %u has %llu elements for rank %u, which "
                 "expects %llu",
                 r->name, name, pair->from, given, pair->to, expected);
}

/* Keep the counts that each rank gives to this rank. */
static void keep(tutti__request_t *r, const uint64_t *array, uint32_t rank, size_t n)
{
    /* The third of the request's four arrays. */
    size_t *counts = r->arrays + 2 * n;

    for (size_t s = 0; s < n; s++)
        counts[s] =
            (size_t)(r->call.kind == TUTTI_CALL_ALLGATHERV ? array[s] : array[s * n + rank]);
    r->call.recvcounts = counts;
}

/* The tensor is announced again when it has a buffer. */
static void next_phase(tutti__engine_t *e, tutti__request_t *r, const uint64_t *array)
{
    if (r->counts_later)
        keep(r, array, e->rank, e->size);
    r->agreed = 0;
    r->phase = 1;
    if (r->is_zero) {
        r->next = e->zeros;
        e->zeros = r;
        return;
    }
    tutti__mutex_lock(&e->queue_lock);
    if (r->counts_later) {
        tutti__store_release(&r->counted, 1);
    } else {
        tutti__store_release(&r->counted, 2);
        tutti__request_queue(e, r);
    }
    tutti__mutex_unlock(&e->queue_lock);
    tutti__request_wake(e);
}

tutti_status_t tutti__exchange_done(tutti__engine_t *e, const tutti__lane_t *lane, char *text,
                                    size_t bytes)
{
    const uint64_t *array = (const uint64_t *)(const void *)lane->fuse;
    tutti__request_t *r = lane->first->first;
    pair_t pair;

    if (!fits(&r->call, array, e->size, &pair)) {
        mismatch(text, bytes, r, &pair);
        return TUTTI_ERR_MISMATCH;
    }
    if (all_know(r->call.kind, array, e->size))
        return TUTTI_OK;
    next_phase(e, r, array);
    return TUTTI__AGAIN;
}
