/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flight recorder of a communicator: its last events, and the pending work.
 *
 *      rings    the last events, each 32 bytes: a ring for the owner of the engine's token, and a
 *               ring for all other threads
 *      tensors  one entry per name of a tensor. A name has at most one pending request, whose
 *               state is in the entry
 *      lanes    the bucket in flight in each lane, and the rank or device that the bucket waits for
 *      direct   the direct call that waits, if it has waited for longer than a spin
 *      waits    threads that sleep in tutti_wait
 *
 * The recorder is always on, so an event may cost only some nanoseconds: an event is a few stores,
 * and the caller passes a time that the caller has read anyway. All words are atomic, so the dump
 * (dump.c) reads them at any time, also in a signal handler. If an event is being written, the dump
 * detects this from the sequence number, and skips the event.
 *
 * Tried: one ring, with an atomic addition for each event: 17 ns more for a call. Tried: an event
 * with a clock reading when a bucket starts: 23 ns more. So a bucket gets an event only after it
 * has waited for some 10 us. Tried: an event for a submission. While the tensor is pending, its
 * entry has the same data.
 */
#ifndef TUTTI__RECORD_RECORD_H
#define TUTTI__RECORD_RECORD_H

#include "base/compiler.h"
#include "base/status.h"
#include "base/time.h"
#include "conf/conf.h"
#include "record/trace.h"

#include <stdatomic.h>
#include <stdint.h>

/* Numbers of entries; powers of two. A tensor's hash selects a set, which has WAYS entries. */
#define TUTTI__RECORD_EVENTS 2048u
#define TUTTI__RECORD_SETS 1024u
#define TUTTI__RECORD_WAYS 4u
#define TUTTI__RECORD_TENSORS (TUTTI__RECORD_SETS * TUTTI__RECORD_WAYS)
#define TUTTI__RECORD_LANES 8u
#define TUTTI__RECORD_WAITS 8u
#define TUTTI__RECORD_TEXT 512
/* The number of polls without progress after which a bucket's wait is recorded as an event: some 10
   us. */
#define TUTTI__RECORD_SLOW_POLLS 200u
/* Longer names are cut. */
#define TUTTI__RECORD_NAME_WORDS 8u
#define TUTTI__RECORD_NAME (8 * TUTTI__RECORD_NAME_WORDS)
/* In place of a bucket's number or a rank: there is none. */
#define TUTTI__RECORD_NONE UINT32_MAX

/* The kinds of events; dump.c has their names. */
typedef enum {
    TUTTI__EVENT_NONE,
    TUTTI__EVENT_SLOW, /* a bucket in flight has waited for some 10 us. value: the awaited rank */
    TUTTI__EVENT_DONE, /* a tensor is done. value: ns since its submission << 8 | its status */
    TUTTI__EVENT_WAIT, /* a thread goes to sleep in tutti_wait */
    TUTTI__EVENT_WAITED,
    TUTTI__EVENT_DIRECT, /* a direct call waits for longer than a spin. value: the awaited rank */
    TUTTI__EVENT_DIRECT_END,
    TUTTI__EVENT_END, /* the communicator has ended. value: the status */
    TUTTI__EVENTS
} tutti__event_kind_t;

typedef enum {
    TUTTI__TENSOR_IDLE, /* not pending: done, or never submitted */
    TUTTI__TENSOR_SUBMITTED,
    TUTTI__TENSOR_AGREED /* in a bucket */
} tutti__tensor_state_t;

typedef struct {
    _Atomic uint64_t head; /* sequence number << 32 | kind << 24 | lane << 16; 0: being written */
    _Atomic uint64_t time_ns;
    _Atomic uint64_t subject; /* bucket << 32 | low 16 bits of the name's hash << 16 | tensor */
    _Atomic uint64_t value;
} tutti__event_t;

/* A ring of events, and the sequence number of the next event. */
typedef struct {
    _Atomic uint32_t next;
    tutti__event_t event[TUTTI__RECORD_EVENTS];
} tutti__ring_t;

/* The writers of a ring. */
enum {
    TUTTI__RING_OWNER, /* the owner of the engine's token */
    TUTTI__RING_ANY,
    TUTTI__RINGS
};

typedef struct {
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES)
    _Atomic uint64_t hash;     /* of the name; 0: the entry is free, or its name is being written */
    _Atomic uint64_t since_ns; /* when the tensor was last submitted */
    _Atomic uint64_t count;
    _Atomic uint32_t call; /* state << 24 | kind << 16 | dtype << 8 | lane */
    _Atomic uint32_t op;
    _Atomic uint32_t bucket;
    _Atomic uint64_t name[TUTTI__RECORD_NAME_WORDS];
    _Atomic uint32_t traced; /* number of the trace that has this name */
} tutti__record_tensor_t;

