/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of every instruction set of this machine, with all types and operations, are compared
 * with reference.c, bit by bit. Each set gets the same data, so the sets are also compared with
 * each other.
 */
#include "reduce/reduce.h"

#include "long.h"
#include "unit/reduce/reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_SRCS 17
#define MAX_COUNT 1100
#define MAX_ESIZE 16
#define GUARD 64 /* bytes around dst that must stay as they are */

/* Room for one array, which may begin at any byte of a cache line, and guards on both sides. */
typedef struct {
    unsigned char room[GUARD + MAX_COUNT * MAX_ESIZE + 64 + GUARD];
    unsigned char *at;
} array_t;

typedef struct {
    size_t n, count;
    tutti_dtype_t dtype;
    tutti_op_t op;
    uint32_t divisor;
    size_t alias; /* dst is the source with this number; n: a separate array */
} fold_t;

static array_t srcs[MAX_SRCS], dsts[MAX_SRCS], result;
static raw_t values[MAX_SRCS][MAX_COUNT], wanted[MAX_COUNT];

static void place(array_t *array)
{
    array->at = array->room + GUARD + next_random() % 64;
}

static void fill(array_t *array, const raw_t *raw, const fold_t *fold)
{
    memset(array->room, 0xa5, sizeof(array->room));
    for (size_t i = 0; i < fold->count; i++)
        raw_store(array->at + i * tutti_dtype_bytes(fold->dtype), fold->dtype, raw[i]);
}

static void check(const array_t *dst, const fold_t *fold)
{
    size_t bytes = tutti_dtype_bytes(fold->dtype);

    for (size_t i = 0; i < fold->count; i++) {
        raw_t seen = raw_load(dst->at + i * bytes, fold->dtype);

        if (seen.value != wanted[i].value || seen.index != wanted[i].index)
            fail_msg("%s: type %d op %d, %zu sources, divisor %u, element %zu of %zu: "
                     "%#llx %#llx instead of %#llx %#llx; first two sources %#llx %#llx",
                     tutti__reduce_isa(), (int)fold->dtype, (int)fold->op, fold->n, fold->divisor,
                     i, fold->count, (unsigned long long)seen.value, (unsigned long long)seen.index,
                     (unsigned long long)wanted[i].value, (unsigned long long)wanted[i].index,
                     (unsigned long long)values[0][i].value,
                     (unsigned long long)values[fold->n > 1][i].value);
    }
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(dst->at[(ptrdiff_t)i - GUARD], 0xa5);
        assert_int_equal(dst->at[fold->count * bytes + i], 0xa5);
    }
}

/* Fold random data at random places with all instruction sets. */
static void on_all_sets(const fold_t *fold)
{
    array_t *dst = fold->alias < fold->n ? &srcs[fold->alias] : &result;
    const void *pointers[MAX_SRCS];

    for (size_t s = 0; s < fold->n; s++)
        for (size_t i = 0; i < fold->count; i++)
            values[s][i] = any_value(fold->dtype);
    for (size_t i = 0; i < fold->count; i++) {
        raw_t raw[MAX_SRCS];

        for (size_t s = 0; s < fold->n; s++)
            raw[s] = values[s][i];
        wanted[i] = expected_fold(raw, fold->n, fold->op, fold->divisor, fold->dtype);
    }
    for (size_t k = 0; k < ISAS; k++) {
        if (!tutti__reduce_force(isas[k]))
            continue;
        place(&result);
        memset(result.room, 0xa5, sizeof(result.room));
        for (size_t s = 0; s < fold->n; s++) {
            place(&srcs[s]);
            fill(&srcs[s], values[s], fold);
            pointers[s] = srcs[s].at;
        }
        tutti__reduce_find(fold->dtype, fold->op)(dst->at, pointers, fold->n, fold->count,
                                                  fold->divisor);
        check(dst, fold);
    }
}

/* Call tutti__reduce_all on the data of on_all_sets. Afterwards every array, source or separate,
   must have the fold's bits. */
static void in_all_arrays(const fold_t *fold)
{
    const void *from[MAX_SRCS];
    void *to[MAX_SRCS];

    for (size_t k = 0; k < ISAS; k++) {
        uint64_t apart = next_random() % 4 == 0 ? 0 : next_random();
        size_t turn = next_random() % fold->n;
        tutti__reducer_t reducer;

        if (!tutti__reduce_force(isas[k]))
            continue;
        assert_int_equal(tutti__reducer_find(fold->dtype, fold->op, &reducer), 1);
        for (size_t s = 0; s < fold->n; s++) {
            place(&srcs[s]);
            place(&dsts[s]);
            fill(&srcs[s], values[s], fold);
            memset(dsts[s].room, 0xa5, sizeof(dsts[s].room));
            from[s] = srcs[s].at;
            to[(s + turn) % fold->n] = apart >> s & 1 ? dsts[s].at : srcs[s].at;
        }
        tutti__reduce_all(&reducer, to, from, fold->n, fold->count, fold->divisor);
        for (size_t s = 0; s < fold->n; s++)
            check(apart >> s & 1 ? &dsts[s] : &srcs[s], fold);
    }
}

