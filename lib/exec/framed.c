/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor with framed messages: each message carries the identity of the sender's call, and
 * the call's data if it has any. All ranks run the same schedule, in place, on one frame. The ranks
 * may have different calls, because the frame contains its own length.
 *
 *      SEND         the frame
 *      RECV_REDUCE  if both frames have the same identity, reduce the data; otherwise mark this
 *                   rank's frame as different, and drop its data
 *      RECV         the same, but copy the data
 *
 * If a rank receives a frame that is marked as different, it marks its own frame. If the first and
 * the last rank on a path of messages have different calls, two neighbours on this path have
 * different calls. The receiving neighbour marks its frame, and the mark reaches the end of the
 * path. In an allreduce such a path leads from each rank to each other rank. The checker proves
 * this for the schedules that carry frames (TUTTI__COMPARED_IN_FRAMES in sched/check.h).
 */
#include "exec/exec_inside.h"

#include "base/status.h"

#include <assert.h>
#include <string.h>

static tutti__span_t span_of(const tutti__run_t *run)
{
    return (tutti__span_t){ (char *)run->frame, sizeof(*run->frame) + run->frame->bytes };
}

static tutti_status_t send_frame(tutti__run_t *run, tutti__stream_t *st, uint32_t chan,
                                 tutti__hint_t *hint)
{
    const tutti__end_t *end = &run->ends[chan];
    tutti__span_t frame = span_of(run);
    int pending = 0;
    tutti_status_t status = TUTTI_OK;

    if (st->started)
        return tutti__run_end_sends_of(run, st, hint);
    if (end->sent_bytes > 0)
        status = tutti__run_end_send_of(run, chan, hint);
    if (status == TUTTI_OK)
        status = end->ops->send(end->chan, frame.ptr, frame.bytes, run->signature, &pending, hint);
    if (status != TUTTI_OK || (!pending && run->sending == TUTTI__NO_SEND))
        return status;
    return tutti__run_sent(run, st, chan, frame, pending, hint);
}

/* A peer may be in a call that sends no frames, such as a message between two ranks. */
static tutti_status_t check(const tutti__end_t *end, const tutti__frame_t *came)
{
    size_t length = end->ops->length(end->chan);

    if (length >= sizeof(*came) && length == sizeof(*came) + came->bytes)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_MISMATCH,
                       "rank %u sent %zu bytes of a message between two ranks where this rank is "
                       "in a collective call",
                       end->key.peer, length);
}

static void merge(const tutti__run_t *run, const tutti__op_t *op, const tutti__frame_t *came)
{
    tutti__frame_t *mine = run->frame;
    uint32_t divisor = op->flags & TUTTI__FINISH ? run->divisor : 0;
    const void *srcs[2] = { mine + 1, came + 1 };

    if (mine->differs || came->differs || came->identity != mine->identity ||
        came->bytes != mine->bytes) {
        mine->differs = 1;
        mine->bytes = 0;
        return;
    }
    if (mine->bytes == 0)
        return;
    if (op->kind == TUTTI__RECV) {
        memcpy(mine + 1, came + 1, mine->bytes);
        return;
    }
    if (op->flags & TUTTI__LEFT) {
        srcs[0] = came + 1;
        srcs[1] = mine + 1;
    }
    tutti__reduce(&run->reducer, mine + 1, srcs, 2, mine->bytes >> run->eshift, divisor);
}

tutti_status_t tutti__run_framed(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                                 tutti__hint_t *hint)
{
    const tutti__end_t *end = &run->ends[op->chan];
    const void *came;
    tutti_status_t status;

    assert(op->kind <= TUTTI__RECV_REDUCE && op->nblk == 1 && !end->is_placing);
    if (op->kind == TUTTI__SEND)
        return send_frame(run, st, op->chan, hint);
    status = end->ops->view(end->chan, TUTTI__ANY_BYTES, run->signature, &came, hint);
    if (status == TUTTI_OK)
        status = check(end, came);
    if (status == TUTTI_OK && run->sending != TUTTI__NO_SEND)
        status = tutti__run_end_sends(run, span_of(run), hint);
    if (status != TUTTI_OK)
        return status;
    merge(run, op, came);
    end->ops->release(end->chan);
    return TUTTI_OK;
}
