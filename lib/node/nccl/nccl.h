/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations on device memory: NCCL, through the table of mem/device.h.
 *
 * An operation of a lane passes four phases:
 *
 *   MEET    the ranks compare the call over `host`, the node of the same ranks in shared memory.
 *           NCCL must not be called earlier: its behaviour is undefined if the calls differ
 *   ORDER   the lane waits until it is next in the order below
 *   LAUNCH  NCCL's calls are queued on the node's one stream, after the caller's event. NCCL may
 *           accept the calls with a delay, so this phase may last several steps
 *   FLIGHT  the event behind NCCL's calls is not complete
 *
 * The order. All lanes share one NCCL communicator and one stream. So all ranks must call NCCL
 * in the same order, but each rank may step its lanes in any order. The leader, local rank 0,
 * decides: the first of its lanes that reaches ORDER gets the next number. Before the leader
 * calls NCCL, it writes (number, lane) into a ring in shared memory. The other ranks launch in
 * the order of numbers.
 *
 *   This cannot deadlock. Suppose that rank r waits for number k, of lane L, and has launched all
 *   numbers below k. The leader wrote k after its meeting in L, so all ranks have started and
 *   announced that operation. So stepping L on r ends the meeting on r. On r, as on the leader, the
 *   operation is the first in L that is not launched. So lane L is next. No other lane can be in
 *   LAUNCH, because its number would be below k. By induction over k all ranks launch each number.
 *   On each stream only smaller numbers precede k, so NCCL completes number k. The only condition
 *   is that every rank keeps stepping every lane in which it has started an operation. Callers'
 *   events do not break the proof: a stream can wait only for earlier launches, which have smaller
 *   numbers.
 *
 *   The ring never overflows. When the leader writes lane L's next entry, all ranks have started
 *   that operation, so they have launched the previous operation of L. So no rank has more than one
 *   pending entry per lane, and the ring has space for TUTTI__DEVICE_LANES entries.
 *
 *   If the ranks' calls differ, or NCCL does not serve the operation, all ranks detect this before
 *   ORDER, and the operation gets no number.
 *
 * Several communicators. Several threads may use a world and its groups at the same time, and NCCL
 * needs one order of launches per device. So each number has a ticket. All communicators of a host
 * take their tickets from one counter, the world's, under a lock. The leader writes an entry under
 * the same lock, so a rank that sees a ticket also sees all smaller tickets. A rank does not launch
 * an entry while another communicator's next entry has a smaller ticket. The proof is the same, by
 * induction over tickets: the smallest ticket that a rank has not launched waits for nothing. A
 * rank does not wait for a communicator that is dead on this rank. If a leader dies while it holds
 * the lock (some ten instructions), the host's other communicators wait until their deadlines.
 *
 * Flat. One further node, the flat node, may have all ranks of several hosts. On each host, the
 * node's `host`, leader, ring and tickets are those of this host's ranks. Only NCCL's communicator
 * has all ranks. So flat launches wait for other hosts, which count their own tickets. Therefore
 * each flat call has a sequence number. Rank 0 counts the calls that all ranks have reached, 1, 2,
 * and so on. All ranks receive the number before they start the operation (call/sequencer.h). A
 * leader gives launch number k, with a ticket, only to the call with sequence number k.
 *
 *   This cannot deadlock. Launch A precedes launch B in three cases: on some host both have
 *   tickets, and A's is smaller; on some host only A has a ticket; both are flat, and A's sequence
 *   number is smaller. This order has no cycle. Inside a host, tickets increase. A cycle over
 *   several hosts would pass through flat launches. From one flat launch to the next, the cycle
 *   would stay inside a host, where numbers follow the sequence numbers. So sequence numbers would
 *   increase all around the cycle, which is impossible. Consider all launches that have a ticket or
 *   a sequence number and are not complete on all ranks. Because there is no cycle, there is a
 *   first launch: no other of these launches precedes it. If it is not flat, it waits for nothing,
 *   as above. If it is flat, the calls with smaller sequence numbers are complete, and all ranks
 *   have reached the call. Each rank keeps stepping its lane, receives the sequence number, starts
 *   the operation and ends the meeting of its host. Leaders that have given the call no number yet
 *   give it a number now, all ranks launch the call, and NCCL completes it.
 *
 *   If a leader took a ticket before all ranks have reached the call, later work of its host would
 *   follow a launch that waits for some rank, and that rank might wait for this later work. If each
 *   host counted its calls on its own, NCCL would combine different calls.
 *
 *   If a rank cannot launch a call that has a sequence number, the communicator ends. The flat ring
 *   needs no more space, because all of the host's ranks have started the operations in the ring.
 *
 *   Below MPI_THREAD_MULTIPLE a rank advances an asynchronous call to its launch only while it
 *   waits for a request. Until then the later launches of other ranks wait behind this call.
 *
 * Rejected: an NCCL communicator per lane. Several communicators would also need one order of
 * launches per device, and each takes some 100 MB of device memory.
 *
 * tutti__nccl_node_open makes all device memory, the stream, and all events except the additional
 * events of overdue.c. NCCL itself connects ranks at the first call of a kind, and then waits for
 * the other ranks. This wait is harmless, because all ranks launch in one order: on this rank NCCL
 * can wait only for launches with smaller numbers.
 *
 * Threads: different threads may step different lanes, and a further thread may abort. enter.c
 * admits one thread at a time to the device, and makes no thread wait.
 *
 * After an error of the device or NCCL the node is dead: every lane returns that error. The node
 * does not report the error to other ranks: tutti__nccl_node_abort must be called on all ranks.
 */
