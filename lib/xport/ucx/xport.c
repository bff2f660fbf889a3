/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport over UCX: one worker per communicator, under one lock.
 *
 * Different threads use different lanes at the same time. Rejected: a worker for each lane, without
 * a lock. Each lane of each group would need its own sockets, listeners, addresses and memory, and
 * a lane's messages would advance only while the lane is stepped. With one worker, a thread that
 * finds the lock taken does not wait: the lock's holder polls for all lanes. When a message is
 * complete, a word (`done`) is set, which the lane's thread reads without the lock.
 *
 * An endpoint is made at the first message to a peer, with error mode PEER. If the peer dies, its
 * endpoint ends, and the messages in flight end with it. In this mode UCX does not use its shared
 * memory, because shared memory cannot detect deaths. The ranks of one host have another transport
 * for messages to each other.
 *
 * Only sleep(), cancel(), keeps() and close() wait. cancel(), keeps() and close() wait a tenth of a
 * second for the messages in flight of a lane, and then force their endpoints to close. After that
 * UCX accesses no buffer of a caller.
 *
 * While an endpoint connects, it must not be closed: in UCX 1.13 over TCP this ends the processes
 * at both ends, by assertions in ucp_worker_progress and ucp_worker_destroy. So if a transport ends
 * while an endpoint connects, the transport is abandoned: no thread polls its worker any more, so
 * UCX accesses no buffer. The worker is not destroyed; its connections end with the process. A
 * transport is also abandoned if a message into a caller's buffer has arrived in part. UCX cannot
 * cancel such a receive, and in a later poll UCX would write the rest into memory that the caller
 * may have freed. An RDMA device may still complete messages of an abandoned transport, without a
 * poll. So the memory of the communicator is not freed (`keeps`).
 *
 * If a peer dies while part of a message is in the TCP socket, UCX 1.13 to 1.19 completes the
 * message twice (uct_tcp_ep_sendv). A UCX with assertions, such as Debian's, then ends the
 * survivor's process: "Assertion `comp->count > 0' failed". The transport cannot prevent this.
 */
#include "xport/ucx/ucx_module.h"

#include "base/constants.h"
#include "base/time.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_PLACED = 16384, /* bytes; a shorter message is copied from its slot, which costs less */
    MAX_STREAMS = 16,
    MAX_RANKS = 1 << 24
};

static tutti__ucx_xport_t *mine(tutti__xport_t *base)
{
    return (tutti__ucx_xport_t *)base;
}

void tutti__ucx_advance(tutti__ucx_xport_t *xport)
{
    if (pthread_mutex_trylock(&xport->lock) != 0)
        return;
    if (TUTTI__LIKELY(!tutti__load_relaxed(&xport->abandoned)))
        ucp_worker_progress(xport->worker);
    pthread_mutex_unlock(&xport->lock);
}

/* ---- endpoints ---- */

/* Under the lock. */
static void mark_lost(tutti__ucx_peer_t *peer, ucs_status_t status)
{
    if (tutti__load_relaxed(&peer->failed))
        return;
    peer->why = status;
    tutti__store_release(&peer->failed, 1);
    tutti__ucx_log(TUTTI__LOG_DEBUG, "ucx: the connection to peer %u is lost: %s",
                   (uint32_t)(peer - peer->xport->peer), ucs_status_string(status));
}

void tutti__ucx_lost(tutti__ucx_peer_t *peer, ucs_status_t why)
{
    pthread_mutex_lock(&peer->xport->lock);
    mark_lost(peer, why);
    pthread_mutex_unlock(&peer->xport->lock);
}

/* UCX calls this inside a poll of the worker. */
static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep; /* force() or close_eps() closes the endpoint */
    mark_lost(arg, status);
}

