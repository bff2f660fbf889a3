/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The UCX module without the library: `ucx_module [few] [CASE...]` runs each case with 2 and 3
 * ranks, which are processes of this machine. They meet in memory that they share. With `few` the
 * cases run with 3 ranks only, and have fewer rounds.
 *
 * UCX's environment selects its transport: UCX_TLS=tcp, or posix with UCX_MM_ERROR_HANDLING=y.
 */
#include "multi/module_check.h"

#include "base/atomic.h"
#include "base/constants.h"
#include "base/time.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_NS UINT64_C(90000000000)
/* A call that takes so long hangs. */
#define HANG_NS UINT64_C(60000000000)
#define MOST_RANKS 4
#define ADDRESS_BYTES 4096
/* Between two polls of a call that may take seconds. */
#define POLL_US 100

/* Shared by the ranks. */
static struct {
    tutti__word_t came[1024]; /* ranks that have reached each fence */
    tutti__word_t is_refused;
    tutti__word_t complete; /* messages, in case_full */
    char address[MOST_RANKS][ADDRESS_BYTES];
} * common;

static const tutti__ucx_module_t *module;
static uint32_t size, fences;
static int shares; /* 1: messages wake sleeping ranks */
static int is_few; /* fewer rounds */

/* Wait, without polling UCX, until so many ranks have reached this fence. */
static void fence_of(uint32_t ranks)
{
    tutti__word_t *came = &common->came[fences++];
    uint64_t start = tutti__now_ns();

    atomic_fetch_add(came, 1);
    while (tutti__load_acquire(came) < ranks) {
        CHECK(tutti__now_ns() - start < DEADLINE_NS);
        usleep(200);
    }
}

static void fence(void)
{
    fence_of(size);
}

static tutti__xport_t *open_xport(size_t slot_bytes, uint32_t credits)
{
    tutti__xport_t *xport;
    const void *address;
    size_t bytes;

    CHECK_OK(module->open(&core, me, size, shares, slot_bytes, credits, &xport, &address, &bytes));
    CHECK(bytes <= ADDRESS_BYTES);
    memcpy(common->address[me], address, bytes);
    fence();
    CHECK_OK(module->connect(xport, common->address, ADDRESS_BYTES));
    fence();
    return xport;
}

/* ---- traffic ---- */

static size_t length_of(uint32_t k, size_t most)
{
    static const size_t lengths[] = { 0, 1, 8, 64, 4095, 4097, 65536, 262144 };
    size_t length = lengths[k % (sizeof(lengths) / sizeof(*lengths))];

    return length < most ? length : most;
}

/* One direction: messages 0..total-1, a call of view receives a few of them. */
typedef struct {
    tutti__xport_t *xport;
    tutti__chan_t *chan;
    unsigned char *block;
    size_t most;
    uint32_t from, total, next, expected;
    int pending, receives, is_placed;
} flow_t;

static int send_step(flow_t *flow)
{
    size_t bytes = length_of(flow->next, flow->most);
    tutti_status_t status;
    tutti__hint_t hint;

    if (flow->pending) {
        status = flow->xport->ops->flush(flow->chan, &hint);
    } else {
        write_message(flow->block, me, flow->next, bytes);
        status = flow->xport->ops->send(flow->chan, flow->block, bytes, 7, &flow->pending, &hint);
        if (status == TUTTI_OK && flow->pending)
            return 1;
    }
    CHECK(status == TUTTI_OK || status == TUTTI__AGAIN);
    if (status == TUTTI__AGAIN)
        return 0;
    memset(flow->block, 0xee, flow->most);
    flow->pending = 0;
    flow->next++;
    return 1;
}

/* Every third call expects one message, at a given place. */
static void expect(flow_t *flow)
{
    uint32_t call = TUTTI__MIN(1 + flow->next % 7, flow->total - flow->next);

    flow->is_placed = flow->next % 3 == 1;
    if (flow->is_placed) {
        call = 1;
        memset(flow->block, 0xee, flow->most + 1);
        CHECK_OK(flow->xport->ops->expect_at(flow->chan, flow->block,
                                             length_of(flow->next, flow->most)));
    } else {
        CHECK_OK(flow->xport->ops->expect(flow->chan, call));
    }
    flow->expected += call;
}

