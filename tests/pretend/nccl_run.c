/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of the pretended NCCL. Each rank's stream runs them in step with all others:
 *
 *      meet, and compare the calls of all ranks; then for each piece:
 *      copy this rank's piece into its window, meet, fold or copy all windows, meet
 *
 * Sums are folded in the order of ranks, so results have the bits of the sequential reference.
 */
#include "pretend/nccl_inside.h"

#include "base/time.h"
#include "reduce/reduce.h"

#include <stdio.h>
#include <string.h>

static const char *const kinds[] = { "allreduce", "reduce_scatter", "allgather", "broadcast",
                                     "reduce",    "send",           "recv" };

/* Wait until all ranks have arrived. desc: the call, at the first meeting of a collective;
   otherwise NULL. */
static int meet(tutti__nccl_t *nccl, const desc_t *desc)
{
    slot_t *slot = nccl->slot;
    member_t *me = &slot->members[nccl->rank];
    unsigned tries = 0;
    int all_here = 0;
    uint64_t step;

    shared_lock(&slot->lock);
    step = ++me->step;
    if (desc != NULL) {
        me->begun++;
        me->desc = *desc;
    }
    for (;;) {
        uint32_t here = 0;

        for (uint32_t r = 0; r < nccl->size; r++)
            here += slot->members[r].step >= step;
        /* If all ranks have arrived, the meeting is complete, even if the communicator has failed
           after that: other ranks may have finished this call. */
        all_here = here == nccl->size;
        if (all_here || nccl_is_over(nccl))
            break;
        pthread_mutex_unlock(&slot->lock);
        shared_nap(&tries);
        shared_lock(&slot->lock);
    }
    pthread_mutex_unlock(&slot->lock);
    return all_here;
}

static void describe(char *text, size_t bytes, const desc_t *d)
{
    snprintf(text, bytes, "%s of %zu of type %d, op %d, root %u, call %zu of %zu", kinds[d->kind],
             d->count, d->dtype, d->op, (unsigned)d->root, d->index + 1, d->ncalls);
}

static int is_equal(const desc_t *a, const desc_t *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->count == b->count && a->index == b->index && a->ncalls == b->ncalls;
}

/* Report that the calls of rank 0 (`first`) and rank r (`other`) differ. */
static int say_mismatch(tutti__nccl_t *nccl, const desc_t *first, uint32_t r, const desc_t *other)
{
    char mine[100], theirs[100];

    describe(mine, sizeof(mine), first);
    describe(theirs, sizeof(theirs), other);
    nccl_fail(nccl, "rank 0 came with %s; rank %u with %s", mine, (unsigned)r, theirs);
    return 0;
}

/* Prints places as NUMBER+OFFSET; number 0: not registered. */
static int say_mixed(tutti__nccl_t *nccl, const char *why, const desc_t *first, uint32_t r,
                     const desc_t *other)
{
    nccl_fail(nccl, "%s of %zu: %s: rank 0 %d+%lld to %d+%lld, rank %u %d+%lld to %d+%lld",
              kinds[first->kind], first->count, why, (int)first->src.number,
              (long long)first->src.offset, (int)first->dst.number, (long long)first->dst.offset,
              (unsigned)r, (int)other->src.number, (long long)other->src.offset,
              (int)other->dst.number, (long long)other->dst.offset);
    return 0;
}

/* Compare the calls of all ranks, which have met. They meet again afterwards, so that no desc
   changes during the comparison. The buffers of a single rank may be inconsistent as well. */
static int agree(tutti__nccl_t *nccl)
{
    const member_t *members = nccl->slot->members;
    desc_t first, other;
    const char *why;

    for (uint32_t r = nccl->size > 1; r < nccl->size; r++) {
        shared_lock(&nccl->slot->lock);
        first = members[0].desc;
        other = members[r].desc;
        pthread_mutex_unlock(&nccl->slot->lock);
        if (!is_equal(&first, &other))
            return say_mismatch(nccl, &first, r, &other);
        why = register_mixes(&first, &other);
        if (why != NULL)
            return say_mixed(nccl, why, &first, r, &other);
    }
    return meet(nccl, NULL);
}

static void fold(const tutti__nccl_t *nccl, const tutti__nccl_call_t *call, char *dst, size_t n)
{
    uint32_t divisor = call->op == TUTTI_AVG && nccl->size > 1 ? nccl->size : 0;
    const void *srcs[PRETEND_RANKS];

    for (uint32_t r = 0; r < nccl->size; r++)
        srcs[r] = shared_window(nccl, r);
    tutti__reduce_find(call->dtype, call->op)(dst, srcs, nccl->size, n, divisor);
}

