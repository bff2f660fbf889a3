/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An operation: one collective call or message as a resumable object. A direct call is an operation
 * in lane 0, which its caller steps. A lane of the engine steps one operation for each bucket (one
 * tensor, or several tensors in one call).
 *
 *      host     COMPARE -> CHOOSE -> RUN                            (MEET: a call without elements)
 *      message  PAIRS
 *      device   COMPARE -> DEVICE -> INPUT -> KEEP -> LAUNCH -> (COME -> NUMBER) -> DEVICE_RUN
 *                            |                           NCCL does not serve it |     |
 *                            v                                                  v     v
 *                        STAGED_IN -> CHOOSE -> RUN -> STAGED_OUT      MOVE -> RESTORE -> RESULT
 *
 * No function here waits. One thread at a time uses an operation. A thread that steps a call on
 * device memory must have made the device its current device.
 */
#ifndef TUTTI__CALL_OPERATION_H
#define TUTTI__CALL_OPERATION_H

#include "call/compare_calls.h"
#include "call/pairs.h"
#include "call/sequencer.h"
#include "call/staged.h"

typedef enum {
    TUTTI__AT_END, /* there is no call, or the call is done */
    TUTTI__AT_COMPARE,
    TUTTI__AT_COUNTS, /* only the exchange of counts */
    TUTTI__AT_PAIRS,
    TUTTI__AT_CHOOSE,
    TUTTI__AT_MEET,
    TUTTI__AT_RUN,
    TUTTI__AT_DEVICE, /* this and all further values: calls on device memory, device_route.c */
    TUTTI__AT_INPUT,
    TUTTI__AT_KEEP,
    TUTTI__AT_LAUNCH,
    TUTTI__AT_COME,
    TUTTI__AT_NUMBER,
    TUTTI__AT_DEVICE_RUN,
    TUTTI__AT_MOVE,
    TUTTI__AT_RESTORE,
    TUTTI__AT_STAGED_IN,
    TUTTI__AT_STAGED_OUT,
    TUTTI__AT_RESULT
} tutti__at_t;

typedef struct tutti__operation tutti__operation_t;

/* Several tensors as one call: `pack` copies the tensors into the call's buffers before the run,
   and `unpack` copies the results out of these buffers after the run. For device memory, the two
   functions only list the copies, by tutti__operation_copy. */
typedef struct {
    tutti_status_t (*pack)(void *owner, tutti__operation_t *op);
    void (*unpack)(void *owner, tutti__operation_t *op);
} tutti__packing_t;

/* Properties of a call of the engine, set by the engine's lane; all zero for direct calls. */
typedef struct {
    uint8_t tag; /* 0: the tag of the call's kind */
    uint32_t signature;
    const tutti__packing_t *packing; /* NULL: the call works on the caller's buffers */
    void *owner;
    /* On device memory: */
    tutti__devent_t *const *ready; /* [nready] the data are complete after these events */
    uint32_t nready;
    int stays_in_host;           /* the call runs in host memory in any case; equal on all ranks */
    int awaits_input;            /* launch only when the data are complete */
    int detaches;                /* the operation ends when its device work is queued */
    int uses_stage;              /* the packing copies from the lane's STAGE */
    size_t npieces;              /* the largest number of copies of the packing */
    const tutti__call_t *scaled; /* with a packing: the call with its scales */
} tutti__call_with_t;

/* This rank's own part of a reduce_scatter that is in place as in MPI; see device_route.c. */
typedef struct {
    char *own; /* NULL: the call is not of this kind */
    size_t begin, bytes;
} tutti__moved_t;

struct tutti__operation {
    const tutti__call_env_t *env;
    uint32_t lane;
    tutti__at_t at;
    const tutti__call_t *asked; /* valid until the end; NULL: a collective of the library's own */
    const tutti__call_t *call;  /* the call that runs: asked, or its form in other buffers */
    const tutti__call_with_t *with;
    tutti__hint_t hint;  /* after AGAIN: the wait hint */
    int is_common;       /* after an error: see call_inside.h */
    int is_zero;         /* COUNTS: this rank makes a zero contribution */
    int polls;           /* the operation advances only when polled: MPI, or a device */
    int may_be_far;      /* set once: some transports advance only when polled */
    tutti__xport_t *far; /* set once: a transport that advances only when polled, or NULL */
    int has_far;         /* the run uses a transport that advances only when polled */
    int has_compared;    /* the ranks compare the call, or have compared it */
    uint64_t left_ns;    /* if the operation waits for a rank that has left, on a polled transport:
                            when the wait began or last made progress; 0: no such wait */
    uint32_t left_moves; /* tutti__operation_moves at the time left_ns */
    size_t bytes;        /* bytes of the run's data: an estimate of the run's cost */

