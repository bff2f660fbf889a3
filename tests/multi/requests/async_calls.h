/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous calls of every kind, with data and the required results, computed element
 * by element.
 *
 * All ranks make a task from the same numbers. Results are compared as bytes. The surrounding
 * memory is filled with garbage that must not change.
 */
#ifndef TUTTI_TESTS_MULTI_ASYNC_CALLS_H
#define TUTTI_TESTS_MULTI_ASYNC_CALLS_H

#include "ranks.h"

/* The definition of a task; equal on all ranks. */
typedef struct {
    int number; /* determines the task's data */
    tutti_call_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    size_t count;
    int root;
    int in_place;               /* 1: in place, by equal pointers, for kinds that allow this */
    int later;                  /* 1: recvcounts is NULL, for allgatherv and alltoallv */
    int displs;                 /* 1: parts with gaps, for v forms */
    double prescale, postscale; /* 0: none */
} task_facts_t;

typedef struct {
    task_facts_t facts;
    int rank, size;
    int idle; /* 1: this rank takes no part, because it has no partner: the last rank of an odd
                 number */
    char name[64];
    tutti_call_t call;
    tutti_async_options_t options;
    char *send, *recv, *want, *sent;
    size_t send_bytes, recv_bytes;
    size_t *arrays; /* [4 * size] */
    tutti_request_t *request;
} task_t;

int task_reduces(tutti_call_kind_t kind);
/* Element i of a rank's data, as a number. Values are small, so that the results are exact in all
   types. */
double task_value(const task_facts_t *facts, int rank, size_t i);

task_t *task_make(const rank_t *self, const task_facts_t *facts);
void task_free(task_t *task);
/* Fill recv with new garbage. */
void task_reset(task_t *task);
/* Start the task with the function of its kind. */
tutti_status_t task_start(task_t *task, tutti_comm_t *comm);
/* For a task whose recvcounts are not known at the start: receive the counts, and pass recvbuf. */
void task_receive(task_t *task);
/* Check the result, and that sendbuf is unchanged. */
void task_verify(const task_t *task);

/* Operations on pairs of int64: composition of maps a x + b; they do not commute. */
tutti_op_t task_affine(void);

/* Check that the communicator works as before, even with this name. */
void still_works(const rank_t *self, const char *name);
/* Check that tutti_last_error() contains these texts; NULL is ignored. */
void last_error_says(const char *name, const char *one, const char *other);

/* For main: run fn with ranks as processes, on one host with each of these sizes, and on several
   hosts. Returns the exit status. */
int run_on_hosts(rank_fn_t fn, const int *sizes, size_t nsizes);

#endif
