/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's state, and what its files offer each other.
 *
 * Fields belong to whoever owns the token, unless their comment says otherwise.
 */
#ifndef TUTTI__ENGINE_STATE_H
#define TUTTI__ENGINE_STATE_H

#include "agree/agree.h"
#include "base/handles.h"
#include "base/lock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/flat.h"
#include "engine/messages.h"
#include "engine/staged.h"

/* ---- requests ---- */

/* How far a request is. */
enum {
    TUTTI__NOT_DONE = 0, /* a persistent one may also be inactive */
    TUTTI__ENDED,        /* its status is known; its callback has not returned yet */
    TUTTI__DONE          /* the waiter may take it */
};

struct tutti__request {
    tutti_request_t *handle; /* the program's handle; NULL: it has none, or none any more */
    tutti__engine_t *engine; /* a reference, held until the request is freed */
    uint64_t hash;           /* of the name */
    tutti__call_t call;      /* arrays: in `arrays` */
    size_t *arrays;
    size_t bytes; /* about what a step of it may cost */
    tutti_callback_t callback;
    void *callback_arg;
    uint8_t callback_info;    /* see tutti__entry_t */
    tutti__dstream_t *stream; /* of device memory: what is in it at submission comes first */
    tutti__devent_t *ready;   /* behind that, of the pool until the request is done; or NULL */
    uint8_t has_stream;
    uint64_t since_ns;
    uint64_t ended_ns;
    uint64_t landing_ns;     /* when its bucket was queued on the device; 0: not yet */
    size_t offset;           /* in each part of its bucket's memory, bytes */
    tutti__request_t *next;  /* in the queue, a bucket, or the list of due callbacks */
    tutti__request_t *chain; /* in the table of pending names, or in `given` */
    tutti__group_msg_t group;
    uint8_t counts_later; /* recvcounts are found out by phase 0 */
    uint8_t phase;        /* 1: its counts are known and checked */
    uint8_t agreed;       /* in a bucket */
    uint8_t lane;         /* of its bucket; 0: in none yet */
    uint8_t joins;        /* tutti_join's */
    uint8_t is_zero;      /* the zero contribution of a rank that has joined: has no waiter */
    uint8_t persistent;
    uint8_t name_bytes;
    uint8_t known;         /* under queue_lock: it is in `names`, or it is `join` */
    uint32_t last_rank;    /* of a join */
    atomic_int active;     /* persistent: started, and not waited for */
    tutti__word_t counted; /* 1: phase 0 is over, recvcounts are there; 2: the buffer too. Release
                              by the owner, acquire by tutti_request_recvcounts */
    tutti__word_t begun;   /* 1: it can be handed over to a stream, see tickets.c; as queued */
    uint8_t ticket;        /* it was: the word's number, from 1; then: */
    uint32_t ticket_value;
    uint64_t given_ns;     /* when, or when its data were last found not to be there */
    tutti__word_t queued;  /* 1: its work is queued on the device, or it is done; release by the
                              owner, acquire by tutti__engine_wait_queued */
    tutti__word_t done;    /* TUTTI__DONE, ...; release by the owner; acquire by test and wait */
    tutti_status_t status; /* valid once ended */
    char *text;            /* of an error, or NULL */
    char name[TUTTI__NAME_BYTES]; /* last: not cleared before it is set */
};

/* Pending requests by name: chained hashing, grows. Under queue_lock. */
typedef struct {
    tutti__request_t **bucket;
    uint32_t nbuckets, count;
} tutti__names_t;

/* ---- buckets and lanes ---- */

typedef struct tutti__bucket tutti__bucket_t;
struct tutti__bucket {
    uint32_t number;
    uint32_t nrequests; /* 0: it does not concern this rank */
    int counts;         /* exchange the counts first */
    uint32_t on_device; /* 1: its tensors are device memory */
    int joined;         /* some ranks have joined, and make zero contributions */
    tutti__request_t *first, *last;
    tutti__bucket_t *next;   /* in its lane, or landing */
    tutti__devent_t *landed; /* behind all of its work, while it is landing; of the pool */
    uint64_t since_ns;       /* landing */
};

