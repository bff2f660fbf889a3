/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker's run: executes all streams of all ranks, in any order.
 *
 * Streams with blocking receives and bounded channels are a Kahn process network (Kahn 1974). A
 * bounded channel is a pair of channels: the second one returns free slots. So the order in which
 * streams continue does not change their results, or whether they deadlock. The simplest order
 * suffices: continue a stream until it blocks, and again when its condition holds. The work is
 * proportional to the number of operations. The stream woken last continues first, while its data
 * are in the cache: with 256 ranks in a ring this is twice as fast as round robin.
 *
 * Without credits a message stays in the sender's blocks until it is received. So an operation that
 * overwrites these blocks also waits for the receive (check_sends.c). The receive is an event of
 * another stream, like a message, so the argument above still holds. Without credits a channel has
 * one message in flight. A transport that allows more messages only removes waits.
 *
 * The run assumes that no message is empty. A real call skips empty messages at both ends. So pairs
 * of operations and their waits do not exist in such a call. If a channel has c slots, a SEND waits
 * for the slot of the c-th message before it. If the call skips empty messages in between, the SEND
 * waits for the slot of an earlier message instead. So skipping cannot add a deadlock.
 */
#include "sched/check_run.h"

#include <string.h>

typedef enum {
    FAILED,
    DONE,
    BLOCKED
} outcome_t;

static outcome_t outcome(int ok)
{
    return ok ? DONE : FAILED;
}

void tutti__check_wake(tutti__check_run_t *run, tutti__check_stream_t *stream)
{
    stream->state = TUTTI__STREAM_READY;
    run->ready[run->nready++] = (uint32_t)(stream - run->streams);
}

uint64_t *tutti__check_knows(const tutti__check_run_t *run, const tutti__check_stream_t *stream)
{
    return run->knows + (size_t)(stream - run->streams) * run->words;
}

void tutti__check_learn(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                        const uint64_t *knows)
{
    uint64_t *mine = tutti__check_knows(run, stream);

    for (uint32_t w = 0; w < run->words; w++)
        mine[w] |= knows[w];
}

void tutti__check_complete(tutti__check_run_t *run, tutti__check_stream_t *stream)
{
    const tutti__op_t *op = tutti__check_op(stream);
    tutti__check_stream_t *mate = stream - stream->stream;

    stream->pc++;
    stream->clock[stream->stream]++;
    if (!(op->flags & TUTTI__MARK) || stream->all_marks == 0)
        return;
    memcpy(stream->marks[stream->nmarks++].clock, stream->clock, sizeof(stream->clock));
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++, mate++) {
        if (mate->state == TUTTI__STREAM_ON_WAIT && tutti__check_op(mate)->stream == stream->stream)
            tutti__check_wake(run, mate);
    }
}

static tutti__check_chan_t *chan_of(const tutti__check_run_t *run,
                                    const tutti__check_stream_t *stream)
{
    const tutti__op_t *op = tutti__check_op(stream);

    return &run->chans[run->chan_of[run->chan_first[stream->rank] + op->chan]];
}

static outcome_t block_on(const tutti__check_run_t *run, tutti__check_stream_t *stream,
                          tutti__stream_state_t state, const tutti__check_chan_t *chan)
{
    stream->state = state;
    stream->on = (uint32_t)(chan - run->chans);
    return BLOCKED;
}

static outcome_t block_on_sent(tutti__check_stream_t *stream)
{
    stream->state = TUTTI__STREAM_ON_SENT;
    return BLOCKED;
}

/* Wake stream `other`, at the other end, if it waits for this channel. */
static void nudge(tutti__check_run_t *run, uint32_t other, tutti__stream_state_t state,
                  const tutti__check_chan_t *chan)
{
    tutti__check_stream_t *stream;

    if (other == TUTTI__CHECK_NONE)
        return;
    stream = &run->streams[other];
    if (stream->state == state && stream->on == (uint32_t)(chan - run->chans))
        tutti__check_wake(run, stream);
}

/* The slot `nth` places after the channel's first message. */
static uint32_t slot_of(const tutti__check_run_t *run, const tutti__check_chan_t *chan,
                        uint32_t nth)
{
    uint32_t slot = chan->head + nth;

    return slot < run->slots ? slot : slot - run->slots;
}

static size_t message_at(const tutti__check_run_t *run, const tutti__check_chan_t *chan,
                         uint32_t slot)
{
    return (size_t)(chan - run->chans) * run->slots + slot;
}

