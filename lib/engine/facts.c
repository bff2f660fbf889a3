/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks must have in common to make one tensor of their calls: taken, compared, told. */
#include "engine/agree.h"

#include "base/hash.h"
#include "base/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Counts that all ranks have alike. */
static void take_recvcounts(tutti__facts_t *facts, const size_t *recvcounts, uint32_t size)
{
    facts->count = 0;
    for (uint32_t r = 0; r < size; r++)
        facts->count += recvcounts[r];
    facts->more = tutti__hash(recvcounts, size * sizeof(*recvcounts));
}

static void take_message(tutti__facts_t *facts, const tutti__call_t *call)
{
    facts->count = call->kind != TUTTI_CALL_RECV ? call->count : 0;
    facts->more = call->kind == TUTTI_CALL_RECV       ? call->count
                  : call->kind == TUTTI_CALL_SENDRECV ? call->recvcount
                                                      : 0;
    facts->root = call->kind != TUTTI_CALL_RECV ? call->root : TUTTI__NOBODY;
    facts->source = call->kind == TUTTI_CALL_RECV       ? call->root
                    : call->kind == TUTTI_CALL_SENDRECV ? call->source
                                                        : TUTTI__NOBODY;
}

static int has_root(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_REDUCE || kind == TUTTI_CALL_BROADCAST || kind == TUTTI_CALL_GATHER ||
           kind == TUTTI_CALL_GATHERV || kind == TUTTI_CALL_SCATTER || kind == TUTTI_CALL_SCATTERV;
}

static inline tutti__facts_t facts_of_call(const tutti__engine_t *e, const tutti__call_t *call,
                                           uint8_t phase)
{
    tutti__facts_t facts = {
        .count = call->count,
        .prescale = bits_of(call->prescale),
        .postscale = bits_of(call->postscale),
        .kind = (uint8_t)call->kind,
        .dtype = (uint8_t)call->dtype,
        .phase = phase,
        .on_device = call->on_device != 0,
    };

    /* For most calls that is all. */
    if (TUTTI__LIKELY(call->kind == TUTTI_CALL_ALLREDUCE)) {
        facts.op = (uint32_t)call->op;
        return facts;
    }
    if (has_root(call->kind))
        facts.root = call->root;
    if (tutti__call_reduces(call->kind))
        facts.op = (uint32_t)call->op;
    if (tutti__facts_is_message(&facts))
        take_message(&facts, call);
    if (tutti__call_by_pair(call->kind))
        facts.count = facts.on_device = 0;
    if (call->kind == TUTTI_CALL_ALLGATHERV)
        facts.on_device = 0;
    if (call->kind == TUTTI_CALL_REDUCE_SCATTERV || call->kind == TUTTI_CALL_ALLGATHERV)
        facts.count = 0;
    if (call->kind == TUTTI_CALL_BARRIER)
        facts.count = facts.dtype = 0;
    /* Of the second phase everything was compared in the first. */
    if (phase > 0)
        return facts;
    if (call->kind == TUTTI_CALL_ALLGATHERV && call->recvcounts == NULL)
        facts.unsure = 1;
    else if (call->kind == TUTTI_CALL_REDUCE_SCATTERV || call->kind == TUTTI_CALL_ALLGATHERV)
        take_recvcounts(&facts, call->recvcounts, e->size);
    return facts;
}

tutti__facts_t tutti__facts_of(const tutti__engine_t *e, const tutti__request_t *request)
{
    return facts_of_call(e, &request->call, request->phase);
}

int tutti__facts_is_message(const tutti__facts_t *facts)
{
    return facts->kind >= TUTTI_CALL_SEND && facts->kind <= TUTTI_CALL_SENDRECV;
}

/* Nobody of those who announced it knows recvcounts. */
static int knows_nothing(const tutti__facts_t *facts)
{
    return facts->unsure && facts->more == 0;
}

int tutti__facts_differ(const tutti__facts_t *a, const tutti__facts_t *b)
{
    if (a->kind != b->kind || a->dtype != b->dtype || a->op != b->op || a->root != b->root ||
        a->prescale != b->prescale || a->postscale != b->postscale || a->on_device != b->on_device)
        return 1;
    if (knows_nothing(a) || knows_nothing(b))
        return 0;
    return a->count != b->count || a->more != b->more;
}

