/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's state, and the functions that its files share.
 *
 * The owner of the token accesses the fields, unless a comment names another rule.
 */
#ifndef TUTTI__ENGINE_STATE_H
#define TUTTI__ENGINE_STATE_H

#include "agree/agree.h"
#include "base/handles.h"
#include "base/lock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/wait.h"
#include "call/operation.h"

/* The kind of message to rank 0 about a tensor that has waited for long: a text. */
#define TUTTI__MSG_MISSING TUTTI__MSG_OTHERS

/* ---- requests ---- */

/* The state of a request. */
enum {
    TUTTI__NOT_DONE = 0, /* a persistent request may also be inactive */
    TUTTI__ENDED,        /* its status is set; its callback has not returned yet */
    TUTTI__DONE          /* the waiter may take it */
};

struct tutti__request {
    tutti_request_t *handle; /* the program's handle, or NULL */
    tutti__engine_t *engine; /* a reference, held until the request is freed */
    uint64_t hash;           /* of the name */
    tutti__call_t call;      /* its arrays are in `arrays` */
    size_t *arrays;
    size_t bytes; /* estimated cost of a step with this request */
    tutti_callback_t callback;
    void *callback_arg;
    uint8_t callback_info;    /* see tutti__entry_t */
    tutti__dstream_t *stream; /* of device memory: its work at submission precedes the request */
    tutti__devent_t *ready;   /* pool event behind that work, until the request is done; or NULL */
    uint8_t has_stream;
    uint64_t since_ns;
    uint64_t ended_ns;
    uint64_t completion_ns;  /* when its bucket was queued on the device; 0: not yet */
    size_t offset;           /* in each part of its bucket's memory, bytes */
    tutti__request_t *next;  /* in the queue, a bucket, or the list of due callbacks */
    tutti__request_t *chain; /* in the table of pending names, or in `given` */
    tutti__group_msg_t group;
    uint8_t counts_later; /* phase 0 determines the recvcounts */
    uint8_t phase;        /* 1: its counts are known and checked */
    uint8_t agreed;       /* in a bucket */
    uint8_t lane;         /* of its bucket; 0: in no bucket yet */
    uint8_t joins;        /* a request of tutti_join */
    uint8_t is_zero;      /* the zero contribution of a rank that has joined; it has no waiter */
    uint8_t persistent;
    uint8_t name_bytes;
    uint8_t known;         /* under queue_lock: it is in `names`, or it is `join` */
    uint32_t last_rank;    /* of a join */
    atomic_int active;     /* persistent: started, and not waited for */
    tutti__word_t counted; /* 1: phase 0 has set recvcounts; 2: the buffer is set. Release by the
                              owner, acquire by tutti_request_recvcounts */
    tutti__word_t begun; /* 1: may be handed over to a stream, see semaphore.c; order as `queued` */
    uint8_t semaphore;   /* handed over: 1 + its semaphore's index. Then these are set: */
    uint32_t semaphore_value;
    uint64_t given_ns;     /* time of the handover, or of the last check without its data */
    tutti__word_t queued;  /* 1: its work is queued on the device, or it is done; release by the
                              owner, acquire by tutti__engine_wait_queued */
    tutti__word_t done;    /* TUTTI__DONE, ...; release by the owner; acquire by test and wait */
    tutti_status_t status; /* valid once ended */
    char *text;            /* of an error, or NULL */
    char name[TUTTI__NAME_BYTES]; /* last, because it is not cleared before it is set */
};

/* The table of pending requests by name: chained hashing, grows. Under queue_lock. */
typedef struct {
    tutti__request_t **bucket;
    uint32_t nbuckets, count;
} tutti__names_t;

/* ---- buckets and lanes ---- */

typedef struct tutti__bucket tutti__bucket_t;
struct tutti__bucket {
    uint32_t number;
    uint32_t nrequests; /* 0: the bucket does not concern this rank */
    int counts;         /* exchange the counts first */
    uint32_t on_device; /* 1: its tensors are device memory */
    int joined;         /* some ranks have joined, and make zero contributions */
    tutti__request_t *first, *last;
    tutti__bucket_t *next;   /* in its lane, or in the list of pending completions */
    tutti__devent_t *landed; /* pending completion: event behind its work; from the pool */
    uint64_t since_ns;       /* start of the pending completion */
};

