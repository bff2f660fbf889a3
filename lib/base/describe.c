/* SPDX-License-Identifier: BSD-3-Clause */
/* See describe.h. */
#include "base/describe.h"

#include "base/compiler.h"
#include "base/names.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct {
    char *at;
    size_t capacity;
} text_t;

static void put(text_t *text, const char *fmt, ...) TUTTI__PRINTF(2, 3);

static void put(text_t *text, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text->at, text->capacity, fmt, args);
    va_end(args);
    n = n < 0 ? 0 : (int)TUTTI__MIN((size_t)n, text->capacity - 1);
    text->at += n;
    text->capacity -= (size_t)n;
}

static void put_type(text_t *text, const tutti__description_t *call)
{
    put(text, " of ");
    if (call->has & TUTTI__HAS_COUNT)
        put(text, "%llu element%s of ", (unsigned long long)call->count,
            call->count == 1 ? "" : "s");
    put(text, "%s", tutti__dtype_name(call->dtype));
}

static void put_peers(text_t *text, const tutti__description_t *call)
{
    if (call->has & TUTTI__HAS_TO)
        put(text, " to rank %u", call->root);
    if ((call->has & TUTTI__HAS_TO) && (call->has & TUTTI__HAS_FROM))
        put(text, ", and of %llu", (unsigned long long)call->received);
    if (call->has & TUTTI__HAS_FROM)
        put(text, " from rank %u", call->source);
}

static void put_call(text_t *text, const tutti__description_t *call)
{
    put(text, "%s", call->name);
    if (call->has & TUTTI__HAS_TYPE)
        put_type(text, call);
    put_peers(text, call);
    if (call->has & TUTTI__HAS_IN_ALL)
        put(text, " in all");
    if (call->recvcounts != 0)
        put(text, " (recvcounts %08x)", call->recvcounts);
    if (call->has & TUTTI__HAS_OP)
        put(text, ", %s", tutti__op_name(call->op));
    if (call->has & TUTTI__HAS_ROOT)
        put(text, ", root %u%s", call->root,
            call->has & TUTTI__HAS_HOST_ROOT ? " on this host" : "");
    if ((call->has & TUTTI__HAS_SCALES) && (call->prescale != 1 || call->postscale != 1))
        put(text, ", scaled by %.17g and %.17g", call->prescale, call->postscale);
    if (call->wire != 0)
        put(text, ", as %s between hosts", tutti__dtype_name(call->wire));
    if (call->has & TUTTI__HAS_DEVICE)
        put(text, ", in device memory");
    if (call->group_size > 0)
        put(text, ", in a group of %u (%08x)", call->group_size, call->group_hash);
}

void tutti__describe(char *buffer, size_t bytes, const tutti__description_t *call)
{
    text_t text = { buffer, bytes };

    put_call(&text, call);
}

void tutti__describe_both(char *buffer, size_t bytes, uint32_t rank,
                          const tutti__description_t *call, uint32_t other_rank,
                          const tutti__description_t *other)
{
    text_t text = { buffer, bytes };
    tutti__description_t a = *call, b = *other;

    /* If two reductions have different wire formats, name both formats. Format 0 means dtype. */
    if (a.wire != b.wire && a.has & b.has & TUTTI__HAS_OP) {
        a.wire = a.wire != 0 ? a.wire : a.dtype;
        b.wire = b.wire != 0 ? b.wire : b.dtype;
    }
    put(&text, "rank %u has ", rank);
    put_call(&text, &a);
    put(&text, "; rank %u has ", other_rank);
    put_call(&text, &b);
}
