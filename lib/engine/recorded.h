/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's calls of the flight recorder, one for each kind of event. See record/record.h. */
#ifndef TUTTI__ENGINE_RECORDED_H
#define TUTTI__ENGINE_RECORDED_H

#include "engine/lanes.h"
#include "engine/waiter.h"

#include "record/record.h"

/* Record a submission. Under the lock of pending.h. */
static inline void tutti__recorded_submit(const tutti__watch_t *watch, tutti__request_t *request)
{
    const tutti__submitted_t submitted = {
        .name = request->name,
        .hash = request->hash,
        .since_ns = request->since_ns,
        .count = request->call.count,
        .bytes = request->bytes,
        .op = (uint32_t)request->call.op,
        .before = request->record,
        .kind = (uint8_t)request->call.kind,
        .dtype = (uint8_t)request->call.dtype,
    };

    request->record = tutti__record_submit(watch->record, &submitted);
}

/* Record that the request is in a bucket of its lane. */
static inline void tutti__recorded_agreed(const tutti__watch_t *watch,
                                          const tutti__request_t *request, uint32_t bucket)
{
    tutti__record_agreed(watch->record, request->record, bucket, request->lane);
}

/* Record that the first bucket of a lane begins to run. */
static inline void tutti__recorded_start(const tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    const tutti__bucket_t *bucket = lane->first;

    tutti__record_start(lanes->env->watch->record, lane->op.lane, bucket->number,
                        bucket->first != NULL ? bucket->first->record : 0, bucket->nrequests);
}

/* recorded.c: record the rank or device that the lane's operation waits for. */
void tutti__recorded_slow(tutti__record_t *record, const tutti__operation_t *op);

/* recorded.c: record which messages have arrived from the rank that the operation waits for. Reads
   the whole schedule. */
void tutti__recorded_arrived(tutti__record_t *record, const tutti__operation_t *op);

/* Record the wait of a lane's operation that cannot continue, if the wait has become long. */
static inline void tutti__recorded_stuck(const tutti__lanes_t *lanes, const tutti__lane_t *lane)
{
    tutti__record_t *record = lanes->env->watch->record;

    if (lane->running && TUTTI__UNLIKELY(tutti__record_is_slow(record, lane->op.lane)))
        tutti__recorded_slow(record, &lane->op);
}

/* Trace the packing or unpacking of the lane's bucket. began_ns: its start; 0: the trace is off. */
static inline void tutti__recorded_copies(const tutti__lane_t *lane, const tutti__watch_t *watch,
                                          tutti__trace_kind_t kind, uint64_t began_ns)
{
    if (TUTTI__UNLIKELY(began_ns != 0))
        tutti__record_trace(watch->record, (tutti__traced_t){ .kind = kind,
                                                              .time_ns = began_ns,
                                                              .end_ns = tutti__now_ns(),
                                                              .tensor = lane->first->first->record,
                                                              .bucket = lane->first->number,
                                                              .lane = lane->op.lane });
}

/* Trace a wait that began at began_ns; 0: the trace is off. tensor: number of the first request. */
static inline void tutti__recorded_wait(tutti__record_t *record, uint32_t tensor, uint64_t began_ns)
{
    if (TUTTI__UNLIKELY(began_ns != 0))
        tutti__record_trace(record, (tutti__traced_t){ .kind = TUTTI__TRACE_WAIT,
                                                       .time_ns = began_ns,
                                                       .end_ns = tutti__now_ns(),
                                                       .tensor = tensor,
                                                       .bucket = TUTTI__RECORD_NONE });
}

/* Record, once per wait, that a waiter goes to sleep. */
static inline void tutti__recorded_sleep(const tutti__watch_t *watch, tutti__waiter_t *w,
                                         const tutti__request_t *first)
{
    if (w->record == 0 && first != NULL)
        w->record = tutti__record_wait(watch->record, first->record);
}

#endif