/* The bucket in flight in a lane. */
typedef struct {
    _Atomic uint64_t
        since_ns; /* when the bucket was first found waiting; 0: not yet, or no bucket runs */
    _Atomic uint32_t ntensors; /* 0: no bucket runs */
    _Atomic uint32_t bucket, tensor;
    _Atomic uint32_t polls;      /* polls without progress; only the owner of the token writes */
    _Atomic uint64_t began_ns;   /* while a trace is on: when the bucket began to run */
    _Atomic uint32_t peer;       /* the rank that the bucket waits for, or NONE */
    _Atomic(const char *) doing; /* present operation of the schedule, or other work; static */
    _Atomic uint32_t step, of;   /* of the schedule */
    /* The fields of tutti__record_arrived_t at the last check of a stall or a deadline. */
    _Atomic uint64_t bytes;
    _Atomic uint32_t complete, messages, is_recv; /* messages 0: not known */
} tutti__record_lane_t;

/* The messages of a bucket from or to the rank that the bucket waits for. */
typedef struct {
    int is_recv;                 /* 1: messages from the rank; 0: messages to the rank */
    uint64_t complete, messages; /* how many are complete; how many the whole bucket has */
    uint64_t bytes;              /* size of the next message */
} tutti__record_arrived_t;

typedef struct {
    _Atomic uint64_t since_ns; /* 0: no direct call waits */
    _Atomic uint64_t count;
    _Atomic uint32_t call; /* kind << 8 | dtype; kind 0: only the tag is known */
    _Atomic uint32_t op, tag, peer;
} tutti__record_direct_t;

typedef struct {
    _Atomic uint64_t since_ns; /* 0: free; 1: being written */
    _Atomic uint32_t tensor;
} tutti__record_wait_t;

typedef struct {
    tutti__ring_t ring[TUTTI__RINGS];
    tutti__record_tensor_t tensor[TUTTI__RECORD_TENSORS];
    tutti__record_lane_t lane[TUTTI__RECORD_LANES];
    tutti__record_direct_t direct;
    tutti__record_wait_t wait[TUTTI__RECORD_WAITS];
    atomic_int has_hinted;       /* a warning about TUTTI_DUMP was logged */
    atomic_int dump_error;       /* errno of the dump in tutti__record_end; 0: none */
    atomic_int has_stalled;      /* a stall was dumped since the last tutti__record_wants_others */
    _Atomic uint64_t stalled_ns; /* time of the last dump for a stall */
    _Atomic uint32_t lost;   /* submissions without an entry: all entries of the set were pending */
    _Atomic uint32_t status; /* why the communicator has ended; set after `text` is complete */
    char text[TUTTI__RECORD_TEXT];

    /* Set before the recorder can be found. */
    uint32_t rank, size, world_rank, first; /* first: the world rank of rank 0 */
    uint32_t number;                        /* how many recorders the process has opened before */
    uint64_t id;                            /* of the communicator; equal on all its ranks */
    int is_world, is_leader;
    _Atomic int64_t offset_ns; /* added to this host's time, gives the time of rank 0's host; set
                                  later, when api/comm.c has compared the clocks */
    int32_t pid;
    char host[64];
    char dump_path[TUTTI__CONF_PATH]; /* TUTTI_DUMP, or "" */
} tutti__record_t;

/* Properties of the recorder's communicator. */
typedef struct {
    uint32_t rank, size, world_rank, first;
    uint64_t id;
    int is_world;
    const char *host;
    const char *dump_path; /* TUTTI_DUMP */
    int is_leader;         /* 1: this is the lowest rank of its host, which warns for the host, and
                              removes an older file of a trace */
} tutti__record_facts_t;

/* The first recorder of a host's lowest rank warns if dumps cannot be written. */
tutti_status_t tutti__record_open(const tutti__record_facts_t *facts, tutti__record_t **ret_record);
/* NULL is allowed. Waits until no other thread writes a dump. */
void tutti__record_close(tutti__record_t *record);

/* The communicator has ended: keep the reason, and write the dump that TUTTI_DUMP asks for. Called
   once, by any thread, before other threads see the end. */
void tutti__record_end(tutti__record_t *record, tutti_status_t status, const char *text);
/* Called after tutti__record_end, without a lock: log how to find the cause, or why there is no
   dump. */
void tutti__record_advise(tutti__record_t *record, tutti_status_t status);
/* A stall was reported: write the dump, if TUTTI_DUMP is set. Any thread. */
void tutti__record_stall(tutti__record_t *record);
/* Has this rank dumped a stall since the last call of this function? If so, all ranks should write
   dumps. Any thread. */
