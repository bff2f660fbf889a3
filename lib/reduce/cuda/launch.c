/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches the kernels of kernels.cu. Part of the CUDA module.
 *
 * A launch's table of pieces is in the kernel's parameters, which the driver copies. So nothing is
 * allocated, the table need not stay valid after the launch, and no thread waits. If the pieces do
 * not fit into one launch, there are further launches.
 */
#include "mem/cuda/cuda_parts.h"
#include "reduce/cuda/kernel_args.h"

#include <stdio.h>

_Static_assert(sizeof(tutti__pack_args_t) <= 4096, "what all devices take as parameters");
_Static_assert(TUTTI__SUM_SRCS == TUTTI__DEVICE_SRCS, "the table's promise");

/* Numbers of kernels: copy, then casts, then sums. */
#define FLOATS 6 /* TUTTI_FLOAT16 to TUTTI_FLOAT8_E5M2 */
#define SUMS 12  /* TUTTI_INT8 to TUTTI_FLOAT64 */
#define FIRST_CAST 1
#define FIRST_SUM (FIRST_CAST + FLOATS * FLOATS)
_Static_assert(FIRST_SUM + SUMS == TUTTI__CUDA_KERNELS, "kernels");

size_t tutti__cuda_dtype_bytes(tutti_dtype_t dtype)
{
    static const unsigned char bytes[] = { 0, 1, 1, 2, 2, 4, 4, 8,  8, 2,
                                           2, 4, 8, 1, 1, 1, 8, 16, 8, 16 };

    return (size_t)dtype < sizeof(bytes) ? bytes[dtype] : 0;
}

static int is_float(tutti_dtype_t dtype)
{
    return dtype >= TUTTI_FLOAT16 && dtype <= TUTTI_FLOAT8_E5M2;
}

void tutti__cuda_kernel_name(unsigned kernel, char *ret_name)
{
    if (kernel < FIRST_CAST)
        snprintf(ret_name, TUTTI__CUDA_NAME_BYTES, "tutti_copy");
    else if (kernel < FIRST_SUM)
        snprintf(ret_name, TUTTI__CUDA_NAME_BYTES, "tutti_cast_%u_%u",
                 (kernel - FIRST_CAST) / FLOATS + TUTTI_FLOAT16,
                 (kernel - FIRST_CAST) % FLOATS + TUTTI_FLOAT16);
    else
        snprintf(ret_name, TUTTI__CUDA_NAME_BYTES, "tutti_sum_%u", kernel - FIRST_SUM + TUTTI_INT8);
}

/* ---- pack ---- */

typedef struct {
    tutti__pack_args_t args;
    unsigned kernel, most_blocks;
    int device;
    tutti__dstream_t *stream;
} batch_t;

static tutti_status_t flush(batch_t *batch)
{
    tutti__pack_args_t *args = &batch->args;
    uint32_t chunks = args->first[args->npieces];
    tutti_status_t status;

    if (args->npieces == 0)
        return TUTTI_OK;
    status =
        tutti__cuda_launch(batch->device, batch->kernel, TUTTI__MIN(chunks, batch->most_blocks),
                           TUTTI__CUDA_THREADS, args, batch->stream);
    args->npieces = 0;
    return status;
}

/* Add a piece to the batch. A launch numbers its chunks with 32 bits, so a piece may have at most
   2^30 chunks (16 TiB). */
static tutti_status_t add(batch_t *batch, const tutti__piece_t *piece, uint64_t count)
{
    tutti__pack_args_t *args = &batch->args;
    uint64_t chunks = (count + args->chunk - 1) / args->chunk;
    tutti_status_t status = TUTTI_OK;

    if (chunks > UINT32_C(1) << 30)
        return tutti__cuda_fail(TUTTI_ERR_INVALID_ARGUMENT, "cuda: a piece of %zu elements",
                                piece->count);
    if (args->npieces == TUTTI__PACK_PIECES || args->first[args->npieces] > UINT32_C(1) << 30)
        status = flush(batch);
    if (status != TUTTI_OK)
        return status;
    args->src[args->npieces] = piece->src;
    args->dst[args->npieces] = piece->dst;
    args->count[args->npieces] = count;
    args->first[args->npieces + 1] = args->first[args->npieces] + (uint32_t)chunks;
    args->npieces++;
    return TUTTI_OK;
}

