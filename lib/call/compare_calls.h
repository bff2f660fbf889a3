/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The comparison of a direct call's arguments between all ranks, before data moves. If arguments
 * differ, all ranks report the same two ranks. Agreement has already compared the calls of the
 * engine. A head is a call's arguments without arrays, in a few words.
 *
 * On one host, the meeting of a node operation compares all arguments except counts of parts and
 * factors (prescale, postscale). So only calls with such counts or factors are compared here.
 *
 * Between hosts there is no such meeting. So every collective call is compared, also the library's
 * own calls, unless TUTTI_COMPARE is 0.
 *
 *                             one host              several hosts
 *      heads                  an allgather          their hash, sent with the data of small calls,
 *                                                   or before the data (ride.h); after a difference
 *                                                   an allgather names two ranks
 *      recvcounts, equal on   in that allgather     in that hash; after a difference an allgather
 *      all ranks                                    of all
 *      counts of pairs        exchange.h, with the  exchange.h
 *                             heads
 *
 * Rejected: an allgather before each call between hosts. It takes one round less, but each of 1024
 * ranks would receive 17 MB of an alltoallv's counts instead of 48 KiB.
 */
#ifndef TUTTI__CALL_COMPARE_CALLS_H
#define TUTTI__CALL_COMPARE_CALLS_H

#include "call/exchange.h"
#include "call/ride.h"

/* Words of a head between hosts. */
#define TUTTI__COMPARE_HEAD (TUTTI__EXCHANGE_HEAD + 1)

typedef enum {
    TUTTI__COMPARE_RIDE,   /* an allreduce of the heads' hash, with the data of small calls */
    TUTTI__COMPARE_HEADS,  /* allgather of the heads */
    TUTTI__COMPARE_COUNTS, /* allgather of heads and recvcounts */
    TUTTI__COMPARE_PAIRS   /* exchange.h */
} tutti__compare_stage_t;

/* Zero this structure before its first use. It is reused from call to call. */
typedef struct {
    tutti__compare_stage_t stage;
    const tutti__call_t *call; /* NULL: a call of the library's own */
    uint64_t head[TUTTI__COMPARE_HEAD];
    uint64_t *words;
    size_t capacity;
    tutti__ride_t ride;
    int is_done; /* the comparison has also moved the data: the call is done */
    tutti__exchange_t pairs;
} tutti__compare_t;

void tutti__compare_free(tutti__compare_t *cmp);

/* Must the ranks compare this collective call? All ranks whose calls have the same kind and the
   same factors get the same answer. */
int tutti__compare_needed(const tutti__call_env_t *env, const tutti__call_t *call);
/* The same for calls of the library's own. */
int tutti__compare_needed_own(const tutti__call_env_t *env);

/* Begin the comparison, in `run`. *call must stay valid until its end. may_ride: the call uses the
   caller's buffers, in host memory; equal on all ranks. *ret_common: see call_inside.h. */
tutti_status_t tutti__compare_start(tutti__compare_t *cmp, const tutti__call_env_t *env,
                                    tutti__run_t *run, const tutti__call_t *call, int may_ride,
                                    int *ret_common);
tutti_status_t tutti__compare_start_own(tutti__compare_t *cmp, const tutti__call_env_t *env,
                                        tutti__run_t *run, uint32_t tag, size_t count,
                                        int *ret_common);

/* Call this function when the run has ended. AGAIN: the next run has begun. OK: the calls are
   equal. MISMATCH: a common error. */
tutti_status_t tutti__compare_next(tutti__compare_t *cmp, const tutti__call_env_t *env,
                                   tutti__run_t *run, int *ret_common);

#endif