int tutti__record_wants_others(tutti__record_t *record);
/* Another rank has had a stall: write the dump, and return 1. Returns 0 if TUTTI_DUMP is not set,
   or if this rank has just written a dump and so has told its neighbours already. Any thread. */
int tutti__record_wish(tutti__record_t *record);

/* As tutti_dump. Safe in a signal handler. path may be NULL, as in tutti_dump. */
tutti_status_t tutti__record_dump(const char *path);

/* ---- events ---- */

static inline void tutti__record_event(tutti__record_t *record, unsigned which,
                                       tutti__event_kind_t kind, uint64_t time_ns, uint32_t tensor,
                                       uint32_t bucket, uint32_t lane, uint64_t value)
{
    tutti__ring_t *ring = &record->ring[which];
    tutti__event_t *event;
    uint64_t hash = 0;
    uint32_t n;

    if (which == TUTTI__RING_ANY) {
        n = atomic_fetch_add_explicit(&ring->next, 1, memory_order_relaxed);
    } else {
        n = atomic_load_explicit(&ring->next, memory_order_relaxed);
        atomic_store_explicit(&ring->next, n + 1, memory_order_relaxed);
    }
    if (tensor != 0)
        hash = atomic_load_explicit(&record->tensor[tensor - 1].hash, memory_order_relaxed);
    event = &ring->event[n % TUTTI__RECORD_EVENTS];
    atomic_store_explicit(&event->head, 0, memory_order_relaxed);
    /* Pairs with the fence in dump.c: if a reader finds a word stored below, it also finds the
       changed head. */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&event->time_ns, time_ns, memory_order_relaxed);
    atomic_store_explicit(&event->subject, (uint64_t)bucket << 32 | (hash & 0xffff) << 16 | tensor,
                          memory_order_relaxed);
    atomic_store_explicit(&event->value, value, memory_order_relaxed);
    atomic_store_explicit(&event->head, (uint64_t)n << 32 | (uint32_t)kind << 24 | lane << 16 | 1,
                          memory_order_release);
}

/* ---- the trace; see trace.h ---- */

/* As tutti_trace_start. */
tutti_status_t tutti__record_trace_start(const char *path);

/* Add an entry about this communicator. If the trace lacks the tensor's name, add the name also. */
void tutti__record_trace(tutti__record_t *record, tutti__traced_t traced);
/* Add an entry when a tensor is put into a bucket, and when it is done. Not inline, so that the
   callers stay short. */
void tutti__record_trace_agreed(tutti__record_t *record, uint32_t number, uint32_t bucket,
                                uint32_t lane);
void tutti__record_trace_done(tutti__record_t *record, uint32_t number, uint64_t now_ns,
                              tutti_status_t status);

/* ---- tensors: their numbers are 1 to TUTTI__RECORD_TENSORS; 0: the tensor has no entry ---- */

typedef struct {
    const char *name;
    uint64_t hash, since_ns, count, bytes;
    uint32_t op;
    uint32_t before; /* the number that the previous submission of the name got; 0: not known */
    uint8_t kind, dtype;
} tutti__submitted_t;

/* A tensor was submitted; returns its number. For each recorder, one thread at a time may call
   this. */
uint32_t tutti__record_submit(tutti__record_t *record, const tutti__submitted_t *submitted);

static inline void tutti__record_set_state(tutti__record_tensor_t *tensor, uint32_t state,
                                           uint32_t lane)
{
    uint32_t call = atomic_load_explicit(&tensor->call, memory_order_relaxed) & 0x00ffff00u;

    atomic_store_explicit(&tensor->call, state << 24 | call | lane, memory_order_relaxed);
}

/* A tensor's bucket was appended to a lane. */
static inline void tutti__record_agreed(tutti__record_t *record, uint32_t number, uint32_t bucket,
                                        uint32_t lane)
{
    if (number == 0)
        return;
    atomic_store_explicit(&record->tensor[number - 1].bucket, bucket, memory_order_relaxed);
    tutti__record_set_state(&record->tensor[number - 1], TUTTI__TENSOR_AGREED, lane);
    if (TUTTI__UNLIKELY(tutti__trace_on()))
        tutti__record_trace_agreed(record, number, bucket, lane);
}

/* The tensor's bucket was given up, or has only exchanged the tensor's counts. In both cases the
   ranks agree on the tensor again. */
static inline void tutti__record_returned(tutti__record_t *record, uint32_t number)
{
    if (number != 0)
        tutti__record_set_state(&record->tensor[number - 1], TUTTI__TENSOR_SUBMITTED, 0);
}

