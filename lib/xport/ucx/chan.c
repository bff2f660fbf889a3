/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a channel over UCX: tagged messages from one worker to another worker.
 *
 *      tag   | source, 24 bits | lane, 4 | stream, 4 | signature of the call, 32 |
 *
 * UCX matches a receive to a message by all fields except the signature. The signatures are
 * compared after the arrival. So the message of another call causes an error.
 *
 * A sender passes the block of the caller's buffer to UCX. UCX copies short messages, and sends
 * long messages from the block; over RDMA UCX uses its rendezvous. At most one message is in
 * flight, because the executor completes a SEND before it starts the channel's next SEND
 * (exec/sends.c). A receiver posts receives in order, into its staging slots or into the places
 * that expect_at has passed. The receiver posts receives only for messages that the current call
 * still expects: an extra receive would take the first message of the next call.
 *
 * After its last message a rank may stop polling for a long time. So a message that UCX reports as
 * complete must need no further poll of this rank. Over TCP, UCX by default copies short messages,
 * and reports them as complete even if the socket's buffer is full. So no message over TCP is
 * copied (ucx_module.c): UCX reports a message as complete when the socket has it. Tried: flush the
 * endpoint. Over TCP a flush waits for a poll of the peer: it never ended in 5 of 5 runs.
 *
 * A GPU-direct end (xport.h) works in the same way on device memory. Only UCX accesses this memory.
 * UCX may copy any message that is in device memory, even a long message. So these messages are
 * sent synchronously: UCX reports a message as complete when the peer has received it. UCX may use
 * the device at the same time as NCCL: see the hazard in call/device_gpu_direct.c.
 *
 * One thread at a time uses an end. UCX calls the completion function (on_sent, on_arrival) on any
 * thread that polls the worker. The end's thread reads `done` without the lock.
 */
#include "xport/ucx/ucx_module.h"

#include "base/constants.h"
#include "base/time.h"

#include <stdlib.h>
#include <string.h>

#define SIGNATURE_BITS 32
#define ALL_BUT_SIGNATURE (~(uint64_t)0 << SIGNATURE_BITS)

static uint64_t tag_of(uint32_t source, const tutti__chan_key_t *key)
{
    return (uint64_t)source << 40 | (uint64_t)key->lane << 36 | (uint64_t)key->stream << 32;
}

static int is_gpu_direct(const tutti__chan_t *chan)
{
    return chan->key.slot_bytes > 0;
}

static size_t stride_of(const tutti__chan_t *chan)
{
    return TUTTI__ROUND_UP(chan->slot_bytes, (size_t)TUTTI__LINE_BYTES);
}

static void *place_of(const tutti__chan_t *chan, uint32_t index)
{
    return chan->bytes + stride_of(chan) * index;
}

/* Allocate and register the slots, so that UCX need not register memory for each receive. A
   GPU-direct end uses the caller's memory. The caller may free this memory before the end is
   closed, so the end does not register it. UCX's cache of registrations serves these receives. */
static ucs_status_t make_slots(tutti__chan_t *chan)
{
    tutti__ucx_xport_t *xport = chan->xport;
    ucp_mem_map_params_t params = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                  UCP_MEM_MAP_PARAM_FIELD_LENGTH };

    chan->capacity = is_gpu_direct(chan) ? TUTTI__GPU_DIRECT_CREDITS : xport->credits;
    chan->slot = calloc(chan->capacity, sizeof(*chan->slot));
    if (chan->slot == NULL)
        return UCS_ERR_NO_MEMORY;
    if (is_gpu_direct(chan))
        return UCS_OK;
    chan->credits = chan->capacity;
    params.length = stride_of(chan) * chan->credits;
    chan->bytes = aligned_alloc(TUTTI__LINE_BYTES, params.length);
    if (chan->bytes == NULL)
        return UCS_ERR_NO_MEMORY;
    params.address = chan->bytes;
    return ucp_mem_map(xport->context, &params, &chan->memory);
}

