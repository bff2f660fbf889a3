/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata of calls: comparison, size in a bucket, and text. See metadata.h. */
#include "agree/metadata.h"

#include "base/compiler.h"
#include "base/describe.h"
#include "base/kinds.h"

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

int tutti__metadata_has_no_counts(const tutti__metadata_t *metadata)
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
        a->prescale != b->prescale || a->postscale != b->postscale ||
        a->on_device != b->on_device || a->wire != b->wire)
        return 1;
    if (tutti__metadata_has_no_counts(a) || tutti__metadata_has_no_counts(b))
        return 0;
    return a->count != b->count || a->more != b->more;
}

/* ---- buckets of several tensors: see engine/fuse.c ---- */

static int is_parted(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_REDUCE_SCATTER || kind == TUTTI_CALL_ALLGATHER;
}

int tutti__metadata_can_fuse(const tutti__metadata_t *metadata)
{
    return metadata->kind <= TUTTI_CALL_BROADCAST || is_parted((tutti_call_kind_t)metadata->kind);
}

/* The kernel that packs a bucket on a device has one scale for all tensors. */
static int one_scale(const tutti__metadata_t *a, const tutti__metadata_t *b)
{
    return a->prescale == b->prescale && a->postscale == b->postscale;
}

int tutti__metadata_fuse(const tutti__metadata_t *a, const tutti__metadata_t *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->wire == b->wire && a->count > 0 && b->count > 0 && tutti__metadata_can_fuse(a) &&
           a->on_device == b->on_device && a->priority == b->priority &&
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

static unsigned parts_of(const tutti__metadata_t *m)
{
    tutti_call_kind_t kind = (tutti_call_kind_t)m->kind;
    unsigned has = m->on_device ? TUTTI__HAS_DEVICE : 0;

    if (kind == TUTTI_CALL_BARRIER)
        return has;
    has |= TUTTI__HAS_TYPE;
    if (!tutti__call_by_pair(kind) && !tutti__metadata_has_no_counts(m))
        has |= TUTTI__HAS_COUNT;
    if (tutti__call_is_message(kind)) {
        has |= kind != TUTTI_CALL_RECV ? TUTTI__HAS_TO : 0;
        return has | (kind != TUTTI_CALL_SEND ? TUTTI__HAS_FROM : 0);
    }
    has |= m->op != 0 ? TUTTI__HAS_OP : 0;
    return has | TUTTI__HAS_SCALES | (tutti__call_has_root(kind) ? TUTTI__HAS_ROOT : 0);
}

static tutti__description_t describe(const tutti__metadata_t *m, const tutti__group_msg_t *group)
{
    int is_message = tutti__metadata_is_message(m);

    return (tutti__description_t){
        .name = tutti__call_name((tutti_call_kind_t)m->kind),
        .has = parts_of(m),
        .dtype = (tutti_dtype_t)m->dtype,
        .op = (tutti_op_t)m->op,
        .root = m->root,
        .source = m->source,
        .count = m->kind == TUTTI_CALL_RECV ? m->more : m->count,
        .received = m->more,
        .recvcounts = is_message ? 0 : (uint32_t)m->more,
        .prescale = double_of(m->prescale),
        .postscale = double_of(m->postscale),
        .wire = (tutti_dtype_t)m->wire,
        .group_size = group->size,
        .group_hash = (uint32_t)group->hash,
    };
}

void tutti__metadata_call_text(char *text, size_t bytes, const tutti__metadata_t *metadata)
{
    static const tutti__group_msg_t alone;
    tutti__description_t call = describe(metadata, &alone);

    tutti__describe(text, bytes, &call);
}

void tutti__metadata_texts(char *text, size_t bytes, uint32_t rank, const tutti__metadata_t *m,
                           const tutti__group_msg_t *group, uint32_t other_rank,
                           const tutti__metadata_t *other, const tutti__group_msg_t *other_group)
{
    tutti__description_t a = describe(m, group), b = describe(other, other_group);

    tutti__describe_both(text, bytes, rank, &a, other_rank, &b);
}
