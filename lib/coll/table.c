/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of algorithms and their purposes. Costs and sources are in the head comments of the
 * algorithms' files, and side by side in docs/algorithms.md.
 */
#include "coll/algorithms.h"

#include <string.h>

#define ONE_HOST "one operation in the shared memory of one host"

/* Columns: name, collective, purpose, fixed association, ordered, radix, subs, refuses, build. */
const tutti__algorithm_t tutti__algorithms[] = {
    { "node", TUTTI__ALLREDUCE, ONE_HOST, 1, 1, 0, NULL, tutti__coll_node_refuses,
      tutti__coll_node_allreduce },
    { "hierarchical", TUTTI__ALLREDUCE, "inside the hosts, between them, inside again", 1, 0, 0,
      tutti__coll_between_names, NULL, tutti__coll_allreduce_hierarchical },
    { "three_level", TUTTI__ALLREDUCE, "core groups, hosts, between hosts, all by messages", 1, 0,
      0, tutti__coll_between_names, NULL, tutti__coll_allreduce_three_level },
    { "recursive_doubling", TUTTI__ALLREDUCE, "between all ranks, fewest steps", 1, 1, 0, NULL,
      NULL, tutti__coll_allreduce_recursive_doubling },
    { "halving_doubling", TUTTI__ALLREDUCE, "few steps and few bytes", 1, 1, 0, NULL, NULL,
      tutti__coll_allreduce_halving_doubling },
    { "ring", TUTTI__ALLREDUCE, "between all ranks, fewest bytes", 0, 0, 0, NULL, NULL,
      tutti__coll_allreduce_ring },
    { "binomial", TUTTI__ALLREDUCE, "a tree up and down, fewest messages", 1, 1, 0, NULL, NULL,
      tutti__coll_allreduce_binomial },
    { "double_tree", TUTTI__ALLREDUCE, "two trees with half of the buffer each", 0, 0, 0, NULL,
      NULL, tutti__coll_allreduce_double_tree },
    { "knomial", TUTTI__ALLREDUCE, "recursive doubling with groups of several", 1, 1, 4, NULL, NULL,
      tutti__coll_allreduce_knomial },
    { "leaders", TUTTI__ALLREDUCE, "one rank per host works for all, few messages", 1, 0, 0, NULL,
      NULL, tutti__coll_allreduce_leaders },
    { "direct", TUTTI__ALLREDUCE, "each with each, one step", 1, 1, 0, NULL, NULL,
      tutti__coll_allreduce_direct },
    { "direct_scatter", TUTTI__ALLREDUCE, "each with each, two steps, fewest bytes", 1, 1, 0, NULL,
      NULL, tutti__coll_allreduce_direct_scatter },
    { "nccl-flat", TUTTI__ALLREDUCE, "device memory: one NCCL among all ranks of all hosts", 0, 0,
      0, NULL, tutti__coll_nccl_flat_refuses, tutti__coll_allreduce_nccl_flat },

    { "node", TUTTI__ROOT_REDUCE, ONE_HOST, 1, 1, 0, NULL, tutti__coll_node_refuses,
      tutti__coll_node_reduce },
    { "binomial", TUTTI__ROOT_REDUCE, "a tree of all ranks", 1, 1, 0, NULL, NULL,
      tutti__coll_reduce_binomial },
    { "scatter_gather", TUTTI__ROOT_REDUCE, "few steps and few bytes", 1, 1, 0, NULL, NULL,
      tutti__coll_reduce_scatter_gather },
    { "chain", TUTTI__ROOT_REDUCE, "pipelined, each byte once", 1, 1, 0, NULL, NULL,
      tutti__coll_reduce_chain },

    { "node", TUTTI__BROADCAST, ONE_HOST, 1, 1, 0, NULL, tutti__coll_node_refuses,
      tutti__coll_node_broadcast },
    { "binomial", TUTTI__BROADCAST, "a tree of all ranks", 1, 1, 0, NULL, NULL,
      tutti__coll_broadcast_binomial },
    { "scatter_allgather", TUTTI__BROADCAST, "few steps and few bytes", 1, 1, 0, NULL, NULL,
      tutti__coll_broadcast_scatter_allgather },
    { "chain", TUTTI__BROADCAST, "pipelined, each byte once", 1, 1, 0, NULL, NULL,
      tutti__coll_broadcast_chain },

    { "node", TUTTI__REDUCE_SCATTER, ONE_HOST, 1, 1, 0, NULL, tutti__coll_node_refuses,
      tutti__coll_node_reduce_scatter },
    { "halving", TUTTI__REDUCE_SCATTER, "between all ranks, fewest steps", 1, 1, 0, NULL, NULL,
      tutti__coll_reduce_scatter_halving },
    { "ring", TUTTI__REDUCE_SCATTER, "between neighbours, fewest bytes", 0, 0, 0, NULL, NULL,
      tutti__coll_reduce_scatter_ring },
    { "pairwise", TUTTI__REDUCE_SCATTER, "straight to its rank, one after another", 0, 0, 0, NULL,
      NULL, tutti__coll_reduce_scatter_pairwise },
    { "direct", TUTTI__REDUCE_SCATTER, "straight to its rank, all at once", 1, 1, 0, NULL, NULL,
      tutti__coll_reduce_scatter_direct },

    { "node", TUTTI__ALLGATHER, ONE_HOST, 1, 1, 0, NULL, tutti__coll_node_refuses,
      tutti__coll_node_allgather },
    { "bruck", TUTTI__ALLGATHER, "fewest steps for any number of ranks", 1, 1, 0, NULL, NULL,
      tutti__coll_allgather_bruck },
    { "recursive_doubling", TUTTI__ALLGATHER, "few steps, in pairs", 1, 1, 0, NULL, NULL,
      tutti__coll_allgather_recursive_doubling },
    { "ring", TUTTI__ALLGATHER, "between neighbours", 1, 1, 0, NULL, NULL,
      tutti__coll_allgather_ring },
    { "pairwise", TUTTI__ALLGATHER, "straight from its rank, one after another", 1, 1, 0, NULL,
      NULL, tutti__coll_allgather_pairwise },
    { "direct", TUTTI__ALLGATHER, "straight from its rank, all at once", 1, 1, 0, NULL, NULL,
      tutti__coll_allgather_direct },

    { "bruck", TUTTI__ALLGATHERV, "fewest steps for any number of ranks", 1, 1, 0, NULL, NULL,
      tutti__coll_allgather_bruck },
    { "recursive_doubling", TUTTI__ALLGATHERV, "few steps, in pairs", 1, 1, 0, NULL, NULL,
      tutti__coll_allgather_recursive_doubling },
    { "ring", TUTTI__ALLGATHERV, "between neighbours", 1, 1, 0, NULL, NULL,
      tutti__coll_allgather_ring },
    { "pairwise", TUTTI__ALLGATHERV, "straight from its rank, one after another", 1, 1, 0, NULL,
      NULL, tutti__coll_allgather_pairwise },
    { "direct", TUTTI__ALLGATHERV, "straight from its rank, all at once", 1, 1, 0, NULL, NULL,
      tutti__coll_allgather_direct },

    { "binomial", TUTTI__GATHER, "a tree of all ranks", 1, 1, 0, NULL, NULL,
      tutti__coll_gather_binomial },
    { "direct", TUTTI__GATHER, "straight to the root", 1, 1, 0, NULL, NULL,
      tutti__coll_gather_direct },
    { "direct", TUTTI__GATHERV, "straight to the root", 1, 1, 0, NULL, NULL,
      tutti__coll_gatherv_direct },

    { "binomial", TUTTI__SCATTER, "a tree of all ranks", 1, 1, 0, NULL, NULL,
      tutti__coll_scatter_binomial },
    { "direct", TUTTI__SCATTER, "straight from the root", 1, 1, 0, NULL, NULL,
      tutti__coll_scatter_direct },
    { "direct", TUTTI__SCATTERV, "straight from the root", 1, 1, 0, NULL, NULL,
      tutti__coll_scatterv_direct },

    { "node", TUTTI__ALLTOALL, ONE_HOST, 1, 1, 0, NULL, tutti__coll_node_refuses,
      tutti__coll_node_alltoall },
    { "bruck", TUTTI__ALLTOALL, "few steps, for small blocks", 1, 1, 0, NULL, NULL,
      tutti__coll_alltoall_bruck },
    { "recursive_doubling", TUTTI__ALLTOALL, "few steps, in pairs, for powers of two", 1, 1, 0,
      NULL, tutti__coll_power_refuses, tutti__coll_alltoall_recursive_doubling },
    { "ring", TUTTI__ALLTOALL, "between neighbours only", 1, 1, 0, NULL, NULL,
      tutti__coll_alltoall_ring },
    { "pairwise", TUTTI__ALLTOALL, "straight to its rank, one after another", 1, 1, 0, NULL, NULL,
      tutti__coll_alltoall_pairwise },
    { "direct", TUTTI__ALLTOALL, "straight to its rank, all at once", 1, 1, 0, NULL, NULL,
      tutti__coll_alltoall_direct },

    { "pairwise", TUTTI__ALLTOALLV, "straight to its rank, one after another", 1, 1, 0, NULL, NULL,
      tutti__coll_alltoallv_pairwise },
    { "direct", TUTTI__ALLTOALLV, "straight to its rank, all at once", 1, 1, 0, NULL, NULL,
      tutti__coll_alltoallv_direct },

    { "recursive_doubling", TUTTI__SCAN, "fewest steps", 1, 1, 0, NULL, NULL,
      tutti__coll_scan_recursive_doubling },
    { "chain", TUTTI__SCAN, "pipelined, each byte once", 1, 1, 0, NULL, NULL,
      tutti__coll_scan_chain },
    { "recursive_doubling", TUTTI__EXSCAN, "fewest steps", 1, 1, 0, NULL, NULL,
      tutti__coll_exscan_recursive_doubling },
    { "chain", TUTTI__EXSCAN, "pipelined, each byte once", 1, 1, 0, NULL, NULL,
      tutti__coll_exscan_chain },

    { "node", TUTTI__BARRIER, ONE_HOST, 1, 0, 0, NULL, tutti__coll_node_refuses,
      tutti__coll_node_barrier },
    { "dissemination", TUTTI__BARRIER, "between all ranks, fewest steps", 1, 0, 2, NULL, NULL,
      tutti__coll_barrier_dissemination },

    { NULL, TUTTI__COLLECTIVES, NULL, 0, 0, 0, NULL, NULL, NULL },
};

const char *tutti__collective_name(tutti__collective_t collective)
{
    static const char *const names[] = {
        [TUTTI__ALLREDUCE] = "allreduce", [TUTTI__ROOT_REDUCE] = "reduce",
        [TUTTI__BROADCAST] = "broadcast", [TUTTI__REDUCE_SCATTER] = "reduce_scatter",
        [TUTTI__ALLGATHER] = "allgather", [TUTTI__ALLGATHERV] = "allgatherv",
        [TUTTI__GATHER] = "gather",       [TUTTI__GATHERV] = "gatherv",
        [TUTTI__SCATTER] = "scatter",     [TUTTI__SCATTERV] = "scatterv",
        [TUTTI__ALLTOALL] = "alltoall",   [TUTTI__ALLTOALLV] = "alltoallv",
        [TUTTI__SCAN] = "scan",           [TUTTI__EXSCAN] = "exscan",
        [TUTTI__BARRIER] = "barrier",
    };

    return (unsigned)collective < TUTTI__COLLECTIVES ? names[collective] : "?";
}

const tutti__algorithm_t *tutti__algorithm_find(tutti__collective_t collective, const char *name)
{
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        if (a->collective == collective && strcmp(a->name, name) == 0)
            return a;
    }
    return NULL;
}
