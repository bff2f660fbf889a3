/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For reports: the message that a blocked run waits for, and how many messages of its channel are
 * complete.
 *
 * A run does not count messages. A report computes the number of messages from the operations of
 * the stream, the stream's position, and the sizes of the blocks.
 */
#include "exec/exec_inside.h"

#include <stdio.h>

static int is_message(const tutti__op_t *op)
{
    return op->kind <= TUTTI__RECV_REDUCE;
}

static const tutti__op_t *op_at(const tutti__run_t *run, const tutti__stream_t *st)
{
    return st->pc < st->end ? &run->sched->ops[st->pc] : NULL;
}

uint32_t tutti__run_blocked_at(const tutti__run_t *run, int32_t peer)
{
    uint32_t found = run->sched->nops;

    for (uint32_t s = 0; s < run->sched->nstreams; s++) {
        const tutti__op_t *op = op_at(run, &run->stream[s]);

        if (op == NULL)
            continue;
        if (is_message(op) && run->ends[op->chan].key.peer == (uint32_t)peer)
            return run->stream[s].pc;
        if (found == run->sched->nops)
            found = run->stream[s].pc;
    }
    return found;
}

/* ---- counting ---- */

static int is_in_loop(const tutti__run_t *run, const tutti__stream_t *st, uint32_t i)
{
    if (st->loop == TUTTI__NO_LOOP || i < st->loop)
        return 0;
    for (uint32_t k = st->loop; k < i; k++)
        if (run->sched->ops[k].kind == TUTTI__END_LOOP)
            return 0;
    return 1;
}

/* The number of complete messages of operation i. all: the number of its messages in the run. */
static size_t complete(const tutti__run_t *run, const tutti__stream_t *st, uint32_t i, size_t all)
{
    size_t trips = st->trip + (i < st->pc), shift = run->sched->ops[i].shift;

    if (!is_in_loop(run, st, i))
        return i < st->pc ? all : 0;
    return trips > shift ? TUTTI__MIN(trips - shift, all) : 0;
}

/* Count the messages of a stream in one channel. */
static void count(const tutti__run_t *run, const tutti__stream_t *st, uint16_t chan,
                  tutti__run_wait_t *wait)
{
    uint32_t first = run->sched->first[st - run->stream];

    for (uint32_t i = first; i < st->end; i++) {
        const tutti__op_t *op = &run->sched->ops[i];
        size_t all;

        if (!is_message(op) || op->chan != chan)
            continue;
        all = tutti__run_messages(run, op);
        wait->messages += all;
        wait->complete += complete(run, st, i, all);
    }
}

static size_t bytes_of(const tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op)
{
    int sends = op->kind == TUTTI__SEND;
    size_t bytes = 0;

    if (run->frame != NULL)
        return sizeof(*run->frame) + run->frame->bytes;
    for (uint32_t i = 0; i < op->nblk; i++)
        bytes += tutti__run_chunk(run, st, op, sends ? op->sbuf : op->dbuf,
                                  (sends ? op->sblk : op->dblk) + i)
                     .bytes;
    return bytes;
}

int tutti__run_awaits(const tutti__run_t *run, int32_t peer, tutti__run_wait_t *ret_wait)
{
    if (run->sched == NULL || run->meeting || peer < 0)
        return 0;
    for (uint32_t s = 0; s < run->sched->nstreams; s++) {
        const tutti__stream_t *st = &run->stream[s];
        const tutti__op_t *op = op_at(run, st);

        if (op == NULL || !is_message(op) || run->ends[op->chan].key.peer != (uint32_t)peer)
            continue;
        *ret_wait = (tutti__run_wait_t){ .is_recv = op->kind != TUTTI__SEND,
                                         .step = st->pc,
                                         .steps = run->sched->nops,
                                         .bytes = bytes_of(run, st, op) };
        count(run, st, op->chan, ret_wait);
        if (!ret_wait->is_recv && !st->started && run->ends[op->chan].sent_bytes > 0) {
            /* The operation waits for the previous SEND of its channel. */
            ret_wait->bytes = run->ends[op->chan].sent_bytes;
            ret_wait->complete--;
        }
        return 1;
    }
    return 0;
}

void tutti__run_awaits_text(const tutti__run_t *run, int32_t peer, char *text, size_t bytes)
{
    tutti__run_wait_t wait;

    text[0] = '\0';
    if (!tutti__run_awaits(run, peer, &wait))
        return;
    snprintf(text, bytes, ": %zu of %zu messages %s; step %u of %u %s %zu bytes", wait.complete,
             wait.messages, wait.is_recv ? "from it have come" : "to it have gone", wait.step + 1,
             wait.steps, wait.is_recv ? "waits for" : "has", wait.bytes);
}
