/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes: buckets in flight.
 *
 * On every rank, agreed bucket k runs in lane 1 + k mod 4, after the lane's previous bucket. So
 * ranks never wait for each other in different orders. A bucket of one tensor runs on the user's
 * buffers. A bucket of several tensors is one call in the lane's memory (fuse.c). If a rank does
 * not have the other ranks' counts, all ranks first exchange the counts in the same lane. Each lane
 * steps one operation (call/).
 *
 * If all work of a bucket is queued on a device, the bucket leaves its lane before this work is
 * complete (completion.c).
 *
 * The ordered lane runs calls without a name, one by one, in the order in which this rank submits
 * them. The ranks do not agree on these calls, but compare each call in the lane, as they compare
 * direct calls. Rejected: to run these calls in lane 0, in one order with direct calls. Each direct
 * call would have to check for earlier ordered calls. The stores of a direct call would have to
 * ring doorbells, which takes a fence for each store.
 *
 * The plan lanes run the buckets of a learned plan (planned.c). A plan has one or two lanes
 * (count_plan_lanes). With two lanes, bucket k runs in lane 6 + k mod 2 on every rank, after the
 * lane's previous bucket. So a bucket is packed, compared and reduced within its host while the
 * data of the plan's previous bucket move. The ranks compare these buckets as they compare direct
 * calls. If not all ranks have the tensors of a bucket, the comparison fails, and the bucket's
 * requests return to agreement.
 *
 * While a run uses a device, every rank must keep stepping all lanes in which it has started an
 * operation (see node/nccl/nccl.h). So `polling` keeps the engine's thread awake, and this thread
 * also steps the large buckets that brief steps (TUTTI__STEP_BRIEF) skip.
 */
#include "engine/lane.h"

#include "base/constants.h"
#include "base/time.h"
#include "coll/cost.h"
#include "engine/recorded.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void open_caches(tutti__lanes_t *lanes)
{
    const tutti__conf_shared_t *conf = lanes->env->conf;
    const tutti__exec_device_t *device = lanes->env->exec->device;

    /* Timing decides which tensors share a bucket and when a plan runs. Results must not depend on
       timing. */
    tutti__cache_init(&lanes->cache, lanes->env->shape, lanes->env->exec->rank, conf->algorithm,
                      conf->strict ? TUTTI__STRICT_ASSOCIATION : TUTTI__STEADY_ASSOCIATION,
                      conf->check ? (uint32_t)conf->credits : 0);
    tutti__cache_init(&lanes->ordered_cache, lanes->env->shape, lanes->env->exec->rank,
                      conf->algorithm,
                      conf->strict ? TUTTI__STRICT_ASSOCIATION : TUTTI__ANY_ASSOCIATION,
                      conf->check ? (uint32_t)conf->credits : 0);
    tutti__cache_init(&lanes->device_cache, lanes->env->shape, lanes->env->exec->rank,
                      conf->algorithm, lanes->cache.association, lanes->cache.prove);
    tutti__cache_for_device(
        &lanes->device_cache,
        &(tutti__device_limits_t){ conf->device_staged_bytes, conf->stage_bytes });
    if (device != NULL)
        lanes->device_cache.device_scope = tutti__device_scope(device);
}

/* The number of plan lanes, equal on all ranks. If the round trip between hosts is long, a second
   lane keeps the link busy: with one lane, the link is idle for a round trip after each bucket. */
static uint32_t count_plan_lanes(const tutti__shape_t *shape)
{
    const tutti__cost_link_t *link = &shape->link;
    uint64_t rtt_ns = link->rtt_ns != 0 ? link->rtt_ns : 2 * (uint64_t)link->alpha_ns;
    int is_long =
        rtt_ns >= TUTTI__PLAN_RTT_NS && tutti__cost_chunk_bytes(link, rtt_ns) > TUTTI__CHUNK_BYTES;

    return shape->nhosts > 1 && is_long ? TUTTI__PLAN_LANES : 1;
}

