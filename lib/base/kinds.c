/* SPDX-License-Identifier: BSD-3-Clause */
/* See kinds.h. */
#include "base/kinds.h"

const tutti__kind_t tutti__kinds[TUTTI_CALL_SENDRECV + 1] = {
    [TUTTI_CALL_ALLREDUCE] = { "an allreduce", 1 },
    [TUTTI_CALL_REDUCE] = { "a reduce", 1 },
    [TUTTI_CALL_BROADCAST] = { "a broadcast", 0 },
    [TUTTI_CALL_REDUCE_SCATTER] = { "a reduce_scatter", 1 },
    [TUTTI_CALL_REDUCE_SCATTERV] = { "a reduce_scatterv", 1 },
    [TUTTI_CALL_ALLGATHER] = { "an allgather", 0 },
    [TUTTI_CALL_ALLGATHERV] = { "an allgatherv", 0 },
    [TUTTI_CALL_GATHER] = { "a gather", 0 },
    [TUTTI_CALL_GATHERV] = { "a gatherv", 0 },
    [TUTTI_CALL_SCATTER] = { "a scatter", 0 },
    [TUTTI_CALL_SCATTERV] = { "a scatterv", 0 },
    [TUTTI_CALL_ALLTOALL] = { "an alltoall", 0 },
    [TUTTI_CALL_ALLTOALLV] = { "an alltoallv", 0 },
    [TUTTI_CALL_SCAN] = { "a scan", 1 },
    [TUTTI_CALL_EXSCAN] = { "an exscan", 1 },
    [TUTTI_CALL_BARRIER] = { "a barrier", 0 },
    [TUTTI_CALL_SEND] = { "a send", 0 },
    [TUTTI_CALL_RECV] = { "a receive", 0 },
    [TUTTI_CALL_SENDRECV] = { "a sendrecv", 0 },
};
