/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations on device memory: NCCL, behind the table of mem/device.h.
 *
 * An operation of a lane goes through four phases:
 *
 *   MEET    the ranks hear from each other over `host`, the same ranks' node in shared memory, that
 *           they came with the same call. Only then NCCL is called: it would hang, or worse.
 *   TURN    until it is this lane's turn in the order below
 *   LAUNCH  the calls are queued on the node's one stream, behind the caller's event. NCCL may take
 *           its time to accept them, so this may last several steps
 *   FLIGHT  until the event behind them has come
 *
 * The order. There is one NCCL communicator and one stream for all lanes, so all ranks must call
 *   NCCL in one order, but each steps its lanes as it likes. The leader, local rank 0, decides:
 *   whichever of its lanes comes first in TURN has the next number, and it writes (number, lane)
 *   into a ring in shared memory before it calls NCCL. The others launch number after number.
 *
 *   It cannot deadlock. Say rank r waits for number k, of lane L, and has launched all below k. The
 *   leader wrote k after its meeting in L, for which all ranks had started that operation. So at r
 *   it has been started, all have announced it, and stepping L ends its meeting; it is r's first in
 *   L that is not launched, as it is the leader's. Then it is L's turn, and nothing else can be in
 *   LAUNCH, as that would be a number below k. By induction over k each number is launched by all
 *   ranks; on each stream it stands behind smaller numbers only, so NCCL finishes it, too. All that
 *   is needed is that every rank goes on stepping every lane in which it has started something.
 *   Callers' events do not break this: a stream can wait only for what was launched before, so for
 *   smaller numbers.
 *
 *   The ring never overflows. When the leader writes lane L's next entry, all ranks have started
 *   that operation, so they have launched the one before. So no rank has more than one entry per
 *   lane before it, and TUTTI__LANES of them fit.
 *
 *   Operations that do not fit, or that NCCL does not serve, are found by all ranks alike, before
 *   TURN, and have no number.
 *
 * Several communicators. A world and its parts may be used by several threads at the same time, and
 *   NCCL needs one order of launches on a device all the same. So with each number comes a ticket,
 *   which all of a host's communicators take from one place, the world's: under a lock, in which
 *   the entry is written, too, so who sees a ticket sees all smaller ones. A rank launches nothing
 *   while another communicator's next entry has a smaller ticket. The proof is the same, by
 *   induction over tickets: the smallest that has not been launched everywhere waits for nothing.
 *   A communicator that is dead at a rank is not waited for there. A leader that dies with the lock
 *   (some ten instructions) leaves the other communicators of its host to their deadlines.
 *
 * Flat. One more node may join all ranks of several hosts. It is like the other communicators of
 *   each host: `host`, leader, ring and tickets are those of the host's ranks. Only NCCL's ranks
 *   are all ranks, so its launches wait for other hosts, which know nothing of these tickets. So
 *   each of its calls brings a turn: rank 0 counts 1, 2, ..., each when all ranks have come to the
 *   call, and all hear it before they start the operation (engine/flat.h). A leader gives number k,
 *   with its ticket, to the call with turn k only.
 *
 *   It cannot deadlock. Say A is before B if on some host both have tickets and A's is smaller, or
 *   A only has one, or if both are flat and A's turn is smaller. This has no circle: inside a host
 *   tickets grow; a circle over several hosts goes through flat launches, from each to the next
 *   inside a host, where numbers are given in the order of turns; so turns would grow around it.
 *   So of all launches with a ticket or a turn that are not done everywhere, one is behind no
 *   other. If it is a host's own, it waits for nothing, as above. If it is flat, smaller turns are
 *   done, and all ranks had come to it: each goes on stepping its lane, so it hears the turn,
 *   starts the operation and ends the meeting of its host; then the leaders give the number where
 *   it has none, all ranks launch it, and NCCL finishes it.
 *
 *   Were a ticket taken before all have come, work of this host would stand behind a launch that
 *   waits for a rank, and that rank perhaps waits for this work. Were turns each host's own, NCCL
 *   would add up different calls.
 *
 *   A turn that was given must be launched: what keeps a call from it ends the communicator. The
 *   ring needs no more room, since all of the host's ranks have started what is in it.
 *
 *   Below MPI_THREAD_MULTIPLE a rank brings an asynchronous call to its turn only while it waits
 *   for a request. Until then the later launches of ranks that are ahead stand behind this one.
 *
 * Rejected: a communicator per lane. Several on one device need one launch order just as well, and
 *   each takes some 100 MB of device memory.
 *
 * All memory, events and the stream are made at open; later nothing is. NCCL itself connects ranks
 * at the first call of a kind, which is harmless in one order: what it may wait for on this rank
 * are smaller numbers.
 *
 * Threads: different lanes may be stepped by different threads, and abort comes from yet another;
 * gate.c lets one at a time to the device and keeps nobody waiting.
 *
 * After an error of the device or NCCL the node is dead: every lane says what it was. The other
 * ranks do not know; whoever watches over the ranks calls tutti__nccl_node_abort on all of them.
 */
