/* SPDX-License-Identifier: BSD-3-Clause */
/* A slow and strict transport before another one. See lag.h. */
#include "unit/exec/lag.h"

#include "unit/node/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_PLACES 64
#define STREAMS 8
#define MOST_CALLS 4 /* a call is delayed at most this often */

typedef struct lag lag_t;

struct tutti__chan {
    lag_t *lag;
    tutti__chan_t *inner;
    tutti__chan_key_t key;
    uint32_t wait; /* calls still to be delayed */
    size_t count;  /* messages since lag_begin */
    int is_recv;

    /* sender */
    const void *data; /* of the pending message; NULL: none */
    size_t bytes;
    uint32_t signature;
    uint32_t sent; /* zero credits: number of sent messages */

    /* receiver */
    size_t expected;
    int asked; /* zero credits: the receiver has asked for the next message */
    void *lent;
    void *place[MOST_PLACES]; /* places of the expected messages, in order; NULL: none */
    tutti__chan_t *next;
};

struct lag {
    tutti__xport_t xport;
    tutti__xport_t *inner;
    uint32_t seed, rank;
    int kind;
    tutti__chan_t *chans;
};

uint64_t lag_ticks, lag_places;

/* Zero credits: messages for which rank [to] has asked rank [from]. */
static uint32_t asked[TUTTI__LANES][WORLD_RANKS][WORLD_RANKS][STREAMS];

static uint32_t draw(lag_t *lag, uint32_t n)
{
    lag->seed = lag->seed * 1664525u + 1013904223u;
    return (lag->seed >> 8) % n;
}

/* Remove the word from the wait hint: the rank must not sleep, because with the next call this
   transport may act differently. */
static tutti_status_t no_word(tutti_status_t status, tutti__hint_t *hint)
{
    if (status == TUTTI__AGAIN)
        hint->word = NULL;
    return status;
}

static tutti_status_t put_off(const tutti__chan_t *chan, tutti__hint_t *hint)
{
    lag_ticks++;
    hint->word = NULL;
    hint->peer = (int32_t)chan->key.peer;
    return TUTTI__AGAIN;
}

static tutti_status_t open_end(tutti__xport_t *xport, const tutti__chan_key_t *key, int is_recv,
                               tutti__chan_t **ret_chan)
{
    lag_t *lag = (lag_t *)xport;
    tutti__chan_t *chan;

    for (chan = lag->chans; chan != NULL; chan = chan->next)
        if (memcmp(&chan->key, key, sizeof(*key)) == 0 && chan->is_recv == is_recv)
            break;
    if (chan == NULL) {
        chan = calloc(1, sizeof(*chan));
        assert_non_null(chan);
        chan->lag = lag;
        chan->key = *key;
        chan->is_recv = is_recv;
        chan->next = lag->chans;
        lag->chans = chan;
    }
    *ret_chan = chan;
    if (is_recv)
        return lag->inner->ops->open_recv(lag->inner, key, &chan->inner);
    return lag->inner->ops->open_send(lag->inner, key, &chan->inner);
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

static tutti_status_t flush(tutti__chan_t *chan, tutti__hint_t *hint)
{
    lag_t *lag = chan->lag;
    tutti_status_t status;
    int pending = 0;

    if (chan->data == NULL)
        return TUTTI_OK;
    if (lag->kind == LAG_ZERO_CREDITS &&
        asked[chan->key.lane][chan->key.peer][lag->rank][chan->key.stream] == chan->sent) {
        hint->word = NULL;
        hint->peer = (int32_t)chan->key.peer;
        return TUTTI__AGAIN;
    }
    if (chan->wait > 0) {
        chan->wait--;
        return put_off(chan, hint);
    }
    status = lag->inner->ops->send(chan->inner, chan->data, chan->bytes, chan->signature, &pending,
                                   hint);
    if (status == TUTTI_OK) {
        chan->data = NULL;
        chan->sent++;
        lag_ticks++;
    }
    assert_int_equal(pending, 0);
    return no_word(status, hint);
}

/* See xport.h: a function that returns AGAIN has advanced all messages of the transport. */
static void advance(lag_t *lag)
{
    tutti__hint_t hint;

    for (tutti__chan_t *chan = lag->chans; chan != NULL; chan = chan->next)
        (void)flush(chan, &hint);
}

static tutti_status_t lag_flush(tutti__chan_t *chan, tutti__hint_t *hint)
{
    tutti_status_t status = flush(chan, hint);

    if (status == TUTTI__AGAIN)
        advance(chan->lag);
    return status;
}

static tutti_status_t lag_send(tutti__chan_t *chan, const void *data, size_t bytes,
                               uint32_t signature, int *ret_pending, tutti__hint_t *hint)
{
    lag_t *lag = chan->lag;

    assert_null(chan->data);
    switch (draw(lag, 4)) {
    case 0:
        return put_off(chan, hint);
    case 1:
        if (lag->kind == LAG_CREDITS) {
            tutti_status_t status =
                lag->inner->ops->send(chan->inner, data, bytes, signature, ret_pending, hint);

            chan->count += status == TUTTI_OK;
            return no_word(status, hint);
        }
        /* fall through */
    default:
        chan->count++;
        chan->data = data;
        chan->bytes = bytes;
        chan->signature = signature;
        chan->wait = draw(lag, MOST_CALLS);
        *ret_pending = 1;
        return TUTTI_OK;
    }
}

static tutti_status_t lag_expect(tutti__chan_t *chan, size_t messages)
{
    chan->expected += messages;
    return TUTTI_OK;
}

/* A message may arrive in its place at once. Sometimes the transport accepts no place. */
static tutti_status_t lag_expect_at(tutti__chan_t *chan, void *place, size_t bytes)
{
    if (chan->expected >= MOST_PLACES || (chan->expected > 0 && draw(chan->lag, 3) == 0))
        return TUTTI__AGAIN;
    memset(place, 0xee, bytes);
    chan->place[chan->expected++] = place;
    lag_places++;
    return TUTTI_OK;
}

static tutti_status_t lag_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                               const void **ret_data, tutti__hint_t *hint)
{
    lag_t *lag = chan->lag;
    const void *data;
    tutti_status_t status;

    if (chan->expected == 0)
        fail_msg("more messages from rank %u, stream %u than expected", chan->key.peer,
                 chan->key.stream);
    if (chan->lent != NULL) {
        *ret_data = chan->lent;
        return TUTTI_OK;
    }
    if (lag->kind == LAG_ZERO_CREDITS && !chan->asked) {
        asked[chan->key.lane][lag->rank][chan->key.peer][chan->key.stream]++;
        chan->asked = 1;
        lag_ticks++;
    }
    if (draw(lag, 3) == 0)
        return put_off(chan, hint);
    status = lag->inner->ops->view(chan->inner, bytes, signature, &data, hint);
    if (status != TUTTI_OK) {
        advance(lag);
        return no_word(status, hint);
    }
    chan->lent = chan->place[0] != NULL ? chan->place[0] : malloc(bytes);
    assert_non_null(chan->lent);
    memcpy(chan->lent, data, bytes);
    *ret_data = chan->lent;
    return TUTTI_OK;
}

