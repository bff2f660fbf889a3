/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events. Each record makes a new point. A waiting stream keeps a reference on its point. So a
 * later record does not affect this stream, as in CUDA.
 */
#include "pretend/inside.h"

#include "base/time.h"

#include <stdlib.h>

typedef struct {
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t changed;
    int users, done;
    uint64_t done_ns;
    trouble_t trouble;
} point_t;

struct tutti__devent {
    device_t *device;
    int is_timer;
    pthread_mutex_t lock;
    point_t *point; /* the point of the last record; NULL: no record */
};

typedef struct {
    item_t item;
    point_t *point;
} point_item_t;

static point_t *make_point(void)
{
    point_t *point = calloc(1, sizeof(*point));

    if (point != NULL) {
        pthread_mutex_init(&point->lock, NULL);
        pthread_cond_init(&point->changed, NULL);
        point->users = 2; /* the event and the stream */
    }
    return point;
}

static void leave(point_t *point)
{
    int users;

    if (point == NULL)
        return;
    pthread_mutex_lock(&point->lock);
    users = --point->users;
    pthread_mutex_unlock(&point->lock);
    if (users > 0)
        return;
    pthread_cond_destroy(&point->changed);
    pthread_mutex_destroy(&point->lock);
    free(point);
}

/* Returns the point of the last record with a new reference, or NULL. */
static point_t *hold(tutti__devent_t *event)
{
    point_t *point;

    pthread_mutex_lock(&event->lock);
    point = event->point;
    if (point != NULL) {
        pthread_mutex_lock(&point->lock);
        point->users++;
        pthread_mutex_unlock(&point->lock);
    }
    pthread_mutex_unlock(&event->lock);
    return point;
}

static tutti_status_t make(const char *what, int is_timer, tutti__devent_t **ret_event)
{
    device_t *device;
    tutti_status_t status = device_mine(what, &device);
    tutti__devent_t *event;

    if (status == TUTTI_OK)
        status = device_changes(device, PRETEND_MADE, what);
    if (status != TUTTI_OK)
        return status;
    event = calloc(1, sizeof(*event));
    if (event == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%s", what);
    event->device = device;
    event->is_timer = is_timer;
    pthread_mutex_init(&event->lock, NULL);
    atomic_fetch_add(&pretend_left, 1);
    *ret_event = event;
    return TUTTI_OK;
}

tutti_status_t event_make(tutti__devent_t **ret_event)
{
    return make("event_make", 0, ret_event);
}

tutti_status_t event_timer(tutti__devent_t **ret_timer)
{
    return make("timer_make", 1, ret_timer);
}

void event_drop(tutti__devent_t *event)
{
    if (event == NULL)
        return;
    (void)device_changes(event->device, PRETEND_MADE, "event_drop");
    leave(event->point);
    pthread_mutex_destroy(&event->lock);
    free(event);
    atomic_fetch_sub(&pretend_left, 1);
}

static void run_record(item_t *item, tutti__dstream_t *stream)
{
    point_t *point = ((point_item_t *)item)->point;
    trouble_t trouble = stream_its_trouble(stream);

    pthread_mutex_lock(&point->lock);
    point->trouble = trouble;
    point->done = 1;
    point->done_ns = tutti__now_ns();
    pthread_cond_broadcast(&point->changed);
    pthread_mutex_unlock(&point->lock);
    leave(point);
}

static void run_wait(item_t *item, tutti__dstream_t *stream)
{
    point_t *point = ((point_item_t *)item)->point;
    trouble_t trouble;

    pthread_mutex_lock(&point->lock);
    while (!point->done)
        pthread_cond_wait(&point->changed, &point->lock);
    trouble = point->trouble;
    pthread_mutex_unlock(&point->lock);
    if (trouble.status != TUTTI_OK)
        stream_trouble(stream, &trouble);
    leave(point);
}

tutti_status_t event_record(tutti__devent_t *event, tutti__dstream_t *stream)
{
    tutti_status_t status = stream_find("record", &stream);
    point_item_t *item;
    point_t *point;

    if (status == TUTTI_OK && event->device != stream_device(stream))
        status = tutti__fail(TUTTI_ERR_SYSTEM, "record: event and stream of different devices");
    if (status == TUTTI_OK)
        status = stream_item(sizeof(*item), run_record, &item);
    if (status != TUTTI_OK)
        return status;
    point = item->point = make_point();
    if (point == NULL) {
        free(item);
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "record");
    }
    status = stream_push("record", stream, item);
    if (status != TUTTI_OK) {
        leave(point);
        leave(point);
        return status;
    }
    pthread_mutex_lock(&event->lock);
    leave(event->point);
    event->point = point;
    pthread_mutex_unlock(&event->lock);
    return TUTTI_OK;
}

tutti_status_t event_wait(tutti__dstream_t *stream, tutti__devent_t *event)
{
    tutti_status_t status = stream_find("wait", &stream);
    point_item_t *item;
    point_t *point;

    if (status == TUTTI_OK)
        status = stream_item(sizeof(*item), run_wait, &item);
    if (status != TUTTI_OK)
        return status;
    point = item->point = hold(event);
    if (point == NULL) {
        free(item);
        return TUTTI_OK;
    }
    status = stream_push("wait", stream, item);
    if (status != TUTTI_OK)
        leave(point);
    return status;
}

tutti_status_t event_query(tutti__devent_t *event)
{
    tutti_status_t status = device_say(event->device);
    point_t *point;

    if (status != TUTTI_OK)
        return status;
    point = hold(event);
    if (point == NULL)
        return TUTTI_OK;
    pthread_mutex_lock(&point->lock);
    if (!point->done)
        status = TUTTI__AGAIN;
    else if (point->trouble.status != TUTTI_OK)
        status = tutti__fail(point->trouble.status, "%s", point->trouble.words);
    pthread_mutex_unlock(&point->lock);
    leave(point);
    /* The event is done, but its work may have broken the device. */
    return status == TUTTI_OK ? device_say(event->device) : status;
}

/* Get the completion time of the event's last record. */
static tutti_status_t when(tutti__devent_t *timer, uint64_t *ret_ns)
{
    tutti_status_t status = event_query(timer);
    point_t *point;

    if (!timer->is_timer)
        return tutti__fail(TUTTI_ERR_SYSTEM, "elapsed: the event is not timer_make's");
    point = status == TUTTI_OK ? hold(timer) : NULL;
    if (point == NULL)
        return status == TUTTI_OK ? tutti__fail(TUTTI_ERR_SYSTEM, "elapsed: not recorded") : status;
    *ret_ns = point->done_ns; /* valid, because query has returned OK */
    leave(point);
    return TUTTI_OK;
}

tutti_status_t event_elapsed(tutti__devent_t *start, tutti__devent_t *stop, double *ret_us)
{
    uint64_t start_ns, stop_ns;
    tutti_status_t status = when(start, &start_ns);

    if (status == TUTTI_OK)
        status = when(stop, &stop_ns);
    if (status == TUTTI_OK)
        *ret_us = ((double)stop_ns - (double)start_ns) * 1e-3;
    return status;
}
