/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arguments of the kernels in kernels.cu, which also includes this file.
 */
#ifndef TUTTI__REDUCE_CUDA_KERNEL_ARGS_H
#define TUTTI__REDUCE_CUDA_KERNEL_ARGS_H

#include <stdint.h>

/* Threads per block. */
#define TUTTI__CUDA_THREADS 256

/* The largest number of pieces in one launch: their table is in the kernel's parameters, which have
   4096 bytes. */
#define TUTTI__PACK_PIECES 128
/* Bytes of a chunk, in the wider type. A thread block processes chunk by chunk. Multiple of 16. */
#define TUTTI__PACK_BYTES 16384

typedef struct {
    const void *src[TUTTI__PACK_PIECES];
    void *dst[TUTTI__PACK_PIECES];
    uint64_t count[TUTTI__PACK_PIECES];     /* elements (tutti_copy: bytes), never 0 */
    uint32_t first[TUTTI__PACK_PIECES + 1]; /* piece i begins with chunk first[i] */
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
    uint32_t divisor; /* 0 or 1: no division */
} tutti__sum_args_t;

#endif