/* Where a bucket of tensors in device memory is; see on_device.c. */
typedef enum {
    TUTTI__DEVICE_COME,       /* of a flat run: at the first step of the gate, see flat.h.. */
    TUTTI__DEVICE_TURN,       /* ..and at the second */
    TUTTI__DEVICE_INPUT,      /* nothing is queued before the data are there; see tickets.c */
    TUTTI__DEVICE_RUN,        /* its schedule runs: on the device or, once staged, in host memory */
    TUTTI__DEVICE_STAGED_IN,  /* on the way into host memory */
    TUTTI__DEVICE_STAGED_OUT, /* on the way back */
    TUTTI__DEVICE_QUEUED      /* all is queued: the bucket leaves the lane, see landing.c */
} tutti__device_phase_t;

/* The engine's lanes are 1 to TUTTI__LANES - 1; entry 0 stays empty. */
typedef struct {
    tutti__run_t run;
    tutti__bucket_t *first, *last; /* first: in flight, if running */
    int running;
    int counting;                /* the run exchanges counts */
    int fused;                   /* the run works in `fuse` */
    int polls;                   /* only polling moves the run: MPI, or a device */
    int on_device;               /* its tensors are device memory; then: */
    tutti__device_phase_t phase; /* if running */
    int is_staged;               /* the call is made in host memory */
    int unpacks;                 /* results do not stand where the user wants them */
    const tutti__sched_t *sched; /* of a run on the device; flat: behind the gate */
    tutti__gate_t gate;
    tutti__staged_t staged;
    tutti__piece_t *pieces; /* [pieces_room] of a pack or unpack that is being made */
    size_t npieces, pieces_room;
    size_t bytes; /* of the run */
    tutti__stuck_t stuck;
    tutti__call_t call; /* that the run serves, and what it is made of */
    tutti__exec_call_t exec;
    tutti__call_room_t room;
    char *fuse; /* memory for fused buckets, in the arena */
    size_t fuse_bytes;
    char *packed; /* what the present bucket is packed into: fuse, or the device's */
} tutti__lane_t;

/* ---- the engine ---- */

struct tutti__engine {
    tutti__engine_env_t env;
    uint32_t rank, size;

    /* Any thread. */
    atomic_int refs;      /* the communicator's and one per request */
    atomic_int token;     /* 1: somebody owns the state */
    atomic_int wanted;    /* threads that must have the token: others leave it to them */
    atomic_int pending;   /* requests that are not done */
    atomic_int ngiven;    /* those in `given` */
    atomic_int queued;    /* the queue is not empty */
    atomic_int news;      /* the bell or a socket has woken somebody: look at all */
    tutti__word_t epoch;  /* changes when a request is done; waiters sleep on it */
    atomic_int sleepers;  /* on epoch */
    atomic_int callbacks; /* there are some to be called */
    atomic_int dead;      /* a tutti_status_t; see dead_text */
    atomic_int closed;    /* tutti__engine_close has begun */
    atomic_int inside;    /* threads that may still use env */
    atomic_int *left;     /* [size] ranks that have said goodbye */
    atomic_int any_left;
    atomic_uint *cancelled;    /* [size] number of the call that failed last to make a group with
                                  this first rank */
    atomic_int polling;        /* something in flight moves only when polled */
    atomic_int waits;          /* the last check for stalls found something that waits */
    _Atomic uint64_t moved_ns; /* while this rank has joined: when a bucket was served last */