void tutti__lanes_open(tutti__lanes_t *lanes, const tutti__engine_env_t *env,
                       tutti__pending_t *pending, tutti__signals_t *signals)
{
    lanes->env = env;
    lanes->pending = pending;
    lanes->signals = signals;
    lanes->completions = (tutti__completions_t){ .env = env, .pending = pending };
    lanes->calls = (tutti__call_env_t){ .exec = env->exec,
                                        .shape = env->shape,
                                        .conf = env->conf,
                                        .watch = env->watch,
                                        .boot = env->boot,
                                        .cache = &lanes->cache,
                                        .device_cache = &lanes->device_cache,
                                        .is_agreed = 1,
                                        .is_bucket = 1 };
    lanes->ordered_calls = lanes->calls;
    lanes->ordered_calls.is_bucket = 0;
    lanes->ordered_calls.cache = &lanes->ordered_cache;
    lanes->planned_calls = lanes->calls;
    lanes->ordered_calls.is_agreed = lanes->planned_calls.is_agreed = 0;
    lanes->end = TUTTI__PLAN_LANE + count_plan_lanes(env->shape);
    for (uint32_t i = 1; i < lanes->end; i++) {
        tutti__operation_init(&lanes->lane[i].op,
                              i >= TUTTI__PLAN_LANE      ? &lanes->planned_calls
                              : i == TUTTI__ORDERED_LANE ? &lanes->ordered_calls
                                                         : &lanes->calls,
                              i, NULL);
        lanes->lane[i].arena = env->machine->arena;
    }
    open_caches(lanes);
}

static void free_buckets(tutti__lane_t *lane)
{
    while (lane->first != NULL) {
        tutti__bucket_t *bucket = lane->first;

        lane->first = bucket->next;
        tutti__bucket_free(bucket);
    }
    lane->last = NULL;
    lane->running = 0;
}

static void free_zeros(tutti__lanes_t *lanes)
{
    while (lanes->zeros != NULL) {
        tutti__request_t *zero = lanes->zeros;

        lanes->zeros = zero->next;
        tutti__request_free(zero);
    }
}

void tutti__lanes_clear(tutti__lanes_t *lanes)
{
    int uses = tutti__lanes_use_device(lanes);
    int before = uses ? tutti__device_enter(lanes->env->exec->device) : -1;

    if (uses)
        tutti__device_quiesce(lanes->env->exec->device, 1, TUTTI__DEVICE_LANES);
    for (uint32_t i = 1; i < lanes->end; i++) {
        tutti__operation_cancel(&lanes->lane[i].op);
        free_buckets(&lanes->lane[i]);
        tutti__record_stop(lanes->env->watch->record, i);
    }
    tutti__completion_clear(&lanes->completions);
    free_zeros(lanes);
    if (before >= 0)
        tutti__device_leave(lanes->env->exec->device, before);
    lanes->in_flight = lanes->on_device = lanes->ordered = lanes->planned = 0;
    tutti__stats_in_flight(lanes->env->stats, 0);
    atomic_store(&lanes->signals->polling, 0);
    lanes->polls = 0;
}

void tutti__lanes_close(tutti__lanes_t *lanes)
{
    for (uint32_t i = 1; i < lanes->end; i++) {
        free_buckets(&lanes->lane[i]);
        tutti__operation_fini(&lanes->lane[i].op);
        free(lanes->lane[i].ready);
    }
    assert(lanes->completions.count == 0);
    tutti__cache_fini(&lanes->cache);
    tutti__cache_fini(&lanes->ordered_cache);
    tutti__cache_fini(&lanes->device_cache);
}

void tutti__lanes_add(tutti__lanes_t *lanes, tutti__bucket_t *bucket)
{
    tutti__lane_t *lane = &lanes->lane[1 + bucket->number % TUTTI__BUCKET_LANES];

    assert((bucket->nrequests == 0) == (bucket->first == NULL));
    assert(lane->last == NULL || lane->last->number < bucket->number ||
           bucket->number < TUTTI__BUCKET_LANES + 1);
    for (tutti__request_t *r = bucket->first; r != NULL; r = r->next) {
        r->lane = (uint8_t)(lane - lanes->lane);
        tutti__recorded_agreed(lanes->env->watch, r, bucket->number);
    }
    tutti__bucket_append(&lane->first, &lane->last, bucket);
    lanes->in_flight++;
    lanes->on_device += bucket->on_device;
}

