/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Declarations for the files of the UCX module: the process's context, one transport, its channels.
 *
 * A transport has one UCX worker and one lock. All calls to UCX for the worker are made under the
 * lock. UCX's callbacks run inside these calls, also under the lock. No call waits under the lock.
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
    int is_connected; /* 1: a message over the endpoint was sent */
    ucs_status_t why; /* the error, if `failed` */
} tutti__ucx_peer_t;

/* One posted receive. */
typedef struct {
    void *at;           /* the message's address: in the slot's memory, or expect_at's `place` */
    size_t capacity;    /* bytes at `at` */
    void *memory;       /* memory for UCX's request; see tutti__ucx_request */
    void *request;      /* UCX's request, under the lock; NULL: complete */
    tutti__word_t done; /* set by UCX's completion, with release: the fields below are valid */
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
    /* If the endpoint is lost: the time when the current wait began, and the time of the last poll
       in this wait; 0: there was no poll. See again() in chan.c. */
    uint64_t since_ns, polled_ns;

    /* Sender: */
    int is_sending;       /* a message is in flight, or the end's thread has not read `done` yet */
    void *request_memory; /* as in a slot */
    void *request;        /* UCX's request, under the lock; NULL: complete */
    tutti__word_t done;   /* as in a slot */
    ucs_status_t result;

    /* Receiver: `posted` slots from `head` on are in use, in the order of messages. Each has a
       posted receive, or a message that is not released yet. */
    void *requests;          /* memory for the requests of this end */
    uint32_t capacity;       /* number of elements of `slot` */
    tutti__ucx_slot_t *slot; /* [capacity] */
    uint32_t credits;        /* number of slots in use */
    unsigned char *bytes;    /* memory of the slots; for a GPU-direct end: the caller's memory */
    ucp_mem_h memory;        /* registration of `bytes`; NULL: a GPU-direct end */
    uint32_t head, posted;
    size_t expected; /* receives of the current call that are not posted yet */
};

struct tutti__ucx_xport {
    tutti__xport_t base;
    tutti__xport_ops_t table; /* base.ops */
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address; /* of this worker */
    size_t address_bytes;
    int event_fd; /* readable when the worker has an event; -1: messages wake no sleeper */
    pthread_mutex_t lock;
    uint32_t rank, size, credits;
    size_t request_bytes; /* bytes of one request of UCX */
    void *kept;           /* requests of discarded messages; freed after the worker is destroyed */
    size_t slot_bytes;
    ucs_memory_type_t device_type;      /* of GPU-direct ends; UNKNOWN: there can be none */
    char *addresses;                    /* [size] the workers' addresses, `stride` bytes apart */
    tutti__ucx_peer_t *peer;            /* [size] */
    int has_reached;                    /* 1: an endpoint was made; under the lock */
    tutti__chan_t *chans[TUTTI__LANES]; /* each list belongs to the lane's thread */
    tutti__word_t cancelled; /* 1: a lane was cancelled: messages in flight may never be complete */
    tutti__word_t abandoned; /* 1: no thread calls UCX for this worker any more; see xport.c */
    tutti__ucx_xport_t *next_abandoned;
};

/* ucx_module.c: the context of this process, shared by its transports */
tutti_status_t tutti__ucx_take_context(const tutti__core_t *core, uint32_t size, int shares,
                                       ucp_context_h *ret_context, int *ret_wakes);
void tutti__ucx_drop_context(void);
/* Does the machine have a device with RDMA? */
int tutti__ucx_has_rdma(void);
/* Find UCX's memory type for a kind of device, such as "cuda". TUTTI_ERR_UNSUPPORTED, with the
   reason: UCX cannot send from such memory, or would copy the data through host memory. */
tutti_status_t tutti__ucx_find_device(ucp_context_h context, const char *device,
                                      ucs_memory_type_t *ret_type);

tutti_status_t tutti__ucx_fail(tutti_status_t status, const char *fmt, ...) TUTTI__PRINTF(2, 3);
/* Set the error of a call to UCX that has returned `code`: "ucx: <what>: <UCX's text>". */
tutti_status_t tutti__ucx_fail_code(ucs_status_t code, const char *fmt, ...) TUTTI__PRINTF(2, 3);
void tutti__ucx_log(tutti__log_level_t level, const char *fmt, ...) TUTTI__PRINTF(2, 3);
int tutti__ucx_log_on(tutti__log_level_t level);

/* networks.c: log the networks that UCX uses for an endpoint, as in "tcp/eth0, rc_mlx5/mlx5_0:1".
   Call it under the transport's lock. */
void tutti__ucx_log_networks(tutti__log_level_t level, ucp_ep_h ep, uint32_t peer);

/* Call these before and after a call that may start UCX's thread. The thread inherits the signal
   mask, so it receives no signal of the program. */
void tutti__ucx_block_signals(sigset_t *ret_before);
void tutti__ucx_restore_signals(const sigset_t *before);

/*
 * The module allocates the memory of UCX's requests. UCX could not take back its own request if the
 * message has arrived in part, and would warn when the worker is destroyed.
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
/* Poll the worker, unless another thread has the lock: that thread's polls serve all threads. */
void tutti__ucx_advance(tutti__ucx_xport_t *xport);
/* Make the peer's endpoint, if there is none. Call it under the lock. */
ucs_status_t tutti__ucx_reach(tutti__ucx_peer_t *peer);
/* Mark the endpoint as lost. Takes the lock. */
void tutti__ucx_lost(tutti__ucx_peer_t *peer, ucs_status_t why);

/* chan.c: the functions of tutti__xport_ops_t for one channel */
tutti_status_t tutti__ucx_chan_open(tutti__ucx_xport_t *xport, const tutti__chan_key_t *key,
                                    int receives, tutti__chan_t **ret_chan);
/* Give a GPU-direct end other slots. */
tutti_status_t tutti__ucx_chan_lend(tutti__chan_t *chan, const tutti__chan_key_t *key);
/* Call this only when no message of the channel is in flight, or after the worker was destroyed. */
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
/* cancel: cancel the receives. pending: count the messages in flight. Call both under the lock. */
void tutti__ucx_chan_cancel(tutti__chan_t *chan);
uint32_t tutti__ucx_chan_pending(const tutti__chan_t *chan);
/* After a cancel: returns 1 if a message has arrived in part, and UCX writes it into the caller's
   memory. Call it under the lock. */
int tutti__ucx_chan_is_placing(const tutti__chan_t *chan);

#endif