static int whole; /* 0: the quick form */

static void all_counts(tutti_dtype_t dtype, tutti_op_t op)
{
    static const size_t counts[] = { 0,  1,  2,  3,  5,  7,   8,   9,   15,  16,   17,
                                     31, 33, 63, 64, 65, 127, 130, 511, 513, 1025, MAX_COUNT };
    static const size_t many[] = { 1, 2, 3, MAX_SRCS, 4, 5, 6, 7, 8, 9 }; /* quick: the first 4 */
    static const uint32_t divisors[] = { 0, 1, 2, 3, 5, 8, 100, 1u << 31, UINT32_MAX };
    static uint64_t turn;

    for (size_t m = 0; m < (whole ? LENGTH(many) : 4); m++) {
        size_t first = whole ? 0 : (m + (size_t)dtype + (size_t)op) % 3;

        for (size_t c = first; c < LENGTH(counts); c += whole ? 1 : 3, turn++) {
            fold_t fold = { many[m],
                            counts[c],
                            dtype,
                            op,
                            divisors[turn % LENGTH(divisors)],
                            turn % (many[m] + 1) };

            on_all_sets(&fold);
            in_all_arrays(&fold);
        }
    }
}

static void test_integers(void **state)
{
    (void)state;
    for (tutti_dtype_t t = FIRST_DTYPE; t <= TUTTI_UINT64; t++)
        for (tutti_op_t o = FIRST_OP; o <= TUTTI_LXOR; o++)
            all_counts(t, o);
}

static void test_floats(void **state)
{
    (void)state;
    for (tutti_dtype_t t = TUTTI_FLOAT16; t <= TUTTI_FLOAT8_E5M2; t++)
        for (tutti_op_t o = FIRST_OP; o <= TUTTI_PROD; o++)
            all_counts(t, o);
}

static void test_bool(void **state)
{
    (void)state;
    for (tutti_op_t o = FIRST_OP; o <= TUTTI_LXOR; o++)
        if (o != TUTTI_AVG)
            all_counts(TUTTI_BOOL, o);
}

static void test_pairs(void **state)
{
    (void)state;
    for (tutti_dtype_t t = TUTTI_FLOAT32_INT32; t <= LAST_DTYPE; t++) {
        all_counts(t, TUTTI_MINLOC);
        all_counts(t, TUTTI_MAXLOC);
    }
}

/* With two operands any order gives the same bits, NaNs included. If an operation never rounds, any
   order of more operands also gives the same bits. */
static void test_order_does_not_matter(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        tutti_dtype_t dtype = FIRST_DTYPE + (unsigned)round % (LAST_DTYPE - FIRST_DTYPE + 1);
        tutti_op_t op = FIRST_OP + (unsigned)round / 19 % (LAST_OP - FIRST_OP + 1);
        size_t n = op == TUTTI_SUM || op == TUTTI_AVG || op == TUTTI_PROD ? 2 : 3;
        size_t bytes = tutti_dtype_bytes(dtype);
        unsigned char raw[3][33 * MAX_ESIZE], one[33 * MAX_ESIZE], two[33 * MAX_ESIZE];
        const void *forward[3], *backward[3];

        if (!is_served(dtype, op) || !tutti__reduce_force(isas[(unsigned)round % ISAS]))
            continue;
        for (size_t s = 0; s < n; s++) {
            for (size_t i = 0; i < 33; i++)
                raw_store(raw[s] + i * bytes, dtype, special_value(dtype));
            forward[s] = backward[n - 1 - s] = raw[s];
        }
        tutti__reduce_find(dtype, op)(one, forward, n, 33, 0);
        tutti__reduce_find(dtype, op)(two, backward, n, 33, 0);
        if (memcmp(one, two, 33 * bytes) != 0)
            fail_msg("type %d op %d depends on the order", (int)dtype, (int)op);
    }
}

