/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous calls of every kind, with data and with what must come out, computed one element
 * after another.
 *
 * All ranks make a task from the same numbers. Results are compared as bytes, with what is around
 * them: where nothing may be written there is rubbish that must stay.
 */
#ifndef TUTTI_TESTS_MULTI_ASYNC_CALLS_H
#define TUTTI_TESTS_MULTI_ASYNC_CALLS_H

#include "ranks.h"

/* What a task is; equal on all ranks. */
typedef struct {
    int number; /* its data depend on it */
    tutti_call_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    size_t count;
    int root;
    int in_place;               /* where that is a matter of equal pointers */
    int later;                  /* recvcounts NULL, for allgatherv and alltoallv */
    int displs;                 /* parts with gaps, for v forms */
    double prescale, postscale; /* 0: none */
} task_facts_t;

typedef struct {
    task_facts_t facts;
    int rank, size;
    int idle; /* this rank takes no part: an odd one out of a pair */
    char name[64];
    tutti_call_t call;
    tutti_async_options_t options;
    char *send, *recv, *want, *sent;
    size_t send_bytes, recv_bytes;
    size_t *arrays; /* [4 * size] */
    tutti_request_t *request;
} task_t;

/* Data of a rank as numbers; small, so that all types hold the results. */
double task_value(const task_facts_t *facts, int rank, size_t i);

task_t *task_make(const rank_t *self, const task_facts_t *facts);
void task_free(task_t *task);
/* New rubbish in recv. */
void task_reset(task_t *task);
/* By the function of its kind. */
tutti_status_t task_start(task_t *task, tutti_comm_t *comm);
/* Of one whose recvcounts come later: what this rank has to do in between. */
void task_receive(task_t *task);
/* Is what came out right, and sendbuf as it was? */
void task_verify(const task_t *task);

/* Operations of pairs of int64: what x is mapped to by a x + b; they do not commute. */
tutti_op_t task_affine(void);

/* The communicator is as good as new, this very name too. */
void still_works(const rank_t *self, const char *name);
/* Does tutti_last_error have these in it? NULL: nothing. */
void last_error_says(const char *name, const char *one, const char *other);

#endif
