/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker's memory: symbolic values, the cells they lie in, and who may touch them.
 *
 * A contribution (rank, block, chunk) has a pseudo-random 64-bit label. The sum of labels tells
 * what was added up: two different multisets of contributions agree with probability 2^-64. The
 * tree is a hash of the expression. For a pair it does not depend on the operands' order, because
 * reduce/ promises that exchanging two operands never changes a bit; regrouping does.
 *
 * A cell is one chunk of one block of one rank's buffer. Two accesses to a cell, one of them a
 * write, by two streams must be ordered by WAIT. That is found with vector clocks (Fidge 1988,
 * Mattern 1989), kept per cell as in FastTrack (Flanagan, Freund 2009): the last write, and each
 * stream's last read. Channels would order streams too, by way of another rank, but a message that
 * is empty in a real call is skipped and orders nothing; so they are not counted.
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

    return (tutti__value_t){ label, mix(label), trip, TUTTI__VALUE_WRITTEN };
}

static int unfinished(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                      const tutti__value_t *a, const tutti__value_t *b)
{
    if ((a->state | b->state) & TUTTI__VALUE_FINISHED)
        return tutti__check_blame(run, stream, "reduces what is finished already");
    return 1;
}

int tutti__value_reduce(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                        const tutti__value_t *a, tutti__value_t *into)
{
    uint64_t low = TUTTI__MIN(a->tree, into->tree), high = TUTTI__MAX(a->tree, into->tree);

    into->sum += a->sum;
    into->tree = mix(mix(low) + high);
    return unfinished(run, stream, a, into);
}

int tutti__value_fuse(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                      const tutti__value_t *a, tutti__value_t *into)
{
    into->sum += a->sum;
    into->tree = mix(mix(~into->tree) ^ a->tree);
    return unfinished(run, stream, a, into);
}

int tutti__value_finish(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                        tutti__value_t *value)
{
    if (value->state & TUTTI__VALUE_FINISHED)
        return tutti__check_blame(run, stream, "finishes what is finished already");
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
    if (buf == TUTTI__STAGE && !run->stage_is_out)
        rank_at += run->stage_at;
    return rank_at + (size_t)trip * run->nblocks + blk;
}

/* Did the stream's past hold the operation that stream `other` did at `clock`? */
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

/* IN out of place: never written, so it needs neither cells nor an order. */
static int read_in(tutti__check_run_t *run, const tutti__check_stream_t *stream, uint32_t blk,
                   uint32_t trip, tutti__value_t *ret_value)
{
    tutti__expect_t expect = run->check->expect;

    if (expect != TUTTI__EXPECT_ALLREDUCE &&
        !(expect == TUTTI__EXPECT_ALLGATHER && blk == stream->rank))
        return tutti__check_blame(run, stream, "reads IN[%u], which does not exist", blk);
    *ret_value = tutti__value_leaf(stream->rank, blk, trip);
    return 1;
}

int tutti__cell_read(tutti__check_run_t *run, const tutti__check_stream_t *stream, unsigned buf,
                     uint32_t blk, uint32_t trip, tutti__value_t *ret_value)
{
    size_t cell;

    if (buf == TUTTI__IN && !run->in_is_out)
        return read_in(run, stream, blk, trip, ret_value);

    cell = tutti__cell_index(run, stream->rank, buf, blk, trip);
    *ret_value = run->cells[cell];
    if (!(ret_value->state & TUTTI__VALUE_WRITTEN))
        return tutti__check_blame(run, stream,
                                  "reads %s[%u] of chunk %u, which nothing has written yet",
                                  tutti__sched_buf_name(buf), blk, trip);
    if (buf == TUTTI__SCRATCH && ret_value->trip != trip &&
        run->check->expect != TUTTI__EXPECT_BARRIER)
        return tutti__check_blame(run, stream,
                                  "reads SCRATCH[%u] for chunk %u, but it holds chunk %u", blk,
                                  trip, ret_value->trip);
    return run->accesses == NULL || note_read(run, stream, cell, buf, blk, trip);
}

int tutti__cell_write(tutti__check_run_t *run, const tutti__check_stream_t *stream, unsigned buf,
                      uint32_t blk, uint32_t trip, const tutti__value_t *value)
{
    size_t cell = tutti__cell_index(run, stream->rank, buf, blk, trip);

    run->cells[cell] = *value;
    run->cells[cell].trip = trip;
    return run->accesses == NULL || note_write(run, stream, cell, buf, blk, trip);
}
