/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One call serves several tensors. The tensors are packed into memory that the other ranks of the
 * host map. The call runs there in place, without further copies, and the results are unpacked.
 * Scaling is part of the copies. Tensors in device memory are packed into the lane's device memory,
 * all by one kernel launch.
 *
 *      allreduce, reduce, broadcast    |a         |b  |c     |
 *      reduce_scatter, allgather       |a0  |b0|c0|a1  |b1|c1|     block r: rank r's part
 *
 * Tensors begin at cache lines, and the gaps are zero. A caller's own operation must receive only
 * elements of tensors, so a bucket with such an operation has no gaps. In device memory the gaps
 * are not zeroed: their sums are never read, and no element depends on another.
 *
 * If the tensors of a plan's bucket follow each other in rank 0's memory, the bucket has no gaps on
 * any rank. If a rank has these tensors in the same order, without gaps, in memory that the other
 * ranks of the host map (tutti_mem_alloc), this rank serves the bucket there without copies. The
 * other ranks pack the bucket. Tried: to serve a bucket without packing even if its tensors are in
 * memory that the other ranks do not map. Such memory is copied in chunks, and ranks wait for each
 * chunk: ResNet-50's gradients took several times as long as packed gradients.
 *
 * A rank that has joined makes zero contributions: zeros, in the same places.
 */
#include "engine/fuse.h"

#include "base/constants.h"
#include "engine/recorded.h"

#include <assert.h>
#include <string.h>

static int is_parted(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_REDUCE_SCATTER || kind == TUTTI_CALL_ALLGATHER;
}

/* Enlarge the lane's memory, if it has less than `bytes` bytes. */
static tutti_status_t grow(tutti__lane_t *lane, size_t bytes)
{
    size_t capacity = TUTTI__FUSE_FIRST_BYTES;
    void *ptr;
    tutti_status_t status;

    if (lane->fuse_bytes >= bytes)
        return TUTTI_OK;
    while (capacity < bytes)
        capacity *= 2;
    status = tutti__arena_alloc(lane->arena, capacity, &ptr);
    if (status != TUTTI_OK)
        return status;
    /* No peer reads the old memory: a zero-copy operation ends only after all peers' accesses. */
    tutti__arena_free(lane->arena, lane->fuse);
    lane->fuse = ptr;
    lane->fuse_bytes = capacity;
    return TUTTI_OK;
}

/* ---- places ---- */

static size_t part_bytes(const tutti__request_t *r)
{
    return r->call.count * tutti_dtype_bytes(r->call.dtype);
}

/* Are the tensors packed without gaps? A lone tensor is: other ranks may serve it in place. */
static int is_tight(const tutti__bucket_t *bucket)
{
    return bucket->is_tight || bucket->nrequests == 1 || bucket->first->call.op > TUTTI_MAXLOC;
}

/* Give each tensor its place; returns the bytes of one block. */
static size_t lay_out(tutti__bucket_t *bucket)
{
    int tight = is_tight(bucket);
    size_t total = 0;

    for (tutti__request_t *r = bucket->first; r != NULL; r = r->next) {
        r->offset = total;
        total += tight ? part_bytes(r) : TUTTI__ROUND_UP(part_bytes(r), TUTTI__LINE_BYTES);
    }
    return total;
}

/* Bytes that a zero contribution receives and discards. */
static size_t zero_bytes(const tutti__request_t *r, uint32_t size)
{
    size_t total = r->call.recvcounts != NULL ? tutti__request_sum(r->call.recvcounts, size) : 0;

    return total * tutti_dtype_bytes(r->call.dtype);
}

/* Choose the memory that the bucket is packed into. */
static tutti_status_t find_memory(tutti__lane_t *lane, size_t bytes)
{
    const tutti__exec_device_t *device = lane->op.env->exec->device;
    tutti_status_t status;

    if (lane->call.on_device) {
        if (bytes > device->fuse_bytes)
            return tutti__fail(TUTTI_ERR_INTERNAL, "a bucket of %zu bytes in device memory", bytes);
        lane->packed = device->lane[lane->op.lane].fuse;
        return TUTTI_OK;
    }
    status = grow(lane, TUTTI__MAX(bytes, 1));
    lane->packed = lane->fuse;
    return status;
}