static ucs_status_t make_requests(tutti__chan_t *chan)
{
    size_t capacity = tutti__ucx_request_bytes(chan->xport);
    uint32_t n = chan->receives ? chan->capacity : 1;

    chan->requests = aligned_alloc(TUTTI__LINE_BYTES, n * capacity);
    if (chan->requests == NULL)
        return UCS_ERR_NO_MEMORY;
    memset(chan->requests, 0, n * capacity);
    chan->request_memory = chan->requests;
    for (uint32_t i = 0; i < n && chan->receives; i++)
        chan->slot[i].memory = (char *)chan->requests + i * capacity;
    return UCS_OK;
}

tutti_status_t tutti__ucx_chan_open(tutti__ucx_xport_t *xport, const tutti__chan_key_t *key,
                                    int receives, tutti__chan_t **ret_chan)
{
    tutti__chan_t *chan = calloc(1, sizeof(*chan));
    ucs_status_t code = UCS_ERR_NO_MEMORY;

    if (chan != NULL) {
        chan->xport = xport;
        chan->key = *key;
        chan->slot_bytes = is_gpu_direct(chan) ? key->slot_bytes : xport->slot_bytes;
        chan->memory_type = is_gpu_direct(chan) ? xport->device_type : UCS_MEMORY_TYPE_HOST;
        chan->peer = &xport->peer[key->peer];
        chan->tag = tag_of(receives ? key->peer : xport->rank, key);
        chan->receives = receives;
        code = receives ? make_slots(chan) : UCS_OK;
        if (code == UCS_OK)
            code = make_requests(chan);
    }
    if (code != UCS_OK) {
        tutti__ucx_chan_free(chan);
        return tutti__ucx_fail_code(code, "a channel with peer %u", key->peer);
    }
    *ret_chan = chan;
    return TUTTI_OK;
}

void tutti__ucx_chan_free(tutti__chan_t *chan)
{
    if (chan == NULL)
        return;
    if (chan->memory != NULL)
        ucp_mem_unmap(chan->xport->context, chan->memory);
    free(chan->requests);
    if (!is_gpu_direct(chan))
        free(chan->bytes);
    free(chan->slot);
    free(chan);
}

tutti_status_t tutti__ucx_chan_lend(tutti__chan_t *chan, const tutti__chan_key_t *key)
{
    /* If the end has posted receives, or an error for its next use, do not change its slots. */
    if (chan->posted > 0 || chan->status != TUTTI_OK)
        return TUTTI_OK;
    if (key->slot_bytes != chan->slot_bytes || key->credits == 0 || key->credits > chan->capacity)
        return tutti__ucx_fail(
            TUTTI_ERR_INTERNAL, "ucx: %u slots of %zu bytes for peer %u, not at most %u of %zu",
            key->credits, key->slot_bytes, key->peer, chan->capacity, chan->slot_bytes);
    chan->bytes = (unsigned char *)key->slots;
    chan->credits = key->credits;
    chan->head = 0;
    return TUTTI_OK;
}

static tutti_status_t check(tutti__chan_t *chan)
{
    if (TUTTI__UNLIKELY(tutti__load_relaxed(&chan->xport->abandoned)) && chan->status == TUTTI_OK)
        chan->status = TUTTI_ERR_TRANSPORT;
    if (TUTTI__LIKELY(chan->status == TUTTI_OK))
        return TUTTI_OK;
    return tutti__ucx_fail(chan->status, "ucx: the channel with peer %u has failed before",
                           chan->key.peer);
}

static tutti_status_t broken(tutti__chan_t *chan, ucs_status_t code, const char *what)
{
    chan->status = tutti__ucx_fail_code(code, "%s peer %u", what, chan->key.peer);
    return chan->status;
}

/*
 * Return TUTTI__AGAIN, because a message is not complete. If the endpoint has failed, return the
 * error only after UCX_NEWS_NS. In this time the side channel may report whether the peer has left
 * or was lost, and the reason. The endpoint may have failed long before this call. So the time
 * counts from this channel's first poll that finds the failure. If the channel was not polled for
 * UCX_NEWS_NS, because no call used it or this process was stopped, the time starts again.
 */
