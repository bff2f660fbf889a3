/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine as the owner of its agreement (agree/agree.h). This file passes this rank's calls to
 * the agreement, and receives from it the tensors that all ranks agreed on, bucket by bucket.
 *
 * The caller owns the token, unless a comment says otherwise.
 */
#include "engine/agreed.h"

#include "base/constants.h"
#include "base/hash.h"
#include "base/time.h"
#include "engine/counted.h"
#include "engine/fuse.h"
#include "engine/join.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- from this rank to the agreement ---- */

static uint64_t place_of(const tutti__request_t *request)
{
    return tutti__fuse_can_join(request) ? (uint64_t)(uintptr_t)request->call.recvbuf : 0;
}

/*
 * Mark the submission as learned. If threads have begun waits since the previous submission, tell
 * the agreement. Returns 1 if rank 0 is to learn from the submission. If a stopped plan gives a
 * request back, rank 0 does not learn from this submission again: otherwise the same plan would
 * begin again at once. If a rank submitted nothing, the plan would stop and begin without end.
 */
static int begin_learning(tutti__agreement_t *a, tutti__request_t *request)
{
    if (a->parent >= 0 || request->learned_ns == request->since_ns)
        return 0;
    request->learned_ns = request->since_ns;
    if (request->waits != a->waits)
        tutti__agree_waited(a->agree);
    a->waits = request->waits;
    return request->phase == 0 && !request->nameless;
}

/* Rank 0 learns the steps of its program from this submission, and may begin a plan. */
static void learn(tutti__agreement_t *a, tutti__request_t *request,
                  const tutti__metadata_t *metadata)
{
    if (begin_learning(a, request))
        tutti__agree_learn(a->agree, request->name, request->name_bytes, request->hash, metadata,
                           &request->group, place_of(request), a->lanes->planned == 0);
}

/* Submit a request for which tutti__planned_knows returns 1. Returns 0 if the plan has stopped; the
   caller then submits the request like any other request. */
static int submit_known(tutti__agreement_t *a, tutti__request_t *request)
{
    if (begin_learning(a, request))
        tutti__agree_learn_planned(a->agree, request->planned - 1, place_of(request),
                                   a->lanes->planned == 0);
    /* Learning may have stopped the plan. */
    if (!tutti__planned_knows(&a->plan, request))
        return 0;
    tutti__planned_take_known(&a->plan, request);
    return 1;
}

static void submit(tutti__agreement_t *a, tutti__request_t *request)
{
    static const tutti__group_msg_t alone;
    size_t bytes = request->name_bytes;
    char name[TUTTI__NAME_BYTES];
    tutti__metadata_t m;

    assert(request->known && !request->agreed);
    if (request->joins) {
        a->plan.why = TUTTI__PLAN_DEVIATION;
        tutti__agree_join(a->agree);
        return;
    }
    if (TUTTI__LIKELY(tutti__planned_knows(&a->plan, request)) && submit_known(a, request))
        return;
    m = tutti__request_metadata(request, a->env->exec->size);
    learn(a, request, &m);
    if (tutti__planned_take(&a->plan, request, &m))
        return;
    request->announced = 1;
    /* Copy the name: at rank 0 agree_submit may end the request, and then the waiter may free the
       request. */
    memcpy(name, request->name, bytes);
    tutti__agree_submit(a->agree, name, bytes, &m, request->phase == 0 ? &request->group : &alone);
}

void tutti__agreed_submit(tutti__agreement_t *a, tutti__request_t *first, int only_ordered)
{
    tutti__request_t *next;

    for (tutti__request_t *request = first; request != NULL; request = next) {
        next = request->next;
        if (request->ordered)
            tutti__lanes_add_ordered(a->lanes, request);
        else if (!only_ordered)
            submit(a, request);
    }
    tutti__planned_taken(&a->plan);
}

int tutti__agreed_culprit(tutti__agreement_t *a, const tutti__request_t *request, char *text,
                          size_t bytes)
{
    tutti__metadata_t m;

    if (request->agreed)
        return tutti__lanes_culprit(a->lanes, request, text, bytes);
    if (request->joins)
        return tutti__agree_missing_join(a->agree, text, bytes);
    if (tutti__load_relaxed(&request->waits_in_plan))
        return tutti__planned_culprit(&a->plan, text, bytes);
    if (atomic_load(&request->counted) == 1) {
        snprintf(text, bytes, "this rank has not called tutti_request_receive");
        return 1;
    }
    m = tutti__request_metadata(request, a->env->exec->size);
    return tutti__agree_missing(a->agree, request->name, request->name_bytes, &m, text, bytes);
}

int tutti__agreed_step(tutti__agreement_t *a)
{
    int moved = 0;

    if (TUTTI__UNLIKELY(a->plan.why != TUTTI__PLAN_GOES_ON)) {
        tutti__agree_stop_plan(a->agree, a->plan.why == TUTTI__PLAN_DEVIATION);
        a->plan.why = TUTTI__PLAN_GOES_ON;
        a->plan.runs = 0;
    }
    if (a->parent >= 0)
        return 0;
    tutti__agree_late(a->agree);
    while (tutti__lanes_have_space(a->lanes) && tutti__agree_bucket(a->agree))
        moved = 1;
    return moved;
}

