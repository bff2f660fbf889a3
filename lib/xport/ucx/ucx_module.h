/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Declarations for the files of the UCX module: the process's context, one transport, its channels.
 *
 * A transport has one worker and one lock. All calls to UCX for the worker are made under the lock.
 * UCX's callbacks run inside these calls, so also under the lock. No call waits under the lock.
 */
#ifndef TUTTI__XPORT_UCX_MODULE_H
#define TUTTI__XPORT_UCX_MODULE_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "boot/module.h"
#include "xport/xport.h"

#include <pthread.h>
#include <signal.h>
#include <ucp/api/ucp.h>

typedef struct tutti__ucx_xport tutti__ucx_xport_t;

/* The rank at the other end of an endpoint. */
typedef struct {
    tutti__ucx_xport_t *xport;
    const ucp_address_t *address;
    tutti__word_t failed; /* the endpoint is lost */
    /* Under the transport's lock: */
    ucp_ep_h ep;      /* NULL: not made yet, or closed */
    int is_connected; /* a message has left */
    ucs_status_t why; /* the error, if `failed` */
} tutti__ucx_peer_t;

/* One posted receive. */
typedef struct {
    void *at;           /* the slot's own memory, or the message's place */
    size_t capacity;    /* bytes there */
    void *memory;       /* of UCX's request; see tutti__ucx_request */
    void *request;      /* of UCX, under the lock; NULL: complete */
    tutti__word_t done; /* stored by the completion, with release: the fields below are valid */
    ucs_status_t result;
    size_t bytes;
    uint32_t signature;
} tutti__ucx_slot_t;

/* One end of a channel. */
struct tutti__chan {
    tutti__ucx_xport_t *xport;
    tutti__chan_t *next; /* in the same lane */
    tutti__chan_key_t key;
    size_t slot_bytes;             /* longest message */
    ucs_memory_type_t memory_type; /* of the messages' blocks and slots */
    tutti__ucx_peer_t *peer;
    uint64_t tag; /* without signature */
    int receives;
    tutti_status_t status; /* the first error; it ends the channel */
    /* If the endpoint is lost: when the present wait began, and the time of its last poll; 0: there
       was no poll. See again() in chan.c. */
    uint64_t since_ns, polled_ns;

    /* Sender: */
    int is_sending;       /* a message is in flight, or `done` was not read yet */
    void *request_memory; /* as in a slot */
    void *request;        /* of UCX, under the lock; NULL: complete */
    tutti__word_t done;   /* as in a slot */
    ucs_status_t result;

    /* Receiver: `posted` slots from `head` on have a posted receive, or a message that was not
       released yet, in order. */
    void *requests;          /* memory of the end's requests */
    uint32_t capacity;       /* number of elements of `slot` */
    tutti__ucx_slot_t *slot; /* [capacity] */
    uint32_t credits;        /* number of slots in use */
    unsigned char *bytes;    /* the slots' memory; of a GPU-direct end: the caller's */
    ucp_mem_h memory;        /* registration of `bytes`; NULL: a GPU-direct end */
    uint32_t head, posted;
    size_t expected; /* messages of this call that are not posted yet */
};

struct tutti__ucx_xport {
    tutti__xport_t base;
    tutti__xport_ops_t table; /* base.ops */
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address; /* of this worker */
    size_t address_bytes;
    int event_fd; /* readable when the worker has something to do; -1: messages wake no sleeper */
    pthread_mutex_t lock;
    uint32_t rank, size, credits;
    size_t request_bytes; /* of UCX's requests */
    void *kept;           /* requests of discarded messages; freed after the worker is destroyed */
    size_t slot_bytes;
    ucs_memory_type_t device_type;      /* of GPU-direct ends; UNKNOWN: none can be opened */
    char *addresses;                    /* [size] of all workers, `stride` bytes apart */
    tutti__ucx_peer_t *peer;            /* [size] */
    int has_reached;                    /* an endpoint was made; under the lock */
    tutti__chan_t *chans[TUTTI__LANES]; /* each list belongs to the lane's thread */
    tutti__word_t cancelled; /* a lane was cancelled: messages in flight may never be complete */
    tutti__word_t abandoned; /* no thread calls UCX for this worker any more: see xport.c */
    tutti__ucx_xport_t *next_abandoned;
};

/* ucx_module.c: the context of this process, shared by its transports */
tutti_status_t tutti__ucx_take_context(const tutti__core_t *core, uint32_t size, int shares,
                                       ucp_context_h *ret_context, int *ret_wakes);