void tutti__lanes_add_ordered(tutti__lanes_t *lanes, tutti__request_t *request)
{
    tutti__lane_t *lane = &lanes->lane[TUTTI__ORDERED_LANE];
    tutti__bucket_t *bucket = calloc(1, sizeof(*bucket));

    assert(request->ordered && !request->call.on_device);
    if (bucket == NULL) {
        tutti__watch_end(lanes->env->watch, TUTTI_ERR_NO_MEMORY, "no memory for a bucket");
        return;
    }
    bucket->number = (uint32_t)request->hash;
    tutti__bucket_add(bucket, request);
    request->lane = TUTTI__ORDERED_LANE;
    tutti__bucket_append(&lane->first, &lane->last, bucket);
    lanes->ordered++;
}

void tutti__lanes_add_planned(tutti__lanes_t *lanes, tutti__bucket_t *bucket)
{
    uint32_t i = TUTTI__PLAN_LANE + bucket->number % (lanes->end - TUTTI__PLAN_LANE);
    tutti__lane_t *lane = &lanes->lane[i];

    for (tutti__request_t *r = bucket->first; r != NULL; r = r->next) {
        r->lane = (uint8_t)i;
        tutti__recorded_agreed(lanes->env->watch, r, bucket->number);
    }
    tutti__bucket_append(&lane->first, &lane->last, bucket);
    lanes->planned++;
    lanes->planned_ns = tutti__now_ns();
}

/* ---- steps ---- */

/* Mark the bucket's requests as begun: they no longer need the program's threads, and may be handed
   over to CUDA streams. */
static void begin(tutti__lanes_t *lanes, const tutti__bucket_t *bucket)
{
    for (tutti__request_t *r = bucket->first; r != NULL; r = r->next)
        tutti__store_release(&r->begun, 1);
    tutti__pending_wake(lanes->pending);
}

/*
 * Must this rank give up the first bucket of a plan lane? After a rank has left, all ranks drop
 * their plans. If a peer has not started this bucket by then, the peer never starts it. On the same
 * machine the peer's status page shows this. A peer on another machine has no status page here, so
 * this rank gives the bucket up if the bucket has not moved for PLAN_REST_NS. Each peer that has
 * started the bucket does the same. A rank completes a bucket only if all ranks have started it. So
 * if a rank had completed this or a later bucket of the lane before it left, no rank gives it up.
 */
static int is_abandoned(const tutti__lanes_t *lanes, tutti__lane_t *lane)
{
    uint32_t moves = tutti__operation_moves(&lane->op);
    uint64_t now;

    if (!tutti__lane_is_planned(lanes, lane) || !lane->op.may_be_far ||
        tutti__watch_progress(lanes->env->watch,
                              (uint32_t)(lane - lanes->lane) - TUTTI__PLAN_LANE) >
            ((uint64_t)lane->first->plan << 32 | lane->first->number))
        return 0;
    now = tutti__now_ns();
    if (lane->still_ns == 0 || lane->moves != moves)
        lane->still_ns = now;
    lane->moves = moves;
    return now - lane->still_ns > TUTTI__PLAN_REST_NS;
}

static tutti_status_t fail_abandoned(const tutti__lanes_t *lanes)
{
    char text[160] = "";

    tutti__watch_left_text(lanes->env->watch, TUTTI__NO_RANK, text, sizeof(text));
    return tutti__fail(TUTTI_ERR_SHUTDOWN, "%s", text);
}

/* Step a lane's operation. If the operation waits for a rank that has left, step it once more
   before it fails. */
static inline tutti_status_t step_operation(tutti__lanes_t *lanes, tutti__lane_t *lane)
{
    tutti_status_t status;

    if (TUTTI__UNLIKELY(tutti__lane_is_compared(lanes, lane) &&
                        tutti__operation_is_barred(&lane->op)))
        return TUTTI__AGAIN;
    status = tutti__operation_step(&lane->op);
    if (status == TUTTI__AGAIN && TUTTI__UNLIKELY(tutti__operation_awaits_left(&lane->op)))
        status = tutti__operation_step_left(&lane->op);
    if (status == TUTTI__AGAIN && TUTTI__UNLIKELY(tutti__watch_any_left(lanes->env->watch)) &&
        is_abandoned(lanes, lane))
        status = fail_abandoned(lanes);
    if (TUTTI__UNLIKELY(lane->op.is_certain)) {
        lane->op.is_certain = 0;
        begin(lanes, lane->first);
    }
    return status;
}

