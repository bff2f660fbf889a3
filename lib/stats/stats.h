/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The counters of one communicator.
 *
 * Each counter has one writer at a time. The thread of a direct call counts this call, and a
 * communicator has one direct call at a time. The owner of the engine's token counts requests,
 * buckets and messages. Submissions are counted under the lock of the engine's queue. So counters
 * are relaxed atomics without locked instructions. Any thread may read them. A lock protects only
 * the times that several threads share (phase.c), and is taken only if times are measured.
 *
 * Operations are counted by class: the kind of call, direct or asynchronous, the algorithm and the
 * transport. A class has an entry for each power of two of bytes. A call that repeats the previous
 * call (call/cached.h) uses the same entry, so counting such a call takes two additions.
 *
 * Without statistics (NULL), all functions do nothing, except tutti__stats_direct_begin and
 * tutti__stats_direct_end, which do not accept NULL.
 */
#ifndef TUTTI__STATS_STATS_H
#define TUTTI__STATS_STATS_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/lock.h"

#include <tutti/tutti.h>

typedef struct tutti__stats tutti__stats_t;
typedef struct tutti__stats_class tutti__stats_class_t;

typedef struct {
    tutti__word64_t operations, bytes, ns;
} tutti__stats_entry_t;

/* A histogram by powers of two: see tutti_stats_histogram_t. */
typedef struct {
    tutti__word64_t sum, buckets[TUTTI_STATS_BUCKETS];
} tutti__stats_histogram_t;

/* Properties of an operation. Its texts stay valid and unchanged until the communicator ends. */
typedef struct {
    tutti_call_kind_t kind;
    int is_async;
    const char *algorithm, *transport;
} tutti__stats_what_t;

struct tutti__stats_class {
    tutti__stats_class_t *_Atomic next; /* release by the writer; acquire by readers */
    tutti_call_kind_t kind;
    int is_async;
    const char *source[2]; /* the texts that made the class; only the writer reads them */
    char algorithm[40], transport[16];
    tutti__stats_entry_t entries[TUTTI_STATS_BUCKETS];
};

/* The times of phases; see phase.c. */
typedef struct {
    tutti__mutex_t lock;
    uint64_t since_ns; /* the last change; under the lock, like all fields here */
    uint32_t waiting;  /* threads of the program that are in a direct call, or wait */
    int in_flight;     /* there is a bucket in flight */
    uint64_t exposed_ns, in_flight_ns, hidden_ns;
} tutti__stats_phases_t;

/* The settings of a communicator's statistics, and its names in the output. */
typedef struct {
    uint32_t rank, size, local_rank;
    const char *name; /* "world"; copied */
    int prints;       /* print the table when the communicator ends */
    int is_timed;     /* measure times */
    const char *file; /* TUTTI_STATS_FILE; "": none; copied */
    int port;         /* TUTTI_STATS_PORT; -1: none */
} tutti__stats_want_t;

struct tutti__stats {
    int is_timed; /* set once */
    uint64_t opened_ns;
    /* The list of all classes. The classes of direct and of asynchronous calls have one writer
       each. */
    tutti__stats_class_t *_Atomic first;
    tutti__stats_class_t spare[2]; /* [is_async] used in place of all classes that could not be
                                      made for lack of memory */
    tutti__stats_histogram_t direct_ns, async_ns;
    tutti__word64_t requests, failed, ordered;
    tutti__stats_entry_t async[TUTTI_STATS_CALLS]; /* [kind] requests; ns is unused */
    tutti__stats_histogram_t async_bytes;
    tutti__word64_t buckets, bucket_tensors, bucket_bytes;
    tutti__word64_t announcements, bucket_messages, other_messages;
    tutti__word64_t plan_steps, plan_hits, plan_breaks, plan_in_place;
    tutti__stats_phases_t phases;

