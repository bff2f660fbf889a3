/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The code of train_kernels.inc, compiled for the host. The last element is computed first. This
 * detects code in which an element depends on another element's result. Products are summed in
 * double.
 */
#include "host_kernels.h"

#define DEVICE static inline
#include "train_kernels.inc"

#define RUN(name)                                                                                  \
    static void run_##name(const void *args, uint32_t count)                                       \
    {                                                                                              \
        for (uint32_t i = count; i-- > 0;)                                                         \
            name##_at(args, i);                                                                    \
    }
TRAIN_KERNELS(RUN)

#define ROW(name) run_##name,
static void (*const kernels[])(const void *args, uint32_t count) = { TRAIN_KERNELS(ROW) };

#define SIZE(name) sizeof(train_##name##_args_t),
static const size_t sizes[] = { TRAIN_KERNELS(SIZE) };

void host_kernel(unsigned kernel, const void *args, uint32_t count)
{
    kernels[kernel](args, count);
}

size_t host_kernel_bytes(unsigned kernel)
{
    return sizes[kernel];
}

static float element(const train_product_t *p, train_precision_t precision, size_t i, size_t j)
{
    double sum = 0.0;

    for (size_t l = 0; l < p->k; l++)
        sum += (double)load(p->a, precision, p->turn_a ? l * p->m + i : i * p->k + l) *
               (double)load(p->b, precision, p->turn_b ? j * p->k + l : l * p->n + j);
    return (float)sum;
}

void host_product(const train_product_t *p, train_precision_t precision)
{
    const uint32_t kind = p->floats ? KIND_FP32 : precision;

    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->n; j++) {
            const size_t at = i * p->n + j;
            float value = element(p, precision, i, j);

            if (p->beta != 0.0f)
                value += p->beta * load(p->c, kind, at);
            store(p->c, kind, at, value);
        }
}

float host_number(const void *numbers, train_precision_t precision, size_t i)
{
    return load(numbers, precision, i);
}