/* The engine's lanes are 1 to TUTTI__LANES - 1; entry 0 is unused. */
typedef struct {
    tutti__engine_t *engine;
    tutti__operation_t op;
    tutti__bucket_t *first, *last; /* first: in flight, if running */
    int running;
    int counting;            /* the operation exchanges counts */
    tutti__call_t call;      /* the call that serves the first bucket */
    tutti__devent_t **ready; /* [ready_room] */
    size_t ready_room;
    char *fuse; /* in the arena: memory for fused buckets */
    size_t fuse_bytes;
    char *packed; /* memory that the bucket is packed into: `fuse`, or the device's */
} tutti__lane_t;

/* ---- the engine ---- */

struct tutti__engine {
    tutti__engine_env_t env;
    uint32_t rank, size;

    /* Any thread. */
    atomic_int refs;           /* the communicator's and one per request */
    atomic_int token;          /* 1: a thread owns the state */
    atomic_int wanted;         /* threads that must have the token; other threads do not take it */
    atomic_int pending;        /* requests that are not done */
    atomic_int ngiven;         /* requests in `given` */
    atomic_int queued;         /* the queue is not empty */
    atomic_int news;           /* the doorbell or a socket has woken a thread: poll everything */
    tutti__word_t epoch;       /* changes when a request is done; waiters sleep on it */
    atomic_int sleepers;       /* on epoch */
    atomic_int callbacks;      /* some callbacks are due */
    atomic_int closed;         /* tutti__engine_close has begun */
    atomic_int inside;         /* threads that may still use env */
    atomic_int polling;        /* only polling advances something in flight */
    atomic_int waits;          /* the last check for stalls found a waiting tensor or request */
    _Atomic uint64_t moved_ns; /* while this rank has joined: when a bucket was served last */

    /* Under queue_lock: submitted requests, all pending requests by name, a pending join, and ended
       requests with a callback. */
    tutti__mutex_t queue_lock;
    tutti__request_t *queue_first, *queue_last;
    tutti__names_t names;
    tutti__request_t *join;
    tutti__request_t *ended_first, *ended_last;
    /* Events for submissions with a stream. The free events are event[0] to
       event[free_events - 1]. */
    tutti__devent_t **event; /* [nevents] */
    size_t nevents, free_events;

    /* Only the token's owner. */
    uint32_t polls;
    tutti__agree_t *agree;
    tutti__agree_link_t *agree_links; /* [nlinks] */
    tutti__bucket_t *filling;         /* the bucket whose tensors are being received */
    tutti__request_t *zeros;          /* zero contributions with counts for phase 1 */
    uint32_t in_flight;               /* buckets in all lanes */
    tutti__lane_t lane[TUTTI__LANES];
    uint32_t on_device; /* buckets in device memory: in lanes, or pending completions */
    tutti__bucket_t *completion_first, *completion_last; /* pending completions; see completion.c */
    uint32_t ncompletions;
    void *words;             /* semaphores that streams wait on; NULL: none. Set up once */
    tutti__request_t *given; /* requests that were handed over to streams */
    uint64_t looked_ns;      /* the last check of `given` */
    tutti__cache_t cache, device_cache;
    tutti__call_env_t calls;              /* of all lanes */
    uint64_t stall_ns;                    /* the last check for stalls; see stalls.c */
    uint64_t lane_sum[TUTTI__LANES];      /* sum of the fields that change when a lane advances, */
    uint64_t lane_moved_ns[TUTTI__LANES]; /* and the time of the check that found it changed */
    uint64_t queued_ns;                   /* the last check of the work queued in streams */
    int buried;                           /* the state was cleared after the end */

    /* The engines of one world; see help.c. */
    tutti__engine_t *world; /* itself in a world's engine */
    tutti__xport_t *far;    /* of the world's: the transport to another host, or NULL */
    tutti__mutex_t groups_lock;
    tutti__engine_t *groups;     /* under groups_lock: those of the world's groups */
    tutti__engine_t *next_group; /* under the world's groups_lock */

    /* Set up once. */
    tutti__watch_t *watch;
    int parent;            /* link, or -1 at rank 0 */
    unsigned generation;   /* see base/forked.h */
    int spin;              /* there are enough processors for spinning */
    uint64_t fusion_bytes; /* the largest bucket; see engine.c */
    int epfd;              /* the doorbell and the side channel */
    pthread_t thread;
    int has_thread;
    atomic_int stop;
};

/* The caller of a step, which determines how much work the step may do. */
typedef enum {
    TUTTI__STEP_BRIEF, /* a caller that must return soon: leaves larger buckets to other threads */
    TUTTI__STEP_WAITER,
    TUTTI__STEP_THREAD /* the library's own thread */
} tutti__who_t;

/* The program's requests. */
extern tutti__handles_t tutti__requests;

