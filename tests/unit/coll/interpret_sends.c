/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interpreter's messages without credits: a message is read from the sender's blocks when the
 * receiver has reached its operation. An operation that would overwrite these blocks waits until
 * the message has been read.
 */
#include "unit/coll/interpret_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Element `k` of the message in the sender's memory. */
static number_t *source(const world_t *w, const message_t *message, uint32_t k)
{
    const tutti__op_t *op = message->op;
    uint32_t blk = op->sblk;

    while (k >= world_length(w, message->rank, op->sbuf, blk))
        k -= world_length(w, message->rank, op->sbuf, blk++);
    return world_element(w, message->rank, op->sbuf, blk, message->trip, k);
}

void message_take(world_t *w, message_t *message)
{
    if (message->numbers != NULL)
        return;
    w->has_taken = 1;
    message->numbers = calloc(message->count, sizeof(number_t));
    assert_non_null(message->numbers);
    for (uint32_t k = 0; k < message->count; k++) {
        const number_t *from = source(w, message, k);

        if (from == NULL)
            world_wrong(w, "reads beyond a buffer");
        else
            message->numbers[k] = *from;
    }
}

/* Is this element in a message that is not taken? */
static int is_sent(const world_t *w, uint32_t rank, const number_t *element)
{
    for (size_t i = 0; i < (size_t)w->size * STREAMS; i++) {
        const chan_t *chan = &w->chans[(size_t)rank * w->size * STREAMS + i];

        for (uint32_t m = 0; m < chan->count; m++) {
            const message_t *message = &chan->slots[(chan->head + m) % w->slots];

            for (uint32_t k = 0; k < message->count && message->numbers == NULL; k++) {
                if (source(w, message, k) == element)
                    return 1;
            }
        }
    }
    return 0;
}

int op_must_wait(const world_t *w, uint32_t rank, const tutti__op_t *op, uint32_t begin,
                 uint32_t upto)
{
    int writes = op->kind != TUTTI__SEND && op->kind != TUTTI__WAIT;
    uint32_t n = w->credits == 0 && writes ? op->nblk * op->nparts : 0;

    for (uint32_t trip = begin; trip < upto; trip++) {
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t e = 0; e < world_length(w, rank, op->dbuf, op->dblk + i); e++) {
                const number_t *at = world_element(w, rank, op->dbuf, op->dblk + i, trip, e);

                if (at != NULL && is_sent(w, rank, at))
                    return 1;
            }
        }
    }
    return 0;
}
