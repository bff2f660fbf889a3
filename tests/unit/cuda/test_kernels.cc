/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device kernels and their launches, on the host: kernels.cu is compiled as C++, and a launch
 * runs its threads one after another. Sums are compared with those of the processor's kernels.
 * Casts are compared with the nearest code of the type, which is found by bisection.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "unit/cuda/host_device.inc"

/* ---- data ---- */

static uint64_t random_bits(void)
{
    static uint64_t state = 88172645463325252u;

    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static bytes_t random_bytes(size_t count)
{
    bytes_t bytes(count);

    for (auto &byte : bytes)
        byte = (unsigned char)(random_bits() >> 32);
    return bytes;
}

/* An address inside `room` that is `offset` after a multiple of 64. */
static unsigned char *place(bytes_t &room, size_t offset)
{
    return room.data() + (0 - (uintptr_t)room.data()) % 64 + offset;
}

/* ---- sums ---- */

/* shift: the difference between the sources' offsets, in elements. It decides which sources have
   the same alignment. in_place: dst is source 1. */
static void sum_case(tutti_dtype_t dtype, size_t nsrcs, size_t count, uint32_t divisor,
                     size_t shift, int in_place)
{
    size_t elem = tutti_dtype_bytes(dtype), bytes = count * elem, room_bytes = bytes + 512;
    bytes_t rooms[TUTTI__SUM_SRCS + 1], expected(bytes + 1), before;
    unsigned char *dst, *at[TUTTI__SUM_SRCS];
    const void *srcs[TUTTI__SUM_SRCS];
    tutti_status_t status;

    for (size_t s = 0; s <= nsrcs; s++) {
        rooms[s] = random_bytes(room_bytes);
        if (s < nsrcs)
            srcs[s] = at[s] = place(rooms[s], elem + s * shift * elem);
    }
    dst = in_place ? at[nsrcs - 1] : place(rooms[nsrcs], elem);
    tutti__reduce_find(dtype, TUTTI_SUM)(expected.data(), srcs, nsrcs, count, divisor);
    before.assign(dst - elem, dst + bytes + elem);
    status = tutti__cuda_sum(dst, srcs, nsrcs, count, dtype, divisor, NULL);
    CHECK(status == TUTTI_OK, "status %d", (int)status);
    CHECK(memcmp(dst, expected.data(), bytes) == 0,
          "type %d, %zu sources of %zu, divisor %u, shift %zu, in place %d", (int)dtype, nsrcs,
          count, divisor, shift, in_place);
    CHECK(memcmp(dst - elem, before.data(), elem) == 0, "before it, type %d", (int)dtype);
    CHECK(memcmp(dst + bytes, before.data() + elem + bytes, elem) == 0, "after it, type %d",
          (int)dtype);
}

static void test_sums(void)
{
    static const uint32_t divisors[] = { 0, 1, 2, 3, 7, 4000000000u };

    for (int type = TUTTI_INT8; type <= TUTTI_FLOAT64; type++)
        for (size_t nsrcs = 1; nsrcs <= TUTTI__SUM_SRCS; nsrcs++)
            for (uint32_t divisor : divisors)
                for (size_t count : { 0, 1, 5, 17, 1000 })
                    for (int way = 0; way < 3; way++)
                        sum_case((tutti_dtype_t)type, nsrcs, count, divisor, way == 1, way == 2);
    sum_case(TUTTI_FLOAT32, 3, 20000, 3, 0, 0);
    sum_case(TUTTI_INT8, 2, 20000, 0, 0, 0);
}

/* ---- casts ---- */

/* A type of few bits. TOP has the meaning of types.inc. The compiler casts FLOAT32 and FLOAT64. */
typedef struct {
    tutti_dtype_t dtype;
    int mantissa, bias;
    uint32_t sign, top, nan;
    int has_infinity;
} format_t;

static const format_t formats[] = {
    { TUTTI_FLOAT16, 10, 15, 0x8000, 0x7c00, 0x7e00, 1 },
    { TUTTI_BFLOAT16, 7, 127, 0x8000, 0x7f80, 0x7fc0, 1 },
    { TUTTI_FLOAT8_E4M3, 3, 7, 0x80, 0x7f, 0x7f, 0 },
    { TUTTI_FLOAT8_E5M2, 2, 15, 0x80, 0x7c, 0x7e, 1 },
};

static const format_t *format_of(tutti_dtype_t dtype)
{
    for (auto &format : formats)
        if (format.dtype == dtype)
            return &format;
    return NULL;
}

/* The value of a code. For the code `top`: the number that would follow the largest one. */
static double value_of(uint32_t magnitude, const format_t &f)
{
    int exponent = (int)(magnitude >> f.mantissa);
    double mantissa = magnitude & ((1u << f.mantissa) - 1);

    if (exponent == 0)
        return ldexp(mantissa, 1 - f.bias - f.mantissa);
    return ldexp(mantissa + (1 << f.mantissa), exponent - f.bias - f.mantissa);
}

static uint32_t code_of(double x, const format_t &f)
{
    double size = fabs(x);
    uint32_t low = 0, high = f.top, sign = signbit(x) ? f.sign : 0;

    if (x != x)
        return f.nan;
    while (high - low > 1) { /* value(low) <= size < value(high), if in range */
        uint32_t middle = (low + high) / 2;

        (value_of(middle, f) <= size ? low : high) = middle;
    }
    /* Halves are exact in float64. */
    if (size > (value_of(low, f) + value_of(high, f)) / 2 ||
        (size == (value_of(low, f) + value_of(high, f)) / 2 && low % 2 == 1))
        low = high;
    return low == f.top && !f.has_infinity ? f.nan : low | sign;
}

static double load_elem(const unsigned char *at, tutti_dtype_t dtype)
{
    const format_t *f = format_of(dtype);
    uint32_t code = 0, magnitude;
    float single;
    double x;

    memcpy(&code, at, tutti_dtype_bytes(dtype) < 4 ? tutti_dtype_bytes(dtype) : 4);
    memcpy(&single, &code, sizeof(single));
    if (f == NULL && dtype == TUTTI_FLOAT32)
        return single;
    if (f == NULL) {
        memcpy(&x, at, sizeof(x));
        return x;
    }
    magnitude = code & (f->sign - 1);
    x = magnitude < f->top                       ? value_of(magnitude, *f)
        : magnitude == f->top && f->has_infinity ? (double)INFINITY
                                                 : (double)NAN;
    return code & f->sign ? -x : x;
}

static void expect_elem(unsigned char *at, tutti_dtype_t dtype, double x)
{
    const uint64_t nan64 = 0x7ff8000000000000u;
    const uint32_t nan32 = 0x7fc00000u;
    const format_t *f = format_of(dtype);
    float single = (float)x;
    uint32_t code;

    if (f != NULL) {
        code = code_of(x, *f);
        memcpy(at, &code, tutti_dtype_bytes(dtype));
    } else if (dtype == TUTTI_FLOAT32) {
        memcpy(at, x == x ? (void *)&single : (void *)&nan32, sizeof(single));
    } else {
        memcpy(at, x == x ? (void *)&x : (void *)&nan64, sizeof(x));
    }
}

/* Fill with random bits. For large types, most values are in the range of small types, and near
   midpoints of their codes. */
static void fill(unsigned char *at, size_t count, tutti_dtype_t dtype)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_bits();
        double x = ldexp((double)(int64_t)(bits >> 40), (int)(bits % 48) - 44);

        if (bits >> 32 & 1)
            x *= 1 + ldexp((int)(bits >> 33 & 2) - 1, -45);
        if (bits >> 35 & 1)
            x = -x;
        if (dtype == TUTTI_FLOAT32 && bits >> 36 & 3) {
            float single = (float)x;

            memcpy(at + i * 4, &single, 4);
        } else if (dtype == TUTTI_FLOAT64 && bits >> 36 & 3) {
            memcpy(at + i * 8, &x, 8);
        } else {
            bits = random_bits();
            memcpy(at + i * tutti_dtype_bytes(dtype), &bits, tutti_dtype_bytes(dtype));
        }
    }
}

