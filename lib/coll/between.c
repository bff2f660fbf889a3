/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The allreduces that other algorithms also use for their part between hosts, and their names.
 */
#include "coll/algorithms.h"

#include <stddef.h>
#include <string.h>

const char *const tutti__coll_between_names[] = { "recursive_doubling", "halving_doubling", "ring",
                                                  "direct_scatter", NULL };

int tutti__coll_between(const char *name, uint32_t n, tutti__coll_between_t *ret_between)
{
    uint32_t power = tutti__power_upto(n);

    if (name == NULL || strcmp(name, "recursive_doubling") == 0)
        *ret_between = (tutti__coll_between_t){ tutti__coll_put_recursive_doubling, 1, 1, 0 };
    else if (strcmp(name, "halving_doubling") == 0)
        *ret_between = (tutti__coll_between_t){ tutti__coll_put_halving_doubling, power,
                                                power > 1 ? power / 2 : 1, 0 };
    else if (strcmp(name, "ring") == 0)
        *ret_between = (tutti__coll_between_t){ tutti__coll_put_ring, n, 1, 0 };
    else if (strcmp(name, "direct_scatter") == 0)
        *ret_between = (tutti__coll_between_t){ tutti__coll_put_direct_scatter, n, 1,
                                                tutti__coll_direct_scatter_levels(n) };
    else
        return 0;
    return 1;
}

tutti_status_t tutti__coll_build_between(const char *name, int ranked, const tutti__shape_t *shape,
                                         const tutti__coll_args_t *args, tutti__sched_t **ret_sched)
{
    tutti__party_t party =
        ranked ? tutti__party_ranked(shape, args->rank) : tutti__party_all(shape, args->rank);
    tutti__levels_t levels = { 0, 0 };
    tutti__coll_between_t between;
    tutti__build_t *b;

    tutti__coll_between(name, party.n, &between);
    levels.stride = between.blocks;
    b = tutti__build_begin(name, args->rank, party.n, between.blocks,
                           between.levels * between.blocks, between.message);
    if (party.n == 1) {
        tutti__build_finish(b);
        tutti__build_copy(b, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), 1);
    } else {
        tutti__build_loop(b);
        between.put(b, &party, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), levels, 0);
        tutti__build_end_loop(b);
    }
    return tutti__build_end(b, ret_sched);
}
