/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that wait for each other in a circle: the messages of agree/circle.h, and the warning. This
 * warning comes soon after the waits have become long, much earlier than the stall warning.
 *
 * A thread notes its wait here when the wait has lasted TUTTI__STUCK_NS. Shorter waits cause no
 * messages. The checks for stalls (stalls.c) send the messages, so TUTTI_STALL_WARNING=0 disables
 * all of this.
 *
 * A rank does not count as stuck if several of its threads have submitted tensors of the
 * communicator, or if a pending request has a callback. Another thread or the callback may submit
 * the missing tensor. A thread that has not yet submitted any tensor may submit it as well, but the
 * engine does not know such threads. So a circle is reported, but the communicator does not end.
 */
#include "engine/stuck.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/time.h"

#include <stdio.h>
#include <string.h>

/* ---- the waiting thread ---- */

/* Does only the calling thread submit tensors? Under the lock of pending.h. */
static int submits_alone(const tutti__pending_t *pending)
{
    return pending->submitters == 1 && pthread_equal(pending->submitter, pthread_self());
}

int tutti__stuck_begin(tutti__pending_t *pending, const tutti__request_t *request)
{
    tutti__long_wait_t *wait = &pending->long_wait;
    int is_alone;

    tutti__mutex_lock(&pending->lock);
    is_alone = submits_alone(pending);
    if (is_alone) {
        wait->is_on = 1;
        wait->request = request;
        wait->number++;
    }
    tutti__mutex_unlock(&pending->lock);
    return is_alone;
}

int tutti__stuck_begin_direct(tutti__pending_t *pending, uint32_t peer, const char *call,
                              int *ret_news)
{
    tutti__long_wait_t *wait = &pending->long_wait;
    int is_alone;

    tutti__mutex_lock(&pending->lock);
    is_alone = submits_alone(pending);
    if (is_alone && (!wait->is_on || wait->peer != peer)) {
        wait->is_on = 1;
        wait->request = NULL;
        wait->peer = peer;
        wait->number++;
        snprintf(wait->call, sizeof(wait->call), "%s", call);
    }
    *ret_news = is_alone && wait->number != wait->told;
    tutti__mutex_unlock(&pending->lock);
    return is_alone;
}

void tutti__stuck_end(tutti__pending_t *pending)
{
    tutti__mutex_lock(&pending->lock);
    pending->long_wait.is_on = 0;
    tutti__mutex_unlock(&pending->lock);
}

/* ---- this rank's wait ---- */

/* Is it certain that no callback can submit a tensor? Under the lock of pending.h. */
static int has_no_callback(const tutti__pending_t *pending)
{
    if (atomic_load(&pending->callbacks) || pending->ncalling > 0)
        return 0;
    for (uint32_t i = 0; i < pending->names.nbuckets; i++)
        for (const tutti__request_t *r = pending->names.bucket[i]; r != NULL; r = r->chain)
            if (r->callback != NULL)
                return 0;
    return 1;
}

/* The tensors of the question that this rank has not submitted, one bit each. Under the lock of
   pending.h. */
static uint64_t find_lacking(const tutti__pending_t *pending, const tutti__question_t *question)
{
    uint64_t lacks = 0;

    for (uint32_t i = 0; i < question->n; i++)
        if (!tutti__pending_has(pending, question->hash[i]))
            lacks |= (uint64_t)1 << i;
    return lacks;
}

/* Is this rank stuck? Under the lock of pending.h. */
static int is_stuck(const tutti__pending_t *pending)
{
    const tutti__long_wait_t *wait = &pending->long_wait;
    const tutti__request_t *r = wait->request;

    if (!wait->is_on || pending->submitters != 1 || !has_no_callback(pending))
        return 0;
    /* `known` is 0 when the request has ended, even if the thread has not woken up yet. */
    return r == NULL || (r->known && r->announced && !r->agreed && r->phase == 0);
}

/* Write the wait of this stuck rank, followed by the name of the tensor or of the direct call.
   question NULL: a report. Returns the number of bytes. Under the lock of pending.h. */
static size_t describe(const tutti__agreement_t *a, const tutti__question_t *question, void *body)
{
    const tutti__long_wait_t *wait = &a->pending->long_wait;
    const tutti__request_t *r = wait->request;
    const char *name = r != NULL ? r->name : wait->call;
    tutti__stuck_msg_t msg = { .rank = a->env->exec->rank,
                               .wait = wait->number,
                               .peer = { TUTTI__NOBODY, TUTTI__NOBODY } };
    tutti__metadata_t m;

    if (r == NULL) {
        msg.peer[0] = wait->peer;
        msg.name_bytes = (uint8_t)strlen(name);
    } else {
        msg.hash = r->hash;
        msg.name_bytes = r->name_bytes;
        m = tutti__request_metadata(r, a->env->exec->size);
        if (tutti__metadata_is_message(&m)) {
            msg.peer[0] = m.root;
            msg.peer[1] = m.source;
        }
    }
    if (question != NULL) {
        msg.question = question->number;
        msg.lacks = find_lacking(a->pending, question);
    }
    memcpy(body, &msg, sizeof(msg));
    memcpy((char *)body + sizeof(msg), name, msg.name_bytes);
    return sizeof(msg) + msg.name_bytes;
}

/* ---- messages ---- */

