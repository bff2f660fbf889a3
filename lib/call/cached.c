/* SPDX-License-Identifier: BSD-3-Clause */
/* The cached form of an operation. See cached.h. */
#include "call/cached.h"

#include <assert.h>
#include <string.h>

/* How many bytes of this rank's buffers does a call use? Returns 0 for kinds that are not kept. */
static int measure(const tutti__operation_t *op, const tutti__call_t *call, size_t *ret_send,
                   size_t *ret_recv)
{
    size_t one = call->count * tutti_dtype_bytes(call->dtype), all = one * op->env->exec->size;

    *ret_send = *ret_recv = one;
    switch (call->kind) {
    case TUTTI_CALL_ALLREDUCE:
        return 1;
    case TUTTI_CALL_REDUCE:
        *ret_recv = call->root == op->env->exec->rank ? one : 0;
        return 1;
    case TUTTI_CALL_BROADCAST:
        *ret_send = 0;
        return 1;
    case TUTTI_CALL_REDUCE_SCATTER:
        *ret_send = all;
        return 1;
    case TUTTI_CALL_ALLGATHER:
        *ret_recv = all;
        return 1;
    case TUTTI_CALL_ALLTOALL:
        *ret_send = *ret_recv = all;
        return 1;
    case TUTTI_CALL_BARRIER:
        *ret_send = *ret_recv = 0;
        return 1;
    default:
        return 0;
    }
}

/* The buffer that src_shift counts from. */
static uintptr_t source(const tutti__cached_t *cached, const tutti__call_t *call)
{
    return (uintptr_t)(cached->send_bytes > 0 ? call->sendbuf : call->recvbuf);
}

tutti_status_t tutti__cached_start(tutti__cached_t *cached, const tutti__call_t *call,
                                   tutti__node_t *node, uint32_t looks, tutti__hint_t *hint)
{
    int is_same = cached->is_same;

    assert(cached->is_kept);
    cached->node.src = (const void *)(source(cached, call) + cached->src_shift);
    cached->node.dst = (void *)((uintptr_t)call->recvbuf + cached->dst_shift);
    cached->is_same = 1;
    return node->ops->repeat(node, &cached->node, is_same, looks, hint);
}

void tutti__cached_keep(tutti__cached_t *cached, const tutti__operation_t *op,
                        tutti__stats_entry_t *entry, uint64_t bytes)
{
    const tutti__call_t *call = op->asked;

    /* Not kept: user operations, which may be freed before the next call; calls whose results are
       copied from the library's memory; calls that are compared first. */
    if (cached->is_off || op->env->shape->nhosts > 1 || op->has_compared || call->prescale != 1 ||
        call->postscale != 1 || call->op > TUTTI_MAXLOC || op->memory.copies ||
        op->run_sched == NULL ||
        !tutti__run_as_one(&op->run, op->run_sched, &cached->node, &cached->reducer))
        return;
    cached->is_kept = measure(op, call, &cached->send_bytes, &cached->recv_bytes);
    cached->is_same = 0;
    cached->entry = entry;
    cached->bytes = bytes;
    cached->call = *call;
    cached->in_place =
        call->sendbuf == call->recvbuf && cached->send_bytes > 0 && cached->recv_bytes > 0;
    cached->src_shift = (uintptr_t)cached->node.src - source(cached, call);
    cached->dst_shift = (uintptr_t)cached->node.dst - (uintptr_t)call->recvbuf;
    if (call->kind == TUTTI_CALL_BARRIER) { /* a barrier's block is in SCRATCH, which may move */
        cached->src_shift = cached->dst_shift = (uintptr_t)cached->nothing;
        cached->is_kept = cached->node.nblk * cached->node.nparts == 1;
    }
    /* Not kept: calls whose buffers overlap, unless sendbuf == recvbuf. */
    cached->is_kept = cached->is_kept && tutti__cached_fits(cached, call);
}

int tutti__cached_fits(const tutti__cached_t *cached, const tutti__call_t *call)
{
    const tutti__call_t *kept = &cached->call;
    const char *send = call->sendbuf, *recv = call->recvbuf;

    if (!cached->is_kept || call->kind != kept->kind || call->count != kept->count ||
        call->dtype != kept->dtype || call->op != kept->op || call->root != kept->root ||
        call->prescale != 1 || call->postscale != 1)
        return 0;
    if ((cached->send_bytes > 0 && send == NULL) || (cached->recv_bytes > 0 && recv == NULL))
        return 0;
    if (cached->in_place)
        return send == recv;
    return send + cached->send_bytes <= recv || recv + cached->recv_bytes <= send ||
           cached->send_bytes == 0 || cached->recv_bytes == 0;
}
