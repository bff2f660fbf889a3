/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations for the files of this room. */
#ifndef TUTTI__EXEC_EXEC_INSIDE_H
#define TUTTI__EXEC_EXEC_INSIDE_H

#include "exec/exec.h"

#include "base/compiler.h"

#define TUTTI__NO_LOOP UINT32_MAX

typedef struct {
    char *ptr;
    size_t bytes;
} tutti__span_t;

/* The chunk of one block in the current trip of a stream. */
static inline tutti__span_t tutti__run_chunk(const tutti__run_t *run, const tutti__stream_t *st,
                                             const tutti__op_t *op, unsigned buf, uint32_t blk)
{
    const tutti__place_t *place = &run->place[buf];
    const tutti__block_t *block = &place->block[blk];
    size_t skip = (st->trip - op->shift) * st->chunk;

    if (skip >= block->bytes)
        return (tutti__span_t){ place->base, 0 };
    return (tutti__span_t){ place->base + block->begin + (skip & place->mask),
                            TUTTI__MIN(block->bytes - skip, st->chunk) };
}

static inline int tutti__spans_overlap(tutti__span_t a, tutti__span_t b)
{
    return a.bytes > 0 && b.bytes > 0 && a.ptr < b.ptr + b.bytes && b.ptr < a.ptr + a.bytes;
}

static inline size_t tutti__divide_up(size_t n, size_t by)
{
    return n <= by ? n > 0 : n / by + (n % by != 0);
}

/* ---- ends.c: channels ---- */

/* Open this schedule's ends, unless the last run has opened the same ends. The ends of GPU-direct
   messages are opened in every run, because each run assigns their slots anew. */
tutti_status_t tutti__run_open_ends(tutti__run_t *run, const tutti__sched_t *sched);
/* After the ranks have met: pass each receiving end the number of this run's messages. */
tutti_status_t tutti__run_expect(tutti__run_t *run);

/* The number of messages of one operation in the whole run: one per trip with data. */
size_t tutti__run_messages(const tutti__run_t *run, const tutti__op_t *op);

/* Enter, repeat or leave a loop, at the stream's position. */
void tutti__run_loop(const tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op);

/* ---- place.c: receives into their place: into the block itself, without a slot ---- */

/* Post the next receives of a channel whose messages go into their place. st: the stream that
   receives from the channel, at the position of its next operation. */
tutti_status_t tutti__run_post(const tutti__run_t *run, const tutti__stream_t *st, uint16_t chan);

/* ---- sends.c: SENDs that are started and not complete ---- */

/* After a SEND of the stream has started at end `chan`. pending: 1 if the SEND still reads `from`;
   an end has at most one such SEND. OK: the stream goes on. AGAIN: poll end_sends_of. */
tutti_status_t tutti__run_sent(tutti__run_t *run, tutti__stream_t *st, uint32_t chan,
                               tutti__span_t from, int pending, tutti__hint_t *hint);
int tutti__run_is_sent(const tutti__run_t *run, tutti__span_t place);
/* Each of these functions polls SENDs, and returns OK if they are complete, otherwise AGAIN.
      end_sends_of   the SENDs of this stream
      end_sends      the SENDs that read `to`
      end_send_of    the SEND of this end, which must have one
      end_all_sends  all SENDs
      end_sends_to   the SENDs that read a block which the operation writes */
tutti_status_t tutti__run_end_sends_of(tutti__run_t *run, const tutti__stream_t *st,
                                       tutti__hint_t *hint);
tutti_status_t tutti__run_end_sends(tutti__run_t *run, tutti__span_t to, tutti__hint_t *hint);
tutti_status_t tutti__run_end_send_of(tutti__run_t *run, uint32_t chan, tutti__hint_t *hint);
tutti_status_t tutti__run_end_all_sends(tutti__run_t *run, tutti__hint_t *hint);
tutti_status_t tutti__run_end_sends_to(tutti__run_t *run, const tutti__stream_t *st,
                                       const tutti__op_t *op, tutti__hint_t *hint);
/* st: a stream that waits for `peer`. Does this wait also poll the transport of pending SENDs? */
int tutti__run_polls_sends(const tutti__run_t *run, const tutti__stream_t *st, int32_t peer);
/* If all streams are blocked: poll the messages that no stream has polled. polled: 1 if a stream
   has polled the transport of the pending SENDs. Returns AGAIN, or an error. */
tutti_status_t tutti__run_poll_blocked(tutti__run_t *run, int polled, tutti__hint_t *hint);
/* Forget the SENDs of a run that has failed. */
void tutti__run_forget_sends(tutti__run_t *run);

/* May the operation write its blocks now? */
static inline tutti_status_t tutti__run_may_write(tutti__run_t *run, const tutti__stream_t *st,
                                                  const tutti__op_t *op, tutti__hint_t *hint)
{
    if (TUTTI__LIKELY(run->sending == TUTTI__NO_SEND))
        return TUTTI_OK;
    return tutti__run_end_sends_to(run, st, op, hint);
}

/* ---- framed.c: messages with the identity of the call ---- */

/* Execute a SEND, RECV or RECV_REDUCE of a framed run. */
tutti_status_t tutti__run_framed(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                                 tutti__hint_t *hint);

/* ---- wire.c: messages in a wire format ---- */

/* Execute a message operation, COPY or REDUCE of a run with a wire format. */
tutti_status_t tutti__run_wired(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                                tutti__hint_t *hint);

/* ---- on_device.c: calls on device memory ---- */

#define TUTTI__LEAST_CHUNK ((size_t)64) /* bytes; a power of two */

static inline int tutti__run_is_users(unsigned buf)
{
    return buf == TUTTI__IN || buf == TUTTI__OUT;
}

/*
 * Lay out STAGE's blocks, in chunks that are powers of two. All ranks get the same result.
 *
 * message  bytes of one block that a slot can take
 * largest  bytes of the longest block
 * stage    [nblocks], filled in
 */
tutti_status_t tutti__run_lay_out_device(tutti__run_t *run, const tutti__sched_t *sched,
                                         size_t largest, size_t message, tutti__block_t *stage);
/* Set each stream's number of pieces per chunk. Stop streams that must wait for the meeting. */
void tutti__run_start_device(tutti__run_t *run, const tutti__exec_call_t *call);
/* After the ranks have met: start the other streams, and expect messages. */
tutti_status_t tutti__run_live(tutti__run_t *run);
/* Execute a WAIT between streams that may cut chunks differently. */
tutti_status_t tutti__run_wait(const tutti__run_t *run, const tutti__stream_t *st,
                               const tutti__op_t *op);
/* Execute a COPY by the device, from or to device memory. */
tutti_status_t tutti__run_copy(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op);
/* Wait for queued copies: at most TUTTI__QUIESCE_NS. */
void tutti__run_end_copies(const tutti__run_t *run);

/* ---- gpu_direct.c: messages from and to device memory ---- */

/* The value of run->gpu_direct for a call on device memory. Either all ranks get 0, or all ranks
   get numbers above 0, which may differ between ranks. */
tutti_status_t tutti__run_choose_gpu_direct(const tutti__run_t *run, const tutti__sched_t *sched,
                                            const tutti__exec_call_t *call, uint32_t *ret_credits);
/* Fill in the key of a channel's end; a receiving end gets slots. */
void tutti__run_gpu_direct_key(tutti__run_t *run, const tutti__sched_chan_t *chan,
                               tutti__chan_key_t *key);
/* Execute a message operation, COPY or REDUCE of a GPU-direct run. */
tutti_status_t tutti__run_gpu_direct(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                                     tutti__hint_t *hint);

#endif
