/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's state, and what its files offer each other.
 *
 * Fields belong to whoever owns the token, unless their comment says otherwise.
 */
#ifndef TUTTI__ENGINE_STATE_H
#define TUTTI__ENGINE_STATE_H

#include "base/lock.h"
#include "base/status.h"
#include "engine/engine.h"

#define TUTTI__NAME_BYTES 256

/* ---- requests ---- */

struct tutti_request {
    tutti__engine_t *engine; /* a reference, held until the request is freed */
    char name[TUTTI__NAME_BYTES];
    uint64_t hash; /* of the name */
    const void *sendbuf;
    void *recvbuf;
    size_t count;
    tutti_dtype_t dtype;
    tutti_op_t op;
    uint64_t since_ns;
    size_t offset;          /* in its bucket's memory, bytes */
    tutti_request_t *next;  /* in the queue, a bucket, or a chain of names */
    tutti_request_t *chain; /* of the table of pending names */
    int announced, agreed;
    tutti__word_t done;    /* release by the owner; acquire by test and wait */
    tutti_status_t status; /* valid once done */
    char *text;            /* of an error, or NULL */
};

/* Pending requests by name: chained hashing, grows. Under queue_lock. */
typedef struct {
    tutti_request_t **bucket;
    uint32_t nbuckets, count;
} tutti__names_t;

/* ---- control messages ---- */

/*
 * Neighbours in the tree of boot.h. Messages to ranks of my host go through a pair of byte rings in
 * the child's arena, others through the side channel; in order on each link, either way. BYE and
 * DEAD take the side channel, because an idle rank looks only there; a receiver empties the ring
 * first, so that the order stays. (A BYE behind a backlog stays behind it: such a peer is not
 * idle.)
 */
enum {
    TUTTI__MSG_ANNOUNCE = 1, /* up: tutti__announce_msg_t */
    TUTTI__MSG_BUCKET,       /* down: tutti__bucket_msg_t */
    TUTTI__MSG_REJECT,       /* down: tutti__reject_msg_t */
    TUTTI__MSG_BYE,          /* both: uint32_t rank: has called finalize */
    TUTTI__MSG_DEAD          /* both: tutti__dead_msg_t */
};

#define TUTTI__PIPE_BYTES 65536 /* a power of two, larger than several of the largest messages */

typedef struct {
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t head; /* bytes ever written */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t tail; /* bytes ever read */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) char bytes[TUTTI__PIPE_BYTES];
} tutti__pipe_t;

typedef struct {
    uint32_t rank;  /* at the other end */
    int local;      /* pipes, else side channel */
    uint32_t index; /* local: among the machine's ranks */
    tutti__pipe_t *in, *out;
    uint32_t head; /* written, perhaps not published yet */
    int lost;
    int bye;       /* it has said goodbye */
    char *backlog; /* messages that found no room: whole frames */
    size_t backlog_bytes, backlog_room, backlog_sent;
} tutti__link_t;

/* One tensor as the ranks of a subtree announced it. `name` follows, without its end. */
typedef struct {
    uint64_t count, other_count;
    uint32_t rank;       /* lowest link's first rank that announced it */
    uint32_t other_rank; /* conflict: a rank that announced it differently */
    uint32_t nranks;     /* of this subtree that have announced it */
    uint8_t dtype, op, other_dtype, other_op;
    uint8_t conflict, name_bytes, unused[2];
} tutti__announce_msg_t;

/* One tensor of a bucket. */
typedef struct {
    uint32_t bucket; /* number of the bucket; goes up by 1 */
    uint8_t last;    /* the bucket is complete */
    uint8_t name_bytes, unused[2];
} tutti__bucket_msg_t;

typedef struct {
    uint32_t status;
    uint16_t text_bytes;
    uint8_t name_bytes, unused;
} tutti__reject_msg_t; /* name and text follow */

typedef struct {
    uint32_t status;
    uint32_t text_bytes;
} tutti__dead_msg_t; /* text follows */

/* ---- agreement ---- */