    /* For output.c. */
    uint32_t rank, size;
    char name[80];
    int prints;
    unsigned id;          /* communicators of the process are numbered from 1 */
    int is_listed;        /* in the list of the process */
    int has_ended;        /* its communicator was freed */
    tutti__stats_t *next; /* next in the list of the process */
};

/* Make the counters of a communicator. Returns NULL without memory: nothing is counted. The process
   has one file and one port, which the first communicator with one of the two settings opens. */
tutti__stats_t *tutti__stats_open(const tutti__stats_want_t *want);
/* Called after the end of a communicator, when no thread counts any more. Print the table, and if
   no other communicator exists, write the file for the last time. */
void tutti__stats_close(tutti__stats_t *stats);

/* ---- counting ---- */

/* tutti__stats_count is in add.h. */

/* The index of a value's bucket in a histogram. */
unsigned tutti__stats_bucket(uint64_t value);
void tutti__stats_put(tutti__stats_histogram_t *histogram, uint64_t value);

/* The entry of an operation, for tutti__stats_count; NULL if stats is NULL. For the entry's writer
   only. */
tutti__stats_entry_t *tutti__stats_find(tutti__stats_t *stats, const tutti__stats_what_t *what,
                                        uint64_t bytes);

/* The time now, if times are measured; otherwise 0. */
uint64_t tutti__stats_now(const tutti__stats_t *stats);

/* Called when a direct call begins and ends, but only if stats is not NULL and times are measured
   (is_timed). entry: the call's entry; NULL: the call has failed, and only its time is counted. */
uint64_t tutti__stats_direct_begin(tutti__stats_t *stats);
void tutti__stats_direct_end(tutti__stats_t *stats, tutti__stats_entry_t *entry, uint64_t since_ns);

/* Called when a thread of the program begins, and stops, to wait for requests. Any thread. */
void tutti__stats_wait_begin(tutti__stats_t *stats);
void tutti__stats_wait_end(tutti__stats_t *stats);

/* Count submitted requests. The caller holds the lock of the engine's queue. */
void tutti__stats_submit(tutti__stats_t *stats, uint64_t nrequests);

/*
 * Called by the owner of the token:
 *
 *   _request       a request has ended after ns nanoseconds
 *   _bucket_end    a bucket has ended. since_ns: from tutti__stats_now, when its operation began
 *   _ordered_end   a call without a name has ended
 *   _in_flight     is_any 1: there are buckets in flight
 *   all others     a message of the agreement was sent
 */
void tutti__stats_request(tutti__stats_t *stats, tutti_call_kind_t kind, uint64_t bytes,
                          uint64_t ns, tutti_status_t status);
void tutti__stats_bucket_end(tutti__stats_t *stats, const tutti__stats_what_t *what,
                             uint64_t ntensors, uint64_t bytes, uint64_t since_ns);
void tutti__stats_ordered_end(tutti__stats_t *stats, const tutti__stats_what_t *what,
                              uint64_t bytes, uint64_t since_ns);
void tutti__stats_in_flight(tutti__stats_t *stats, int is_any);
void tutti__stats_announcement(tutti__stats_t *stats);
void tutti__stats_bucket_message(tutti__stats_t *stats);
void tutti__stats_other_message(tutti__stats_t *stats);

/* Called by the owner of the token. _step: a step of a learned plan has begun; _hit: a bucket of
   the plan was served; _break: a plan was stopped. */
void tutti__stats_plan_step(tutti__stats_t *stats);
/* is_in_place 1: a bucket of several tensors, which were not packed. */
void tutti__stats_plan_hit(tutti__stats_t *stats, int is_in_place);
void tutti__stats_plan_break(tutti__stats_t *stats);

/* ---- reading: any thread ---- */

/* Set all fields except `size`. */
void tutti__stats_read(tutti__stats_t *stats, tutti_stats_t *ret_stats);
/* Set all fields except `size`. Returns 0 if there is no such part. */
int tutti__stats_part(tutti__stats_t *stats, size_t index, tutti_stats_part_t *ret_part);

#endif
