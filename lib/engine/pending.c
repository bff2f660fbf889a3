/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pending requests: the queue, the table of names, and the end of a request.
 *
 * A request with a callback ends in two steps. First the token's owner sets the request's status,
 * and adds the request to the list of due callbacks. Then a thread that has given the token back
 * calls the callback. The waiter may take the request only after the callback. So a callback runs
 * under no lock, and its argument may be freed after tutti_wait.
 */
#include "engine/pending.h"

#include "base/hash.h"
#include "base/time.h"
#include "engine/counted.h"
#include "engine/recorded.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void tutti__pending_open(tutti__pending_t *pending, tutti__watch_t *watch, tutti__events_t *events,
                         tutti__semaphores_t *semaphores)
{
    *pending = (tutti__pending_t){
        .watch = watch, .events = events, .semaphores = semaphores, .due_ns = UINT64_MAX
    };
    tutti__mutex_init(&pending->lock, TUTTI__LOCK_ENGINE_QUEUE);
}

void tutti__pending_close(tutti__pending_t *pending)
{
    assert(pending->names.count == 0 && pending->join == NULL && pending->ended_first == NULL);
    tutti__nameless_close(&pending->nameless);
    free(pending->names.bucket);
}

void tutti__pending_refuse(tutti__pending_t *pending)
{
    tutti__mutex_lock(&pending->lock);
    pending->is_closed = 1;
    tutti__mutex_unlock(&pending->lock);
}

/* Add to a word of which this thread is the only writer. */
static void add(tutti__word_t *word, uint32_t n)
{
    tutti__store_release(word, tutti__load_relaxed(word) + n);
}

/* ---- names; the caller holds the lock ---- */

static tutti__request_t **chain_of(const tutti__names_t *names, uint64_t hash)
{
    return &names->bucket[hash & (names->nbuckets - 1)];
}

/* Keep chains short. If there is no memory for a larger table, the chains just grow longer. */
static void grow(tutti__names_t *names)
{
    tutti__names_t larger = { NULL, names->nbuckets ? 2 * names->nbuckets : 256, names->count };

    if (names->nbuckets != 0 && names->count < names->nbuckets)
        return;
    larger.bucket = calloc(larger.nbuckets, sizeof(*larger.bucket));
    if (larger.bucket == NULL)
        return;
    for (uint32_t i = 0; i < names->nbuckets; i++) {
        tutti__request_t *next;

        for (tutti__request_t *r = names->bucket[i]; r != NULL; r = next) {
            tutti__request_t **chain = chain_of(&larger, r->hash);

            next = r->chain;
            r->chain = *chain;
            *chain = r;
        }
    }
    free(names->bucket);
    *names = larger;
}

static tutti__request_t *find(tutti__names_t *names, const char *name, size_t bytes, uint64_t hash)
{
    if (names->nbuckets == 0)
        return NULL;
    for (tutti__request_t *r = *chain_of(names, hash); r != NULL; r = r->chain)
        if (r->hash == hash && r->name_bytes == bytes && memcmp(r->name, name, bytes) == 0)
            return r;
    return NULL;
}

int tutti__pending_has(const tutti__pending_t *pending, uint64_t hash)
{
    const tutti__request_t *r = NULL;

    if (pending->names.nbuckets > 0)
        r = *chain_of(&pending->names, hash);
    while (r != NULL && r->hash != hash)
        r = r->chain;
    return r != NULL;
}

static void take_out(tutti__names_t *names, tutti__request_t *request)
{
    for (tutti__request_t **at = chain_of(names, request->hash); *at != NULL; at = &(*at)->chain) {
        if (*at == request) {
            *at = request->chain;
            request->known = 0;
            names->count--;
            return;
        }
    }
}

static tutti_status_t add_name(tutti__pending_t *pending, tutti__request_t *request)
{
    grow(&pending->names);
    if (pending->names.nbuckets == 0)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "table of names");
    if (!request->ordered &&
        find(&pending->names, request->name, request->name_bytes, request->hash) != NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "tensor '%s' is pending already: wait for it before using its name "
                           "again",
                           request->name);
    request->chain = *chain_of(&pending->names, request->hash);
    *chain_of(&pending->names, request->hash) = request;
    request->known = 1;
    pending->names.count++;
    return TUTTI_OK;
}

