/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce of device memory by one NCCL communicator of all ranks of all hosts.
 *
 * NCCL moves the data between hosts by its own transports, from device to device if the network
 * supports it. Only the launch sequencer before each call uses messages in host memory, see
 * call/sequencer.h. The algorithm is chosen only if TUTTI_ALGORITHM names it. The NCCL communicator
 * exists only for the world, and is opened with the world (call/device_flat.c). On one host the
 * algorithm is the same as `node`.
 *
 * The association is NCCL's. It may depend on an element's place and on the size.
 *
 * Cost: a reduce and a broadcast of 8 bytes between all ranks, then NCCL's allreduce.
 */
#include "coll/algorithms.h"
#include "coll/override.h"

#include <stddef.h>

const char *tutti__coll_nccl_flat_refuses(const tutti__shape_t *shape)
{
    return shape->nhosts == 1 || shape->device_scope == TUTTI__SCOPE_ALL
               ? NULL
               : "it serves device memory of the whole job's communicator only";
}

tutti_status_t tutti__coll_allreduce_nccl_flat(const tutti__shape_t *shape,
                                               const tutti__coll_args_t *args,
                                               tutti__sched_t **ret_sched)
{
    tutti__build_t *b;

    if (shape->nhosts == 1)
        return tutti__coll_node_allreduce(shape, args, ret_sched);
    b = tutti__build_begin("nccl-flat", args->rank, shape->size, 1, 0, 1);
    tutti__build_scope_all(b);
    tutti__build_finish(b);
    tutti__build_node(b, TUTTI__NODE_ALLREDUCE, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0),
                      1, 1, 0);
    return tutti__build_end(b, ret_sched);
}

int tutti__override_is_nccl_flat(const char *text)
{
    tutti__override_t override;

    if (tutti__override_parse(text, &override) != TUTTI_OK)
        return 0;
    for (uint32_t i = 0; i < override.n; i++) {
        const tutti__algorithm_t *algorithm = override.items[i].choice.algorithm;

        if (algorithm != NULL && algorithm->refuses == tutti__coll_nccl_flat_refuses)
            return 1;
    }
    return 0;
}