/* Devices can access an element only if its address is a multiple of its size. */
static tutti_status_t check_address(const void *ptr, tutti_dtype_t dtype)
{
    if ((uintptr_t)ptr % tutti__cuda_dtype_bytes(dtype) == 0)
        return TUTTI_OK;
    return tutti__cuda_fail(TUTTI_ERR_INVALID_ARGUMENT,
                            "cuda: device memory at %p is not aligned for elements of %zu bytes",
                            ptr, tutti__cuda_dtype_bytes(dtype));
}

tutti_status_t tutti__cuda_pack(const tutti__piece_t *pieces, size_t npieces, tutti_dtype_t from,
                                tutti_dtype_t to, double scale, tutti__dstream_t *stream)
{
    int is_copy = from == to && scale == 1.0;
    size_t unit = is_copy ? tutti__cuda_dtype_bytes(from) : 1; /* a copy's count is in bytes */
    tutti_status_t status;
    batch_t batch;

    if (tutti__cuda_dtype_bytes(from) == 0 || (!is_copy && !(is_float(from) && is_float(to))))
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "cuda: no kernel packs type %d as %d",
                                (int)from, (int)to);
    status = tutti__cuda_current(&batch.device, &batch.most_blocks);
    if (status != TUTTI_OK)
        return status;
    batch.stream = stream;
    batch.kernel =
        is_copy ? 0 : FIRST_CAST + FLOATS * (from - TUTTI_FLOAT16) + (to - TUTTI_FLOAT16);
    batch.args.chunk = TUTTI__PACK_BYTES;
    if (!is_copy)
        batch.args.chunk /=
            (uint32_t)TUTTI__MAX(tutti__cuda_dtype_bytes(from), tutti__cuda_dtype_bytes(to));
    batch.args.scale = scale;
    batch.args.npieces = 0;
    batch.args.first[0] = 0;
    for (size_t i = 0; i < npieces && status == TUTTI_OK; i++) {
        if (pieces[i].count == 0)
            continue;
        if (!is_copy)
            status = check_address(pieces[i].src, from);
        if (!is_copy && status == TUTTI_OK)
            status = check_address(pieces[i].dst, to);
        if (status == TUTTI_OK)
            status = add(&batch, &pieces[i], pieces[i].count * unit);
    }
    return status == TUTTI_OK ? flush(&batch) : status;
}

/* ---- sum ---- */

static tutti_status_t check_sum(const void *dst, const void *const *srcs, size_t nsrcs,
                                tutti_dtype_t dtype)
{
    tutti_status_t status;

    if (dtype < TUTTI_INT8 || dtype > TUTTI_FLOAT64)
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "cuda: no kernel sums type %d", (int)dtype);
    if (nsrcs < 1 || nsrcs > TUTTI__SUM_SRCS)
        return tutti__cuda_fail(TUTTI_ERR_INVALID_ARGUMENT,
                                "cuda: a sum of %zu sources, not 1 to %d", nsrcs, TUTTI__SUM_SRCS);
    status = check_address(dst, dtype);
    for (size_t s = 0; s < nsrcs && status == TUTTI_OK; s++)
        status = check_address(srcs[s], dtype);
    return status;
}

tutti_status_t tutti__cuda_sum(void *dst, const void *const *srcs, size_t nsrcs, size_t count,
                               tutti_dtype_t dtype, uint32_t divisor, tutti__dstream_t *stream)
{
    const size_t step = 4 * sizeof(float) * TUTTI__CUDA_THREADS; /* 16 bytes for each thread */
    tutti__sum_args_t args = { .dst = dst, .count = count, .divisor = divisor };
    tutti_status_t status;
    unsigned most_blocks;
    uint64_t blocks;
    int device;

    if (count == 0)
        return TUTTI_OK;
    status = check_sum(dst, srcs, nsrcs, dtype);
    if (status != TUTTI_OK)
        return status;
    if (nsrcs == 1 && divisor <= 1) /* a copy keeps all bits, also of NaNs */
        return dst == srcs[0]
                   ? TUTTI_OK
                   : tutti__cuda_copy(dst, srcs[0], count * tutti__cuda_dtype_bytes(dtype), stream);
    status = tutti__cuda_current(&device, &most_blocks);
    if (status != TUTTI_OK)
        return status;
    args.nsrcs = (uint32_t)nsrcs;
    for (size_t s = 0; s < nsrcs; s++)
        args.src[s] = srcs[s];
    blocks = (count * tutti__cuda_dtype_bytes(dtype) + step - 1) / step;
    return tutti__cuda_launch(device, FIRST_SUM + (unsigned)dtype - TUTTI_INT8,
                              (unsigned)TUTTI__MIN(blocks, most_blocks), TUTTI__CUDA_THREADS, &args,
                              stream);
}