ucs_status_t tutti__ucx_reach(tutti__ucx_peer_t *peer)
{
    const ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                   UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                   UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                     .address = peer->address,
                                     .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                     .err_handler = { on_failure, peer } };
    ucs_status_t code;
    sigset_t before;

    if (TUTTI__LIKELY(peer->ep != NULL))
        return UCS_OK;
    if (tutti__load_relaxed(&peer->failed))
        return peer->why;
    tutti__ucx_block_signals(&before);
    code = ucp_ep_create(peer->xport->worker, &params, &peer->ep);
    tutti__ucx_restore_signals(&before);
    if (code != UCS_OK) {
        peer->ep = NULL;
        mark_lost(peer, code);
        return code;
    }
    tutti__ucx_log_networks(peer->xport->has_reached ? TUTTI__LOG_DEBUG : TUTTI__LOG_INFO, peer->ep,
                            (uint32_t)(peer - peer->xport->peer));
    peer->xport->has_reached = 1;
    return UCS_OK;
}

/* Begin to close an endpoint. Returns a request if this takes time. Under the lock. */
static void *begin_close(tutti__ucx_peer_t *peer, int forced)
{
    const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                        .flags = forced ? UCP_EP_CLOSE_FLAG_FORCE : 0 };
    ucs_status_ptr_t request;

    if (peer->ep == NULL)
        return NULL;
    request = ucp_ep_close_nbx(peer->ep, &param);
    peer->ep = NULL;
    return UCS_PTR_IS_PTR(request) ? request : NULL;
}

/* Poll until the endpoint is closed, at most until the deadline, and free the request. Returns 0 if
   the endpoint is not closed. */
static int end_close(tutti__ucx_xport_t *xport, void *request, uint64_t deadline_ns)
{
    ucs_status_t code = UCS_INPROGRESS;
    int is_abandoned;

    if (request == NULL)
        return 1;
    for (;;) {
        pthread_mutex_lock(&xport->lock);
        is_abandoned = (int)tutti__load_relaxed(&xport->abandoned);
        if (!is_abandoned)
            ucp_worker_progress(xport->worker);
        code = ucp_request_check_status(request);
        if (code != UCS_INPROGRESS || is_abandoned || tutti__now_ns() > deadline_ns)
            break;
        pthread_mutex_unlock(&xport->lock);
        sched_yield();
    }
    ucp_request_free(request);
    pthread_mutex_unlock(&xport->lock);
    return code != UCS_INPROGRESS;
}

static void force(tutti__ucx_peer_t *peer)
{
    tutti__ucx_xport_t *xport = peer->xport;
    void *request;

    pthread_mutex_lock(&xport->lock);
    /* After the check in end_lane another lane may have begun to connect: see the top comment. */
    if (peer->ep != NULL && !peer->is_connected)
        tutti__store_release(&xport->abandoned, 1);
    if (tutti__load_relaxed(&xport->abandoned)) {
        pthread_mutex_unlock(&xport->lock);
        return;
    }
    if (peer->ep != NULL)
        mark_lost(peer, UCS_ERR_CANCELED);
    request = begin_close(peer, 1);
    pthread_mutex_unlock(&xport->lock);
    (void)end_close(xport, request, tutti__now_ns() + TUTTI__UCX_GIVE_UP_NS);
}

/* ---- lanes ---- */

static uint32_t pending_in(tutti__ucx_xport_t *xport, uint32_t lane)
{
    uint32_t pending = 0;

    for (tutti__chan_t *chan = xport->chans[lane]; chan != NULL; chan = chan->next)
        pending += tutti__ucx_chan_pending(chan);
    return pending;
}

/* Poll until no message of the lane is in flight, but at most for 0.1 s. Returns the number of
   messages in flight; 0 if the transport is abandoned. */
