/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti-start: a persistent request for each gradient, made once. An iteration starts all of them
 * by one call. The tensors have the same names as those of the contestant `tutti`, so the engine's
 * agreement treats both contestants alike.
 */
#include "gradients/gradients.h"

#include <stdlib.h>

void gradients_start_open(gradients_run_t *run)
{
    const bench_world_t *world = &run->bench->world;

    run->persistent = bench_allocate(run->gradients.n, sizeof(tutti_request_t *));
    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = &run->gradients.all[i];
        tutti_call_t call = TUTTI_CALL_INIT;

        call.kind = TUTTI_CALL_ALLREDUCE;
        call.name = gradient->name;
        call.sendbuf = call.recvbuf = gradients_place(run, gradient);
        call.count = gradient->count;
        call.dtype = run->bench->options.type->dtype;
        call.op = run->options->average ? TUTTI_AVG : TUTTI_SUM;
        if (tutti_persistent_create(&call, world->comm, &run->persistent[i]) != TUTTI_OK)
            bench_die(world, gradient->name);
    }
}

void gradients_start_close(gradients_run_t *run)
{
    for (size_t i = 0; i < run->gradients.n; i++)
        tutti_request_free(run->persistent[i]);
    free(run->persistent);
}

void gradients_start_ready(gradients_run_t *run)
{
    for (size_t i = 0; i < run->gradients.n; i++)
        run->requests[i] = run->persistent[run->order[i]];
}

/* During a backward pass, each request is started when its gradient is ready. */
static tutti_status_t start_each(const gradients_run_t *run, uint64_t start_ns)
{
    tutti_status_t status = TUTTI_OK;

    for (size_t i = 0; i < run->gradients.n && status == TUTTI_OK; i++) {
        gradients_next(run, i, start_ns);
        status = tutti_start(run->requests[i]);
    }
    return status;
}

int gradients_start(const gradients_run_t *run, uint64_t start_ns)
{
    const bench_world_t *world = &run->bench->world;
    size_t n = run->gradients.n;
    tutti_status_t status = run->options->backward_ms > 0 ? start_each(run, start_ns)
                                                          : tutti_start_all(run->requests, n);

    if (bench_check(world, status, "starting the requests") != 0)
        return -1;
    return bench_check(world, tutti_wait_all(run->requests, n, -1), "tutti_wait_all");
}