    /* Under queue_lock: what was submitted, all that is pending by name, and a pending join; what
       has ended and has a callback. dead_text is written once under it, before `dead` is set. */
    tutti__mutex_t queue_lock;
    tutti__request_t *queue_first, *queue_last;
    tutti__names_t names;
    tutti__request_t *join;
    tutti__request_t *ended_first, *ended_last;
    char dead_text[TUTTI__ERROR_BYTES];
    /* Events for what is submitted with a stream: those not in use, of all that were made. */
    tutti__devent_t **event; /* [nevents] */
    size_t nevents, free_events;

    /* The token's owner. */
    uint32_t nlinks;
    int parent; /* link, or -1 at rank 0 */
    tutti__link_t *link;
    int remote; /* some links are sockets: poll them while busy */
    uint32_t polls;
    tutti__agree_t *agree;
    tutti__agree_link_t *agree_links; /* [nlinks] */
    tutti__bucket_t *filling;         /* the bucket whose tensors are being named */
    tutti__request_t *zeros;          /* zero contributions with counts for phase 1 */
    uint32_t in_flight;               /* buckets in all lanes */
    tutti__lane_t lane[TUTTI__LANES];
    uint32_t on_device;         /* of them in device memory, and those that are landing */
    _Atomic uint64_t failed_ns; /* when NCCL has failed; 0: it has not. Any thread looks */
    char failed_text[TUTTI__ERROR_BYTES];
    tutti__bucket_t *landing_first, *landing_last; /* queued on the device; see landing.c */
    uint32_t nlanding;
    void *words;             /* that streams wait for; NULL: they do not. Set up once */
    tutti__request_t *given; /* handed over to streams by tickets */
    uint64_t looked_ns;      /* when those were last looked at */
    tutti__cache_t cache, device_cache;
    uint64_t stall_ns;                    /* the last check for stalls; see stalls.c */
    uint64_t lane_sum[TUTTI__LANES];      /* sum of the fields that change when a lane moves, */
    uint64_t lane_moved_ns[TUTTI__LANES]; /* and the time of the check that found it changed */
    uint64_t queued_ns;                   /* the last check of the work queued in streams */
    int dead_seen;                        /* the state has been cleared after a death */

    /* Set up once. */
    unsigned generation;   /* see base/forked.h */
    int spin;              /* enough processors to spin at all */
    uint64_t fusion_bytes; /* the largest bucket; see engine.c */
    int epfd;              /* the bell and the side channel */
    pthread_t thread;
    int has_thread;
    atomic_int stop;
};

/* Who takes a step, and how much work it may do. */
typedef enum {
    TUTTI__STEP_BRIEF, /* a caller that wants to go on: leaves larger buckets to others */
    TUTTI__STEP_WAITER,
    TUTTI__STEP_THREAD /* the library's own */
} tutti__who_t;

/* The program's requests. */
extern tutti__handles_t tutti__requests;

/* Report why a handle leads to no request. */
tutti_status_t tutti__request_wrong(const tutti_request_t *handle);

/* The request that a handle leads to. */
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

/* requests.c, pending.c; what is under queue_lock they lock themselves */
/* The new request has no handle. */
tutti_status_t tutti__request_new(tutti__engine_t *e, const tutti__entry_t *entry,
                                  tutti__request_t **ret_request);
void tutti__request_free(tutti__request_t *request);
/* End the request's handle, if it has one. */
void tutti__request_end_handle(tutti__request_t *request);
/* Add requests to queue and names, all or none; INVALID_ARGUMENT if a name is pending. ret_handles
   [n]: written before another thread may see the requests, so before a callback; NULL: the program
   has the handles. */
tutti_status_t tutti__request_push(tutti__engine_t *e, tutti__request_t **requests, size_t n,
                                   tutti_request_t **ret_handles);
/* Add one that is pending to the queue once more, for its next phase. With queue_lock. */
void tutti__request_queue(tutti__engine_t *e, tutti__request_t *request);
/* Nobody waits for it any more: its name is free, and it is not pending. */
void tutti__request_release(tutti__engine_t *e, tutti__request_t *request);
tutti__request_t *tutti__request_find(tutti__engine_t *e, const char *name, size_t name_bytes);

