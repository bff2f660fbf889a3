/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations: calls in host memory, and the functions that all calls share. See operation.h. */
#include "call/operation.h"

#include "base/constants.h"
#include "base/own_thread.h"
#include "base/status.h"
#include "base/time.h"
#include "call/call_inside.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept {
    struct kept *next;
    tutti__operation_t op;
} kept_t;

static int is_polled(const tutti__xport_t *xport)
{
    return xport->ops->progress != NULL;
}

void tutti__operation_init(tutti__operation_t *op, const tutti__call_env_t *env, uint32_t lane,
                           tutti__pairs_t *pairs)
{
    assert(lane < TUTTI__LANES && (pairs == NULL || lane == 0));
    memset(op, 0, sizeof(*op));
    op->env = env;
    op->lane = lane;
    op->pairs = pairs;
    for (uint32_t r = 0; r < env->exec->size && env->exec->xport != NULL; r++)
        if (r != env->exec->rank && is_polled(env->exec->xport[r]))
            op->far = env->exec->xport[r];
    op->may_be_far = op->far != NULL;
    tutti__run_init(&op->run, env->exec, lane);
}

/* Put a copy of the operation, whose memory is never freed, into a list for leak checkers. */
static void keep(const tutti__operation_t *op)
{
    static _Atomic(kept_t *) first;
    kept_t *kept = malloc(sizeof(*kept));

    if (kept == NULL)
        return; /* the memory stays, but the list does not have it */
    kept->op = *op;
    kept->next = atomic_load(&first);
    while (!atomic_compare_exchange_weak(&first, &kept->next, kept))
        continue;
}

void tutti__operation_fini(tutti__operation_t *op)
{
    if (op->env == NULL)
        return;
    if (op->env->exec->keeps) {
        keep(op);
        return;
    }
    tutti__run_fini(&op->run);
    tutti__call_memory_free(&op->memory);
    tutti__compare_free(&op->compare);
    tutti__exchange_free(&op->exchange);
    tutti__staged_free(&op->staged);
    free(op->pieces);
    op->pieces = NULL;
}

/* ---- the beginning ---- */

static tutti__at_t first_of(const tutti__call_t *call)
{
    return TUTTI__UNLIKELY(call->on_device) ? TUTTI__AT_DEVICE : TUTTI__AT_CHOOSE;
}

static inline void begin(tutti__operation_t *op, const tutti__call_t *call)
{
    assert(op->at == TUTTI__AT_END);
    op->asked = op->call = call;
    op->hint = (tutti__hint_t){ NULL, 0, -1 };
    op->has_far = op->may_be_far;
    op->is_common = op->polls = op->has_compared = op->is_staged = op->is_queued = op->is_certain =
        0;
    op->bytes = 0;
    op->refusal = TUTTI_OK;
    op->run_sched = NULL;
    op->is_keeping = 0;
    op->left_ns = 0;
    op->stream_ready = NULL;
}

void tutti__operation_start(tutti__operation_t *op, const tutti__call_t *call,
                            const tutti__call_with_t *with)
{
    assert(with->packing == NULL || op->env->is_agreed);
    begin(op, call);
    op->with = with;
    op->at = first_of(call);
    if (TUTTI__UNLIKELY(call->has_stream && call->on_device))
        op->stream_ready = op->env->exec->device->lane[op->lane].ready;
}

void tutti__operation_start_counts(tutti__operation_t *op, const tutti__call_t *call, int is_zero)
{
    static const tutti__call_with_t nothing;

    assert(op->env->is_agreed);
    begin(op, call);
    op->with = &nothing;
    op->is_zero = is_zero;
    op->at = TUTTI__AT_COUNTS;
    op->exchange.is_verdict = -1; /* not begun */
    op->polls = op->env->shape->nhosts > 1;
}

