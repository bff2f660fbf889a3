/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of this room. */
#ifndef TUTTI__CALL_CALL_INSIDE_H
#define TUTTI__CALL_CALL_INSIDE_H

#include "call/call.h"
#include "call/env.h"

/*
 * An error is common if all ranks of the communicator find it before data moves. After a common
 * error the communicator stays usable. All other errors end the communicator.
 */

/* own.c: in `run`, begin a collective that the library makes for itself, on words of 64 bits. An
   allreduce takes the maximum. */
tutti_status_t tutti__own_start(const tutti__call_env_t *env, tutti__run_t *run,
                                tutti__collective_t collective, const uint64_t *in, uint64_t *out,
                                size_t nwords, int *ret_common);

/* own.c: the same for a frame, with the schedule of tutti__cache_leaders. dtype, op: of the data in
   the frame. */
tutti_status_t tutti__own_start_frame(const tutti__call_env_t *env, tutti__run_t *run,
                                      tutti__frame_t *frame, tutti_dtype_t dtype, tutti_op_t op,
                                      int *ret_common);

/* own.c: enlarge *words to at least nwords words. NO_MEMORY. */
tutti_status_t tutti__own_words(uint64_t **words, size_t *capacity, size_t nwords);

/* own.c: choose a schedule. */
tutti_status_t tutti__own_find(tutti__cache_t *cache, const tutti__want_t *want, int in_place,
                               const tutti__sched_t **ret_sched, int *ret_common);

/* own.c: OK if this thread is allowed to use the transports of a schedule. Otherwise AGAIN for
   agreed calls, which another thread continues; UNSUPPORTED, a common error, for other calls. */
tutti_status_t tutti__own_allows(const tutti__call_env_t *env, const tutti__sched_t *sched);

/* own.c: is an error of a run in host memory common? */
int tutti__own_is_common(const tutti__run_t *run, tutti_status_t status);

#endif