/* text: NULL or copied. The request may be freed by its waiter at once. */
void tutti__request_finish(tutti__engine_t *e, tutti__request_t *request, tutti_status_t status,
                           const char *text);
/* Wake sleeping waiters, to look or to work. */
void tutti__request_wake(tutti__engine_t *e);
/* End all pending requests for which `pick` (NULL: all) says yes, and forget the queue: the others
   must have left it. */
void tutti__request_finish_all(tutti__engine_t *e, int (*pick)(const tutti__request_t *),
                               tutti_status_t status, const char *text);
/* Call the callbacks of what has ended. Without the token, without a lock. */
void tutti__request_callbacks(tutti__engine_t *e);

/* links.c */
tutti_status_t tutti__links_open(tutti__engine_t *e);
void tutti__links_close(tutti__engine_t *e);
/* Read what a local neighbour has written so far. 1 if anything was there. */
int tutti__link_read(tutti__engine_t *e, uint32_t link);
/* Queue a message; published by flush. */
void tutti__link_send(tutti__engine_t *e, uint32_t link, uint32_t kind, const void *body,
                      size_t bytes);
void tutti__links_flush(tutti__engine_t *e);
/* Read all that is there; 1 if anything was. side: look at the sockets, too. */
int tutti__links_poll(tutti__engine_t *e, int side);

/* fuse.c: several tensors as one call, in a lane's memory */
/* Memory of a lane, at least so much. */
tutti_status_t tutti__fuse_memory(tutti__engine_t *e, tutti__lane_t *lane, size_t bytes);
/* Lay out the lane's first bucket and make the call that serves it. */
tutti_status_t tutti__fuse_call(tutti__engine_t *e, tutti__lane_t *lane, tutti__call_t *ret_call);
/* In device memory: what is to be copied is added up, see tutti__device_copy. */
void tutti__fuse_pack(const tutti__engine_t *e, tutti__lane_t *lane);
void tutti__fuse_unpack(const tutti__engine_t *e, tutti__lane_t *lane);

/* events.c: threads and streams of users that have a device */
/* If there is a device. Once it is used on this thread. */
tutti_status_t tutti__events_open(tutti__engine_t *e);
void tutti__events_close(tutti__engine_t *e);
/* Use the engine's device on this thread. Returns what to give back then. */
int tutti__engine_use_device(const tutti__engine_t *e);
void tutti__engine_give_back(const tutti__engine_t *e, int before);
/* Record where the streams of requests stand; all or none. Not under queue_lock. */
tutti_status_t tutti__events_record(tutti__engine_t *e, tutti__request_t *const *requests,
                                    size_t n);
/* One of the pool, or made. Not under queue_lock. */
tutti_status_t tutti__events_take(tutti__engine_t *e, tutti__devent_t **ret_event);
/* The event, if there is one, is free again, and *event NULL. Not under queue_lock. */
void tutti__events_put(tutti__engine_t *e, tutti__devent_t **event);

/* on_device.c: buckets of tensors in device memory */
/* Begin the lane's call; afterwards `running`, unless there is nothing to do. AGAIN: this thread
   may not; nothing was done. *ret_refused: as below. */
tutti_status_t tutti__device_start(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who,
                                   tutti_status_t *ret_refused);
/* Go on until it is done, or AGAIN. *ret_refused: it cannot be served, on no rank. */
tutti_status_t tutti__device_step(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who,
                                  tutti_status_t *ret_refused);
/* flat.c: through the gate, one phase as far as it goes; then the run is started. */
tutti_status_t tutti__flat_step(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who);
/* Will it serve the call, if it is flat? The same on all ranks. */
int tutti__flat_serves(const tutti__engine_t *e, const tutti__call_t *call,
                       const tutti__sched_t *sched);
