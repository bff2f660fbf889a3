/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A call: any collective, or a message between two ranks, as the API received it. Direct and
 * asynchronous calls share the code here, which turns a call into the arguments of coll/ and exec/.
 */
#ifndef TUTTI__CALL_CALL_H
#define TUTTI__CALL_CALL_H

#include "base/kinds.h"
#include "coll/coll.h"
#include "exec/exec.h"

/* Checked arguments. Arrays belong to the caller, have [size] entries, and stay valid until the
   call is done. */
typedef struct {
    tutti_call_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    uint32_t root;       /* or the dest of a send, or the source of a receive */
    uint32_t source;     /* SENDRECV */
    const void *sendbuf; /* SEND: the buffer */
    void *recvbuf;       /* BROADCAST, RECV: the buffer */
    size_t count;        /* the public call's count, sendcount or recvcount */
    size_t recvcount;
    const size_t *sendcounts, *senddispls, *recvcounts, *recvdispls;
    double prescale, postscale; /* 1: no scaling. Reductions only */
    tutti_dtype_t wire; /* see exec/wire.c; 0: none. Before the checks: the caller's option */
    int on_device;      /* all buffers of the call are device memory */
    /* Direct calls on device memory: the CUDA stream of the call. Asynchronous calls: see
       tutti__entry_t. */
    int has_stream;
    tutti__dstream_t *stream;
} tutti__call_t;

/* Block maps of a call, and memory for them. Zero this structure before its first use. It is reused
   from call to call, so it describes the call that was prepared last. */
typedef struct {
    size_t *table, *in_table; /* [capacity + 1] */
    size_t capacity;
    void *temp; /* memory for scaled operands, or for a result, that cannot be in recvbuf */
    size_t temp_bytes;
    size_t result; /* reductions: elements of this rank's result */
    int copies;    /* the result is made in temp */
} tutti__call_memory_t;

void tutti__call_memory_free(tutti__call_memory_t *memory);

/*
 * Turn a call into a schedule request and executor arguments. For calls that match each other, all
 * ranks get equal `want`s. The caller must set exec->meet and exec->signature, which are 0 here.
 *
 * ret_in_place  the schedule's in_place
 * ret_empty     1: no data are to be moved, because no rank has an element. If each rank has only
 *               its own counts (gatherv, scatterv, alltoallv, messages): this rank has no element
 *
 * The only error is NO_MEMORY.
 */
tutti_status_t tutti__call_prepare(const tutti__call_t *call, uint32_t rank, uint32_t size,
                                   tutti__call_memory_t *memory, tutti__want_t *ret_want,
                                   tutti__exec_call_t *ret_exec, int *ret_in_place, int *ret_empty);

/* Must the call's operands be reduced in the order of ranks? */
int tutti__call_keeps_order(const tutti__call_t *call);

/* The value of exec->signature for schedules with channels: equal for calls that match. */
uint32_t tutti__call_signature(const tutti__call_t *call, const tutti__exec_call_t *exec,
                               uint32_t size);

/* Before and after the run: scaling, and the copy of a result that was made in `temp`. Most calls
   need no scaling and no copy. Prescaled data is written to recvbuf if it fits there. */
void tutti__call_begin(const tutti__call_t *call, const tutti__call_memory_t *memory,
                       tutti__exec_call_t *exec);
void tutti__call_end(const tutti__call_t *call, const tutti__call_memory_t *memory,
                     const tutti__exec_call_t *exec);

/* ---- kinds; call_kinds.c. See also base/kinds.h ---- */

typedef struct {
    tutti__collective_t collective; /* TUTTI__COLLECTIVES: a message between two ranks */
    tutti__tag_t tag;
} tutti__call_kind_t;

extern const tutti__call_kind_t tutti__call_kinds[TUTTI_CALL_SENDRECV + 1];

/* Does this rank use the arrays of counts? */
int tutti__call_has_arrays(const tutti__call_t *call, uint32_t rank);
/* The bytes of the call, as tutti_stats_t counts them: the size of the larger buffer. Also an
   estimate of the call's cost. */
size_t tutti__call_bytes(const tutti__call_t *call, uint32_t rank, uint32_t size);

/* The bit added to the tag of a call on device memory, so that ranks with different kinds of memory
   find a mismatch. 0 for messages, and for calls whose ranks have only their own counts: in such a
   call each rank may use either kind of memory. */
unsigned tutti__call_device_tag(const tutti__call_t *call);

static inline tutti__collective_t tutti__call_collective(tutti_call_kind_t kind)
{
    return tutti__call_kinds[kind].collective;
}

#endif
