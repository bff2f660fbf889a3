/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages from and to device memory. See far.h. */
#include "unit/exec/far.h"

#include "pretend/pretend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 8
#define MOST_CALLS 4 /* a call is delayed at most this often */

typedef struct far far_t;

typedef struct message {
    struct message *next;
    size_t bytes;
    uint32_t signature;
    char data[];
} message_t;

/* The messages from one rank's stream to another. All ranks of the process share the queue. */
typedef struct queue {
    struct queue *next;
    uint32_t lane, from, to, stream;
    message_t *first, **last;
} queue_t;

struct tutti__chan {
    far_t *far;
    tutti__chan_t *next, *below; /* below: NULL if this end is GPU-direct */
    tutti__chan_key_t key;
    int is_recv;
    queue_t *queue;

    /* sender */
    const void *data; /* of the pending message; NULL: none */
    size_t bytes;
    uint32_t signature, wait;

    /* receiver: `posted` slots from head on; the first `arrived` of them are filled */
    size_t expected; /* not posted yet */
    uint32_t head, posted, arrived;
    message_t came[SLOTS]; /* the arrived messages, without their data */
};

struct far {
    tutti__xport_t xport, *below;
    uint32_t rank, seed;
    tutti__chan_t *chans;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects queues */
static queue_t *queues;
static atomic_uint messages;

static void must(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "far: %s\n", what);
    abort();
}

static uint32_t draw(far_t *far, uint32_t n)
{
    far->seed = far->seed * 1664525u + 1013904223u;
    return (far->seed >> 8) % n;
}

static tutti_status_t again(const tutti__chan_t *chan, tutti__hint_t *hint)
{
    hint->word = NULL;
    hint->peer = (int32_t)chan->key.peer;
    return TUTTI__AGAIN;
}

/* Is this memory of the rank's device? */
static int is_its(const far_t *far, const void *ptr)
{
    tutti__where_t where = pretend_device()->where(ptr);

    return where.kind == TUTTI__MEM_DEVICE && where.device == (int)far->rank;
}

static queue_t *find_queue(const tutti__chan_t *chan)
{
    uint32_t from = chan->is_recv ? chan->key.peer : chan->far->rank;
    uint32_t to = chan->is_recv ? chan->far->rank : chan->key.peer;
    queue_t *q;

    pthread_mutex_lock(&lock);
    for (q = queues; q != NULL; q = q->next)
        if (q->lane == chan->key.lane && q->from == from && q->to == to &&
            q->stream == chan->key.stream)
            break;
    if (q == NULL) {
        q = calloc(1, sizeof(*q));
        *q = (queue_t){ queues, chan->key.lane, from, to, chan->key.stream, NULL, NULL };
        q->last = &q->first;
        queues = q;
    }
    pthread_mutex_unlock(&lock);
    return q;
}

static tutti_status_t open_end(tutti__xport_t *xport, const tutti__chan_key_t *key, int is_recv,
                               tutti__chan_t **ret_chan)
{
    far_t *far = (far_t *)xport;
    const tutti__xport_ops_t *below = far->below->ops;
    tutti__chan_t *chan;

    for (chan = far->chans; chan != NULL; chan = chan->next)
        if (chan->key.lane == key->lane && chan->key.peer == key->peer &&
            chan->key.stream == key->stream && chan->is_recv == is_recv)
            break;
    if (chan == NULL) {
        chan = calloc(1, sizeof(*chan));
        chan->far = far;
        chan->is_recv = is_recv;
        chan->next = far->chans;
        far->chans = chan;
    }
    must(chan->posted == 0 && chan->expected == 0 && chan->data == NULL, "an end changes in use");
    chan->key = *key;
    chan->head = 0;
    *ret_chan = chan;
    must((key->slot_bytes > 0) == (key->stream >= TUTTI__XPORT_GPU_DIRECT), "the stream is wrong");
    if (key->slot_bytes == 0)
        return is_recv ? below->open_recv(far->below, key, &chan->below)
                       : below->open_send(far->below, key, &chan->below);
    must(!is_recv || (key->credits >= 1 && key->credits <= SLOTS), "credits");
    must(!is_recv || is_its(far, key->slots), "slots that are not the device's");
    chan->queue = find_queue(chan);
    return TUTTI_OK;
}

static tutti_status_t open_send(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    return open_end(xport, key, 0, ret_chan);
}

static tutti_status_t open_recv(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    return open_end(xport, key, 1, ret_chan);
}

static tutti_status_t far_flush(tutti__chan_t *chan, tutti__hint_t *hint)
{
    message_t *message;

    if (chan->below != NULL)
        return chan->far->below->ops->flush(chan->below, hint);
    must(chan->data != NULL, "flush of nothing");
    if (chan->wait > 0) {
        chan->wait--;
        return again(chan, hint);
    }
    message = calloc(1, sizeof(*message) + chan->bytes);
    message->bytes = chan->bytes;
    message->signature = chan->signature;
    pretend_read(message->data, chan->data, chan->bytes);
    pthread_mutex_lock(&lock);
    *chan->queue->last = message;
    chan->queue->last = &message->next;
    pthread_mutex_unlock(&lock);
    chan->data = NULL;
    return TUTTI_OK;
}