tutti_status_t tutti__operation_start_own(tutti__operation_t *op, tutti__collective_t collective,
                                          const tutti__exec_call_t *exec, uint32_t root)
{
    static const tutti__call_with_t nothing;

    assert(exec->count > 0);
    begin(op, NULL);
    op->with = &nothing;
    op->exec = *exec;
    /* The signature contains the count, so ranks with different counts do not match. */
    op->exec.signature = (uint32_t)exec->tag << 24 ^ (uint32_t)exec->count;
    op->exec.root = root;
    op->want = (tutti__want_t){ collective, exec->count * tutti_dtype_bytes(exec->dtype), root, 0 };
    op->in_place = exec->in == exec->out;
    op->at = TUTTI__AT_CHOOSE;
    if (!tutti__compare_needed_own(op->env))
        return TUTTI_OK;
    op->at = TUTTI__AT_COMPARE;
    op->has_compared = 1;
    return tutti__compare_start_own(&op->compare, op->env, &op->run, exec->tag, exec->count,
                                    &op->is_common);
}

/* ---- calls in host memory ---- */

tutti_status_t tutti__operation_prepare(tutti__operation_t *op, const tutti__call_t *call,
                                        int *ret_empty)
{
    return tutti__call_prepare(call, op->env->exec->rank, op->env->exec->size, &op->memory,
                               &op->want, &op->exec, &op->in_place, ret_empty);
}

tutti_status_t tutti__operation_run(tutti__operation_t *op, const tutti__sched_t *sched)
{
    tutti_status_t status;

    /* One host needs no wire format. A schedule from a file does not show where its sums are
       complete, so it cannot use a wire format. */
    if (op->env->shape->nhosts == 1 || sched->is_read)
        op->exec.wire = (tutti_dtype_t)0;
    if (op->with->tag != 0) {
        op->exec.tag = op->with->tag;
        op->exec.signature = op->with->signature;
    } else if (op->call != NULL && sched->nchans > 0) {
        op->exec.signature = tutti__call_signature(op->call, &op->exec, op->env->exec->size);
    }
    status = tutti__run_start(&op->run, sched, &op->exec);
    op->is_common = status == TUTTI_ERR_UNSUPPORTED;
    return status;
}

tutti_status_t tutti__operation_find(tutti__operation_t *op, const tutti__call_t *call,
                                     const tutti__sched_t **ret_sched)
{
    tutti__cache_t *cache = op->env->cache;

    if (call == NULL || !tutti__call_is_message(call->kind))
        return tutti__own_find(cache, &op->want, op->in_place, ret_sched, &op->is_common);
    return tutti__cache_sendrecv(cache, call->kind == TUTTI_CALL_RECV ? TUTTI__NO_RANK : call->root,
                                 call->kind == TUTTI_CALL_SEND   ? TUTTI__NO_RANK
                                 : call->kind == TUTTI_CALL_RECV ? call->root
                                                                 : call->source,
                                 ret_sched);
}

/* Does a schedule use a transport that advances only when polled? */
static int polls(const tutti__operation_t *op, const tutti__sched_t *sched)
{
    for (uint32_t i = 0; i < sched->nchans; i++)
        if (is_polled(op->env->exec->xport[sched->chans[i].peer]))
            return 1;
    return 0;
}

/* End a call in host memory. If the call is staged, begin to copy its results to the device. */
static inline tutti_status_t end_call(tutti__operation_t *op)
{
    if (TUTTI__UNLIKELY(op->is_staged))
        return tutti__device_route_put_back(op);
    op->at = TUTTI__AT_END;
    return TUTTI_OK;
}

/* End a call without elements. On one host the ranks still meet, so that a rank with elements finds
   the mismatch. Between hosts the ranks have compared the call, unless TUTTI_COMPARE is 0. */
static tutti_status_t meet(tutti__operation_t *op)
{
    const tutti__exec_env_t *env = op->env->exec;

    if (op->env->is_agreed || op->has_compared || op->env->shape->nhosts > 1 || env->size == 1)
        return end_call(op);
    assert(env->node != NULL);
    op->meet = (tutti__node_call_t){
        .kind = TUTTI__NODE_MEET,
        .dtype = op->exec.dtype,
        .op = op->exec.op,
        .tag = op->exec.tag,
        .root = op->exec.root,
    };
    env->node->ops->start(env->node, op->lane, &op->meet);
    op->at = TUTTI__AT_MEET;
    return TUTTI_OK;
}

/* Report that no algorithm serves the call. All ranks with this call find the same error. In a
   plan, another rank may lack tensors of the bucket, and start a barrier instead. So on one host
   the ranks meet first. Between hosts the ranks have already compared their calls. */
