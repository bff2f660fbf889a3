/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small calls between hosts ride in the comparison of calls: the messages that compare the calls
 * also carry the calls' data, so a small call needs no other messages.
 *
 * The comparison is an allreduce of a frame by coll/allreduce_leaders.c, for calls of all kinds. So
 * ranks with different calls exchange the same messages, and all ranks find the difference. The
 * frame has the call's identity and its data (exec/framed.c). Calls that do not reduce can ride as
 * well: each rank's frame has this rank's part of the result, and zeros at all other places. The
 * frames are combined by a bitwise or.
 *
 *      kind                          bytes of data, n elements each, p ranks
 *      allreduce, reduce, broadcast  n
 *      barrier                       0
 *      reduce_scatter, allgather,    p n
 *      gather, scatter
 *      alltoall                      p p n
 *
 * The result is written to recvbuf after the allreduce, and only if all calls are equal. A call
 * that does not ride runs after the allreduce of an empty frame. These calls do not ride: larger
 * calls; calls of other kinds; calls whose result would have other bits if they rode; calls for
 * which the cost model expects an empty frame to be faster.
 */
#ifndef TUTTI__CALL_RIDE_H
#define TUTTI__CALL_RIDE_H

#include "call/call.h"
#include "call/env.h"

/* Zero this structure before its first use. It is reused from call to call. */
typedef struct {
    const tutti__call_t *call;       /* NULL: the frame carries no data */
    size_t most[TUTTI__COLLECTIVES]; /* largest data for which riding is cheaper than a call after
                                        an empty frame: coll/cost.h; set when `memory` is made */
    uint8_t is_forced[TUTTI__COLLECTIVES]; /* 1: TUTTI_ALGORITHM names the collective.
                                              Set with `memory` */
    /* 1: no host has more than two ranks, so a host's sum is one addition. Set with `memory`. */
    int adds_once;
    char *memory;
    tutti__frame_t *frame; /* in `memory`; its data begin at a cache line */
} tutti__ride_t;

void tutti__ride_free(tutti__ride_t *ride);

/* Begin the allreduce of the frame, in `run`. The data of *call ride if possible; *call must stay
   valid until tutti__ride_end. call NULL: an empty frame. *ret_common: see call_inside.h. */
tutti_status_t tutti__ride_start(tutti__ride_t *ride, const tutti__call_env_t *env,
                                 tutti__run_t *run, uint64_t identity, const tutti__call_t *call,
                                 int *ret_common);

/* After the run: do all ranks have the same identity? */
static inline int tutti__ride_is_equal(const tutti__ride_t *ride)
{
    return !ride->frame->differs;
}

/* After a run with equal identities: write the result. Returns 1 if the call is done, 0 if the call
   did not ride. */
int tutti__ride_end(const tutti__ride_t *ride, uint32_t rank, uint32_t size);

#endif
