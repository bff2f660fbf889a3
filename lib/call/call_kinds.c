/* SPDX-License-Identifier: BSD-3-Clause */
/* The schedules and tags of each kind of call, and the signatures of calls. See call.h. */
#include "call/call.h"

#include <string.h>

const tutti__call_kind_t tutti__call_kinds[TUTTI_CALL_SENDRECV + 1] = {
    [TUTTI_CALL_ALLREDUCE] = { TUTTI__ALLREDUCE, TUTTI__TAG_ALLREDUCE },
    [TUTTI_CALL_REDUCE] = { TUTTI__ROOT_REDUCE, TUTTI__TAG_REDUCE },
    [TUTTI_CALL_BROADCAST] = { TUTTI__BROADCAST, TUTTI__TAG_BROADCAST },
    [TUTTI_CALL_REDUCE_SCATTER] = { TUTTI__REDUCE_SCATTER, TUTTI__TAG_REDUCE_SCATTER },
    [TUTTI_CALL_REDUCE_SCATTERV] = { TUTTI__REDUCE_SCATTER, TUTTI__TAG_REDUCE_SCATTER },
    [TUTTI_CALL_ALLGATHER] = { TUTTI__ALLGATHER, TUTTI__TAG_ALLGATHER },
    [TUTTI_CALL_ALLGATHERV] = { TUTTI__ALLGATHERV, TUTTI__TAG_ALLGATHERV },
    [TUTTI_CALL_GATHER] = { TUTTI__GATHER, TUTTI__TAG_GATHER },
    [TUTTI_CALL_GATHERV] = { TUTTI__GATHERV, TUTTI__TAG_GATHERV },
    [TUTTI_CALL_SCATTER] = { TUTTI__SCATTER, TUTTI__TAG_SCATTER },
    [TUTTI_CALL_SCATTERV] = { TUTTI__SCATTERV, TUTTI__TAG_SCATTERV },
    [TUTTI_CALL_ALLTOALL] = { TUTTI__ALLTOALL, TUTTI__TAG_ALLTOALL },
    [TUTTI_CALL_ALLTOALLV] = { TUTTI__ALLTOALLV, TUTTI__TAG_ALLTOALLV },
    [TUTTI_CALL_SCAN] = { TUTTI__SCAN, TUTTI__TAG_SCAN },
    [TUTTI_CALL_EXSCAN] = { TUTTI__EXSCAN, TUTTI__TAG_EXSCAN },
    [TUTTI_CALL_BARRIER] = { TUTTI__BARRIER, TUTTI__TAG_BARRIER },
    [TUTTI_CALL_SEND] = { TUTTI__COLLECTIVES, TUTTI__TAG_SENDRECV },
    [TUTTI_CALL_RECV] = { TUTTI__COLLECTIVES, TUTTI__TAG_SENDRECV },
    [TUTTI_CALL_SENDRECV] = { TUTTI__COLLECTIVES, TUTTI__TAG_SENDRECV },
};

/* ---- sizes ---- */

int tutti__call_has_arrays(const tutti__call_t *call, uint32_t rank)
{
    switch (call->kind) {
    case TUTTI_CALL_REDUCE_SCATTERV:
    case TUTTI_CALL_ALLGATHERV:
    case TUTTI_CALL_ALLTOALLV:
        return 1;
    case TUTTI_CALL_GATHERV:
    case TUTTI_CALL_SCATTERV:
        return call->root == rank;
    default:
        return 0;
    }
}

static size_t elements(const tutti__call_t *call, uint32_t rank, uint32_t size)
{
    const size_t *counts = NULL;
    size_t total = 0;

    switch (call->kind) {
    case TUTTI_CALL_REDUCE_SCATTER:
    case TUTTI_CALL_ALLGATHER:
    case TUTTI_CALL_GATHER:
    case TUTTI_CALL_SCATTER:
    case TUTTI_CALL_ALLTOALL:
        return call->count * size;
    case TUTTI_CALL_BARRIER:
        return 0;
    default:
        break;
    }
    if (tutti__call_has_arrays(call, rank))
        counts = call->recvcounts != NULL ? call->recvcounts : call->sendcounts;
    if (counts == NULL)
        return TUTTI__MAX(call->count, call->recvcount);
    for (uint32_t i = 0; i < size; i++)
        total += counts[i];
    return total;
}

size_t tutti__call_bytes(const tutti__call_t *call, uint32_t rank, uint32_t size)
{
    return elements(call, rank, size) * tutti_dtype_bytes(call->dtype);
}

/* ---- signatures ---- */

/* A step of splitmix64's finisher: a change of a bit spreads to all higher bits. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

static uint64_t mix_array(uint64_t hash, const size_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = mix(hash, words[i]);
    return hash;
}

uint32_t tutti__call_signature(const tutti__call_t *call, const tutti__exec_call_t *exec,
                               uint32_t size)
{
    uint64_t hash = mix(exec->tag, (uint64_t)exec->root << 32 | (uint64_t)exec->wire << 16 |
                                       (uint64_t)exec->op << 8 | (uint64_t)exec->dtype);

    /* If each rank has only its own counts, the counts are not part of the signature. */
    if (exec->in_table == NULL)
        hash = mix(hash, exec->count);
    if (exec->in_table == NULL && exec->table != NULL)
        hash = mix_array(hash, call->recvcounts, size);
    if (call->prescale != 1 || call->postscale != 1) {
        double scales[2] = { call->prescale, call->postscale };
        uint64_t bits[2];

        memcpy(bits, scales, sizeof(bits));
        hash = mix(mix(hash, bits[0]), bits[1]);
    }
    return (uint32_t)hash;
}

unsigned tutti__call_device_tag(const tutti__call_t *call)
{
    int is_common = tutti__call_collective(call->kind) != TUTTI__COLLECTIVES &&
                    !tutti__call_by_pair(call->kind);

    return call->on_device && is_common ? TUTTI__TAG_ON_DEVICE : 0;
}