static tutti_status_t refuse(tutti__operation_t *op, tutti_status_t status)
{
    int is_planned = op->env->is_bucket && !op->env->is_agreed;

    if (!op->is_common || !is_planned || op->env->shape->nhosts > 1)
        return status;
    op->refusal = status;
    return meet(op);
}

static inline tutti_status_t pack(tutti__operation_t *op)
{
    if (op->call == NULL)
        return TUTTI_OK;
    if (TUTTI__UNLIKELY(op->with->packing != NULL && !op->is_staged))
        return op->with->packing->pack(op->with->owner, op);
    tutti__call_begin(op->call, &op->memory, &op->exec);
    return TUTTI_OK;
}

/* A direct message has a comparison of its own: pairs.c. */
static tutti_status_t start_pairs(tutti__operation_t *op)
{
    tutti_status_t status;

    assert(op->pairs != NULL);
    op->exec.signature = tutti__call_signature(op->call, &op->exec, op->env->exec->size);
    status = tutti__pairs_start(op->pairs, op->call, &op->exec);
    op->is_common = status == TUTTI_ERR_UNSUPPORTED;
    op->at = TUTTI__AT_PAIRS;
    return status;
}

static tutti_status_t start_compare(tutti__operation_t *op)
{
    tutti_status_t status;

    op->has_compared = 1;
    op->at = TUTTI__AT_COMPARE;
    status = tutti__compare_start(&op->compare, op->env, &op->run, op->asked,
                                  !op->is_staged && op->call == op->asked, &op->is_common);
    if (status == TUTTI_OK)
        op->has_far = op->may_be_far && polls(op, op->run.sched);
    return status;
}

/* Choose the schedule and begin its run. AGAIN: another thread must do this; nothing was done. */
static inline tutti_status_t choose(tutti__operation_t *op)
{
    const tutti__call_t *call = op->call;
    const tutti__sched_t *sched;
    tutti_status_t status;
    int empty = 0;

    op->is_common = 0;
    if (TUTTI__LIKELY(call != NULL)) {
        status = tutti__operation_prepare(op, call, &empty);
        if (TUTTI__UNLIKELY(status != TUTTI_OK))
            return status;
        if (op->is_staged)
            op->exec.tag |= (uint8_t)tutti__call_device_tag(op->asked);
        if (tutti__call_is_message(call->kind) && !op->env->is_agreed)
            return start_pairs(op);
        if (!op->has_compared && TUTTI__UNLIKELY(tutti__compare_needed(op->env, call)))
            return start_compare(op);
    }
    if (TUTTI__UNLIKELY(empty))
        return meet(op);
    status = tutti__operation_find(op, call, &sched);
    if (TUTTI__UNLIKELY(status != TUTTI_OK))
        return refuse(op, status);
    op->has_far = op->may_be_far && polls(op, sched);
    if (op->env->is_agreed)
        op->polls |= op->has_far;
    status = tutti__own_allows(op->env, sched);
    op->is_common = status == TUTTI_ERR_UNSUPPORTED;
    if (TUTTI__UNLIKELY(status != TUTTI_OK))
        return refuse(op, status);
    op->bytes = TUTTI__MAX(op->exec.count, op->exec.in_count) * tutti_dtype_bytes(op->exec.dtype);
    status = pack(op);
    if (status != TUTTI_OK)
        return status;
    op->exec.meet = !op->env->is_agreed && !op->has_compared && sched->nchans > 0 &&
                    op->env->shape->nhosts == 1;
    op->at = TUTTI__AT_RUN;
    op->run_sched = sched;
    return tutti__operation_run(op, sched);
}

/* After the run in host memory: unpack the result, and end the call. */
static inline tutti_status_t end_run(tutti__operation_t *op)
{
    if (TUTTI__UNLIKELY(op->with->packing != NULL && !op->is_staged))
        op->with->packing->unpack(op->with->owner, op);
    else if (op->call != NULL)
        tutti__call_end(op->call, &op->memory, &op->exec);
    return end_call(op);
}

/* ---- steps ---- */

