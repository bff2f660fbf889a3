/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor's SENDs that are started and not complete: the transport still reads the block, as
 * in a rendezvous, or while a socket is full.
 *
 * The stream of such a SEND goes on if its next operation is a SEND, or if the transport needs no
 * polls of the sender (sends_alone). Otherwise the stream waits for the SEND. If the stream has
 * gone on, only the following steps wait for the SEND:
 *      an operation of any stream that writes the block
 *      the next SEND of the channel: a channel has one message in flight
 *      a SEND of several blocks, if the memory into which it packs is still being sent
 *      the end of the run
 * A receive waits for SENDs only after its message has arrived, so ranks that exchange blocks do
 * not wait for each other. check_sends.c proves all schedules with these waits and without slots.
 *
 * Tried: always go on. Over TCP a rendezvous, or a full socket, needs polls of the sender, and a
 * stream does not poll during a reduction: docs/decisions.md has the figures.
 *
 * A run compares memory by address, so it does not matter how blocks and buffers overlap. Rejected:
 * compare when a schedule is built. In a loop, addresses depend on the trip, on shifts and on the
 * call (in place or not). Most SENDs are complete at once, and need no comparison. If an operation
 * of another stream writes the block, a WAIT orders this operation after the start of the SEND. So
 * the SEND is already in the list run->sending, with which the operation's block is compared.
 *
 * On device memory each stream waits for its SEND, because the device writes STAGE asynchronously.
 */
#include "exec/exec_inside.h"

static void note(tutti__run_t *run, uint32_t chan, tutti__span_t from)
{
    tutti__end_t *end = &run->ends[chan];
    int is_first = run->sending == TUTTI__NO_SEND;

    end->sent = from.ptr;
    end->sent_bytes = from.bytes;
    end->next_sending = run->sending;
    run->sending = chan;
    /* The list is searched only if memory overlaps this range. */
    run->sent_from = is_first ? from.ptr : TUTTI__MIN(run->sent_from, from.ptr);
    run->sent_upto =
        is_first ? from.ptr + from.bytes : TUTTI__MAX(run->sent_upto, from.ptr + from.bytes);
}

/* Poll the SEND at *link; if it is complete, remove it from the list. */
static tutti_status_t poll(tutti__run_t *run, uint32_t *link, tutti__hint_t *hint)
{
    tutti__end_t *end = &run->ends[*link];
    tutti_status_t status = end->ops->flush(end->chan, hint);

    if (status != TUTTI_OK)
        return status;
    *link = end->next_sending;
    end->sent_bytes = 0;
    run->moves++;
    return TUTTI_OK;
}

tutti_status_t tutti__run_end_sends_of(tutti__run_t *run, const tutti__stream_t *st,
                                       tutti__hint_t *hint)
{
    uint32_t *link = &run->sending;

    while (*link != TUTTI__NO_SEND) {
        tutti__end_t *end = &run->ends[*link];

        if (end->key.stream == st - run->stream) {
            tutti_status_t status = poll(run, link, hint);

            if (status != TUTTI_OK)
                return status;
        } else {
            link = &end->next_sending;
        }
    }
    return TUTTI_OK;
}

/* Does the stream go on after this SEND? See the head of this file. */
static int goes_on(const tutti__run_t *run, const tutti__stream_t *st, uint32_t peer)
{
    const tutti__op_t *next = &run->sched->ops[st->pc + 1];

    return run->env->xport[peer]->sends_alone ||
           (st->pc + 1 < st->end && next->kind == TUTTI__SEND);
}

tutti_status_t tutti__run_sent(tutti__run_t *run, tutti__stream_t *st, uint32_t chan,
                               tutti__span_t from, int pending, tutti__hint_t *hint)
{
    if (pending)
        note(run, chan, from);
    if (goes_on(run, st, run->ends[chan].key.peer))
        return TUTTI_OK;
    st->started = 1;
    return tutti__run_end_sends_of(run, st, hint);
}

int tutti__run_is_sent(const tutti__run_t *run, tutti__span_t place)
{
    const tutti__end_t *end;

    for (uint32_t i = run->sending; i != TUTTI__NO_SEND; i = end->next_sending) {
        end = &run->ends[i];
        if (tutti__spans_overlap((tutti__span_t){ end->sent, end->sent_bytes }, place))
            return 1;
    }
    return 0;
}

