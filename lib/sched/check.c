/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker as a whole: makes a run, starts it, and compares its end with the promise.
 *
 * check.h explains the idea, and check_run.h lists the parts.
 *
 * A proof holds for one number of ranks, one number of credits c, and one number of trips. Tests
 * try 1, 2, c, c + 1 and 2c + 1 trips. With these numbers, channels are not full, become full, and
 * use a slot for the third time. This is a selection, not a proof for all trips.
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

    if (run->status != TUTTI_OK) /* keep the first error */
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

static tutti_status_t check_once(const tutti__check_t *check, int uses_stage, int stage_is_out,
                                 char *why, size_t why_bytes)
{
    tutti__check_run_t run = {
        .check = check,
        .uses_stage = uses_stage,
        .stage_is_out = stage_is_out,
        .why = why,
        .why_bytes = why_bytes,
        .status = TUTTI_OK,
    };

    if (tutti__check_make(&run) && tutti__check_go(&run) && all_consumed(&run))
        tutti__check_promise_holds(&run);
    tutti__check_clear(&run);
    return run.status;
}

tutti_status_t tutti__sched_check(const tutti__check_t *check, char *why, size_t why_bytes)
{
    tutti_status_t status;
    int uses_stage;

    if (why_bytes > 0)
        why[0] = '\0';
    if (check->size == 0 || check->trips == 0)
        return tutti__fail(TUTTI_ERR_INTERNAL, "a check needs ranks and trips");
    if (tutti__check_has_root(check->expect) && check->root >= check->size)
        return tutti__fail(TUTTI_ERR_INTERNAL, "rank %u cannot be the root of %u", check->root,
                           check->size);
    uses_stage = tutti__check_uses_stage(check);
    status = check_once(check, uses_stage, 0, why, why_bytes);
    if (status == TUTTI_OK && uses_stage && check->scheds[0]->stage_trips == 0)
        status = check_once(check, uses_stage, 1, why, why_bytes);
    if (status != TUTTI_OK)
        return tutti__fail(status, "schedule %s: %s", check->scheds[0]->name, why);
    return TUTTI_OK;
}
