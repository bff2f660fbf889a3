/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buckets of tensors in device memory, in a lane.
 *
 * (INPUT) --> pack --> RUN on the device --------------------> unpack --> QUEUED --> pending
 *                       | NCCL does not serve it                  ^            (completion.c)
 *                       v                                         |
 *                   STAGED_IN --> RUN in host memory --> STAGED_OUT
 *
 * INPUT: wait until the data are complete. It is used only where streams may wait on semaphores;
 * semaphore.c has the reason.
 *
 * Pack and unpack are used for several tensors, which share the lane's device memory (fuse.c), and
 * for scales. One plain tensor is served where it is. Both are queued in the lane's stream `up`,
 * behind the events of the tensors. The run begins behind an event after the pack, and the host
 * does not wait for this event. If the run is NCCL's alone, it ends when it is queued: `up` waits
 * for it, and the unpack is queued behind that wait. All waiting is polling, so such a lane counts
 * as a lane that polls.
 *
 * A flat schedule, of the ranks of all hosts, passes the launch sequencer between pack and RUN:
 * see flat.h.
 *
 * All ranks must take the same path, device or host. So the choice depends only on properties that
 * are equal on all ranks: kind, type, length, scales and schedule, but never addresses. Buckets
 * have any length, so the schedule changes with the length only where the bits of the result do not
 * change (coll/device_cost.c).
 *
 * The lanes' memory may be registered with NCCL. In one NCCL call, all buffers of all ranks must be
 * registered, at the same offset of the same memory, or none of them. So either all data of a
 * bucket, including the results, is in its lane's memory, or none of it. Properties that all ranks
 * know decide it: a bucket is packed if it has several tensors, if some ranks make zero
 * contributions, or if a prescaled operand does not fit into its result. The bucket's number
 * determines the lane, and the lengths of its tensors determine their places. All other buckets run
 * in the callers' memory, which Tutti never registers.
 *
 * When the communicator dies, the run is abandoned at once. Work that is in streams by then still
 * uses the caller's buffers; nothing is added.
 */
#include "engine/state.h"

#include <stdlib.h>
#include <string.h>

static const tutti__device_lane_t *its(const tutti__engine_t *e, const tutti__lane_t *lane)
{
    return &e->env.exec->device->lane[lane - e->lane];
}

static uint32_t index_of(const tutti__engine_t *e, const tutti__lane_t *lane)
{
    return (uint32_t)(lane - e->lane);
}

/* Kinds with their own block map run in host memory. */
static int is_for_host(tutti_call_kind_t kind)
{
    return tutti__call_by_pair(kind) || kind == TUTTI_CALL_REDUCE_SCATTERV ||
           kind == TUTTI_CALL_ALLGATHERV || tutti__call_collective(kind) == TUTTI__COLLECTIVES;
}

/* Does a lone tensor go into the lane's memory? A zero contribution has no other memory. A scaled
   operand needs memory of its own unless the result is as large as the operand. */
static int is_packed(const tutti__bucket_t *bucket)
{
    const tutti__call_t *call = &bucket->first->call;

    return bucket->joined || (call->prescale != 1 && tutti__call_reduces(call->kind) &&
                              call->kind != TUTTI_CALL_ALLREDUCE);
}

int tutti__device_fits(const tutti__engine_t *e, const tutti__bucket_t *bucket)
{
    const tutti__exec_device_t *device = e->env.exec->device;
    const tutti__request_t *r = bucket->first;

    if (device == NULL || device->node == NULL || is_for_host(r->call.kind))
        return 0;
    /* Several tensors always fit the lane's memory. */
    return bucket->nrequests > 1 || !is_packed(bucket) || r->bytes <= device->fuse_bytes;
}

int tutti__device_packs(const tutti__engine_t *e, const tutti__bucket_t *bucket)
{
    return bucket->first->call.on_device && is_packed(bucket) && tutti__device_fits(e, bucket);
}

/* ---- pack and unpack ---- */