static tutti__value_t *values_at(const tutti__check_run_t *run, const tutti__check_chan_t *chan,
                                 uint32_t slot)
{
    return run->values + chan->first_value + (size_t)slot * chan->nblk;
}

static outcome_t do_send(tutti__check_run_t *run, tutti__check_stream_t *stream)
{
    const tutti__op_t *op = tutti__check_op(stream);
    tutti__check_chan_t *chan = chan_of(run, stream);
    uint32_t slot = slot_of(run, chan, chan->count);
    size_t message = message_at(run, chan, slot);
    tutti__value_t *values = values_at(run, chan, slot);

    if (chan->count - (uint32_t)chan->is_taken == run->most)
        return block_on(run, stream, TUTTI__STREAM_ON_SEND, chan);

    run->messages[message] =
        (tutti__message_t){ tutti__check_length(run, stream->rank, op->sbuf, op->sblk), op->sbuf,
                            op->sblk, op->nblk, stream->begin };
    if (!tutti__cells_read(run, stream, op->sbuf, op->sblk, op->nblk, stream->begin, values))
        return FAILED;
    if (run->words > 0)
        memcpy(run->message_knows + message * run->words, tutti__check_knows(run, stream),
               run->words * sizeof(uint64_t));
    chan->count++;
    tutti__check_started(run, stream, &run->messages[message]);
    nudge(run, chan->to, TUTTI__STREAM_ON_RECV, chan);
    return DONE;
}

/* Is the message as long as the receiver expects, for any number of elements? */
static int message_fits(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                        const tutti__message_t *message)
{
    const tutti__op_t *op = tutti__check_op(stream);

    if (message->length == tutti__check_length(run, stream->rank, op->dbuf, op->dblk) &&
        message->nblk == op->nblk && message->trip == stream->begin)
        return 1;
    return tutti__check_blame(run, stream,
                              "the message has %u blocks from %u on of chunk %u, so it may have "
                              "another length",
                              message->nblk, message->blk, message->trip);
}

/* *into = *into (op) arrives; LEFT: arrives (op) *into. */
static int reduce(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                  tutti__value_t *into, const tutti__value_t *arrives)
{
    tutti__value_t left = *arrives;
    int is_left = tutti__check_op(stream)->flags & TUTTI__LEFT;

    if (!tutti__value_reduce(run, stream, is_left ? &left : into, is_left ? into : arrives))
        return 0;
    if (is_left)
        *into = left;
    if (run->check->wire)
        tutti__value_rounded(into);
    return 1;
}

/* Does the current operation's message come from another host? */
static int is_far(const tutti__check_run_t *run, const tutti__check_stream_t *stream)
{
    const uint32_t *host_of = run->check->host_of;
    uint32_t peer = stream->sched->chans[tutti__check_op(stream)->chan].peer;

    return host_of == NULL || host_of[peer] != host_of[stream->rank];
}

/* The values that a RECV writes if its message is in the wire format. */
static const tutti__value_t *widen(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                                   const tutti__value_t *message)
{
    uint32_t nblk = tutti__check_op(stream)->nblk;

    memcpy(run->received, message, nblk * sizeof(*message));
    for (uint32_t i = 0; i < nblk; i++)
        tutti__value_narrow(&run->received[i]);
    return run->received;
}

/* The values that the current operation writes when it receives `message`; NULL after an error. */
static const tutti__value_t *take_message(tutti__check_run_t *run,
                                          const tutti__check_stream_t *stream,
                                          const tutti__value_t *message)
{
    const tutti__op_t *op = tutti__check_op(stream);
    tutti__value_t *values = run->received;

    if (op->kind == TUTTI__RECV)
        return run->check->wire && is_far(run, stream) ? widen(run, stream, message) : message;
    if (!tutti__cells_read(run, stream, op->sbuf, op->sblk, op->nblk, stream->begin, values))
        return NULL;
    for (uint32_t i = 0; i < op->nblk; i++) {
        if (!reduce(run, stream, &values[i], &message[i]))
            return NULL;
        if ((op->flags & TUTTI__FINISH) && !tutti__value_finish(run, stream, &values[i], 1))
            return NULL;
    }
    return values;
}

