/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree broadcast (as in Thakur, Rabenseifner, Gropp: "Optimization of collective
 * communication operations in MPICH", IJHPCA 19(1), 2005).
 *
 * Ranks are numbered from the root on, host by host. Rank v receives from v without its lowest set
 * bit, and sends to v plus each lower bit, the largest subtree first:
 *
 *      0 ---> 4 ---> 6 ---> 7
 *      |      +----> 5
 *      +----> 2 ---> 3
 *      +----> 1
 *
 * There are lg n steps. In the chunk loop a rank passes on chunk t while its parent sends chunk t +
 * 1.
 *
 * Cost: ceil(lg p) (alpha + n beta).
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_broadcast_binomial(const tutti__shape_t *shape,
                                              const tutti__coll_args_t *args,
                                              tutti__sched_t **ret_sched)
{
    tutti__party_t party = tutti__party_all(shape, args->rank);
    uint32_t root = tutti__party_all(shape, args->root).me;
    tutti__build_t *b = tutti__build_begin("binomial", args->rank, party.n, 1, 0, 1);

    tutti__build_loop(b);
    tutti__coll_put_tree_down(b, &party, root, tutti__at(TUTTI__OUT, 0), 1, 0);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