/* ---- the queue ---- */

void tutti__pending_queue(tutti__pending_t *pending, tutti__request_t *request)
{
    assert(request->known && !request->agreed);
    tutti__request_append(&pending->queue_first, &pending->queue_last, request);
    pending->nqueued++;
    if (!atomic_load_explicit(&pending->queued, memory_order_relaxed))
        atomic_store(&pending->queued, 1);
}

static tutti_status_t has_left(tutti__watch_t *watch)
{
    char text[160] = "";

    tutti__watch_left_text(watch, TUTTI__NO_RANK, text, sizeof(text));
    return tutti__fail(TUTTI_ERR_SHUTDOWN, "%s", text);
}

/* May the request be submitted now? Under the lock. */
static tutti_status_t may_push(tutti__pending_t *pending, const tutti__request_t *request)
{
    if (pending->is_closed)
        return tutti__fail(TUTTI_ERR_SHUTDOWN, "%s", tutti__watch_closed_text(pending->watch));
    /* After a goodbye the ranks agree on no new tensor. But an ordered call may still run, like a
       direct call. */
    if (tutti__watch_any_left(pending->watch) &&
        !tutti__nameless_is_ordered(&pending->nameless, request))
        return has_left(pending->watch);
    if (pending->join != NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "this rank has called tutti_join, which has not returned");
    if (request->joins && tutti__pending_count(pending) > 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "tutti_join: %u requests of this rank are pending",
                           tutti__pending_count(pending));
    return TUTTI_OK;
}

/* Add the names of all requests, or of none. */
static tutti_status_t add_names(tutti__pending_t *pending, tutti__request_t **requests, size_t n)
{
    tutti_status_t status = TUTTI_OK;
    size_t named = 0;

    while (status == TUTTI_OK && named < n) {
        if (requests[named]->nameless)
            tutti__nameless_number(&pending->nameless, requests[named]);
        status = add_name(pending, requests[named++]);
    }
    for (size_t i = named; status != TUTTI_OK && i-- > 0;) {
        if (i + 1 < named)
            take_out(&pending->names, requests[i]);
        if (requests[i]->nameless)
            tutti__nameless_undo(&pending->nameless, requests[i]);
    }
    return status;
}

/* Make the requests a submission group, which their names identify. Requests without names do not
   form a submission group: another rank may submit the same calls one by one, or in other lists. */
static void make_group(tutti__request_t **requests, size_t n)
{
    uint64_t hash = TUTTI__HASH_INIT;
    int is_apart = 0;

    for (size_t i = 0; i < n; i++) {
        hash = tutti__hash_more(hash, requests[i]->name, requests[i]->name_bytes + 1u);
        is_apart |= requests[i]->nameless;
    }
    for (size_t i = 0; i < n; i++)
        requests[i]->group = is_apart ? (tutti__group_msg_t){ 0 }
                                      : (tutti__group_msg_t){ hash, (uint32_t)i, (uint32_t)n };
}

static void take_deadline(tutti__pending_t *pending, const tutti__request_t *request)
{
    uint64_t due_ns = request->since_ns + request->timeout_ms * (uint64_t)1000000;

    if (request->timeout_ms == 0)
        return;
    if (atomic_load(&pending->has_deadlines) == TUTTI__DEADLINES_NONE)
        atomic_store(&pending->has_deadlines, TUTTI__DEADLINES_UNTOLD);
    if (due_ns < atomic_load(&pending->due_ns))
        atomic_store(&pending->due_ns, due_ns);
}

/* Find a request's place in the plan. Returns 0 if the request has no place there. */
static int find_place(const tutti__pending_t *pending, tutti__request_t *r)
{
    int64_t i;

    if (pending->plan_names == NULL || r->group.size > 0 || r->nameless || r->priority > 0) {
        r->planned = 0;
        return 0;
    }
    if (r->planned > 0 && r->plan_number == pending->plan_number)
        return 1;
    r->planned = 0;
    i = tutti__tensor_names_find(pending->plan_names, r->name, r->name_bytes, r->hash);
    if (i < 0)
        return 0;
    r->planned = (uint32_t)i + 1;
    r->plan_number = pending->plan_number;
    return 1;
}

