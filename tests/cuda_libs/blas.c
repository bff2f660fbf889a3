/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcublas: c = alpha a b + beta c in a stream, by columns, as in cuBLAS's documentation. Sums are
 * computed in double. This file is built if cuBLAS's header is found.
 */
#include "cuda_libs/inside.h"

#if __has_include(<cublas_v2.h>)
#pragma GCC visibility push(default)
#include <cublas_v2.h>
#pragma GCC visibility pop

#include <stdlib.h>

struct cublasContext {
    int magic, device;
    cudaStream_t stream;
};

/* A matrix in memory, column by column. stride: elements from one column to the next. */
typedef struct {
    const void *at;
    tutti_dtype_t dtype;
    size_t rows, columns, stride;
} matrix_t;

typedef struct {
    int turn_a, turn_b;
    float alpha, beta;
    matrix_t a, b, c;
} gemm_item_t;

/* ---- handles ---- */

const char *cublasGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS            ? "no error"
           : status == CUBLAS_STATUS_NOT_INITIALIZED  ? "no handle"
           : status == CUBLAS_STATUS_INVALID_VALUE    ? "invalid value"
           : status == CUBLAS_STATUS_NOT_SUPPORTED    ? "not supported"
           : status == CUBLAS_STATUS_EXECUTION_FAILED ? "execution failed"
                                                      : "another error";
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    cublasHandle_t made;

    if (rt_begin("cublasCreate") != cudaSuccess)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    made = calloc(1, sizeof(*made));
    if (made == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    made->magic = BLAS_MAGIC;
    made->device = pretend_device()->current();
    *handle = made;
    return CUBLAS_STATUS_SUCCESS;
}

static int is_handle(cublasHandle_t handle)
{
    return handle != NULL && handle->magic == BLAS_MAGIC;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->magic = 0;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId)
{
    if (!is_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->stream = streamId;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

static size_t bytes_of(const matrix_t *m)
{
    return ((m->columns - 1) * m->stride + m->rows) * tutti_dtype_bytes(m->dtype);
}

static double element(const matrix_t *m, size_t row, size_t column)
{
    size_t bytes = tutti_dtype_bytes(m->dtype);
    double x;

    cast(&x, TUTTI_FLOAT64, (const char *)m->at + (column * m->stride + row) * bytes, m->dtype, 1,
         1);
    return x;
}

/* Returns the whole matrix as [columns][rows], transposed if `turns`. */
static double *columns_of(const matrix_t *m, int turns)
{
    size_t rows = turns ? m->columns : m->rows, columns = turns ? m->rows : m->columns;
    double *x = malloc(rows * columns * sizeof(*x));

    for (size_t i = 0; i < columns && x != NULL; i++)
        for (size_t j = 0; j < rows; j++)
            x[i * rows + j] = turns ? element(m, i, j) : element(m, j, i);
    return x;
}

static void put(const gemm_item_t *g, const double *sums, size_t column)
{
    const matrix_t *c = &g->c;
    size_t bytes = tutti_dtype_bytes(c->dtype);

    for (size_t i = 0; i < c->rows; i++) {
        char *at = (char *)(uintptr_t)c->at + (column * c->stride + i) * bytes;
        /* With beta 0 the old value must not be read. */
        double before = g->beta != 0 ? g->beta * element(c, i, column) : 0;
        float x = (float)(g->alpha * sums[i] + before);

        cast(at, c->dtype, &x, TUTTI_FLOAT32, 1, 1);
    }
}

static void run_gemm(void *item)
{
    gemm_item_t *g = item;
    size_t m = g->c.rows, n = g->c.columns, k = g->turn_a ? g->a.rows : g->a.columns;
    double *a, *b, *sums;

    if (!kernel_sees("multiplies", &g->a.at, bytes_of(&g->a)) ||
        !kernel_sees("multiplies", &g->b.at, bytes_of(&g->b)) ||
        !kernel_sees("writes a product", &g->c.at, bytes_of(&g->c)))
        return;
    a = columns_of(&g->a, g->turn_a);
    b = columns_of(&g->b, g->turn_b);
    sums = calloc(m, sizeof(*sums));
    if (a == NULL || b == NULL || sums == NULL)
        err_fatal("cublasGemmEx: no memory for %zu x %zu x %zu", m, n, k);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++)
            sums[i] = 0;
        for (size_t l = 0; l < k; l++)
            for (size_t i = 0; i < m; i++)
                sums[i] += a[l * m + i] * b[j * k + l];
        put(g, sums, j);
    }
    free(sums);
    free(b);
    free(a);
}

static int dtype_of(cudaDataType type, tutti_dtype_t *ret_dtype)
{
    *ret_dtype = type == CUDA_R_16F    ? TUTTI_FLOAT16
                 : type == CUDA_R_16BF ? TUTTI_BFLOAT16
                                       : TUTTI_FLOAT32;
    return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

/* Sums must be in float32, a and b must have the same type, and c must have this type or
   float32. */
static int fits(const gemm_item_t *g, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    return compute == CUBLAS_COMPUTE_32F && algo == CUBLAS_GEMM_DEFAULT &&
           g->a.dtype == g->b.dtype && (g->c.dtype == g->a.dtype || g->c.dtype == TUTTI_FLOAT32);
}

/* Returns 0 if a size or the stride is invalid. */
static int describe(matrix_t *ret_m, const void *at, int rows, int columns, int stride)
{
    ret_m->at = at;
    ret_m->rows = (size_t)rows;
    ret_m->columns = (size_t)columns;
    ret_m->stride = (size_t)stride;
    return rows > 0 && columns > 0 && stride >= rows;
}

static int is_turn(cublasOperation_t operation)
{
    return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void *alpha,
                            const void *A, cudaDataType Atype, int lda, const void *B,
                            cudaDataType Btype, int ldb, const void *beta, void *C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType,
                            cublasGemmAlgo_t algo)
{
    gemm_item_t item = { .turn_a = transa == CUBLAS_OP_T, .turn_b = transb == CUBLAS_OP_T };
    tutti_status_t status;
    visit_t visit;

    if (!is_handle(handle) || handle->device != pretend_device()->current())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!is_turn(transa) || !is_turn(transb) ||
        !describe(&item.a, A, item.turn_a ? k : m, item.turn_a ? m : k, lda) ||
        !describe(&item.b, B, item.turn_b ? n : k, item.turn_b ? k : n, ldb) ||
        !describe(&item.c, C, m, n, ldc))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!dtype_of(Atype, &item.a.dtype) || !dtype_of(Btype, &item.b.dtype) ||
        !dtype_of(Ctype, &item.c.dtype) || !fits(&item, computeType, algo))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    item.alpha = *(const float *)alpha;
    item.beta = *(const float *)beta;
    if (visit_stream("cublasGemmEx", handle->stream, &visit) != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    status = pretend_launch(visit.stream, run_gemm, &item, sizeof(item));
    visit_end(&visit);
    return status == TUTTI_OK ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

#endif
