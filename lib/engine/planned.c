/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of a learned plan (agree/plan.c). A request waits here until this rank has submitted all
 * tensors of its bucket, or of its submission group. Buckets start in the order of the plan, in the
 * plan lanes, without agreement (lanes.c).
 *
 * This rank stops the plan
 *   if a tensor has other metadata, another submission group or a priority, or is a message,
 *   if requests wait here and no further request enters the plan for PLAN_REST_NS (the time is
 *     shorter if a thread waits for a request here, or tests one),
 *   if not all ranks had the tensors of a bucket,
 *   if this rank joins,
 *   if a bucket makes no progress for long; agreement then names the rank that is late.
 * After the stop, the rank announces all requests that wait here, and the requests of buckets that
 * not all ranks started. So a plan never changes which tensors are served.
 */
#include "engine/planned.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/time.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pass the plan's names to the submitting threads; names NULL: no plan runs. Until
   tutti__planned_taken is called, each submission makes the engine take a step. While a plan runs,
   the engine's thread wakes at intervals: if the program uses callbacks and does not wait, perhaps
   no other thread takes steps. */
static void publish(tutti__plan_requests_t *p, const tutti__tensor_names_t *names)
{
    int before = atomic_exchange(&p->lanes->signals->plans, names != NULL);

    if (names != NULL && !before)
        tutti__machine_ring_always(p->env->machine, p->env->machine->me);
    tutti__mutex_lock(&p->pending->lock);
    p->pending->plan_names = names;
    p->pending->plan_number = p->plan.number;
    p->pending->plan_wants = 0;
    tutti__mutex_unlock(&p->pending->lock);
}

static void give_up(tutti__plan_requests_t *p, tutti__plan_why_t why)
{
    if (p->runs)
        p->why = TUTTI__MAX(p->why, why);
}

static void hold(tutti__plan_requests_t *p, tutti__request_t *request, uint32_t i)
{
    assert(p->request[i] == NULL);
    p->request[i] = request;
    tutti__store_release(&request->waits_in_plan, 1);
    p->nheld++;
}

/* ---- starting buckets ---- */

static int is_complete(const tutti__plan_requests_t *p)
{
    return p->bucket[p->next].missing == 0;
}

/* Start one bucket. group: the buckets of the bucket's submission group, or NULL. Returns 0 if
   there is no memory; then the communicator has ended. */
static int start_bucket(tutti__plan_requests_t *p, const tutti__planned_bucket_t *its,
                        tutti__bucket_group_t *group)
{
    tutti__bucket_t *bucket = calloc(1, sizeof(*bucket));

    if (bucket == NULL) {
        tutti__watch_end(p->env->watch, TUTTI_ERR_NO_MEMORY, "no memory for a bucket");
        return 0;
    }
    bucket->number = (uint32_t)p->started++;
    bucket->plan = p->plan.number;
    bucket->is_tight = its->is_tight;
    bucket->group = group;
    if (group != NULL)
        group->uses++;
    for (uint32_t i = its->first; i < its->first + its->ntensors; i++) {
        tutti__store_release(&p->request[i]->waits_in_plan, 0);
        tutti__bucket_add(bucket, p->request[i]);
        p->request[i] = NULL;
    }
    assert(p->nheld >= its->ntensors);
    p->nheld -= its->ntensors;
    tutti__lanes_add_planned(p->lanes, bucket);
    return 1;
}

static int is_in_unit(const tutti__plan_requests_t *p, uint32_t b, uint32_t unit)
{
    return b < p->plan.nbuckets && p->bucket[b].unit == unit;
}

/* Start all buckets of the next unit (planned.h). Returns 0 as start_bucket. */
static int start_next(tutti__plan_requests_t *p)
{
    uint32_t unit = p->next, b = unit;
    tutti__bucket_group_t *group = NULL;
    int ok = 1;

    if (unit == 0)
        tutti__stats_plan_step(p->env->stats);
    if (is_in_unit(p, unit + 1, unit)) {
        group = calloc(1, sizeof(*group));
        if (group == NULL) {
            tutti__watch_end(p->env->watch, TUTTI_ERR_NO_MEMORY, "no memory for a bucket");
            return 0;
        }
        group->uses = 1;
    }
    for (; ok && is_in_unit(p, b, unit); b++) {
        ok = start_bucket(p, &p->bucket[b], group);
        p->bucket[unit].missing += p->bucket[b].ntensors;
    }
    tutti__bucket_group_drop(group);
    p->next = b % p->plan.nbuckets;
    return ok;
}