/* Note the calling thread as the submitter. Another thread, or no thread, has submitted before. */
static void note_submitter(tutti__pending_t *pending)
{
    pending->submitter = pthread_self();
    pending->submitters = TUTTI__MIN(pending->submitters + 1, 2);
}

/* Does the engine need a step after a submission? rests: all submitted requests are in the plan. */
static int needs_step(const tutti__pending_t *pending, int rests)
{
    return !rests || pending->nqueued >= pending->plan_wants ||
           atomic_load_explicit(&pending->has_deadlines, memory_order_relaxed) ==
               TUTTI__DEADLINES_UNTOLD;
}

tutti_status_t tutti__pending_push(tutti__pending_t *pending, tutti__request_t **requests, size_t n,
                                   tutti_request_t **ret_handles, int *ret_inside)
{
    uint64_t now = tutti__now_ns();
    int rests = 1;
    tutti_status_t status;

    tutti__mutex_lock(&pending->lock);
    if (TUTTI__UNLIKELY(!pthread_equal(pending->submitter, pthread_self())))
        note_submitter(pending);
    status = may_push(pending, requests[0]);
    if (status == TUTTI_OK && requests[0]->joins) {
        pending->join = requests[0];
        pending->join->known = 1;
    } else if (status == TUTTI_OK) {
        status = add_names(pending, requests, n);
    }
    if (status == TUTTI_OK && requests[0]->group.size > 0)
        make_group(requests, n);
    for (size_t i = 0; status == TUTTI_OK && i < n; i++) {
        requests[i]->since_ns = now;
        requests[i]->waits = atomic_load_explicit(&pending->waits, memory_order_relaxed);
        take_deadline(pending, requests[i]);
        tutti__recorded_submit(pending->watch, requests[i]);
        if (ret_handles != NULL)
            ret_handles[i] = requests[i]->handle;
        rests &= find_place(pending, requests[i]);
        /* Increment this word before pending_queue sets `queued`: a token's owner that finds the
           request in the queue must find it in tutti__pending_count as well. */
        add(&pending->submitted, 1);
        tutti__pending_queue(pending, requests[i]);
    }
    if (status == TUTTI_OK && !requests[0]->joins)
        tutti__stats_submit(pending->stats, n);
    /* If the engine closes now, tutti__pending_refuse waits for the lock. So the close sees this
       thread in `inside`, and waits for it. */
    *ret_inside = status == TUTTI_OK && needs_step(pending, rests);
    if (*ret_inside)
        atomic_fetch_add(&pending->inside, 1);
    tutti__mutex_unlock(&pending->lock);
    return status;
}

tutti__request_t *tutti__pending_find(tutti__pending_t *pending, const char *name,
                                      size_t name_bytes)
{
    tutti__request_t *r;

    tutti__mutex_lock(&pending->lock);
    r = find(&pending->names, name, name_bytes, tutti__hash_name(name, name_bytes));
    tutti__mutex_unlock(&pending->lock);
    return r;
}

tutti__request_t *tutti__pending_take(tutti__pending_t *pending)
{
    tutti__request_t *first;

    tutti__mutex_lock(&pending->lock);
    first = pending->queue_first;
    pending->queue_first = pending->queue_last = NULL;
    pending->nqueued = 0;
    atomic_store(&pending->queued, 0);
    tutti__mutex_unlock(&pending->lock);
    return first;
}

/* ---- the end ---- */