/* The coordinator takes a rank's message STUCK. If there is no memory, it ignores the message. */
static void take(tutti__stuck_state_t *s, const void *body, size_t bytes)
{
    const tutti__agreement_t *a = s->agreed;

    if (s->circle == NULL)
        s->circle = tutti__circle_new(a->env->exec->size);
    if (s->circle != NULL && !tutti__circle_take(s->circle, body, bytes))
        tutti__watch_end(a->env->watch, TUTTI_ERR_INTERNAL, "a report of a long wait is damaged");
    /* The engine's thread checks soon, even if this rank has no pending requests. */
    atomic_store(&a->lanes->signals->waits, 1);
}

static void pass_up(tutti__stuck_state_t *s, const void *body, size_t bytes)
{
    const tutti__agreement_t *a = s->agreed;

    if (a->parent < 0)
        take(s, body, bytes);
    else
        tutti__links_send(a->env->watch, (uint32_t)a->parent, TUTTI__MSG_STUCK, body, bytes, 1);
}

/* If this rank is stuck, answer the question, or if `question` is NULL, report a new wait. */
static void tell(tutti__stuck_state_t *s, const tutti__question_t *question)
{
    TUTTI__ALIGNED(8) char body[sizeof(tutti__stuck_msg_t) + TUTTI__NAME_BYTES];
    tutti__pending_t *pending = s->agreed->pending;
    size_t bytes = 0;

    tutti__mutex_lock(&pending->lock);
    if ((question != NULL || pending->long_wait.number != pending->long_wait.told) &&
        is_stuck(pending)) {
        bytes = describe(s->agreed, question, body);
        pending->long_wait.told = pending->long_wait.number;
    }
    tutti__mutex_unlock(&pending->lock);
    if (bytes > 0)
        pass_up(s, body, bytes);
}

/* Pass a question down, and answer it. */
static void pass_down(tutti__stuck_state_t *s, const tutti__question_t *question)
{
    const tutti__agreement_t *a = s->agreed;

    for (uint32_t i = 0; i < tutti__links_count(a->env->watch); i++)
        if ((int)i != a->parent)
            tutti__links_send(a->env->watch, i, TUTTI__MSG_QUESTION, question, sizeof(*question),
                              1);
    tell(s, question);
}

void tutti__stuck_message(tutti__stuck_state_t *s, uint32_t kind, const void *body, size_t bytes)
{
    const tutti__question_t *question = body;

    if (kind == TUTTI__MSG_STUCK)
        pass_up(s, body, bytes);
    else if (bytes == sizeof(*question) && question->n <= TUTTI__QUESTION_TENSORS)
        pass_down(s, question);
    else
        tutti__watch_end(s->agreed->env->watch, TUTTI_ERR_INTERNAL,
                         "a question about long waits is damaged");
}

/* ---- the coordinator ---- */

/* "rank 0 waits for tensor 'a', which rank 1 has not submitted", or "rank 1 waits in a barrier
   (direct) for rank 0". Returns the length. */
static size_t put_wait(const tutti__agreement_t *a, char *text, size_t bytes,
                       const tutti__stuck_t *from, const tutti__stuck_t *to)
{
    const char *waiter = tutti__boot_rank_name(a->env->boot, from->msg.rank);
    const char *culprit = tutti__boot_rank_name(a->env->boot, to->msg.rank);
    int n;

    if (from->msg.hash == 0)
        n = snprintf(text, bytes, "%s waits in %s (direct) for %s", waiter, from->name, culprit);
    else
        n = snprintf(text, bytes, "%s waits for tensor '%.64s', which %s has not submitted", waiter,
                     from->name, culprit);
    return TUTTI__MIN((size_t)n, bytes - 1);
}

/* The texts of all waits of a circle may exceed the log's limit for a line. So the warning has as
   many complete texts as fit, and counts the other ranks. */
static void warn(const tutti__stuck_state_t *s, uint32_t n)
{
    const tutti__circle_t *circle = s->circle;
    char text[TUTTI__LOG_BYTES - 128] = "", one[512], more[48] = "";
    size_t at = 0;
    uint32_t i = 0;

    for (; i < TUTTI__MIN(n, TUTTI__NAMED); i++) {
        size_t bytes = put_wait(s->agreed, one, sizeof(one), &circle->stuck[circle->path[i]],
                                &circle->stuck[circle->path[(i + 1) % n]]);

        if (at + bytes + sizeof("; ") > sizeof(text))
            break;
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", i > 0 ? "; " : "", one);
    }
    if (i < n)
        snprintf(more, sizeof(more), "; and %u more ranks", n - i);
    TUTTI__LOG(TUTTI__LOG_WARN, "waits exclude each other: %s%s", text, more);
    tutti__record_stall(s->agreed->env->watch->record);
}

void tutti__stuck_check(tutti__stuck_state_t *s)
{
    uint64_t now = tutti__now_ns();
    int asks = 0;
    uint32_t n;

    tell(s, NULL);
    if (s->circle == NULL || !tutti__circle_is_due(s->circle))
        return;
    atomic_store(&s->agreed->lanes->signals->waits, 1); /* check again */
    if (now < s->next_ns)
        return;
    s->next_ns = now + TUTTI__STUCK_NS;
    n = tutti__circle_search(s->circle, &asks);
    if (n > 0)
        warn(s, n);
    if (asks)
        pass_down(s, &s->circle->question);
}

void tutti__stuck_close(tutti__stuck_state_t *s)
{
    tutti__circle_free(s->circle);
    s->circle = NULL;
}