void tutti__ucx_drop_context(void);
/* Does the machine have a device with RDMA? */
int tutti__ucx_has_rdma(void);
/* UCX's type of the memory of this kind of device. TUTTI_ERR_UNSUPPORTED, with the reason, if UCX
   cannot send this memory, or would copy it through host memory. */
tutti_status_t tutti__ucx_find_device(ucp_context_h context, const char *device,
                                      ucs_memory_type_t *ret_type);

tutti_status_t tutti__ucx_fail(tutti_status_t status, const char *fmt, ...) TUTTI__PRINTF(2, 3);
/* For a call to UCX that failed: "ucx: <what>: <UCX's text>". */
tutti_status_t tutti__ucx_fail_code(ucs_status_t code, const char *fmt, ...) TUTTI__PRINTF(2, 3);
void tutti__ucx_log(tutti__log_level_t level, const char *fmt, ...) TUTTI__PRINTF(2, 3);
int tutti__ucx_log_on(tutti__log_level_t level);

/* networks.c: log the networks of an endpoint to this rank, as "tcp/eth0, rc_mlx5/mlx5_0:1". Under
   the transport's lock. */
void tutti__ucx_log_networks(tutti__log_level_t level, ucp_ep_h ep, uint32_t peer);

/* Call these before and after a call that may start UCX's thread. The thread inherits the signal
   mask, so it receives no signal of the program. */
void tutti__ucx_block_signals(sigset_t *ret_before);
void tutti__ucx_restore_signals(const sigset_t *before);

/*
 * Requests have memory of this module instead of UCX's. UCX cannot take back the request of a
 * message that has arrived in part, and would warn of it when the worker is destroyed.
 *
 *      memory | UCX's own, request_bytes | <-- the pointer that stands for the request
 */
static inline size_t tutti__ucx_request_bytes(const tutti__ucx_xport_t *xport)
{
    return TUTTI__ROUND_UP(xport->request_bytes, (size_t)TUTTI__LINE_BYTES);
}

static inline void *tutti__ucx_request(const tutti__ucx_xport_t *xport, void *memory)
{
    return (char *)memory + xport->request_bytes;
}

/* xport.c */
tutti_status_t tutti__ucx_open(const tutti__core_t *core, uint32_t rank, uint32_t size, int shares,
                               size_t slot_bytes, uint32_t credits, tutti__xport_t **ret_xport,
                               const void **ret_address, size_t *ret_bytes);
tutti_status_t tutti__ucx_connect(tutti__xport_t *xport, const void *addresses, size_t stride);
/* Poll the worker, unless another thread has the lock: its polls serve this thread as well. */
void tutti__ucx_advance(tutti__ucx_xport_t *xport);
/* Make the peer's endpoint, if there is none. Under the lock. */
ucs_status_t tutti__ucx_reach(tutti__ucx_peer_t *peer);
/* Mark the endpoint as lost. Takes the lock. */
void tutti__ucx_lost(tutti__ucx_peer_t *peer, ucs_status_t why);

/* chan.c: the functions of the table for one channel */
tutti_status_t tutti__ucx_chan_open(tutti__ucx_xport_t *xport, const tutti__chan_key_t *key,
                                    int receives, tutti__chan_t **ret_chan);
/* Give a GPU-direct end other slots. */
tutti_status_t tutti__ucx_chan_lend(tutti__chan_t *chan, const tutti__chan_key_t *key);
/* Call this when no message of the channel is in flight, or the worker is destroyed. */
void tutti__ucx_chan_free(tutti__chan_t *chan);
tutti_status_t tutti__ucx_chan_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                    uint32_t signature, int *ret_pending, tutti__hint_t *hint);
tutti_status_t tutti__ucx_chan_flush(tutti__chan_t *chan, tutti__hint_t *hint);
tutti_status_t tutti__ucx_chan_expect(tutti__chan_t *chan, size_t messages);
tutti_status_t tutti__ucx_chan_expect_at(tutti__chan_t *chan, void *place, size_t bytes);
tutti_status_t tutti__ucx_chan_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                                    const void **ret_data, tutti__hint_t *hint);
size_t tutti__ucx_chan_length(const tutti__chan_t *chan);
void tutti__ucx_chan_release(tutti__chan_t *chan);
/* cancel: cancel the receives. pending: count the messages in flight. Both under the lock. */
void tutti__ucx_chan_cancel(tutti__chan_t *chan);
uint32_t tutti__ucx_chan_pending(const tutti__chan_t *chan);
/* After a cancel: is there a message that has arrived in part, and that UCX writes into a caller's
   memory? Under the lock. */
int tutti__ucx_chan_is_placing(const tutti__chan_t *chan);

#endif