static uint32_t settle(tutti__ucx_xport_t *xport, uint32_t lane)
{
    uint64_t start = tutti__now_ns();
    uint32_t pending;

    for (;;) {
        pthread_mutex_lock(&xport->lock);
        pending = tutti__load_relaxed(&xport->abandoned) ? 0 : pending_in(xport, lane);
        if (pending > 0) {
            ucp_worker_progress(xport->worker);
            pending = pending_in(xport, lane);
        }
        pthread_mutex_unlock(&xport->lock);
        if (pending == 0 || tutti__now_ns() - start > TUTTI__UCX_GIVE_UP_NS)
            return pending;
        sched_yield();
    }
}

/* If an endpoint is not connected yet, abandon the transport: see the top comment. Returns 1 if the
   transport is abandoned. Under the lock. */
static int abandon_if_connecting(tutti__ucx_xport_t *xport)
{
    for (uint32_t r = 0; xport->peer != NULL && r < xport->size; r++) {
        const tutti__ucx_peer_t *peer = &xport->peer[r];

        if (peer->ep != NULL && !peer->is_connected)
            tutti__store_release(&xport->abandoned, 1);
    }
    return (int)tutti__load_relaxed(&xport->abandoned);
}

/*
 * Abandon the messages in flight of a lane. A receive is cancelled, unless its message is arriving.
 * A send cannot be cancelled: if the message is not sent soon, the endpoint is forced to close.
 * This ends all messages in flight from and to this peer, also in other lanes. These messages are
 * not needed, because the communicator is ending.
 */
static void end_lane(tutti__ucx_xport_t *xport, uint32_t lane)
{
    uint32_t pending;
    int is_abandoned;

    pthread_mutex_lock(&xport->lock);
    is_abandoned = abandon_if_connecting(xport);
    for (tutti__chan_t *chan = xport->chans[lane]; chan != NULL && !is_abandoned; chan = chan->next)
        tutti__ucx_chan_cancel(chan);
    pthread_mutex_unlock(&xport->lock);
    if (is_abandoned || settle(xport, lane) == 0)
        return;
    for (tutti__chan_t *chan = xport->chans[lane]; chan != NULL; chan = chan->next) {
        pthread_mutex_lock(&xport->lock);
        pending = tutti__ucx_chan_pending(chan);
        pthread_mutex_unlock(&xport->lock);
        if (pending > 0)
            force(chan->peer);
    }
    pending = settle(xport, lane);
    if (pending == 0)
        return;
    tutti__ucx_log(TUTTI__LOG_DEBUG, "ucx: lane %u: %u messages end with the worker", lane,
                   pending);
    /* If a message into a caller's buffer has arrived in part, a later poll would write the rest
       into this buffer: see the comment at the top. */
    pthread_mutex_lock(&xport->lock);
    for (tutti__chan_t *chan = xport->chans[lane]; chan != NULL; chan = chan->next)
        if (tutti__ucx_chan_is_placing(chan))
            tutti__store_release(&xport->abandoned, 1);
    pthread_mutex_unlock(&xport->lock);
}

/* End the lane for ever, because messages of the failed call may still arrive from the peers. */
static void xport_cancel(tutti__xport_t *base, uint32_t lane)
{
    tutti__ucx_xport_t *xport = mine(base);

    if (lane >= TUTTI__LANES || xport->chans[lane] == NULL)
        return;
    tutti__store_release(&xport->cancelled, 1);
    end_lane(xport, lane);
    for (tutti__chan_t *chan = xport->chans[lane]; chan != NULL; chan = chan->next)
        if (chan->status == TUTTI_OK)
            chan->status = TUTTI_ERR_TRANSPORT;
}

/* ---- closing ---- */

/* Close all endpoints. An endpoint closes when its messages are sent; after a cancel or a failure
   of the peer, it closes by force. */
