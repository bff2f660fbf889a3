/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor with framed messages: each message carries the identity of the sender's call, and
 * the data only if the call has some. All ranks run the same schedule, in place, on one frame, even
 * if their calls differ: a frame tells its own length.
 *
 *      SEND         the frame
 *      RECV_REDUCE  if both frames have the same identity, reduce the data; otherwise the frame
 *                   differs from now on, and has no data any more
 *      RECV         the same, but the data arrive as they are
 *
 * If a received frame differs, the receiver's frame differs as well. If the first and the last rank
 * on a path of messages have different calls, two neighbours on it do. The receiving neighbour
 * finds the difference and passes it on. In an allreduce such a path leads from each rank to each
 * rank.
 */
#include "exec/exec_inside.h"

#include "base/status.h"

#include <assert.h>
#include <string.h>

static tutti_status_t send_frame(const tutti__run_t *run, tutti__stream_t *st,
                                 const tutti__end_t *end, tutti__hint_t *hint)
{
    int pending = 0;
    tutti_status_t status = TUTTI_OK;

    if (!st->started)
        status = end->ops->send(end->chan, run->frame, sizeof(*run->frame) + run->frame->bytes,
                                run->signature, &pending, hint);
    if (status != TUTTI_OK || (!st->started && !pending))
        return status;
    st->started = 1;
    return end->ops->flush(end->chan, hint);
}

/* A peer in another kind of call, as a message between two ranks, may have sent anything. */
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

tutti_status_t tutti__run_framed(const tutti__run_t *run, tutti__stream_t *st,
                                 const tutti__op_t *op, tutti__hint_t *hint)
{
    const tutti__end_t *end = &run->ends[op->chan];
    const void *came;
    tutti_status_t status;

    assert(op->kind <= TUTTI__RECV_REDUCE && op->nblk == 1 && !end->is_placing);
    if (op->kind == TUTTI__SEND)
        return send_frame(run, st, end, hint);
    status = end->ops->view(end->chan, TUTTI__ANY_BYTES, run->signature, &came, hint);
    if (status == TUTTI_OK)
        status = check(end, came);
    if (status != TUTTI_OK)
        return status;
    merge(run, op, came);
    end->ops->release(end->chan);
    return TUTTI_OK;
}