static tutti_status_t again(tutti__chan_t *chan, const char *what, tutti__hint_t *hint)
{
    tutti__ucx_peer_t *peer = chan->peer;
    uint64_t now;

    if (TUTTI__UNLIKELY(tutti__load_acquire(&peer->failed))) {
        now = tutti__now_ns();
        if (now - chan->polled_ns > TUTTI__UCX_NEWS_NS)
            chan->since_ns = now;
        chan->polled_ns = now;
        if (now - chan->since_ns > TUTTI__UCX_NEWS_NS)
            return broken(chan, peer->why, what);
    }
    *hint = (tutti__hint_t){ .peer = (int32_t)chan->key.peer };
    return TUTTI__AGAIN;
}

/* ---- sender ---- */

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    tutti__chan_t *chan = arg;

    (void)request;
    chan->result = status;
    chan->request = NULL;
    chan->peer->is_connected |= status == UCS_OK;
    tutti__store_release(&chan->done, 1);
}

/* Store the state of a send that UCX has begun. request: UCX's return value. Under the lock. */
static void begun(tutti__chan_t *chan, ucs_status_ptr_t request)
{
    chan->is_sending = 1;
    if (UCS_PTR_IS_PTR(request)) {
        chan->request = request;
        return;
    }
    chan->result = UCS_PTR_STATUS(request);
    chan->peer->is_connected |= chan->result == UCS_OK;
    tutti__store_release(&chan->done, 1);
}

/* Returns TUTTI_OK if no send is in flight any more. If the send has failed, mark the endpoint as
   lost, and return the error after a short time: see again(). */
static tutti_status_t drain(tutti__chan_t *chan, tutti__hint_t *hint)
{
    if (chan->is_sending) {
        if (!tutti__load_acquire(&chan->done)) {
            tutti__ucx_advance(chan->xport);
            if (!tutti__load_acquire(&chan->done))
                return again(chan, "sending to", hint);
        }
        if (TUTTI__UNLIKELY(chan->result != UCS_OK)) {
            tutti__ucx_lost(chan->peer, chan->result);
            return again(chan, "sending to", hint);
        }
        chan->is_sending = 0;
    }
    return TUTTI_OK;
}

/* Pass a message to UCX. Call it under the lock. */
static ucs_status_t post_send(tutti__chan_t *chan, const void *data, size_t bytes,
                              uint32_t signature)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_REQUEST,
        .request = tutti__ucx_request(chan->xport, chan->request_memory),
        .cb.send = on_sent,
        .user_data = chan,
        .memory_type = chan->memory_type
    };
    tutti__ucx_peer_t *peer = chan->peer;
    uint64_t tag = chan->tag | signature;
    ucs_status_t code = tutti__ucx_reach(peer);

    if (code != UCS_OK)
        return code;
    tutti__store_relaxed(&chan->done, 0);
    begun(chan, is_gpu_direct(chan) ? ucp_tag_send_sync_nbx(peer->ep, data, bytes, tag, &param)
                                    : ucp_tag_send_nbx(peer->ep, data, bytes, tag, &param));
    return UCS_OK;
}

tutti_status_t tutti__ucx_chan_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                    uint32_t signature, int *ret_pending, tutti__hint_t *hint)
{
    tutti_status_t status = check(chan);
    ucs_status_t code;

    if (status != TUTTI_OK)
        return status;
    if (TUTTI__UNLIKELY(bytes > chan->slot_bytes))
        return tutti__ucx_fail(TUTTI_ERR_INTERNAL, "ucx: a message of %zu bytes, slots have %zu",
                               bytes, chan->slot_bytes);
    status = drain(chan, hint);
    if (status != TUTTI_OK)
        return status;
    if (TUTTI__UNLIKELY(tutti__load_acquire(&chan->peer->failed)))
        return again(chan, "sending to", hint);
    pthread_mutex_lock(&chan->xport->lock);
    code = post_send(chan, data, bytes, signature);
    pthread_mutex_unlock(&chan->xport->lock);
    if (code != UCS_OK)
        return again(chan, "connecting to", hint);
    status = tutti__load_acquire(&chan->done) ? drain(chan, hint) : TUTTI__AGAIN;
    if (status != TUTTI_OK && status != TUTTI__AGAIN)
        return status;
    *ret_pending = status == TUTTI__AGAIN;
    return TUTTI_OK;
}

