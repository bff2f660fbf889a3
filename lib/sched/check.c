/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker: what is promised, and whether the run kept it.
 *
 * The idea is in check.h, the parts are listed in check_run.h. Here a run is made, started, and
 * asked at its end for what the collective promises.
 *
 * A proof holds for one number of ranks, credits and trips. Tests try 1, 2, c, c + 1 and 2c + 1
 * trips: no channel full, full, and every slot used for a third time. That is a choice, not a
 * proof for all trips.
 */
#include "sched/check.h"

#include "base/status.h"
#include "sched/check_run.h"

#include <stdarg.h>

int tutti__check_blame(tutti__check_run_t *run, const tutti__check_stream_t *stream,
                       const char *fmt, ...)
{
    char what[1100], op[160];
    va_list args;

    if (run->status != TUTTI_OK) /* the first one counts */
        return 0;
    run->status = TUTTI_ERR_INTERNAL;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    if (stream == NULL) {
        snprintf(run->why, run->why_bytes, "%s", what);
        return 0;
    }
    tutti__sched_op_text(stream->sched, tutti__check_op(stream), op, sizeof(op));
    snprintf(run->why, run->why_bytes, "rank %u stream %u operation %u (%s), chunk %u: %s",
             stream->rank, stream->stream, stream->pc, op, stream->begin, what);
    return 0;
}

static int all_consumed(tutti__check_run_t *run)
{
    for (uint32_t i = 0; i < run->nchans; i++) {
        const tutti__check_chan_t *chan = &run->chans[i];

        if (chan->count > 0)
            return tutti__check_blame(
                run, NULL, "%u messages of rank %u stream %u are never received", chan->count,
                chan->from / TUTTI__SCHED_STREAMS, chan->from % TUTTI__SCHED_STREAMS);
    }
    return 1;
}

/* A rank's end is the end of all its streams. */
static int barrier_holds(tutti__check_run_t *run)
{
    uint32_t size = run->check->size;

    for (uint32_t r = 0; r < size; r++) {
        for (uint32_t other = 0; other < size; other++) {
            uint64_t known = 0;

            for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++) {
                const tutti__check_stream_t *stream = &run->streams[r * TUTTI__SCHED_STREAMS + s];

                known |= tutti__check_knows(run, stream)[other / 64];
            }
            if (!(known >> other % 64 & 1))
                return tutti__check_blame(run, NULL, "rank %u does not wait for rank %u", r, other);
        }
    }
    return 1;
}

/* What block b of OUT must hold, but for the tree of an allreduce, which is rank 0's. */
static tutti__value_t promised(const tutti__check_run_t *run, uint32_t b, uint32_t t)
{
    const tutti__check_t *check = run->check;
    tutti__value_t value;

    if (check->expect == TUTTI__EXPECT_BROADCAST)
        return tutti__value_leaf(check->root, b, t);
    if (check->expect == TUTTI__EXPECT_ALLGATHER)
        return tutti__value_leaf(b, b, t);
    value = run->cells[tutti__cell_index(run, 0, TUTTI__OUT, b, t)];
    value.state = TUTTI__VALUE_WRITTEN | TUTTI__VALUE_FINISHED;
    value.sum = 0;
    for (uint32_t r = 0; r < check->size; r++)
        value.sum += tutti__value_leaf(r, b, t).sum;
    return value;
}

static int block_holds(tutti__check_run_t *run, uint32_t b, uint32_t t)
{
    tutti__value_t want = promised(run, b, t);

    for (uint32_t r = 0; r < run->check->size; r++) {
        const tutti__value_t *have = &run->cells[tutti__cell_index(run, r, TUTTI__OUT, b, t)];
        const char *what = NULL;

        if (!(have->state & TUTTI__VALUE_WRITTEN))
            what = "nothing";
        else if (have->sum != want.sum)
            what = "not each contribution exactly once";
        else if (have->state != want.state)
            what = have->state & TUTTI__VALUE_FINISHED ? "a finished value"
                                                       : "a value that is not finished";
        else if (have->tree != want.tree)
            what = "another association than on rank 0";
        if (what != NULL)
            return tutti__check_blame(run, NULL, "in the end OUT[%u] of rank %u, chunk %u, has %s",
                                      b, r, t, what);
    }
    return 1;
}

static int promise_holds(tutti__check_run_t *run)
{
    if (run->check->expect == TUTTI__EXPECT_BARRIER)
        return barrier_holds(run);
    if (run->check->expect == TUTTI__EXPECT_ALLGATHER && run->nblocks != run->check->size)
        return tutti__check_blame(run, NULL, "%u blocks for %u ranks", run->nblocks,
                                  run->check->size);
    for (uint32_t t = 0; t < run->check->trips; t++) {
        for (uint32_t b = 0; b < run->nblocks; b++) {
            if (!block_holds(run, b, t))
                return 0;
        }
    }
    return 1;
}

static tutti_status_t check_once(const tutti__check_t *check, int stage_is_out, char *why,
                                 size_t why_bytes)
{
    tutti__check_run_t run = {
        .check = check,
        .in_is_out = check->in_place || check->expect == TUTTI__EXPECT_BROADCAST,
        .stage_is_out = stage_is_out,
        .why = why,
        .why_bytes = why_bytes,
        .status = TUTTI_OK,
    };

    if (tutti__check_make(&run) && tutti__check_go(&run) && all_consumed(&run))
        promise_holds(&run);
    tutti__check_clear(&run);
    return run.status;
}

tutti_status_t tutti__sched_check(const tutti__check_t *check, char *why, size_t why_bytes)
{
    tutti_status_t status;

    if (why_bytes > 0)
        why[0] = '\0';
    if (check->size == 0 || check->credits == 0 || check->trips == 0)
        return tutti__fail(TUTTI_ERR_INTERNAL, "a check needs ranks, credits and trips");
    status = check_once(check, 0, why, why_bytes);
    if (status == TUTTI_OK && tutti__check_uses_stage(check))
        status = check_once(check, 1, why, why_bytes);
    if (status != TUTTI_OK)
        return tutti__fail(status, "schedule %s: %s", check->scheds[0]->name, why);
    return TUTTI_OK;
}