static outcome_t do_recv(tutti__check_run_t *run, tutti__check_stream_t *stream)
{
    const tutti__op_t *op = tutti__check_op(stream);
    tutti__check_chan_t *chan = chan_of(run, stream);
    uint32_t slot = slot_of(run, chan, 0);
    size_t message = message_at(run, chan, slot);
    const tutti__value_t *values;

    if (chan->count == 0)
        return block_on(run, stream, TUTTI__STREAM_ON_RECV, chan);
    if (!message_fits(run, stream, &run->messages[message]))
        return FAILED;
    if (run->sending != NULL) {
        tutti__check_taken(run, chan, &run->messages[message]);
        nudge(run, chan->from, TUTTI__STREAM_ON_SEND, chan);
        if (tutti__check_is_sent(run, stream))
            return block_on_sent(stream);
    }
    values = take_message(run, stream, values_at(run, chan, slot));
    if (values == NULL ||
        !tutti__cells_write(run, stream, op->dbuf, op->dblk, op->nblk, stream->begin, values))
        return FAILED;
    if (run->words > 0)
        tutti__check_learn(run, stream, run->message_knows + message * run->words);
    chan->head = slot_of(run, chan, 1);
    chan->count--;
    chan->is_taken = 0;
    nudge(run, chan->from, TUTTI__STREAM_ON_SEND, chan);
    return DONE;
}

/* Execute a COPY or REDUCE for one block's chunk. */
static int move_chunk(tutti__check_run_t *run, const tutti__check_stream_t *stream, uint32_t i,
                      uint32_t trip)
{
    const tutti__op_t *op = tutti__check_op(stream);
    tutti__value_t value, arrives;

    if (!tutti__cells_read(run, stream, op->sbuf, op->sblk + i, 1, trip, &value))
        return 0;
    if (op->kind == TUTTI__REDUCE) {
        arrives = value;
        if (!tutti__cells_read(run, stream, op->dbuf, op->dblk + i, 1, trip, &value) ||
            !reduce(run, stream, &value, &arrives))
            return 0;
    }
    if ((op->flags & TUTTI__FINISH) &&
        !tutti__value_finish(run, stream, &value, op->kind == TUTTI__REDUCE))
        return 0;
    return tutti__cells_write(run, stream, op->dbuf, op->dblk + i, 1, trip, &value);
}

static outcome_t do_move(tutti__check_run_t *run, const tutti__check_stream_t *stream)
{
    const tutti__op_t *op = tutti__check_op(stream);

    if (tutti__check_length(run, stream->rank, op->sbuf, op->sblk) !=
        tutti__check_length(run, stream->rank, op->dbuf, op->dblk))
        return outcome(
            tutti__check_blame(run, stream, "source and destination may have different sizes"));
    for (uint32_t i = 0; i < op->nblk; i++) {
        if (!tutti__cells_have_met(run, stream, op->dbuf, op->dblk + i))
            return FAILED;
    }
    for (uint32_t trip = stream->begin; trip < stream->upto; trip++) {
        for (uint32_t i = 0; i < op->nblk; i++) {
            if (!move_chunk(run, stream, i, trip))
                return FAILED;
        }
    }
    return DONE;
}

/*
 * A WAIT orders its stream after the awaited mark only. Marks that the other stream has made later
 * do not count, because their number depends on timing. A mark does not carry `knows`, the set of
 * ranks that have begun. So the checker refuses some correct barriers: those in which a stream
 * depends on a rank's begin only through a WAIT, and other ranks only through the stream's
 * messages.
 */
static outcome_t do_wait(tutti__check_run_t *run, tutti__check_stream_t *stream)
{
    const tutti__op_t *op = tutti__check_op(stream);
    const tutti__check_stream_t *mate = stream - stream->stream + op->stream;
    uint64_t need = (uint64_t)op->arg;

    if (stream->trips > 0)
        need += (uint64_t)stream->begin * stream->sched->marks[op->stream];
    if (need > mate->all_marks)
        return outcome(tutti__check_blame(run, stream,
                                          "waits for mark %llu of stream %u, which makes %u",
                                          (unsigned long long)need, op->stream, mate->all_marks));
    if (need > mate->nmarks) {
        stream->state = TUTTI__STREAM_ON_WAIT;
        return BLOCKED;
    }
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++) {
        stream->clock[s] = TUTTI__MAX(stream->clock[s], mate->marks[need - 1].clock[s]);
    }
    return DONE;
}

