/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls without a name are matched by their order.
 *
 * Collectives: the n-th calls of all ranks of the communicator belong together. If the communicator
 * has no device, these calls run one after another in the ordered lane, as soon as this rank has
 * submitted them. The ranks compare the calls as they compare direct calls (lanes.c). If there is a
 * device, the ranks agree on each call, under a name that is made of n: an ordered lane would hold
 * up the launches of all other lanes.
 *
 * Messages: the n-th send from rank a to rank b belongs to the n-th receive from a on b. The ranks
 * agree on each message, under a name made of the two ranks and n. If messages ran in an ordered
 * lane, two ranks that both send first would wait for each other.
 *
 * Requests get numbers under the lock of pending.h, so the numbers follow the order of the queue.
 */
#ifndef TUTTI__ENGINE_NAMELESS_H
#define TUTTI__ENGINE_NAMELESS_H

#include "engine/request.h"

typedef struct {
    uint32_t rank, size;
    int has_lane;       /* collectives run in the ordered lane */
    uint64_t calls;     /* collectives so far */
    uint64_t *messages; /* [2 * size] sends to each rank so far, then receives */
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

/* The callers of all following functions hold the lock of pending.h. */

/* Give a request its number and name. */
void tutti__nameless_number(tutti__nameless_t *nameless, tutti__request_t *request);
/* Take a request's number back. Take several numbers back in the reverse order of their giving. */
void tutti__nameless_undo(tutti__nameless_t *nameless, const tutti__request_t *request);
/* Count from 0 again. Call this when all ranks have joined, after different numbers of calls. */
void tutti__nameless_restart(tutti__nameless_t *nameless);

#endif