static inline tutti_status_t step_run(tutti__operation_t *op)
{
    tutti_status_t status;

    if (TUTTI__UNLIKELY(op->polls)) {
        status = tutti__own_allows(op->env, op->run.sched);
        if (status != TUTTI_OK)
            return status;
    }
    status = tutti__run_step(&op->run, &op->hint);
    if (TUTTI__UNLIKELY(status != TUTTI_OK && status != TUTTI__AGAIN))
        op->is_common = !op->env->is_agreed && tutti__own_is_common(&op->run, status);
    return status;
}

static tutti_status_t step_compare(tutti__operation_t *op)
{
    tutti_status_t status = step_run(op);

    assert(op->has_compared && !op->is_staged);
    if (status != TUTTI_OK)
        return status;
    status = tutti__compare_next(&op->compare, op->env, &op->run, &op->is_common);
    if (status == TUTTI_OK && op->compare.is_done)
        return end_call(op);
    if (status == TUTTI__AGAIN)
        op->has_far = op->may_be_far && polls(op, op->run.sched);
    if (status == TUTTI_OK)
        op->at = op->asked != NULL ? first_of(op->asked) : TUTTI__AT_CHOOSE;
    return status == TUTTI__AGAIN ? TUTTI_OK : status;
}

/* Is there a transport that this thread must not use? Check all transports, because the schedules
   of an exchange are not known yet. */
static int is_barred(const tutti__operation_t *op)
{
    const tutti__exec_env_t *exec = op->env->exec;
    int barred = 0, is_own = tutti__thread_is_own();

    for (uint32_t r = 0; r < exec->size && op->env->shape->nhosts > 1; r++)
        barred |= r != exec->rank && !exec->xport[r]->ops->may_progress(exec->xport[r], is_own);
    return barred;
}

int tutti__operation_is_barred(const tutti__operation_t *op)
{
    return TUTTI__UNLIKELY(op->far != NULL) &&
           !op->far->ops->may_progress(op->far, tutti__thread_is_own());
}

static tutti_status_t step_counts(tutti__operation_t *op)
{
    tutti_status_t status;

    if (is_barred(op))
        return TUTTI__AGAIN;
    if (op->exchange.is_verdict < 0)
        return tutti__exchange_start(&op->exchange, op->env, &op->run, op->asked, NULL, op->is_zero,
                                     &op->is_common);
    status = step_run(op);
    if (status != TUTTI_OK)
        return status;
    status = tutti__exchange_next(&op->exchange, op->env, &op->run, &op->is_common);
    if (status == TUTTI_OK)
        op->at = TUTTI__AT_END;
    return status == TUTTI__AGAIN ? TUTTI_OK : status;
}

tutti_status_t tutti__operation_end_pairs(tutti__operation_t *op)
{
    tutti_status_t status;

    if (op->pairs == NULL || !tutti__call_is_message(op->asked->kind))
        return TUTTI_OK;
    status = tutti__pairs_end(op->pairs);
    op->is_common = status != TUTTI_OK;
    return status;
}

static tutti_status_t step_pairs(tutti__operation_t *op)
{
    tutti_status_t status = tutti__pairs_step(op->pairs, &op->hint);

    if (status != TUTTI_OK)
        return status;
    /* Staged: even if the sending direction does not match, the received data must reach the
       device. So report the mismatch only after these data are copied. */
    if (!op->is_staged || !tutti__pairs_has_received(op->pairs))
        status = tutti__operation_end_pairs(op);
    return status == TUTTI_OK ? end_call(op) : status;
}

static tutti_status_t step_meet(tutti__operation_t *op)
{
    tutti__node_t *node = op->env->exec->node;
    tutti_status_t status = node->ops->step(node, op->lane, &op->hint);

    op->is_common = status == TUTTI_ERR_MISMATCH;
    if (status == TUTTI_OK && op->refusal != TUTTI_OK) {
        op->is_common = 1;
        return tutti__fail(op->refusal, "no algorithm serves this call");
    }
    return status == TUTTI_OK ? end_call(op) : status;
}

/* Returns OK if the operation has advanced. */
static inline tutti_status_t step_once(tutti__operation_t *op)
{
    tutti_status_t status;

    switch (op->at) {
    case TUTTI__AT_RUN:
        status = step_run(op);
        return TUTTI__LIKELY(status == TUTTI_OK) ? end_run(op) : status;
    case TUTTI__AT_CHOOSE:
        return choose(op);
    case TUTTI__AT_COMPARE:
        return step_compare(op);
    case TUTTI__AT_COUNTS:
        return step_counts(op);
    case TUTTI__AT_PAIRS:
        return step_pairs(op);
    case TUTTI__AT_MEET:
        return step_meet(op);
    default:
        return tutti__device_route_step(op);
    }
}

