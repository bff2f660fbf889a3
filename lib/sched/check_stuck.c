/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker's report of a deadlock: a chain of streams that wait for each other.
 */
#include "sched/check_run.h"

#include <stdio.h>

#define LONGEST_CHAIN 5

/* The stream for which this stream waits; NONE if there is none. */
static uint32_t waits_for(const tutti__check_run_t *run, const tutti__check_stream_t *stream)
{
    const tutti__check_host_t *host;

    switch (stream->state) {
    case TUTTI__STREAM_ON_SEND:
        return run->chans[stream->on].to;
    case TUTTI__STREAM_ON_SENT:
        return tutti__check_receiver(run, stream);
    case TUTTI__STREAM_ON_RECV:
        return run->chans[stream->on].from;
    case TUTTI__STREAM_ON_WAIT:
        return stream->rank * TUTTI__SCHED_STREAMS + tutti__check_op(stream)->stream;
    case TUTTI__STREAM_ON_NODE:
        host = &run->hosts[run->scope == TUTTI__SCOPE_ALL ? 0 : run->check->host_of[stream->rank]];
        for (uint32_t i = 0; i < host->nranks; i++) {
            uint32_t other = run->members[host->first + i] * TUTTI__SCHED_STREAMS;

            if (run->streams[other].state != TUTTI__STREAM_ON_NODE)
                return other;
        }
        return TUTTI__CHECK_NONE;
    default:
        return TUTTI__CHECK_NONE;
    }
}

static size_t describe(const tutti__check_stream_t *stream, char *text, size_t bytes)
{
    char op[160];
    int n;

    if (stream->state == TUTTI__STREAM_ENDED) {
        n = snprintf(text, bytes, "rank %u stream %u, which has ended", stream->rank,
                     stream->stream);
    } else {
        n = snprintf(text, bytes, "rank %u stream %u at operation %u (%s), trip %u", stream->rank,
                     stream->stream, stream->pc,
                     tutti__sched_op_text(stream->sched, tutti__check_op(stream), op, sizeof(op)),
                     stream->trip);
    }
    return n < 0 ? 0 : TUTTI__MIN((size_t)n, bytes - 1);
}

int tutti__check_stuck(tutti__check_run_t *run)
{
    char chain[1024] = "deadlock: ";
    size_t used = sizeof("deadlock: ") - 1;
    uint32_t at = 0, first;

    while (run->streams[at].state == TUTTI__STREAM_ENDED)
        at++;
    first = at;
    for (int i = 0; i < LONGEST_CHAIN; i++) {
        used += describe(&run->streams[at], chain + used, sizeof(chain) - used);
        at = waits_for(run, &run->streams[at]);
        if (at == TUTTI__CHECK_NONE)
            break;
        used += (size_t)snprintf(chain + used, sizeof(chain) - used, " waits for ");
        used = TUTTI__MIN(used, sizeof(chain) - 1);
        if (at == first || i == LONGEST_CHAIN - 1) {
            snprintf(chain + used, sizeof(chain) - used, at == first ? "the first" : "others");
            break;
        }
    }
    return tutti__check_blame(run, NULL, "%s", chain);
}