/* Products of float32 are rounded to float32 first. */
static double scaled(double x, double scale, int is_double)
{
    return is_double ? x * scale : (double)((float)x * (float)scale);
}

static void cast_case(tutti_dtype_t from, tutti_dtype_t to, double scale, size_t count,
                      size_t shift)
{
    size_t in = tutti_dtype_bytes(from), out = tutti_dtype_bytes(to);
    int is_double = from == TUTTI_FLOAT64 || to == TUTTI_FLOAT64;
    bytes_t from_room(count * in + 256), to_room(count * out + 256, 0xee), expected(count * out);
    unsigned char *src = place(from_room, in), *dst = place(to_room, shift * out);
    tutti__piece_t piece = { src, dst, count };
    tutti_status_t status;
    int wrong = -1;

    fill(src, count, from);
    status = tutti__cuda_pack(&piece, 1, from, to, scale, NULL);
    CHECK(status == TUTTI_OK, "status %d", (int)status);
    for (size_t i = 0; i < count; i++) {
        double x = load_elem(src + i * in, from);

        expect_elem(expected.data() + i * out, to, scaled(x, scale, is_double));
        if (wrong < 0 && memcmp(dst + i * out, expected.data() + i * out, out) != 0)
            wrong = (int)i;
    }
    CHECK(wrong < 0, "type %d to %d, scale %g, count %zu, shift %zu: element %d of %.20g is %.20g",
          (int)from, (int)to, scale, count, shift, wrong, load_elem(src + wrong * in, from),
          load_elem(dst + wrong * out, to));
    CHECK(dst[count * out] == 0xee, "wrote too much");
}

