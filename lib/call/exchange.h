/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The exchange of counts, for calls whose ranks have only their own counts: gatherv, scatterv,
 * alltoallv, and allgatherv without recvcounts.
 *
 *      alltoall    each rank sends each peer the number of elements that it has for this peer, and
 *                  compares the received numbers with the numbers that it expects
 *      allgather   each rank reports the first difference that it has found, so all ranks name the
 *                  same difference
 *
 * With n ranks, a rank receives n words in the alltoall (5 n with heads), and 5 n words in the
 * allgather.
 * Rejected: one allreduce of all counts. Each of 1024 ranks would receive 17 MB for an alltoallv.
 */
#ifndef TUTTI__CALL_EXCHANGE_H
#define TUTTI__CALL_EXCHANGE_H

#include "call/call.h"
#include "call/env.h"

/* Words of a call's head (compare_calls.c), which may precede each number of the alltoall. */
#define TUTTI__EXCHANGE_HEAD 4

/* Zero this structure before its first use. It is reused from call to call. */
typedef struct {
    uint64_t *words;
    size_t capacity;
    uint32_t nhead; /* 0, or TUTTI__EXCHANGE_HEAD */
    int is_verdict; /* 0: the alltoall runs; 1: the allgather runs; -1: no run has begun */
    int knows;      /* this rank has its receive counts */
    int all_know;   /* all ranks have their receive counts; valid at the end */
} tutti__exchange_t;

void tutti__exchange_free(tutti__exchange_t *x);

/* Begin the exchange, in `run`. head: [TUTTI__EXCHANGE_HEAD] or NULL. is_zero: 1 if this rank makes
   a zero contribution, which has no elements and expects none. If recvcounts is NULL, this rank
   does not have its receive counts. *ret_common: see call_inside.h. */
tutti_status_t tutti__exchange_start(tutti__exchange_t *x, const tutti__call_env_t *env,
                                     tutti__run_t *run, const tutti__call_t *call,
                                     const uint64_t *head, int is_zero, int *ret_common);

/* Call this function when the run has ended. AGAIN: the next run has begun. OK: the counts fit.
   MISMATCH: a common error. */
tutti_status_t tutti__exchange_next(tutti__exchange_t *x, const tutti__call_env_t *env,
                                    tutti__run_t *run, int *ret_common);

/* After the alltoall: the words that rank `rank` has sent to this rank. They are the sender's head,
   if heads are exchanged, and then the number of elements that the sender has for this rank. */
const uint64_t *tutti__exchange_from(const tutti__exchange_t *x, uint32_t size, uint32_t rank);

#endif
