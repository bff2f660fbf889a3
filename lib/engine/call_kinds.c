/* SPDX-License-Identifier: BSD-3-Clause */
/* What there is to know about each kind of call, and the signatures of calls. See call.h. */
#include "engine/call.h"

#include <string.h>

const tutti__call_kind_t tutti__call_kinds[TUTTI_CALL_SENDRECV + 1] = {
    [TUTTI_CALL_ALLREDUCE] = { "an allreduce", TUTTI__ALLREDUCE, TUTTI__TAG_ALLREDUCE, 1 },
    [TUTTI_CALL_REDUCE] = { "a reduce", TUTTI__ROOT_REDUCE, TUTTI__TAG_REDUCE, 1 },
    [TUTTI_CALL_BROADCAST] = { "a broadcast", TUTTI__BROADCAST, TUTTI__TAG_BROADCAST, 0 },
    [TUTTI_CALL_REDUCE_SCATTER] = { "a reduce_scatter", TUTTI__REDUCE_SCATTER,
                                    TUTTI__TAG_REDUCE_SCATTER, 1 },
    [TUTTI_CALL_REDUCE_SCATTERV] = { "a reduce_scatterv", TUTTI__REDUCE_SCATTER,
                                     TUTTI__TAG_REDUCE_SCATTER, 1 },
    [TUTTI_CALL_ALLGATHER] = { "an allgather", TUTTI__ALLGATHER, TUTTI__TAG_ALLGATHER, 0 },
    [TUTTI_CALL_ALLGATHERV] = { "an allgatherv", TUTTI__ALLGATHERV, TUTTI__TAG_ALLGATHERV, 0 },
    [TUTTI_CALL_GATHER] = { "a gather", TUTTI__GATHER, TUTTI__TAG_GATHER, 0 },
    [TUTTI_CALL_GATHERV] = { "a gatherv", TUTTI__GATHERV, TUTTI__TAG_GATHERV, 0 },
    [TUTTI_CALL_SCATTER] = { "a scatter", TUTTI__SCATTER, TUTTI__TAG_SCATTER, 0 },
    [TUTTI_CALL_SCATTERV] = { "a scatterv", TUTTI__SCATTERV, TUTTI__TAG_SCATTERV, 0 },
    [TUTTI_CALL_ALLTOALL] = { "an alltoall", TUTTI__ALLTOALL, TUTTI__TAG_ALLTOALL, 0 },
    [TUTTI_CALL_ALLTOALLV] = { "an alltoallv", TUTTI__ALLTOALLV, TUTTI__TAG_ALLTOALLV, 0 },
    [TUTTI_CALL_SCAN] = { "a scan", TUTTI__SCAN, TUTTI__TAG_SCAN, 1 },
    [TUTTI_CALL_EXSCAN] = { "an exscan", TUTTI__EXSCAN, TUTTI__TAG_EXSCAN, 1 },
    [TUTTI_CALL_BARRIER] = { "a barrier", TUTTI__BARRIER, TUTTI__TAG_BARRIER, 0 },
    [TUTTI_CALL_SEND] = { "a send", TUTTI__COLLECTIVES, TUTTI__TAG_SENDRECV, 0 },
    [TUTTI_CALL_RECV] = { "a receive", TUTTI__COLLECTIVES, TUTTI__TAG_SENDRECV, 0 },
    [TUTTI_CALL_SENDRECV] = { "a sendrecv", TUTTI__COLLECTIVES, TUTTI__TAG_SENDRECV, 0 },
};

tutti__collective_t tutti__call_collective(tutti_call_kind_t kind)
{
    return tutti__call_kinds[kind].collective;
}

int tutti__call_reduces(tutti_call_kind_t kind)
{
    return tutti__call_kinds[kind].reduces;
}

int tutti__call_by_pair(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_GATHERV || kind == TUTTI_CALL_SCATTERV ||
           kind == TUTTI_CALL_ALLTOALLV;
}

const char *tutti__call_name(tutti_call_kind_t kind)
{
    return kind > 0 && kind <= TUTTI_CALL_SENDRECV ? tutti__call_kinds[kind].name : "no call";
}

/* ---- signatures ---- */

/* A step of splitmix64's finisher: changes of any bit reach all upper ones. */
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
    uint64_t hash = mix(exec->tag, (uint64_t)exec->root << 32 | (uint64_t)exec->op << 8 |
                                       (uint64_t)exec->dtype);

    /* Whoever knows his own counts only cannot sign for the others'. */
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