void tutti__agreed_clear(tutti__agreement_t *a)
{
    tutti__request_t *first = a->filling != NULL ? a->filling->first : NULL;

    tutti__planned_clear(&a->plan);
    tutti__agree_clear(a->agree);
    /* The rest of the bucket `filling` will not arrive, and this bucket is in no lane. So its
       requests count as not agreed. After a departure they end like all requests that are not
       agreed. */
    for (tutti__request_t *r = first; r != NULL; r = r->next)
        r->agreed = 0;
    tutti__bucket_free(a->filling);
    a->filling = NULL;
}

/* ---- callbacks of the agreement ---- */

static void send_message(void *owner, uint32_t link, uint32_t kind, const void *body, size_t bytes,
                         int urgent)
{
    tutti__agreement_t *a = owner;

    tutti__count_message(a->env->stats, kind);
    tutti__links_send(a->env->watch, link, kind, body, bytes, urgent);
}

/* This rank's request for a tensor of a bucket. If this rank has joined, the request is a new zero
   contribution. NULL: there was an error, and the communicator has ended. */
static tutti__request_t *find_request(tutti__agreement_t *a, const tutti__agreed_t *tensor)
{
    tutti__request_t *request = tutti__pending_find(a->pending, tensor->name, tensor->name_bytes);

    if (request == NULL && tensor->metadata != NULL && tutti__agree_has_joined(a->agree))
        return tutti__join_zero(a->env, tensor->metadata, tensor->name, tensor->name_bytes);
    if (request == NULL)
        tutti__watch_end(a->env->watch,
                         tutti__watch_any_left(a->env->watch) ? TUTTI_ERR_SHUTDOWN
                                                              : TUTTI_ERR_INTERNAL,
                         "a bucket names a tensor that is not pending");
    return request;
}

/* Add an agreed tensor to its bucket. The agreement passes all tensors of a bucket before it passes
   tensors of the next bucket. */
static int serve(void *owner, const tutti__agreed_t *tensor)
{
    tutti__agreement_t *a = owner;
    tutti__bucket_t *bucket = a->filling;
    tutti__request_t *request;

    if (bucket == NULL) {
        bucket = a->filling = calloc(1, sizeof(*bucket));
        if (bucket == NULL) {
            tutti__watch_end(a->env->watch, TUTTI_ERR_NO_MEMORY, "no memory for a bucket");
            return 0;
        }
        bucket->number = tensor->bucket;
    }
    if (tensor->is_mine) {
        request = find_request(a, tensor);
        if (request == NULL)
            return 0;
        tutti__bucket_add(bucket, request);
    }
    assert(bucket->number == tensor->bucket);
    bucket->counts = tensor->counts;
    bucket->joined = tensor->metadata != NULL;
    if (tensor->last) {
        a->filling = NULL;
        tutti__lanes_add(a->lanes, bucket);
    }
    return 1;
}

static void reject(void *owner, const tutti__rejected_t *tensor)
{
    tutti__agreement_t *a = owner;
    tutti__request_t *request = tutti__pending_find(a->pending, tensor->name, tensor->name_bytes);

    if (request != NULL && request->phase == tensor->phase)
        tutti__pending_finish(a->pending, request, tensor->status, tensor->text);
}

static void joined(void *owner, uint32_t last_rank)
{
    tutti__agreement_t *a = owner;
    tutti__request_t *join;

    tutti__mutex_lock(&a->pending->lock);
    join = a->pending->join;
    tutti__nameless_restart(&a->pending->nameless);
    tutti__mutex_unlock(&a->pending->lock);
    if (join == NULL)
        return;
    assert(join->joins && last_rank < a->env->exec->size);
    join->last_rank = last_rank;
    tutti__pending_finish(a->pending, join, TUTTI_OK, NULL);
}

static void begin_plan(void *owner)
{
    tutti__agreement_t *a = owner;

    tutti__planned_begin(&a->plan);
}

static uint64_t stop_plan(void *owner)
{
    tutti__agreement_t *a = owner;

    return tutti__planned_stop(&a->plan);
}

/* Queue the plan's requests again. This callback must not call functions of the agreement. */
static void end_plan(void *owner, uint64_t buckets)
{
    tutti__agreement_t *a = owner;
    tutti__request_t *request = tutti__planned_end(&a->plan, buckets), *next;

    tutti__mutex_lock(&a->pending->lock);
    for (; request != NULL; request = next) {
        next = request->next;
        tutti__pending_queue(a->pending, request);
    }
    tutti__mutex_unlock(&a->pending->lock);
}

static void fail(void *owner, tutti_status_t status, const char *text)
{
    const tutti__agreement_t *a = owner;

    tutti__watch_end(a->env->watch, status, text);
}

static uint64_t now_ns(void *owner)
{
    (void)owner;
    return tutti__now_ns();
}

