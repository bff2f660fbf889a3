/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stall warnings of asynchronous calls: the waiting tensor, and the rank that it waits for.
 *
 * A tensor or request is reported when it has waited for TUTTI_STALL_WARNING seconds, and again
 * after each further interval while it waits. No field records the reports: a check reports a
 * tensor or request if an interval of its wait has ended since the previous check.
 *
 *   announced here, some ranks missing   a line per tensor, by the rank whose table has the tensor:
 *                                        a leader of a host, which also sends the line to rank 0
 *   all other pending requests           a line for the oldest request of this rank
 *
 * The wait of a request in a lane counts from the last advance of the lane. If the request's work
 * is queued on the device, its wait counts from the queueing.
 *
 * Ranks that wait for each other are reported earlier: stuck.c.
 *
 * The token's owner, the engine's thread or a waiter, runs these checks. Direct calls: run.c.
 */
#include "engine/stalls.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/time.h"
#include "engine/recorded.h"

#include <assert.h>
#include <string.h>

/* Size of the text that names the missing ranks. */
#define WHO_BYTES 448

typedef struct {
    const tutti__watch_t *watch;
    uint64_t before, now; /* times of the previous check and of this one */
    uint32_t tensors;     /* tensors reported in this check */
    const tutti__request_t *oldest;
    uint64_t oldest_ns;         /* start of its wait */
    tutti__metadata_t metadata; /* read under the lock, because tutti_request_receive changes it */
    uint32_t requests;
} check_t;

int64_t tutti__stalls_nap_us(const tutti__conf_shared_t *conf, const tutti__signals_t *signals)
{
    int64_t ms = (int64_t)conf->stall_ms;

    if (ms == 0)
        return -1;
    /* While nothing waits, the sleep is long: half an interval. A request that is submitted during
       this sleep is not due before the sleep ends. */
    return atomic_load(&signals->waits) ? TUTTI__MIN(ms * 250, TUTTI__TICK_MS * 1000) : ms * 500;
}

static int is_due(const check_t *check, uint64_t since_ns)
{
    return tutti__late_is_due(check->watch, since_ns, check->before, check->now);
}

/* ---- tensors that not all ranks have announced ---- */

static void report_tensor(tutti__agreement_t *a, check_t *check, const tutti__waiting_t *tensor)
{
    char who[WHO_BYTES], call[128] = "", halted[160], text[TUTTI__ERROR_BYTES];
    char time[24];

    if (!tutti__agree_awaits(a->agree, tensor->tensor, who, sizeof(who)) ||
        ++check->tensors > TUTTI__NAMED)
        return;
    /* For a message, `who` has the call's text. */
    if (tensor->metadata != NULL)
        tutti__metadata_call_text(call, sizeof(call), tensor->metadata);
    if (!tutti__watch_halted(a->env->watch, halted, sizeof(halted)))
        halted[0] = '\0';
    snprintf(text, sizeof(text), "tensor '%.64s'%s%.72s%s waits for %s: %.220s%s%.86s",
             tensor->name, call[0] ? " (" : "", call, call[0] ? ")" : "",
             tutti__late_time(check->now - tensor->since_ns, time), who, halted[0] ? "; " : "",
             halted);
    TUTTI__LOG(TUTTI__LOG_WARN, "%s", text);
    if (a->parent >= 0)
        tutti__links_send(a->env->watch, (uint32_t)a->parent, TUTTI__MSG_MISSING, text,
                          strlen(text), 1);
}

typedef struct {
    tutti__agreement_t *agreed;
    check_t *check;
} visit_t;

static void visit_tensor(void *arg, const tutti__waiting_t *tensor)
{
    const visit_t *visit = arg;

    atomic_store(&visit->agreed->lanes->signals->waits, 1);
    if (is_due(visit->check, tensor->since_ns))
        report_tensor(visit->agreed, visit->check, tensor);
}

static void check_tensors(tutti__agreement_t *a, check_t *check)
{
    visit_t visit = { a, check };

    tutti__agree_each(a->agree, visit_tensor, &visit);
    if (check->tensors > TUTTI__NAMED)
        TUTTI__LOG(TUTTI__LOG_WARN, "%u more %s", check->tensors - TUTTI__NAMED,
                   check->tensors - TUTTI__NAMED == 1 ? "tensor waits" : "tensors wait");
}

void tutti__stalls_message(const tutti__engine_env_t *env, const void *body, size_t bytes)
{
    if (env->exec->rank == 0)
        TUTTI__LOG(TUTTI__LOG_WARN, "%.*s", (int)TUTTI__MIN(bytes, TUTTI__ERROR_BYTES),
                   (const char *)body);
}

/* ---- requests ---- */

/* Find the lanes that have advanced since the previous check. For the other lanes, record the rank
   or device that they wait for. */
static void check_lanes(tutti__stalls_t *stalls, uint64_t now)
{
    tutti__record_t *record = stalls->agreed->env->watch->record;

    for (uint32_t i = 1; i < stalls->agreed->lanes->end; i++) {
        const tutti__lane_t *lane = &stalls->agreed->lanes->lane[i];
        uint64_t number = lane->first != NULL ? 1 + (uint64_t)lane->first->number : 0;
        uint64_t sum = 31 * (31 * number + tutti__operation_moves(&lane->op)) + lane->op.at;

        if (lane->running && sum == stalls->lane_sum[i])
            tutti__recorded_slow(record, &lane->op);
        if (lane->running)
            tutti__recorded_arrived(record, &lane->op);
        if (sum == stalls->lane_sum[i])
            continue;
        stalls->lane_sum[i] = sum;
        stalls->lane_moved_ns[i] = now;
    }
}

