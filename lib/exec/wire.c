/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor with a wire format: float32 data go to other hosts in a narrower type.
 *
 *      SEND                 to another host: the block, rounded to the wire format
 *      RECV                 from another host: the message, widened to float32
 *      RECV_REDUCE, REDUCE  both operands are rounded to the wire format, and added in float32
 *      FINISH               the result is rounded to the wire format
 *
 * Node operations do not round: they add the data of a host's ranks in float32.
 *
 * A rounded number stays the same if it is rounded again. So an addition has the same operands on
 * the rank that owns a block and on a rank that has received it. A finished result is passed on
 * without loss. Therefore all ranks get the same bits if their sums have the same association, and
 * the bits do not depend on which messages are narrow. The checker proves this (`wire` in check.h).
 * A contribution is rounded once for each addition on its way to the result, and once by FINISH.
 *
 * Rejected: rounding messages only. If two ranks exchange their blocks, each rank would add its own
 * exact block to the rounded block of its peer, and the two sums would differ. Rejected: CAST
 * operations in the schedules. Each format would need schedules of its own, with blocks of another
 * size.
 *
 * Each sending end has memory for one packed message. So a SEND waits only for the previous SEND of
 * its channel, as the proofs assume. No message is received straight into its block (place.c).
 */
#include "exec/exec_inside.h"

#include <assert.h>
#include <string.h>

/* Elements that are converted at a time. A tile stays in the first-level cache. */
#define TILE 1024

/* Blocks may have any address. Conversions need aligned floats, so a tile is copied first. */
static void narrow(void *to, const char *from, size_t count, tutti_dtype_t wire)
{
    float tile[TILE];
    size_t unit = tutti_dtype_bytes(wire);

    for (size_t i = 0; i < count; i += TILE) {
        size_t here = TUTTI__MIN(count - i, (size_t)TILE);

        memcpy(tile, from + i * sizeof(*tile), here * sizeof(*tile));
        tutti__reduce_narrow((char *)to + i * unit, tile, here, wire);
    }
}

static void widen(char *to, const char *from, size_t count, tutti_dtype_t wire)
{
    float tile[TILE];
    size_t unit = tutti_dtype_bytes(wire);

    for (size_t i = 0; i < count; i += TILE) {
        size_t here = TUTTI__MIN(count - i, (size_t)TILE);

        tutti__reduce_widen(tile, from + i * unit, here, wire);
        memcpy(to + i * sizeof(*tile), tile, here * sizeof(*tile));
    }
}

/* Round `count` elements, at most TILE, to the wire format, in place. */
static void round_tile(float *x, size_t count, tutti_dtype_t wire)
{
    uint16_t code[TILE]; /* an element of a wire format has at most 2 bytes */

    tutti__reduce_narrow(code, x, count, wire);
    tutti__reduce_widen(x, code, count, wire);
}

/* ---- operations ---- */

static int is_far(const tutti__run_t *run, const tutti__op_t *op)
{
    const uint32_t *host_of = run->env->host_of;

    return host_of[run->ends[op->chan].key.peer] != host_of[run->env->rank];
}

/* Bytes of one element in this operation's messages. */
static size_t unit_of(const tutti__run_t *run, const tutti__op_t *op)
{
    return is_far(run, op) ? tutti_dtype_bytes(run->wire) : sizeof(float);
}

/* dst = there + arrives, for at most TILE elements. is_wire: `arrives` is in the wire format. */
static void add_tile(const tutti__run_t *run, const tutti__op_t *op, char *dst, const char *there,
                     const char *arrives, size_t count, int is_wire)
{
    float a[TILE], b[TILE];
    const void *srcs[2] = { a, b };

    memcpy(a, there, count * sizeof(*a));
    round_tile(a, count, run->wire);
    if (is_wire) {
        tutti__reduce_widen(b, arrives, count, run->wire);
    } else {
        memcpy(b, arrives, count * sizeof(*b));
        round_tile(b, count, run->wire);
    }
    tutti__reduce(&run->reducer, a, srcs, 2, count, op->flags & TUTTI__FINISH ? run->divisor : 0);
    if (op->flags & TUTTI__FINISH)
        round_tile(a, count, run->wire);
    memcpy(dst, a, count * sizeof(*a));
}

/* dst = there + arrives. LEFT has no effect, because exchanging the operands changes no bit. */
static void add(const tutti__run_t *run, const tutti__op_t *op, tutti__span_t dst,
                const char *there, const char *arrives, int is_wire)
{
    size_t count = dst.bytes / sizeof(float);
    size_t unit = is_wire ? tutti_dtype_bytes(run->wire) : sizeof(float);

    for (size_t i = 0; i < count; i += TILE)
        add_tile(run, op, dst.ptr + i * sizeof(float), there + i * sizeof(float),
                 arrives + i * unit, TUTTI__MIN(count - i, (size_t)TILE), is_wire);
}

