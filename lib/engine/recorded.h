/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's calls of the flight recorder, one for each place. See record/record.h. */
#ifndef TUTTI__ENGINE_RECORDED_H
#define TUTTI__ENGINE_RECORDED_H

#include "engine/lanes.h"
#include "engine/waiter.h"

#include "record/record.h"

/* Under the lock of pending.h. */
static inline void tutti__recorded_submit(const tutti__watch_t *watch, tutti__request_t *request)
{
    const tutti__submitted_t submitted = {
        .name = request->name,
        .hash = request->hash,
        .since_ns = request->since_ns,
        .count = request->call.count,
        .bytes = request->bytes,
        .op = (uint32_t)request->call.op,
        .kind = (uint8_t)request->call.kind,
        .dtype = (uint8_t)request->call.dtype,
    };

    request->record = tutti__record_submit(watch->record, &submitted);
}

/* The request is in a bucket of its lane. */
static inline void tutti__recorded_agreed(const tutti__watch_t *watch,
                                          const tutti__request_t *request, uint32_t bucket)
{
    tutti__record_tensor(watch->record, request->record, TUTTI__TENSOR_AGREED, bucket,
                         request->lane);
}

/* The first bucket of a lane begins to run. */
static inline void tutti__recorded_start(const tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    const tutti__bucket_t *bucket = lane->first;
    tutti__record_t *record = lanes->env->watch->record;

    for (const tutti__request_t *r = bucket->first; r != NULL; r = r->next)
        tutti__record_tensor(record, r->record, TUTTI__TENSOR_RUNNING, bucket->number,
                             lane->op.lane);
    tutti__record_start(record, lane->op.lane, bucket->number, bucket->first->record,
                        bucket->nrequests, lane->op.bytes);
}

/* engine/recorded.c: "RECV", or "comparing calls". Static. */
const char *tutti__recorded_doing(const tutti__operation_t *op);

/* The lane's operation cannot continue. */
static inline void tutti__recorded_stuck(const tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    const tutti__operation_t *op = &lane->op;
    int runs = op->at == TUTTI__AT_RUN && op->run.sched != NULL;

    if (lane->running)
        tutti__record_stuck(lanes->env->watch->record, op->lane, tutti__recorded_doing(op),
                            op->hint.peer, runs ? op->run.stream[0].pc : 0,
                            runs ? op->run.sched->nops : 0);
}

/* A waiter goes to sleep. */
static inline void tutti__recorded_sleep(const tutti__watch_t *watch, tutti__waiter_t *w,
                                         const tutti__request_t *first)
{
    if (w->record == 0 && first != NULL)
        w->record = tutti__record_wait(watch->record, first->record);
}

#endif
