/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels for devices: pack, and sums. launch.c launches them.
 *
 *      tutti_copy           pieces without conversion, in bytes
 *      tutti_cast_FROM_TO   pieces from one floating point type to another, scaled
 *      tutti_sum_TYPE       the sum of up to eight arrays
 *
 * FROM, TO and TYPE are numbers of tutti_dtype_t. The results have the same bits as those of
 * reduce/kernels.c: narrow floats are added in float32, and rounded once to nearest even; every NaN
 * result is the positive quiet NaN; integers wrap around and divide toward zero. Must be compiled
 * without contraction.
 *
 * Pieces are cut into chunks of equal bytes, and thread blocks stride over the chunks of all
 * pieces, so a few large pieces occupy as many thread blocks as many small pieces.
 *
 * The code is plain C++ except for the CUDA keywords. Tests run it on the host, thread by thread.
 */
#include "reduce/cuda/kernel_args.h"

#include "reduce/cuda/types.inc"

/* ---- pack ---- */

/* A cast is computed in float64 if either type is FLOAT64. */
template <typename A, typename B> struct wider_t {
    typedef double acc_t;
};
template <> struct wider_t<float, float> {
    typedef float acc_t;
};

/* For a double that is converted to float32 and then to a narrower type: if bits are cut off, the
   last bit of the float32 becomes odd (round to odd), so only the second conversion rounds. */
static __device__ inline float odd_float(double x)
{
    float near = (float)x;
    uint32_t bits = bits_of(near);
    double back = (double)near;

    if (x != x || back == x)
        return near;
    if ((back > x) == (x > 0)) /* rounded away from zero; an infinity becomes the largest number */
        bits--;
    return float_of(bits | 1);
}

template <typename TO> struct finish_t {
    static __device__ inline TO narrow(float x)
    {
        return TO::narrow(x);
    }
    static __device__ inline TO narrow(double x)
    {
        return TO::narrow(odd_float(x));
    }
};
template <> struct finish_t<f32_t> {
    static __device__ inline f32_t narrow(float x)
    {
        return f32_t::narrow(x);
    }
    static __device__ inline f32_t narrow(double x)
    {
        return f32_t::narrow((float)x);
    }
};
template <> struct finish_t<f64_t> {
    static __device__ inline f64_t narrow(double x)
    {
        return f64_t::narrow(x);
    }
};

