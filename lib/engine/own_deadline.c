/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deadlines of single requests. If a request passes its own deadline, it is assumed never to
 * complete, so the communicator ends, as after the deadline of a wait (wait.c). Such a request may
 * have a callback instead of a waiter, so the engine's thread checks these deadlines as well.
 *
 * `due_ns` of pending.h is the earliest deadline of all pending requests. If the request with this
 * deadline is done, due_ns does not change, so it is too early. When due_ns has passed, a search of
 * the pending requests sets due_ns anew.
 */
#include "engine/own_deadline.h"

#include "base/constants.h"
#include "base/time.h"

#include <assert.h>

typedef struct {
    tutti__agreement_t *agreed;
    const tutti__request_t *request; /* pending, because this thread owns the token */
    uint64_t now;
} late_t;

static uint64_t due_of(const tutti__request_t *request)
{
    return request->timeout_ms == 0 ? UINT64_MAX
                                    : request->since_ns + request->timeout_ms * (uint64_t)1000000;
}

/* Set due_ns anew. Returns the request with this deadline if the deadline has passed, or NULL. */
static const tutti__request_t *search(tutti__pending_t *pending, uint64_t now)
{
    const tutti__request_t *first = NULL;

    tutti__mutex_lock(&pending->lock);
    for (uint32_t i = 0; i < pending->names.nbuckets; i++)
        for (const tutti__request_t *r = pending->names.bucket[i]; r != NULL; r = r->chain)
            if (r->timeout_ms > 0 && (first == NULL || due_of(r) < due_of(first)))
                first = r;
    atomic_store(&pending->due_ns, first != NULL ? due_of(first) : UINT64_MAX);
    tutti__mutex_unlock(&pending->lock);
    return first != NULL && due_of(first) <= now ? first : NULL;
}

static void what(void *subject, char *text, size_t bytes)
{
    const late_t *late = subject;
    char since[24];

    snprintf(text, bytes, "waited %s for tensor '%.100s', whose own deadline has passed",
             tutti__late_time(late->now - late->request->since_ns, since), late->request->name);
}

static int culprit(void *subject, char *text, size_t bytes)
{
    const late_t *late = subject;

    return tutti__agreed_culprit(late->agreed, late->request, text, bytes);
}

static void end(tutti__agreement_t *agreed, const tutti__request_t *request, uint64_t now)
{
    late_t late = { .agreed = agreed, .request = request, .now = now };
    const tutti__late_t with = { .what = what,
                                 .culprit = culprit,
                                 .subject = &late,
                                 .unsure_ns = (agreed->env->exec->rank == 0 ? 1 : 2) *
                                              TUTTI__CULPRIT_MS * 1000000u };

    assert(request->done == TUTTI__NOT_DONE);
    tutti__late_check(agreed->env->watch, &with, request->since_ns, now,
                      request->timeout_ms * (uint64_t)1000000);
}

void tutti__overdue_check(tutti__agreement_t *agreed, tutti__pending_t *pending)
{
    const tutti__request_t *request;
    uint64_t now;

    if (TUTTI__LIKELY(!atomic_load_explicit(&pending->has_deadlines, memory_order_relaxed)) ||
        tutti__watch_has_ended(agreed->env->watch))
        return;
    now = tutti__now_ns();
    if (now < atomic_load(&pending->due_ns))
        return;
    request = search(pending, now);
    if (request != NULL)
        end(agreed, request, now);
}

int64_t tutti__overdue_nap_us(const tutti__pending_t *pending)
{
    uint64_t now, due;

    if (!atomic_load(&pending->has_deadlines))
        return -1;
    now = tutti__now_ns();
    due = atomic_load(&pending->due_ns);
    /* After a deadline the thread sleeps for a short time only, because a peer may report the
       culprit. */
    if (due <= now)
        return TUTTI__NEWS_POLL_US;
    /* Sleep for at most a tick: a new request may have an earlier deadline, and its submission does
       not end the sleep. */
    return TUTTI__MIN((int64_t)TUTTI__MIN((due - now) / 1000, (uint64_t)INT64_MAX / 2) + 1,
                      TUTTI__TICK_MS * 1000);
}