#ifndef TUTTI__NODE_NCCL_NCCL_H
#define TUTTI__NODE_NCCL_NCCL_H

#include "base/atomic.h"
#include "base/status.h"
#include "mem/device.h"
#include "node/node.h"

#include <stddef.h>

/* A power of two, more than lanes. */
#define TUTTI__NCCL_RING 8

/* In the leader's shared memory, which writes it; zeroed before any rank opens. */
typedef struct {
    tutti__word64_t entry[TUTTI__NCCL_RING]; /* of number k >= 1, at k % RING; see turns.c */
    /* For all communicators that take their tickets here: */
    tutti__word64_t last; /* ticket that was given; under lock */
    tutti__word_t lock;   /* 1: taken. Nobody waits for it */
} tutti__nccl_order_t;

/* Which types NCCL has with each operation up to PROD: a bit for each, by its number. */
typedef struct {
    uint32_t dtypes[TUTTI_PROD + 1];
} tutti__nccl_serves_t;

/* As the device says that the calling thread uses. */
void tutti__nccl_ask(const tutti__device_ops_t *ops, tutti__nccl_serves_t *ret_serves);
/* *serves becomes what both have. */
void tutti__nccl_agree(tutti__nccl_serves_t *serves, const tutti__nccl_serves_t *others);

typedef struct {
    const tutti__device_ops_t *ops;
    int device;
    uint32_t me, nlocal;        /* local ranks; flat: of all hosts, in the order of ranks */
    int flat;                   /* all the rest is of the host's ranks then, too; see above */
    int32_t leader;             /* the global rank of local rank 0, for naming who is waited for */
    tutti__node_t *host;        /* of the same ranks; the caller's, outlives this node */
    tutti__nccl_order_t *order; /* as mapped here; outlives this node */
    /* Of the communicator that this one is a part of: the same place for all that some rank of this
       host is in, if they may be used at the same time. Outlives this node. NULL: order */
    tutti__nccl_order_t *tickets;
    const tutti__nccl_id_t *id; /* the leader's, the same on all local ranks; not kept */
    size_t stage_bytes;         /* at least 16 * nlocal, the same on all local ranks */
    /* What NCCL has on all ranks of the communicator, as devices and libraries may differ. Not
       kept. NULL: what it has here */
    const tutti__nccl_serves_t *serves;
} tutti__nccl_open_t;

/*
 * Collective over the local ranks, but waits for none: tutti__nccl_node_settle says when it stands.
 * The calling thread uses the device from here on, as do all that step.
 *
 * stage_bytes of device memory are for alltoalls: all are cut into pieces of that size, and those
 * in place go through it.
 */
tutti_status_t tutti__nccl_node_open(const tutti__nccl_open_t *with, tutti__node_t **ret_node);

/* TUTTI__AGAIN: the ranks are not connected yet. To be called until it is TUTTI_OK, before the
   first start. */
tutti_status_t tutti__nccl_node_settle(tutti__node_t *node);

/*
 * The lane's next operation that moves data begins on the device after `event`'s last record, and
 * so do all later ones. Called by the lane's thread between operations, after the record; the event
 * is the caller's again when that operation has ended, however. NULL: none.
 *
 * At the other end, when step says TUTTI_OK, the result is there; but for a call that is `queued`,
 * which ends with LAUNCH: then it is there for the stream that the call names.
 */
