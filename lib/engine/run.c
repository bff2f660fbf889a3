/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct calls: the caller's thread steps the operation until it is done. See wait.h for the wait.
 */
#include "engine/run.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "engine/state.h"
#include "engine/steps.h"
#include "engine/wait.h"

#include <unistd.h>

/* The wait of a direct call. */
typedef struct {
    tutti__wait_t wait;
    tutti__operation_t *op;
    tutti__node_t *node; /* not NULL: wait for the node operation in lane 0, not for `op` */
    const tutti__run_env_t *env;
    uint32_t moves;
    uintptr_t place;     /* offset of the awaited word, see place_of */
    uint64_t since_ns;   /* start of the wait; 0: not yet read from the clock */
    uint64_t checked_ns; /* time of the last check */
    int is_long;         /* tutti__stuck_begin_direct has returned 1 */
    int is_late;         /* the deadline has passed; step_late makes the last polls */
    int has_failed;      /* an error of a step has ended the wait */
} run_t;

static unsigned tag_of(const run_t *r)
{
    return r->node != NULL ? r->env->cached_tag : tutti__operation_tag(r->op);
}

static inline tutti_status_t step(run_t *r)
{
    tutti_status_t status;

    if (r->node != NULL)
        return r->node->ops->step(r->node, 0, &r->wait.hint);
    status = tutti__operation_step(r->op);
    r->wait.hint = r->op->hint;
    return status;
}

/* A step after the deadline polls several times, to take data that have already arrived. */
static tutti_status_t step_late(run_t *r)
{
    uint32_t moves = tutti__operation_moves(r->op);
    tutti_status_t status = step(r);

    for (int i = 1;
         i < TUTTI__LAST_POLLS && status == TUTTI__AGAIN && moves == tutti__operation_moves(r->op);
         i++)
        status = step(r);
    return status;
}

/* Poll only the word of the wait hint, for about a microsecond. Returns 1 if it has changed. */
static int comes_soon(const tutti__hint_t *hint)
{
    if (hint->word == NULL)
        return 0;
    for (int i = 0; i < TUTTI__CLOSE_LOOKS; i++) {
        if (tutti__load_acquire(hint->word) != hint->value)
            return 1;
        tutti__pause();
    }
    return 0;
}

/* The offset of a word in its writer's arena. In a stage of an operation, all peers write words at
   the same offset of their arenas, so the offset identifies the stage. (With two ranks,
   announcements have different offsets, but each stage then has only one word.) */
static uintptr_t place_of(const run_t *r, const tutti__hint_t *hint)
{
    const tutti__machine_t *machine = r->env->machine;
    int32_t index = hint->peer < 0 ? -1 : machine->index_of[hint->peer];

    return (uintptr_t)hint->word - (index < 0 ? 0 : (uintptr_t)machine->base[index]);
}

/* If there was progress since the last poll, begin the backoff anew. */
static void note_progress(run_t *r, const tutti__hint_t *before)
{
    const tutti__hint_t *now = &r->wait.hint;
    uint32_t moves = tutti__operation_moves(r->op);
    uintptr_t place = place_of(r, now);

    if (place != r->place || now->value != before->value)
        r->wait.yielded_ns = 0;
    if (now->word != before->word || now->value != before->value || moves != r->moves) {
        r->wait.looks = 0;
        r->since_ns = 0;
        r->is_late = 0;
    }
    r->place = place;
    r->moves = moves;
}