/* The last rank of the host that arrives executes the operation for all ranks of the host. */
static outcome_t do_node(tutti__check_run_t *run, tutti__check_stream_t *stream)
{
    tutti__check_host_t *host;

    if (run->hosts == NULL)
        return outcome(tutti__check_blame(run, stream, "a node operation, but no hosts"));
    host = &run->hosts[run->scope == TUTTI__SCOPE_ALL ? 0 : run->check->host_of[stream->rank]];
    stream->state = TUTTI__STREAM_ON_NODE;
    if (++host->arrived < host->nranks)
        return BLOCKED;

    host->arrived = 0;
    if (!tutti__check_node(run, host))
        return FAILED;
    stream->state = TUTTI__STREAM_READY;
    for (uint32_t i = 0; i < host->nranks; i++) {
        tutti__check_stream_t *mate =
            &run->streams[run->members[host->first + i] * TUTTI__SCHED_STREAMS];

        if (mate != stream) {
            tutti__check_complete(run, mate);
            tutti__check_wake(run, mate);
        }
    }
    return DONE;
}

/* Can the executor do this operation on frames? */
static int fits_frame(const tutti__check_run_t *run, const tutti__op_t *op)
{
    int is_message = op->kind <= TUTTI__RECV_REDUCE;

    return op->kind == TUTTI__WAIT || (is_message && run->nblocks == 1 &&
                                       op->sbuf != TUTTI__SCRATCH && op->dbuf != TUTTI__SCRATCH);
}

static outcome_t do_op(tutti__check_run_t *run, tutti__check_stream_t *stream)
{
    uint8_t kind = tutti__check_op(stream)->kind;

    if (run->check->compared == TUTTI__COMPARED_IN_FRAMES &&
        !fits_frame(run, tutti__check_op(stream)))
        return outcome(tutti__check_blame(
            run, stream, "is no message of the call's only block, so it cannot move a frame"));
    /* A receive does not wait here, because it takes its message before it waits: see do_recv. */
    if (run->sending != NULL && kind > TUTTI__RECV_REDUCE && tutti__check_is_sent(run, stream))
        return block_on_sent(stream);
    switch (kind) {
    case TUTTI__SEND:
        return do_send(run, stream);
    case TUTTI__RECV:
    case TUTTI__RECV_REDUCE:
        return do_recv(run, stream);
    case TUTTI__COPY:
    case TUTTI__REDUCE:
        return do_move(run, stream);
    case TUTTI__WAIT:
        return do_wait(run, stream);
    default:
        return do_node(run, stream);
    }
}

/* Find the chunks of the current operation. Returns 0 if it has none in this trip. */
static int find_chunks(const tutti__check_run_t *run, tutti__check_stream_t *stream)
{
    uint32_t shift = tutti__check_op(stream)->shift;

    if (stream->trips == 0) {
        stream->begin = 0;
        stream->upto = run->check->trips;
        return 1;
    }
    if (stream->trip < shift || stream->trip - shift >= run->check->trips)
        return 0;
    stream->begin = stream->trip - shift;
    stream->upto = stream->begin + 1;
    return 1;
}

static void do_end_loop(tutti__check_stream_t *stream)
{
    if (++stream->trip < stream->trips) {
        stream->pc = (uint32_t)tutti__check_op(stream)->arg + 1;
        return;
    }
    stream->trips = 0;
    stream->pc++;
}

static int run_stream(tutti__check_run_t *run, tutti__check_stream_t *stream)
{
    while (stream->pc < stream->end) {
        const tutti__op_t *op = tutti__check_op(stream);
        outcome_t out;

        if (op->kind == TUTTI__LOOP) {
            stream->trip = 0;
            stream->trips = run->check->trips + (uint32_t)op->arg;
            stream->pc++;
            continue;
        }
        if (op->kind == TUTTI__END_LOOP) {
            do_end_loop(stream);
            continue;
        }
        if (!find_chunks(run, stream)) {
            stream->pc++;
            continue;
        }
        out = do_op(run, stream);
        if (out != DONE)
            return out == BLOCKED;
        tutti__check_complete(run, stream);
    }
    stream->state = TUTTI__STREAM_ENDED;
    return 1;
}

int tutti__check_go(tutti__check_run_t *run)
{
    uint32_t all = run->check->size * TUTTI__SCHED_STREAMS;
    uint32_t ended = 0;

    for (uint32_t i = all; i > 0; i--)
        tutti__check_wake(run, &run->streams[i - 1]);
    while (run->nready > 0) {
        tutti__check_stream_t *stream = &run->streams[run->ready[--run->nready]];

        if (!run_stream(run, stream))
            return 0;
        ended += stream->state == TUTTI__STREAM_ENDED;
    }
    return ended == all || tutti__check_stuck(run);
}