/* A tensor is done. For the owner of the token. */
static inline void tutti__record_done(tutti__record_t *record, uint32_t number, uint64_t since_ns,
                                      uint64_t now_ns, tutti_status_t status)
{
    tutti__record_tensor_t *tensor;

    tutti__record_event(record, TUTTI__RING_OWNER, TUTTI__EVENT_DONE, now_ns, number,
                        TUTTI__RECORD_NONE, 0, (now_ns - since_ns) << 8 | (uint64_t)status);
    if (TUTTI__UNLIKELY(number == 0))
        return;
    if (TUTTI__UNLIKELY(tutti__trace_on()))
        tutti__record_trace_done(record, number, now_ns, status);
    tensor = &record->tensor[number - 1];
    atomic_store_explicit(&tensor->call,
                          atomic_load_explicit(&tensor->call, memory_order_relaxed) & 0x00ffff00u,
                          memory_order_relaxed);
}

/* ---- lanes ---- */

/* A bucket begins to run. If no trace is on, this does not read the clock: a bucket gets a time
   only if it waits for long, see tutti__record_is_slow. */
static inline void tutti__record_start(tutti__record_t *record, uint32_t lane, uint32_t bucket,
                                       uint32_t tensor, uint32_t ntensors)
{
    tutti__record_lane_t *at = &record->lane[lane % TUTTI__RECORD_LANES];

    atomic_store_explicit(&at->polls, 0, memory_order_relaxed);
    atomic_store_explicit(&at->since_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&at->bucket, bucket, memory_order_relaxed);
    atomic_store_explicit(&at->tensor, tensor, memory_order_relaxed);
    atomic_store_explicit(&at->ntensors, ntensors, memory_order_relaxed);
    atomic_store_explicit(&at->began_ns, tutti__trace_begin(), memory_order_relaxed);
}

/* Count a poll of the lane's operation without progress. Returns 1 after many such polls: the
   caller should then record the awaited rank or device with tutti__record_stuck. */
static inline int tutti__record_is_slow(tutti__record_t *record, uint32_t lane)
{
    tutti__record_lane_t *at = &record->lane[lane % TUTTI__RECORD_LANES];
    uint32_t polls = atomic_load_explicit(&at->polls, memory_order_relaxed) + 1;

    atomic_store_explicit(&at->polls, polls, memory_order_relaxed);
    return polls >= TUTTI__RECORD_SLOW_POLLS;
}

/* Record the rank or device that the lane's operation waits for. doing: a static text. The
   operation is at step number `step`. Its schedule has `of` steps. */
void tutti__record_stuck(tutti__record_t *record, uint32_t lane, const char *doing, int32_t peer,
                         uint32_t step, uint32_t of);

/* Record the messages from or to the rank that the lane's operation waits for. arrived NULL: the
   messages are not known. */
void tutti__record_arrived(tutti__record_t *record, uint32_t lane,
                           const tutti__record_arrived_t *arrived);

/* Add a trace entry for the lane's bucket, which began while a trace was on, and has now ended. */
void tutti__record_trace_bucket(tutti__record_t *record, uint32_t lane);

/* The bucket has left the lane. */
static inline void tutti__record_stop(tutti__record_t *record, uint32_t lane)
{
    tutti__record_lane_t *at = &record->lane[lane % TUTTI__RECORD_LANES];

    if (TUTTI__UNLIKELY(atomic_load_explicit(&at->began_ns, memory_order_relaxed) != 0))
        tutti__record_trace_bucket(record, lane);
    atomic_store_explicit(&at->ntensors, 0, memory_order_relaxed);
}

/* ---- waiting callers; off the fast path ---- */

typedef struct {
    uint64_t since_ns, count;
    uint32_t op, tag;
    int32_t peer;
    uint8_t kind, dtype;
} tutti__direct_t;

/* Record that a direct call waits. While the call waits, this function may be called again, to
   update the awaited rank. One thread per recorder. */
void tutti__record_direct(tutti__record_t *record, const tutti__direct_t *direct);
void tutti__record_direct_left(tutti__record_t *record);

/* The direct call has ended. */
static inline void tutti__record_direct_end(tutti__record_t *record)
{
    if (TUTTI__UNLIKELY(atomic_load_explicit(&record->direct.since_ns, memory_order_relaxed) != 0))
        tutti__record_direct_left(record);
}

/* Record that a thread sleeps in tutti_wait. Returns the number to pass to tutti__record_waited, or
   0 if all entries are in use. Any thread. */
uint32_t tutti__record_wait(tutti__record_t *record, uint32_t tensor);
void tutti__record_waited(tutti__record_t *record, uint32_t wait);

#endif
