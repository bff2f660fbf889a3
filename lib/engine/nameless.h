/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls without a name: matched by their order instead.
 *
 * Collectives: the n-th of each rank of the communicator belong together. Without a device they run
 * one after another in a lane of their own, as soon as this rank has submitted them, and the ranks
 * compare them as they compare direct calls (lanes.c). With a device the ranks agree on them, under
 * a name made of the number: a lane on a device would hold up the launches of all others.
 *
 * Messages: the n-th send of a rank to another belongs to the n-th receive there. The ranks agree
 * on each, under a name made of the two ranks and the number. In a lane, two ranks that first send
 * to each other would wait for each other.
 *
 * The number is given under the lock of pending.h, so it is the place in the queue.
 */
#ifndef TUTTI__ENGINE_NAMELESS_H
#define TUTTI__ENGINE_NAMELESS_H

#include "engine/request.h"

typedef struct {
    uint32_t rank, size;
    int has_lane;       /* collectives run in the ordered lane */
    uint64_t calls;     /* collectives so far */
    uint64_t *messages; /* [2 * size] so far, sent to each rank and received from each */
} tutti__nameless_t;

tutti_status_t tutti__nameless_open(tutti__nameless_t *nameless, uint32_t rank, uint32_t size,
                                    int has_lane);
void tutti__nameless_close(tutti__nameless_t *nameless);

/* Does the request run in the ordered lane? */
static inline int tutti__nameless_is_ordered(const tutti__nameless_t *nameless,
                                             const tutti__request_t *request)
{
    return request->nameless && nameless->has_lane && !tutti__call_is_message(request->call.kind);
}

/* The lock of pending.h must be held in this and all following functions. Give a request its number
   and name. */
void tutti__nameless_number(tutti__nameless_t *nameless, tutti__request_t *request);
/* Take a number back. If several are taken back, the number given last is taken back first. */
void tutti__nameless_undo(tutti__nameless_t *nameless, const tutti__request_t *request);
/* All ranks have joined, after different numbers of calls: all begin anew. */
void tutti__nameless_restart(tutti__nameless_t *nameless);

#endif
