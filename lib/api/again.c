/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fast path for a direct call that repeats the previous one.
 *
 * Programs repeat a few calls with other data. If a call is a single node operation, its kind,
 * types and counts determine everything but the buffers. So a call that repeats the previous one
 * skips the checks, the choice of a schedule and the executor, and makes the node operation
 * directly. An allreduce of 8 bytes takes 390 instructions this way, instead of 1 300.
 */
#include "api/direct.h"

/* The bytes of this rank's buffers that a call uses. Returns 0 for kinds that are not kept. */
static int measure(const tutti__comm_t *comm, const tutti__call_t *call, size_t *ret_send,
                   size_t *ret_recv)
{
    size_t one = call->count * tutti_dtype_bytes(call->dtype), all = one * comm->shape.size;

    *ret_send = *ret_recv = one;
    switch (call->kind) {
    case TUTTI_CALL_ALLREDUCE:
        return 1;
    case TUTTI_CALL_REDUCE:
        *ret_recv = call->root == comm->topo->rank ? one : 0;
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

/* Was the schedule a single node operation on whole buffers? */
static int is_single(const tutti__run_t *run, const tutti__sched_t *sched)
{
    if (sched->nops == 1)
        return sched->ops[0].kind >= TUTTI__NODE_ALLREDUCE;
    return sched->nops == 3 && sched->ops[0].kind == TUTTI__LOOP && run->trips == 1 &&
           sched->ops[1].kind >= TUTTI__NODE_ALLREDUCE;
}

/* The buffer that the node operation reads. */
static uintptr_t source(const tutti__again_t *again, const tutti__call_t *call)
{
    return (uintptr_t)(again->send_bytes > 0 ? call->sendbuf : call->recvbuf);
}

void tutti__again_aim(tutti__again_t *again, const tutti__call_t *call)
{
    again->node.src = (const void *)(source(again, call) + again->src_shift);
    again->node.dst = (void *)((uintptr_t)call->recvbuf + again->dst_shift);
}

void tutti__again_keep(tutti__comm_t *comm, const tutti__call_t *call, const tutti__sched_t *sched)
{
    tutti__again_t *again = &comm->again;
    const tutti__run_t *run = &comm->run;

    /* Not kept: user operations, which may be freed before the next call; calls whose results are
       copied from the library's memory; and with a device all calls, since the next call's buffers
       may be in another kind of memory. */
    if (comm->shape.nhosts > 1 || comm->exec.device != NULL || comm->lone_device != NULL ||
        call->prescale != 1 || call->postscale != 1 || call->op > TUTTI_MAXLOC ||
        comm->room.copies || !is_single(run, sched))
        return;
    again->is_kept = measure(comm, call, &again->send_bytes, &again->recv_bytes);
    again->call = *call;
    again->in_place =
        call->sendbuf == call->recvbuf && again->send_bytes > 0 && again->recv_bytes > 0;
    again->src_shift = (uintptr_t)run->node_call.src - source(again, call);
    again->dst_shift = (uintptr_t)run->node_call.dst - (uintptr_t)call->recvbuf;
    again->reducer = run->reducer;
    again->node = run->node_call;
    again->node.reducer = &again->reducer;
    again->node.again = 0;
    if (call->kind == TUTTI_CALL_BARRIER) { /* its block is scratch memory, which may move */
        again->src_shift = again->dst_shift = (uintptr_t)again->nothing;
        again->is_kept = again->node.nblk * again->node.nparts == 1;
    }
    /* Not kept: buffers that overlap in another way than send == recv. */
    again->is_kept = again->is_kept && tutti__again_fits(again, call);
}

int tutti__again_fits(const tutti__again_t *again, const tutti__call_t *call)
{
    const tutti__call_t *kept = &again->call;
    const char *send = call->sendbuf, *recv = call->recvbuf;

    if (!again->is_kept || call->kind != kept->kind || call->count != kept->count ||
        call->dtype != kept->dtype || call->op != kept->op || call->root != kept->root ||
        call->prescale != 1 || call->postscale != 1)
        return 0;
    if ((again->send_bytes > 0 && send == NULL) || (again->recv_bytes > 0 && recv == NULL))
        return 0;
    if (again->in_place)
        return send == recv;
    return send + again->send_bytes <= recv || recv + again->recv_bytes <= send ||
           again->send_bytes == 0 || again->recv_bytes == 0;
}
