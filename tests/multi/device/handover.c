/* SPDX-License-Identifier: BSD-3-Clause */
/* See handover.h. */
#include "multi/device/handover.h"

#include <string.h>
#include <unistd.h>

atomic_int gate_opened;

void handover_begin(user_t *u, rank_t *self)
{
    user_begin(u, self, (size_t)TENSORS * SLOT, 0);
}

/* ---- a gate in a stream ---- */

static void pass_gate(void *args)
{
    (void)args;
    while (!atomic_load(&gate_opened))
        usleep(100);
}

void gate_put(user_t *u)
{
    CHECK_OK(pretend_launch(u->stream, pass_gate, "", 1));
}

void gate_close(rank_t *self)
{
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&gate_opened, 0);
    CHECK_OK(tutti_barrier(self->comm));
}

void *gate_open_later(void *arg)
{
    (void)arg;
    usleep(LATER_US);
    atomic_store(&gate_opened, 1);
    return NULL;
}

/* ---- calls ---- */

void *handover_slot(user_t *u, int t)
{
    return u->job.memory + (size_t)t * SLOT;
}

float *handover_host_slot(user_t *u, int t)
{
    return (float *)(void *)(u->in + (size_t)t * SLOT);
}

float handover_value(int rank, int t, size_t i)
{
    return (float)(rank + 2 * t + (int)(i % 11));
}

void handover_put(user_t *u, int t)
{
    for (size_t i = 0; i < COUNT; i++)
        handover_host_slot(u, t)[i] = handover_value(u->job.self->rank, t, i);
    CHECK_OK(u->job.ops->copy(handover_slot(u, t), handover_host_slot(u, t), COUNT * sizeof(float),
                              u->stream));
}

void handover_get(user_t *u, int t)
{
    CHECK_OK(u->job.ops->copy(handover_host_slot(u, t), handover_slot(u, t), COUNT * sizeof(float),
                              u->stream));
}

void handover_verify(user_t *u, int t, float times)
{
    int size = u->job.self->size;

    for (size_t i = 0; i < COUNT; i++) {
        float want = (float)(size * (size - 1) / 2) + (float)size * handover_value(0, t, i);

        if (handover_host_slot(u, t)[i] != times * want)
            ranks_fail(__FILE__, __LINE__, "tensor %d, element %zu: %g, wanted %g", t, i,
                       (double)handover_host_slot(u, t)[i], (double)(times * want));
    }
}

void hand_over(user_t *u, tutti_call_t *call)
{
    tutti_request_t *request;

    CHECK_OK(tutti_cuda_submit(call, 1, u->job.self->comm, user_stream(u), &request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(u)));
}

void handover_settings(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->shared.stream_wait = 1;
}

int handover_run(rank_fn_t fn, const char *hosts, void (*how)(tutti__conf_t *, int), unsigned ends)
{
    job_t job = { .size = (int)strlen(hosts),
                  .hosts = hosts,
                  .threads = ends == 0,
                  .fn = fn,
                  .settings = how,
                  .killed = ends };

    return device_run_job(&job);
}
