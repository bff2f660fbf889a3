/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contestants of tutti_gradients, and one iteration of the first contestant, `tutti`: it sums
 * all gradients over all ranks by name, in place.
 *
 * The simulated backward pass runs on an accelerator: while a gradient is not ready, the rank's
 * thread sleeps. The pass continues while a call blocks, so after a long call the next gradients
 * are already ready.
 */
#include "gradients/gradients.h"

#include <errno.h>
#include <time.h>

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
    tutti_op_t op = run->options->average ? TUTTI_AVG : TUTTI_SUM;
    size_t n = run->gradients.n;

    for (size_t i = 0; i < n; i++) {
        const gradient_t *gradient = gradients_next(run, i, start_ns);
        void *data = gradients_place(run, gradient);
        tutti_status_t status = tutti_allreduce_async(gradient->name, data, data, gradient->count,
                                                      run->bench->options.type->dtype, op,
                                                      world->comm, NULL, &run->requests[i]);

        if (bench_check(world, status, gradient->name) != 0)
            return -1;
    }
    return bench_check(world, tutti_wait_all(run->requests, n, -1), "tutti_wait_all");
}

const bench_contestant_t gradients_contestants[BENCH_CONTESTANTS + 1] = {
    { NULL, "tutti", NULL },
    { "tutti-start", "tutti-start", NULL },
    { "mpi-per-tensor", "mpi-per-tensor", NULL },
    { "mpi-fused", "mpi-fused", NULL },
    { "mpi-cycle", "mpi-cycle", NULL },
    { "nccl-per-tensor", "nccl-per-tensor", NULL },
    { "nccl-fused", "nccl-fused", NULL },
};

/* In the order of gradients_contestants. */
static const gradients_way_t ways[BENCH_CONTESTANTS] = {
    { .step = { step_tutti, step_tutti }, .is_tutti = 1, .is_usual = 1, .takes_any_order = 1 },
    { .step = { gradients_start, gradients_start },
      .open = gradients_start_open,
      .ready = gradients_start_ready,
      .close = gradients_start_close,
      .is_tutti = 1,
      .takes_any_order = 1 },
    { .step = { BENCH_MPI(gradients_mpi), NULL }, .is_usual = 1 },
    { .step = { BENCH_MPI(gradients_mpi_fused), NULL }, .is_usual = 1 },
    { .step = { BENCH_MPI(gradients_cycle), NULL },
      .open = BENCH_MPI(gradients_cycle_open),
      .ready = BENCH_MPI(gradients_cycle_ready),
      .close = BENCH_MPI(gradients_cycle_close),
      .takes_any_order = 1,
      .calls_from_thread = 1 },
    { .step = { NULL, gradients_nccl }, .is_usual = 1 },
    { .step = { NULL, gradients_nccl_fused }, .is_usual = 1 },
};

const gradients_way_t *gradients_way(const bench_contestant_t *contestant)
{
    return &ways[contestant - gradients_contestants];
}

gradients_step_t gradients_step(const bench_contestant_t *contestant, int on_device)
{
    return gradients_way(contestant)->step[on_device != 0];
}
