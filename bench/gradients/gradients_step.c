/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One iteration of each contestant: all gradients summed over all ranks, in place.
 *
 * The simulated backward pass runs on an accelerator: while a gradient is not ready, the rank's
 * thread sleeps. The pass continues while a call blocks, so after a long call the next gradients
 * are already ready.
 */
#include "gradients/gradients.h"
#include "harness/peers.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static void *place(const gradients_run_t *run, const gradient_t *gradient)
{
    return run->region + gradient->offset;
}

const gradient_t *gradients_next(const gradients_run_t *run, size_t i, uint64_t start_ns)
{
    const gradient_t *gradient = &run->gradients.all[run->order[i]];
    uint64_t ns = start_ns + (uint64_t)((double)run->options->backward_ms * 1e6 * gradient->ready);
    struct timespec until = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

    if (start_ns == 0 || run->options->backward_ms == 0)
        return gradient;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
    return gradient;
}

static int step_tutti(const gradients_run_t *run, uint64_t start_ns)
{
    const bench_world_t *world = &run->bench->world;
    size_t n = run->gradients.n;

    for (size_t i = 0; i < n; i++) {
        const gradient_t *gradient = gradients_next(run, i, start_ns);
        void *data = place(run, gradient);
        tutti_status_t status = tutti_allreduce_async(gradient->name, data, data, gradient->count,
                                                      run->bench->options.type->dtype, TUTTI_SUM,
                                                      world->comm, NULL, &run->requests[i]);

        if (bench_check(world, status, gradient->name) != 0)
            return -1;
    }
    return bench_check(world, tutti_wait_all(run->requests, n, -1), "tutti_wait_all");
}

#ifdef HAVE_MPI

static int sum(const gradients_run_t *run, void *data, size_t bytes)
{
    const bench_type_t *type = run->bench->options.type;

    if (bytes == 0 || MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / type->bytes),
                                    bench_mpi_type(type), MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS)
        return 0;
    fprintf(stderr, "rank %d: MPI_Allreduce of %zu bytes failed\n", run->bench->world.rank, bytes);
    return -1;
}

static int step_mpi(const gradients_run_t *run, uint64_t start_ns)
{
    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = gradients_next(run, i, start_ns);

        if (sum(run, place(run, gradient), gradient->count * run->bench->options.type->bytes) != 0)
            return -1;
    }
    return 0;
}

/* Reduce the buffer, which has gradients [from, to) of this iteration's order, and unpack it. */
static int sum_fused(const gradients_run_t *run, size_t from, size_t to, size_t fused_bytes)
{
    size_t element = run->bench->options.type->bytes;
    size_t at = 0;

    if (sum(run, run->fusion, fused_bytes) != 0)
        return -1;
    for (size_t i = from; i < to; i++) {
        const gradient_t *gradient = &run->gradients.all[run->order[i]];

        memcpy(place(run, gradient), run->fusion + at, gradient->count * element);
        at += gradient->count * element;
    }
    return 0;
}

/* The buffer is sent when the next gradient does not fit; a gradient larger than the buffer is sent
   alone. */
static int step_fused(const gradients_run_t *run, uint64_t start_ns)
{
    size_t element = run->bench->options.type->bytes;
    size_t room = run->options->fusion_bytes;
    size_t from = 0;
    size_t used = 0;

    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = gradients_next(run, i, start_ns);
        size_t bytes = gradient->count * element;

        if (used + bytes > room) {
            if (sum_fused(run, from, i, used) != 0)
                return -1;
            used = 0;
            from = i;
        }
        if (bytes > room) {
            if (sum(run, place(run, gradient), bytes) != 0)
                return -1;
            from = i + 1;
            continue;
        }
        memcpy(run->fusion + used, place(run, gradient), bytes);
        used += bytes;
    }
    return sum_fused(run, from, run->gradients.n, used);
}

#endif

/* The contestants' names for libbench; gradients_step() returns their functions. */
const bench_contestant_t gradients_contestants[BENCH_CONTESTANTS + 1] = {
    { NULL, "tutti", NULL },
    { "mpi-per-tensor", "mpi-per-tensor", NULL },
    { "mpi-fused", "mpi-fused", NULL },
    { "nccl-per-tensor", "nccl-per-tensor", NULL },
    { "nccl-fused", "nccl-fused", NULL },
};

gradients_step_t gradients_step(const bench_contestant_t *contestant, int on_device)
{
    static const gradients_step_t on_host[] = { step_tutti, BENCH_MPI(step_mpi),
                                                BENCH_MPI(step_fused), NULL, NULL };
    static const gradients_step_t there[] = { step_tutti, NULL, NULL, gradients_nccl,
                                              gradients_nccl_fused };

    return (on_device ? there : on_host)[contestant - gradients_contestants];
}