tutti_status_t tutti__fuse_call(tutti__lane_t *lane, tutti__call_t *ret_call)
{
    const tutti__exec_env_t *exec = lane->op.env->exec;
    tutti__call_t call = lane->call;
    size_t block = lay_out(lane->first);
    size_t bytes = is_parted(call.kind) ? block * exec->size : block;
    tutti_status_t status;

    if (call.kind == TUTTI_CALL_ALLGATHERV)
        bytes = zero_bytes(lane->first->first, exec->size);
    status = find_memory(lane, bytes);
    if (status != TUTTI_OK)
        return status;
    call.prescale = call.postscale = 1;
    call.sendbuf = call.recvbuf = lane->packed;
    if (call.kind != TUTTI_CALL_ALLGATHERV && call.kind != TUTTI_CALL_BARRIER)
        call.count = block / tutti_dtype_bytes(call.dtype);
    if (call.kind == TUTTI_CALL_REDUCE_SCATTER)
        call.recvbuf = lane->packed + block * exec->rank;
    if (call.kind == TUTTI_CALL_ALLGATHER)
        call.sendbuf = lane->packed + block * exec->rank;
    *ret_call = call;
    return TUTTI_OK;
}

int tutti__fuse_call_in_place(const tutti__lane_t *lane, tutti__call_t *ret_call)
{
    const tutti__request_t *first = lane->first->first;
    const char *next = first->call.recvbuf;
    size_t count = 0, offset;

    if (!lane->first->is_tight)
        return 0;
    for (const tutti__request_t *r = first; r != NULL; r = r->next) {
        if (!tutti__fuse_can_join(r) || r->call.recvbuf != next)
            return 0;
        next += part_bytes(r);
        count += r->call.count;
    }
    if (!tutti__arena_offset(lane->arena, first->call.recvbuf,
                             (size_t)(next - (const char *)first->call.recvbuf), &offset))
        return 0;
    *ret_call = first->call;
    ret_call->count = count;
    return 1;
}

/* ---- copies ---- */

static void copy(tutti__lane_t *lane, void *to, const void *from, const tutti__request_t *r,
                 double scale)
{
    if (TUTTI__UNLIKELY(lane->call.on_device))
        tutti__operation_copy(&lane->op, to, from, r->call.count);
    else if (TUTTI__LIKELY(scale == 1))
        memcpy(to, from, part_bytes(r));
    else
        tutti__reduce_scale(to, from, r->call.count, r->call.dtype, scale);
}

static char *place(const tutti__lane_t *lane, const tutti__request_t *r, uint32_t part)
{
    return lane->packed + part * lane->call.count * tutti_dtype_bytes(r->call.dtype) + r->offset;
}

/* Pack this rank's part of one tensor into one block. */
static void pack_part(tutti__lane_t *lane, const tutti__request_t *r, const void *from,
                      uint32_t part)
{
    size_t bytes = part_bytes(r);
    char *to = place(lane, r, part);

    if (TUTTI__UNLIKELY(r->is_zero))
        memset(to, 0, bytes);
    else
        copy(lane, to, (const char *)from + (is_parted(r->call.kind) ? part * bytes : 0), r,
             r->call.prescale);
    if (!is_tight(lane->first) && !lane->call.on_device)
        memset(to + bytes, 0, TUTTI__ROUND_UP(bytes, TUTTI__LINE_BYTES) - bytes);
}