void tutti__nccl_node_ready(tutti__node_t *node, uint32_t lane, tutti__devent_t *event);

/* Has all that was queued come? TUTTI__AGAIN: not yet, or it is being aborted: afterwards it tells
   of what is left in the stream. */
tutti_status_t tutti__nccl_node_queued(const tutti__node_t *node);

/* Rank 0's flat node: the turn of a call for which all ranks have come; 1, 2, ... Any thread. */
uint64_t tutti__nccl_node_next_turn(tutti__node_t *node);
/* Of what was queued, and is waited for by no call. TUTTI_ERR_TIMEOUT: the device has been at one
   operation for longer than this, without an end; without words. Other errors are NCCL's, and the
   end of the node. *ret_tag: of its call, if not TUTTI_OK. To be asked now and then, on a thread
   that uses the device; time counts from the first time it is seen at work. */
tutti_status_t tutti__nccl_node_overdue(tutti__node_t *node, uint64_t now_ns, uint64_t limit_ns,
                                        unsigned *ret_tag);

/* For the parts of this node's communicator. NULL: node is NULL. */
tutti__nccl_order_t *tutti__nccl_node_tickets(const tutti__node_t *node);

/* What its ranks agreed on, for another node of theirs. */
const tutti__nccl_serves_t *tutti__nccl_node_serves_what(const tutti__node_t *node);

/* Will node operations of this type and operation be served? reduces: else any is. The same on all
   ranks that agreed. divisor: as in node.h. */
int tutti__nccl_node_serves(const tutti__node_t *node, int reduces, tutti_dtype_t dtype,
                            tutti_op_t op, uint32_t divisor);

/*
 * Register device memory of nccl_alloc with the node's communicator, once it stands and before the
 * first start; the caller frees it after close, or after unregister. At most TUTTI__LANES times. A
 * failure leaves the others registered: if any rank of the host fails, all unregister.
 */
tutti_status_t tutti__nccl_node_register(tutti__node_t *node, void *ptr, size_t bytes);
/* All of it, before the first start; close does it by itself. */
void tutti__nccl_node_unregister(tutti__node_t *node);

/* End all work of NCCL, wherever it is; from here on the node is dead, and its lanes say so. Any
   thread, any time before close, as often as wanted: it happens once. If another thread is in a
   step, that one does it on its way out. Waits for NCCL only, and not for ever (abort.c). */
void tutti__nccl_node_abort(tutti__node_t *node);

/* Has an abort on this device not returned in time? Until it does, whatever waits for the device
   would wait for ever: freeing memory, dropping streams, allocating. */
int tutti__nccl_is_stuck(int device);

/* ---- inside ---- */

typedef enum {
    NCCL_IDLE,
    NCCL_MEET,
    NCCL_TURN,
    NCCL_LAUNCH,
    NCCL_FLIGHT
} tutti__nccl_phase_t;

typedef struct {
    tutti__nccl_phase_t phase;
    const tutti__node_call_t *call;
    tutti__node_call_t meet;
    tutti__devent_t *ready; /* the caller's, or NULL */
    tutti__devent_t *done;  /* recorded behind the calls */
} tutti__nccl_lane_t;

/* How far a call is cut into NCCL's. */
typedef struct {
    const tutti__node_call_t *call;
    tutti_dtype_t dtype; /* NCCL's: what moves only goes as bytes */
    tutti_op_t op;       /* NCCL's */
    size_t esize;        /* bytes of one of the call's elements */
    size_t scale;        /* NCCL's elements in one of the call's */
    uint32_t divisor;    /* left to divide by when NCCL is done; 0: none */
    uint32_t next;       /* block to go on with; alltoall: of each part */
    size_t skip;         /* alltoall: elements of that block's run that have gone already */
} tutti__nccl_cut_t;

typedef struct tutti__nccl_node tutti__nccl_node_t;
typedef struct tutti__nccl_overdue tutti__nccl_overdue_t;