static uint64_t waits_since(const tutti__stalls_t *stalls, const tutti__request_t *request)
{
    if (request->joins)
        return TUTTI__MAX(request->since_ns,
                          atomic_load(&stalls->agreed->lanes->signals->moved_ns));
    if (request->completion_ns != 0)
        return request->completion_ns;
    if (request->agreed)
        return TUTTI__MAX(request->since_ns, stalls->lane_moved_ns[request->lane]);
    return request->since_ns;
}

/* Under the lock of pending.h. */
static void check_request(const tutti__stalls_t *stalls, check_t *check,
                          const tutti__request_t *request)
{
    const tutti__agreement_t *a = stalls->agreed;
    uint64_t since_ns = waits_since(stalls, request);
    const tutti__tensor_t *tensor;
    char who[WHO_BYTES];

    if (!is_due(check, since_ns))
        return;
    tensor = request->agreed || request->joins
                 ? NULL
                 : tutti__agree_find(a->agree, request->name, request->name_bytes, request->phase);
    if (tensor != NULL && tutti__agree_awaits(a->agree, tensor, who, sizeof(who)))
        return; /* it is reported as a tensor */
    check->requests++;
    if (check->oldest != NULL && check->oldest_ns <= since_ns)
        return;
    check->oldest = request;
    check->oldest_ns = since_ns;
    check->metadata = tutti__request_metadata(request, a->env->exec->size);
}

static void report_oldest(tutti__agreement_t *a, const check_t *check)
{
    const tutti__request_t *request = check->oldest;
    const char *self;
    char who[WHO_BYTES], call[160], more[48] = "", time[24];

    if (!tutti__watch_halted(a->env->watch, who, sizeof(who)))
        tutti__agreed_culprit(a, request, who, sizeof(who));
    tutti__late_time(check->now - check->oldest_ns, time);
    self = tutti__boot_rank_name(a->env->boot, a->env->exec->rank);
    tutti__metadata_call_text(call, sizeof(call), &check->metadata);
    if (check->requests > 1)
        snprintf(more, sizeof(more), "; %u more %s", check->requests - 1,
                 check->requests == 2 ? "request waits" : "requests wait");
    if (request->joins)
        TUTTI__LOG(TUTTI__LOG_WARN, "%s has waited %s in tutti_join: %s", self, time, who);
    else
        TUTTI__LOG(TUTTI__LOG_WARN, "%s has waited %s for tensor '%.100s' (%s): %s%s", self, time,
                   request->name, call, who, more);
}

/* While this thread owns the token, pending requests stay valid, so `oldest` is valid without the
   lock. */
static void check_requests(const tutti__stalls_t *stalls, check_t *check)
{
    tutti__pending_t *pending = stalls->agreed->pending;

    tutti__mutex_lock(&pending->lock);
    if (pending->names.count > 0 || pending->join != NULL)
        atomic_store(&stalls->agreed->lanes->signals->waits, 1);
    if (pending->join != NULL)
        check_request(stalls, check, pending->join);
    for (uint32_t i = 0; i < pending->names.nbuckets; i++)
        for (const tutti__request_t *r = pending->names.bucket[i]; r != NULL; r = r->chain)
            check_request(stalls, check, r);
    tutti__mutex_unlock(&pending->lock);
    if (check->oldest != NULL)
        report_oldest(stalls->agreed, check);
    if (check->oldest != NULL || check->tensors > 0)
        tutti__record_stall(stalls->agreed->env->watch->record);
}

/* Report the first pending completion, if all of its requests were handed over to streams. */
static void check_completions(const tutti__lanes_t *lanes, const check_t *check)
{
    const tutti__bucket_t *bucket = lanes->completions.first;
    char time[24];

    if (bucket == NULL)
        return;
    atomic_store(&lanes->signals->waits, 1);
    if (bucket->first == NULL && is_due(check, bucket->since_ns))
        TUTTI__LOG(TUTTI__LOG_WARN, "%s: the work of bucket %u has been queued on device %d for %s",
                   tutti__boot_rank_name(lanes->env->boot, lanes->env->exec->rank), bucket->number,
                   lanes->env->exec->device->device,
                   tutti__late_time(check->now - bucket->since_ns, time));
}

void tutti__stalls_check(tutti__stalls_t *stalls)
{
    tutti__agreement_t *a = stalls->agreed;
    uint64_t interval_ns = a->env->conf->stall_ms * 1000000u;
    check_t check = { .watch = a->env->watch,
                      .before = stalls->checked_ns,
                      .now = tutti__now_ns() };

    assert(check.before <= check.now);
    tutti__planned_check(&a->plan, check.now);
    tutti__side_check(a->env->boot, check.now);
    if (interval_ns == 0 ||
        check.now - check.before < TUTTI__MIN(interval_ns / 8, TUTTI__STALL_CHECK_NS))
        return;
    stalls->checked_ns = check.now;
    atomic_store(&a->lanes->signals->waits, 0);
    check_lanes(stalls, check.now);
    if (tutti__watch_has_ended(a->env->watch))
        return;
    check_tensors(a, &check);
    check_requests(stalls, &check);
    check_completions(a->lanes, &check);
    tutti__stuck_check(&stalls->stuck);
    tutti__watch_ask(a->env->watch);
}