static tutti_status_t look(run_t *r)
{
    tutti__wait_t *w = &r->wait;
    tutti__hint_t before = w->hint;
    tutti_status_t status = TUTTI__UNLIKELY(r->is_late) ? step_late(r) : step(r);

    while (status == TUTTI__AGAIN && r->env->spins && comes_soon(&w->hint))
        status = step(r);
    if (status != TUTTI__AGAIN)
        return status;
    if (r->node == NULL && TUTTI__UNLIKELY(tutti__operation_awaits_left(r->op)))
        return tutti__operation_step_left(r->op);
    if (r->node != NULL && w->hint.peer >= 0 &&
        tutti__watch_has_left(r->env->watch, (uint32_t)w->hint.peer)) {
        status = step(r); /* the peer's last data may have arrived after the last step */
        return status != TUTTI__AGAIN
                   ? status
                   : tutti__fail(TUTTI_ERR_SHUTDOWN, "%s has left",
                                 tutti__boot_rank_name(r->env->boot, (uint32_t)w->hint.peer));
    }
    note_progress(r, &before);
    return TUTTI__AGAIN;
}

static tutti_status_t poll(tutti__wait_t *w)
{
    run_t *r = (run_t *)(void *)w;
    tutti_status_t status = look(r);

    r->has_failed = status != TUTTI_OK && status != TUTTI__AGAIN;
    return status;
}

/* ---- deadlines ---- */

/* The name of the rank, ranks or device that the call waits for. */
static const char *whom(const run_t *r)
{
    if (r->wait.hint.peer < 0)
        return tag_of(r) & TUTTI__TAG_ON_DEVICE ? "its device" : "other ranks";
    return tutti__boot_rank_name(r->env->boot, (uint32_t)r->wait.hint.peer);
}

static void what(void *subject, char *text, size_t bytes)
{
    const run_t *r = subject;

    snprintf(text, bytes, "waited %.3g s in %s (direct) for %s",
             (double)r->op->env->conf->timeout_ms / 1000, tutti__tag_name(tag_of(r)), whom(r));
}

/* Is the culprit certain? Not in a call on a device, where a peer may report the culprit later. */
static int culprit(void *subject, char *text, size_t bytes)
{
    (void)bytes;
    text[0] = '\0';
    return !(tag_of(subject) & TUTTI__TAG_ON_DEVICE);
}

/* "an allreduce of 5 elements of float32, sum" */
static void put_call(const run_t *r, char *text, size_t bytes)
{
    if (r->env->call != NULL)
        tutti__engine_call_text(r->env->size, r->env->call, text, bytes);
    else
        snprintf(text, bytes, "%s", tutti__tag_name(tag_of(r)));
}

static void warn(const run_t *r, uint64_t waited_ns)
{
    char call[160], halted[160], time[24], arrived[128] = "";
    int is_halted = tutti__watch_halted(r->env->watch, halted, sizeof(halted));

    put_call(r, call, sizeof(call));
    if (r->node == NULL)
        tutti__run_awaits_text(&r->op->run, r->wait.hint.peer, arrived, sizeof(arrived));
    TUTTI__LOG(TUTTI__LOG_WARN, "%s has waited %s in %s (direct) for %s%s%s%s",
               tutti__boot_rank_name(r->env->boot, r->env->rank), tutti__late_time(waited_ns, time),
               call, whom(r), arrived, is_halted ? "; " : "", is_halted ? halted : "");
    tutti__record_stall(r->env->watch->record);
}

static void record(const run_t *r)
{
    const tutti__call_t *call = r->env->call;
    tutti__direct_t direct = { .since_ns = r->since_ns,
                               .tag = tag_of(r),
                               .peer = r->wait.hint.peer };

    if (call != NULL) {
        direct.count = call->count;
        direct.op = (uint32_t)call->op;
        direct.kind = (uint8_t)call->kind;
        direct.dtype = (uint8_t)call->dtype;
    }
    tutti__record_direct(r->env->watch->record, &direct);
}

/* Note a long wait, because ranks may wait for each other in a circle (stuck.c). Only a wait for a
   word in shared memory is noted: it shows that the peer has not made the call. A message from
   another host may still be on its way. */