/* Can the lane's first bucket be served in device memory, by all ranks? */
int tutti__device_fits(const tutti__engine_t *e, const tutti__bucket_t *bucket);
/* 1: it is one tensor, and goes into the lane's device memory all the same. On all ranks alike. */
int tutti__device_packs(const tutti__engine_t *e, const tutti__bucket_t *bucket);
/* Add to what is packed or unpacked next. */
void tutti__device_copy(tutti__lane_t *lane, void *to, const void *from, size_t count);

/* landing.c: buckets that are queued on the device; with the token, on its device */
/* All of a bucket's work is queued; its results are there behind what is in the stream. */
tutti_status_t tutti__landing_record(tutti__engine_t *e, tutti__bucket_t *bucket,
                                     tutti__dstream_t *stream);
/* It has left its lane since. */
void tutti__landing_add(tutti__engine_t *e, tutti__bucket_t *bucket);
/* End those that have come; 1 if any has. */
int tutti__landing_poll(tutti__engine_t *e);
/* Forget them, on any device; their requests are ended by others. */
void tutti__landing_clear(tutti__engine_t *e);
/* The same of these, on any device: */
/* Wait for all of them, until this time at most; then NCCL's work is ended. */
void tutti__landing_drain(tutti__engine_t *e, uint64_t limit_ns);
/* Without the token: may the stream be ordered behind requests? */
tutti_status_t tutti__landing_check(tutti__engine_t *e, tutti__dstream_t *stream);
/* Without the token: later work in the stream sees the result of a request that is queued, and the
   request is done; or of one that has begun, which is the engine's then (*ret_gone); else nothing
   is done. */
tutti_status_t tutti__landing_pass(tutti__engine_t *e, tutti__request_t *request,
                                   tutti__dstream_t *stream, int *ret_gone);

/* tickets.c: requests that streams wait for, and nobody else; with the token, unless it is said */
/* If there is a device; on it, without the token. */
tutti_status_t tutti__tickets_open(tutti__engine_t *e);
/* A bucket of the lane goes on by itself from here: its requests may be handed over. */
void tutti__tickets_begin(tutti__engine_t *e, const tutti__bucket_t *bucket);
/* Any thread: may it be handed over, once it has begun? */
int tutti__tickets_suit(const tutti__request_t *request);
/* Hand a request over that suits, if it has begun and the stream can wait: *ret_gone. */
tutti_status_t tutti__tickets_give(tutti__engine_t *e, tutti__request_t *request,
                                   tutti__dstream_t *stream, int *ret_gone);
/* One that was handed over has ended: let its stream go on, and free it. */
void tutti__tickets_end(tutti__engine_t *e, tutti__request_t *request, tutti_status_t status,
                        const char *text);
/* All of them. */
void tutti__tickets_end_all(tutti__engine_t *e, const char *text);
/* For the thread: end the communicator if one does not end. */
void tutti__tickets_watch(tutti__engine_t *e);

/* exchange.c: what ranks tell each other before the data of v collectives moves */
/* The call that sums up all ranks' counts in the lane's memory. */
tutti_status_t tutti__exchange_call(tutti__engine_t *e, tutti__lane_t *lane,
                                    tutti__call_t *ret_call);
/* It is done. OK: go on with the data; AGAIN: somebody has no buffer yet; MISMATCH, with text. All
   ranks come to the same answer. */
tutti_status_t tutti__exchange_done(tutti__engine_t *e, const tutti__lane_t *lane, char *text,
                                    size_t bytes);

/* join.c: zero contributions of a rank that has joined */
/* NULL: no memory, and the communicator has ended. name: [name_bytes] */
tutti__request_t *tutti__join_zero(tutti__engine_t *e, const tutti__metadata_t *metadata,
                                   const char *name, size_t name_bytes);
/* Give a zero contribution the counts that its first phase has received. 0: that phase is not
   done. */
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
/* Write which ranks a request waits for that is not agreed; 1 if this rank knows it exactly. */
int tutti__agreed_missing(tutti__engine_t *e, const tutti__request_t *request, char *text,
                          size_t bytes);

