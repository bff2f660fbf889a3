/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Declarations for the files of the MPI module: the process's MPI, meetings, transports.
 *
 * All calls to MPI for messages and gathers are made under one lock (tutti__mpi_enter()). The lock
 * also protects the fields of channels. Only calls that return at once are made under the lock.
 */
#ifndef TUTTI__XPORT_MPI_MODULE_H
#define TUTTI__XPORT_MPI_MODULE_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "boot/module.h"
#include "xport/xport.h"

#include <mpi.h>
#include <pthread.h>

typedef struct tutti__mpi_xport tutti__mpi_xport_t;

/* One meeting: a duplicate of the caller's communicator. */
typedef struct tutti__mpi_meet {
    MPI_Comm parent;
    MPI_Comm comm; /* the duplicate; MPI_COMM_NULL until the first allgather */
    uint32_t rank, size;
    uint32_t next_number; /* number of this rank's next transport */
    int broken;           /* a gather was abandoned, so later gathers would not match the peers' */
    int stale;            /* messages may be in flight that no rank will receive: see meet_close */
} tutti__mpi_meet_t;

/* One end of a channel. */
struct tutti__chan {
    tutti__mpi_xport_t *xport;
    tutti__chan_t *next; /* in the same lane */
    tutti__chan_key_t key;
    int mpi_rank; /* the peer's rank in the communicator */
    int tag;
    int receives;
    tutti_status_t status; /* the first error; it ends the channel */

    /* Sender: */
    MPI_Request sending; /* MPI_REQUEST_NULL: nothing in flight */

    size_t slot_bytes; /* longest message */

    /* Receiver: `posted` slots from `head` on have a posted receive, or a message that was not
       released yet, in order. */
    unsigned char *slots;        /* [credits x slot_bytes]; of GPU-direct ends: the caller's */
    MPI_Request *posted_request; /* [capacity] */
    uint32_t credits, capacity;
    uint32_t head, posted;
    size_t expected; /* messages of this call that are not posted yet */
    int arrived;     /* the head slot's message has arrived */
    size_t arrived_bytes;
};

struct tutti__mpi_xport {
    tutti__xport_t base;
    tutti__mpi_xport_t *next; /* in the process's list */
    tutti__mpi_meet_t *meet;
    size_t slot_bytes;
    uint32_t credits;
    uint32_t rank, size;
    uint32_t *world;  /* [size] ranks in the meeting */
    uint32_t *number; /* [size] each rank's number for this transport, in tags of messages to it */
    tutti__chan_t *chans[TUTTI__LANES];
    int keeps; /* sends, or receives of GPU-direct ends, were abandoned */
};

/* mpi_module.c: the process's MPI */

/* Start MPI, and determine the threads that may call it. Call this before all other functions
   here. */
tutti_status_t tutti__mpi_start(const tutti__core_t *core);
/* Take the lock for MPI calls. An error leaves it free: TUTTI_ERR_SHUTDOWN after MPI was finalized,
   TUTTI_ERR_PEER_LOST while the process exits. rank: the rank of this process in the world. */
tutti_status_t tutti__mpi_enter(uint32_t rank);
void tutti__mpi_leave(void);
/* Take the same lock, even if MPI does not run any more: for lists and memory. */
void tutti__mpi_lock(void);
int tutti__mpi_is_gone(void); /* under the lock */
int tutti__mpi_most_tag(void);
int tutti__mpi_may_call(int is_engine);
void tutti__mpi_add_xport(tutti__mpi_xport_t *xport);
void tutti__mpi_remove_xport(tutti__mpi_xport_t *xport);
void tutti__mpi_count_meets(int change);
/* Put memory that MPI may still use into a list, for leak checkers. It is never freed. */
void tutti__mpi_keep(void *memory);
void tutti__mpi_give_up(void);
tutti_status_t tutti__mpi_still(void); /* the core's check for ranks that have ended */

tutti_status_t tutti__mpi_fail(tutti_status_t status, const char *fmt, ...) TUTTI__PRINTF(2, 3);
/* Set the error of an MPI call that has returned `code`: "mpi: <what>: <MPI's own text>". */
tutti_status_t tutti__mpi_fail_code(int code, const char *fmt, ...) TUTTI__PRINTF(2, 3);
void tutti__mpi_log(tutti__log_level_t level, const char *fmt, ...) TUTTI__PRINTF(2, 3);

/* meet_mpi.c */
tutti_status_t tutti__mpi_meet(const tutti__core_t *core, const void *mpi_comm,
                               tutti__meet_t *ret_meet);

/* xport.c */
tutti_status_t tutti__mpi_xport_open(const tutti__meet_t *meet, size_t slot_bytes, uint32_t credits,
                                     tutti__xport_t **ret_xport);
tutti_status_t tutti__mpi_xport_open_part(const tutti__meet_t *meet, const tutti__part_t *part,
                                          size_t slot_bytes, uint32_t credits,
                                          tutti__xport_t **ret_xport);
tutti_status_t tutti__mpi_take_number(const tutti__meet_t *meet, uint32_t *ret_number);
/* MPI is about to end: abandon all messages in flight at once. Under the lock. */
void tutti__mpi_xport_drop(tutti__mpi_xport_t *xport);

/* chan.c: the functions of the table for one channel */
tutti_status_t tutti__mpi_chan_open(tutti__mpi_xport_t *xport, const tutti__chan_key_t *key,
                                    int receives, tutti__chan_t **ret_chan);
void tutti__mpi_chan_free(tutti__chan_t *chan);
/* Open a receiver's GPU-direct end again, with the slots in `key`. */
tutti_status_t tutti__mpi_chan_lend(tutti__chan_t *chan, const tutti__chan_key_t *key);
tutti_status_t tutti__mpi_chan_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                    uint32_t signature, int *ret_pending, tutti__hint_t *hint);
tutti_status_t tutti__mpi_chan_flush(tutti__chan_t *chan, tutti__hint_t *hint);
tutti_status_t tutti__mpi_chan_expect(tutti__chan_t *chan, size_t messages);
tutti_status_t tutti__mpi_chan_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                                    const void **ret_data, tutti__hint_t *hint);
size_t tutti__mpi_chan_length(const tutti__chan_t *chan);
void tutti__mpi_chan_release(tutti__chan_t *chan);
/* The steps of giving up, all under the lock. cancel: ask MPI to cancel receives. pending: count
   the messages still in flight. abandon: give these up, and keep the memory that MPI may touch. */
void tutti__mpi_chan_cancel(tutti__chan_t *chan);
uint32_t tutti__mpi_chan_pending(tutti__chan_t *chan);
void tutti__mpi_chan_abandon(tutti__chan_t *chan);

#endif
