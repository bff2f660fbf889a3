/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between two ranks: a rank sends IN to one rank and receives into OUT from another, or
 * only sends, or only receives. Before a message, its two ranks exchange heads (type and count),
 * one in each direction.
 *
 * Each direction has its own stream, so no direction waits for the other. In a single stream, two
 * ranks would deadlock if they send each other more data than the slots hold. A channel's name
 * contains the sender's stream. For data it is always 0, so the name does not depend on whether the
 * sender also receives.
 *
 * Cost: alpha + n beta.
 */
#include "base/status.h"
#include "coll/algorithms.h"

#define NOBODY UINT32_MAX

/* A message from a rank to itself, in one call. */
static tutti_status_t build_self(tutti__build_t *b, tutti__sched_t **ret_sched)
{
    tutti__build_copy(b, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), 1);
    return tutti__build_end(b, ret_sched);
}

tutti_status_t tutti__coll_build_sendrecv(const tutti__shape_t *shape, uint32_t rank, uint32_t dest,
                                          uint32_t source, tutti__sched_t **ret_sched)
{
    tutti__build_t *b;

    if ((dest == rank) != (source == rank))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "rank %u sends to itself, or receives from itself, but not both", rank);
    b = tutti__build_begin("sendrecv", rank, shape->size, 1, 0, 1);
    tutti__build_sizes(b, TUTTI__BY_PAIR);
    if (dest == rank)
        return build_self(b, ret_sched);
    if (dest != NOBODY) {
        tutti__build_loop(b);
        tutti__build_send(b, dest, tutti__at(TUTTI__IN, 0), 1);
        tutti__build_end_loop(b);
    }
    if (source != NOBODY) {
        tutti__build_stream(b, dest != NOBODY);
        tutti__build_loop(b);
        tutti__build_recv(b, source, 0, tutti__at(TUTTI__OUT, 0), 1);
        tutti__build_end_loop(b);
    }
    return tutti__build_end(b, ret_sched);
}

/* A sender's head is sent before its data, in stream 0; a receiver's head is sent in stream 1. So
   two messages between the same ranks in opposite directions use different channels, in whatever
   order the peer executes them. */
tutti_status_t tutti__coll_build_heads(const tutti__shape_t *shape, uint32_t rank, uint32_t dest,
                                       uint32_t source, tutti__sched_t **ret_sched)
{
    uint32_t peer = dest != NOBODY ? dest : source;
    int sends = dest != NOBODY;
    tutti__build_t *b;

    if (peer == rank || (sends && source != NOBODY))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "rank %u: heads go to one other rank", rank);
    b = tutti__build_begin("heads", rank, shape->size, 1, 0, 1);
    tutti__build_sizes(b, TUTTI__ALL_EQUAL);
    for (unsigned s = 0; s < 2; s++) {
        tutti__build_stream(b, s);
        tutti__build_loop(b);
        if ((s == 0) == sends)
            tutti__build_send(b, peer, tutti__at(TUTTI__IN, 0), 1);
        else
            tutti__build_recv(b, peer, s, tutti__at(TUTTI__OUT, 0), 1);
        tutti__build_end_loop(b);
    }
    return tutti__build_end(b, ret_sched);
}