/* The piece of a chunk: the last piece that does not begin after the chunk. */
static __device__ inline uint32_t piece_of(const tutti__pack_args_t &args, uint32_t chunk)
{
    uint32_t low = 0, high = args.npieces;

    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;

        if (args.first[middle] <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The number of elements before the first address that is a multiple of `bytes`, at most count. */
template <typename T>
static __device__ inline uint64_t head_of(const T *ptr, uint64_t bytes, uint64_t count)
{
    uint64_t head = (0 - (uint64_t)(uintptr_t)ptr) % bytes / sizeof(T);

    return head < count ? head : count;
}

template <typename FROM, typename TO, typename ACC>
static __device__ inline void cast_chunk(TO *dst, const FROM *src, uint64_t count, ACC scale)
{
    constexpr int n = 16 / (sizeof(FROM) > sizeof(TO) ? sizeof(FROM) : sizeof(TO));
    uint64_t head = head_of(src, n * sizeof(FROM), count), groups = 0;
    const vector_t<FROM, n> *from = (const vector_t<FROM, n> *)(src + head);
    vector_t<TO, n> *to = (vector_t<TO, n> *)(dst + head);

    if ((uintptr_t)to % (n * sizeof(TO)) == 0)
        groups = (count - head) / n;
    for (uint64_t g = threadIdx.x; g < groups; g += blockDim.x) {
        vector_t<FROM, n> in = from[g];
        vector_t<TO, n> out;

        UNROLL
        for (int i = 0; i < n; i++)
            out.at[i] = finish_t<TO>::narrow((ACC)FROM::widen(in.at[i]) * scale);
        to[g] = out;
    }
    for (uint64_t i = threadIdx.x; i < count - groups * n; i += blockDim.x) {
        uint64_t at = i < head ? i : i + groups * n;

        dst[at] = finish_t<TO>::narrow((ACC)FROM::widen(src[at]) * scale);
    }
}

template <typename FROM, typename TO>
static __device__ inline void cast_all(const tutti__pack_args_t &args)
{
    typedef typename wider_t<typename FROM::acc_t, typename TO::acc_t>::acc_t acc_t;

    for (uint32_t c = blockIdx.x; c < args.first[args.npieces]; c += gridDim.x) {
        uint32_t p = piece_of(args, c);
        uint64_t begin = (uint64_t)(c - args.first[p]) * args.chunk, rest = args.count[p] - begin;

        cast_chunk<FROM, TO, acc_t>((TO *)args.dst[p] + begin, (const FROM *)args.src[p] + begin,
                                    rest < args.chunk ? rest : args.chunk, (acc_t)args.scale);
    }
}

template <typename UNIT>
static __device__ inline void copy_units(char *dst, const char *src, uint64_t bytes)
{
    uint64_t head = head_of(dst, sizeof(UNIT), bytes), units = (bytes - head) / sizeof(UNIT);
    const UNIT *from = (const UNIT *)(src + head);
    UNIT *to = (UNIT *)(dst + head);

    for (uint64_t u = threadIdx.x; u < units; u += blockDim.x)
        to[u] = from[u];
    for (uint64_t i = threadIdx.x; i < bytes - units * sizeof(UNIT); i += blockDim.x) {
        uint64_t at = i < head ? i : i + units * sizeof(UNIT);

        dst[at] = src[at];
    }
}

static __device__ inline void copy_chunk(char *dst, const char *src, uint64_t bytes)
{
    unsigned apart = (unsigned)((uintptr_t)dst - (uintptr_t)src);

    if (apart % 16 == 0)
        copy_units<vector_t<uint32_t, 4>>(dst, src, bytes);
    else if (apart % 8 == 0)
        copy_units<uint64_t>(dst, src, bytes);
    else if (apart % 4 == 0)
        copy_units<uint32_t>(dst, src, bytes);
    else if (apart % 2 == 0)
        copy_units<uint16_t>(dst, src, bytes);
    else
        copy_units<char>(dst, src, bytes);
}

extern "C" __global__ void __launch_bounds__(TUTTI__CUDA_THREADS)
    tutti_copy(const __grid_constant__ tutti__pack_args_t args)
{
    for (uint32_t c = blockIdx.x; c < args.first[args.npieces]; c += gridDim.x) {
        uint32_t p = piece_of(args, c);
        uint64_t begin = (uint64_t)(c - args.first[p]) * args.chunk, rest = args.count[p] - begin;

        copy_chunk((char *)args.dst[p] + begin, (const char *)args.src[p] + begin,
                   rest < args.chunk ? rest : args.chunk);
    }
}

#define CAST(from, from_t, to, to_t)                                                               \
    extern "C" __global__ void __launch_bounds__(TUTTI__CUDA_THREADS)                              \
        tutti_cast_##from##_##to(const __grid_constant__ tutti__pack_args_t args)                  \
    {                                                                                              \
        cast_all<from_t, to_t>(args);                                                              \
    }
#define CASTS(from, from_t)                                                                        \
    CAST(from, from_t, 9, f16_t)                                                                   \
    CAST(from, from_t, 10, bf16_t)                                                                 \
    CAST(from, from_t, 11, f32_t)                                                                  \
    CAST(from, from_t, 12, f64_t)                                                                  \
    CAST(from, from_t, 13, e4m3_t)                                                                 \
    CAST(from, from_t, 14, e5m2_t)
CASTS(9, f16_t)
CASTS(10, bf16_t)
CASTS(11, f32_t)
CASTS(12, f64_t)
CASTS(13, e4m3_t)
CASTS(14, e5m2_t)

/* ---- sums ---- */

/* Sum N elements, from `at` on. All loads come first, so that they overlap. */
template <typename T, int N>
static __device__ inline void sum_at(const tutti__sum_args_t &args, uint64_t at)
{
    vector_t<T, N> in[TUTTI__SUM_SRCS];
    vector_t<T, N> out;

    UNROLL
    for (uint32_t s = 0; s < TUTTI__SUM_SRCS; s++)
        if (s < args.nsrcs)
            in[s] = *(const vector_t<T, N> *)((const T *)args.src[s] + at);
    UNROLL
    for (int i = 0; i < N; i++) {
        typename T::acc_t acc = T::widen(in[0].at[i]);

        UNROLL
        for (uint32_t s = 1; s < TUTTI__SUM_SRCS; s++)
            if (s < args.nsrcs)
                acc = acc + T::widen(in[s].at[i]);
        if (args.divisor > 1)
            acc = divided(acc, args.divisor);
        out.at[i] = T::narrow(acc);
    }
    *(vector_t<T, N> *)((T *)args.dst + at) = out;
}

template <typename T> static __device__ inline void sum_all(const tutti__sum_args_t &args)
{
    constexpr int n = 16 / sizeof(T);
    uint64_t me = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    uint64_t head = head_of((const T *)args.dst, 16, args.count), groups;
    uintptr_t apart = 0;

    for (uint32_t s = 0; s < args.nsrcs; s++)
        apart |= (uintptr_t)args.src[s] - (uintptr_t)args.dst;
    groups = apart % 16 == 0 ? (args.count - head) / n : 0;
    for (uint64_t g = me; g < groups; g += step)
        sum_at<T, n>(args, head + g * n);
    for (uint64_t i = me; i < args.count - groups * n; i += step)
        sum_at<T, 1>(args, i < head ? i : i + groups * n);
}

#define SUM(type, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(TUTTI__CUDA_THREADS)                              \
        tutti_sum_##type(const __grid_constant__ tutti__sum_args_t args)                           \
    {                                                                                              \
        sum_all<__VA_ARGS__>(args);                                                                \
    }
SUM(1, integer_t<int8_t, uint32_t, int64_t>)
SUM(2, integer_t<uint8_t, uint32_t, uint32_t>)
SUM(3, integer_t<int16_t, uint32_t, int64_t>)
SUM(4, integer_t<uint16_t, uint32_t, uint32_t>)
SUM(5, integer_t<int32_t, uint32_t, int64_t>)
SUM(6, integer_t<uint32_t, uint32_t, uint32_t>)
SUM(7, integer_t<int64_t, uint64_t, int64_t>)
SUM(8, integer_t<uint64_t, uint64_t, uint64_t>)
SUM(9, f16_t)
SUM(10, bf16_t)
SUM(11, f32_t)
SUM(12, f64_t)
