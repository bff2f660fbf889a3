/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree broadcast (as in Thakur, Rabenseifner, Gropp: "Optimization of collective
 * communication operations in MPICH", IJHPCA 19(1), 2005).
 *
 * Ranks are numbered from the root on, host by host. Rank v receives from v without its lowest bit,
 * and sends to v plus each lower bit, the largest subtree first:
 *
 *      0 ---> 4 ---> 6 ---> 7
 *      |      +----> 5
 *      +----> 2 ---> 3
 *      +----> 1
 *
 * lg n steps. In the chunk loop a rank passes on chunk t while its parent sends chunk t + 1.
 */
#include "coll/algorithms.h"

tutti_status_t tutti__coll_build_binomial(const tutti__shape_t *shape,
                                          const tutti__coll_args_t *args,
                                          tutti__sched_t **ret_sched)
{
    tutti__party_t party = tutti__party_all(shape, args->rank);
    uint32_t n = party.n, root = tutti__party_all(shape, args->root).me;
    uint32_t v = (party.me + n - root) % n;
    tutti__build_t *b = tutti__build_begin("binomial", args->rank, n, 1, 0, 1);
    tutti__at_t data = tutti__at(TUTTI__OUT, 0);
    uint64_t bit = 1;

    if (n == 1)
        return tutti__build_end(b, ret_sched);

    tutti__build_loop(b);
    while (bit < n && !(v & bit))
        bit *= 2;
    if (v != 0)
        tutti__build_recv(b, tutti__party_rank(&party, (uint32_t)((v - bit + root) % n)), 0, data,
                          1);
    for (bit /= 2; bit > 0; bit /= 2) {
        if (v + bit < n)
            tutti__build_send(b, tutti__party_rank(&party, (uint32_t)((v + bit + root) % n)), data,
                              1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
