/* SPDX-License-Identifier: BSD-3-Clause */
/* Pending requests: the queue, the table of names, and the end of a request. See pending.c. */
#ifndef TUTTI__ENGINE_PENDING_H
#define TUTTI__ENGINE_PENDING_H

#include "agree/circle.h"
#include "engine/events.h"
#include "engine/nameless.h"
#include "engine/semaphore.h"

/* Pending requests by name: a hash table with chains, which grows. */
typedef struct {
    tutti__request_t **bucket;
    uint32_t nbuckets, count;
} tutti__names_t;

/* The long wait of the only thread that submits. See stuck.c. */
typedef struct {
    int is_on;             /* the thread has waited for long, and still waits */
    uint32_t number, told; /* number: counts these waits. told: the last number sent to rank 0 */
    const tutti__request_t *request; /* the awaited request; NULL: the thread is in a direct call */
    uint32_t peer;                   /* direct call: the awaited rank */
    char call[TUTTI__STUCK_NAME];    /* direct call: a text, such as "a barrier" */
} tutti__long_wait_t;

/* Values of has_deadlines. */
enum {
    TUTTI__DEADLINES_NONE,
    TUTTI__DEADLINES_UNTOLD, /* deadlines exist, but the engine's thread was not woken for them */
    TUTTI__DEADLINES_TOLD
};

struct tutti__pending {
    tutti__stats_t *stats; /* or NULL; set once */
    tutti__watch_t *watch;
    tutti__events_t *events;
    tutti__semaphores_t *semaphores; /* only the token's owner uses them */

    /* Any thread may access the fields from here to `due_ns`. */
    /* submitted - ended is the number of requests that have not ended. A request with a callback
       first ends, and is done after the callback. Each word has one writer at a time, so counting
       takes no locked instruction. */
    tutti__word_t submitted; /* written under the lock */
    tutti__word_t ended;     /* written by the token's owner */
    atomic_int queued;       /* the queue is not empty */
    atomic_int callbacks;    /* some callbacks are due */
    atomic_uint waits;       /* number of waits that threads have begun */
    tutti__word_t epoch;     /* changes when a request is done; waiters sleep on it */
    atomic_int sleepers;     /* threads that sleep on epoch */
    atomic_int inside;       /* threads that may still use the engine's env; see engine_enter */
    /* has_deadlines: has any request had a deadline of its own? due_ns: the earliest deadline of
       the pending requests, or an earlier time; UINT64_MAX: none. */
    atomic_int has_deadlines;
    _Atomic uint64_t due_ns; /* written under the lock */

    /* Protects the rest. The lock stays valid as long as the engine's memory, because a program may
       start a persistent request after the close. */
    tutti__mutex_t lock;
    int is_closed;     /* nothing can be submitted any more */
    int is_threadless; /* the engine has no thread to call callbacks; set once */
    tutti__request_t *queue_first, *queue_last;
    uint32_t nqueued;    /* requests in the queue */
    uint32_t submitters; /* number of threads that have submitted; 2: two or more */
    pthread_t submitter; /* the thread that has submitted last */
    /* The names of the plan that runs, see planned.c; NULL: none. While all queued requests are in
       the plan, the engine need not take the queue before the queue has `plan_wants` requests. */
    const tutti__tensor_names_t *plan_names;
    uint32_t plan_number, plan_wants;
    tutti__names_t names;
    tutti__nameless_t nameless;
    tutti__request_t *join;                     /* a pending tutti_join */
    tutti__request_t *ended_first, *ended_last; /* requests whose callback is due */
    uint32_t ncalling;                          /* callbacks that run */
    tutti__long_wait_t long_wait;
};

void tutti__pending_open(tutti__pending_t *pending, tutti__watch_t *watch, tutti__events_t *events,
                         tutti__semaphores_t *semaphores);
void tutti__pending_close(tutti__pending_t *pending);

/* ---- any thread ---- */

/* Add requests to queue and names, all or none; INVALID_ARGUMENT if a name is pending. If the first
   request has group.size > 0, the requests become a submission group. ret_handles [n] is set before
   any callback of the requests can run; NULL: the program already has the handles. *ret_inside 1:
   the engine needs a step, and this thread is counted in `inside`. The caller takes the step, and
   then calls tutti__engine_leave. *ret_inside 0: after an error, or if the requests of a plan need
   no step yet. In the second case another thread may already have closed and freed the engine. */
tutti_status_t tutti__pending_push(tutti__pending_t *pending, tutti__request_t **requests, size_t n,
                                   tutti_request_t **ret_handles, int *ret_inside);
/* Add a pending request to the queue again. The caller holds the lock. */
void tutti__pending_queue(tutti__pending_t *pending, tutti__request_t *request);
/* Refuse all later submissions. */
void tutti__pending_refuse(tutti__pending_t *pending);
/* Is a request with this hash of its name pending? The caller holds the lock. */
int tutti__pending_has(const tutti__pending_t *pending, uint64_t hash);
/* The number of requests that have not ended. */
static inline uint32_t tutti__pending_count(const tutti__pending_t *pending)
{
    /* `ended` is read first, so it is never larger than `submitted`. These loads pair with the
       releases in pending.c. */
    uint32_t ended = atomic_load(&pending->ended);

    return atomic_load(&pending->submitted) - ended;
}

/* Wake sleeping waiters: a request may be done, or there is work. */
void tutti__pending_wake(tutti__pending_t *pending);
/* Call the callbacks of ended requests. The caller has neither the token nor a lock. Returns 1 if
   another thread must call them, because this thread is inside another communicator's callback. */
int tutti__pending_callbacks(tutti__pending_t *pending);

/* ---- the token's owner ---- */

/* Empty the queue. Returns the list of its requests. */
tutti__request_t *tutti__pending_take(tutti__pending_t *pending);
tutti__request_t *tutti__pending_find(tutti__pending_t *pending, const char *name,
                                      size_t name_bytes);
/* Remove a request without a waiter from the pending requests. Its name becomes free. */
void tutti__pending_release(tutti__pending_t *pending, tutti__request_t *request);
/* End a request. text: NULL or copied. The waiter may free the request at once. */
void tutti__pending_finish(tutti__pending_t *pending, tutti__request_t *request,
                           tutti_status_t status, const char *text);
/* End a list of requests with TUTTI_OK. */
void tutti__pending_finish_list(tutti__pending_t *pending, tutti__request_t *first);
/* End all pending requests for which `pick` returns true, and take them out of the queue. pick
   NULL: end all requests, even those that were handed over to CUDA streams. */
void tutti__pending_finish_all(tutti__pending_t *pending, int (*pick)(const tutti__request_t *),
                               tutti_status_t status, const char *text);

#endif
