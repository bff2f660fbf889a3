/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker's memory: symbolic values, the cells that hold them, and the order of accesses.
 *
 * A contribution (rank, block, chunk) has a pseudo-random 64-bit label. The sum of labels
 * identifies the contributions of a value: two different multisets have the same sum with
 * probability 2^-64. A value's tree is a hash of the expression that combines the ranks' operands;
 * it does not contain block numbers. The order of an addition's two operands does not change the
 * hash, because reduce/ promises that exchanging the operands changes no bit. Another grouping of
 * operands may change bits, and changes the hash. User-defined operations need not commute. So
 * where the order matters, a value also has its range of ranks, and two values may be combined only
 * if their ranges are neighbours in the right order.
 *
 * With a wire format, these values are rounded: messages to another host, the operands of additions
 * outside of node operations, and finished sums. So additions with and without rounding give
 * different trees. A value that was received in the wire format and is not finished is marked as
 * narrowed. An addition that rounds its operands gives the same result for the narrowed value as
 * for the value that was sent. A node operation does not round operands: its result differs.
 *
 * A sum is rounded to its type where it is stored. If a later copy divided the sum for an average,
 * the copy would round a second time. The result would have other bits than on ranks that divide
 * while they add. So the operation that makes the last addition must finish the sum. In a scan a
 * copy may finish the sum: scans have no average, and the data for other ranks must be unfinished.
 *
 * A cell is one chunk of one block of one rank's buffer. If two streams access a cell, and one
 * access is a write, WAIT must order the two accesses. Vector clocks (Fidge 1988, Mattern 1989)
 * detect violations. As in FastTrack (Flanagan, Freund 2009), a cell has the clock of its last
 * write, and of each stream's last read. Messages through another rank would also order streams.
 * But a real call skips empty messages, so here no message counts as an order.
 *
 * The same clocks show that a rank has met all ranks before it writes to OUT (check.h,
 * TUTTI__COMPARED_ON_HOST). For each rank and each length of blocks, `met` has the clock of the
 * rank's first node operation on a block of this length; 0: none yet. This is a clock of stream 0,
 * which has all node operations.
 */
#include "sched/check_run.h"

/* The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection that spreads every bit. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

tutti__value_t tutti__value_leaf(uint32_t rank, uint32_t blk, uint32_t trip)
{
    uint64_t label = mix(mix((uint64_t)rank << 32 | blk) + trip);

    return (
        tutti__value_t){ label, mix(~(uint64_t)rank), trip, TUTTI__VALUE_WRITTEN, rank, rank + 1 };
}

/* Combine two values, except for their trees. This part is the same for all reductions. */
static int join(tutti__check_run_t *run, const tutti__check_stream_t *stream, tutti__value_t *into,
                const tutti__value_t *right)
{
    if ((into->state | right->state) & TUTTI__VALUE_FINISHED)
        return tutti__check_blame(run, stream, "reduces a value that is finished already");
    if (run->check->ordered && into->hi != right->lo)
        return tutti__check_blame(run, stream,
                                  "puts data of ranks %u to %u left of data of ranks %u to %u: not "
                                  "the order of ranks",
                                  into->lo, into->hi - 1, right->lo, right->hi - 1);
    into->sum += right->sum;
    into->hi = right->hi;
    into->state |= TUTTI__VALUE_SUM;
    return 1;
}

int tutti__value_reduce(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                        tutti__value_t *into, const tutti__value_t *right)
{
    uint64_t low = TUTTI__MIN(right->tree, into->tree), high = TUTTI__MAX(right->tree, into->tree);

    into->tree = mix(mix(low) + high);
    return join(run, stream, into, right);
}

int tutti__value_fuse(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                      tutti__value_t *into, const tutti__value_t *right)
{
    into->tree = mix(mix(~into->tree) ^ right->tree);
    return join(run, stream, into, right);
}

void tutti__value_narrow(tutti__value_t *value)
{
    if (!(value->state & TUTTI__VALUE_FINISHED))
        value->state |= TUTTI__VALUE_NARROWED;
}

void tutti__value_rounded(tutti__value_t *into)
{
    into->tree = mix(into->tree ^ 0xb16);
    into->state &= ~(uint32_t)TUTTI__VALUE_NARROWED;
}

void tutti__value_unrounded(tutti__value_t *value)
{
    if (value->state & TUTTI__VALUE_NARROWED)
        value->tree = mix(value->tree ^ 0xf32);
    value->state &= ~(uint32_t)TUTTI__VALUE_NARROWED;
}