/* A tensor that some ranks of my subtree have announced. */
typedef struct tutti__tensor tutti__tensor_t;
struct tutti__tensor {
    char name[TUTTI__NAME_BYTES];
    uint64_t hash;
    tutti__announce_msg_t msg;
    uint64_t since_ns;
    tutti__tensor_t *next;
    unsigned char from[]; /* [nlinks + 1] who has announced it: links, and last myself */
};

#define TUTTI__TENSOR_BUCKETS 1024

/* ---- buckets and lanes ---- */

typedef struct tutti__bucket tutti__bucket_t;
struct tutti__bucket {
    uint32_t number;
    uint32_t nrequests;
    tutti_request_t *first, *last;
    tutti__bucket_t *next; /* in its lane */
};

/* The engine's lanes are 1 to TUTTI__LANES - 1; entry 0 stays empty. */
typedef struct {
    tutti__run_t run;
    tutti__bucket_t *first, *last; /* first: in flight, if running */
    int running;
    int polls;    /* the run uses a transport that only polling moves (MPI) */
    size_t bytes; /* of the run */
    tutti__stuck_t stuck;
    char *fuse; /* memory for fused buckets, in the arena */
    size_t fuse_bytes;
} tutti__lane_t;

/* ---- the engine ---- */

struct tutti__engine {
    tutti__engine_env_t env;
    uint32_t rank, size;

    /* Any thread. */
    atomic_int refs;     /* the communicator's and one per request */
    atomic_int token;    /* 1: somebody owns the state */
    atomic_int pending;  /* requests that are not done */
    atomic_int queued;   /* the queue is not empty */
    atomic_int news;     /* the bell or a socket has woken somebody: look at all */
    tutti__word_t epoch; /* changes when a request is done; waiters sleep on it */
    atomic_int sleepers; /* on epoch */
    atomic_int dead;     /* a tutti_status_t; see dead_text */
    atomic_int closed;   /* tutti__engine_close has begun */
    atomic_int inside;   /* threads that may still use env */
    atomic_int *left;    /* [size] ranks that have called finalize */
    atomic_int any_left;
    atomic_int polling; /* something in flight moves only when polled */

    /* Under queue_lock: what was submitted, and all that is pending by name. dead_text is written
       once under it, before `dead` is set. */
    tutti__mutex_t queue_lock;
    tutti_request_t *queue_first, *queue_last;
    tutti__names_t names;
    char dead_text[TUTTI__ERROR_BYTES];

    /* The token's owner. */
    uint32_t nlinks;
    int parent; /* link, or -1 at rank 0 */
    tutti__link_t *link;
    int remote; /* some links are sockets: poll them while busy */
    uint32_t polls;
    uint32_t subtree; /* ranks that announce through me, myself included */
    tutti__tensor_t *tensors[TUTTI__TENSOR_BUCKETS];
    tutti__tensor_t *ready_first, *ready_last; /* rank 0: agreed by all, not yet in a bucket */
    uint32_t next_bucket;                      /* rank 0: number of the next */
    tutti__bucket_t *filling;                  /* the bucket whose messages are coming in */
    uint32_t in_flight;                        /* buckets in all lanes */
    tutti__lane_t lane[TUTTI__LANES];
    tutti__cache_t cache;
    uint64_t stall_ns; /* when stalls were last reported */
    int dead_seen;     /* the state has been cleared after a death */

