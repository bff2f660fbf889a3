/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams: each is a thread that executes the queued work later, in order.
 */
#include "pretend/inside.h"

#include "base/time.h"

#include <stdlib.h>
#include <time.h>

struct tutti__dstream {
    device_t *device;
    tutti__dstream_t *next; /* protected by the device's lock */
    pthread_t thread;
    unsigned seed; /* state of the thread's random numbers */
    int is_urgent;
    atomic_int captures;
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t changed;
    item_t *head, **tail;
    uint64_t queued, finished;
    int ending;
    tutti__nccl_t *launching;
    trouble_t trouble;
};

static void sleep_ns(uint64_t ns)
{
    struct timespec ts = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

    nanosleep(&ts, NULL);
}

void stream_pace(uint64_t begin_ns, size_t bytes, double rate)
{
    uint64_t end_ns, now = tutti__now_ns();

    if (rate <= 0)
        return;
    end_ns = begin_ns + (uint64_t)((double)bytes / rate * 1e9);
    if (end_ns > now)
        sleep_ns(end_ns - now);
}

static void *stream_main(void *arg)
{
    tutti__dstream_t *stream = arg;
    item_t *item;

    device_set_mine(stream->device);
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        unsigned most_us = atomic_load(&pretend_options.delay_us);

        while (stream->head == NULL && !stream->ending)
            pthread_cond_wait(&stream->changed, &stream->lock);
        if (stream->head == NULL)
            break;
        item = stream->head;
        stream->head = item->next;
        if (stream->head == NULL)
            stream->tail = &stream->head;
        pthread_mutex_unlock(&stream->lock);
        if (most_us > 0)
            sleep_ns((uint64_t)rand_r(&stream->seed) % (most_us + 1) * 1000u);
        item->run(item, stream);
        free(item);
        pthread_mutex_lock(&stream->lock);
        stream->finished++;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* Call it with the device's lock held. */
static tutti_status_t start(device_t *device, tutti__dstream_t **ret_stream)
{
    static atomic_uint number;
    tutti__dstream_t *stream = calloc(1, sizeof(*stream));

    if (stream == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "stream_make");
    stream->device = device;
    stream->seed = atomic_load(&pretend_options.seed) + atomic_fetch_add(&number, 1);
    stream->tail = &stream->head;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0) {
        free(stream);
        return tutti__fail(TUTTI_ERR_SYSTEM, "stream_make: no thread");
    }
    stream->next = device->streams;
    device->streams = stream;
    *ret_stream = stream;
    return TUTTI_OK;
}

static void end(tutti__dstream_t *stream)
{
    device_t *device = stream->device;
    tutti__dstream_t **at;

    pthread_mutex_lock(&stream->lock);
    stream->ending = 1;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&device->lock);
    for (at = &device->streams; *at != stream; at = &(*at)->next)
        ;
    *at = stream->next;
    pthread_mutex_unlock(&device->lock);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