static int recv_step(flow_t *flow)
{
    size_t bytes = length_of(flow->next, flow->most);
    const void *data = NULL;
    tutti__hint_t hint;
    tutti_status_t status;

    if (flow->next == flow->expected)
        expect(flow);
    status = flow->xport->ops->view(flow->chan, bytes, 7, &data, &hint);
    if (status == TUTTI__AGAIN) {
        CHECK(hint.peer == (int32_t)flow->from && hint.word == NULL);
        return 0;
    }
    CHECK_OK(status);
    CHECK(!flow->is_placed || (data == flow->block && flow->block[bytes] == 0xee));
    CHECK(is_message(data, flow->from, flow->next, bytes));
    flow->xport->ops->release(flow->chan);
    flow->next++;
    return 1;
}

static void open_flow(tutti__xport_t *xport, tutti__chan_key_t key, int receives, size_t most,
                      uint32_t total, flow_t *ret_flow)
{
    tutti__chan_t *same;

    *ret_flow = (flow_t){ .xport = xport, .most = most, .total = total, .receives = receives };
    ret_flow->from = receives ? key.peer : me;
    ret_flow->block = malloc(most + 1);
    CHECK(ret_flow->block != NULL);
    for (int i = 0; i < 2; i++) {
        same = ret_flow->chan;
        if (receives)
            CHECK_OK(xport->ops->open_recv(xport, &key, &ret_flow->chan));
        else
            CHECK_OK(xport->ops->open_send(xport, &key, &ret_flow->chan));
    }
    CHECK(same == ret_flow->chan);
}

/* Both directions around a ring in one lane, on two streams. */
static void ring(tutti__xport_t *xport, uint32_t lane, size_t most, uint32_t total)
{
    uint32_t right = (me + 1) % size, left = (me + size - 1) % size;
    uint64_t start = tutti__now_ns();
    flow_t flow[4];
    int moved = 1, left_over = 1;

    open_flow(xport, KEY(lane, right, 0), 0, most, total, &flow[0]);
    open_flow(xport, KEY(lane, left, 0), 1, most, total, &flow[1]);
    open_flow(xport, KEY(lane, left, 3), 0, most, total, &flow[2]);
    open_flow(xport, KEY(lane, right, 3), 1, most, total, &flow[3]);
    while (left_over) {
        left_over = 0;
        if (!moved)
            sched_yield();
        moved = 0;
        for (int i = 0; i < 4; i++) {
            if (flow[i].next < flow[i].total)
                moved |= flow[i].receives ? recv_step(&flow[i]) : send_step(&flow[i]);
            left_over |= flow[i].next < flow[i].total;
        }
        CHECK(tutti__now_ns() - start < DEADLINE_NS);
    }
    for (int i = 0; i < 4; i++)
        free(flow[i].block);
}

static void case_data(void)
{
    static const size_t slots[] = { 1, 5000, 65536, 262144 };

    for (int i = 0; i < 4; i++) {
        tutti__xport_t *xport = open_xport(slots[i], 1 + (uint32_t)i);

        CHECK(strcmp(xport->ops->name, "ucx") == 0 && xport->ops->may_progress(xport, 1));
        for (uint32_t lane = 0; lane < TUTTI__LANES; lane += 2)
            ring(xport, lane, slots[i], 60);
        fence();
        xport->ops->close(xport);
    }
}

/* Two transports do not receive each other's messages. */
static void case_two(void)
{
    tutti__xport_t *one = open_xport(1024, 2), *two = open_xport(65536, 3);

    ring(two, 1, 65536, 50);
    ring(one, 1, 1024, 50);
    ring(two, 1, 65536, 50);
    two->ops->close(two);
    one->ops->close(one);
}

typedef struct {
    tutti__xport_t *xport;
    uint32_t lane;
} job_t;

static void *run_lane(void *arg)
{
    const job_t *job = arg;

    ring(job->xport, job->lane, 65536, 300);
    return NULL;
}

/* As the library's thread and direct calls do, two threads use the transport, each with its own
   lanes. */
