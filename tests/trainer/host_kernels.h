/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The computations of the trainer's GPU, on the host: the kernels' own code, element by element,
 * beginning with the last element; and matrix products. Pointers must be to memory that the host
 * can access.
 */
#ifndef HOST_KERNELS_H
#define HOST_KERNELS_H

#include "train_compute.h"

/* Run a TRAIN_KERNEL_ with its arguments, for elements 0 to count - 1. */
void host_kernel(unsigned kernel, const void *args, uint32_t count);
/* The size of the kernel's arguments. */
size_t host_kernel_bytes(unsigned kernel);

void host_product(const train_product_t *p, train_precision_t precision);

/* Returns number `i` of an array. */
float host_number(const void *numbers, train_precision_t precision, size_t i);

#endif