tutti_status_t tutti__operation_step(tutti__operation_t *op)
{
    tutti_status_t status = TUTTI_OK;

    while (op->at != TUTTI__AT_END && status == TUTTI_OK)
        status = step_once(op);
    return status;
}

/* ---- ranks that have left ---- */

/* A peer that has left sends nothing more, and an idle peer runs no buckets. In shared memory the
   peer's earlier data are already visible. A polled transport may deliver them later, so the
   operation fails only if it has not advanced for a while. */
int tutti__operation_awaits_left(tutti__operation_t *op)
{
    const tutti__watch_t *watch = op->env->watch;
    uint32_t peer = (uint32_t)op->hint.peer;
    int is_far;

    if (op->hint.peer < 0 || op->at == TUTTI__AT_END)
        return 0;
    is_far = is_polled(op->env->exec->xport[peer]);
    if (!tutti__watch_has_left(watch, peer) &&
        (is_far || !op->env->is_bucket || !tutti__watch_is_idle(watch, peer))) {
        op->left_ns = 0;
        return 0;
    }
    if (is_far && (op->left_ns == 0 || op->left_moves != tutti__operation_moves(op))) {
        op->left_ns = tutti__now_ns();
        op->left_moves = tutti__operation_moves(op);
    }
    return !is_far || tutti__now_ns() - op->left_ns > TUTTI__NEWS_MS * 1000000u;
}

tutti_status_t tutti__operation_step_left(tutti__operation_t *op)
{
    const tutti__call_env_t *env = op->env;
    tutti_status_t status = TUTTI__AGAIN;
    char text[160];

    /* Data that the peer wrote before it left may have arrived after the last step. */
    for (int i = 0; i < TUTTI__LAST_POLLS; i++) {
        status = tutti__operation_step(op);
        if (status != TUTTI__AGAIN || !tutti__operation_awaits_left(op))
            return status;
    }
    if (tutti__watch_left_text(env->watch, (uint32_t)op->hint.peer, text, sizeof(text)))
        return tutti__fail(TUTTI_ERR_SHUTDOWN, "%s", text);
    return tutti__fail(TUTTI_ERR_SHUTDOWN, "%s has ended, as another rank has left",
                       tutti__boot_rank_name(env->boot, (uint32_t)op->hint.peer));
}

/* ---- the end ---- */

void tutti__operation_cancel_node(const tutti__operation_t *op)
{
    tutti__node_t *node = op->env->exec->node;

    if (node != NULL)
        node->ops->cancel(node, op->lane);
}

void tutti__operation_cancel(tutti__operation_t *op)
{
    if (op->at == TUTTI__AT_END)
        return;
    if (op->pairs != NULL)
        tutti__pairs_cancel(op->pairs);
    if (!op->is_common)
        tutti__operation_cancel_node(op);
    /* If this thread must not call MPI, no thread cancels the messages. */
    if (!op->is_common && op->run.sched != NULL &&
        tutti__own_allows(op->env, op->run.sched) == TUTTI_OK)
        tutti__run_cancel(&op->run);
    op->run.sched = NULL;
    op->at = TUTTI__AT_END;
}

uint32_t tutti__operation_moves(const tutti__operation_t *op)
{
    return op->run.moves + (op->pairs != NULL ? tutti__pairs_moves(op->pairs) : 0) +
           op->staged.moves;
}

unsigned tutti__operation_tag(const tutti__operation_t *op)
{
    switch (op->at) {
    case TUTTI__AT_COMPARE:
    case TUTTI__AT_COUNTS:
        return TUTTI__TAG_COUNTS;
    case TUTTI__AT_STAGED_IN:
    case TUTTI__AT_STAGED_OUT:
    case TUTTI__AT_KEEP:
    case TUTTI__AT_MOVE:
    case TUTTI__AT_RESTORE:
        return tutti__call_kinds[op->asked->kind].tag | TUTTI__TAG_ON_DEVICE;
    default:
        return op->exec.tag;
    }
}