tutti_status_t tutti__ucx_chan_flush(tutti__chan_t *chan, tutti__hint_t *hint)
{
    tutti_status_t status = check(chan);

    return status == TUTTI_OK ? drain(chan, hint) : status;
}

/* ---- receiver ---- */

static void on_arrival(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                       void *arg)
{
    tutti__ucx_slot_t *slot = arg;

    (void)request;
    slot->result = status;
    slot->bytes = info->length;
    slot->signature = (uint32_t)info->sender_tag;
    slot->request = NULL;
    tutti__store_release(&slot->done, 1);
}

/* Post the next receive, into `place`; NULL: into the next slot. If the message has already
   arrived, UCX calls on_arrival before ucp_tag_recv_nbx returns. Under the lock. */
static ucs_status_t post_one(tutti__chan_t *chan, void *place, size_t bytes)
{
    tutti__ucx_xport_t *xport = chan->xport;
    uint32_t index = (chan->head + chan->posted) % chan->credits;
    tutti__ucx_slot_t *slot = &chan->slot[index];
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL |
                        UCP_OP_ATTR_FIELD_REQUEST |
                        (place == NULL && chan->memory != NULL ? UCP_OP_ATTR_FIELD_MEMH : 0),
        .request = tutti__ucx_request(xport, slot->memory),
        .cb.recv = on_arrival,
        .user_data = slot,
        .memory_type = chan->memory_type,
        .memh = chan->memory
    };
    ucs_status_ptr_t request;

    slot->at = place != NULL ? place : place_of(chan, index);
    slot->capacity = place != NULL ? bytes : chan->slot_bytes;
    tutti__store_relaxed(&slot->done, 0);
    request = ucp_tag_recv_nbx(xport->worker, slot->at, slot->capacity, chan->tag,
                               ALL_BUT_SIGNATURE, &param);
    if (UCS_PTR_IS_ERR(request))
        return UCS_PTR_STATUS(request);
    if (!tutti__load_relaxed(&slot->done))
        slot->request = request;
    chan->posted++;
    return UCS_OK;
}

/* Post receives, as many as there are free slots and expected messages. */
static tutti_status_t post(tutti__chan_t *chan)
{
    tutti__ucx_xport_t *xport = chan->xport;
    ucs_status_t code = UCS_OK;

    if (chan->expected == 0 || chan->posted == chan->credits)
        return TUTTI_OK;
    pthread_mutex_lock(&xport->lock);
    while (code == UCS_OK && chan->expected > 0 && chan->posted < chan->credits) {
        code = post_one(chan, NULL, 0);
        chan->expected -= code == UCS_OK;
    }
    pthread_mutex_unlock(&xport->lock);
    return code == UCS_OK ? TUTTI_OK : broken(chan, code, "posting a receive from");
}

tutti_status_t tutti__ucx_chan_expect(tutti__chan_t *chan, size_t messages)
{
    tutti_status_t status = check(chan);

    if (status != TUTTI_OK)
        return status;
    chan->expected += messages;
    return post(chan);
}

/* TUTTI__AGAIN: all slots are in use, or earlier receives, which go into slots, are not posted yet.
   UCX matches receives in the order of posting. */
tutti_status_t tutti__ucx_chan_expect_at(tutti__chan_t *chan, void *place, size_t bytes)
{
    tutti_status_t status = check(chan);
    ucs_status_t code;

    if (status != TUTTI_OK)
        return status;
    if (chan->expected > 0 || chan->posted == chan->credits)
        return TUTTI__AGAIN;
    pthread_mutex_lock(&chan->xport->lock);
    code = post_one(chan, place, bytes);
    pthread_mutex_unlock(&chan->xport->lock);
    return code == UCS_OK ? TUTTI_OK : broken(chan, code, "posting a receive from");
}

