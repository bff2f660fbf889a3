/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peers with NCCL, as a user would write them: an allreduce for each gradient, or a fusion
 * buffer that kernels pack and unpack. All work is queued in one stream. The host waits only for
 * gradients that are not ready yet, and at the end.
 */
#include "harness/device.h"
#include "gradients/gradients.h"

static void sum(const gradients_run_t *run, void *data, size_t count)
{
    tutti__nccl_call_t call = { TUTTI__NCCL_ALLREDUCE,           data,      data, count,
                                run->bench->options.type->dtype, TUTTI_SUM, 0 };

    if (count > 0)
        bench_nccl_queue(&run->bench->world, &call, 1);
}

int gradients_nccl(const gradients_run_t *run, uint64_t start_ns)
{
    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = gradients_next(run, i, start_ns);

        sum(run, run->region + gradient->offset, gradient->count);
    }
    bench_device_wait(&run->bench->world);
    return 0;
}

/* Pack gradients [from, to) of this iteration's order into the buffer, or unpack them. Returns the
   number of elements. */
static size_t move(const gradients_run_t *run, size_t from, size_t to, int back)
{
    const bench_device_t *device = run->bench->world.device;
    const bench_type_t *type = run->bench->options.type;
    size_t elements = 0;

    for (size_t i = from; i < to; i++) {
        const gradient_t *gradient = &run->gradients.all[run->order[i]];
        char *here = run->region + gradient->offset;
        char *there = run->fusion + elements * type->bytes;

        run->pieces[i - from] = (tutti__piece_t){ .src = back ? there : here,
                                                  .dst = back ? here : there,
                                                  .count = gradient->count };
        elements += gradient->count;
    }
    if (to > from)
        bench_device_check(&run->bench->world,
                           device->ops->pack(run->pieces, to - from, type->dtype, type->dtype, 1.0,
                                             device->stream),
                           "pack");
    return elements;
}

static void sum_fused(const gradients_run_t *run, size_t from, size_t to)
{
    sum(run, run->fusion, move(run, from, to, 0));
    move(run, from, to, 1);
}

/* As mpi-fused: the buffer is sent when the next gradient does not fit; a gradient larger than the
   buffer is sent alone. */
int gradients_nccl_fused(const gradients_run_t *run, uint64_t start_ns)
{
    size_t element = run->bench->options.type->bytes;
    size_t from = 0;
    size_t used = 0;

    for (size_t i = 0; i < run->gradients.n; i++) {
        const gradient_t *gradient = gradients_next(run, i, start_ns);
        size_t bytes = gradient->count * element;

        if (used + bytes > run->options->fusion_bytes) {
            sum_fused(run, from, i);
            used = 0;
            from = i;
        }
        if (bytes > run->options->fusion_bytes) {
            sum(run, run->region + gradient->offset, gradient->count);
            from = i + 1;
            continue;
        }
        used += bytes;
    }
    sum_fused(run, from, run->gradients.n);
    bench_device_wait(&run->bench->world);
    return 0;
}