#ifndef TUTTI__NODE_NCCL_NCCL_H
#define TUTTI__NODE_NCCL_NCCL_H

#include "base/atomic.h"
#include "base/constants.h"
#include "base/status.h"
#include "mem/device.h"
#include "node/node.h"

#include <stddef.h>

/* A power of two, larger than the number of lanes. */
#define TUTTI__NCCL_RING 8

/* In the leader's shared memory, zeroed before any rank opens. Only leaders write to it. */
typedef struct {
    tutti__word64_t entry[TUTTI__NCCL_RING]; /* number k >= 1 is at k % RING; see launch_order.c */
    /* The next two fields are for all communicators that take their tickets here. */
    tutti__word64_t last; /* the last ticket given; under lock */
    tutti__word_t lock;   /* 1: taken. Then a leader tries again in its next step */
} tutti__nccl_order_t;

/* The types that NCCL serves with each operation up to PROD. Bit t: the type with number t. */
typedef struct {
    uint32_t dtypes[TUTTI_PROD + 1];
} tutti__nccl_serves_t;

/* Ask NCCL for the types that it serves on the calling thread's device. */
void tutti__nccl_ask(const tutti__device_ops_t *ops, tutti__nccl_serves_t *ret_serves);
/* Remove from *serves the types that `others` does not have. */
void tutti__nccl_agree(tutti__nccl_serves_t *serves, const tutti__nccl_serves_t *others);

typedef struct {
    const tutti__device_ops_t *ops;
    int device;
    uint32_t me, nlocal;        /* index and number of the node's ranks: local; flat: all ranks */
    int flat;                   /* 1: this is a flat node; see above */
    int32_t leader;             /* the rank in the communicator of the host's local rank 0 */
    tutti__node_t *host;        /* the host's ranks in shared memory; must outlive this node */
    tutti__nccl_order_t *order; /* as mapped in this process; must outlive this node */
    /* If this communicator is a group: the structure with the tickets of its parent. NULL: `order`
       has the tickets. All communicators that have a rank of this host, and may be used at the same
       time, must use the same tickets. The structure must outlive this node. */
    tutti__nccl_order_t *tickets;
    const tutti__nccl_id_t *id; /* NCCL's id, equal on all ranks of the node; used in open only */
    size_t stage_bytes;         /* at least 16 * nlocal; equal on all ranks of the node */
    /* The types that NCCL serves on all ranks, whose devices and versions of NCCL may differ. Used
       in open only. NULL: the types that NCCL serves on this rank. */
    const tutti__nccl_serves_t *serves;
} tutti__nccl_open_t;

/*
 * Open a node. All ranks of the node must call this function, but it waits for no rank:
 * tutti__nccl_node_settle reports when the ranks are connected. Open and each step that uses the
 * device make it current for the calling thread.
 *
 * stage_bytes: device memory for alltoalls, the stage. All alltoalls are cut into pieces that fit
 * the stage. The pieces of an alltoall in place are first copied to the stage.
 */
tutti_status_t tutti__nccl_node_open(const tutti__nccl_open_t *with, tutti__node_t **ret_node);

/* TUTTI__AGAIN: the ranks are not connected yet. Before the first start, call this function until
   it returns TUTTI_OK. */
tutti_status_t tutti__nccl_node_settle(tutti__node_t *node);

/*
 * The lane's next operation that moves data, and all later operations, begin on the device after
 * `event`'s last record. The lane's thread must call this function between operations, after the
 * record. It may record the event again when that operation has ended, successful or not. event
 * NULL: the operation waits for no event.
 *
 * When step returns TUTTI_OK, the result is complete. But a `queued` call ends when it is launched,
 * and only later work in its stream `then` may use the result.
 */
void tutti__nccl_node_ready(tutti__node_t *node, uint32_t lane, tutti__devent_t *event);

/* Have all queued operations completed? TUTTI__AGAIN: not yet, or an abort is under way. After an
   abort: has all work in the stream completed? */