/* Write results to dst. The windows of all ranks hold the `n` elements from `done` on of block
   `block`. */
static void take(const tutti__nccl_t *nccl, const tutti__nccl_call_t *call, char *dst,
                 uint32_t block, size_t done, size_t n)
{
    size_t width = tutti_dtype_bytes(call->dtype);

    switch (call->kind) {
    case TUTTI__NCCL_ALLREDUCE:
        fold(nccl, call, dst + done * width, n);
        break;
    case TUTTI__NCCL_REDUCE:
        if (nccl->rank == call->root)
            fold(nccl, call, dst + done * width, n);
        break;
    case TUTTI__NCCL_REDUCE_SCATTER:
        if (nccl->rank == block)
            fold(nccl, call, dst + done * width, n);
        break;
    case TUTTI__NCCL_ALLGATHER:
        for (uint32_t r = 0; r < nccl->size; r++)
            memcpy(dst + (r * call->count + done) * width, shared_window(nccl, r), n * width);
        break;
    default:
        memcpy(dst + done * width, shared_window(nccl, call->root), n * width);
    }
}

static int run_pieces(tutti__nccl_t *nccl, const tutti__nccl_call_t *call, const char *src,
                      char *dst)
{
    size_t width = tutti_dtype_bytes(call->dtype), most = PIECE_BYTES / width;
    uint32_t blocks = call->kind == TUTTI__NCCL_REDUCE_SCATTER ? nccl->size : 1;
    uint64_t begin = tutti__now_ns();
    double rate = atomic_load(&pretend_options.nccl_rate);

    for (uint32_t b = 0; b < blocks; b++) {
        for (size_t done = 0; done < call->count; done += most) {
            size_t n = TUTTI__MIN(most, call->count - done);

            if (src != NULL)
                memcpy(shared_window(nccl, nccl->rank), src + (b * call->count + done) * width,
                       n * width);
            if (!meet(nccl, NULL))
                return 0;
            take(nccl, call, dst, b, done, n);
            if (!meet(nccl, NULL))
                return 0;
            stream_pace(begin, (b * call->count + done + n) * width, rate);
        }
    }
    return 1;
}

int nccl_view(tutti__nccl_t *nccl, const char *what, const void *ptr, size_t bytes, char **ret_view)
{
    char words[WORDS_BYTES];

    if (memory_view(nccl->device, VIEW_KERNEL, ptr, bytes, ret_view, words) == TUTTI_OK)
        return 1;
    device_trouble(nccl->device, "%s: %s", what, words);
    nccl_fail(nccl, "%s: %s", what, words);
    return 0;
}

int nccl_collective(tutti__nccl_t *nccl, const tutti__nccl_call_t *call, size_t index,
                    size_t ncalls)
{
    int reduces = call->kind == TUTTI__NCCL_ALLREDUCE || call->kind == TUTTI__NCCL_REDUCE ||
                  call->kind == TUTTI__NCCL_REDUCE_SCATTER;
    int is_rooted = call->kind == TUTTI__NCCL_BROADCAST || call->kind == TUTTI__NCCL_REDUCE;
    int is_root = nccl->rank == call->root;
    desc_t desc = { .kind = call->kind,
                    .dtype = call->dtype,
                    .op = reduces ? (int)call->op : 0,
                    .root = is_rooted ? call->root : 0,
                    .count = call->count,
                    .index = index,
                    .ncalls = ncalls };
    size_t bytes = call->count * tutti_dtype_bytes(call->dtype);
    size_t in = call->kind == TUTTI__NCCL_REDUCE_SCATTER ? bytes * nccl->size : bytes;
    size_t out = call->kind == TUTTI__NCCL_ALLGATHER ? bytes * nccl->size : bytes;
    char *src = NULL, *dst = NULL;

    if ((call->kind != TUTTI__NCCL_BROADCAST || is_root) &&
        !nccl_view(nccl, kinds[call->kind], call->src, in, &src))
        return 0;
    if ((call->kind != TUTTI__NCCL_REDUCE || is_root) &&
        !nccl_view(nccl, kinds[call->kind], call->dst, out, &dst))
        return 0;
    register_describe(nccl, call, &desc);
    if (desc.src.number != 0 || desc.dst.number != 0)
        device_count(nccl->device, PRETEND_REGISTERED);
    return meet(nccl, &desc) && agree(nccl) && run_pieces(nccl, call, src, dst);
}
