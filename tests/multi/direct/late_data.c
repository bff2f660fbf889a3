/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data that arrive late, over a transport that advances only when polled. Either the link is slow,
 * and the sender has left before its data arrive. Or the receiver's process is stopped until a time
 * limit has passed, and then needs several polls for each message.
 *
 * Rank 0 is the root of a broadcast, and has slots for all messages, so it does not wait for rank
 * 1. The hosts are pretended. The transport between them is shared memory, and rank 1 delays its
 * messages.
 */
#include "base/time.h"
#include "engine/state.h"
#include "ranks.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MESSAGES = 8,
    CHUNK_BYTES = 4096,
    BYTES = TUTTI__XPORT_LONGER * CHUNK_BYTES, /* of one message */
    COUNT = MESSAGES * BYTES / (int)sizeof(float),
    POLLS = 4,            /* failed polls before each message, after a stop */
    MESSAGE_US = 100000,  /* time of one message over the slow link */
    GRACE_US = 400000,    /* a stop longer than the grace period after a rank has left */
    DEADLINE_US = 1500000 /* a stop longer than TUTTI_TIMEOUT */
};

/* How rank 1 receives. */
typedef struct {
    const char *name;
    int is_async;
    int is_slow;      /* 1: each message arrives MESSAGE_US after the previous message */
    int awaits;       /* 1: no message arrives before rank 0 has left */
    unsigned stop_us; /* time for which this process is stopped */
} receiver_t;

static atomic_int *has_received;

static struct {
    const receiver_t *receiver;
    const tutti__watch_t *watch;
    tutti__xport_ops_t shm;
    uint64_t begin_ns, due_ns;
    unsigned polls; /* failed polls for the next message so far */
    int views;      /* polls after rank 0 has left, or after the first 200 ms */
} late;

/* Has the next message arrived? */
static int has_arrived(void)
{
    const receiver_t *receiver = late.receiver;
    uint64_t now = tutti__now_ns();

    if (receiver->is_slow)
        return now >= late.due_ns;
    if (late.begin_ns == 0)
        late.begin_ns = now;
    /* The time limit must begin before the stop. After a departure it begins at the first poll. For
       TUTTI_TIMEOUT it begins when the waiting call first sleeps, which is within 200 ms. */
    if (receiver->awaits ? !tutti__watch_has_left(late.watch, 0) : now - late.begin_ns < 200000000u)
        return 0;
    if (++late.views == 2)
        usleep(receiver->stop_us);
    return late.views > 2 && ++late.polls > POLLS;
}

static tutti_status_t view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                           const void **ret_data, tutti__hint_t *hint)
{
    tutti_status_t status = TUTTI__AGAIN;

    if (has_arrived())
        status = late.shm.view(chan, bytes, signature, ret_data, hint);
    if (status == TUTTI__AGAIN)
        *hint = (tutti__hint_t){ .peer = 0 };
    if (status == TUTTI_OK) {
        late.due_ns = tutti__now_ns() + MESSAGE_US * UINT64_C(1000);
        late.polls = 0;
    }
    return status;
}

/* From now on the library must poll the transport, and rank 1 receives late. */
static void delay(rank_t *self)
{
    static tutti__xport_ops_t ops;

    late.receiver = self->arg;
    late.watch = self->inside->watch;
    late.shm = *self->inside->shm->ops;
    ranks_poll_far(self->inside, &ops);
    if (self->rank == 1)
        ops.view = view;
}

static tutti_status_t broadcast(rank_t *self, float *x)
{
    const receiver_t *receiver = self->arg;
    tutti_request_t *r;

    if (!receiver->is_async)
        return tutti_broadcast(x, COUNT, TUTTI_FLOAT32, 0, self->comm);
    CHECK_OK(tutti_broadcast_async("x", x, COUNT, TUTTI_FLOAT32, 0, self->comm, NULL, &r));
    return tutti_wait(r, -1);
}

static void receive_late(rank_t *self)
{
    const receiver_t *receiver = self->arg;
    static float x[COUNT];

    delay(self);
    for (int i = 0; i < COUNT; i++)
        x[i] = self->rank == 0 ? (float)i : -1;
    CHECK_OK(broadcast(self, x));
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(x[i], i);
    if (self->rank == 1)
        atomic_store(has_received, 1);
    for (int i = 0; !receiver->awaits && !receiver->is_slow && !atomic_load(has_received); i++) {
        CHECK(i < 20000);
        usleep(1000);
    }
}

static void settings(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.chunk_bytes = CHUNK_BYTES;
    conf->shared.credits = MESSAGES;
    conf->shared.compare = 0; /* so that no message precedes the data */
}

static void short_deadline(tutti__conf_t *conf, int rank)
{
    settings(conf, rank);
    conf->shared.timeout_ms = 1000;
}

int main(void)
{
    static const receiver_t receivers[] = {
        { .name = "a slow link", .is_slow = 1 },
        { .name = "a slow link, asynchronous", .is_slow = 1, .is_async = 1 },
        { .name = "stopped", .awaits = 1, .stop_us = GRACE_US },
        { .name = "stopped, asynchronous", .awaits = 1, .stop_us = GRACE_US, .is_async = 1 },
        { .name = "stopped until the deadline", .stop_us = DEADLINE_US },
    };
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    has_received = mmap(NULL, sizeof(*has_received), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (has_received == MAP_FAILED)
        return 1;
    for (size_t i = 0; i < sizeof(receivers) / sizeof(receivers[0]); i++) {
        receiver_t receiver = receivers[i];
        job_t job = { .size = 2, .hosts = "ab", .fn = receive_late, .arg = &receiver };

        job.settings = receiver.stop_us == DEADLINE_US ? short_deadline : settings;
        atomic_store(has_received, 0);
        if (ranks_run(&job) != 0) {
            fprintf(stderr, "FAILED: %s\n", receiver.name);
            failures++;
        }
    }
    return failures != 0;
}