#define TUTTI__NCCL_OVERDUE 128 /* a power of 2 */

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
    char *stage;                           /* [nlocal][stage_share] device memory */
    size_t stage_share;                    /* bytes; a multiple of 16 */
    tutti__nccl_call_t *calls;             /* [most_calls] */
    tutti__piece_t *pieces;                /* [nlocal] */
    uint32_t most_calls;                   /* at least 2 and 2 * nlocal */
    tutti__nccl_lane_t lane[TUTTI__LANES]; /* each its thread's, but for `done` */

    tutti__nccl_node_t *next_node; /* turns.c */
    tutti__word64_t number;        /* in the order, of the present launch or the next; written by
                                      who is inside the gate */
    tutti__word64_t turns;         /* flat, rank 0: how many it has given */

    tutti__word_t gate; /* gate.c; protects what follows */
    tutti__nccl_t *nccl;
    tutti__nccl_reg_t *reg[TUTTI__LANES];
    uint32_t nregs;
    int launching;         /* a lane is in LAUNCH */
    tutti__nccl_cut_t cut; /* its */
    uint32_t ncalls, npieces;
    tutti__nccl_overdue_t *overdue;      /* [overdue_room] a ring; overdue.c */
    uint32_t overdue_room;               /* a power of 2 */
    uint32_t overdue_first, overdue_end; /* count up */
    int overdue_open;                    /* overdue_end is the present launch's */
    tutti_status_t status;               /* of the first failure; with its words */
    char words[TUTTI__ERROR_BYTES];
};

extern const tutti__node_ops_t tutti__nccl_ops;
void tutti__nccl_close(tutti__node_t *node);

#define TUTTI__NCCL_INSIDE 1 /* in gate: somebody is; if there is more, the node is dead */

/* turns.c. A node that is connected joins its process's. */
void tutti__nccl_turns_join(tutti__nccl_node_t *self);
/* Also if it has not joined. */
void tutti__nccl_turns_leave(tutti__nccl_node_t *self);
/* May this lane launch now? Called inside the gate; the leader's first lane gets the next number
   by that. stuck: who is waited for, if it is known. */
int tutti__nccl_has_turn(tutti__nccl_node_t *self, uint32_t lane, tutti__stuck_t *stuck);

/* overdue.c. begin: in front of an operation's calls; end: behind them. */
tutti_status_t tutti__nccl_overdue_open(tutti__nccl_node_t *self);
void tutti__nccl_overdue_close(tutti__nccl_node_t *self);
tutti_status_t tutti__nccl_overdue_begin(tutti__nccl_node_t *self, const tutti__node_call_t *call);
tutti_status_t tutti__nccl_overdue_end(tutti__nccl_node_t *self);

/* abort.c. Of a communicator that nobody is in; it is no more. */
void tutti__nccl_abort(const tutti__device_ops_t *ops, int device, tutti__nccl_t *nccl);

/* gate.c. Enter: 1: the caller is alone with the device and NCCL until it leaves; 0: not now, or
   the node is dead. */
int tutti__nccl_enter(tutti__nccl_node_t *self);
/* status: of what was done; an error (not AGAIN) is the end of the node. Returned. */
tutti_status_t tutti__nccl_leave(tutti__nccl_node_t *self, tutti_status_t status);
/* TUTTI_OK, or why the node is dead. */
tutti_status_t tutti__nccl_alive(tutti__nccl_node_t *self);
/* Nobody steps any more. Close NCCL, or abort it if that is all that can be done: also if an
   operation has not ended, which nobody waits for. */
void tutti__nccl_end(tutti__nccl_node_t *self);

/* calls.c. Begin with a call. 0: NCCL and the device do not serve it; the same on all ranks. */
int tutti__nccl_cut_begin(const tutti__nccl_node_t *self, const tutti__node_call_t *call,
                          tutti__nccl_cut_t *ret_cut);
/* The next calls, to be queued behind the copies in pieces (bytes). 0: there are no more. */
int tutti__nccl_cut_next(tutti__nccl_node_t *self, tutti__nccl_cut_t *cut);
/* Queue what is to be done behind the last of them. */
tutti_status_t tutti__nccl_divide(tutti__nccl_node_t *self, const tutti__nccl_cut_t *cut);

#endif