/* Pack the blocks of a SEND into the memory of its end. */
static tutti__span_t pack(const tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op)
{
    char *to = run->packed + op->chan * run->slot_bytes;
    size_t unit = unit_of(run, op), bytes = 0;

    for (uint32_t i = 0; i < op->nblk; i++) {
        tutti__span_t from = tutti__run_chunk(run, st, op, op->sbuf, op->sblk + i);
        size_t count = from.bytes / sizeof(float);

        if (unit < sizeof(float))
            narrow(to + bytes, from.ptr, count, run->wire);
        else if (count > 0)
            memcpy(to + bytes, from.ptr, from.bytes);
        bytes += count * unit;
    }
    return (tutti__span_t){ to, bytes };
}

static tutti_status_t send(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                           tutti__hint_t *hint)
{
    const tutti__end_t *end = &run->ends[op->chan];
    int pending = 0;
    tutti_status_t status = TUTTI_OK;
    tutti__span_t from;

    if (st->started)
        return tutti__run_end_sends_of(run, st, hint);
    if (end->sent_bytes > 0)
        status = tutti__run_end_send_of(run, op->chan, hint);
    if (status != TUTTI_OK)
        return status;
    from = op->nblk > 1 || is_far(run, op) ? pack(run, st, op)
                                           : tutti__run_chunk(run, st, op, op->sbuf, op->sblk);
    if (from.bytes == 0)
        return TUTTI_OK;
    status = end->ops->send(end->chan, from.ptr, from.bytes, run->signature, &pending, hint);
    if (status != TUTTI_OK || (!pending && run->sending == TUTTI__NO_SEND))
        return status;
    return tutti__run_sent(run, st, op->chan, from, pending, hint);
}

/* Write a received message into the operation's blocks. */
static void take(const tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op,
                 const char *data)
{
    int is_wire = is_far(run, op);
    size_t unit = unit_of(run, op);

    for (uint32_t i = 0; i < op->nblk; i++) {
        tutti__span_t dst = tutti__run_chunk(run, st, op, op->dbuf, op->dblk + i);
        size_t count = dst.bytes / sizeof(float);

        if (op->kind == TUTTI__RECV_REDUCE)
            add(run, op, dst, tutti__run_chunk(run, st, op, op->sbuf, op->sblk + i).ptr, data,
                is_wire);
        else if (is_wire)
            widen(dst.ptr, data, count, run->wire);
        else if (count > 0)
            memcpy(dst.ptr, data, dst.bytes);
        data += count * unit;
    }
}

static tutti_status_t receive(tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op,
                              tutti__hint_t *hint)
{
    const tutti__end_t *end = &run->ends[op->chan];
    size_t bytes = 0;
    const void *data;
    tutti_status_t status;

    assert(!end->is_placing);
    for (uint32_t i = 0; i < op->nblk; i++)
        bytes += tutti__run_chunk(run, st, op, op->dbuf, op->dblk + i).bytes;
    if (bytes == 0)
        return TUTTI_OK;
    status = end->ops->view(end->chan, bytes / sizeof(float) * unit_of(run, op), run->signature,
                            &data, hint);
    if (status == TUTTI_OK)
        status = tutti__run_may_write(run, st, op, hint);
    if (status != TUTTI_OK)
        return status;
    take(run, st, op, data);
    end->ops->release(end->chan);
    return TUTTI_OK;
}

/* Execute a COPY or a REDUCE. */
static tutti_status_t local(tutti__run_t *run, const tutti__stream_t *st, const tutti__op_t *op,
                            tutti__hint_t *hint)
{
    tutti_status_t status = tutti__run_may_write(run, st, op, hint);

    /* No COPY has FINISH here. Only schedules for one rank and schedules of scans have such a COPY
       (sched.h), and these schedules have no wire format. */
    assert(op->kind == TUTTI__REDUCE || !(op->flags & TUTTI__FINISH));
    for (uint32_t i = 0; i < op->nblk && status == TUTTI_OK; i++) {
        tutti__span_t dst = tutti__run_chunk(run, st, op, op->dbuf, op->dblk + i);
        tutti__span_t src = tutti__run_chunk(run, st, op, op->sbuf, op->sblk + i);

        if (op->kind == TUTTI__REDUCE)
            add(run, op, dst, dst.ptr, src.ptr, 0);
        else if (dst.bytes > 0 && dst.ptr != src.ptr)
            memcpy(dst.ptr, src.ptr, dst.bytes);
    }
    return status;
}

tutti_status_t tutti__run_wired(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                                tutti__hint_t *hint)
{
    switch (op->kind) {
    case TUTTI__SEND:
        return send(run, st, op, hint);
    case TUTTI__RECV:
    case TUTTI__RECV_REDUCE:
        return receive(run, st, op, hint);
    default:
        return local(run, st, op, hint);
    }
}