/*
 * Can a lane's failed bucket return to agreement? If a rank leaves while the bucket's data move
 * between hosts, the bucket cannot return: its failure ends the communicator, as with an agreed
 * bucket. The bucket's messages use the callers' buffers, so they would have to be cancelled before
 * the bucket returns. Over UCX, cancelling messages might close connections that other lanes use.
 */
static int may_give_back(const tutti__lanes_t *lanes, const tutti__lane_t *lane,
                         tutti_status_t status)
{
    if (!lane->running || !tutti__lane_is_planned(lanes, lane))
        return 0;
    return lane->op.is_common || (status == TUTTI_ERR_SHUTDOWN &&
                                  (lane->op.at == TUTTI__AT_COMPARE || !lane->op.may_be_far));
}

/* Has the lane's operation moved since it was at `at` and had made `moves` moves? Each of the many
   messages of a bucket between hosts is a move, after which a waiter begins its backoff anew. */
static int has_moved(const tutti__lane_t *lane, uint32_t at, uint32_t moves)
{
    return lane->running &&
           ((uint32_t)lane->op.at != at || tutti__operation_moves(&lane->op) != moves);
}

/* Advance one lane. When an operation is complete, begin the next one at once. */
static int step_lane(tutti__lanes_t *lanes, tutti__lane_t *lane, tutti__who_t who, int *ret_left)
{
    int moved = 0;

    /* When a departure has ended the lane, tutti__planned_end may still add buckets to it. These
       buckets leave the lane without an operation. */
    while (TUTTI__UNLIKELY(lane->is_left) && lane->first != NULL) {
        tutti__lane_give_back(lanes, lane);
        moved = 1;
    }
    while (lane->first != NULL) {
        size_t bytes = lane->running ? lane->op.bytes : tutti__bucket_bytes(lane->first);
        uint32_t at = lane->op.at, moves = tutti__operation_moves(&lane->op);
        tutti_status_t status;

        if (who == TUTTI__STEP_BRIEF && bytes > TUTTI__BRIEF_BYTES) {
            *ret_left = 1;
            return moved;
        }
        status = lane->running ? TUTTI_OK : tutti__lane_start(lanes, lane);
        if (status == TUTTI_OK && lane->running)
            status = step_operation(lanes, lane);
        if (status == TUTTI__AGAIN) {
            tutti__recorded_stuck(lanes, lane);
            return moved | has_moved(lane, at, moves);
        }
        if (status == TUTTI_OK)
            status = tutti__lane_record_result(lanes, lane);
        moved = 1;
        if (status == TUTTI_OK)
            tutti__lane_end(lanes, lane);
        else if (may_give_back(lanes, lane, status)) {
            /* After a departure, agreement will end this rank's requests with an error. The
               communicator does not end, so that other ranks' requests continue. The lane's other
               buckets need the same ranks, and must not receive late messages of this bucket. So
               the other buckets leave the lane as well. */
            lane->is_left = status == TUTTI_ERR_SHUTDOWN;
            do
                tutti__lane_give_back(lanes, lane);
            while (lane->is_left && lane->first != NULL);
        } else if (lane->running && lane->op.is_common)
            tutti__lane_refuse(lanes, lane, status);
        else {
            tutti__lane_fail(lanes, lane, status);
            return 1;
        }
    }
    return moved;
}

/* The lane in which a request runs; NULL: none. */
static const tutti__lane_t *lane_of(const tutti__lanes_t *lanes, const tutti__request_t *request)
{
    /* A request of the ordered lane waits for the same rank as the lane's first request. */
    if (request->ordered && lanes->lane[TUTTI__ORDERED_LANE].running)
        return &lanes->lane[TUTTI__ORDERED_LANE];
    for (uint32_t i = 1; i < lanes->end; i++) {
        const tutti__bucket_t *bucket = lanes->lane[i].running ? lanes->lane[i].first : NULL;

        for (const tutti__request_t *r = bucket ? bucket->first : NULL; r != NULL; r = r->next)
            if (r == request)
                return &lanes->lane[i];
    }
    return NULL;
}