void tutti__facts_merge(tutti__tensor_t *into, const tutti__announce_msg_t *from,
                        const tutti__facts_t *other)
{
    tutti__announce_msg_t *msg = &into->msg;
    uint32_t nranks = msg->nranks + from->nranks;

    if (msg->nranks == 0 || (from->conflict && !msg->conflict)) {
        uint8_t name_bytes = from->name_bytes;

        *msg = *from;
        msg->name_bytes = name_bytes;
        if (from->conflict)
            into->other = *other;
    } else if (!msg->conflict && tutti__facts_differ(&msg->facts, &from->facts)) {
        msg->conflict = 1;
        msg->other_rank = from->rank;
        into->other = from->facts;
    } else if (!msg->conflict && from->facts.kind == TUTTI_CALL_ALLGATHERV) {
        unsigned unsure = msg->facts.unsure | from->facts.unsure;

        if (knows_nothing(&msg->facts))
            msg->facts = from->facts;
        msg->facts.unsure = unsure;
    }
    msg->nranks = nranks;
}

/* ---- in words ---- */

typedef struct {
    char *at;
    size_t room;
} text_t;

static void put(text_t *text, const char *fmt, ...) TUTTI__PRINTF(2, 3);

static void put(text_t *text, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text->at, text->room, fmt, args);
    va_end(args);
    n = n < 0 ? 0 : (int)TUTTI__MIN((size_t)n, text->room - 1);
    text->at += n;
    text->room -= (size_t)n;
}

static void put_message(text_t *text, const tutti__facts_t *f)
{
    const char *type = tutti__dtype_name((tutti_dtype_t)f->dtype);

    if (f->kind == TUTTI_CALL_SENDRECV)
        put(text, " of %llu elements of %s to rank %u, and of %llu from rank %u",
            (unsigned long long)f->count, type, f->root, (unsigned long long)f->more, f->source);
    else if (f->kind == TUTTI_CALL_SEND)
        put(text, " of %llu elements of %s to rank %u", (unsigned long long)f->count, type,
            f->root);
    else
        put(text, " of %llu elements of %s from rank %u", (unsigned long long)f->more, type,
            f->source);
}

static void put_collective(text_t *text, const tutti__facts_t *f)
{
    double prescale = double_of(f->prescale), postscale = double_of(f->postscale);

    if (f->kind == TUTTI_CALL_BARRIER)
        return;
    if (tutti__call_by_pair((tutti_call_kind_t)f->kind) || knows_nothing(f))
        put(text, " of %s", tutti__dtype_name((tutti_dtype_t)f->dtype));
    else
        put(text, " of %llu elements of %s", (unsigned long long)f->count,
            tutti__dtype_name((tutti_dtype_t)f->dtype));
    if (f->more != 0)
        put(text, " (recvcounts %08x)", (unsigned)f->more);
    if (f->op > TUTTI_MAXLOC)
        put(text, ", operation %u", f->op);
    else if (f->op != 0)
        put(text, ", %s", tutti__op_name((tutti_op_t)f->op));
    if (has_root((tutti_call_kind_t)f->kind))
        put(text, ", root %u", f->root);
    if (prescale != 1 || postscale != 1)
        put(text, ", scaled by %.17g and %.17g", prescale, postscale);
}

static void put_call(text_t *text, const tutti__facts_t *facts)
{
    put(text, "%s", tutti__call_name((tutti_call_kind_t)facts->kind));
    if (tutti__facts_is_message(facts))
        put_message(text, facts);
    else
        put_collective(text, facts);
    if (facts->on_device)
        put(text, ", in device memory");
}

void tutti__facts_call_text(char *buffer, size_t bytes, const tutti__facts_t *facts)
{
    text_t text = { buffer, bytes };

    put_call(&text, facts);
}

void tutti__engine_call_text(const tutti__engine_t *e, const tutti__call_t *call, char *text,
                             size_t bytes)
{
    tutti__facts_t facts = facts_of_call(e, call, 0);

    tutti__facts_call_text(text, bytes, &facts);
}

void tutti__facts_text(char *buffer, size_t bytes, uint32_t rank, const tutti__facts_t *facts,
                       const tutti__gang_t *gang)
{
    text_t text = { buffer, bytes };

    put(&text, "rank %u has ", rank);
    put_call(&text, facts);
    if (gang != NULL)
        put(&text, ", in a group of %u (%08x)", gang->size, (unsigned)gang->hash);
}