tutti_status_t tutti__nccl_node_queued(const tutti__node_t *node);

/* The functions of a flat node for the launch sequencer. */
extern const tutti__sequencer_ops_t tutti__nccl_sequencer_ops;

/* Check queued operations, for which no call waits. TUTTI_ERR_TIMEOUT: the device has been
   executing an operation for longer than limit_ns. This time counts from the first check that finds
   the operation executing. For TIMEOUT no error text is set. Other errors are the device's or
   NCCL's, and end the node. *ret_tag: after an error, the tag of the operation's call. Call this
   function regularly, on a thread whose current device is the node's device. */
tutti_status_t tutti__nccl_node_overdue(tutti__node_t *node, uint64_t now_ns, uint64_t limit_ns,
                                        unsigned *ret_tag);

/* The structure with the node's tickets, for groups of its communicator. NULL if node is NULL. */
tutti__nccl_order_t *tutti__nccl_node_tickets(const tutti__node_t *node);

/* The types on which the node's ranks agreed, for another node of the same ranks. */
const tutti__nccl_serves_t *tutti__nccl_node_serves_what(const tutti__node_t *node);

/* Does the node serve this type and operation? All ranks that agreed get the same answer. reduces
   0: an operation that only moves data, which is always served. divisor: as in node.h. */
int tutti__nccl_node_serves(const tutti__node_t *node, int reduces, tutti_dtype_t dtype,
                            tutti_op_t op, uint32_t divisor);

/*
 * Register device memory of nccl_alloc with the node's communicator, after settle and before the
 * first start. The caller frees the memory after close or unregister. Call this function at most
 * TUTTI__DEVICE_LANES times. After a failure, earlier registrations stay. If this function fails on
 * any rank of the host, all ranks must unregister.
 */
tutti_status_t tutti__nccl_node_register(tutti__node_t *node, void *ptr, size_t bytes);
/* Undo all registrations, before the first start. Close undoes them as well. */
void tutti__nccl_node_unregister(tutti__node_t *node);

/* Abort all work of NCCL. After this the node is dead, and its lanes return an error. Any thread
   may call this function at any time before close. Repeated calls have no effect. If another thread
   is in a step, that thread aborts at the end of the step. The function waits only for NCCL, and
   for a limited time (abort.c). */
void tutti__nccl_node_abort(tutti__node_t *node);
/* The two halves of tutti__nccl_node_abort. If several nodes of one device are to be aborted, begin
   all aborts before the first end (abort.c). If begin returns 1, the same thread must call end. */
int tutti__nccl_node_begin_abort(tutti__node_t *node);
void tutti__nccl_node_end_abort(tutti__node_t *node);

/* Is there an abort on this device that has not returned in time? Until it returns, each call that
   waits for the device would wait for ever: freeing memory, dropping streams, allocating. */
int tutti__nccl_is_stuck(int device);

/* ---- inside ---- */

typedef enum {
    NCCL_IDLE,
    NCCL_MEET,
    NCCL_ORDER,
    NCCL_LAUNCH,
    NCCL_FLIGHT
} tutti__nccl_phase_t;

typedef struct {
    tutti__nccl_phase_t phase;
    const tutti__node_call_t *call;
    tutti__node_call_t meet;
    tutti__devent_t *ready; /* the caller's event, or NULL */
    uint64_t sequence;      /* sequence number of the next launch; 0: none is needed */
    tutti__devent_t *done;  /* recorded behind the calls */
} tutti__nccl_lane_t;

/* Progress in cutting a call into NCCL's calls. */
typedef struct {
    const tutti__node_call_t *call;
    tutti_dtype_t dtype; /* NCCL's type: operations that only move data use bytes */
    tutti_op_t op;       /* NCCL's operation */
    size_t esize;        /* bytes of an element of the call */
    size_t scale;        /* elements of NCCL's type in an element of the call */
    uint32_t divisor;    /* a division that follows NCCL's work; 0: none */
    uint32_t next;       /* next block to cut; alltoall: in each part */
    size_t skip;         /* alltoall: elements of the run at `next` that are already cut */
} tutti__nccl_cut_t;

typedef struct tutti__nccl_node tutti__nccl_node_t;
typedef struct tutti__nccl_overdue tutti__nccl_overdue_t;
typedef struct tutti__nccl_abort tutti__nccl_abort_t;

struct tutti__nccl_node {
    tutti__node_t node;
    const tutti__device_ops_t *ops;
    int device;
    uint32_t me, nlocal;
    int leads; /* this rank is the leader */
    int32_t leader;
    tutti__node_t *host;
    tutti__nccl_order_t *order, *tickets;
    tutti__nccl_serves_t serves;
    tutti__dstream_t *stream;
    char *stage;                                  /* [nlocal][stage_share] device memory */
    size_t stage_share;                           /* bytes; a multiple of 16 */
    tutti__nccl_call_t *calls;                    /* [most_calls] */
    tutti__piece_t *pieces;                       /* [nlocal] */
    uint32_t most_calls;                          /* at least 2 and 2 * nlocal */
    tutti__nccl_lane_t lane[TUTTI__DEVICE_LANES]; /* for the lane's thread only, except `done` */

