/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Declarations for the files of the MPI module: the process's MPI, meetings (boot.h), transports.
 *
 * All calls to MPI for messages and gathers are made under one lock (tutti__mpi_enter()). The lock
 * also protects the fields of channels. All calls of MPI under the lock return at once.
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

    /* Receiver: `posted` slots from `head` on are in use, in the order of messages. Each has a
       posted receive, or a message that is not released yet. */
    unsigned char *slots;        /* [credits x slot_bytes]; for a GPU-direct end: the caller's */
    MPI_Request *posted_request; /* [capacity] */
    uint32_t credits, capacity;
    uint32_t head, posted;
    size_t expected; /* receives of the current call that are not posted yet */
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
    uint32_t *world;  /* [size] the ranks' numbers in the meeting */
    uint32_t *number; /* [size] each rank's number for this transport, in tags of messages to it */
    tutti__chan_t *chans[TUTTI__LANES];
    int keeps; /* 1: sends, or receives of GPU-direct ends, were abandoned */
};

/* mpi_module.c: the process's MPI */

/* Start MPI, and determine which threads may call MPI. Call it before all other functions here. */
tutti_status_t tutti__mpi_start(const tutti__core_t *core);
/* Take the lock for MPI calls. After an error the lock is not taken. SHUTDOWN: MPI was finalized;
   PEER_LOST: the process is exiting. rank: the rank of this process in the world. */
tutti_status_t tutti__mpi_enter(uint32_t rank);
void tutti__mpi_leave(void);
/* Take the same lock, even if MPI does not run any more: to access lists and memory. */
void tutti__mpi_lock(void);
int tutti__mpi_is_gone(void); /* under the lock */
int tutti__mpi_most_tag(void);
int tutti__mpi_may_call(int is_engine);
void tutti__mpi_add_xport(tutti__mpi_xport_t *xport);
void tutti__mpi_remove_xport(tutti__mpi_xport_t *xport);
void tutti__mpi_count_meets(int change);
/* Put memory that MPI may still use into a list, for leak checkers. The memory is never freed. */
void tutti__mpi_keep(void *memory);
void tutti__mpi_give_up(void);
tutti_status_t tutti__mpi_still(void); /* the library's check for ranks that have ended */

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
/* Abandon all messages in flight at once, because MPI is about to end. Under the lock. */
void tutti__mpi_xport_drop(tutti__mpi_xport_t *xport);

/* chan.c: the functions of tutti__xport_ops_t for one channel */
tutti_status_t tutti__mpi_chan_open(tutti__mpi_xport_t *xport, const tutti__chan_key_t *key,
                                    int receives, tutti__chan_t **ret_chan);
void tutti__mpi_chan_free(tutti__chan_t *chan);
/* Open a receiver's GPU-direct end again, with the slots of `key`. */
tutti_status_t tutti__mpi_chan_lend(tutti__chan_t *chan, const tutti__chan_key_t *key);
tutti_status_t tutti__mpi_chan_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                    uint32_t signature, int *ret_pending, tutti__hint_t *hint);
tutti_status_t tutti__mpi_chan_flush(tutti__chan_t *chan, tutti__hint_t *hint);
tutti_status_t tutti__mpi_chan_expect(tutti__chan_t *chan, size_t messages);
tutti_status_t tutti__mpi_chan_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                                    const void **ret_data, tutti__hint_t *hint);
size_t tutti__mpi_chan_length(const tutti__chan_t *chan);
void tutti__mpi_chan_release(tutti__chan_t *chan);
/* The steps of giving up messages, under the lock. cancel: ask MPI to cancel receives. pending:
   count the messages in flight. abandon: give these up, and keep the memory that MPI may access. */
void tutti__mpi_chan_cancel(tutti__chan_t *chan);
uint32_t tutti__mpi_chan_pending(tutti__chan_t *chan);
void tutti__mpi_chan_abandon(tutti__chan_t *chan);

#endif