static void note_long(run_t *r, uint64_t now)
{
    const tutti__hint_t *hint = &r->wait.hint;
    tutti__engine_t *e = r->wait.engine;
    char call[TUTTI__STUCK_NAME];
    int news;

    if (now - r->since_ns >= TUTTI__STUCK_NS && hint->word != NULL && hint->peer >= 0) {
        put_call(r, call, sizeof(call));
        r->is_long |= tutti__stuck_begin_direct(&e->pending, (uint32_t)hint->peer, call, &news);
        if (news)
            tutti__engine_ring_later(e);
    } else if (r->is_long) {
        tutti__stuck_end(&e->pending);
        r->is_long = 0;
    }
}

/* Warns about a long wait. Returns an error if the communicator has ended, also at the deadline. */
static tutti_status_t check(run_t *r)
{
    const tutti__late_t late = { .what = what,
                                 .culprit = culprit,
                                 .subject = r,
                                 .unsure_ns = TUTTI__DEVICE_NEWS_MS * 1000000u };
    uint64_t now = tutti__now_ns();

    if (r->since_ns == 0)
        r->since_ns = r->checked_ns = now;
    record(r);
    note_long(r, now);
    /* This process may have been stopped (SIGSTOP) while the data arrived, so poll again after the
       deadline. */
    if (now - r->since_ns >= r->op->env->conf->timeout_ms * 1000000u && !r->is_late) {
        r->is_late = 1;
        return TUTTI_OK;
    }
    if (tutti__late_is_due(r->env->watch, r->since_ns, r->checked_ns, now))
        warn(r, now - r->since_ns);
    r->checked_ns = now;
    return tutti__late_check(r->env->watch, &late, r->since_ns, now,
                             r->op->env->conf->timeout_ms * 1000000u)
               ? tutti__watch_alive(r->env->watch)
               : TUTTI_OK;
}

static uint64_t waited_ns(const run_t *r)
{
    return r->since_ns == 0 ? 0 : tutti__now_ns() - r->since_ns;
}

/* How long to sleep, in microseconds, if a word or a message wakes the sleeper. The sleep is
   shorter while this thread must poll the messages of another communicator. */
static uint32_t share_us(const run_t *r, uint64_t waited)
{
    uint64_t us = waited / 1000 / TUTTI__SLEEP_SHARE;

    if (TUTTI__UNLIKELY(tutti__help_is_due(r->wait.engine)))
        return tutti__far_nap_us(TUTTI__MIN(waited, tutti__now_ns() - r->wait.helped_ns));
    return (uint32_t)TUTTI__MIN(TUTTI__MAX(us, TUTTI__SLEEP_US), TUTTI__SLEEP_MOST_US);
}

/* Sleep on the descriptor of the transport to other hosts. If the call waits only for messages of
   this transport, each message ends the sleep, unless another thread takes the message. So this
   sleep may be as long as a sleep on a word. */
static void sleep_on_far(const run_t *r, tutti__xport_t *far)
{
    uint64_t waited = waited_ns(r);
    int32_t peer = r->wait.hint.peer;
    int only = peer >= 0 && r->op->env->exec->xport[peer] == far;
    int early = waited < TUTTI__FAR_EARLY_US * 1000u;

    far->ops->sleep(far, -1, only && !early ? share_us(r, waited) : tutti__far_nap_us(waited));
}

/* Sleep if there is no word to sleep on. */
static void nap(const run_t *r)
{
    tutti__xport_t *far = r->op->has_far ? r->wait.engine->far : NULL;

    if (far != NULL && far->ops->sleep != NULL)
        sleep_on_far(r, far);
    else
        usleep(r->op->has_far ? tutti__far_nap_us(waited_ns(r)) : TUTTI__DIRECT_POLL_US);
}

static tutti_status_t sleep_on_word(tutti__wait_t *w)
{
    run_t *r = (run_t *)(void *)w;
    const tutti__machine_t *machine = r->env->machine;
    int32_t index = w->hint.peer < 0 ? -1 : machine->index_of[w->hint.peer];

    if (w->hint.word != NULL && index >= 0) {
        tutti__engine_push(w->engine);
        tutti__machine_sleep(machine, (uint32_t)index, w->hint.word, w->hint.value,
                             share_us(r, waited_ns(r)));
    } else {
        nap(r);
    }
    return check(r);
}