/* Report why a handle does not refer to a request. */
tutti_status_t tutti__request_wrong(const tutti_request_t *handle);

/* The request that a handle refers to. */
static inline tutti_status_t tutti__request_of(const tutti_request_t *handle,
                                               tutti__request_t **ret_request)
{
    void *found;

    if (TUTTI__UNLIKELY(!tutti__handle_find(&tutti__requests, handle, &found))) {
        *ret_request = NULL;
        return tutti__request_wrong(handle);
    }
    *ret_request = found;
    return TUTTI_OK;
}

/* requests.c, pending.c; these functions lock queue_lock themselves */
/* The new request has no handle. */
tutti_status_t tutti__request_new(tutti__engine_t *e, const tutti__entry_t *entry,
                                  tutti__request_t **ret_request);
void tutti__request_free(tutti__request_t *request);
/* End the request's handle, if it has one. */
void tutti__request_end_handle(tutti__request_t *request);
/* Add requests to queue and names, all or none; INVALID_ARGUMENT if a name is pending. ret_handles
   [n]: written before another thread may see the requests, so before a callback; NULL: the program
   already has the handles. */
tutti_status_t tutti__request_push(tutti__engine_t *e, tutti__request_t **requests, size_t n,
                                   tutti_request_t **ret_handles);
/* Add a pending request to the queue again, for its next phase. With queue_lock. */
void tutti__request_queue(tutti__engine_t *e, tutti__request_t *request);
/* The request has no waiter any longer: its name is free, and it is not pending. */
void tutti__request_release(tutti__engine_t *e, tutti__request_t *request);
tutti__request_t *tutti__request_find(tutti__engine_t *e, const char *name, size_t name_bytes);

/* text: NULL or copied. The waiter may free the request at once. */
void tutti__request_finish(tutti__engine_t *e, tutti__request_t *request, tutti_status_t status,
                           const char *text);
/* Wake sleeping waiters: a request may be done, or there is work. */
void tutti__request_wake(tutti__engine_t *e);
/* End all pending requests for which `pick` (NULL: all) returns true, and empty the queue: it may
   contain only requests that are ended here. */
void tutti__request_finish_all(tutti__engine_t *e, int (*pick)(const tutti__request_t *),
                               tutti_status_t status, const char *text);
/* Call the callbacks of ended requests. Without the token, without a lock. */
void tutti__request_callbacks(tutti__engine_t *e);

/* fuse.c: several tensors as one call, in a lane's memory */
/* Provide a lane's memory of at least `bytes` bytes. */
tutti_status_t tutti__fuse_memory(tutti__engine_t *e, tutti__lane_t *lane, size_t bytes);
/* Lay out the lane's first bucket, and make the call that serves it of lane->call. */
tutti_status_t tutti__fuse_call(tutti__engine_t *e, tutti__lane_t *lane, tutti__call_t *ret_call);
/* Its owner is the lane. */
extern const tutti__packing_t tutti__fuse_packing;

/* events.c: threads and streams of users with a device */
/* If there is a device. Use it on this thread first. */
tutti_status_t tutti__events_open(tutti__engine_t *e);
void tutti__events_close(tutti__engine_t *e);
/* Record an event in the stream of each request; all or none. Not under queue_lock. */
tutti_status_t tutti__events_record(tutti__engine_t *e, tutti__request_t *const *requests,
                                    size_t n);
/* An event of the pool, or a new event. Not under queue_lock. */
tutti_status_t tutti__events_take(tutti__engine_t *e, tutti__devent_t **ret_event);
/* Return the event, if there is one, to the pool; *event becomes NULL. Not under queue_lock. */
void tutti__events_put(tutti__engine_t *e, tutti__devent_t **event);

/* completion.c: pending completions, which are buckets that are queued on the device; with the
   token, and on its device */
/* All of a bucket's work is queued; its results are complete when the stream's present work is. */
tutti_status_t tutti__completion_record(tutti__engine_t *e, tutti__bucket_t *bucket,
                                        tutti__dstream_t *stream);
/* The bucket has left its lane. */
void tutti__completion_add(tutti__engine_t *e, tutti__bucket_t *bucket);
/* End the buckets that are complete; 1 if there was any. */
int tutti__completion_poll(tutti__engine_t *e);
/* Forget all pending completions, on any device; the caller ends their requests. */
void tutti__completion_clear(tutti__engine_t *e);
/* The other functions may run on any device. */
/* Wait for all pending completions, until this time at most; then abort NCCL's work. */
void tutti__completion_drain(tutti__engine_t *e, uint64_t limit_ns);
/* Without the token: may the stream be ordered behind requests? */
tutti_status_t tutti__completion_check(tutti__engine_t *e, tutti__dstream_t *stream);
/* Without the token. If the request is queued, later work in the stream sees its result, and the
   request is done. If it has begun, later work in the stream sees its result, and the engine owns
   the request (*ret_gone). Otherwise nothing is done. */