/* Report that the head slot's message has failed, or is not the message that the call expects. */
static tutti_status_t wrong(tutti__chan_t *chan, const tutti__ucx_slot_t *slot, size_t bytes,
                            tutti__hint_t *hint)
{
    int is_long = slot->result == UCS_ERR_MESSAGE_TRUNCATED;

    if (slot->result != UCS_OK && !is_long) {
        tutti__ucx_lost(chan->peer, slot->result);
        return again(chan, "receiving from", hint);
    }
    chan->status = TUTTI_ERR_MISMATCH;
    if (bytes == TUTTI__ANY_BYTES && is_long)
        return tutti__ucx_fail(TUTTI_ERR_MISMATCH,
                               "ucx: peer %u sent more than %zu bytes: the ranks called different "
                               "collectives or counts",
                               chan->key.peer, slot->capacity);
    if (bytes != TUTTI__ANY_BYTES && (slot->bytes != bytes || is_long))
        return tutti__ucx_fail(TUTTI_ERR_MISMATCH,
                               "ucx: peer %u sent %s%zu bytes where this rank expects %zu: the "
                               "ranks called different collectives or counts",
                               chan->key.peer, is_long ? "more than " : "",
                               is_long ? slot->capacity : slot->bytes, bytes);
    return tutti__ucx_fail(TUTTI_ERR_MISMATCH,
                           "ucx: peer %u has another collective, type, operation or count",
                           chan->key.peer);
}

tutti_status_t tutti__ucx_chan_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                                    const void **ret_data, tutti__hint_t *hint)
{
    const tutti__ucx_slot_t *slot = &chan->slot[chan->head];
    tutti_status_t status = check(chan);

    if (status != TUTTI_OK)
        return status;
    if (TUTTI__UNLIKELY(chan->posted == 0))
        return tutti__ucx_fail(TUTTI_ERR_INTERNAL, "ucx: nothing is expected from peer %u",
                               chan->key.peer);
    if (!tutti__load_acquire(&slot->done)) {
        tutti__ucx_advance(chan->xport);
        if (!tutti__load_acquire(&slot->done))
            return again(chan, "receiving from", hint);
    }
    if (TUTTI__UNLIKELY(slot->result != UCS_OK || slot->signature != signature ||
                        (slot->bytes != bytes && bytes != TUTTI__ANY_BYTES)))
        return wrong(chan, slot, bytes, hint);
    *ret_data = slot->at;
    return TUTTI_OK;
}

size_t tutti__ucx_chan_length(const tutti__chan_t *chan)
{
    return chan->slot[chan->head].bytes;
}

/* If posting a receive fails, the channel ends, and the next function on it returns the error. */
void tutti__ucx_chan_release(tutti__chan_t *chan)
{
    if (chan->status != TUTTI_OK)
        return;
    chan->head = (chan->head + 1) % chan->credits;
    chan->posted--;
    (void)post(chan);
}

/* ---- the end ---- */

void tutti__ucx_chan_cancel(tutti__chan_t *chan)
{
    chan->expected = 0;
    for (uint32_t i = 0; i < chan->posted; i++) {
        tutti__ucx_slot_t *slot = &chan->slot[(chan->head + i) % chan->credits];

        if (slot->request != NULL)
            ucp_request_cancel(chan->xport->worker, slot->request);
    }
}

uint32_t tutti__ucx_chan_pending(const tutti__chan_t *chan)
{
    uint32_t pending = chan->request != NULL;

    for (uint32_t i = 0; i < chan->posted; i++)
        pending += chan->slot[(chan->head + i) % chan->credits].request != NULL;
    return pending;
}

int tutti__ucx_chan_is_placing(const tutti__chan_t *chan)
{
    for (uint32_t i = 0; i < chan->posted; i++) {
        uint32_t index = (chan->head + i) % chan->credits;
        const tutti__ucx_slot_t *slot = &chan->slot[index];

        if (slot->request != NULL && (is_gpu_direct(chan) || slot->at != place_of(chan, index)))
            return 1;
    }
    return 0;
}