static const char *rank_name(void *owner, uint32_t rank)
{
    const tutti__agreement_t *a = owner;

    return tutti__boot_rank_name(a->env->boot, rank);
}

static uint32_t world_rank(void *owner, uint32_t rank, int *ret_is_group)
{
    const tutti__agreement_t *a = owner;

    return tutti__boot_world_rank(a->env->boot, rank, ret_is_group);
}

/* ---- opening and closing ---- */

/* Set the ranks behind each link: behind the link to another host's leader, all ranks of that host;
   behind the link to the parent, no ranks; behind any other link, only the neighbour. */
static void lay_links(const tutti__agreement_t *a, tutti__agree_link_t *links)
{
    const tutti__shape_t *shape = a->env->shape;

    for (uint32_t i = 0; i < tutti__links_count(a->env->watch); i++) {
        int local;
        uint32_t rank = tutti__links_rank(a->env->watch, i, &local);
        const uint32_t *first = &shape->host_first[shape->host_of[rank]];

        links[i] =
            (tutti__agree_link_t){ rank, 1, &shape->by_host[first[0] + shape->local_of[rank]] };
        if ((int)i == a->parent)
            links[i].nranks = 0;
        else if (!local)
            links[i] =
                (tutti__agree_link_t){ rank, first[1] - first[0], &shape->by_host[first[0]] };
    }
}

/* The largest bucket in host memory. */
static uint64_t bucket_bytes(const tutti__engine_env_t *env)
{
    if (env->conf->fusion_bytes != TUTTI__CONF_AUTO)
        return env->conf->fusion_bytes;
    return env->shape->nhosts == 1 ? TUTTI__FUSE_HOST_BYTES : TUTTI__FUSE_HOSTS_BYTES;
}

/* The largest bucket of a plan; 0: no plans. With several hosts, plans need conf->compare. */
static uint64_t plan_bytes(const tutti__engine_env_t *env)
{
    if (!env->conf->plans || (env->shape->nhosts > 1 && !env->conf->compare))
        return 0;
    if (env->conf->fusion_bytes != TUTTI__CONF_AUTO)
        return TUTTI__MAX(env->conf->fusion_bytes, 1);
    return env->shape->nhosts == 1 ? TUTTI__FUSE_HOST_BYTES : TUTTI__PLAN_HOSTS_BYTES;
}

static uint64_t plan_part_bytes(const tutti__engine_env_t *env)
{
    return env->shape->nhosts > 1 && env->conf->fusion_bytes == TUTTI__CONF_AUTO
               ? TUTTI__PLAN_PART_BYTES
               : 0;
}

/* The largest bucket in device memory. This limit does not depend on the processor's caches. */
static uint64_t device_bucket_bytes(const tutti__engine_env_t *env)
{
    const tutti__exec_device_t *device = env->exec->device;

    if (device == NULL)
        return bucket_bytes(env);
    if (env->conf->fusion_bytes == TUTTI__CONF_AUTO)
        return device->fuse_bytes;
    return TUTTI__MIN(env->conf->fusion_bytes, device->fuse_bytes);
}

tutti_status_t tutti__agreed_open(tutti__agreement_t *a, const tutti__engine_env_t *env,
                                  tutti__pending_t *pending, tutti__lanes_t *lanes)
{
    static const tutti__agree_ops_t ops = { .send = send_message,
                                            .serve = serve,
                                            .reject = reject,
                                            .joined = joined,
                                            .plan = begin_plan,
                                            .plan_stop = stop_plan,
                                            .plan_end = end_plan,
                                            .fail = fail,
                                            .now_ns = now_ns,
                                            .rank_name = rank_name,
                                            .world_rank = world_rank };
    tutti__agree_env_t agree = {
        .rank = env->exec->rank,
        .size = env->exec->size,
        .parent = tutti__links_parent(env->watch),
        .nlinks = tutti__links_count(env->watch),
        .bucket_bytes = bucket_bytes(env),
        .device_bucket_bytes = device_bucket_bytes(env),
        .plan_bytes = plan_bytes(env),
        .plan_part_bytes = plan_part_bytes(env),
        .ops = &ops,
        .owner = a,
    };
    tutti_status_t status;

    a->links = calloc(agree.nlinks + 1, sizeof(*a->links));
    if (a->links == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "engine for %u ranks", agree.size);
    a->env = env;
    a->pending = pending;
    a->lanes = lanes;
    a->parent = agree.parent;
    lay_links(a, a->links);
    agree.links = a->links;
    status = tutti__agree_open(&agree, &a->agree);
    lanes->agree = a->agree;
    a->plan = (tutti__plan_requests_t){
        .env = env, .pending = pending, .lanes = lanes, .agree = a->agree
    };
    return status;
}

void tutti__agreed_close(tutti__agreement_t *a)
{
    if (a->agree != NULL)
        tutti__agreed_clear(a);
    tutti__agree_close(a->agree);
    tutti__planned_free(&a->plan);
    a->agree = NULL;
    free(a->links);
    a->links = NULL;
}