/* Copy zeros into device memory, from STAGE (sched/sched.h), which the run does not use yet. */
static tutti_status_t write_zeros(tutti__lane_t *lane)
{
    const tutti__exec_device_t *device = lane->op.env->exec->device;
    const tutti__device_lane_t *its = &device->lane[lane->op.lane];
    size_t bytes = lane->call.count * tutti_dtype_bytes(lane->call.dtype), part;
    tutti_status_t status = TUTTI_OK;

    if (lane->call.kind == TUTTI_CALL_REDUCE_SCATTER)
        bytes *= lane->op.env->exec->size;
    part = TUTTI__MIN(bytes, device->stage_bytes);
    memset(its->stage, 0, part);
    for (size_t at = 0; at < bytes && status == TUTTI_OK; at += part)
        status =
            device->ops->copy(lane->packed + at, its->stage, TUTTI__MIN(part, bytes - at), its->up);
    return status;
}

static void pack_all(const tutti__exec_env_t *exec, tutti__lane_t *lane)
{
    for (const tutti__request_t *r = lane->first->first; r != NULL; r = r->next) {
        switch (r->call.kind) {
        case TUTTI_CALL_ALLREDUCE:
        case TUTTI_CALL_REDUCE:
            pack_part(lane, r, r->call.sendbuf, 0);
            break;
        case TUTTI_CALL_BROADCAST:
            if (r->call.root == exec->rank)
                pack_part(lane, r, r->call.recvbuf, 0);
            break;
        case TUTTI_CALL_REDUCE_SCATTER:
            for (uint32_t part = 0; part < exec->size; part++)
                pack_part(lane, r, r->call.sendbuf, part);
            break;
        case TUTTI_CALL_ALLGATHER:
            copy(lane, place(lane, r, exec->rank), r->call.sendbuf, r, 1);
            break;
        default:
            break;
        }
    }
}

static tutti_status_t pack(void *owner, tutti__operation_t *op)
{
    tutti__lane_t *lane = owner;
    uint64_t began_ns = tutti__trace_begin();

    (void)op;
    assert(lane->packed != NULL && lane->first != NULL);
    if (TUTTI__UNLIKELY(lane->call.on_device && lane->first->first->is_zero))
        return write_zeros(lane);
    pack_all(lane->op.env->exec, lane);
    tutti__recorded_copies(lane, lane->op.env->watch, TUTTI__TRACE_PACK, began_ns);
    return TUTTI_OK;
}

static void unpack_all(tutti__lane_t *lane)
{
    const tutti__exec_env_t *exec = lane->op.env->exec;

    for (const tutti__request_t *r = lane->first->first; r != NULL; r = r->next) {
        if (r->is_zero)
            continue;
        switch (r->call.kind) {
        case TUTTI_CALL_ALLREDUCE:
            copy(lane, r->call.recvbuf, place(lane, r, 0), r, r->call.postscale);
            break;
        case TUTTI_CALL_REDUCE:
            if (r->call.root == exec->rank)
                copy(lane, r->call.recvbuf, place(lane, r, 0), r, r->call.postscale);
            break;
        case TUTTI_CALL_BROADCAST:
            if (r->call.root != exec->rank)
                copy(lane, r->call.recvbuf, place(lane, r, 0), r, 1);
            break;
        case TUTTI_CALL_REDUCE_SCATTER:
            copy(lane, r->call.recvbuf, place(lane, r, exec->rank), r, r->call.postscale);
            break;
        case TUTTI_CALL_ALLGATHER:
            for (uint32_t part = 0; part < exec->size; part++)
                copy(lane, (char *)r->call.recvbuf + part * part_bytes(r), place(lane, r, part), r,
                     1);
            break;
        default:
            break;
        }
    }
}

static void unpack(void *owner, tutti__operation_t *op)
{
    tutti__lane_t *lane = owner;
    uint64_t began_ns = tutti__trace_begin();

    (void)op;
    unpack_all(lane);
    tutti__recorded_copies(lane, lane->op.env->watch, TUTTI__TRACE_UNPACK, began_ns);
}

const tutti__packing_t tutti__fuse_packing = { pack, unpack };
