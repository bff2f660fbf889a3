/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The point-to-point table: the functions of a transport for messages between two ranks. Schedules
 * (sched/sched.h) send and receive messages through channels.
 *
 * A channel is identified by (lane, source, destination, stream of the source's schedule). A
 * channel carries messages of at most slot_bytes bytes, first in first out. The receiver has
 * `credits` slots for these messages. Each rank opens its own end of a channel. The functions for
 * messages never block: a function that cannot continue yet returns TUTTI__AGAIN; call it later.
 *
 * - Sender: call send() until it no longer returns TUTTI__AGAIN. If send() returns TUTTI_OK and
 *   sets *ret_pending, the transport still reads the bytes. In this case, call flush() until
 *   flush() returns TUTTI_OK. Before that, do not overwrite the bytes or call send(). If flush() or
 *   view() returns TUTTI__AGAIN, it has advanced the messages of all ends of this transport.
 * - Receiver: expect() passes the number of messages that the current collective call will receive,
 *   so that the transport can post receives ahead. view() returns the next message where it is: in
 *   a slot in shared memory, or in a staging buffer. release() gives the slot back to the
 *   transport. expect_at() replaces expect() for one message, and passes the place where the
 *   transport stores this message. view() then returns this place. The transport may write there
 *   until release().
 *
 * GPU-direct ends carry messages from and to device memory, over transports that accept device
 * memory. The key of a GPU-direct end has a slot_bytes above 0, and a stream number from
 * TUTTI__XPORT_GPU_DIRECT on. The caller provides the receiver's slots, because no transport can
 * allocate device memory. GPU-direct ends also stay open until close. While such an end expects no
 * message, the caller may open it again with other slots.
 *
 * In a communicator of several hosts with at most 64 ranks, messages may be longer than slot_bytes,
 * because each message between hosts costs system calls and polls of both ranks. All ranks cut the
 * data of a call into the same messages. So the longest message of a communicator is the smallest
 * most_bytes of its transports, and the transport inside the hosts also has long slots.
 *
 * One thread at a time uses one lane of one xport; different threads may use different lanes.
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
    uint32_t stream; /* the sender's stream; GPU-direct ends: plus TUTTI__XPORT_GPU_DIRECT */
    /* For GPU-direct ends only. For other ends these are 0: the transport has slots of its own. */
    uint32_t credits;  /* number of the receiver's slots */
    size_t slot_bytes; /* longest message; a multiple of 64 */
    char *slots;       /* for a receiver: [credits x slot_bytes]. The caller frees the slots after
                          close; if `keeps` has returned 1, the caller never frees them */
} tutti__chan_key_t;

#define TUTTI__XPORT_GPU_DIRECT 4 /* the largest number of streams of a schedule */
#define TUTTI__ANY_BYTES SIZE_MAX /* for view: a message of any length */

typedef struct {
    const char *name;    /* "shm", as in TUTTI_TRANSPORT=shm */
    const char *purpose; /* one line, for users */

    void (*close)(tutti__xport_t *xport);

    /* An end is opened at its first use, and stays open until close. A second open returns it. */
    tutti_status_t (*open_send)(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan);
    tutti_status_t (*open_recv)(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan);

    /* signature: a hash of the collective call's arguments, see exec/exec.h. If the transport can
       send signatures, view returns TUTTI_ERR_MISMATCH to a receiver with another signature. A
       wrong length is a mismatch on all transports. view also accepts TUTTI__ANY_BYTES. */
    tutti_status_t (*send)(tutti__chan_t *chan, const void *data, size_t bytes, uint32_t signature,
                           int *ret_pending, tutti__hint_t *hint);
    tutti_status_t (*flush)(tutti__chan_t *chan, tutti__hint_t *hint);

    tutti_status_t (*expect)(tutti__chan_t *chan, size_t messages); /* NULL: not needed */
    /* NULL: the transport cannot receive into a given place. TUTTI__AGAIN: the caller must release
       earlier messages first; if there are no earlier messages, expect_at never returns
       TUTTI__AGAIN. The transport writes at most `bytes` bytes to `place`. */
    tutti_status_t (*expect_at)(tutti__chan_t *chan, void *place, size_t bytes);
    tutti_status_t (*view)(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                           const void **ret_data, tutti__hint_t *hint);
    size_t (*length)(const tutti__chan_t *chan); /* of the message that view returned */
    void (*release)(tutti__chan_t *chan);

    /* progress: advance the messages in flight; NULL: not needed. may_progress: may the calling
       thread call progress? (With some thread levels, MPI allows only some threads.) is_engine 1:
       the calling thread is the engine's thread. */
    tutti_status_t (*progress)(tutti__xport_t *xport);
    int (*may_progress)(tutti__xport_t *xport, int is_engine);

    /* Sleep until a message may have arrived, `fd` is readable (-1: no descriptor), or the time has
       passed. Returns 1 if fd is readable. Poll for messages just before. Any thread; several
       threads may sleep at the same time. If another thread takes a sleeper's message from the
       network, the sleeper is not woken, so the time must be short. NULL: messages wake no
       sleeper. */
    int (*sleep)(tutti__xport_t *xport, int fd, int64_t timeout_us);

    /* After an error: abandon all messages in flight of this lane, so that the transport no longer
       accesses the caller's buffers. */
    void (*cancel)(tutti__xport_t *xport, uint32_t lane);

    /* Prepare for GPU-direct ends, with memory of this kind of device ("cuda").
       TUTTI_ERR_UNSUPPORTED, with the reason: the transport does not accept this memory. NULL: the
       transport accepts no device memory. Call it before the first GPU-direct end is opened. */
    tutti_status_t (*take_device)(tutti__xport_t *xport, const char *device);
    /* Abandon the messages still in flight. Returns 1 if the transport may still read sent
       messages, or write messages of GPU-direct ends: their memory must never be freed. NULL: as 0.
       Call it before close, when no thread uses the transport any more. */
    int (*keeps)(tutti__xport_t *xport);
} tutti__xport_ops_t;

/* Each transport's own structure begins with this structure. */
struct tutti__xport {
    const tutti__xport_ops_t *ops;
    size_t most_bytes;   /* longest message; 0: the communicator's slot_bytes */
    size_t least_placed; /* the shortest message for expect_at */
    int sends_alone;     /* 1: pending messages are sent without polls of the sender */
};

/* Factors by which messages between hosts may be longer than slot_bytes. Measured:
   docs/decisions.md, "With up to 64 ranks". */
enum {
    TUTTI__XPORT_LONGER_MPI = 2,
    TUTTI__XPORT_LONGER_UCX = 4,
    TUTTI__XPORT_LONGER = TUTTI__XPORT_LONGER_UCX, /* the largest factor */
    TUTTI__XPORT_LONG =
        1 << 20, /* bytes: limit of factor x slot_bytes. A larger slot_bytes is not reduced */
    TUTTI__XPORT_MOST_LONG = 64 /* ranks; with more ranks, all peers' slots take too much memory */
};

/* The longest message between the hosts of a communicator of `size` ranks. slot_bytes: the length
   chosen for TUTTI_CHUNK_BYTES; longer: one of the factors above. Equal on all ranks. */
static inline size_t tutti__xport_long(size_t slot_bytes, uint32_t size, size_t longer)
{
    size_t most = slot_bytes > TUTTI__XPORT_LONG ? slot_bytes : TUTTI__XPORT_LONG;
    size_t bytes = slot_bytes * longer;

    if (size > TUTTI__XPORT_MOST_LONG)
        return slot_bytes;
    return bytes < most ? bytes : most;
}

#endif