static void test_casts(void)
{
    for (int from = TUTTI_FLOAT16; from <= TUTTI_FLOAT8_E5M2; from++)
        for (int to = TUTTI_FLOAT16; to <= TUTTI_FLOAT8_E5M2; to++)
            for (double scale : { 1.0, 0.25, 1 / 3.0 })
                for (size_t count : { 3, 9000 })
                    for (size_t shift : { 1, 2 })
                        if (from != to || scale != 1)
                            cast_case((tutti_dtype_t)from, (tutti_dtype_t)to, scale, count, shift);
}

/* ---- pieces ---- */

/* `npieces` pieces of all lengths and alignments. Between two pieces there is a gap that must not
   change. */
static void pieces_case(tutti_dtype_t dtype, size_t npieces, size_t most)
{
    size_t elem = tutti_dtype_bytes(dtype), stride = most * elem + 64;
    bytes_t from = random_bytes(npieces * stride), to(npieces * stride, 0xee), expected = to;
    std::vector<tutti__piece_t> pieces(npieces);
    int total = 0;

    launches = most_pieces = 0;
    for (size_t i = 0; i < npieces; i++) {
        size_t in = i * stride + random_bits() % 17, out = i * stride + random_bits() % 17;

        pieces[i] = { from.data() + in, to.data() + out, random_bits() % (most + 1) };
        total += pieces[i].count > 0;
        memcpy(expected.data() + out, from.data() + in, pieces[i].count * elem);
    }
    CHECK(tutti__cuda_pack(pieces.data(), npieces, dtype, dtype, 1, NULL) == TUTTI_OK, "pack");
    CHECK(to == expected, "%zu pieces of type %d", npieces, (int)dtype);
    CHECK(launches == (total + TUTTI__PACK_PIECES - 1) / TUTTI__PACK_PIECES, "%d launches of %d",
          launches, total);
    CHECK(most_pieces <= TUTTI__PACK_PIECES, "%d pieces in one", most_pieces);
}

static void test_refusals(void)
{
    double room[4];
    char *odd = (char *)room + 2;
    const void *srcs[] = { room, odd };
    tutti__piece_t piece = { odd, room, 1 };

    CHECK(tutti__cuda_pack(&piece, 1, TUTTI_FLOAT32, TUTTI_FLOAT64, 1, NULL) ==
              TUTTI_ERR_INVALID_ARGUMENT,
          "alignment");
    CHECK(tutti__cuda_pack(&piece, 1, TUTTI_INT32, TUTTI_FLOAT64, 1, NULL) == TUTTI_ERR_UNSUPPORTED,
          "an integer");
    CHECK(tutti__cuda_pack(&piece, 1, TUTTI_INT32, TUTTI_INT32, 2, NULL) == TUTTI_ERR_UNSUPPORTED,
          "a scaled integer");
    CHECK(tutti__cuda_sum(room, srcs, 2, 1, TUTTI_FLOAT32, 0, NULL) == TUTTI_ERR_INVALID_ARGUMENT,
          "alignment");
    CHECK(tutti__cuda_sum(room, srcs, 9, 1, TUTTI_FLOAT32, 0, NULL) == TUTTI_ERR_INVALID_ARGUMENT,
          "nine sources");
    CHECK(tutti__cuda_sum(room, srcs, 1, 1, TUTTI_FLOAT8_E4M3, 0, NULL) == TUTTI_ERR_UNSUPPORTED,
          "float8");
    for (int type = 0; type < 24; type++)
        CHECK(tutti__cuda_dtype_bytes((tutti_dtype_t)type) ==
                  tutti_dtype_bytes((tutti_dtype_t)type),
              "type %d", type);
}

int main(void)
{
    test_sums();
    test_casts();
    for (int type = TUTTI_INT8; type <= TUTTI_INT64_INT64; type++)
        pieces_case((tutti_dtype_t)type, 300, 40);
    pieces_case(TUTTI_UINT8, TUTTI__PACK_PIECES, 1);
    pieces_case(TUTTI_FLOAT32, 5, 30000);
    pieces_case(TUTTI_FLOAT32, 0, 1);
    test_refusals();
    if (errors > 0)
        fprintf(stderr, "%d errors\n", errors);
    return errors > 0;
}
