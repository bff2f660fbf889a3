/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata of calls: compared, merged, measured, and as text. See metadata.h. */
#include "agree/tensors.h"

#include "base/compiler.h"
#include "base/kinds.h"
#include "base/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static double double_of(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

int tutti__metadata_is_message(const tutti__metadata_t *metadata)
{
    return tutti__call_is_message((tutti_call_kind_t)metadata->kind);
}

/* No rank that announced it knows recvcounts. */
static int has_no_counts(const tutti__metadata_t *metadata)
{
    return metadata->unsure && metadata->more == 0;
}

int tutti__metadata_needs_counts(const tutti__metadata_t *metadata)
{
    if (TUTTI__LIKELY(metadata->kind == TUTTI_CALL_ALLREDUCE) || metadata->phase > 0)
        return 0;
    return tutti__call_by_pair((tutti_call_kind_t)metadata->kind) ||
           (metadata->kind == TUTTI_CALL_ALLGATHERV && metadata->unsure);
}

int tutti__metadata_differ(const tutti__metadata_t *a, const tutti__metadata_t *b)
{
    if (a->kind != b->kind || a->dtype != b->dtype || a->op != b->op || a->root != b->root ||
        a->prescale != b->prescale || a->postscale != b->postscale || a->on_device != b->on_device)
        return 1;
    if (has_no_counts(a) || has_no_counts(b))
        return 0;
    return a->count != b->count || a->more != b->more;
}

void tutti__metadata_merge(tutti__tensor_t *into, const tutti__announce_msg_t *from,
                           const tutti__metadata_t *other)
{
    tutti__announce_msg_t *msg = &into->msg;
    uint32_t nranks = msg->nranks + from->nranks;

    if (msg->nranks == 0 || (from->conflict && !msg->conflict)) {
        uint8_t name_bytes = from->name_bytes;

        *msg = *from;
        msg->name_bytes = name_bytes;
        if (from->conflict)
            into->other = *other;
    } else if (!msg->conflict && tutti__metadata_differ(&msg->metadata, &from->metadata)) {
        msg->conflict = 1;
        msg->other_rank = from->rank;
        into->other = from->metadata;
    } else if (!msg->conflict && from->metadata.kind == TUTTI_CALL_ALLGATHERV) {
        unsigned unsure = msg->metadata.unsure | from->metadata.unsure;

        if (has_no_counts(&msg->metadata))
            msg->metadata = from->metadata;
        msg->metadata.unsure = unsure;
    }
    msg->nranks = nranks;
}

/* ---- buckets of several tensors: see engine/fuse.c ---- */

static int is_parted(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_REDUCE_SCATTER || kind == TUTTI_CALL_ALLGATHER;
}

static int can_fuse(const tutti__metadata_t *metadata)
{
    return metadata->kind <= TUTTI_CALL_BROADCAST || is_parted((tutti_call_kind_t)metadata->kind);
}

/* The kernel that packs a bucket on a device takes one scale. */
static int one_scale(const tutti__metadata_t *a, const tutti__metadata_t *b)
{
    return a->prescale == b->prescale && a->postscale == b->postscale;
}

int tutti__metadata_fuse(const tutti__metadata_t *a, const tutti__metadata_t *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->count > 0 && b->count > 0 && can_fuse(a) && a->on_device == b->on_device &&
           (!a->on_device || one_scale(a, b));
}

size_t tutti__metadata_bytes(const tutti__metadata_t *metadata, uint32_t size)
{
    size_t part =
        TUTTI__ROUND_UP((size_t)metadata->count * tutti_dtype_bytes((tutti_dtype_t)metadata->dtype),
                        TUTTI__LINE_BYTES);

    return is_parted((tutti_call_kind_t)metadata->kind) ? part * size : part;
}

/* ---- text ---- */

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

static void put_message(text_t *text, const tutti__metadata_t *f)
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

static void put_collective(text_t *text, const tutti__metadata_t *f)
{
    double prescale = double_of(f->prescale), postscale = double_of(f->postscale);

    if (f->kind == TUTTI_CALL_BARRIER)
        return;
    if (tutti__call_by_pair((tutti_call_kind_t)f->kind) || has_no_counts(f))
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
    if (tutti__call_has_root((tutti_call_kind_t)f->kind))
        put(text, ", root %u", f->root);
    if (prescale != 1 || postscale != 1)
        put(text, ", scaled by %.17g and %.17g", prescale, postscale);
}

static void put_call(text_t *text, const tutti__metadata_t *metadata)
{
    put(text, "%s", tutti__call_name((tutti_call_kind_t)metadata->kind));
    if (tutti__metadata_is_message(metadata))
        put_message(text, metadata);
    else
        put_collective(text, metadata);
    if (metadata->on_device)
        put(text, ", in device memory");
}

void tutti__metadata_call_text(char *buffer, size_t bytes, const tutti__metadata_t *metadata)
{
    text_t text = { buffer, bytes };

    put_call(&text, metadata);
}

void tutti__metadata_text(char *buffer, size_t bytes, uint32_t rank,
                          const tutti__metadata_t *metadata, const tutti__submission_t *submission)
{
    text_t text = { buffer, bytes };

    put(&text, "rank %u has ", rank);
    put_call(&text, metadata);
    if (submission != NULL)
        put(&text, ", in a group of %u (%08x)", submission->size, (unsigned)submission->hash);
}