static void lag_release(tutti__chan_t *chan)
{
    assert_non_null(chan->lent);
    if (chan->place[0] == NULL)
        free(chan->lent);
    chan->lent = NULL;
    chan->asked = 0;
    chan->count++;
    chan->expected--;
    memmove(chan->place, chan->place + 1, sizeof(chan->place) - sizeof(*chan->place));
    chan->place[MOST_PLACES - 1] = NULL;
    chan->lag->inner->ops->release(chan->inner);
}

static void lag_cancel(tutti__xport_t *xport, uint32_t lane)
{
    lag_t *lag = (lag_t *)xport;

    for (tutti__chan_t *chan = lag->chans; chan != NULL; chan = chan->next) {
        if (chan->key.lane == lane) {
            if (chan->lent != NULL && chan->place[0] == NULL)
                free(chan->lent);
            chan->lent = NULL;
            chan->data = NULL;
            chan->expected = 0;
            memset(chan->place, 0, sizeof(chan->place));
        }
    }
    lag->inner->ops->cancel(lag->inner, lane);
}

static int lag_may_progress(tutti__xport_t *xport, int is_engine)
{
    (void)xport;
    return is_engine;
}

static void lag_close(tutti__xport_t *xport)
{
    lag_t *lag = (lag_t *)xport;

    while (lag->chans != NULL) {
        tutti__chan_t *chan = lag->chans;

        lag->chans = chan->next;
        free(chan);
    }
    free(lag);
}

void lag_begin(tutti__chan_t *chan)
{
    chan->count = 0;
}

size_t lag_count(const tutti__chan_t *chan)
{
    return chan->count;
}

int lag_is_end(const tutti__end_t *end)
{
    return end->ops->close == lag_close;
}

size_t lag_missing(const tutti__xport_t *xport)
{
    size_t missing = 0;

    for (tutti__chan_t *chan = ((const lag_t *)xport)->chans; chan != NULL; chan = chan->next)
        missing += chan->expected;
    return missing;
}

tutti__xport_t *lag_open(tutti__xport_t *inner, uint32_t rank, int kind)
{
    static const tutti__xport_ops_t ops = {
        .name = "lag",
        .purpose = "tests: as slow and strict as allowed",
        .close = lag_close,
        .open_send = open_send,
        .open_recv = open_recv,
        .send = lag_send,
        .flush = lag_flush,
        .expect = lag_expect,
        .expect_at = lag_expect_at,
        .view = lag_view,
        .release = lag_release,
        .may_progress = lag_may_progress,
        .cancel = lag_cancel,
    };
    lag_t *lag = calloc(1, sizeof(*lag));

    assert_non_null(lag);
    lag->xport.ops = &ops;
    assert_true(rank < WORLD_RANKS);
    lag->xport.sends_alone = kind == LAG_ZERO_CREDITS;
    lag->xport.least_placed = rank % 2 == 0 ? 1 : 32;
    lag->inner = inner;
    lag->seed = rank + 1;
    lag->rank = rank;
    lag->kind = kind;
    for (uint32_t lane = 0; lane < TUTTI__LANES; lane++)
        memset(asked[lane][rank], 0, sizeof(asked[lane][rank]));
    return &lag->xport;
}
