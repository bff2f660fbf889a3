/* SPDX-License-Identifier: BSD-3-Clause */
/* An operation's present work, as texts for the flight recorder. The token's owner calls this. */
#include "engine/recorded.h"

/* The operation's present work, as a static text: "RECV", or "comparing calls". step: the present
   entry of the run's schedule. of: the number of entries. */
static const char *doing(const tutti__operation_t *op, uint32_t step, uint32_t of)
{
    switch (op->at) {
    case TUTTI__AT_COMPARE:
        return "comparing calls";
    case TUTTI__AT_COUNTS:
        return "exchanging counts";
    case TUTTI__AT_PAIRS:
        return "a message";
    case TUTTI__AT_MEET:
        return "meeting";
    case TUTTI__AT_RUN:
        break;
    case TUTTI__AT_DEVICE_RUN:
        return "running on the device";
    case TUTTI__AT_INPUT:
        return "waiting for its data on the device";
    default:
        return "preparing";
    }
    if (step == of)
        return "running";
    return tutti__sched_kind_name(op->run.sched->ops[step].kind);
}

void tutti__recorded_slow(tutti__record_t *record, const tutti__operation_t *op)
{
    int runs = op->at == TUTTI__AT_RUN && op->run.sched != NULL;
    uint32_t step = runs ? tutti__run_blocked_at(&op->run, op->hint.peer) : 0;
    uint32_t of = runs ? op->run.sched->nops : 0;

    tutti__record_stuck(record, op->lane, doing(op, step, of), op->hint.peer, step, of);
}

void tutti__recorded_arrived(tutti__record_t *record, const tutti__operation_t *op)
{
    tutti__record_arrived_t arrived;
    tutti__run_wait_t wait;
    int awaits = op->at == TUTTI__AT_RUN && tutti__run_awaits(&op->run, op->hint.peer, &wait);

    if (awaits)
        arrived = (tutti__record_arrived_t){ .is_recv = wait.is_recv,
                                             .complete = wait.complete,
                                             .messages = wait.messages,
                                             .bytes = wait.bytes };
    tutti__record_arrived(record, op->lane, awaits ? &arrived : NULL);
}
