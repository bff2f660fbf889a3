/* SPDX-License-Identifier: BSD-3-Clause */
#include "sched/step.h"

#include <stddef.h>

const char *tutti__tag_name(unsigned tag)
{
    static const char *const names[] = {
        [TUTTI__TAG_ALLREDUCE] = "an allreduce",
        [TUTTI__TAG_REDUCE] = "a reduce",
        [TUTTI__TAG_BROADCAST] = "a broadcast",
        [TUTTI__TAG_REDUCE_SCATTER] = "a reduce_scatter",
        [TUTTI__TAG_ALLGATHER] = "an allgather",
        [TUTTI__TAG_ALLGATHERV] = "an allgatherv",
        [TUTTI__TAG_GATHER] = "a gather",
        [TUTTI__TAG_GATHERV] = "a gatherv",
        [TUTTI__TAG_SCATTER] = "a scatter",
        [TUTTI__TAG_SCATTERV] = "a scatterv",
        [TUTTI__TAG_ALLTOALL] = "an alltoall",
        [TUTTI__TAG_ALLTOALLV] = "an alltoallv",
        [TUTTI__TAG_SCAN] = "a scan",
        [TUTTI__TAG_EXSCAN] = "an exscan",
        [TUTTI__TAG_BARRIER] = "a barrier",
        [TUTTI__TAG_SENDRECV] = "a message between two ranks",
        [TUTTI__TAG_MEM_ALLOC] = "a tutti_mem_alloc",
        [TUTTI__TAG_COUNTS] = "the counts of a v collective",
        [TUTTI__TAG_SPLIT] = "a tutti_comm_split",
        [TUTTI__TAG_BUCKET] = "a bucket",
    };

    tag &= ~TUTTI__TAG_ON_DEVICE;
    return tag < sizeof(names) / sizeof(names[0]) ? names[tag] : NULL;
}