/* Provide space for the pieces of one bucket. */
static tutti_status_t need_pieces(const tutti__engine_t *e, tutti__lane_t *lane)
{
    size_t room = (size_t)lane->first->nrequests * e->size;
    tutti__piece_t *pieces;

    lane->npieces = 0;
    if (lane->pieces_room >= room)
        return TUTTI_OK;
    pieces = realloc(lane->pieces, room * sizeof(*pieces));
    if (pieces == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu pieces of a bucket", room);
    lane->pieces = pieces;
    lane->pieces_room = room;
    return TUTTI_OK;
}

void tutti__device_copy(tutti__lane_t *lane, void *to, const void *from, size_t count)
{
    lane->pieces[lane->npieces++] = (tutti__piece_t){ from, to, count };
}

/* Queue the copies that were added. */
static tutti_status_t queue_pieces(const tutti__engine_t *e, const tutti__lane_t *lane,
                                   double scale)
{
    tutti_dtype_t dtype = lane->call.dtype;

    if (lane->npieces == 0)
        return TUTTI_OK;
    return e->env.exec->device->ops->pack(lane->pieces, lane->npieces, dtype, dtype, scale,
                                          its(e, lane)->up);
}

/* Write a zero contribution. STAGE belongs to the run, which begins after this. */
static tutti_status_t zero(const tutti__engine_t *e, const tutti__lane_t *lane)
{
    const tutti__exec_device_t *device = e->env.exec->device;
    size_t bytes = lane->call.count * tutti_dtype_bytes(lane->call.dtype), part;
    tutti_status_t status = TUTTI_OK;

    if (lane->call.kind == TUTTI_CALL_REDUCE_SCATTER)
        bytes *= e->size;
    part = TUTTI__MIN(bytes, device->stage_bytes);
    memset(its(e, lane)->stage, 0, part);
    for (size_t at = 0; at < bytes && status == TUTTI_OK; at += part)
        status = device->ops->copy(lane->packed + at, its(e, lane)->stage,
                                   TUTTI__MIN(part, bytes - at), its(e, lane)->up);
    return status;
}

/* Queue the packing, if there is any; *ret_ready: an event behind the data, or NULL. */
static tutti_status_t pack(const tutti__engine_t *e, tutti__lane_t *lane,
                           tutti__devent_t **ret_ready)
{
    const tutti__device_lane_t *mine = its(e, lane);
    const tutti__request_t *first = lane->first->first;
    const tutti__call_t *call = &first->call;
    int scales = !lane->is_staged && call->prescale != 1 && tutti__call_reduces(call->kind);
    tutti_status_t status = TUTTI_OK;

    *ret_ready = first->ready;
    if (!lane->fused && !scales)
        return TUTTI_OK;
    for (const tutti__request_t *r = first; r != NULL && status == TUTTI_OK; r = r->next)
        if (r->ready != NULL)
            status = e->env.exec->device->ops->wait(mine->up, r->ready);
    if (status == TUTTI_OK && first->is_zero)
        status = zero(e, lane);
    if (status != TUTTI_OK)
        return status;
    lane->npieces = 0;
    if (!lane->fused)
        tutti__device_copy(lane, (void *)(uintptr_t)lane->call.sendbuf, call->sendbuf,
                           first->bytes / tutti_dtype_bytes(call->dtype));
    else if (!first->is_zero)
        tutti__fuse_pack(e, lane);
    *ret_ready = mine->done;
    status = queue_pieces(e, lane, tutti__call_reduces(call->kind) ? call->prescale : 1);
    return status == TUTTI_OK ? e->env.exec->device->ops->record(mine->done, mine->up) : status;
}

/* The run has ended; is_queued: only on the host. Ends in phase QUEUED, unless nothing is to
   be awaited. */
static tutti_status_t unpack(tutti__engine_t *e, tutti__lane_t *lane, int is_queued)
{
    const tutti__call_t *call = &lane->first->first->call;
    tutti_status_t status;

    lane->npieces = 0;
    if (lane->fused)
        tutti__fuse_unpack(e, lane);
    else if (lane->unpacks && lane->room.result > 0)
        tutti__device_copy(lane, call->recvbuf, lane->call.recvbuf, lane->room.result);
    if (lane->npieces == 0 && !is_queued)
        return TUTTI_OK;
    lane->phase = TUTTI__DEVICE_QUEUED;
    status = queue_pieces(e, lane, tutti__call_reduces(call->kind) ? call->postscale : 1);
    return status == TUTTI_OK ? tutti__completion_record(e, lane->first, its(e, lane)->up) : status;
}

/* ---- the beginning ---- */

/* Choose the buffers of one unpacked tensor on the device: an allreduce puts its scaled data
   into recvbuf. */
static void place(const tutti__engine_t *e, tutti__lane_t *lane)
{
    const tutti__call_t *user = &lane->first->first->call;
    tutti__call_t *call = &lane->call;

    if (!tutti__call_reduces(call->kind))
        return;
    lane->unpacks = call->postscale != 1;
    if (call->prescale != 1)
        call->sendbuf = call->recvbuf;
    /* In place as in MPI, the result would overwrite the operands of other ranks. In the rank's own
       part of sendbuf it does not. */
    if (call->kind == TUTTI_CALL_REDUCE_SCATTER && call->sendbuf == call->recvbuf && e->rank > 0) {
        call->recvbuf = (char *)user->recvbuf + lane->first->first->bytes / e->size * e->rank;
        lane->unpacks = 1;
    }
    call->prescale = call->postscale = 1;
}

static tutti_status_t prepare(const tutti__engine_t *e, tutti__lane_t *lane,
                              const tutti__call_t *call, tutti__want_t *ret_want, int *ret_in_place,
                              int *ret_empty)
{
    return tutti__call_prepare(call, e->rank, e->size, &lane->room, ret_want, &lane->exec,
                               ret_in_place, ret_empty);
}

/* Find the schedule in host memory, where the buffers are arranged as on the device. Scales need no
   space there. */
static tutti_status_t find_in_host(tutti__engine_t *e, tutti__lane_t *lane,
                                   const tutti__sched_t **ret_sched, int *ret_empty)
{
    tutti__call_t plain = lane->call;
    tutti__want_t want = { 0 };
    int in_place;
    tutti_status_t status;

    plain.prescale = plain.postscale = 1;
    status = prepare(e, lane, &plain, &want, &in_place, ret_empty);
    return status == TUTTI_OK && !*ret_empty
               ? tutti__lanes_schedule(&e->cache, &plain, &want, in_place, ret_sched)
               : status;
}

/* Choose the schedule of the bucket. *ret_sched NULL: in host memory with *ret_in_host,
   or refused. */
static tutti_status_t choose(tutti__engine_t *e, tutti__lane_t *lane,
                             const tutti__sched_t **ret_sched, const tutti__sched_t **ret_in_host,
                             int *ret_empty)
{
    tutti__call_t plain = lane->call;
    tutti__want_t want = { 0 };
    int in_place;
    tutti_status_t status;

    *ret_sched = *ret_in_host = NULL;
    lane->unpacks = 0;
    if (tutti__device_fits(e, lane->first)) {
        /* Needed if NCCL does not serve the call. */
        if (e->words != NULL)
            (void)find_in_host(e, lane, ret_in_host, ret_empty);
        if (!lane->fused)
            place(e, lane);
        status = prepare(e, lane, &lane->call, &want, &in_place, ret_empty);
        if (status != TUTTI_OK || *ret_empty)
            return status;
        status = tutti__lanes_schedule(&e->device_cache, &lane->call, &want, in_place, ret_sched);
        if (status == TUTTI_OK && (*ret_sched)->on_device &&
            tutti__flat_serves(e, &lane->call, *ret_sched))
            return TUTTI_OK;
        /* If no memory can serve the call, the schedules for host memory report it again. */
        if (status != TUTTI_OK && status != TUTTI_ERR_UNSUPPORTED &&
            status != TUTTI_ERR_INVALID_ARGUMENT)
            return status;
    }
    *ret_sched = NULL;
    lane->unpacks = 0;
    lane->call = plain;
    return find_in_host(e, lane, ret_in_host, ret_empty);
}

/* From here on only the communicator's death can fail the bucket, and the thread may run it. So its
   requests may be handed over. */
static void begin(tutti__engine_t *e, const tutti__lane_t *lane, const tutti__sched_t *sched,
                  const tutti__sched_t *in_host)
{
    if (e->words == NULL || in_host == NULL ||
        (sched != NULL && tutti__lanes_forbidden(e, sched, TUTTI__STEP_THREAD)) ||
        tutti__lanes_forbidden(e, in_host, TUTTI__STEP_THREAD))
        return;
    tutti__semaphore_begin(e, lane->first);
}

static tutti_status_t begin_staged(const tutti__engine_t *e, tutti__lane_t *lane,
                                   tutti__devent_t *ready)
{
    lane->is_staged = 1;
    lane->bytes = lane->fused ? lane->call.count * tutti_dtype_bytes(lane->call.dtype)
                              : lane->first->first->bytes;
    lane->phase = TUTTI__DEVICE_STAGED_IN;
    return tutti__staged_begin(e->env.exec->device, index_of(e, lane), &lane->call, e->rank,
                               e->size, ready, &lane->staged);
}

/* Queue the packing, and begin the run behind it. */
static tutti_status_t launch(tutti__engine_t *e, tutti__lane_t *lane)
{
    const tutti__sched_t *sched = lane->sched;
    tutti__devent_t *ready;
    tutti_status_t status = pack(e, lane, &ready);

    if (status != TUTTI_OK)
        return status;
    if (sched == NULL)
        return begin_staged(e, lane, ready);
    lane->exec.on_device = 1;
    lane->exec.ready = ready;
    /* Zeros are copied from STAGE, which the lane's next bucket may use. */
    lane->exec.queued = !lane->first->first->is_zero;
    lane->exec.then = its(e, lane)->up;
    lane->phase = sched->flat ? TUTTI__DEVICE_COME : TUTTI__DEVICE_RUN;
    return sched->flat ? TUTTI_OK : tutti__lanes_run(lane, sched);
}

/* Are the data of all tensors complete? */
static tutti_status_t look_at_input(const tutti__engine_t *e, const tutti__bucket_t *bucket)
{
    tutti_status_t status = TUTTI_OK;

    for (const tutti__request_t *r = bucket->first; r != NULL && status == TUTTI_OK; r = r->next)
        if (r->ready != NULL)
            status = e->env.exec->device->ops->query(r->ready);
    return status;
}

tutti_status_t tutti__device_start(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who,
                                   tutti_status_t *ret_refused)
{
    const tutti__sched_t *sched = NULL, *in_host = NULL;
    tutti_status_t status;
    int empty = 0;

    if (e->env.exec->device == NULL)
        return tutti__fail(TUTTI_ERR_INTERNAL, "device memory without a device");
    status = need_pieces(e, lane);
    if (status == TUTTI_OK)
        status = choose(e, lane, &sched, &in_host, &empty);
    if (status == TUTTI_ERR_UNSUPPORTED || status == TUTTI_ERR_INVALID_ARGUMENT) {
        *ret_refused = status;
        return TUTTI_OK;
    }
    if (status != TUTTI_OK || empty)
        return status;
    lane->is_staged = sched == NULL;
    lane->polls = 1;
    lane->hint = (tutti__hint_t){ NULL, 0, -1 };
    if (sched != NULL && tutti__lanes_forbidden(e, sched, who))
        return TUTTI__AGAIN;
    begin(e, lane, sched, in_host);
    lane->sched = sched;
    lane->bytes = 0; /* costs this thread nothing */
    lane->phase = TUTTI__DEVICE_INPUT;
    if (e->words == NULL)
        status = launch(e, lane);
    lane->running = status == TUTTI_OK;
    return status;
}

/* ---- continuing ---- */

/* The data are in host memory: begin the run. */
static tutti_status_t run_staged(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who,
                                 tutti_status_t *ret_refused)
{
    tutti__call_t *call = &lane->staged.call;
    const tutti__sched_t *sched;
    tutti__want_t want = { 0 };
    int in_place, empty;
    tutti_status_t status = prepare(e, lane, call, &want, &in_place, &empty);

    if (status == TUTTI_OK)
        status = tutti__lanes_schedule(&e->cache, call, &want, in_place, &sched);
    if (status == TUTTI_ERR_UNSUPPORTED || status == TUTTI_ERR_INVALID_ARGUMENT) {
        *ret_refused = status;
        return TUTTI_OK;
    }
    if (status != TUTTI_OK)
        return status;
    if (tutti__lanes_forbidden(e, sched, who))
        return TUTTI__AGAIN;
    tutti__call_begin(call, &lane->room, &lane->exec);
    lane->phase = TUTTI__DEVICE_RUN;
    return tutti__lanes_run(lane, sched);
}

/* One step of a run; after its end, begin the next phase. */
static tutti_status_t step_run(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who)
{
    tutti__devent_t *ready = lane->exec.ready;
    tutti_status_t status;

    if (tutti__lanes_forbidden(e, lane->run.sched, who))
        return TUTTI__AGAIN;
    status = tutti__lanes_step_run(e, lane);
    if (status == TUTTI_ERR_UNSUPPORTED && !lane->is_staged && !lane->sched->flat) {
        /* NCCL does not serve the call, on any rank. Nothing has moved, so nothing needs to
           be cancelled. */
        lane->run.sched = NULL;
        return begin_staged(e, lane, ready);
    }
    if (status != TUTTI_OK)
        return status;
    if (!lane->is_staged)
        return unpack(e, lane, lane->run.node_call.queued);
    tutti__call_end(&lane->staged.call, &lane->room, &lane->exec);
    lane->phase = TUTTI__DEVICE_STAGED_OUT;
    return tutti__staged_finish(e->env.exec->device, index_of(e, lane), &lane->staged);
}

/* Advance one phase. OK: it is over, and the next, if any, has begun. */
static tutti_status_t step_phase(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who,
                                 tutti_status_t *ret_refused)
{
    const tutti__exec_device_t *device = e->env.exec->device;
    tutti_status_t status;

    if (lane->phase == TUTTI__DEVICE_RUN)
        return step_run(e, lane, who);
    if (lane->phase < TUTTI__DEVICE_INPUT)
        return tutti__flat_step(e, lane, who);
    lane->hint = (tutti__hint_t){ NULL, 0, -1 };
    switch (lane->phase) {
    case TUTTI__DEVICE_INPUT:
        status = look_at_input(e, lane->first);
        return status == TUTTI_OK ? launch(e, lane) : status;
    case TUTTI__DEVICE_STAGED_IN:
        status = tutti__staged_step(device, index_of(e, lane), &lane->staged);
        return status == TUTTI_OK ? run_staged(e, lane, who, ret_refused) : status;
    case TUTTI__DEVICE_STAGED_OUT:
        status = tutti__staged_step(device, index_of(e, lane), &lane->staged);
        return status == TUTTI_OK ? unpack(e, lane, 0) : status;
    default:
        return TUTTI_OK; /* QUEUED */
    }
}

tutti_status_t tutti__device_step(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who,
                                  tutti_status_t *ret_refused)
{
    tutti__device_phase_t before;
    tutti_status_t status;

    do {
        before = lane->phase;
        status = step_phase(e, lane, who, ret_refused);
    } while (status == TUTTI_OK && *ret_refused == TUTTI_OK && lane->phase != before);
    return status;
}