tutti_status_t tutti__completion_pass(tutti__engine_t *e, tutti__request_t *request,
                                      tutti__dstream_t *stream, int *ret_gone);

/* semaphore.c: requests that only a semaphore in a stream waits for; with the token, unless
   noted */
/* If there is a device; on it, without the token. */
tutti_status_t tutti__semaphore_open(tutti__engine_t *e);
/* A bucket of the lane now continues without its callers: its requests may be handed over. */
void tutti__semaphore_begin(tutti__engine_t *e, const tutti__bucket_t *bucket);
/* Any thread: may the request be handed over, once it has begun? */
int tutti__semaphore_suit(const tutti__request_t *request);
/* Hand over a suitable request, if it has begun and the stream can wait: *ret_gone. */
tutti_status_t tutti__semaphore_give(tutti__engine_t *e, tutti__request_t *request,
                                     tutti__dstream_t *stream, int *ret_gone);
/* A request that was handed over has ended: release its semaphore, and free it. */
void tutti__semaphore_end(tutti__engine_t *e, tutti__request_t *request, tutti_status_t status,
                          const char *text);
/* End all requests that were handed over. */
void tutti__semaphore_end_all(tutti__engine_t *e, const char *text);
/* For the thread: end the communicator if such a request passes the deadline. */
void tutti__semaphore_watch(tutti__engine_t *e);

/* join.c: zero contributions of a rank that has joined */
/* NULL: no memory, and the communicator has ended. name: [name_bytes] */
tutti__request_t *tutti__join_zero(tutti__engine_t *e, const tutti__metadata_t *metadata,
                                   const char *name, size_t name_bytes);
/* Give a zero contribution the counts that its first phase has received. 0: the first phase is
   not complete. */
int tutti__join_counts(tutti__engine_t *e, tutti__request_t *zero);

/* agreed.c: the engine's agreement */
tutti_status_t tutti__agreed_open(tutti__engine_t *e);
void tutti__agreed_close(tutti__engine_t *e);
void tutti__agreed_submit(tutti__engine_t *e, tutti__request_t *request);
/* Rank 0: put agreed tensors into buckets. 1: there were some. */
int tutti__agreed_step(tutti__engine_t *e);
/* Forget everything that is not in a lane. */
void tutti__agreed_clear(tutti__engine_t *e);
tutti__metadata_t tutti__agreed_metadata(const tutti__engine_t *e, const tutti__request_t *request);
/* Write which ranks an unagreed request waits for; 1 if this rank can name them exactly. */
int tutti__agreed_missing(tutti__engine_t *e, const tutti__request_t *request, char *text,
                          size_t bytes);

/* lanes.c */
void tutti__lanes_open(tutti__engine_t *e);
void tutti__lanes_close(tutti__engine_t *e);
void tutti__lanes_add(tutti__engine_t *e, tutti__bucket_t *bucket);
/* Frees its zero contributions as well, but no other requests. NULL is allowed. */
void tutti__bucket_free(tutti__bucket_t *bucket);
/* Advance all lanes; 1 if anything moved. *ret_left: a brief step left work to do. */
int tutti__lanes_step(tutti__engine_t *e, tutti__who_t who, int *ret_left);
/* The rank that a request in flight waits for, or -1. */
int32_t tutti__lanes_hint(const tutti__engine_t *e, const tutti__request_t *request);
/* 1: its data depend on this rank's own work on the device, which is not complete. */
int tutti__lanes_want_data(const tutti__engine_t *e, const tutti__request_t *request);
/* Abandon everything in flight. */
void tutti__lanes_clear(tutti__engine_t *e);
/* stalls.c: warn about tensors and requests that have waited for TUTTI_STALL_WARNING.
   With the token. */
void tutti__stalls_check(tutti__engine_t *e);
/* For the thread: how long it may sleep until the next check; -1: there is none. */
int64_t tutti__stalls_nap_us(const tutti__engine_t *e);
/* Rank 0: a leader's warning about a tensor. */
void tutti__stalls_message(tutti__engine_t *e, const void *body, size_t bytes);