    tutti__run_t run;
    tutti__exec_call_t exec;
    tutti__want_t want;
    int in_place;
    /* The schedule of this call's run in host memory; NULL: no such run has begun. */
    const tutti__sched_t *run_sched;
    tutti__call_memory_t memory;
    tutti__compare_t compare;
    tutti__exchange_t exchange;
    tutti__pairs_t *pairs; /* lane 0 only */
    tutti__node_call_t meet;
    tutti_status_t refusal; /* MEET: the error to return when the ranks have met, or OK */

    /* Calls on device memory. */
    tutti__call_t own;             /* the call with other buffers */
    tutti__devent_t *stream_ready; /* a direct call in a CUDA stream: its event; or NULL */
    const tutti__sched_t *sched;   /* the schedule on the device; NULL: staged */
    int is_staged;
    int is_queued;  /* at the end: results are complete after the work in the lane's stream `up` */
    int unpacks;    /* the result is scaled after the run */
    int is_keeping; /* this rank's own part of a reduce_scatter is being copied */
    int is_certain; /* only the communicator's end can make the operation fail, and any thread of
                       the library may finish it */
    tutti__moved_t moved;
    tutti__sequencer_t sequencer;
    tutti__staged_t staged;
    tutti__piece_t *pieces;
    size_t npieces, pieces_capacity;
};

void tutti__operation_init(tutti__operation_t *op, const tutti__call_env_t *env, uint32_t lane,
                           tutti__pairs_t *pairs);
void tutti__operation_fini(tutti__operation_t *op);

/* Begin a checked call; then step it. *call and *with must stay valid until the operation ends. */
void tutti__operation_start(tutti__operation_t *op, const tutti__call_t *call,
                            const tutti__call_with_t *with);
/* Begin only the exchange of a call's counts; the results are in op->exchange. */
void tutti__operation_start_counts(tutti__operation_t *op, const tutti__call_t *call, int is_zero);
/* Begin a collective of the library's own, described by `exec`; exec->count is at least 1. */
tutti_status_t tutti__operation_start_own(tutti__operation_t *op, tutti__collective_t collective,
                                          const tutti__exec_call_t *exec, uint32_t root);

/* Continue as far as possible. TUTTI_OK: done. TUTTI__AGAIN: op->hint is the wait hint, or this
   thread must not continue the operation. Any other status: see op->is_common; the caller must then
   call tutti__operation_cancel. */
tutti_status_t tutti__operation_step(tutti__operation_t *op);

/* If the operation waits for a rank that has left: take the data that have arrived. SHUTDOWN: the
   operation will never be done. */
tutti_status_t tutti__operation_step_left(tutti__operation_t *op);
/* Does the operation wait for a rank that has left? */
int tutti__operation_awaits_left(tutti__operation_t *op);

/* Give up an operation that has not ended. After a common error this function only cleans up. After
   other errors the communicator must have ended; the call's buffers are not touched any more. */
void tutti__operation_cancel(tutti__operation_t *op);
/* Cancel only the node operation. Afterwards this host's ranks do not access the call's buffers. */
void tutti__operation_cancel_node(const tutti__operation_t *op);

/* Does the communicator have a polled transport that the calling thread must not use? */
int tutti__operation_is_barred(const tutti__operation_t *op);

/* A number that changes when the operation advances. Exception: if an advance only changes a word
   of shared memory, the number may stay the same. */
uint32_t tutti__operation_moves(const tutti__operation_t *op);
/* The operation's tag (sched/step.h), for warnings and error texts. */
unsigned tutti__operation_tag(const tutti__operation_t *op);
/* Does the operation wait for its data, which this rank's device still computes? */
int tutti__operation_awaits_data(const tutti__operation_t *op);

/* For packings: add a copy of `count` elements in device memory. */
void tutti__operation_copy(tutti__operation_t *op, void *to, const void *from, size_t count);

/* ---- inside ---- */

/* operation.c: prepare a call. *ret_empty: 1 if no data are to be moved. */
tutti_status_t tutti__operation_prepare(tutti__operation_t *op, const tutti__call_t *call,
                                        int *ret_empty);
/* operation.c: the schedule in host memory for a prepared call; call NULL: for op->want. */
tutti_status_t tutti__operation_find(tutti__operation_t *op, const tutti__call_t *call,
                                     const tutti__sched_t **ret_sched);
/* operation.c: begin the run of op->exec. */
tutti_status_t tutti__operation_run(tutti__operation_t *op, const tutti__sched_t *sched);
/* operation.c: at the end of a direct message, returns MISMATCH, a common error, if sender and
   receiver passed different arguments. Returns OK for other calls. */
tutti_status_t tutti__operation_end_pairs(tutti__operation_t *op);
/* device_route.c: one step of a call on device memory. */
tutti_status_t tutti__device_route_step(tutti__operation_t *op);
/* device_route.c: after the run in host memory, begin to copy the result to the device. */
tutti_status_t tutti__device_route_put_back(tutti__operation_t *op);

#endif
