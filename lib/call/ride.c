/* SPDX-License-Identifier: BSD-3-Clause */
/* Data in the comparison of calls. See ride.h. */
#include "call/ride.h"

#include "base/constants.h"
#include "base/log.h"
#include "call/call_inside.h"
#include "coll/cost.h"
#include "coll/override.h"
#include "reduce/reduce.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NOT_AT_ALL SIZE_MAX

void tutti__ride_free(tutti__ride_t *ride)
{
    free(ride->memory);
    memset(ride, 0, sizeof(*ride));
}

/* ---- which calls ride ---- */

static size_t call_bytes(const tutti__call_t *call)
{
    return call->kind == TUTTI_CALL_BARRIER ? 0 : call->count * tutti_dtype_bytes(call->dtype);
}

static size_t most_bytes(size_t slot_bytes)
{
    return TUTTI__MIN((size_t)TUTTI__RIDE_BYTES, slot_bytes) - sizeof(tutti__frame_t);
}

/* The bytes that a call of this kind needs in a frame. one: the bytes of call->count elements, at
   most TUTTI__RIDE_BYTES, so the product does not overflow. */
static size_t bytes_of(tutti_call_kind_t kind, size_t one, size_t size)
{
    switch (kind) {
    case TUTTI_CALL_ALLREDUCE:
    case TUTTI_CALL_REDUCE:
    case TUTTI_CALL_BROADCAST:
        return one;
    case TUTTI_CALL_BARRIER:
        return 0;
    case TUTTI_CALL_REDUCE_SCATTER:
    case TUTTI_CALL_ALLGATHER:
    case TUTTI_CALL_GATHER:
    case TUTTI_CALL_SCATTER:
        return one * size;
    case TUTTI_CALL_ALLTOALL:
        return one * size * size;
    default:
        return NOT_AT_ALL;
    }
}

/* Has each host at most two ranks, so that the sum over a host is one addition? */
static int adds_once(const tutti__shape_t *shape)
{
    for (uint32_t h = 0; h < shape->nhosts; h++)
        if (shape->host_first[h + 1] - shape->host_first[h] > 2)
            return 0;
    return 1;
}

/* May the result's bits depend on the grouping of operands? For a user's operation this is unknown,
   so the answer is 1. */
static int may_round(const tutti__call_t *call)
{
    int adds = call->op == TUTTI_SUM || call->op == TUTTI_AVG || call->op == TUTTI_PROD;

    return call->op > TUTTI_MAXLOC || (adds && tutti__reduce_scales(call->dtype));
}

/*
 * Does the result have the same bits as a call that runs after an empty frame? If the association
 * is not fixed, different bits are allowed, and the answer is 1.
 *
 * An allreduce has the same tree as the frame; the other reductions have other trees. But inside a
 * host, the frame adds the operands one after the other, and rounds each time. A node operation
 * adds narrow floats in float32 and rounds once, or it adds groups of ranks first
 * (node/shm/levels.c). So an allreduce has equal bits if no host has more than two ranks, or if the
 * operation does not round.
 */
static int keeps_bits(const tutti__ride_t *ride, const tutti__call_env_t *env,
                      const tutti__call_t *call)
{
    if (!tutti__call_reduces(call->kind) || env->cache->association == TUTTI__ANY_ASSOCIATION)
        return 1;
    return call->kind == TUTTI_CALL_ALLREDUCE && (ride->adds_once || !may_round(call));
}

/*
 * The bytes of the call's data in a frame; NOT_AT_ALL: the call does not ride. Ranks with equal
 * calls get the same number. These calls do not ride: calls on device memory, with factors, or with
 * a wire format; operations that do not commute, because the ranks of a host need not be
 * consecutive; collectives that TUTTI_ALGORITHM names; calls for which keeps_bits returns 0.
 */
static size_t ride_bytes(const tutti__ride_t *ride, const tutti__call_env_t *env,
                         const tutti__call_t *call)
{
    tutti__collective_t collective = tutti__call_collective(call->kind);
    int has_limit = collective < TUTTI__COLLECTIVES;
    size_t most = has_limit ? ride->most[collective] : 0, bytes;

    if (call->on_device || call->wire != 0 || call->count > most || call->prescale != 1 ||
        call->postscale != 1 || (has_limit && ride->is_forced[collective]))
        return NOT_AT_ALL;
    if (tutti__call_keeps_order(call) || !keeps_bits(ride, env, call))
        return NOT_AT_ALL;
    if (call_bytes(call) > most)
        return NOT_AT_ALL;
    bytes = bytes_of(call->kind, call_bytes(call), env->exec->size);
    return bytes <= most ? bytes : NOT_AT_ALL;
}

/* ---- packing ---- */

/* Put this rank's part at its place, and zeros at all other places. */
static void put_part(char *data, size_t bytes, const void *part, size_t begin, size_t length)
{
    memset(data, 0, bytes);
    if (length > 0)
        memcpy(data + begin, part, length);
}