static void case_threads(void)
{
    tutti__xport_t *xport = open_xport(65536, 2);
    pthread_t thread[3];
    job_t job[3];

    for (uint32_t i = 0; i < 3; i++) {
        job[i] = (job_t){ xport, i };
        CHECK(pthread_create(&thread[i], NULL, run_lane, &job[i]) == 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    xport->ops->close(xport);
}

/* A rank that has received all its messages stops polling. Its peers must still complete. */
static void case_quiet(void)
{
    static const size_t most[] = { 8, 4096, 65536, 262144 };
    tutti__xport_t *xport = open_xport(262144, 4);

    for (uint32_t k = 0; k < (is_few ? 18 : 60); k++) {
        ring(xport, 0, most[k % 4], 8 + k % 9);
        fence();
    }
    xport->ops->close(xport);
}

/* Repeats view until it is not AGAIN. */
static tutti_status_t view(tutti__xport_t *xport, tutti__chan_t *chan, size_t bytes,
                           uint32_t signature)
{
    uint64_t start = tutti__now_ns();
    tutti_status_t status;
    tutti__hint_t hint;
    const void *data;

    while ((status = xport->ops->view(chan, bytes, signature, &data, &hint)) == TUTTI__AGAIN) {
        CHECK(tutti__now_ns() - start < DEADLINE_NS);
        usleep(POLL_US);
    }
    return status;
}

/* Send messages until the connection is full, so that a message stays in flight. */
static tutti__chan_t *fill(tutti__xport_t *xport, const void *block, size_t bytes)
{
    tutti__chan_t *chan;
    int pending = 0, polls;
    tutti__hint_t hint;

    CHECK_OK(xport->ops->open_send(xport, &KEY(0, 1, 0), &chan));
    while (!pending) {
        CHECK_OK(xport->ops->send(chan, block, bytes, 5, &pending, &hint));
        for (polls = 0; pending && polls < 1000; polls++) {
            tutti_status_t status = xport->ops->flush(chan, &hint);

            CHECK(status == TUTTI_OK || status == TUTTI__AGAIN);
            pending = status == TUTTI__AGAIN;
        }
        atomic_fetch_add(&common->complete, !pending);
    }
    return chan;
}

/* Receive so many messages. */
static void empty(tutti__xport_t *xport, size_t bytes, size_t messages)
{
    tutti__chan_t *chan;

    CHECK_OK(xport->ops->open_recv(xport, &KEY(0, 0, 0), &chan));
    CHECK_OK(xport->ops->expect(chan, messages));
    while (messages-- > 0) {
        CHECK_OK(view(xport, chan, bytes, 5));
        xport->ops->release(chan);
    }
}

/* A message that is complete arrives although the sender does not poll again, even if the message
   was sent on a full connection. */
static void case_full(void)
{
    static const size_t lengths[] = { 8, 1000, 5000 };
    static const char block[5000];
    tutti__xport_t *xport = open_xport(65536, 4);
    tutti__chan_t *chan = NULL;
    tutti__hint_t hint;

    ring(xport, 1, 8, 2);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        tutti__store_release(&common->complete, 0);
        fence();
        if (me == 0)
            chan = fill(xport, block, lengths[i]);
        fence();
        if (me == 1)
            empty(xport, lengths[i], tutti__load_acquire(&common->complete));
        fence(); /* until here, rank 0 has not polled */
        if (me == 1)
            empty(xport, lengths[i], 1);
        while (me == 0 && xport->ops->flush(chan, &hint) == TUTTI__AGAIN)
            sched_yield();
        fence();
    }
    xport->ops->close(xport);
}

/* As case_quiet, on new connections, whose messages wake sleepers. */
static void case_anew(void)
{
    static const size_t most[] = { 8, 4096, 65536, 262144 };

    shares = 1;
    for (uint32_t k = 0; k < (is_few ? 12 : 40); k++) {
        tutti__xport_t *xport = open_xport(262144, 4);

        ring(xport, 0, most[k % 4], 1 + k % 3);
        fence();
        xport->ops->close(xport);
    }
}

/* Rank 0 sends `sent` bytes with signature 5; rank 1 expects other bytes or another signature. */
static void mismatch(size_t sent, size_t wanted, uint32_t signature, const char *text)
{
    static char block[100000];
    tutti__xport_t *xport = open_xport(me == 0 ? sizeof(block) : 65536, 2);
    tutti__chan_t *chan;
    tutti__hint_t hint;
    int pending;

    if (me == 0) {
        CHECK_OK(xport->ops->open_send(xport, &KEY(0, 1, 0), &chan));
        CHECK_OK(xport->ops->send(chan, block, sent, 5, &pending, &hint));
        /* The receiver of a message that is too long does not end the transfer. */
        while (pending && !tutti__load_acquire(&common->is_refused) &&
               xport->ops->flush(chan, &hint) == TUTTI__AGAIN)
            sched_yield();
    } else if (me == 1) {
        CHECK_OK(xport->ops->open_recv(xport, &KEY(0, 0, 0), &chan));
        CHECK_OK(xport->ops->expect(chan, 2));
        CHECK_STATUS(view(xport, chan, wanted, signature), TUTTI_ERR_MISMATCH);
        CHECK(strstr(last_error, text) != NULL && strstr(last_error, "peer 0") != NULL);
        CHECK_STATUS(view(xport, chan, wanted, signature), TUTTI_ERR_MISMATCH);
        xport->ops->cancel(xport, 0);
        CHECK(xport->ops->expect(chan, 1) != TUTTI_OK);
        tutti__store_release(&common->is_refused, sent > 65536);
    }
    fence();
    xport->ops->close(xport);
}

static void case_mismatch(void)
{
    mismatch(100, 104, 5, "sent 100 bytes where this rank expects 104");
    mismatch(0, 4, 5, "sent 0 bytes where this rank expects 4");
    mismatch(65536, 8, 5, "sent 65536 bytes where this rank expects 8");
    mismatch(8, 8, 6, "another collective");
    mismatch(65536, 65536, 6, "another collective");
    mismatch(100000, 65536, 5, "sent more than 65536 bytes");
}

/* Rank 0 sends `sent` bytes. Rank 1 has a place for `wanted` bytes; if `cancels` is set, it cancels
   before it looks at the message. After the cancel no data may be written to this place, and no
   data may ever be written behind it. */
static void placed(size_t sent, size_t wanted, int cancels)
{
    static unsigned char block[1 << 20];
    tutti__xport_t *xport = open_xport(sizeof(block), 2);
    tutti__chan_t *chan;
    tutti__hint_t hint;
    int pending;

    ring(xport, 1, sizeof(block), 20); /* connects */
    memset(block, me == 0 ? 1 : 2, sizeof(block));
    tutti__store_release(&common->is_refused, 0);
    if (me == 1) {
        CHECK_OK(xport->ops->open_recv(xport, &KEY(0, 0, 0), &chan));
        CHECK_OK(xport->ops->expect_at(chan, block, wanted));
        CHECK_OK(xport->ops->expect_at(chan, block, wanted));
        CHECK(xport->ops->expect_at(chan, block, wanted) == TUTTI__AGAIN);
        if (cancels)
            xport->ops->cancel(xport, 0);
        if (cancels)
            memset(block, 2, sizeof(block));
    }
    fence();
    if (me == 0) {
        CHECK_OK(xport->ops->open_send(xport, &KEY(0, 1, 0), &chan));
        CHECK_OK(xport->ops->send(chan, block, sent, 5, &pending, &hint));
        while (pending && !tutti__load_acquire(&common->is_refused) &&
               xport->ops->flush(chan, &hint) == TUTTI__AGAIN)
            sched_yield();
    } else if (me == 1 && !cancels) {
        CHECK_STATUS(view(xport, chan, wanted, 5), TUTTI_ERR_MISMATCH);
        CHECK(strstr(last_error, "peer 0 sent") != NULL);
        xport->ops->cancel(xport, 0);
    } else if (me == 1) {
        for (int i = 0; i < 1000; i++)
            CHECK_OK(xport->ops->progress(xport));
    }
    if (me == 1) {
        for (size_t i = cancels ? 0 : wanted; i < sizeof(block); i++)
            CHECK(block[i] == 2);
        tutti__store_release(&common->is_refused, 1);
    }
    fence();
    xport->ops->close(xport);
}

static void case_placed(void)
{
    for (int cancels = 0; cancels < 2; cancels++) {
        placed(100, 64, cancels);
        placed(64, 100, cancels);
        placed(1 << 20, 65536, cancels);
        placed(1 << 20, 1 << 19, cancels);
    }
}

/* Send to the right neighbour a message that no rank receives. Start receives from the left
   neighbour that get no message. */
static tutti__chan_t *stuck(tutti__xport_t *xport, char *block, size_t bytes, int may_fail)
{
    uint32_t left = (me + size - 1) % size;
    tutti__chan_t *in, *out;
    tutti__hint_t hint;
    int pending, is_sent;

    CHECK_OK(xport->ops->open_send(xport, &KEY(0, (me + 1) % size, 1), &out));
    is_sent = xport->ops->send(out, block, bytes, 0, &pending, &hint) == TUTTI_OK;
    CHECK(is_sent || may_fail);
    CHECK_OK(xport->ops->open_recv(xport, &KEY(0, left, 2), &in));
    CHECK_OK(xport->ops->expect(in, 9));
    return out;
}

/* After a lane was cancelled, UCX does not access the sender's block. */
static void case_cancel(void)
{
    static const size_t bytes[] = { 8, 1 << 20 };
    char *block = malloc(1 << 20);
    tutti__chan_t *chan;
    tutti__hint_t hint;
    uint64_t start;
    int pending;

    CHECK(block != NULL);
    for (int i = 0; i < 2; i++) {
        tutti__xport_t *xport = open_xport(1 << 20, 4);

        ring(xport, 1, 1 << 20, 20);
        chan = stuck(xport, block, bytes[i], 0);
        fence();
        start = tutti__now_ns();
        xport->ops->cancel(xport, 0);
        CHECK(tutti__now_ns() - start < HANG_NS);
        CHECK_STATUS(xport->ops->send(chan, block, 8, 0, &pending, &hint), TUTTI_ERR_TRANSPORT);
        memset(block, 1, 1 << 20);
        fence();
        xport->ops->close(xport);
    }
    free(block);
    case_two();
}

/* Lanes are cancelled and transports closed while ranks connect, at various moments. UCX prints
   errors. */
static void case_connecting(void)
{
    static const size_t bytes[] = { 8, 4096, 1 << 20 };
    char *block = calloc(1, 1 << 20);

    CHECK(block != NULL);
    for (uint32_t k = 0; k < 24; k++) {
        tutti__xport_t *xport = open_xport(1 << 20, 4);

        if (me == 0 || k % 4 != 0)
            stuck(xport, block, bytes[k % 3], 1); /* the send may fail: the peer may have left */
        for (uint32_t i = 0; i < k % 6 * me; i++) {
            CHECK_OK(xport->ops->progress(xport));
            usleep(200);
        }
        if (k % 2 == 0 || me == 1)
            xport->ops->cancel(xport, 0);
        if (k % 5 == 0)
            fence();
        xport->ops->close(xport);
        fence();
    }
    free(block);
}

/* A message wakes a sleeping rank long before its timeout. The rank's other descriptor wakes it in
   the same way. */
static void case_woken(void)
{
    int bell = eventfd(0, EFD_NONBLOCK), pending = 0;
    tutti__xport_t *xport;
    uint64_t one = 1, start;
    tutti__chan_t *chan;
    tutti__hint_t hint;
    const void *data;

    shares = 1;
    xport = open_xport(65536, 2);
    CHECK(xport->ops->sleep != NULL);
    ring(xport, 0, 8, 20);
    CHECK(bell >= 0 && xport->ops->sleep(xport, bell, 1000) == 0);
    for (int i = 0; i < 3; i++) {
        fence();
        start = tutti__now_ns();
        if (me == 0) {
            CHECK_OK(xport->ops->open_recv(xport, &KEY(1, 1, 0), &chan));
            CHECK_OK(xport->ops->expect(chan, 1));
            while (xport->ops->view(chan, 8, 5, &data, &hint) == TUTTI__AGAIN)
                CHECK(xport->ops->sleep(xport, bell, DEADLINE_NS / 1000) == 0);
            xport->ops->release(chan);
        } else if (me == 1) {
            usleep(20000);
            CHECK_OK(xport->ops->open_send(xport, &KEY(1, 0, 0), &chan));
            CHECK_OK(xport->ops->send(chan, &start, 8, 5, &pending, &hint));
            while (pending && xport->ops->flush(chan, &hint) == TUTTI__AGAIN)
                sched_yield();
        }
        CHECK(tutti__now_ns() - start < DEADLINE_NS);
    }
    CHECK(write(bell, &one, sizeof(one)) == sizeof(one));
    start = tutti__now_ns();
    while (xport->ops->sleep(xport, bell, DEADLINE_NS / 1000) == 0)
        CHECK_OK(xport->ops->progress(xport));
    CHECK(tutti__now_ns() - start < DEADLINE_NS);
    close(bell);
    fence();
    xport->ops->close(xport);
}

/* Rank 1 dies while messages are in flight. The others' calls fail after some time, and close does
   not wait for rank 1. */
static void case_killed(void)
{
    tutti__xport_t *xport = open_xport(1 << 20, 4);
    char *block = calloc(1, 1 << 20);
    tutti__chan_t *chan;
    uint64_t start;

    CHECK(block != NULL);
    ring(xport, 1, 65536, 20);
    if (me == 1)
        raise(SIGKILL);
    CHECK_OK(xport->ops->open_send(xport, &KEY(0, 1, 1), &chan));
    start = tutti__now_ns();
    for (tutti_status_t status = TUTTI_OK; status != TUTTI_ERR_TRANSPORT;) {
        tutti__hint_t hint;
        int pending = 0;

        status = xport->ops->send(chan, block, 1 << 20, 0, &pending, &hint);
        while (pending && (status = xport->ops->flush(chan, &hint)) == TUTTI__AGAIN) {
            CHECK(tutti__now_ns() - start < DEADLINE_NS);
            usleep(POLL_US);
        }
        CHECK(status == TUTTI_OK || status == TUTTI__AGAIN || status == TUTTI_ERR_TRANSPORT);
        CHECK(tutti__now_ns() - start < DEADLINE_NS);
        if (status == TUTTI__AGAIN)
            usleep(POLL_US);
    }
    CHECK(strstr(last_error, "peer 1") != NULL);
    CHECK_OK(xport->ops->open_recv(xport, &KEY(1, 1, me == 0 ? 3 : 0), &chan));
    CHECK_OK(xport->ops->expect(chan, 1));
    CHECK_STATUS(view(xport, chan, 8, 0), TUTTI_ERR_TRANSPORT);
    fence_of(size - 1);
    start = tutti__now_ns();
    xport->ops->cancel(xport, 0);
    xport->ops->cancel(xport, 1);
    xport->ops->close(xport);
    CHECK(tutti__now_ns() - start < HANG_NS);
    free(block);
}

/* Rank 1 is gone before the others connect to it. Their calls do not fail at once, because the side
   channel may report the reason. This also holds for a call that begins long after the failure.
   UCX prints errors. */
static void case_unreachable(void)
{
    tutti__xport_t *xport = open_xport(4096, 4);
    tutti_status_t status = TUTTI__AGAIN;
    tutti__chan_t *chan;
    tutti__hint_t hint;
    uint64_t start;
    int pending;

    if (me == 1)
        xport->ops->close(xport);
    fence();
    if (me == 1)
        return;
    CHECK_OK(xport->ops->open_send(xport, &KEY(0, 1, 1), &chan));
    start = tutti__now_ns();
    while (status == TUTTI__AGAIN && tutti__now_ns() - start < DEADLINE_NS) {
        status = xport->ops->send(chan, "12345678", 8, 0, &pending, &hint);
        usleep(POLL_US);
    }
    CHECK_STATUS(status, TUTTI_ERR_TRANSPORT);
    CHECK(tutti__now_ns() - start > TUTTI__UCX_NEWS_NS);
    CHECK_OK(xport->ops->open_send(xport, &KEY(1, 1, 1), &chan));
    for (int i = 0; i < 2; i++) {
        status = xport->ops->send(chan, "12345678", 8, 0, &pending, &hint);
        CHECK_STATUS(status, TUTTI__AGAIN);
        if (i == 0) /* as if this process were stopped */
            usleep(TUTTI__UCX_NEWS_NS / 1000 + 100000);
    }
    xport->ops->close(xport);
}

/* A rank exits without closing its transport. */
static void case_left_open(void)
{
    ring(open_xport(65536, 2), 0, 65536, 20);
    fence();
}

/* GPU-direct channel ends, with host memory instead of device memory. UCX accepts it if the machine
   has RDMA or ucx_gpu_direct_shim.c is preloaded. */
static void case_lent(void)
{
    tutti__xport_t *xport = open_xport(4096, 2);
    tutti__chan_key_t key = KEY(1, (me + 1) % size, TUTTI__XPORT_GPU_DIRECT);
    tutti__chan_t *chan;
    tutti_status_t status;

    CHECK_STATUS(xport->ops->take_device(xport, "nonsense"), TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(last_error, "does not support nonsense memory") != NULL);
    key.slot_bytes = 8192;
    CHECK_STATUS(xport->ops->open_send(xport, &key, &chan), TUTTI_ERR_INTERNAL);
    status = xport->ops->take_device(xport, "host");
    if (status != TUTTI_OK) {
        CHECK_STATUS(status, TUTTI_ERR_UNSUPPORTED);
        CHECK(strstr(last_error, "without an RDMA device") != NULL);
        CHECK(dlsym(RTLD_DEFAULT, "gpu_direct_counts") == NULL);
    } else {
        lend_slots(xport, size);
    }
    fence();
    CHECK(!xport->ops->keeps(xport));
    xport->ops->close(xport);
}

/* ---- processes ---- */

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = { { "data", case_data },
              { "two", case_two },
              { "threads", case_threads },
              { "quiet", case_quiet },
              { "full", case_full },
              { "anew", case_anew },
              { "mismatch", case_mismatch },
              { "placed", case_placed },
              { "cancel", case_cancel },
              { "woken", case_woken },
              { "connecting", case_connecting },
              { "killed", case_killed },
              { "unreachable", case_unreachable },
              { "left_open", case_left_open },
              { "lent", case_lent } };

static void open_module(void)
{
    const char *dir = getenv("TUTTI_MODULE_DIR");
    char path[4200];
    void *handle;

    snprintf(path, sizeof(path), "%s/ucx.so", dir != NULL ? dir : "tutti/.libs");
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        die(__LINE__, "%s", dlerror());
    module = dlsym(handle, "tutti_module");
    CHECK(module != NULL && module->abi == TUTTI__MODULE_ABI && strcmp(module->name, "ucx") == 0);
}

static void run_rank(size_t c, uint32_t rank)
{
    me = rank;
    alarm(200);
    open_module();
    cases[c].run();
    exit(0);
}

/* Returns 1 if the case failed. */
static int run_case(size_t c, uint32_t ranks)
{
    int failed = 0, status;
    pid_t pid[MOST_RANKS];

    case_name = cases[c].name;
    size = ranks;
    memset(common, 0, sizeof(*common));
    for (uint32_t r = 0; r < ranks; r++) {
        pid[r] = fork();
        if (pid[r] == 0)
            run_rank(c, r);
    }
    for (uint32_t r = 0; r < ranks; r++) {
        int is_victim = r == 1 && strcmp(case_name, "killed") == 0;

        waitpid(pid[r], &status, 0);
        failed |= is_victim ? !WIFSIGNALED(status) : status != 0;
    }
    printf("%s with %u ranks: %s\n", case_name, ranks, failed ? "FAILED" : "passed");
    fflush(stdout);
    return failed;
}

int main(int argc, char **argv)
{
    const char *dir = getenv("TUTTI_MODULE_DIR");
    char path[4200];
    int failed = 0;

    snprintf(path, sizeof(path), "%s/ucx.so", dir != NULL ? dir : "tutti/.libs");
    if (access(path, R_OK) != 0) {
        printf("there is no %s\n", path);
        return 77;
    }
    common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED)
        return 1;
    is_few = argc > 1 && strcmp(argv[1], "few") == 0;
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        int wanted = argc == 1 + is_few;

        for (int i = 1; i < argc; i++)
            wanted |= strcmp(argv[i], cases[c].name) == 0;
        for (uint32_t ranks = is_few ? 3 : 2; wanted && ranks <= 3; ranks++)
            failed |= run_case(c, ranks);
    }
    return failed;
}