static void test_scale(void **state)
{
    static const double factors[] = { 1.0,   -1.0,   0.5,  1.0 / 3,    1e30,     1e-30,
                                      1e300, 1e-300, 1e-8, 1.0 + 1e-9, INFINITY, 0.0 };
    uint64_t turn = 0;

    (void)state;
    for (tutti_dtype_t dtype = FIRST_DTYPE; dtype <= LAST_DTYPE; dtype++) {
        assert_int_equal(tutti__reduce_scales(dtype), is_float(dtype));
        for (size_t count = 0; is_float(dtype) && count < 600; count += count < 70 ? 1 : 97)
            for (size_t k = 0; k < ISAS; k++, turn++) {
                fold_t fold = { 1, count, dtype, TUTTI_SUM, 0, turn % 2 };
                array_t *dst = fold.alias == 0 ? &srcs[0] : &result;
                double factor = factors[turn / 2 % LENGTH(factors)];

                if (!tutti__reduce_force(isas[k]))
                    continue;
                for (size_t i = 0; i < count; i++) {
                    values[0][i] = any_value(dtype);
                    wanted[i] = expected_scale(values[0][i], dtype, factor);
                }
                place(&result);
                memset(result.room, 0xa5, sizeof(result.room));
                place(&srcs[0]);
                fill(&srcs[0], values[0], &fold);
                tutti__reduce_scale(dst->at, srcs[0].at, count, dtype, factor);
                check(dst, &fold);
            }
    }
    assert_false(tutti__reduce_scales((tutti_dtype_t)0));
    assert_false(tutti__reduce_scales((tutti_dtype_t)-1));
}

static void test_bf16_rounds_once(void **state)
{
    /* 256 + 1 + 1: if each sum were rounded to bfloat16, 256 + 1 would be 256. */
    uint16_t a = 0x4380, b = 0x3f80, c = 0x3f80, sum = 0;
    const void *pointers[] = { &a, &b, &c };

    (void)state;
    tutti__reduce_find(TUTTI_BFLOAT16, TUTTI_SUM)(&sum, pointers, 3, 1, 0);
    assert_int_equal(sum, 0x4381);
}

static void test_average_of_integers(void **state)
{
    int32_t a[] = { -7, 7, INT32_MIN, INT32_MAX }, b[] = { 0, 0, -1, 1 }, mean[4];
    uint8_t c[] = { 200, 255 }, d[] = { 100, 0 }, small[2];
    int8_t e[] = { -128, 100 }, f[] = { 127, 100 }, tiny[2];
    const void *wide[] = { a, b }, *narrow[] = { c, d }, *narrowest[] = { e, f };

    (void)state;
    tutti__reduce_find(TUTTI_INT32, TUTTI_AVG)(mean, wide, 2, 4, 2);
    assert_int_equal(mean[0], -3);
    assert_int_equal(mean[1], 3);
    assert_int_equal(mean[2], INT32_MAX / 2);
    assert_int_equal(mean[3], INT32_MIN / 2);
    tutti__reduce_find(TUTTI_UINT8, TUTTI_AVG)(small, narrow, 2, 2, 2);
    assert_int_equal(small[0], (300 - 256) / 2);
    assert_int_equal(small[1], 127);
    tutti__reduce_find(TUTTI_INT8, TUTTI_AVG)(tiny, narrowest, 2, 2, 2);
    assert_int_equal(tiny[0], 0);
    assert_int_equal(tiny[1], (200 - 256) / 2);
}

/* Averages divide small integers as floats. All quotients of bytes are checked, and those of all
   16-bit numbers for some divisors. */
static void test_every_quotient(void **state)
{
    static uint8_t all[256], zero[65536 * 2], quotient[256];
    static uint16_t wide[65536], wide_quotient[65536];
    const void *bytes[] = { all, zero }, *words[] = { wide, zero };

    (void)state;
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    for (int i = 0; i < 65536; i++)
        wide[i] = (uint16_t)i;
    for (uint32_t divisor = 1; divisor < 300; divisor++) {
        tutti__reduce_find(TUTTI_UINT8, TUTTI_AVG)(quotient, bytes, 2, 256, divisor);
        for (uint32_t i = 0; i < 256; i++)
            assert_int_equal(quotient[i], i / divisor);
        tutti__reduce_find(TUTTI_INT8, TUTTI_AVG)(quotient, bytes, 2, 256, divisor);
        for (uint32_t i = 0; i < 256; i++)
            assert_int_equal((int8_t)quotient[i], (int8_t)i / (int)divisor);
    }
    for (uint32_t divisor = 1; divisor < 65600; divisor += divisor < 100 ? 1 : 6543) {
        tutti__reduce_find(TUTTI_UINT16, TUTTI_AVG)(wide_quotient, words, 2, 65536, divisor);
        for (uint32_t i = 0; i < 65536; i++)
            if (wide_quotient[i] != i / divisor)
                fail_msg("%u / %u is not %u", i, divisor, wide_quotient[i]);
        tutti__reduce_find(TUTTI_INT16, TUTTI_AVG)(wide_quotient, words, 2, 65536, divisor);
        for (uint32_t i = 0; i < 65536; i++)
            if ((int16_t)wide_quotient[i] != (int16_t)i / (int)divisor)
                fail_msg("%d / %u is not %d", (int16_t)i, divisor, (int16_t)wide_quotient[i]);
    }
}