    tutti__nccl_node_t *next_node; /* launch_order.c */
    tutti__word64_t number;        /* number of the current or next launch; written inside the
                                      gate */
    tutti__word64_t sequence;      /* flat, rank 0: the last sequence number given */

    tutti__word_t gate; /* enter.c; protects all following fields */
    tutti__nccl_t *nccl;
    /* Valid from begin_abort to end_abort. Only the thread that calls both uses these fields. */
    tutti__nccl_abort_t *abort;
    int abort_begun;
    tutti__nccl_reg_t *reg[TUTTI__DEVICE_LANES];
    uint32_t nregs;
    int launching;         /* 1: a lane is in LAUNCH */
    tutti__nccl_cut_t cut; /* progress in that lane's call */
    uint32_t ncalls, npieces;
    tutti__nccl_overdue_t *overdue;      /* [overdue_capacity] a ring; overdue.c */
    uint32_t overdue_capacity;           /* a power of 2 */
    uint32_t overdue_first, overdue_end; /* both only increase */
    int overdue_open;                    /* entry overdue_end is for the current launch */
    tutti_status_t status;               /* the first failure, with its text */
    char words[TUTTI__ERROR_BYTES];
};

extern const tutti__node_ops_t tutti__nccl_ops;
extern const tutti__node_device_ops_t tutti__nccl_device_ops;
void tutti__nccl_close(tutti__node_t *node);

#define TUTTI__NCCL_INSIDE 1 /* gate: a thread is inside. Larger values: the node is dead */

/* launch_order.c. Add a node to the process's list. */
void tutti__nccl_order_join(tutti__nccl_node_t *self);
/* Remove the node from the list, if it is there. */
void tutti__nccl_order_leave(tutti__nccl_node_t *self);
/* May this lane launch now? Call this function inside the gate. On the leader it gives the lane the
   next number, if possible. *hint gets the rank that this lane waits for, if known. */
int tutti__nccl_is_next(tutti__nccl_node_t *self, uint32_t lane, tutti__hint_t *hint);

/* overdue.c. Call begin before the calls of an operation are queued, and end when all of them are
   queued. */
tutti_status_t tutti__nccl_overdue_open(tutti__nccl_node_t *self);
void tutti__nccl_overdue_close(tutti__nccl_node_t *self);
tutti_status_t tutti__nccl_overdue_begin(tutti__nccl_node_t *self, const tutti__node_call_t *call);
tutti_status_t tutti__nccl_overdue_end(tutti__nccl_node_t *self);

/* abort.c. Begin to abort and free a communicator that no thread uses any more. Returns NULL if the
   abort is done. await: wait for the end of the abort, for a limited time. */
tutti__nccl_abort_t *tutti__nccl_abort_begin(const tutti__device_ops_t *ops, int device,
                                             tutti__nccl_t *nccl);
void tutti__nccl_abort_await(tutti__nccl_abort_t *job);

/* enter.c. Enter the gate. Returns 1 if the caller is inside: until it leaves, no other thread may
   call the device and NCCL. Returns 0 if another thread is inside, or the node is dead. */
int tutti__nccl_enter(tutti__nccl_node_t *self);
/* Leave the gate. status: the result of the work inside; an error (not AGAIN) ends the node.
   Returns status. */
tutti_status_t tutti__nccl_leave(tutti__nccl_node_t *self, tutti_status_t status);
/* TUTTI_OK, or the reason why the node is dead. */
tutti_status_t tutti__nccl_alive(tutti__nccl_node_t *self);
/* Close NCCL. If an operation has not ended, or closing could hang, abort NCCL instead. No thread
   may step the node during this call or after it. */
void tutti__nccl_end(tutti__nccl_node_t *self);

/* calls.c. Begin to cut a call. 0, on all ranks: NCCL or the device does not serve the call. */
int tutti__nccl_cut_begin(const tutti__nccl_node_t *self, const tutti__node_call_t *call,
                          tutti__nccl_cut_t *ret_cut);
/* Make NCCL's next calls, and `pieces`: copies of bytes to queue before them. 0: no more calls. */
int tutti__nccl_cut_next(tutti__nccl_node_t *self, tutti__nccl_cut_t *cut);
/* Queue the division that follows the last calls, if there is one. */
tutti_status_t tutti__nccl_divide(tutti__nccl_node_t *self, const tutti__nccl_cut_t *cut);

#endif