static tutti_status_t far_send(tutti__chan_t *chan, const void *data, size_t bytes,
                               uint32_t signature, int *ret_pending, tutti__hint_t *hint)
{
    if (chan->below != NULL)
        return chan->far->below->ops->send(chan->below, data, bytes, signature, ret_pending, hint);
    must(chan->data == NULL && bytes <= chan->key.slot_bytes, "a message too many, or too long");
    must(is_its(chan->far, data), "data that are not the device's");
    if (draw(chan->far, 4) == 0)
        return again(chan, hint);
    chan->data = data;
    chan->bytes = bytes;
    chan->signature = signature;
    chan->wait = draw(chan->far, MOST_CALLS);
    *ret_pending = 1;
    return TUTTI_OK;
}

static char *slot(const tutti__chan_t *chan, uint32_t i)
{
    return chan->key.slots + (chan->head + i) % chan->key.credits * chan->key.slot_bytes;
}

/* Post as many slots as possible, and fill them. */
static void deliver(tutti__chan_t *chan)
{
    for (; chan->expected > 0 && chan->posted < chan->key.credits; chan->posted++)
        chan->expected--;
    while (chan->arrived < chan->posted) {
        message_t *message;

        pthread_mutex_lock(&lock);
        message = chan->queue->first;
        if (message != NULL)
            chan->queue->first = message->next;
        if (chan->queue->first == NULL)
            chan->queue->last = &chan->queue->first;
        pthread_mutex_unlock(&lock);
        if (message == NULL)
            return;
        pretend_write(slot(chan, chan->arrived), message->data, message->bytes);
        chan->came[chan->arrived].bytes = message->bytes;
        chan->came[chan->arrived++].signature = message->signature;
        free(message);
        atomic_fetch_add(&messages, 1);
    }
}

static tutti_status_t far_expect(tutti__chan_t *chan, size_t n)
{
    const tutti__xport_ops_t *below = chan->far->below->ops;

    if (chan->below != NULL)
        return below->expect != NULL ? below->expect(chan->below, n) : TUTTI_OK;
    chan->expected += n;
    deliver(chan);
    return TUTTI_OK;
}

static tutti_status_t far_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                               const void **ret_data, tutti__hint_t *hint)
{
    if (chan->below != NULL)
        return chan->far->below->ops->view(chan->below, bytes, signature, ret_data, hint);
    deliver(chan);
    must(chan->posted > 0, "more messages than expected");
    if (chan->arrived == 0 || draw(chan->far, 3) == 0)
        return again(chan, hint);
    must(chan->came[0].bytes == bytes && chan->came[0].signature == signature, "another message");
    *ret_data = slot(chan, 0);
    return TUTTI_OK;
}

static void far_release(tutti__chan_t *chan)
{
    char *rubbish;

    if (chan->below != NULL) {
        chan->far->below->ops->release(chan->below);
        return;
    }
    must(chan->arrived > 0, "nothing to give back");
    rubbish = malloc(chan->key.slot_bytes);
    memset(rubbish, 0x5a, chan->key.slot_bytes);
    pretend_write(slot(chan, 0), rubbish, chan->key.slot_bytes);
    free(rubbish);
    chan->head = (chan->head + 1) % chan->key.credits;
    chan->posted--;
    chan->arrived--;
    memmove(chan->came, chan->came + 1, sizeof(chan->came) - sizeof(chan->came[0]));
    deliver(chan);
}

static void far_cancel(tutti__xport_t *xport, uint32_t lane)
{
    far_t *far = (far_t *)xport;

    for (tutti__chan_t *chan = far->chans; chan != NULL; chan = chan->next) {
        if (chan->key.lane != lane)
            continue;
        chan->data = NULL;
        chan->expected = chan->posted = chan->arrived = 0;
    }
    far->below->ops->cancel(far->below, lane);
}

static int far_may_progress(tutti__xport_t *xport, int is_engine)
{
    (void)xport;
    return is_engine;
}

static void far_close(tutti__xport_t *xport)
{
    far_t *far = (far_t *)xport;

    while (far->chans != NULL) {
        tutti__chan_t *chan = far->chans;

        far->chans = chan->next;
        free(chan);
    }
    pthread_mutex_lock(&lock);
    while (queues != NULL) {
        queue_t *queue = queues;

        while (queue->first != NULL) {
            message_t *message = queue->first;

            queue->first = message->next;
            free(message);
        }
        queues = queue->next;
        free(queue);
    }
    pthread_mutex_unlock(&lock);
    free(far);
}

unsigned far_messages(void)
{
    return atomic_exchange(&messages, 0);
}

size_t far_missing(const tutti__xport_t *xport)
{
    size_t missing = 0;

    for (tutti__chan_t *chan = ((const far_t *)xport)->chans; chan != NULL; chan = chan->next)
        missing += chan->expected + chan->posted + (chan->data != NULL);
    pthread_mutex_lock(&lock);
    for (const queue_t *queue = queues; queue != NULL; queue = queue->next)
        missing += queue->first != NULL;
    pthread_mutex_unlock(&lock);
    return missing;
}

tutti__xport_t *far_open(tutti__xport_t *below, uint32_t rank)
{
    static const tutti__xport_ops_t ops = {
        .name = "far",
        .purpose = "tests: takes device memory",
        .close = far_close,
        .open_send = open_send,
        .open_recv = open_recv,
        .send = far_send,
        .flush = far_flush,
        .expect = far_expect,
        .view = far_view,
        .release = far_release,
        .may_progress = far_may_progress,
        .cancel = far_cancel,
    };
    far_t *far = calloc(1, sizeof(*far));

    far->xport.ops = &ops;
    far->below = below;
    far->rank = rank;
    far->seed = rank + 1;
    return &far->xport;
}