int tutti__value_finish(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                        tutti__value_t *value, int adds)
{
    if (value->state & TUTTI__VALUE_FINISHED)
        return tutti__check_blame(run, stream, "finishes a value that is finished already");
    if (!adds && (value->state & TUTTI__VALUE_SUM) && !tutti__check_is_scan(run->check->expect))
        return tutti__check_blame(run, stream,
                                  "finishes a copy of a sum, which is rounded already: FINISH "
                                  "belongs on the last addition");
    value->state |= TUTTI__VALUE_FINISHED;
    value->tree = mix(value->tree ^ 0xf1);
    return 1;
}

size_t tutti__cell_index(const tutti__check_run_t *run, uint32_t rank, unsigned buf, uint32_t blk,
                         uint32_t trip)
{
    size_t rank_at = rank * run->rank_cells;

    if (buf == TUTTI__SCRATCH)
        return rank_at + run->scratch_at + blk;
    if (buf == TUTTI__STAGE && !run->stage_is_out) {
        rank_at += run->stage_at;
        trip = run->stage_trips > 0 ? trip % run->stage_trips : trip;
    }
    return rank_at + (size_t)trip * run->nblocks + blk;
}

/* Does stream `other`'s operation at `clock` precede the current operation of `stream`? */
static int is_past(const tutti__check_stream_t *stream, uint32_t other, uint32_t clock)
{
    return stream->clock[other] >= clock || other == stream->stream;
}

static int blame_race(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                      const char *does, unsigned buf, uint32_t blk, uint32_t trip,
                      const char *other_does, uint32_t other)
{
    return tutti__check_blame(run, stream,
                              "%s %s[%u] of chunk %u, which stream %u %s: no WAIT orders the two",
                              does, tutti__sched_buf_name(buf), blk, trip, other, other_does);
}

static int note_read(tutti__check_run_t *run, const tutti__check_stream_t *stream, size_t cell,
                     unsigned buf, uint32_t blk, uint32_t trip)
{
    tutti__access_t *access = &run->accesses[cell];

    if (!is_past(stream, access->write_stream, access->write_clock))
        return blame_race(run, stream, "reads", buf, blk, trip, "writes", access->write_stream);
    access->read_clock[stream->stream] = stream->clock[stream->stream] + 1;
    return 1;
}

static int note_write(tutti__check_run_t *run, const tutti__check_stream_t *stream, size_t cell,
                      unsigned buf, uint32_t blk, uint32_t trip)
{
    tutti__access_t *access = &run->accesses[cell];

    if (!is_past(stream, access->write_stream, access->write_clock))
        return blame_race(run, stream, "writes", buf, blk, trip, "writes", access->write_stream);
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++) {
        if (!is_past(stream, s, access->read_clock[s]))
            return blame_race(run, stream, "writes", buf, blk, trip, "reads", s);
    }
    access->write_clock = stream->clock[stream->stream] + 1;
    access->write_stream = stream->stream;
    return 1;
}

/* Read chunks of an IN that is not OUT. Such an IN is never written, so reads need no order. */
static int read_in(tutti__check_run_t *run, const tutti__check_stream_t *stream, uint32_t blk,
                   uint32_t n, uint32_t trip, tutti__value_t *ret_values)
{
    tutti__blocks_t in = run->places[stream->rank].in;

    for (uint32_t i = 0; i < n; i++) {
        if (!tutti__blocks_hold(in, blk + i))
            return tutti__check_blame(run, stream, "reads IN[%u], which this rank does not have",
                                      blk + i);
        ret_values[i] = tutti__value_leaf(stream->rank, blk + i, trip);
    }
    return 1;
}

/* Does this rank have all n blocks from `blk` on? */
static int are_there(tutti__check_run_t *run, const tutti__check_stream_t *stream, const char *does,
                     unsigned buf, uint32_t blk, uint32_t n)
{
    tutti__blocks_t out = run->places[stream->rank].out;

    if (buf == TUTTI__SCRATCH || (buf == TUTTI__STAGE && !run->stage_is_out))
        return 1;
    if (blk >= out.from && blk + n <= out.upto)
        return 1;
    while (tutti__blocks_hold(out, blk))
        blk++;
    return tutti__check_blame(run, stream, "%s %s[%u], which this rank does not have", does,
                              tutti__sched_buf_name(buf), blk);
}