static void start_complete(tutti__plan_requests_t *p)
{
    while (p->runs && p->why == TUTTI__PLAN_GOES_ON && is_complete(p) && start_next(p)) {
    }
}

/* ---- requests ---- */

/* Does the request belong to the plan? If so, this rank must not announce the request while the
   rank has the plan, because other ranks would drop the announcement: see tutti__plan_voids. The
   answer is the same for all calls of a submission group. */
static int belongs(const tutti__request_t *r, const tutti__planned_t *planned)
{
    if (r->phase > 0)
        return 0;
    return r->group.size > 0 ? tutti__group_is_same(&r->group, &planned->group)
                             : !tutti__call_is_message(r->call.kind);
}

/* For a request that belongs to the plan: is its call equal to the planned call? */
static int is_equal(const tutti__request_t *r, const tutti__metadata_t *metadata,
                    const tutti__planned_t *planned)
{
    return metadata->priority == 0 && r->group.size == planned->group.size &&
           !tutti__metadata_differ(&planned->metadata, metadata);
}

static void enter(tutti__plan_requests_t *p, tutti__request_t *request, uint32_t i)
{
    tutti__planned_bucket_t *unit = &p->bucket[p->bucket[p->plan.tensor[i].bucket].unit];

    assert(unit->missing > 0);
    hold(p, request, i);
    unit->missing--;
    p->arrived_ns = request->since_ns;
    /* A call of a group may later be submitted without the group, so it is compared each time. */
    request->entered = request->group.size == 0 ? p->plan.number : 0;
    if (p->bucket[p->next].missing == 0)
        start_complete(p);
}

void tutti__planned_take_known(tutti__plan_requests_t *p, tutti__request_t *request)
{
    assert(tutti__planned_knows(p, request) && request->group.size == 0 && request->phase == 0);
    enter(p, request, request->planned - 1);
}

/* The request's index in the plan, or -1. The submission may have stored the index in `planned`. */
static int64_t find(const tutti__plan_requests_t *p, const tutti__request_t *request)
{
    if (TUTTI__LIKELY(request->planned > 0 && p->runs && request->plan_number == p->plan.number))
        return request->planned - 1;
    /* If there was no memory for the plan, the communicator has ended. */
    return p->request == NULL
               ? -1
               : tutti__agree_find_planned(p->agree, request->name, request->name_bytes);
}

int tutti__planned_take(tutti__plan_requests_t *p, tutti__request_t *request,
                        const tutti__metadata_t *metadata)
{
    int64_t i = find(p, request);

    if (TUTTI__LIKELY(i < 0))
        return 0;
    /* If a bucket of this plan has returned, not all ranks follow the plan. Stop the plan, in case
       no other rank has done so. */
    if (TUTTI__UNLIKELY(p->lanes->returned_plan == p->plan.number))
        give_up(p, TUTTI__PLAN_DEVIATION);
    if (!belongs(request, &p->plan.tensor[i])) {
        give_up(p, TUTTI__PLAN_DEVIATION);
        return 0;
    }
    if (!is_equal(request, metadata, &p->plan.tensor[i]))
        give_up(p, TUTTI__PLAN_DEVIATION);
    if (p->runs && p->why == TUTTI__PLAN_GOES_ON)
        enter(p, request, (uint32_t)i);
    else
        hold(p, request, (uint32_t)i);
    return 1;
}

void tutti__planned_taken(tutti__plan_requests_t *p)
{
    uint32_t wants;

    if (!p->runs)
        return;
    wants = p->why == TUTTI__PLAN_GOES_ON ? p->bucket[p->next].missing : 0;
    if (p->lanes->planned > 0)
        wants = TUTTI__MIN(wants, TUTTI__PLAN_LOOKS);
    tutti__mutex_lock(&p->pending->lock);
    p->pending->plan_wants = wants;
    tutti__mutex_unlock(&p->pending->lock);
}

