/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker: proves that the schedules of all ranks together keep the collective's promise.
 *
 * The schedules of all ranks are a Kahn process network: neither their result nor a deadlock
 * depends on timing. So ONE symbolic run proves the schedules for every timing, but only for its
 * numbers of ranks, credits (slots per channel) and trips, and for its shape. A symbolic value has
 * two parts. The first is a sum of random 64-bit labels, one for each contribution: it shows that
 * each contribution is there exactly once (a wrong sum passes with probability 2^-64). The second
 * is a hash of the expression tree over ranks: it shows that all ranks have the same association,
 * hence the same bits. A copy must not finish a sum: see sched.h. Vector clocks detect two streams
 * of a rank that access the same chunk of a block without an order. In the checker only WAIT orders
 * streams: a message does not, because a real call skips it if it is empty. The checker also proves
 * that calls are compared before recvbuf changes (tutti__compared_t).
 */
#ifndef TUTTI__SCHED_CHECK_H
#define TUTTI__SCHED_CHECK_H

#include "sched/sched.h"

/* The promise: the state at the end. */
typedef enum {
    TUTTI__EXPECT_ALLREDUCE, /* every OUT block: each rank's IN block exactly once, finished once,
                                with the same association on all ranks */
    TUTTI__EXPECT_BROADCAST, /* every OUT block: the initial OUT block of root; IN is OUT */
    TUTTI__EXPECT_ALLGATHER, /* OUT block r: rank r's IN block r */
    TUTTI__EXPECT_BARRIER,   /* every rank's end depends on every rank's begin; the content of
                                SCRATCH does not matter */
    TUTTI__EXPECT_REDUCE,    /* root: as ALLREDUCE; OUT of other ranks is not touched */
    TUTTI__EXPECT_REDUCE_SCATTER, /* OUT block r of rank r: as ALLREDUCE; rank r's OUT has no other
                                     block. In place: OUT block r is rank r's IN block r */
    TUTTI__EXPECT_GATHER,   /* root: as ALLGATHER; OUT of other ranks is not touched. Rank r's IN
                               has block r only */
    TUTTI__EXPECT_SCATTER,  /* OUT block r of rank r: root's IN block r. Only root has IN. Rank r's
                               OUT has no other block. In place: root's OUT block is its IN block */
    TUTTI__EXPECT_ALLTOALL, /* OUT block s of rank r: the initial IN block r of rank s */
    TUTTI__EXPECT_SCAN,     /* every OUT block of rank r: IN of ranks 0 to r, each exactly once,
                                finished */
    TUTTI__EXPECT_EXSCAN    /* the same for ranks 0 to r - 1; OUT of rank 0 is not touched */
} tutti__expect_t;

/* How the ranks find out that their calls differ. If calls differ, no rank's recvbuf may change. */
typedef enum {
    TUTTI__COMPARED_BEFORE, /* before the run: there is nothing to prove */
    /* By a meeting of all ranks, on one host. If the schedules have messages, the ranks meet before
       the run. So either all ranks' schedules have messages, or none has. Without messages, the
       ranks meet at the begin of each node operation, and a rank writes to OUT only in node
       operations and after them. The executor skips a node operation whose blocks are empty. So
       before a COPY or REDUCE writes to a block of OUT, the rank must have met the others in a node
       operation on a block of the same length. */
    TUTTI__COMPARED_ON_HOST,
    /* By frames, which are messages with the identity of the sender's call (exec/framed.c): recvbuf
       is written after the run. The end of each rank must depend on the begin of every rank. A
       frame is one block, and operations only send and receive it. */
    TUTTI__COMPARED_IN_FRAMES
} tutti__compared_t;

typedef struct {
    tutti__expect_t expect;
    tutti__compared_t compared;
    uint32_t size;
    tutti__sched_t *const *scheds; /* [size] */
    const uint32_t *host_of;       /* [size], for node operations; NULL: no node operations */
    const uint32_t *local_of;      /* [size] */
    uint32_t nhosts;
    uint32_t root;  /* BROADCAST, REDUCE, GATHER, SCATTER */
    int ordered;    /* reductions: operands must be in the order of ranks, for operations that do
                      not commute */
    int fixed;      /* reductions: a rank's result must have one association in all blocks and
                      chunks. REDUCE_SCATTER: all results must have the same association */
    unsigned sizes; /* bits 1 << tutti__sizes_t: allowed `sizes` of the schedules; 0: any */
    int in_place;
    int wire; /* only for reductions: float32 is sent to other hosts in a narrower type
                 (exec/wire.c), and values that are rounded differently count as different */
    /* Slots per channel. With 0, a SEND only starts: its message stays in the sender's blocks until
       the receiver has reached the receiving operation. An operation that overwrites these blocks,
       and the next SEND of the channel, wait until then. */
    uint32_t credits;
    uint32_t trips; /* T, >= 1 */
} tutti__check_t;

/*
 * Check that the schedules keep the promise. TUTTI_ERR_INTERNAL: they do not, and `why` has the
 * error with rank, stream, operation, block and trip. If the schedules have stage_trips, STAGE has
 * this number of chunks, used in turn. If the schedules use STAGE and stage_trips is 0, the check
 * makes two runs: with STAGE as separate memory, and as OUT. The only other error is
 * TUTTI_ERR_NO_MEMORY. Pure; any thread may call.
 */
tutti_status_t tutti__sched_check(const tutti__check_t *check, char *why, size_t why_bytes);

/*
 * Check the rules that a single rank's schedule can break: loops, bounds, flags, channel ends,
 * marks. Returns 1 if the schedule keeps all rules, otherwise 0 and `why`. Called by
 * tutti__build_end and tutti__sched_check.
 */
int tutti__sched_is_valid(const tutti__sched_t *sched, char *why, size_t why_bytes);

#endif