/* lanes.c */
void tutti__lanes_open(tutti__engine_t *e);
void tutti__lanes_close(tutti__engine_t *e);
void tutti__lanes_add(tutti__engine_t *e, tutti__bucket_t *bucket);
/* With the zero contributions in it; other requests stay. NULL is fine. */
void tutti__bucket_free(tutti__bucket_t *bucket);
/* Go on in all lanes; 1 if anything moved. *ret_left: a brief step left work to do. */
int tutti__lanes_step(tutti__engine_t *e, tutti__who_t who, int *ret_left);
/* The rank that a request in flight waits for, or -1. */
int32_t tutti__lanes_stuck(const tutti__engine_t *e, const tutti__request_t *request);
/* 1: it waits for this rank's own work on the device, behind which its data are. */
int tutti__lanes_want_data(const tutti__engine_t *e, const tutti__request_t *request);
/* Give up everything in flight. */
void tutti__lanes_clear(tutti__engine_t *e, tutti__who_t who);
/* For on_device.c: may this thread not drive what a schedule needs? */
int tutti__lanes_forbidden(const tutti__engine_t *e, const tutti__sched_t *sched, tutti__who_t who);
tutti_status_t tutti__lanes_schedule(tutti__cache_t *cache, const tutti__call_t *call,
                                     const tutti__want_t *want, int in_place,
                                     const tutti__sched_t **ret_sched);
/* Begin a run of lane->exec. */
tutti_status_t tutti__lanes_run(tutti__lane_t *lane, const tutti__sched_t *sched);
/* A device's work has failed, which ends the communicator. If it is NCCL's, mostly another rank has
   aborted it, since somebody has died: that is better to say, so the news is waited for a while. */
void tutti__lanes_fail(tutti__engine_t *e, tutti_status_t status, const char *text);
/* Its second half, as often as possible, once failed_ns is not 0. */
void tutti__lanes_await_news(tutti__engine_t *e);
/* One step of a lane's run. */
tutti_status_t tutti__lanes_step_run(tutti__engine_t *e, tutti__lane_t *lane);

/* watch.c */
void tutti__watch_dead(tutti__engine_t *e, tutti_status_t status, const char *text);
void tutti__watch_message(tutti__engine_t *e, uint32_t link, const void *body, size_t bytes);
void tutti__watch_lost(tutti__engine_t *e, int link, uint32_t rank);
void tutti__watch_bye(tutti__engine_t *e, int link, uint32_t rank);
void tutti__watch_cancel(tutti__engine_t *e, int link, const void *body, size_t bytes);
/* After a goodbye: end what is not agreed, the queue too. */
void tutti__watch_refuse(tutti__engine_t *e);
/* What a rank's door says, TUTTI__DOOR_...; open on other machines. Any thread. */
uint32_t tutti__watch_door(const tutti__engine_t *e, uint32_t rank);
/* Write it into my own, if that is nearer the end, and wake those who wait for this rank. */
void tutti__watch_close_door(const tutti__engine_t *e, uint32_t end);
/* Say in words who has left: `rank`, or another one if that has not; 0 if no one is known. Any
   thread. */
int tutti__watch_left(tutti__engine_t *e, uint32_t rank, char *text, size_t bytes);
/* The same of this rank. */
const char *tutti__watch_closed(const tutti__engine_t *e);
/* stalls.c: warn about what has waited for TUTTI_STALL_WARNING. With the token. */
void tutti__stalls_check(tutti__engine_t *e);
/* For the thread: how long it may sleep until the next check; -1: there is none. */
int64_t tutti__stalls_nap_us(const tutti__engine_t *e);
/* Rank 0: a leader's warning about a tensor. */
void tutti__stalls_message(tutti__engine_t *e, const void *body, size_t bytes);

