/* SPDX-License-Identifier: BSD-3-Clause */
/* The metadata of a request's call, on which the ranks agree. Any thread. */
#include "engine/request.h"

#include "base/compiler.h"
#include "base/hash.h"

#include <string.h>

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* Set the fields that describe recvcounts. All ranks must have equal recvcounts. */
static void take_recvcounts(tutti__metadata_t *m, const size_t *recvcounts, uint32_t size)
{
    m->count = tutti__request_sum(recvcounts, size);
    m->more = tutti__hash(recvcounts, size * sizeof(*recvcounts));
}

static void take_message(tutti__metadata_t *m, const tutti__call_t *call)
{
    int sends = call->kind != TUTTI_CALL_RECV, both = call->kind == TUTTI_CALL_SENDRECV;

    m->count = sends ? call->count : 0;
    m->more = both ? call->recvcount : sends ? 0 : call->count;
    m->root = sends ? call->root : TUTTI__NOBODY;
    m->source = both ? call->source : sends ? TUTTI__NOBODY : call->root;
}

static inline tutti__metadata_t metadata_of_call(const tutti__call_t *call, uint8_t phase,
                                                 uint32_t size)
{
    tutti__metadata_t m = {
        .count = call->count,
        .prescale = bits_of(call->prescale),
        .postscale = bits_of(call->postscale),
        .kind = (uint8_t)call->kind,
        .dtype = (uint8_t)call->dtype,
        .wire = (unsigned)call->wire & 31,
        .phase = phase,
        .on_device = call->on_device != 0,
    };

    /* Most calls are allreduces, which need no other fields. */
    if (TUTTI__LIKELY(call->kind == TUTTI_CALL_ALLREDUCE)) {
        m.op = (uint32_t)call->op;
        return m;
    }
    if (tutti__call_has_root(call->kind))
        m.root = call->root;
    if (tutti__call_reduces(call->kind))
        m.op = (uint32_t)call->op;
    if (tutti__call_is_message(call->kind))
        take_message(&m, call);
    if (tutti__call_by_pair(call->kind))
        m.count = m.on_device = 0;
    if (call->kind == TUTTI_CALL_ALLGATHERV)
        m.on_device = 0;
    if (call->kind == TUTTI_CALL_REDUCE_SCATTERV || call->kind == TUTTI_CALL_ALLGATHERV)
        m.count = 0;
    if (call->kind == TUTTI_CALL_BARRIER)
        m.count = m.dtype = 0;
    /* The first phase has compared the other fields. */
    if (phase > 0)
        return m;
    if (call->kind == TUTTI_CALL_ALLGATHERV && call->recvcounts == NULL)
        m.unsure = 1;
    else if (call->kind == TUTTI_CALL_REDUCE_SCATTERV || call->kind == TUTTI_CALL_ALLGATHERV)
        take_recvcounts(&m, call->recvcounts, size);
    return m;
}

tutti__metadata_t tutti__request_metadata(const tutti__request_t *request, uint32_t size)
{
    tutti__metadata_t m = metadata_of_call(&request->call, request->phase, size);

    m.priority = request->priority;
    return m;
}

void tutti__engine_call_text(uint32_t size, const tutti__call_t *call, char *text, size_t bytes)
{
    tutti__metadata_t m = metadata_of_call(call, 0, size);

    tutti__metadata_call_text(text, bytes, &m);
}
