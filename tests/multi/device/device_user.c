/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests: a program with a stream on its pretend device. */
#include "multi/device/device_user.h"

#include <stdatomic.h>
#include <unistd.h>

struct CUstream_st *user_stream(const user_t *u)
{
    return (struct CUstream_st *)(void *)u->stream;
}

void user_begin(user_t *u, rank_t *self, size_t bytes, size_t out_bytes)
{
    void *in, *out = NULL;

    device_begin(&u->job, self, bytes);
    CHECK_OK(u->job.ops->host_alloc(bytes, &in));
    if (out_bytes > 0)
        CHECK_OK(u->job.ops->host_alloc(out_bytes, &out));
    u->in = in;
    u->out = out;
    CHECK_OK(u->job.ops->stream_make(0, &u->stream));
    CHECK_OK(u->job.ops->event_make(&u->end));
}

tutti_status_t user_look(user_t *u)
{
    CHECK_OK(u->job.ops->record(u->end, u->stream));
    return u->job.ops->query(u->end);
}

void user_wait(user_t *u)
{
    tutti_status_t status = user_look(u);

    while (status == TUTTI__AGAIN) {
        usleep(100);
        status = u->job.ops->query(u->end);
    }
    CHECK_OK(status);
}

static void drop_parts(user_t *u)
{
    u->job.ops->stream_drop(u->stream);
    u->job.ops->event_drop(u->end);
    u->job.ops->host_free(u->in);
    if (u->out != NULL)
        u->job.ops->host_free(u->out);
}

void user_end(user_t *u)
{
    CHECK_OK(tutti_barrier(u->job.self->comm));
    user_wait(u);
    drop_parts(u);
    device_end(&u->job);
}

void user_drop(user_t *u)
{
    drop_parts(u);
    u->job.ops->free(u->job.memory);
}

void user_count(void *arg, tutti_status_t status)
{
    CHECK_INT(status, TUTTI_OK);
    atomic_fetch_add((atomic_int *)arg, 1);
}
