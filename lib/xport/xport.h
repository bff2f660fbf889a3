/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The point-to-point table: channels between two ranks, as schedules use them.
 *
 * A channel is named by (lane, source, destination, stream); it carries messages of at most
 * slot_bytes, first in first out, with `credits` slots on the receiver's side. Nothing here ever
 * blocks: what cannot go on answers TUTTI__AGAIN and is called again.
 *
 * A sender's end: send() until it is not AGAIN; if it answered TUTTI_OK and set *ret_pending, the
 *   bytes are still being read: flush() until OK before they may be overwritten.
 * A receiver's end: expect() says how many messages this call will bring (they may be posted
 *   ahead); view() lends the next message where it already is - a slot in shared memory, or a
 *   posted staging buffer; release() gives the slot back.
 *
 * Direct ends (slot_bytes in their key, on streams from TUTTI__XPORT_DIRECT on) carry messages from
 * and to memory of a device, for transports that take it. The receiver's slots are the caller's:
 * no transport can make such memory. Ends live until close, so the slots may be others each time
 * one is asked for, while nothing is expected.
 *
 * One thread at a time uses one lane of one xport; different lanes may be used by different
 * threads.
 */
#ifndef TUTTI__XPORT_XPORT_H
#define TUTTI__XPORT_XPORT_H

#include "base/status.h"
#include "conf/conf.h"
#include "sched/step.h"

#include <tutti/tutti.h>

typedef struct tutti__xport tutti__xport_t;
typedef struct tutti__chan tutti__chan_t;

typedef struct {
    uint32_t lane;
    uint32_t peer;   /* rank at the other end */
    uint32_t stream; /* the producer's; of direct ends: TUTTI__XPORT_DIRECT more */
    /* Of direct ends only; 0: the transport's own slots. */
    uint32_t credits;  /* a receiver's */
    size_t slot_bytes; /* longest message; a multiple of 64 */
    char *slots;       /* a receiver's: [credits x slot_bytes], the caller's until close, or for
                          ever if `keeps` says so then */
} tutti__chan_key_t;

#define TUTTI__XPORT_DIRECT 4 /* as schedules have so many streams */

typedef struct {
    const char *name;    /* "shm", as in TUTTI_XPORT=shm */
    const char *purpose; /* one line, for people */

    void (*close)(tutti__xport_t *xport);

    /* Ends are opened at first use, live until close, and may be asked for again: the same end. */
    tutti_status_t (*open_send)(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan);
    tutti_status_t (*open_recv)(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan);

    /* signature: of the call; a receiver with another one gets TUTTI_ERR_MISMATCH where the
       transport can carry it, and a wrong length is a mismatch on all. */
    tutti_status_t (*send)(tutti__chan_t *chan, const void *data, size_t bytes, uint32_t signature,
                           int *ret_pending, tutti__stuck_t *stuck);
    tutti_status_t (*flush)(tutti__chan_t *chan, tutti__stuck_t *stuck);

    tutti_status_t (*expect)(tutti__chan_t *chan, size_t messages); /* NULL: no need to know */
    tutti_status_t (*view)(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                           const void **ret_data, tutti__stuck_t *stuck);
    void (*release)(tutti__chan_t *chan);

    /* Move what is in flight; NULL if nothing needs it. May the calling thread do so? (An MPI below
       the level it needs allows some threads only.) is_engine: the library's own thread. */
    tutti_status_t (*progress)(tutti__xport_t *xport);
    int (*may_progress)(tutti__xport_t *xport, int is_engine);

    /* After an error: give up all messages of this lane that are in flight, so that no buffer of
       the user is touched any more. */
    void (*cancel)(tutti__xport_t *xport, uint32_t lane);

    /* 1: direct ends may have memory of the device that is called so ("cuda"). NULL: of none. */
    int (*takes_device)(tutti__xport_t *xport, const char *device);
    /* 1: messages of direct ends were given up that may still be read, or written to slots, so that
       this memory may not be freed any more. NULL: never. Asked before close, when nobody uses the
       transport any more: what is still in flight is given up first. */
    int (*keeps)(tutti__xport_t *xport);
} tutti__xport_ops_t;

/* Every implementation begins with this. */
struct tutti__xport {
    const tutti__xport_ops_t *ops;
};

#endif
