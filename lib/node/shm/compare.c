/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Do all ranks of the host have the same call? See shm.h on announcements.
 *
 * The hot path (shm.c) compares two words of each peer with this rank's own words: the head
 * (number, kind, type, operation, tag) and the count, whose upper 16 bits contain the root. After a
 * mismatch each rank makes its error text from the announcements alone, so all ranks report the
 * same text about the same two ranks.
 */
#include "node/shm/shm.h"

#include "base/describe.h"
#include "base/status.h"

#include <assert.h>
#include <string.h>

/* The upper half of a head. */
typedef struct {
    uint32_t kind : 4;
    uint32_t dtype : 6;
    uint32_t op : 14; /* tutti_op_create returns numbers up to some thousand */
    uint32_t tag : 7;
    uint32_t divides : 1;
} what_t;

#define COUNT_BITS 48

uint64_t tutti__shm_head(const tutti__shm_lane_t *lane)
{
    const tutti__node_call_t *call = lane->call;
    what_t what = { call->kind, call->dtype, (uint32_t)call->op & 0x3fff, call->tag,
                    call->divisor != 0 };
    uint32_t bits;

    static_assert(sizeof(what) == sizeof(bits), "half a head");
    static_assert(TUTTI__NODE_MEET < 16, "kind has 4 bits");
    memcpy(&bits, &what, sizeof(bits));
    return (uint64_t)bits << 32;
}

/*
 * Lower bits: the elements in the call's whole map, not only in this operation, so that different
 * counts of two ranks are found at the first chunk. Upper bits: the root if it is below 65536,
 * otherwise a hash of the root. If two roots differ, and one of them is at least 65536, their upper
 * bits are equal in 1 of 65536 cases. NODE_MEET announces the whole root in another word.
 */
uint64_t tutti__shm_count(const tutti__node_call_t *call)
{
    uint32_t root = call->root;

    if (call->kind == TUTTI__NODE_MEET)
        return call->map.count;
    return call->map.count + ((uint64_t)((root ^ root >> 16) & 0xffff) << COUNT_BITS);
}

static what_t what_of(const tutti__announce_t *a)
{
    uint32_t bits = (uint32_t)(tutti__load64_acquire(&a->head) >> 32);
    what_t what;

    memcpy(&what, &bits, sizeof(what));
    return what;
}

/* Do both announcements have the same call? The operation's number is the same in both. */
static int same_call(const tutti__announce_t *a, const tutti__announce_t *b, int is_meet)
{
    return a->count == b->count && (!is_meet || a->u.root == b->u.root) &&
           atomic_load_explicit(&a->head, memory_order_relaxed) ==
               atomic_load_explicit(&b->head, memory_order_relaxed);
}

/* ---- texts ---- */

enum {
    TYPE = TUTTI__HAS_TYPE,
    COUNT = TUTTI__HAS_TYPE | TUTTI__HAS_COUNT,
    TOTAL = COUNT | TUTTI__HAS_IN_ALL,
    OP = TUTTI__HAS_OP,
    ROOT = TUTTI__HAS_ROOT
};

/* [tag] parts of the text for a call. The text for a tag that is not listed has only the call's
   name. */
static const unsigned tags[TUTTI__TAG_ON_DEVICE] = {
    [TUTTI__TAG_ALLREDUCE] = COUNT | OP,   [TUTTI__TAG_REDUCE] = COUNT | OP | ROOT,
    [TUTTI__TAG_BROADCAST] = COUNT | ROOT, [TUTTI__TAG_REDUCE_SCATTER] = TOTAL | OP,
    [TUTTI__TAG_ALLGATHER] = TOTAL,        [TUTTI__TAG_ALLGATHERV] = TOTAL,
    [TUTTI__TAG_GATHER] = TOTAL | ROOT,    [TUTTI__TAG_GATHERV] = TYPE | ROOT,
    [TUTTI__TAG_SCATTER] = TOTAL | ROOT,   [TUTTI__TAG_SCATTERV] = TYPE | ROOT,
    [TUTTI__TAG_ALLTOALL] = TOTAL,         [TUTTI__TAG_ALLTOALLV] = TYPE,
    [TUTTI__TAG_SCAN] = COUNT | OP,        [TUTTI__TAG_EXSCAN] = COUNT | OP,
    [TUTTI__TAG_BUCKET] = COUNT | OP,
};

/* A rank's call in words: "a reduce of 10 elements of float32, sum, root 3". */
static tutti__description_t describe(const tutti__announce_t *a)
{
    what_t what = what_of(a);
    int is_meet = what.kind == TUTTI__NODE_MEET;
    tutti__description_t call = {
        .name = tutti__tag_name(what.tag),
        .dtype = (tutti_dtype_t)what.dtype,
        .op = (tutti_op_t)what.op,
        .root = is_meet ? a->u.root : (uint32_t)(a->count >> COUNT_BITS),
        .count = is_meet ? a->count : a->count & ((1ull << COUNT_BITS) - 1),
    };

    if (call.name == NULL) {
        call.name = "an unknown call";
        return call;
    }
    call.has = tags[what.tag & ~TUTTI__TAG_ON_DEVICE];
    if (what.tag & TUTTI__TAG_ON_DEVICE)
        call.has |= TUTTI__HAS_DEVICE;
    if (!is_meet && tutti__sched_has_root(what.kind))
        call.has |= TUTTI__HAS_HOST_ROOT;
    return call;
}

/* Report the first rank that differs from rank 0, so all ranks name the same two ranks. */
tutti_status_t tutti__shm_mismatch(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    const tutti__announce_t *first = lane->peer[0].announce[lane->seq & 1], *other = first;
    int is_meet = what_of(first).kind == TUTTI__NODE_MEET; /* the same value on all ranks */
    char text[TUTTI__ERROR_BYTES];
    tutti__description_t a, b;
    uint32_t r = 0;

    do
        other = lane->peer[++r].announce[lane->seq & 1];
    while (r + 1 < shm->nlocal && same_call(first, other, is_meet));
    a = describe(first);
    b = describe(other);
    tutti__describe_both(text, sizeof(text), shm->local_to_rank[0], &a, shm->local_to_rank[r], &b);
    return tutti__fail(TUTTI_ERR_MISMATCH, "%s", text);
}