    /* Set up once. */
    unsigned generation; /* see base/forked.h */
    int spin;            /* enough processors to spin at all */
    int epfd;            /* the bell and the side channel */
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

/* requests.c; the names are under queue_lock, which these take themselves */
tutti_status_t tutti__request_new(tutti__engine_t *e, const char *name,
                                  tutti_request_t **ret_request);
void tutti__request_free(tutti_request_t *request);
/* Add to queue and names; INVALID_ARGUMENT if the name is pending. */
tutti_status_t tutti__request_push(tutti__engine_t *e, tutti_request_t *request);
tutti_request_t *tutti__request_find(tutti__engine_t *e, const char *name, size_t name_bytes);
/* End a request. text: NULL or copied. The request may be freed by its waiter at once. */
void tutti__request_finish(tutti__engine_t *e, tutti_request_t *request, tutti_status_t status,
                           const char *text);
/* Wake sleeping waiters, to look or to work. */
void tutti__request_wake(tutti__engine_t *e);
/* End all pending requests for which `pick` (NULL: all) says yes, and forget the queue: the others
   must have left it. */
void tutti__request_finish_all(tutti__engine_t *e, int (*pick)(const tutti_request_t *),
                               tutti_status_t status, const char *text);

/* links.c */
tutti_status_t tutti__links_open(tutti__engine_t *e);
void tutti__links_close(tutti__engine_t *e);
/* Read what a local neighbour has written so far. 1 if anything was there. */
int tutti__link_read(tutti__engine_t *e, uint32_t link);
/* Queue a message of a head and two optional tails; published by flush. */
void tutti__link_send(tutti__engine_t *e, uint32_t link, uint32_t kind, const void *head,
                      size_t head_bytes, const void *a, size_t a_bytes, const void *b,
                      size_t b_bytes);
void tutti__links_flush(tutti__engine_t *e);
/* Read all that is there; 1 if anything was. side: look at the sockets, too. */
int tutti__links_poll(tutti__engine_t *e, int side);

/* agree.c */
void tutti__agree_submit(tutti__engine_t *e, tutti_request_t *request);
void tutti__agree_announce(tutti__engine_t *e, int link, const void *body, size_t bytes);
void tutti__agree_bucket(tutti__engine_t *e, const void *body, size_t bytes);
void tutti__agree_reject(tutti__engine_t *e, const void *body, size_t bytes);
/* Say in words whom a request waits for that is not agreed; 1 if this rank knows it exactly. */
int tutti__agree_missing(tutti__engine_t *e, const tutti_request_t *request, char *text,
                         size_t bytes);
/* Rank 0: put what is ready into buckets; 1 if it did anything. */
int tutti__agree_plan(tutti__engine_t *e);
/* Forget everything that is not in a lane. */
void tutti__agree_clear(tutti__engine_t *e);

/* lanes.c */
void tutti__lanes_open(tutti__engine_t *e);
void tutti__lanes_close(tutti__engine_t *e);
void tutti__lanes_add(tutti__engine_t *e, tutti__bucket_t *bucket);
/* Go on in all lanes; 1 if anything moved. *ret_left: a brief step left work to do. */
int tutti__lanes_step(tutti__engine_t *e, tutti__who_t who, int *ret_left);
/* The rank that a request in flight waits for, or -1. */
int32_t tutti__lanes_stuck(const tutti__engine_t *e, const tutti_request_t *request);
/* Give up everything in flight. */
void tutti__lanes_clear(tutti__engine_t *e, tutti__who_t who);

/* watch.c */
void tutti__watch_dead(tutti__engine_t *e, tutti_status_t status, const char *text);
void tutti__watch_message(tutti__engine_t *e, uint32_t link, const void *body, size_t bytes);
void tutti__watch_lost(tutti__engine_t *e, int link, uint32_t rank);
void tutti__watch_bye(tutti__engine_t *e, int link, uint32_t rank);
/* After a goodbye: end what is not agreed, the queue too. */
void tutti__watch_refuse(tutti__engine_t *e);
void tutti__watch_stalls(tutti__engine_t *e);

/* While something in flight moves only by polling (MPI): the sleep between two looks. */
#define TUTTI__POLL_SLEEP_US 50
/* A sleeper looks after deadlines and stalls at least so often. */
#define TUTTI__TICK_MS 500

/* token.c */
int tutti__token_take(tutti__engine_t *e);
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

/* thread.c */
tutti_status_t tutti__thread_start(tutti__engine_t *e);
void tutti__thread_stop(tutti__engine_t *e);

/* A message between neighbours for the handler of its kind; also called for oneself. */
void tutti__engine_message(tutti__engine_t *e, int link, uint32_t kind, const void *body,
                           size_t bytes);

#endif