/* ---- the plan ---- */

static int reserve(tutti__plan_requests_t *p)
{
    free(p->request);
    free(p->bucket);
    p->request = calloc(p->plan.ntensors, sizeof(*p->request));
    p->bucket = calloc(p->plan.nbuckets, sizeof(*p->bucket));
    return p->request != NULL && p->bucket != NULL;
}

static void lay_out(tutti__plan_requests_t *p)
{
    for (uint32_t i = 0; i < p->plan.ntensors; i++) {
        const tutti__planned_t *its = &p->plan.tensor[i];
        tutti__planned_bucket_t *bucket = &p->bucket[its->bucket];

        if (bucket->ntensors++ == 0) {
            bucket->first = i;
            bucket->unit = i > 0 && tutti__group_is_same(&its->group, &its[-1].group)
                               ? bucket[-1].unit
                               : its->bucket;
        }
        p->bucket[bucket->unit].missing++;
        bucket->is_tight = its->is_adjacent;
    }
}

/* Take over the requests whose announcements by this rank the plan has made void. */
static void take_announced(tutti__plan_requests_t *p)
{
    for (uint32_t i = 0; i < p->plan.ntensors; i++) {
        const tutti__tensor_name_t *name = &p->plan.names->name[i];
        tutti__request_t *r = tutti__pending_find(
            p->pending, tutti__tensor_names_text(p->plan.names, i), name->bytes);
        tutti__metadata_t metadata;

        if (r == NULL || !r->announced || r->agreed || r->ordered)
            continue;
        metadata = tutti__request_metadata(r, p->env->exec->size);
        r->announced = !belongs(r, &p->plan.tensor[i]);
        if (!tutti__planned_take(p, r, &metadata))
            assert(r->announced);
    }
}

static void log_plan(const tutti__plan_requests_t *p)
{
    TUTTI__LOG(TUTTI__LOG_INFO, "plan %u: %u tensors in %u buckets", p->plan.number,
               p->plan.ntensors, p->plan.nbuckets);
    for (uint32_t b = 0; b < p->plan.nbuckets; b++) {
        uint32_t first = p->bucket[b].first;

        TUTTI__LOG(TUTTI__LOG_DEBUG, "plan %u, bucket %u: %u tensors from '%.*s'", p->plan.number,
                   b, p->bucket[b].ntensors, (int)TUTTI__MIN(p->plan.names->name[first].bytes, 100),
                   tutti__tensor_names_text(p->plan.names, first));
    }
}

void tutti__planned_begin(tutti__plan_requests_t *p)
{
    assert(p->nheld == 0);
    tutti__agree_get_plan(p->agree, &p->plan);
    if (!reserve(p)) {
        tutti__watch_end(p->env->watch, TUTTI_ERR_NO_MEMORY, "no memory for a plan");
        return;
    }
    lay_out(p);
    log_plan(p);
    p->next = 0;
    p->started = 0;
    p->why = TUTTI__PLAN_GOES_ON;
    p->wanted_ns = 0;
    p->plans++;
    p->runs = 1;
    publish(p, p->plan.names);
    take_announced(p);
    if (tutti__agree_has_joined(p->agree))
        give_up(p, TUTTI__PLAN_DEVIATION);
}

uint64_t tutti__planned_stop(tutti__plan_requests_t *p)
{
    publish(p, NULL);
    p->runs = 0;
    tutti__stats_plan_break(p->env->stats);
    return p->started;
}

/* Remove all requests that wait here. Returns them as one list, in the order of the plan. The calls
   of a submission group follow each other in the plan. In the list they have the group's order. */
static tutti__request_t *take_all(tutti__plan_requests_t *p)
{
    tutti__request_t *first = NULL, *last = NULL, **from = &first;

    for (uint32_t i = 0; p->nheld > 0; i++) {
        tutti__request_t *r = p->request[i];

        if (r == NULL)
            continue;
        if (last != NULL && !tutti__group_is_same(&last->group, &r->group))
            from = &last->next;
        tutti__request_insert(from, &last, r);
        tutti__store_release(&r->waits_in_plan, 0);
        p->request[i] = NULL;
        p->nheld--;
    }
    return first;
}

