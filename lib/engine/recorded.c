/* SPDX-License-Identifier: BSD-3-Clause */
/* What an operation is doing, in words for the flight recorder. The token's owner. */
#include "engine/recorded.h"

/* "RECV", or "comparing calls". Static. */
static const char *doing(const tutti__operation_t *op)
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
    if (op->run.sched == NULL || op->run.stream[0].pc >= op->run.sched->nops)
        return "running";
    return tutti__sched_kind_name(op->run.sched->ops[op->run.stream[0].pc].kind);
}

void tutti__recorded_slow(tutti__record_t *record, const tutti__operation_t *op)
{
    int runs = op->at == TUTTI__AT_RUN && op->run.sched != NULL;

    tutti__record_stuck(record, op->lane, doing(op), op->hint.peer, runs ? op->run.stream[0].pc : 0,
                        runs ? op->run.sched->nops : 0);
}
