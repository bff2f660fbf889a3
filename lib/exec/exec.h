/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor: runs one rank's schedule over any transports.
 *
 * A run is resumable and never blocks: each stream has a program counter, and a step goes through
 * the streams until none can go on. One run at a time per lane. One thread at a time uses a run.
 */
#ifndef TUTTI__EXEC_EXEC_H
#define TUTTI__EXEC_EXEC_H

#include "node/node.h"
#include "reduce/reduce.h"
#include "sched/sched.h"
#include "xport/xport.h"

/* What runs of one communicator share. */
typedef struct {
    uint32_t rank, size;
    tutti__xport_t **xport; /* [size] how each peer is reached; own entry unused */
    tutti__node_t *node;
    size_t slot_bytes; /* of every channel */
} tutti__exec_env_t;

/* The call that a schedule serves. */
typedef struct {
    const void *in; /* element 0 of the block map */
    void *out;
    size_t count; /* elements in the whole map */
    tutti_dtype_t dtype;
    tutti_op_t op;
    uint32_t signature; /* of what for, count, type, operation, root: equal on all ranks */
    uint8_t tag; /* what the call is for, below 128; ranks with different ones do not fit */
} tutti__exec_call_t;

typedef struct {
    uint32_t pc, end;
    uint32_t loop; /* index of the LOOP that it is in, or UINT32_MAX */
    size_t trip;
    uint64_t marks;
    int started;  /* the present operation was posted or started, and is not done */
    char *gather; /* for messages of several blocks: one slot */
} tutti__stream_t;

typedef struct {
    const tutti__exec_env_t *env;
    uint32_t lane;
    const tutti__sched_t *sched; /* NULL: no run */
    tutti__exec_call_t call;
    tutti__reduce_fn_t reduce;
    size_t esize;
    uint32_t divisor;
    tutti__blockmap_t map;
    size_t trips;
    char *base[TUTTI__BUFS];
    char *scratch;
    size_t scratch_bytes;
    tutti__stream_t stream[TUTTI__SCHED_STREAMS];
    const tutti__sched_t *bound; /* whose channels are in chans */
    tutti__chan_t **chans;
    uint32_t chans_room;
} tutti__run_t;

void tutti__run_init(tutti__run_t *run, const tutti__exec_env_t *env, uint32_t lane);
void tutti__run_fini(tutti__run_t *run);

/* Begin. Opens channels and memory where needed. call->count is at least 1. */
tutti_status_t tutti__run_start(tutti__run_t *run, const tutti__sched_t *sched,
                                const tutti__exec_call_t *call);

/*
 * Go on as far as possible. TUTTI_OK: done. TUTTI__AGAIN: *stuck says what for. Any other answer
 * ends the run: call tutti__run_cancel then.
 */
tutti_status_t tutti__run_step(tutti__run_t *run, tutti__stuck_t *stuck);

/* Give up a run that did not end well; no buffer of the call is touched afterwards. */
void tutti__run_cancel(tutti__run_t *run);

/* Does a schedule use a transport that this thread may not drive? is_engine: it is the library's
   own thread. */
int tutti__run_forbidden(const tutti__exec_env_t *env, const tutti__sched_t *sched, int is_engine);

#endif
