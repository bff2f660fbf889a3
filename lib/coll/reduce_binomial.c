/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree reduce (as in Thakur, Rabenseifner, Gropp: "Optimization of collective
 * communication operations in MPICH", IJHPCA 19(1), 2005), with operands in the order of ranks
 * for any root.
 *
 * The ranks from the root on form a tree with the root on top. The ranks before the root form
 * another tree with rank 0 on top; at the end rank 0 sends its result to the root, as the left
 * operand. One rotated tree that begins at the root may take one step less, but needs operations
 * that commute.
 *
 *      root 3 of 8:    0 <- 1        3 <- 4
 *                      0 <- 2        3 <- 5 <- 6
 *                                    3 <- 7            and then 0 -> 3
 *
 * Partial results are in SCRATCH, because only the root has an OUT.
 *
 * Cost: (ceil(lg p) + 1) (alpha + n beta + n gamma) at most.
 */
#include "coll/algorithms.h"

static void put_below(tutti__build_t *b, const tutti__shape_t *shape, uint32_t me, uint32_t root)
{
    tutti__party_t party = { shape, root, me, TUTTI__PARTY_RANKED, 0, 1 };
    tutti__at_t in = tutti__at(TUTTI__IN, 0), tmp = tutti__at(TUTTI__SCRATCH, 0);

    tutti__coll_put_tree_up(b, &party, in, tmp, 1, 0, 0);
    if (me == 0)
        tutti__build_send(b, root, root > 1 ? tmp : in, 1);
}

static void put_above(tutti__build_t *b, const tutti__shape_t *shape, uint32_t me, uint32_t root)
{
    tutti__party_t party = { shape, shape->size - root, me - root, TUTTI__PARTY_RANKED, root, 1 };
    tutti__at_t in = tutti__at(TUTTI__IN, 0);
    tutti__at_t dst = tutti__at(me == root ? TUTTI__OUT : TUTTI__SCRATCH, 0);

    tutti__coll_put_tree_up(b, &party, in, dst, 1, 0, root == 0);
    if (me != root || root == 0)
        return;
    tutti__build_finish(b);
    tutti__coll_put_recv_reduce(b, 0, 0, 1, party.n > 1 ? dst : in, dst, 1, 1);
}

tutti_status_t tutti__coll_reduce_binomial(const tutti__shape_t *shape,
                                           const tutti__coll_args_t *args,
                                           tutti__sched_t **ret_sched)
{
    tutti__build_t *b = tutti__build_begin("binomial", args->rank, shape->size, 1, 1, 1);

    if (shape->size == 1) {
        tutti__build_finish(b);
        tutti__build_copy(b, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), 1);
        return tutti__build_end(b, ret_sched);
    }
    tutti__build_loop(b);
    if (args->rank < args->root)
        put_below(b, shape, args->rank, args->root);
    else
        put_above(b, shape, args->rank, args->root);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
