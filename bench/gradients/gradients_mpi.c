/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peers that call MPI from the program's thread: an allreduce for each gradient, or a fusion
 * buffer that is packed by hand. The order of the gradients is the same on all ranks.
 */
#include "gradients/gradients.h"
#include "harness/peers.h"

#include <string.h>

#ifdef HAVE_MPI

int gradients_mpi_sum(const gradients_run_t *run, void *data, size_t bytes)
{
    const bench_type_t *type = run->bench->options.type;

    if (bytes == 0 || MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / type->bytes),
                                    bench_mpi_type(type), MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS)
        return 0;
    fprintf(stderr, "rank %d: MPI_Allreduce of %zu bytes failed\n", run->bench->world.rank, bytes);
    return -1;
}

/* Vectors are written out, because compilers do not vectorise a plain loop at -O2. memcpy loads and
   stores them, because gradients may begin at any byte (--align). */
#define SCALE(type, lanes)                                                                         \
    do {                                                                                           \
        typedef type wide_t __attribute__((vector_size(lanes * sizeof(type))));                    \
        type factor = (type)(1.0 / ranks);                                                         \
        type one;                                                                                  \
        wide_t many;                                                                               \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + (lanes) <= count; i += (lanes)) {                                               \
            memcpy(&many, from + i * sizeof(type), sizeof(many));                                  \
            many *= factor;                                                                        \
            memcpy(to + i * sizeof(type), &many, sizeof(many));                                    \
        }                                                                                          \
        for (; i < count; i++) {                                                                   \
            memcpy(&one, from + i * sizeof(type), sizeof(one));                                    \
            one *= factor;                                                                         \
            memcpy(to + i * sizeof(type), &one, sizeof(one));                                      \
        }                                                                                          \
    } while (0)

static void scale(const bench_type_t *type, char *to, const char *from, size_t count, int ranks)
{
    if (type->dtype == TUTTI_FLOAT32)
        SCALE(float, 8);
    else
        SCALE(double, 4);
}

void gradients_mpi_unpack(const gradients_run_t *run, void *to, const void *from, size_t count)
{
    const bench_type_t *type = run->bench->options.type;

    if (run->options->average)
        scale(type, to, from, count, run->bench->world.size);
    else if (to != from)
        memcpy(to, from, count * type->bytes);
}

static int sum_alone(const gradients_run_t *run, const gradient_t *gradient)
{
    void *data = gradients_place(run, gradient);

    if (gradients_mpi_sum(run, data, gradient->count * run->bench->options.type->bytes) != 0)
        return -1;
    gradients_mpi_unpack(run, data, data, gradient->count);
    return 0;
}

int gradients_mpi(const gradients_run_t *run, uint64_t start_ns)
{
    for (size_t i = 0; i < run->gradients.n; i++) {
        if (sum_alone(run, gradients_next(run, i, start_ns)) != 0)
            return -1;
    }
    return 0;
}

/* Reduce the buffer, which has gradients [from, to) of this iteration's order, and unpack it. */
static int sum_fused(const gradients_run_t *run, size_t from, size_t to, size_t fused_bytes)
{
    size_t element = run->bench->options.type->bytes;
    size_t at = 0;

    if (gradients_mpi_sum(run, run->fusion, fused_bytes) != 0)
        return -1;
    for (size_t i = from; i < to; i++) {
        const gradient_t *gradient = &run->gradients.all[run->order[i]];

        gradients_mpi_unpack(run, gradients_place(run, gradient), run->fusion + at,
                             gradient->count);
        at += gradient->count * element;
    }
    return 0;
}

/* The buffer is sent when the next gradient does not fit; a gradient larger than the buffer is sent
   alone. */
int gradients_mpi_fused(const gradients_run_t *run, uint64_t start_ns)
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
            if (sum_alone(run, gradient) != 0)
                return -1;
            from = i + 1;
            continue;
        }
        memcpy(run->fusion + used, gradients_place(run, gradient), bytes);
        used += bytes;
    }
    return sum_fused(run, from, run->gradients.n, used);
}

#endif
