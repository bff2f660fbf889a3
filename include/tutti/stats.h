/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics: what a communicator has done on this rank.
 *
 * The counters begin at 0 when the communicator is made, and only grow. They are this rank's own
 * view: no call here sends a message to another rank. Reading the counters never waits for a call
 * that is in progress, so any thread may read them at any time, also in a callback or while another
 * thread is in a direct call. Calls that end during the read may be in only some of their counters.
 *
 * Counting costs some nanoseconds a call and is always on. Measuring times is off by default,
 * because a direct call of 8 bytes then takes 1.5 times as long. TUTTI_STATS, TUTTI_STATS_FILE and
 * TUTTI_STATS_PORT switch it on. The field `times` reports whether times are measured. If not, the
 * fields marked "[times]" are 0.
 */
#ifndef TUTTI_STATS_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in the right order */
#else
#define TUTTI_STATS_H

/* Entries for kinds of calls; some are spare, for later kinds. */
#define TUTTI_STATS_CALLS 32

/* Buckets of a histogram. */
#define TUTTI_STATS_BUCKETS 48

/* Calls of one kind. */
typedef struct {
    uint64_t operations;
    uint64_t bytes; /* see tutti_stats_t */
} tutti_stats_count_t;

/* Values by powers of two. buckets[i] counts values above 2^(i-1), up to 2^i. The first bucket also
   counts 0 and 1; the last bucket also counts all larger values. */
typedef struct {
    uint64_t count; /* number of values */
    uint64_t sum;   /* of all values */
    uint64_t buckets[TUTTI_STATS_BUCKETS];
} tutti_stats_histogram_t;

/*
 * The counters of a communicator. Initialise with TUTTI_STATS_INIT. Later versions add fields at
 * the end; `size` tells the library which fields exist.
 *
 * An operation counts when it has ended without an error. Its bytes are the size of the call's
 * larger buffer: `count` elements for allreduce, reduce, broadcast, scans and messages;
 * size * count elements for reduce_scatter, allgather, gather, scatter and alltoall; 0 for a
 * barrier. For calls with parts of different lengths (gatherv, ...), the bytes are those of the sum
 * of recvcounts, or of sendcounts if the call has no recvcounts. In gatherv and scatterv a rank
 * that is not the root counts its own part.
 *
 * Exposed and hidden communication
 *   exposed_ns    time in which at least one thread of the program was inside a direct call, or
 *                 waited for a request (tutti_wait, similar calls, and tutti_join). A wait for
 *                 requests that are already done adds nothing. A tutti_wait_any on requests of
 *                 several communicators counts in none of these communicators
 *   in_flight_ns  time in which at least one bucket was in flight: from the ranks' agreement on the
 *                 bucket (calls without a name: from their submission) until its requests are done
 *   hidden_ns     the part of in_flight_ns in which no thread of the program was inside a direct
 *                 call or waited, as above. So the program computed, or did other work, while the
 *                 library communicated
 */
typedef struct {
    size_t size;       /* sizeof(tutti_stats_t) */
    uint64_t age_ns;   /* since the communicator was made */
    uint64_t times;    /* 1: times are measured */
    uint64_t nparts;   /* the number of parts: see tutti_comm_get_stats_part */
    uint64_t requests; /* asynchronous calls that were submitted, and starts of persistent ones */
    uint64_t failed;   /* requests that have ended with an error */
    uint64_t ordered;  /* collectives without a name that ran in their order, without agreement */
    /* Buckets that have ended. A bucket is a set of tensors that the ranks agreed on and that one
       collective served. bucket_tensors and bucket_bytes count this rank's own tensors only. */
    uint64_t buckets;
    uint64_t bucket_tensors;
    uint64_t bucket_bytes;
    /* Messages of the agreement that this rank has sent to its neighbours in the tree of ranks. */
    uint64_t announcements_sent;
    uint64_t bucket_messages_sent; /* each names one tensor of a bucket */
    uint64_t other_messages_sent;  /* rejections, joins */
    /* Learned plans (async.h): how often the first bucket of a plan was started; how many buckets
       of plans were served without agreement; how many plans have ended. */
    uint64_t plan_steps;
    uint64_t plan_hits;
    uint64_t plan_breaks;
    /* [times] See above. */
    uint64_t exposed_ns;
    uint64_t in_flight_ns;
    uint64_t hidden_ns;
    /* By kind of call: indices are tutti_call_kind_t. */
    tutti_stats_count_t direct[TUTTI_STATS_CALLS];
    tutti_stats_count_t async[TUTTI_STATS_CALLS]; /* requests */
    /* Nanoseconds. */
    tutti_stats_histogram_t direct_ns; /* [times] of direct calls, also of those that failed */
    tutti_stats_histogram_t async_ns;  /* of requests, from submission or start to their end */
    /* Bytes of operations. */
    tutti_stats_histogram_t direct_bytes;
    tutti_stats_histogram_t async_bytes;
    /* How many of the buckets in plan_hits had several tensors and were reduced in place, without
       packing: see the plans in async.h. */
    uint64_t plan_in_place;
} tutti_stats_t;

#define TUTTI_STATS_INIT                                                                           \
    {                                                                                              \
        sizeof(tutti_stats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { { 0, 0 } }, \
            { { 0, 0 } }, { 0, 0, { 0 } }, { 0, 0, { 0 } }, { 0, 0, { 0 } }, { 0, 0, { 0 } }, 0    \
    }

/* The operations of one kind of call that one algorithm served over one transport. Initialise with
   TUTTI_STATS_PART_INIT. Later versions add fields at the end. */
typedef struct {
    size_t size; /* sizeof(tutti_stats_part_t) */
    tutti_call_kind_t call;
    int is_async; /* 1: operations are buckets, and calls without a name */
    uint64_t operations;
    uint64_t bytes;
    uint64_t ns;        /* [times] of direct calls: their whole time. Of buckets: the time from
                           their start to their end; in device memory, only until their work is
                           queued on the device */
    char algorithm[40]; /* as in TUTTI_ALGORITHM, such as "ring"; or "message": a direct
                           message; "ride": a small call between hosts, whose data travelled with
                           the comparison of the ranks' arguments; "none": no elements */
    char transport[16]; /* "mpi" or "ucx", if messages went to other hosts that way; otherwise
                           "nccl" on device memory and "shm" in host memory; "none": one rank */
} tutti_stats_part_t;

#define TUTTI_STATS_PART_INIT                                                                      \
    {                                                                                              \
        sizeof(tutti_stats_part_t), (tutti_call_kind_t)0, 0, 0, 0, 0, "", ""                       \
    }

/*
 * Read the counters of a communicator on this rank.
 *
 * stats  stats->size is set before the call: TUTTI_STATS_INIT. All other fields are set
 *
 * Local; any thread; does not wait for calls in progress. The counters of a communicator do not
 * include the calls of its groups.
 * TUTTI_ERR_ABI: stats->size is wrong. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_comm_get_stats(const tutti_comm_t *comm, tutti_stats_t *stats);

/*
 * Read one part of the operations of a communicator, by kind of call, algorithm and transport.
 *
 * index  from 0 to stats.nparts - 1; a part keeps its index
 * part   part->size is set before the call: TUTTI_STATS_PART_INIT
 *
 * Local; any thread; does not wait for calls in progress.
 * TUTTI_ERR_INVALID_ARGUMENT: there is no such part. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_comm_get_stats_part(const tutti_comm_t *comm, size_t index,
                                                   tutti_stats_part_t *part);

#endif
#endif