static void close_eps(tutti__ucx_xport_t *xport)
{
    int forced = (int)tutti__load_acquire(&xport->cancelled);
    uint64_t deadline = tutti__now_ns() + TUTTI__UCX_CLOSE_NS;
    void **request = calloc(xport->size, sizeof(*request));

    pthread_mutex_lock(&xport->lock);
    for (uint32_t r = 0; r < xport->size; r++) {
        tutti__ucx_peer_t *peer = &xport->peer[r];
        void *closing = begin_close(peer, forced || tutti__load_relaxed(&peer->failed));

        if (request != NULL)
            request[r] = closing;
        else if (closing != NULL)
            ucp_request_free(closing);
    }
    pthread_mutex_unlock(&xport->lock);
    for (uint32_t r = 0; request != NULL && r < xport->size; r++)
        if (!end_close(xport, request[r], deadline))
            tutti__ucx_log(TUTTI__LOG_DEBUG, "ucx: peer %u does not take its last messages", r);
    free(request);
}

/* Allocate memory for the request of a message that is discarded. Part of the message may never
   arrive, so UCX may use the request until the worker is destroyed. */
static void *keep_request(tutti__ucx_xport_t *xport)
{
    size_t capacity = TUTTI__LINE_BYTES + tutti__ucx_request_bytes(xport);
    void **memory = aligned_alloc(TUTTI__LINE_BYTES, capacity);

    if (memory == NULL)
        return NULL;
    memset(memory, 0, capacity);
    *memory = xport->kept;
    xport->kept = memory;
    return tutti__ucx_request(xport, (char *)memory + TUTTI__LINE_BYTES);
}

/* Discard the messages that no call has received, so that UCX does not warn of them. There are such
   messages after failed calls. */
static void discard_unexpected(tutti__ucx_xport_t *xport)
{
    ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST };
    ucp_tag_message_h message;
    ucp_tag_recv_info_t info;
    static char nothing[1];

    ucp_worker_progress(xport->worker);
    for (;;) {
        param.request = keep_request(xport);
        if (param.request == NULL)
            return;
        message = ucp_tag_probe_nb(xport->worker, 0, 0, 1, &info);
        if (message == NULL)
            return;
        (void)ucp_tag_msg_recv_nbx(xport->worker, nothing, 0, message, &param);
    }
}

/* Put an abandoned transport into a list, for leak checkers. The transport is never freed: messages
   may be in flight, and UCX's own thread may still accept connections. */
static void keep_abandoned(tutti__ucx_xport_t *xport)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static tutti__ucx_xport_t *first;

    pthread_mutex_lock(&lock);
    xport->next_abandoned = first;
    first = xport;
    pthread_mutex_unlock(&lock);
    tutti__ucx_log(TUTTI__LOG_DEBUG, "ucx: a worker with work in flight is left alone");
}

static void xport_close(tutti__xport_t *base)
{
    tutti__ucx_xport_t *xport = mine(base);
    tutti__chan_t *chan;
    void *kept;

    if (xport == NULL)
        return;
    for (uint32_t lane = 0; lane < TUTTI__LANES; lane++)
        end_lane(xport, lane);
    if (tutti__load_acquire(&xport->abandoned)) {
        keep_abandoned(xport);
        return;
    }
    if (xport->peer != NULL)
        close_eps(xport);
    if (xport->worker != NULL) {
        discard_unexpected(xport);
        if (xport->address != NULL)
            ucp_worker_release_address(xport->worker, xport->address);
        ucp_worker_destroy(xport->worker);
    }
    for (uint32_t lane = 0; lane < TUTTI__LANES; lane++) {
        while ((chan = xport->chans[lane]) != NULL) {
            xport->chans[lane] = chan->next;
            tutti__ucx_chan_free(chan);
        }
    }
    tutti__ucx_drop_context();
    while ((kept = xport->kept) != NULL) {
        xport->kept = *(void **)kept;
        free(kept);
    }
    pthread_mutex_destroy(&xport->lock);
    free(xport->addresses);
    free(xport->peer);
    free(xport);
}

/* ---- opening ---- */