/* ---- the end ---- */

void tutti__run_await_report(tutti__engine_t *e, tutti__watch_t *watch, int steps)
{
    while (!tutti__watch_has_ended(watch)) {
        if (steps) {
            /* The report may be in the socket already. The next step polls the sockets. */
            atomic_store(&e->news, 1);
            tutti__engine_kick(e, TUTTI__STEP_BRIEF);
        }
        if (tutti__watch_has_ended(watch))
            return;
        usleep(TUTTI__NEWS_POLL_US);
        tutti__watch_end_unexplained(watch);
    }
}

/* End the communicator after an error that not all ranks find. Peers receive the reason before this
   function returns. */
static tutti_status_t end_badly(tutti__engine_t *e, const tutti__run_env_t *env,
                                tutti__operation_t *op, tutti_status_t status)
{
    /* After the end of the operation, `asked` may point to freed memory. */
    int on_device = op->at != TUTTI__AT_END && op->asked != NULL && op->asked->on_device;
    char text[TUTTI__ERROR_BYTES];

    if (!tutti__watch_has_ended(env->watch)) {
        tutti__run_name_group(env, status);
        snprintf(text, sizeof(text), "%.500s", tutti_last_error());
        tutti__watch_fail(env->watch, status, text);
    }
    tutti__run_await_report(e, env->watch, !on_device);
    tutti__engine_settle(e);
    tutti__operation_cancel_node(op); /* a call in cached form (call/cached.h) is not in `op` */
    tutti__operation_cancel(op);
    if (on_device)
        tutti__device_quiesce(op->env->exec->device, 0, 1);
    return tutti__watch_alive(env->watch);
}

tutti_status_t tutti__run_fail(tutti__engine_t *e, const tutti__run_env_t *env,
                               tutti__operation_t *op, tutti_status_t status)
{
    if (!op->is_common || tutti__watch_has_ended(env->watch))
        return end_badly(e, env, op, status);
    tutti__operation_cancel(op);
    return status;
}

void tutti__run_name_group(const tutti__run_env_t *env, tutti_status_t status)
{
    char text[TUTTI__ERROR_BYTES];

    if (env->where == NULL)
        return;
    snprintf(text, sizeof(text), "%.450s", tutti_last_error());
    tutti__fail(status, "in %s of %u ranks: %s", env->where, env->size, text);
}

tutti_status_t tutti__run_await(tutti__engine_t *e, const tutti__run_env_t *env,
                                tutti__operation_t *op, tutti__node_t *node,
                                const tutti__hint_t *hint)
{
    static const tutti__wait_ops_t ops = { .poll = poll,
                                           .sleep = sleep_on_word,
                                           .spins = TUTTI__SPIN_LOOKS,
                                           .yields = TUTTI__YIELD_LOOKS,
                                           .yield_ns = TUTTI__YIELD_NS };
    run_t r = {
        .wait = { .ops = &ops, .engine = e, .hint = *hint }, .op = op, .node = node, .env = env
    };
    char text[TUTTI__ERROR_BYTES];
    tutti_status_t status = tutti__wait_loop(&r.wait);

    tutti__record_direct_end(env->watch->record);
    if (r.is_long)
        tutti__stuck_end(&e->pending);
    if (status == TUTTI_OK || r.has_failed)
        return status;
    /* The communicator has ended. Step once more: the last data may have arrived after the last
       step. */
    snprintf(text, sizeof(text), "%s", tutti_last_error());
    if (step(&r) != TUTTI_OK)
        return tutti__fail(status, "%s", text);
    tutti__engine_settle(e);
    return TUTTI_OK;
}
