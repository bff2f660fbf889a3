/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast by scatter and allgather (Barnett, Shuler, van de Geijn, Gupta, Payne, Watts:
 * "Interprocessor collective communication library", Scalable High-Performance Computing 1994),
 * with Bruck's allgather, which takes any number of ranks.
 *
 * The buffer is cut into n blocks. The blocks are sent down a binomial tree; each subtree gets its
 * own blocks. Rank v, counted from the root on, then has block v. The ranks form a circle and
 * exchange the other blocks, twice as many in each step.
 *
 *      root                  0 1 2 3 4 5 6 7
 *      to 4                          4 5 6 7
 *      to 2, from 4 to 6         2 3     6 7
 *      to 1, ...               1   3   5   7        then each rank has one
 *
 * The number of steps is logarithmic, and each rank moves the buffer twice instead of lg n times.
 * So it suits buffers that are too large for the binomial tree and too small to fill a chain.
 *
 * Cost: 2 ceil(lg p) alpha + 2 (p-1)/p n beta.
 */
#include "base/compiler.h"
#include "coll/algorithms.h"

static uint32_t rank_at(const tutti__party_t *party, uint32_t root, uint64_t v)
{
    return tutti__party_rank(party, (uint32_t)((v + root) % party->n));
}

static void put_scatter(tutti__build_t *b, const tutti__party_t *party, uint32_t root, uint32_t v)
{
    uint32_t n = party->n;
    uint64_t bit = 1;

    while (bit < n && !(v & bit))
        bit *= 2;
    if (v != 0)
        tutti__build_recv(b, rank_at(party, root, v - bit), 0, tutti__at(TUTTI__OUT, v),
                          (uint32_t)TUTTI__MIN(bit, (uint64_t)(n - v)));
    for (bit /= 2; bit > 0; bit /= 2) {
        uint64_t child = v + bit;

        if (child < n)
            tutti__build_send(b, rank_at(party, root, child),
                              tutti__at(TUTTI__OUT, (uint32_t)child),
                              (uint32_t)TUTTI__MIN(bit, n - child));
    }
}

static void put_allgather(tutti__build_t *b, const tutti__party_t *party, uint32_t root, uint32_t v)
{
    uint32_t n = party->n;

    for (uint64_t far = 1; far < n; far *= 2) {
        uint32_t count = (uint32_t)TUTTI__MIN(far, n - far);

        tutti__coll_put_send_arc(b, rank_at(party, root, v + n - far), TUTTI__OUT, v, count, n);
        tutti__coll_put_recv_arc(b, rank_at(party, root, v + far), TUTTI__OUT,
                                 (uint32_t)((v + far) % n), count, n);
    }
}

tutti_status_t tutti__coll_broadcast_scatter_allgather(const tutti__shape_t *shape,
                                                       const tutti__coll_args_t *args,
                                                       tutti__sched_t **ret_sched)
{
    tutti__party_t party = tutti__party_all(shape, args->rank);
    uint32_t n = party.n, root = tutti__party_all(shape, args->root).me;
    uint32_t v = (uint32_t)(((uint64_t)party.me + n - root) % n);
    tutti__build_t *b =
        tutti__build_begin("scatter_allgather", args->rank, n, n, 0, tutti__coll_arc_blocks(n));

    tutti__build_loop(b);
    put_scatter(b, &party, root, v);
    put_allgather(b, &party, root, v);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}
