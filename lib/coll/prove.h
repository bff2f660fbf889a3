/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Proofs of algorithms: what a collective promises, in the checker's words.
 *
 * TUTTI_CHECK=1 has each schedule proved when it is built; the tests prove all of them.
 */
#ifndef TUTTI__COLL_PROVE_H
#define TUTTI__COLL_PROVE_H

#include "coll/coll.h"
#include "sched/check.h"

/*
 * What is to be asked about all ranks' schedules of one call, scheds[size]; args->rank does not
 * matter. Set credits and trips (both are 1 at first) and call tutti__sched_check. What the
 * algorithm's row says of itself, `ordered` and `fixed_association`, is asked too. Points to what
 * it is given; owns nothing.
 */
tutti__check_t tutti__coll_check(const tutti__algorithm_t *algorithm, const tutti__shape_t *shape,
                                 const tutti__coll_args_t *args, tutti__sched_t *const *scheds);

/*
 * Prove all ranks' schedules, scheds[size], for chunk loops of 1, 2, c + 1 and 2c + 1 trips: no
 * channel full, full, and every slot used for a third time. The same with the chunks of STAGE,
 * where it is memory of its own. TUTTI_ERR_INTERNAL: they are wrong, and the text says with what
 * and where.
 */
tutti_status_t tutti__coll_prove_scheds(const tutti__algorithm_t *algorithm,
                                        const tutti__shape_t *shape, const tutti__coll_args_t *args,
                                        tutti__sched_t *const *scheds, uint32_t credits);

/*
 * Build the schedules of all ranks and prove them in this way.
 *
 * args       as in algorithm->build; its rank does not matter
 * credits    slots per channel, as the transport has them
 *
 * Pure, like the builders; so all ranks come to the same end. TUTTI_ERR_INTERNAL with what is wrong
 * if there is no proof, TUTTI_ERR_NO_MEMORY, or what the build ends with.
 */
tutti_status_t tutti__coll_prove(const tutti__algorithm_t *algorithm, const tutti__shape_t *shape,
                                 const tutti__coll_args_t *args, uint32_t credits);

#endif