/* Write the peer that a lane waits for, and how many messages from or to this peer are complete. */
static void put_peer(const tutti__lanes_t *lanes, const tutti__lane_t *lane, int is_ordered,
                     char *text, size_t bytes)
{
    const tutti__operation_t *op = &lane->op;
    char arrived[128];

    tutti__run_awaits_text(&op->run, op->hint.peer, arrived, sizeof(arrived));
    tutti__recorded_arrived(lanes->env->watch->record, op);
    snprintf(text, bytes, "%s %s%s",
             tutti__boot_rank_name(lanes->env->boot, (uint32_t)op->hint.peer),
             is_ordered ? "has not made this call, or does not go on" : "does not go on", arrived);
}

int tutti__lanes_culprit(const tutti__lanes_t *lanes, const tutti__request_t *request, char *text,
                         size_t bytes)
{
    const tutti__lane_t *lane = lane_of(lanes, request);

    if (tutti__load_relaxed(&request->queued)) {
        snprintf(text, bytes, "it is queued on device %d, and is not done there",
                 lanes->env->exec->device->device);
        return 0;
    }
    if (lane != NULL && tutti__operation_awaits_data(&lane->op)) {
        snprintf(text, bytes,
                 "what is before it on device %d is not done, so its data are not there",
                 lanes->env->exec->device->device);
        return 1;
    }
    if (lane != NULL && lane->op.hint.peer >= 0) {
        put_peer(lanes, lane, request->ordered, text, bytes);
        return 1;
    }
    snprintf(text, bytes, "a peer does not go on");
    return 0;
}

static int step_lanes(tutti__lanes_t *lanes, tutti__who_t who, int *ret_left)
{
    int moved = 0, polling = 0;

    for (uint32_t i = 1;
         i < lanes->end && !tutti__watch_has_ended(lanes->env->watch) && !tutti__lanes_pause(lanes);
         i++) {
        moved |= step_lane(lanes, &lanes->lane[i], who, ret_left);
        polling |= lanes->lane[i].first != NULL && lanes->lane[i].op.polls;
    }
    polling |= lanes->completions.first != NULL || lanes->pauses;
    /* Sequentially consistent: a waiter reads the epoch, then this word, and then sleeps. The step
       changes the epoch after this word (steps.c). */
    if (polling != lanes->polls)
        atomic_store(&lanes->signals->polling, polling);
    lanes->polls = polling;
    return moved;
}

uint32_t tutti__lanes_moves(const tutti__lanes_t *lanes)
{
    uint32_t moves = 0;

    for (uint32_t i = 1; i < lanes->end; i++)
        moves += tutti__operation_moves(&lanes->lane[i].op);
    return moves;
}

/* Step all lanes and pending completions, while some buckets use the device. */
static int step_with_device(tutti__lanes_t *lanes, tutti__who_t who, int *ret_left)
{
    int before = tutti__device_enter(lanes->env->exec->device), moved;

    moved = tutti__completion_poll(&lanes->completions);
    moved |= step_lanes(lanes, who, ret_left);
    tutti__device_leave(lanes->env->exec->device, before);
    return moved;
}

static int is_empty(const tutti__lanes_t *lanes)
{
    return lanes->in_flight + lanes->ordered + lanes->planned + lanes->completions.count == 0;
}

int tutti__lanes_step(tutti__lanes_t *lanes, tutti__who_t who, int *ret_left)
{
    int moved;

    *ret_left = 0;
    if (is_empty(lanes))
        return 0;
    if (TUTTI__UNLIKELY(tutti__lanes_pause(lanes))) {
        tutti__watch_end_unexplained(lanes->env->watch);
        return 0;
    }
    tutti__stats_in_flight(lanes->env->stats, 1);
    moved = TUTTI__LIKELY(!tutti__lanes_use_device(lanes)) ? step_lanes(lanes, who, ret_left)
                                                           : step_with_device(lanes, who, ret_left);
    tutti__stats_in_flight(lanes->env->stats, !is_empty(lanes));
    return moved;
}