/* Can the cell's content be used? The cell must have been written. A cell of SCRATCH or STAGE must
   not hold the chunk of another trip. */
static int is_usable(tutti__check_run_t *run, const tutti__check_stream_t *stream, unsigned buf,
                     uint32_t blk, uint32_t trip, const tutti__value_t *value)
{
    if (!(value->state & TUTTI__VALUE_WRITTEN))
        return tutti__check_blame(run, stream,
                                  "reads %s[%u] of chunk %u, which nothing has written yet",
                                  tutti__sched_buf_name(buf), blk, trip);
    if (value->trip != trip && run->check->expect != TUTTI__EXPECT_BARRIER)
        return tutti__check_blame(run, stream, "reads %s[%u] for chunk %u, but it holds chunk %u",
                                  tutti__sched_buf_name(buf), blk, trip, value->trip);
    return 1;
}

static int read_cells(tutti__check_run_t *run, const tutti__check_stream_t *stream, unsigned buf,
                      uint32_t blk, uint32_t n, uint32_t trip, tutti__value_t *ret_values)
{
    size_t cell = tutti__cell_index(run, stream->rank, buf, blk, trip);

    if (!are_there(run, stream, "reads", buf, blk, n))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        ret_values[i] = run->cells[cell + i];
        if (!is_usable(run, stream, buf, blk + i, trip, &ret_values[i]))
            return 0;
    }
    for (uint32_t i = 0; i < n && run->accesses != NULL; i++) {
        if (!note_read(run, stream, cell + i, buf, blk + i, trip))
            return 0;
    }
    return 1;
}

int tutti__cells_read(tutti__check_run_t *run, const tutti__check_stream_t *stream, unsigned buf,
                      uint32_t blk, uint32_t n, uint32_t trip, tutti__value_t *ret_values)
{
    tutti__blocks_t alias = run->places[stream->rank].alias;

    if (buf != TUTTI__IN || (blk >= alias.from && blk + n <= alias.upto))
        return read_cells(run, stream, buf, blk, n, trip, ret_values);
    if (blk >= alias.upto || blk + n <= alias.from)
        return read_in(run, stream, blk, n, trip, ret_values);
    for (uint32_t i = 0; i < n; i++) {
        if (!tutti__cells_read(run, stream, buf, blk + i, 1, trip, &ret_values[i]))
            return 0;
    }
    return 1;
}

int tutti__cells_write(tutti__check_run_t *run, const tutti__check_stream_t *stream, unsigned buf,
                       uint32_t blk, uint32_t n, uint32_t trip, const tutti__value_t *values)
{
    size_t cell = tutti__cell_index(run, stream->rank, buf, blk, trip);

    if (!are_there(run, stream, "writes", buf, blk, n))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        run->cells[cell + i] = values[i];
        run->cells[cell + i].trip = trip;
    }
    for (uint32_t i = 0; i < n && run->accesses != NULL; i++) {
        if (!note_write(run, stream, cell + i, buf, blk + i, trip))
            return 0;
    }
    return 1;
}

/* The entry of `met` for this rank and the length of this block. With BY_PAIR several lengths share
   an entry; this is harmless, because such calls are compared before the run. */
static uint32_t *met_at(const tutti__check_run_t *run, uint32_t rank, unsigned buf, uint32_t blk)
{
    uint64_t length = tutti__check_length(run, rank, buf, blk);

    return &run->met[(size_t)rank * run->nblocks + length % run->nblocks];
}

void tutti__cells_meet(tutti__check_run_t *run, const tutti__check_stream_t *stream, unsigned buf,
                       uint32_t blk, uint32_t n)
{
    for (uint32_t i = 0; i < n && run->met != NULL; i++) {
        uint32_t *met = met_at(run, stream->rank, buf, blk + i);

        if (*met == 0)
            *met = stream->clock[0] + 1;
    }
}

int tutti__cells_have_met(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                          unsigned buf, uint32_t blk)
{
    int is_out = buf == TUTTI__OUT || (buf == TUTTI__STAGE && run->stage_is_out);
    uint32_t met;

    if (run->met == NULL || !is_out)
        return 1;
    met = *met_at(run, stream->rank, buf, blk);
    if (met != 0 && is_past(stream, 0, met))
        return 1;
    return tutti__check_blame(run, stream,
                              "writes %s[%u] before a node operation on a block of this length: "
                              "calls that differ would change recvbuf",
                              tutti__sched_buf_name(buf), blk);
}
