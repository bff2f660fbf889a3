/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arguments of the kernels in kernels.cu. Also read by the compiler of the device's code.
 */
#ifndef TUTTI__REDUCE_CUDA_KERNEL_ARGS_H
#define TUTTI__REDUCE_CUDA_KERNEL_ARGS_H

#include <stdint.h>

/* Threads per block. */
#define TUTTI__CUDA_THREADS 256

/* Pieces of one launch: the table is in the parameters, which have 4096 bytes. */
#define TUTTI__PACK_PIECES 128
/* The bytes that a thread block processes at once, in the wider type. A multiple of 16. */
#define TUTTI__PACK_BYTES 16384

typedef struct {
    const void *src[TUTTI__PACK_PIECES];
    void *dst[TUTTI__PACK_PIECES];
    uint64_t count[TUTTI__PACK_PIECES];     /* elements; for tutti_copy bytes; never 0 */
    uint32_t first[TUTTI__PACK_PIECES + 1]; /* piece i has the chunks first[i] to first[i + 1] */
    uint32_t npieces;
    uint32_t chunk; /* elements of a chunk */
    double scale;
} tutti__pack_args_t;

#define TUTTI__SUM_SRCS 8

typedef struct {
    const void *src[TUTTI__SUM_SRCS];
    void *dst;
    uint64_t count;
    uint32_t nsrcs;
    uint32_t divisor; /* 0, 1: none */
} tutti__sum_args_t;

#endif