static void pack(char *data, size_t bytes, const tutti__call_t *call, uint32_t rank, uint32_t size)
{
    size_t one = call_bytes(call);

    switch (call->kind) {
    case TUTTI_CALL_BROADCAST:
        put_part(data, bytes, call->recvbuf, 0, rank == call->root ? bytes : 0);
        return;
    case TUTTI_CALL_SCATTER:
        put_part(data, bytes, call->sendbuf, 0, rank == call->root ? bytes : 0);
        return;
    case TUTTI_CALL_ALLGATHER:
    case TUTTI_CALL_GATHER:
        put_part(data, bytes, call->sendbuf, one * rank, one);
        return;
    case TUTTI_CALL_ALLTOALL: /* a row for each sender */
        put_part(data, bytes, call->sendbuf, one * size * rank, one * size);
        return;
    default:
        memcpy(data, call->sendbuf, bytes);
        return;
    }
}

static void unpack(const tutti__call_t *call, const char *data, size_t bytes, uint32_t rank,
                   uint32_t size)
{
    size_t one = call_bytes(call);
    char *out = call->recvbuf;

    switch (call->kind) {
    case TUTTI_CALL_REDUCE:
    case TUTTI_CALL_GATHER:
        if (rank == call->root)
            memcpy(out, data, bytes);
        return;
    case TUTTI_CALL_BROADCAST:
        if (rank != call->root)
            memcpy(out, data, bytes);
        return;
    case TUTTI_CALL_SCATTER:
    case TUTTI_CALL_REDUCE_SCATTER:
        memcpy(out, data + one * rank, one);
        return;
    case TUTTI_CALL_ALLTOALL:
        for (uint32_t s = 0; s < size; s++)
            memcpy(out + one * s, data + one * (size * s + rank), one);
        return;
    default:
        memcpy(out, data, bytes);
        return;
    }
}

/* ---- the run ---- */

static tutti_status_t set_limits(tutti__ride_t *ride, const tutti__cache_t *cache, size_t most)
{
    tutti__override_t forced;
    tutti_status_t status = tutti__override_parse(cache->override, &forced);

    for (int i = 0; i < TUTTI__COLLECTIVES && status == TUTTI_OK; i++) {
        tutti__collective_t c = (tutti__collective_t)i;

        ride->is_forced[c] = (uint8_t)tutti__override_names(&forced, c);
        ride->most[c] = tutti__cost_ride_bytes(c, cache->shape, cache->association, most);
    }
    return status;
}

/* Allocate the frame so that its data begin at a cache line. */
static tutti_status_t get_frame(tutti__ride_t *ride, const tutti__call_env_t *env,
                                size_t slot_bytes)
{
    size_t most = most_bytes(slot_bytes) + sizeof(tutti__frame_t);
    const tutti__cache_t *cache = env->cache;
    tutti_status_t status;

    if (ride->memory != NULL)
        return TUTTI_OK;
    status = set_limits(ride, cache, most_bytes(slot_bytes));
    if (status != TUTTI_OK)
        return status;
    ride->memory = aligned_alloc(TUTTI__LINE_BYTES,
                                 TUTTI__ROUND_UP(most, TUTTI__LINE_BYTES) + TUTTI__LINE_BYTES);
    if (ride->memory == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes for small calls", most);
    ride->frame = (tutti__frame_t *)(void *)(ride->memory + TUTTI__LINE_BYTES) - 1;
    ride->adds_once = adds_once(cache->shape);
    TUTTI__LOG(env->exec->rank == 0 ? TUTTI__LOG_INFO : TUTTI__LOG_DEBUG,
               "direct calls between hosts are compared by allreduce:leaders, which also carries "
               "the data of small calls: of an allreduce, up to %zu bytes",
               ride->most[TUTTI__ALLREDUCE]);
    return TUTTI_OK;
}

tutti_status_t tutti__ride_start(tutti__ride_t *ride, const tutti__call_env_t *env,
                                 tutti__run_t *run, uint64_t identity, const tutti__call_t *call,
                                 int *ret_common)
{
    const tutti__exec_env_t *exec = env->exec;
    /* At most TUTTI_CHUNK_BYTES, so that neither the choice nor the result's bits depend on the
       transport. */
    size_t slot_bytes = TUTTI__MIN(tutti__run_slot_bytes(run), exec->slot_bytes);
    tutti_status_t status = get_frame(ride, env, slot_bytes);
    size_t bytes = NOT_AT_ALL;

    if (status != TUTTI_OK)
        return status;
    assert(ride->memory != NULL && run->sched == NULL);
    if (call != NULL)
        bytes = ride_bytes(ride, env, call);
    ride->call = bytes != NOT_AT_ALL ? call : NULL;
    *ride->frame = (tutti__frame_t){ .identity = identity };
    if (ride->call == NULL)
        return tutti__own_start_frame(env, run, ride->frame, TUTTI_UINT8, TUTTI_BOR, ret_common);
    ride->frame->bytes = (uint32_t)bytes;
    if (bytes > 0)
        pack((char *)(ride->frame + 1), bytes, call, exec->rank, exec->size);
    if (bytes == 0 || !tutti__call_reduces(call->kind))
        return tutti__own_start_frame(env, run, ride->frame, TUTTI_UINT8, TUTTI_BOR, ret_common);
    return tutti__own_start_frame(env, run, ride->frame, call->dtype, call->op, ret_common);
}

int tutti__ride_end(const tutti__ride_t *ride, uint32_t rank, uint32_t size)
{
    if (ride->call != NULL && ride->frame->bytes > 0)
        unpack(ride->call, (const char *)(ride->frame + 1), ride->frame->bytes, rank, size);
    return ride->call != NULL;
}