static tutti_status_t open_end(tutti__xport_t *base, const tutti__chan_key_t *key, int receives,
                               tutti__chan_t **ret_chan)
{
    tutti__ucx_xport_t *xport = mine(base);
    tutti__chan_t *chan;
    tutti_status_t status;

    if (key->lane >= TUTTI__LANES || key->stream >= MAX_STREAMS || key->peer >= xport->size ||
        (key->slot_bytes > 0 && xport->device_type == UCS_MEMORY_TYPE_UNKNOWN))
        return tutti__ucx_fail(TUTTI_ERR_INTERNAL, "ucx: no channel of lane %u, peer %u, stream %u",
                               key->lane, key->peer, key->stream);
    chan = xport->chans[key->lane];
    while (chan != NULL && (chan->key.peer != key->peer || chan->key.stream != key->stream ||
                            chan->receives != receives))
        chan = chan->next;
    if (chan == NULL) {
        status = tutti__ucx_chan_open(xport, key, receives, &chan);
        if (status != TUTTI_OK)
            return status;
        chan->next = xport->chans[key->lane];
        xport->chans[key->lane] = chan;
    }
    if (receives && key->slot_bytes > 0) {
        status = tutti__ucx_chan_lend(chan, key);
        if (status != TUTTI_OK)
            return status;
    }
    *ret_chan = chan;
    return TUTTI_OK;
}

static tutti_status_t open_send(tutti__xport_t *base, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    return open_end(base, key, 0, ret_chan);
}

static tutti_status_t open_recv(tutti__xport_t *base, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    return open_end(base, key, 1, ret_chan);
}

static tutti_status_t xport_progress(tutti__xport_t *base)
{
    tutti__ucx_advance(mine(base));
    return TUTTI_OK;
}

static int xport_may_progress(tutti__xport_t *base, int is_engine)
{
    (void)base, (void)is_engine;
    return 1;
}

/* `sleep` of xport.h. If ucp_worker_arm fails, an event has already arrived: do not sleep. */
static int xport_sleep(tutti__xport_t *base, int fd, int64_t timeout_us)
{
    static const struct timespec now;
    tutti__ucx_xport_t *xport = mine(base);
    struct timespec until = { timeout_us / 1000000, timeout_us % 1000000 * 1000 };
    struct pollfd events[2] = { { .fd = xport->event_fd, .events = POLLIN },
                                { .fd = fd, .events = POLLIN } };
    ucs_status_t code = UCS_OK;

    pthread_mutex_lock(&xport->lock);
    if (tutti__load_relaxed(&xport->abandoned))
        events[0].fd = -1;
    else
        code = ucp_worker_arm(xport->worker);
    pthread_mutex_unlock(&xport->lock);
    if (ppoll(events, 2, code == UCS_OK ? &until : &now, NULL) <= 0)
        return 0;
    return events[1].revents != 0;
}

static tutti_status_t xport_take_device(tutti__xport_t *base, const char *device)
{
    tutti__ucx_xport_t *xport = mine(base);

    return tutti__ucx_find_device(xport->context, device, &xport->device_type);
}

static int xport_keeps(tutti__xport_t *base)
{
    tutti__ucx_xport_t *xport = mine(base);

    for (uint32_t lane = 0; lane < TUTTI__LANES; lane++)
        end_lane(xport, lane);
    return tutti__load_acquire(&xport->abandoned) != 0 && tutti__ucx_has_rdma();
}

static const tutti__xport_ops_t ops = {
    .name = "ucx",
    .purpose = "messages over UCX: InfiniBand, RoCE or TCP",
    .close = xport_close,
    .open_send = open_send,
    .open_recv = open_recv,
    .send = tutti__ucx_chan_send,
    .flush = tutti__ucx_chan_flush,
    .expect = tutti__ucx_chan_expect,
    .expect_at = tutti__ucx_chan_expect_at,
    .view = tutti__ucx_chan_view,
    .length = tutti__ucx_chan_length,
    .release = tutti__ucx_chan_release,
    .progress = xport_progress,
    .may_progress = xport_may_progress,
    .sleep = xport_sleep,
    .cancel = xport_cancel,
    .take_device = xport_take_device,
    .keeps = xport_keeps,
};

