/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker's messages without slots (zero credits). A SEND starts, and its stream continues; the
 * message stays in the sender's blocks until the receiver has reached the receiving operation. An
 * operation that overwrites one of these blocks, in any stream of the rank, waits until then, as in
 * the executor (exec/sends.c). In the executor the end of a rank also waits for the rank's
 * messages. The checker needs no such wait, because a message that is never received is an error.
 *
 * When a stream reaches a receive, it takes the message at once, even if the destination still
 * holds a message to send: a transport can receive into other memory. Otherwise two ranks that send
 * a block to each other, and then receive into the same block, would wait for each other.
 *
 * If IN and OUT are separate, a message that was sent from IN occupies no cell: IN is never
 * written.
 */
#include "sched/check_run.h"

static int is_cell(const tutti__check_run_t *run, uint32_t rank, unsigned buf, uint32_t blk)
{
    return buf != TUTTI__IN || tutti__blocks_hold(run->places[rank].alias, blk);
}

/* Add n to run->sending of each cell that this message occupies. UINT32_MAX for n subtracts 1. */
static void hold(tutti__check_run_t *run, uint32_t rank, const tutti__message_t *message,
                 uint32_t n)
{
    for (uint32_t i = 0; i < message->nblk; i++) {
        if (is_cell(run, rank, message->buf, message->blk + i))
            run->sending[tutti__cell_index(run, rank, message->buf, message->blk + i,
                                           message->trip)] += n;
    }
}

void tutti__check_started(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                          const tutti__message_t *message)
{
    if (run->sending != NULL)
        hold(run, stream->rank, message, 1);
}

void tutti__check_taken(tutti__check_run_t *run, tutti__check_chan_t *chan,
                        const tutti__message_t *message)
{
    uint32_t rank = chan->from / TUTTI__SCHED_STREAMS;
    tutti__check_stream_t *stream = &run->streams[rank * TUTTI__SCHED_STREAMS];

    if (chan->is_taken)
        return;
    chan->is_taken = 1;
    hold(run, rank, message, UINT32_MAX);
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++, stream++) {
        if (stream->state == TUTTI__STREAM_ON_SENT)
            tutti__check_wake(run, stream);
    }
}

static uint32_t count_written(const tutti__op_t *op)
{
    return op->kind == TUTTI__SEND || op->kind == TUTTI__WAIT ? 0 : op->nblk * op->nparts;
}

int tutti__check_is_sent(const tutti__check_run_t *run, const tutti__check_stream_t *stream)
{
    const tutti__op_t *op = tutti__check_op(stream);
    uint32_t n = count_written(op);

    for (uint32_t trip = stream->begin; trip < stream->upto; trip++) {
        for (uint32_t i = 0; i < n; i++) {
            if (run->sending[tutti__cell_index(run, stream->rank, op->dbuf, op->dblk + i, trip)])
                return 1;
        }
    }
    return 0;
}

/* Does the stream's operation write a cell of this message? */
static int overwrites(const tutti__check_run_t *run, const tutti__check_stream_t *stream,
                      const tutti__message_t *message)
{
    const tutti__op_t *op = tutti__check_op(stream);
    uint32_t n = count_written(op), rank = stream->rank;

    for (uint32_t trip = stream->begin; trip < stream->upto; trip++) {
        for (uint32_t i = 0; i < n * message->nblk; i++) {
            uint32_t blk = message->blk + i / n;

            if (is_cell(run, rank, message->buf, blk) &&
                tutti__cell_index(run, rank, message->buf, blk, message->trip) ==
                    tutti__cell_index(run, rank, op->dbuf, op->dblk + i % n, trip))
                return 1;
        }
    }
    return 0;
}

/* The search of all channels may take long, but a deadlock is reported only once. */
uint32_t tutti__check_receiver(const tutti__check_run_t *run, const tutti__check_stream_t *stream)
{
    for (uint32_t c = 0; c < run->nchans; c++) {
        const tutti__check_chan_t *chan = &run->chans[c];

        if (chan->from / TUTTI__SCHED_STREAMS != stream->rank)
            continue;
        for (uint32_t i = (uint32_t)chan->is_taken; i < chan->count; i++) {
            size_t message = (size_t)c * run->slots + (chan->head + i) % run->slots;

            if (overwrites(run, stream, &run->messages[message]))
                return chan->to;
        }
    }
    return TUTTI__CHECK_NONE;
}
