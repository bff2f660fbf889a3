/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor's receives into their place: a long message of a RECV goes straight into the RECV's
 * block, without a slot and a copy. The transport must have expect_at (xport.h).
 *
 * The receive is posted before the stream reaches the RECV, so that the message finds a posted
 * receive when it arrives. Once the receive is posted, the block may change at any time. So the
 * receive is posted only when no SEND of any stream still reads this memory (sends.c), and no
 * operation of the stream before the RECV
 *      touches this memory
 *      is a WAIT: perhaps only this WAIT orders an earlier use of the block by another stream
 *      is a node operation, in which other ranks may read this rank's buffers.
 * Memory is compared by address, so it does not matter how blocks and buffers overlap.
 *
 * Receives of a channel are posted in order, up to the first receive whose place is not free. This
 * happens at the beginning, and after each completed receive. If the channel would then have no
 * posted receive, its next receive gets a slot instead of its place. So a channel always has a
 * posted receive for its next message. The channel accepts at least as many messages as with one
 * slot, so the proofs with one credit hold.
 */
#include "exec/exec_inside.h"

enum {
    MOST_POSTED = 4, /* posted receives of a channel */
    LOOK_AHEAD = 64  /* operations; a RECV behind these operations gets a slot */
};

static int is_loop(const tutti__op_t *op)
{
    return op->kind == TUTTI__LOOP || op->kind == TUTTI__END_LOOP;
}

static int has_chunk(const tutti__stream_t *at, const tutti__op_t *op)
{
    return at->trip - op->shift < at->trips;
}

/* Does the operation read or write this memory? */
static int touches(const tutti__run_t *run, const tutti__stream_t *at, const tutti__op_t *op,
                   tutti__span_t place)
{
    int reads = op->kind != TUTTI__RECV, writes = op->kind != TUTTI__SEND;

    for (uint32_t i = 0; i < op->nblk; i++) {
        if (reads &&
            tutti__spans_overlap(tutti__run_chunk(run, at, op, op->sbuf, op->sblk + i), place))
            return 1;
        if (writes &&
            tutti__spans_overlap(tutti__run_chunk(run, at, op, op->dbuf, op->dblk + i), place))
            return 1;
    }
    return 0;
}

/* May the place of the RECV at `to` change from now on, while the stream is still at `from`? */
static int is_free(const tutti__run_t *run, const tutti__stream_t *from, const tutti__stream_t *to,
                   tutti__span_t place)
{
    tutti__stream_t at = *from;

    if (tutti__run_is_sent(run, place))
        return 0;
    while (at.pc != to->pc || at.trip != to->trip) {
        const tutti__op_t *op = &run->sched->ops[at.pc];

        if (is_loop(op)) {
            tutti__run_loop(run, &at, op);
            continue;
        }
        if (has_chunk(&at, op) && (op->kind > TUTTI__REDUCE || touches(run, &at, op, place)))
            return 0;
        at.pc++;
    }
    return 1;
}

static size_t bytes_of(const tutti__run_t *run, const tutti__stream_t *at, const tutti__op_t *op)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < op->nblk; i++)
        bytes += tutti__run_chunk(run, at, op, op->dbuf, op->dblk + i).bytes;
    return bytes;
}

/* Post the receive of the operation at `at`. AGAIN: the receive's place is not free yet. */
static tutti_status_t post(const tutti__run_t *run, const tutti__stream_t *from,
                           const tutti__stream_t *at, const tutti__op_t *op, tutti__end_t *end)
{
    tutti__span_t place = tutti__run_chunk(run, at, op, op->dbuf, op->dblk);
    int is_placed = op->kind == TUTTI__RECV && op->nblk == 1 && place.bytes >= end->least_placed;
    tutti_status_t status;

    if (is_placed && !is_free(run, from, at, place)) {
        if (end->ahead > 0)
            return TUTTI__AGAIN;
        is_placed = 0;
    }
    status = is_placed ? end->ops->expect_at(end->chan, place.ptr, place.bytes)
                       : end->ops->expect(end->chan, 1);
    if (status == TUTTI_OK) {
        end->ahead++;
        end->left--;
    }
    return status;
}

tutti_status_t tutti__run_post(const tutti__run_t *run, const tutti__stream_t *st, uint16_t chan)
{
    tutti__end_t *end = &run->ends[chan];
    uint32_t skip = end->ahead;
    tutti__stream_t at = *st;
    tutti_status_t status = TUTTI_OK;

    for (int i = 0; i < LOOK_AHEAD && end->left > 0 && end->ahead < MOST_POSTED && at.pc < at.end;
         i++) {
        const tutti__op_t *op = &run->sched->ops[at.pc];

        if (is_loop(op)) {
            tutti__run_loop(run, &at, op);
            continue;
        }
        if (has_chunk(&at, op) && (op->kind == TUTTI__RECV || op->kind == TUTTI__RECV_REDUCE) &&
            op->chan == chan && bytes_of(run, &at, op) > 0) {
            if (skip == 0)
                status = post(run, st, &at, op, end);
            else
                skip--;
        }
        if (status != TUTTI_OK)
            break;
        at.pc++;
    }
    if (status != TUTTI_OK && status != TUTTI__AGAIN)
        return status;
    if (end->ahead > 0 || end->left == 0)
        return TUTTI_OK;
    end->ahead++;
    end->left--;
    return end->ops->expect(end->chan, 1);
}