tutti__request_t *tutti__planned_end(tutti__plan_requests_t *p, uint64_t buckets)
{
    assert(!p->runs && p->started <= buckets);
    TUTTI__LOG(TUTTI__LOG_INFO, "plan %u ends after %llu buckets", p->plan.number,
               (unsigned long long)buckets);
    /* Other ranks have started these buckets. This rank takes part in them without tensors. */
    for (; p->started < buckets; p->started++) {
        tutti__bucket_t *bucket = calloc(1, sizeof(*bucket));

        if (bucket == NULL) {
            tutti__watch_end(p->env->watch, TUTTI_ERR_NO_MEMORY, "no memory for a bucket");
            break;
        }
        bucket->number = (uint32_t)p->started;
        bucket->plan = p->plan.number;
        tutti__lanes_add_planned(p->lanes, bucket);
    }
    return take_all(p);
}

void tutti__planned_clear(tutti__plan_requests_t *p)
{
    publish(p, NULL);
    p->runs = 0;
    take_all(p);
    p->plan = (tutti__agree_plan_t){ 0 };
}

void tutti__planned_free(tutti__plan_requests_t *p)
{
    free(p->request);
    free(p->bucket);
    p->request = NULL;
    p->bucket = NULL;
}

/* ---- waiting too long ---- */

void tutti__planned_want(tutti__plan_requests_t *p, const tutti__request_t *request,
                         uint64_t patience_ns)
{
    uint64_t now;

    if (TUTTI__LIKELY(!p->runs || p->nheld == 0 || !tutti__load_relaxed(&request->waits_in_plan)))
        return;
    now = tutti__now_ns();
    if (p->wanted_ns == 0 || p->wanted_after_ns != p->arrived_ns) {
        p->wanted_ns = now;
        p->wanted_after_ns = p->arrived_ns;
    } else if (now - p->wanted_ns > patience_ns) {
        give_up(p, TUTTI__PLAN_DEVIATION);
    }
}

/* A quarter of the stall interval or of the timeout, whichever is shorter. If no bucket makes
   progress for this time, this rank stops the plan, and agreement finds the late rank. */
static uint64_t late_after_ns(const tutti__conf_shared_t *conf)
{
    uint64_t ms =
        conf->stall_ms > 0 ? TUTTI__MIN(conf->stall_ms, conf->timeout_ms) : conf->timeout_ms;

    return ms * 1000000u / 4;
}

void tutti__planned_check(tutti__plan_requests_t *p, uint64_t now)
{
    if (!p->runs)
        return;
    if (p->nheld > 0 && now > p->arrived_ns + TUTTI__PLAN_REST_NS)
        give_up(p, TUTTI__PLAN_DEVIATION);
    if (p->lanes->planned > 0 && now > p->lanes->planned_ns + late_after_ns(p->env->conf))
        give_up(p, TUTTI__PLAN_LATE);
}

int tutti__planned_culprit(const tutti__plan_requests_t *p, char *text, size_t bytes)
{
    uint32_t rank;
    int certain;

    if (tutti__agree_unstopped(p->agree, &rank, &certain)) {
        snprintf(text, bytes, "%s%s does not answer", tutti__boot_rank_name(p->env->boot, rank),
                 certain ? "" : ", or a rank of its host,");
        return certain;
    }
    for (uint32_t i = 0; p->runs && i < p->plan.ntensors; i++) {
        if (p->request[i] != NULL || p->plan.tensor[i].bucket != p->next)
            continue;
        snprintf(text, bytes, "this rank has not submitted tensor '%.*s' of its bucket",
                 (int)TUTTI__MIN(p->plan.names->name[i].bytes, 100),
                 tutti__tensor_names_text(p->plan.names, i));
        return 0;
    }
    snprintf(text, bytes, "a plan of buckets is being stopped");
    return 0;
}