static ucs_status_t make_worker(tutti__ucx_xport_t *xport)
{
    const ucp_worker_params_t params = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = UCS_THREAD_MODE_SERIALIZED };
    ucp_context_attr_t about = { .field_mask = UCP_ATTR_FIELD_REQUEST_SIZE };
    ucs_status_t code;
    sigset_t before;

    tutti__ucx_block_signals(&before);
    code = ucp_worker_create(xport->context, &params, &xport->worker);
    if (code != UCS_OK)
        xport->worker = NULL;
    if (code == UCS_OK)
        code = ucp_worker_get_address(xport->worker, &xport->address, &xport->address_bytes);
    if (code == UCS_OK && xport->event_fd >= 0)
        code = ucp_worker_get_efd(xport->worker, &xport->event_fd);
    if (code == UCS_OK)
        code = ucp_context_query(xport->context, &about);
    if (code == UCS_OK)
        xport->request_bytes = about.request_size;
    tutti__ucx_restore_signals(&before);
    return code;
}

tutti_status_t tutti__ucx_open(const tutti__core_t *core, uint32_t rank, uint32_t size, int shares,
                               size_t slot_bytes, uint32_t credits, tutti__xport_t **ret_xport,
                               const void **ret_address, size_t *ret_bytes)
{
    tutti__ucx_xport_t *xport;
    ucp_context_h context;
    int wakes = 0;
    tutti_status_t status = tutti__ucx_take_context(core, size, shares, &context, &wakes);
    ucs_status_t code;

    if (status != TUTTI_OK)
        return status;
    xport = calloc(1, sizeof(*xport));
    if (xport == NULL || size > MAX_RANKS || slot_bytes == 0 || credits == 0) {
        status = xport == NULL ? TUTTI_ERR_NO_MEMORY : TUTTI_ERR_INVALID_ARGUMENT;
        free(xport);
        tutti__ucx_drop_context();
        return tutti__ucx_fail(status, "ucx: %u ranks, %u slots of %zu bytes", size, credits,
                               slot_bytes);
    }
    xport->table = ops;
    if (!wakes)
        xport->table.sleep = NULL;
    xport->base.ops = &xport->table;
    xport->event_fd = wakes ? 0 : -1; /* 0 until make_worker sets the descriptor */
    xport->base.most_bytes = slot_bytes;
    xport->base.least_placed = LEAST_PLACED;
    xport->context = context;
    pthread_mutex_init(&xport->lock, NULL);
    xport->rank = rank;
    xport->size = size;
    xport->credits = credits;
    xport->slot_bytes = slot_bytes;
    xport->device_type = UCS_MEMORY_TYPE_UNKNOWN;
    code = make_worker(xport);
    if (code != UCS_OK) {
        xport_close(&xport->base);
        return tutti__ucx_fail_code(code, "making a worker");
    }
    *ret_xport = &xport->base;
    *ret_address = xport->address;
    *ret_bytes = xport->address_bytes;
    return TUTTI_OK;
}

tutti_status_t tutti__ucx_connect(tutti__xport_t *base, const void *addresses, size_t stride)
{
    tutti__ucx_xport_t *xport = mine(base);
    char *copy = malloc(stride * xport->size);
    tutti__ucx_peer_t *peer = calloc(xport->size, sizeof(*peer));

    if (copy == NULL || peer == NULL) {
        free(copy);
        free(peer);
        return tutti__ucx_fail(TUTTI_ERR_NO_MEMORY, "ucx: the addresses of %u ranks", xport->size);
    }
    memcpy(copy, addresses, stride * xport->size);
    for (uint32_t r = 0; r < xport->size; r++) {
        peer[r].xport = xport;
        peer[r].address = (const ucp_address_t *)(copy + stride * r);
    }
    xport->addresses = copy;
    xport->peer = peer;
    return TUTTI_OK;
}