/* queued.c, for the thread: the interval of checks of the work queued in streams; -1: none. */
int64_t tutti__watch_queued_us(const tutti__engine_t *e);
/* With the token: end the communicator if such work passes the deadline. */
void tutti__watch_queued(tutti__engine_t *e);

/* help.c: enter the engine in its world's list, and leave it. */
void tutti__help_open(tutti__engine_t *e);
void tutti__help_close(tutti__engine_t *e);

/* token.c */
/* Take a step, if there is work and the token is free. Calls no callbacks. */
void tutti__engine_help(tutti__engine_t *engine);
int tutti__token_take(tutti__engine_t *e);
/* Wait until the token is taken; no thread keeps it for long. For rare callers: others
   sleep meanwhile. */
void tutti__token_await(tutti__engine_t *e);
/* Give the token back. No thread polls after this, so peers must ring if anything is pending. */
void tutti__token_leave(tutti__engine_t *e, tutti__who_t who);
/* One step; 1 if anything moved. With the token. */
int tutti__engine_step(tutti__engine_t *e, tutti__who_t who);
/* Tell peers whether to ring. With the token. */
void tutti__engine_sleeping(const tutti__engine_t *e, uint32_t value);
/* Take the token if it is free, and run one round of steps. */
void tutti__engine_kick(tutti__engine_t *e, tutti__who_t who);
/* Wake the thread: there is work that needs polling, the sockets, or time. */
void tutti__engine_ring_self(const tutti__engine_t *e);

/* wait.c */
typedef struct {
    tutti__wait_t wait;
    int timeout_ms;
    uint64_t limit_ns;
    int holds;                    /* this waiter owns the token */
    int calls_back;               /* callbacks are due */
    tutti__request_t *one;        /* the request; or NULL: */
    tutti_request_t *const *list; /* [n]; NULL entries are ignored */
    size_t n;
    const tutti__word_t *enough; /* `one`: ready as soon as this word of it is not 0. Or NULL */
    uint64_t deadline_ns;
    size_t ready;    /* `list`: the index of the request that ended first, or n */
    uint32_t looked; /* `list`: the epoch of the last search */
    int has_looked;
    int is_empty; /* `list`: no entry is left to wait for: callbacks have freed all */
} tutti__waiter_t;

/* Is the request done? */
static inline int tutti__wait_is_done(const tutti__request_t *request)
{
    return tutti__load_acquire(&request->done) == TUTTI__DONE;
}

/* May a call wait for the request? In a list, an inactive persistent request is ignored. */
static inline int tutti__wait_counts(const tutti__request_t *request)
{
    return !request->persistent || atomic_load(&request->active);
}

/* Entry i of the list, if a call may wait for it; otherwise NULL. */
tutti__request_t *tutti__wait_entry(const tutti__waiter_t *w, size_t i);
/* `one`, or the first entry of the list that tutti__wait_entry returns, or NULL. */
const tutti__request_t *tutti__wait_first(const tutti__waiter_t *w);
/* Find the request that is ready. */
void tutti__wait_look(tutti__waiter_t *w);
tutti_status_t tutti__wait_not_yet(const tutti__waiter_t *w, int timeout_ms);
/* With the token: write which rank or device a request waits for; 1 if that is certain. */
int tutti__wait_culprit(tutti__engine_t *e, const tutti__request_t *request, char *text,
                        size_t bytes);
/* The deadline has passed? TIMEOUT: the caller's. The library's own ends the communicator. OK: go on
   waiting. Without the token. */
tutti_status_t tutti__wait_check(tutti__engine_t *e, tutti__waiter_t *w);
/* Wait until it is ready; all requests belong to one engine. OK: it is ready; TIMEOUT: not yet. */
tutti_status_t tutti__wait(tutti__engine_t *e, tutti__waiter_t *w, int timeout_ms);
/* As tutti_wait. */
tutti_status_t tutti__wait_and_take(tutti__request_t *request, int timeout_ms);

/* submit.c: may this thread use the engine's environment? It lives until the last
   thread has left. */
int tutti__engine_enter(tutti__engine_t *e);
void tutti__engine_leave(tutti__engine_t *e);

/* thread.c */
tutti_status_t tutti__thread_start(tutti__engine_t *e);
void tutti__thread_stop(tutti__engine_t *e);

/* The engine's receiver of the watch's messages; see watch/links.h. engine: a tutti__engine_t. */
void tutti__engine_message(void *engine, uint32_t link, uint32_t kind, const void *body,
                           size_t bytes);
/* Drop a reference to the engine's memory. */
void tutti__engine_release(tutti__engine_t *e);

#endif
