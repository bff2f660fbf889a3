/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of ranks on one host. Each is one node operation, which node/ executes in shared
 * memory.
 *
 * The operation is outside of a loop if possible: the kernels of node/ cut large buffers into
 * chunks of their own size. The barrier is an allreduce of a block whose content is not used: no
 * rank gets the result before all ranks have contributed.
 *
 * A node operation reduces in the order of local ranks. On a single host this is the order of
 * ranks.
 */
#include "coll/algorithms.h"

#include <stddef.h>

const char *tutti__coll_node_refuses(const tutti__shape_t *shape)
{
    return shape->nhosts == 1 ? NULL
                              : "it serves the ranks of one host only, and there are several";
}

static tutti__build_t *begin(const tutti__shape_t *shape, const tutti__coll_args_t *args,
                             uint32_t nblocks, uint32_t scratch_blocks)
{
    return tutti__build_begin("node", args->rank, shape->size, nblocks, scratch_blocks, 1);
}

tutti_status_t tutti__coll_node_allreduce(const tutti__shape_t *shape,
                                          const tutti__coll_args_t *args,
                                          tutti__sched_t **ret_sched)
{
    tutti__build_t *b = begin(shape, args, 1, 0);

    tutti__build_finish(b);
    tutti__build_node(b, TUTTI__NODE_ALLREDUCE, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0),
                      1, 1, 0);
    return tutti__build_end(b, ret_sched);
}

tutti_status_t tutti__coll_node_reduce(const tutti__shape_t *shape, const tutti__coll_args_t *args,
                                       tutti__sched_t **ret_sched)
{
    tutti__build_t *b = begin(shape, args, 1, 0);

    tutti__build_finish(b);
    tutti__build_node(b, TUTTI__NODE_REDUCE, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), 1,
                      1, (int32_t)shape->local_of[args->root]);
    return tutti__build_end(b, ret_sched);
}

tutti_status_t tutti__coll_node_broadcast(const tutti__shape_t *shape,
                                          const tutti__coll_args_t *args,
                                          tutti__sched_t **ret_sched)
{
    tutti__build_t *b = begin(shape, args, 1, 0);

    tutti__build_node(b, TUTTI__NODE_BCAST, tutti__at(TUTTI__OUT, 0), tutti__at(TUTTI__OUT, 0), 1,
                      1, (int32_t)shape->local_of[args->root]);
    return tutti__build_end(b, ret_sched);
}

/* Part i belongs to local rank i, which on a single host is rank i. */
tutti_status_t tutti__coll_node_reduce_scatter(const tutti__shape_t *shape,
                                               const tutti__coll_args_t *args,
                                               tutti__sched_t **ret_sched)
{
    tutti__build_t *b = begin(shape, args, shape->size, 0);

    tutti__build_finish(b);
    tutti__build_node(b, TUTTI__NODE_REDUCE_SCATTER, tutti__at(TUTTI__IN, 0),
                      tutti__at(TUTTI__OUT, 0), 1, shape->size, 0);
    return tutti__build_end(b, ret_sched);
}

tutti_status_t tutti__coll_node_allgather(const tutti__shape_t *shape,
                                          const tutti__coll_args_t *args,
                                          tutti__sched_t **ret_sched)
{
    tutti__build_t *b = begin(shape, args, shape->size, 0);

    tutti__build_node(b, TUTTI__NODE_ALLGATHER, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0),
                      1, shape->size, 0);
    return tutti__build_end(b, ret_sched);
}

tutti_status_t tutti__coll_node_alltoall(const tutti__shape_t *shape,
                                         const tutti__coll_args_t *args, tutti__sched_t **ret_sched)
{
    tutti__build_t *b = begin(shape, args, shape->size, 0);

    tutti__build_sizes(b, TUTTI__ALL_EQUAL);
    tutti__build_node(b, TUTTI__NODE_ALLTOALL, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), 1,
                      shape->size, 0);
    return tutti__build_end(b, ret_sched);
}

/* SCRATCH exists in loops only, so this is a loop with a single trip. */
tutti_status_t tutti__coll_node_barrier(const tutti__shape_t *shape, const tutti__coll_args_t *args,
                                        tutti__sched_t **ret_sched)
{
    tutti__build_t *b = begin(shape, args, 1, 1);

    tutti__build_loop(b);
    tutti__build_node(b, TUTTI__NODE_ALLREDUCE, tutti__at(TUTTI__SCRATCH, 0),
                      tutti__at(TUTTI__SCRATCH, 0), 1, 1, 0);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
