/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Proofs of algorithms: a collective's promise, in the form that the checker takes.
 *
 * TUTTI_CHECK=1 proves each schedule when it is built; the tests prove all schedules.
 */
#ifndef TUTTI__COLL_PROVE_H
#define TUTTI__COLL_PROVE_H

#include "coll/coll.h"
#include "sched/check.h"

/*
 * The check for all ranks' schedules of one call, scheds[size]; args->rank is ignored. The caller
 * sets credits and trips (initially 1) and calls tutti__sched_check, which also checks these
 * properties: `ordered` and `fixed_association` in the algorithm's row, and that calls are compared
 * before recvbuf changes. The returned check points to the arguments and owns nothing.
 */
tutti__check_t tutti__coll_check(const tutti__algorithm_t *algorithm, const tutti__shape_t *shape,
                                 const tutti__coll_args_t *args, tutti__sched_t *const *scheds);

/*
 * Prove all ranks' schedules, scheds[size], for chunk loops of 1, 2, c + 1 and 2c + 1 trips (c
 * credits): with these numbers channels are not full, become full, and use every slot again. If
 * STAGE is separate memory with s chunks, also for 2s + 1 trips, which use every chunk again.
 * TUTTI_ERR_INTERNAL: the schedules are wrong; the text names the case and the place.
 */
tutti_status_t tutti__coll_prove_scheds(const tutti__algorithm_t *algorithm,
                                        const tutti__shape_t *shape, const tutti__coll_args_t *args,
                                        tutti__sched_t *const *scheds, uint32_t credits);

/*
 * Build the schedules of all ranks, and prove them as above.
 *
 * args       as in algorithm->build; its rank is ignored
 * credits    slots per channel of the transport
 *
 * It is pure, like `build`, so all ranks get the same result. TUTTI_ERR_INTERNAL, with the error,
 * if there is no proof; TUTTI_ERR_NO_MEMORY; or the status of a failed build.
 */
tutti_status_t tutti__coll_prove(const tutti__algorithm_t *algorithm, const tutti__shape_t *shape,
                                 const tutti__coll_args_t *args, uint32_t credits);

#endif