tutti_status_t tutti__run_end_sends(tutti__run_t *run, tutti__span_t to, tutti__hint_t *hint)
{
    uint32_t *link = &run->sending;

    if (to.bytes == 0 || to.ptr >= run->sent_upto || to.ptr + to.bytes <= run->sent_from)
        return TUTTI_OK;
    while (*link != TUTTI__NO_SEND) {
        tutti__end_t *end = &run->ends[*link];

        if (tutti__spans_overlap((tutti__span_t){ end->sent, end->sent_bytes }, to)) {
            tutti_status_t status = poll(run, link, hint);

            if (status != TUTTI_OK)
                return status;
        } else {
            link = &end->next_sending;
        }
    }
    return TUTTI_OK;
}

tutti_status_t tutti__run_end_send_of(tutti__run_t *run, uint32_t chan, tutti__hint_t *hint)
{
    uint32_t *link = &run->sending;

    while (*link != chan)
        link = &run->ends[*link].next_sending;
    return poll(run, link, hint);
}

tutti_status_t tutti__run_end_all_sends(tutti__run_t *run, tutti__hint_t *hint)
{
    tutti_status_t status = TUTTI_OK;

    while (run->sending != TUTTI__NO_SEND && status == TUTTI_OK)
        status = poll(run, &run->sending, hint);
    return status;
}

tutti_status_t tutti__run_end_sends_to(tutti__run_t *run, const tutti__stream_t *st,
                                       const tutti__op_t *op, tutti__hint_t *hint)
{
    tutti_status_t status = TUTTI_OK;

    /* In a node operation, some ranks may have no destination. */
    for (uint32_t i = 0;
         i < op->nblk * op->nparts && run->place[op->dbuf].base != NULL && status == TUTTI_OK; i++)
        status =
            tutti__run_end_sends(run, tutti__run_chunk(run, st, op, op->dbuf, op->dblk + i), hint);
    return status;
}

/* A stream at a node operation polls words in shared memory, and no transport. */
int tutti__run_polls_sends(const tutti__run_t *run, const tutti__stream_t *st, int32_t peer)
{
    tutti__xport_t *const *xport = run->env->xport;

    return run->sending != TUTTI__NO_SEND && peer >= 0 &&
           run->sched->ops[st->pc].kind <= TUTTI__RECV_REDUCE &&
           xport[peer] == xport[run->ends[run->sending].key.peer];
}

/* Advance the messages of the transport between hosts, if the schedule uses this transport. */
static tutti_status_t poll_far(const tutti__run_t *run, tutti__hint_t *hint)
{
    for (uint32_t i = 0; i < run->sched->nchans; i++) {
        tutti__xport_t *xport = run->env->xport[run->sched->chans[i].peer];

        if (xport->ops->progress == NULL)
            continue;
        hint->word = NULL; /* the next poll must be soon */
        return xport->ops->progress(xport);
    }
    return TUTTI_OK;
}

tutti_status_t tutti__run_poll_blocked(tutti__run_t *run, int polled, tutti__hint_t *hint)
{
    tutti_status_t status = TUTTI_OK;
    tutti__hint_t unused;

    if (run->sending != TUTTI__NO_SEND && !polled) {
        status = poll(run, &run->sending, &unused);
        hint->word = NULL; /* the SENDs need more polls */
    }
    /* Over MPI a peer's SEND is complete only when this rank polls, even if the receive is posted.
       With a schedule from a file, this rank may wait in shared memory for a rank that waits for
       the peer. The library's own schedules have no such circle: each wait is for an earlier round
       or trip. */
    if ((status == TUTTI_OK || status == TUTTI__AGAIN) && run->sched->is_read)
        status = poll_far(run, hint);
    return status == TUTTI_OK ? TUTTI__AGAIN : status;
}

void tutti__run_forget_sends(tutti__run_t *run)
{
    for (uint32_t i = run->sending; i != TUTTI__NO_SEND; i = run->ends[i].next_sending)
        run->ends[i].sent_bytes = 0;
    run->sending = TUTTI__NO_SEND;
}