static void test_find(void **state)
{
    const void *nothing[] = { NULL };
    tutti__reducer_t reducer;

    (void)state;
    for (unsigned t = 0; t < 40; t++)
        for (unsigned o = 0; o < 64; o++) {
            tutti_dtype_t dtype = (tutti_dtype_t)t;
            tutti_op_t op = (tutti_op_t)o;
            int served = t >= FIRST_DTYPE && t <= LAST_DTYPE && o >= FIRST_OP && o <= LAST_OP &&
                         is_served(dtype, op);

            assert_int_equal(tutti__reduce_find(dtype, op) != NULL, served);
            assert_int_equal(tutti__reducer_find(dtype, op, &reducer), served);
            if (!served)
                continue;
            assert_ptr_equal(reducer.fold, tutti__reduce_find(dtype, op));
            tutti__reduce(&reducer, NULL, nothing, 1, 0, 0);
        }
    assert_null(tutti__reduce_find(TUTTI_DTYPE_FORCE_INT, TUTTI_SUM));
    assert_null(tutti__reduce_find((tutti_dtype_t)-1, (tutti_op_t)-1));
    assert_ptr_equal(tutti__reduce_find(TUTTI_FLOAT32, TUTTI_AVG),
                     tutti__reduce_find(TUTTI_FLOAT32, TUTTI_SUM));
}

/* Which sums have a loop that writes all arrays at once, and under which conditions. */
static void test_all_serves(void **state)
{
    float x[4] = { 1, 2, 3, 4 };
    void *to[] = { &x[0], &x[1], &x[2], &x[3], &x[3] };
    const void *from[] = { &x[0], &x[1], &x[2], &x[3], &x[3] };
    tutti__reducer_t reducer;

    (void)state;
    assert_int_equal(tutti__reducer_find(TUTTI_FLOAT32, TUTTI_AVG, &reducer), 1);
    assert_int_equal(reducer.all(to, from, 5, 1, 0), 0);
    assert_int_equal(reducer.all(to, from, 1, 1, 0), 0);
    assert_int_equal(reducer.all(to, from, 3, 1, 3), 0);
    assert_true(x[0] == 1 && x[1] == 2 && x[2] == 3 && x[3] == 4);
    assert_int_equal(reducer.all(to, from, 4, 1, 4), 1);
    assert_true(x[0] == 2.5f && x[1] == 2.5f && x[2] == 2.5f && x[3] == 2.5f);
    assert_int_equal(tutti__reducer_find(TUTTI_FLOAT32, TUTTI_MAX, &reducer), 1);
    assert_null(reducer.all);
    assert_int_equal(tutti__reducer_find(TUTTI_INT32, TUTTI_SUM, &reducer), 1);
    assert_null(reducer.all);
}

static void test_force(void **state)
{
    char best[16];
    int sets = 0;

    (void)state;
    assert_int_equal(tutti__reduce_force("auto"), 1);
    snprintf(best, sizeof(best), "%s", tutti__reduce_isa());
    for (size_t k = 0; k < ISAS; k++)
        if (tutti__reduce_force(isas[k])) {
            assert_string_equal(tutti__reduce_isa(), isas[k]);
            sets++;
        }
    print_message("%d sets, the best is %s\n", sets, best);
    assert_true(sets >= 1);
    assert_int_equal(tutti__reduce_force("mmx"), 0);
    assert_int_equal(tutti__reduce_force(""), 0);
    assert_int_equal(tutti__reduce_force("scalar"), 1);
    assert_string_equal(tutti__reduce_isa(), "scalar");
    assert_int_equal(tutti__reduce_force("auto"), 1);
    assert_string_equal(tutti__reduce_isa(), best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_bool),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_order_does_not_matter),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_bf16_rounds_once),
        cmocka_unit_test(test_average_of_integers),
        cmocka_unit_test(test_every_quotient),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_all_serves),
        cmocka_unit_test(test_force),
    };

    whole = test_is_long("4 to 9 sources, and two of three counts");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