void tutti__pending_wake(tutti__pending_t *pending)
{
    atomic_fetch_add(&pending->epoch, 1);
    if (atomic_load(&pending->sleepers) > 0)
        syscall(SYS_futex, &pending->epoch, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void finish(tutti__pending_t *pending, tutti__request_t *request, tutti_status_t status,
                   const char *text)
{
    if (TUTTI__UNLIKELY(request->ready != NULL))
        tutti__events_put(pending->events, &request->ready);
    assert(!request->known && request->done == TUTTI__NOT_DONE &&
           tutti__pending_count(pending) > 0);
    request->status = status;
    request->text = text != NULL ? strdup(text) : NULL;
    request->ended_ns = tutti__now_ns();
    tutti__request_count(pending->stats, request, status, request->ended_ns);
    tutti__record_done(pending->watch->record, request->record, request->since_ns,
                       request->ended_ns, status);
    add(&pending->ended, 1);
    if (request->callback != NULL) {
        tutti__mutex_lock(&pending->lock);
        tutti__request_append(&pending->ended_first, &pending->ended_last, request);
        atomic_store(&pending->callbacks, 1);
        tutti__store_release(&request->done, TUTTI__ENDED);
        tutti__mutex_unlock(&pending->lock);
    } else {
        /* From here on the request belongs to its waiter. */
        tutti__store_release(&request->done, TUTTI__DONE);
    }
    tutti__pending_wake(pending);
}

void tutti__pending_release(tutti__pending_t *pending, tutti__request_t *request)
{
    tutti__mutex_lock(&pending->lock);
    take_out(&pending->names, request);
    tutti__mutex_unlock(&pending->lock);
    tutti__record_done(pending->watch->record, request->record, request->since_ns, tutti__now_ns(),
                       TUTTI_OK);
    add(&pending->ended, 1);
}

void tutti__pending_finish(tutti__pending_t *pending, tutti__request_t *request,
                           tutti_status_t status, const char *text)
{
    if (request->is_zero) {
        tutti__request_free(request);
        return;
    }
    if (TUTTI__UNLIKELY(request->semaphore != 0)) {
        tutti__semaphore_end(pending->semaphores, request, status, text);
        return;
    }
    tutti__mutex_lock(&pending->lock);
    if (request->joins) {
        pending->join = NULL;
        request->known = 0;
    } else {
        take_out(&pending->names, request);
    }
    tutti__mutex_unlock(&pending->lock);
    finish(pending, request, status, text);
}

static int is_simple(const tutti__request_t *r)
{
    return !r->is_zero && r->semaphore == 0 && !r->joins && r->callback == NULL && r->ready == NULL;
}

/* Most requests of a list need the same few operations, so this function takes the lock only once
   for all of them, and wakes the waiters only once. */
void tutti__pending_finish_list(tutti__pending_t *pending, tutti__request_t *first)
{
    uint64_t now = tutti__now_ns();
    tutti__request_t *next;
    uint32_t ended = 0;

    tutti__mutex_lock(&pending->lock);
    for (tutti__request_t *r = first; r != NULL; r = r->next) {
        if (!is_simple(r))
            continue;
        take_out(&pending->names, r);
        ended++;
    }
    tutti__mutex_unlock(&pending->lock);
    assert(tutti__pending_count(pending) >= ended);
    /* Count all of these requests as ended before the first of them is done: the waiter of a done
       request may call tutti_join at once, and tutti_join fails while a request is pending. */
    add(&pending->ended, ended);
    for (tutti__request_t *r = first; r != NULL; r = next) {
        next = r->next;
        if (TUTTI__UNLIKELY(!is_simple(r))) {
            tutti__pending_finish(pending, r, TUTTI_OK, NULL);
            continue;
        }
        assert(!r->known && r->done == TUTTI__NOT_DONE);
        r->ended_ns = now;
        tutti__request_count(pending->stats, r, TUTTI_OK, now);
        tutti__record_done(pending->watch->record, r->record, r->since_ns, now, TUTTI_OK);
        /* From here on the request belongs to its waiter. */
        tutti__store_release(&r->done, TUTTI__DONE);
    }
    tutti__pending_wake(pending);
}

/* Remove from the queue the requests for which `pick` returns true. pick NULL: remove all. */
static void filter_queue(tutti__pending_t *pending, int (*pick)(const tutti__request_t *))
{
    tutti__request_t *next, *request = pending->queue_first;

    pending->queue_first = pending->queue_last = NULL;
    pending->nqueued = 0;
    for (; request != NULL; request = next) {
        next = request->next;
        if (pick != NULL && !pick(request))
            tutti__pending_queue(pending, request);
    }
    atomic_store(&pending->queued, pending->queue_first != NULL);
}

void tutti__pending_finish_all(tutti__pending_t *pending, int (*pick)(const tutti__request_t *),
                               tutti_status_t status, const char *text)
{
    tutti__request_t *ended = NULL, *next;

    /* Change queue and names under one lock, so that no ended request stays in one of them. */
    tutti__mutex_lock(&pending->lock);
    filter_queue(pending, pick);
    if (pending->join != NULL && (pick == NULL || pick(pending->join))) {
        ended = pending->join;
        ended->chain = NULL;
        ended->known = 0;
        pending->join = NULL;
    }
    for (uint32_t i = 0; i < pending->names.nbuckets; i++) {
        tutti__request_t **at = &pending->names.bucket[i];

        while (*at != NULL) {
            tutti__request_t *r = *at;

            if (pick != NULL && !pick(r)) {
                at = &r->chain;
                continue;
            }
            *at = r->chain;
            r->known = 0;
            r->chain = ended;
            ended = r;
            pending->names.count--;
        }
    }
    tutti__mutex_unlock(&pending->lock);
    assert(pick != NULL || pending->names.count == 0);
    for (; ended != NULL; ended = next) {
        next = ended->chain;
        finish(pending, ended, status, text);
    }
    /* No lane still has the requests that were handed over to CUDA streams, so end them here. */
    if (pick == NULL)
        tutti__semaphore_end_all(pending->semaphores, text);
}

/* ---- callbacks ---- */

/* The callbacks that this thread executes now, the innermost first. */
typedef struct frame {
    const tutti__pending_t *pending;
    const struct frame *up;
} frame_t;

static _Thread_local const frame_t *calling;

int tutti__engine_in_callback(void)
{
    return calling != NULL;
}

static tutti__request_t *next_ended(tutti__pending_t *pending)
{
    tutti__request_t *r;

    tutti__mutex_lock(&pending->lock);
    r = pending->ended_first;
    if (r != NULL) {
        pending->ended_first = r->next;
        pending->ncalling++;
    }
    if (pending->ended_first == NULL) {
        pending->ended_last = NULL;
        atomic_store(&pending->callbacks, 0);
    }
    tutti__mutex_unlock(&pending->lock);
    return r;
}

static void call_back(tutti__pending_t *pending, const tutti__request_t *r)
{
    tutti_callback_info_t info = { sizeof(info), r->handle, r->nameless ? NULL : r->name,
                                   r->callback_arg };
    const frame_t here = { pending, calling };

    calling = &here;
    r->callback(r->callback_info ? &info : r->callback_arg, r->status);
    calling = here.up;
    tutti__mutex_lock(&pending->lock);
    pending->ncalling--;
    tutti__mutex_unlock(&pending->lock);
}

static int is_calling(const tutti__pending_t *pending)
{
    const frame_t *frame = calling;

    while (frame != NULL && frame->pending != pending)
        frame = frame->up;
    return frame != NULL;
}

int tutti__pending_callbacks(tutti__pending_t *pending)
{
    tutti__request_t *r;

    if (!atomic_load(&pending->callbacks))
        return 0;
    /* If this thread is inside a callback of the same communicator, an outer call of this function
       calls the due callbacks after that callback. If this thread is inside a callback of another
       communicator, the engine's thread must call the due callbacks. If the engine has no thread,
       this thread calls them here, nested in the other callback. Callbacks of one communicator are
       never nested in each other. */
    if (is_calling(pending))
        return 0;
    if (calling != NULL && !pending->is_threadless)
        return 1;
    while ((r = next_ended(pending)) != NULL) {
        assert(tutti__load_relaxed(&r->done) == TUTTI__ENDED &&
               tutti__lock_allowed(TUTTI__LOCK_WORLD));
        call_back(pending, r);
        tutti__store_release(&r->done, TUTTI__DONE);
        tutti__pending_wake(pending);
    }
    return 0;
}