tutti_status_t stream_make(int is_urgent, tutti__dstream_t **ret_stream)
{
    device_t *device;
    tutti_status_t status = device_mine("stream_make", &device);

    if (status == TUTTI_OK)
        status = device_changes(device, PRETEND_MADE, "stream_make");
    if (status != TUTTI_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    status = start(device, ret_stream);
    pthread_mutex_unlock(&device->lock);
    if (status != TUTTI_OK)
        return status;
    (*ret_stream)->is_urgent = is_urgent;
    atomic_fetch_add(&pretend_left, 1);
    return status;
}

/* Waits until the stream's work is complete. */
void stream_drop(tutti__dstream_t *stream)
{
    if (stream == NULL)
        return;
    (void)device_changes(stream->device, PRETEND_MADE, "stream_drop");
    end(stream);
    atomic_fetch_sub(&pretend_left, 1);
}

void stream_end_legacy(device_t *device)
{
    if (device->legacy != NULL)
        end(device->legacy);
    device->legacy = NULL;
}

int stream_captures(tutti__dstream_t *stream)
{
    return stream != NULL && atomic_load(&stream->captures);
}

void pretend_capture(tutti__dstream_t *stream, int captures)
{
    atomic_store(&stream->captures, captures);
}

device_t *stream_device(const tutti__dstream_t *stream)
{
    return stream->device;
}

int stream_is_urgent(const tutti__dstream_t *stream)
{
    return stream->is_urgent;
}

tutti_status_t stream_find(const char *what, tutti__dstream_t **stream)
{
    device_t *device;
    tutti_status_t status = device_mine(what, &device);

    if (status != TUTTI_OK)
        return status;
    if (*stream == NULL) {
        pthread_mutex_lock(&device->lock);
        if (device->legacy == NULL)
            status = start(device, &device->legacy);
        *stream = device->legacy;
        pthread_mutex_unlock(&device->lock);
    } else if ((*stream)->device != device) {
        status = tutti__fail(TUTTI_ERR_SYSTEM, "%s: the stream is device %d's, the thread uses %d",
                             what, (*stream)->device->number, device->number);
    }
    if (status == TUTTI_OK && stream_captures(*stream))
        status = tutti__fail(TUTTI_ERR_SYSTEM, "%s: the stream is being captured", what);
    return status;
}

tutti_status_t stream_item(size_t bytes, void (*run)(item_t *, tutti__dstream_t *), void *ret_item)
{
    item_t *item = calloc(1, bytes);

    if (item == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "a piece of work");
    item->run = run;
    *(item_t **)ret_item = item;
    return TUTTI_OK;
}

tutti_status_t stream_push(const char *what, tutti__dstream_t *stream, void *item)
{
    item_t *last = item;
    tutti__nccl_t *launching;

    pthread_mutex_lock(&stream->device->driver);
    pthread_mutex_lock(&stream->lock);
    launching = stream->launching;
    if (launching == NULL) {
        *stream->tail = last;
        stream->tail = &last->next;
        stream->queued++;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    pthread_mutex_unlock(&stream->device->driver);
    if (launching == NULL)
        return TUTTI_OK;
    free(item);
    return nccl_fail(launching,
                     "%s: nccl_poll has not said that the stream's last NCCL call is queued", what);
}

tutti_status_t stream_launching(tutti__dstream_t *stream, tutti__nccl_t *nccl)
{
    int is_free;

    pthread_mutex_lock(&stream->lock);
    is_free = nccl == NULL || stream->launching == NULL;
    if (is_free)
        stream->launching = nccl;
    pthread_mutex_unlock(&stream->lock);
    return is_free ? TUTTI_OK : nccl_fail(nccl, "nccl_call: the stream has another call to queue");
}

void stream_trouble(tutti__dstream_t *stream, const trouble_t *trouble)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->trouble.status == TUTTI_OK)
        stream->trouble = *trouble;
    pthread_mutex_unlock(&stream->lock);
}

trouble_t stream_its_trouble(tutti__dstream_t *stream)
{
    trouble_t trouble;

    pthread_mutex_lock(&stream->lock);
    trouble = stream->trouble;
    pthread_mutex_unlock(&stream->lock);
    return trouble;
}

void streams_forget(device_t *device, const void *owner)
{
    pthread_mutex_lock(&device->lock);
    for (tutti__dstream_t *s = device->streams; s != NULL; s = s->next) {
        pthread_mutex_lock(&s->lock);
        if (s->trouble.owner == owner)
            s->trouble.status = TUTTI_OK;
        if (s->launching == owner)
            s->launching = NULL;
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&device->lock);
}

void stream_drain(tutti__dstream_t *stream)
{
    uint64_t until;

    pthread_mutex_lock(&stream->lock);
    until = stream->queued;
    while (stream->finished < until)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

static void drain(device_t *device)
{
    pthread_mutex_lock(&device->driver);
    pthread_mutex_lock(&device->lock);
    for (tutti__dstream_t *s = device->streams; s != NULL; s = s->next)
        stream_drain(s);
    pthread_mutex_unlock(&device->lock);
    pthread_mutex_unlock(&device->driver);
}

void device_drain(device_t *device)
{
    if (atomic_load(&device->nccl_in_flight) > 0)
        device_count(device, PRETEND_SYNCS_IN_NCCL);
    drain(device);
}

int pretend_synchronize(int device)
{
    int had_nccl = atomic_load(&device_at(device)->nccl_in_flight) > 0;

    drain(device_at(device));
    return had_nccl;
}