/* queued.c, for the thread: how often to look after what is queued in streams; -1: never. */
int64_t tutti__watch_queued_us(const tutti__engine_t *e);
/* With the token: end the communicator if such work does not end. */
void tutti__watch_queued(tutti__engine_t *e);

/* While something in flight moves only by polling (MPI): the sleep between two looks. */
#define TUTTI__POLL_SLEEP_US 50
/* A sleeper looks after deadlines and stalls at least so often. */
#define TUTTI__TICK_MS 500

/* token.c */
int tutti__token_take(tutti__engine_t *e);
/* The same, until it is there; nobody keeps it for long. For what is rare: others sleep then. */
void tutti__token_await(tutti__engine_t *e);
/* Give the token back. Nobody polls after this, so peers must ring if anything is pending. */
void tutti__token_leave(tutti__engine_t *e, tutti__who_t who);
/* One step; 1 if anything moved. With the token. */
int tutti__engine_step(tutti__engine_t *e, tutti__who_t who);
/* Tell peers whether to ring. With the token. */
void tutti__engine_sleeping(const tutti__engine_t *e, uint32_t value);
/* Work that somebody has left: if the token is free, a round of steps. */
void tutti__engine_kick(tutti__engine_t *e, tutti__who_t who);
/* Wake the thread: something needs one that polls, sees the sockets, or has time. */
void tutti__engine_ring_self(const tutti__engine_t *e);

/* wait.c */
typedef struct {
    tutti__request_t *one;        /* the request; or NULL: */
    tutti_request_t *const *list; /* [n]; NULL entries do not count */
    size_t n;
    const tutti__word_t *enough; /* one request: of it; that this is not 0 is enough. Or NULL */
    uint64_t deadline_ns;
    size_t ready;    /* several: the one that ended first, or n */
    uint32_t looked; /* several: the epoch of the last look */
    int has_looked;
} tutti__waiter_t;

/* Is the request done? */
static inline int tutti__wait_is_done(const tutti__request_t *request)
{
    return tutti__load_acquire(&request->done) == TUTTI__DONE;
}

/* May a call wait for the request? In lists, inactive persistent requests are as NULL. */
static inline int tutti__wait_counts(const tutti__request_t *request)
{
    return !request->persistent || atomic_load(&request->active);
}

/* Entry i of the list, if a call may wait for it; else NULL. */
tutti__request_t *tutti__wait_entry(const tutti__waiter_t *w, size_t i);
/* `one`, or the first entry of the list that tutti__wait_entry returns, or NULL. */
const tutti__request_t *tutti__wait_first(const tutti__waiter_t *w);
/* Find the one that is ready now. */
void tutti__wait_look(tutti__waiter_t *w);
tutti_status_t tutti__wait_not_yet(const tutti__waiter_t *w, int timeout_ms);
/* With the token: say in words whom a request waits for; 1 if that is certain. */
int tutti__wait_culprit(tutti__engine_t *e, const tutti__request_t *request, char *text,
                        size_t bytes);
/* The library's own deadline has passed: end the communicator. */
void tutti__wait_give_up(tutti__engine_t *e, const tutti__request_t *request);
/* Wait for it, all of one engine. OK: it is ready; TIMEOUT: not yet. */
tutti_status_t tutti__wait(tutti__engine_t *e, tutti__waiter_t *w, int timeout_ms);
/* As tutti_wait. */
tutti_status_t tutti__wait_and_take(tutti__request_t *request, int timeout_ms);

/* submit.c: may this thread use the engine's surroundings? They live until the last one is out. */
int tutti__engine_enter(tutti__engine_t *e);
void tutti__engine_leave(tutti__engine_t *e);

/* thread.c */
tutti_status_t tutti__thread_start(tutti__engine_t *e);
void tutti__thread_stop(tutti__engine_t *e);

/* A message between neighbours for the handler of its kind; also called for oneself. */
void tutti__engine_message(tutti__engine_t *e, int link, uint32_t kind, const void *body,
                           size_t bytes);

#endif
