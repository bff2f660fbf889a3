/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels on arrays at any offset in a cache line, as the library calls them: every combination of
 * some offsets of two sources and a destination, for all types, is compared with reference.c. More
 * sources are tested with some of the combinations. Nothing outside the destination may change.
 */
#include "reduce/reduce.h"

#include "unit/reduce/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    COUNT = TUTTI__REDUCE_SHORT + 37, /* so that a fold is cut at a line, and ends between lines */
    MOST_SRCS = 6,
    ESIZE = 16, /* the largest element */
    LINE = 64,
    BYTES = COUNT * ESIZE
};

/* Offsets in a line: multiples of every element size, and others. */
static const size_t offsets[] = { 0, 1, 2, 4, 8, 16, 20, 32, 48, 63 };

typedef struct {
    unsigned char before[LINE], data[LINE + BYTES], after[LINE];
} room_t;

static _Alignas(LINE) room_t rooms[MOST_SRCS], results[MOST_SRCS];
static _Alignas(LINE) unsigned char values[MOST_SRCS][BYTES], wanted[BYTES];

typedef struct {
    tutti_dtype_t dtype;
    tutti_op_t op;
    size_t n, bytes; /* n sources; bytes of each array */
    uint32_t divisor;
} fold_t;

static void prepare(const fold_t *fold)
{
    size_t esize = tutti_dtype_bytes(fold->dtype);

    for (size_t i = 0; i < COUNT; i++) {
        raw_t raw[MOST_SRCS];

        for (size_t s = 0; s < fold->n; s++) {
            raw[s] = any_value(fold->dtype);
            raw_store(values[s] + i * esize, fold->dtype, raw[s]);
        }
        raw_store(wanted + i * esize, fold->dtype,
                  expected_fold(raw, fold->n, fold->op, fold->divisor, fold->dtype));
    }
}

static void check(const room_t *room, size_t offset, const fold_t *fold, const char *what)
{
    const unsigned char *first = room->before;
    size_t begin = (size_t)(room->data - first) + offset;

    if (memcmp(first + begin, wanted, fold->bytes) != 0)
        fail_msg("%s, %s: type %d, op %d, %zu sources, at %zu", what, tutti__reduce_isa(),
                 (int)fold->dtype, (int)fold->op, fold->n, offset);
    for (size_t i = begin - LINE; i < begin; i++)
        assert_int_equal(first[i], 0xa5);
    for (size_t i = begin + fold->bytes; i < begin + fold->bytes + LINE; i++)
        assert_int_equal(first[i], 0xa5);
}

static unsigned char *clear(room_t *room, size_t offset, const fold_t *fold)
{
    unsigned char *at = room->data + offset;

    memset(at - LINE, 0xa5, fold->bytes + 2 * LINE);
    return at;
}

/* at: the offset of each source, followed by that of the destination. */
static void fold_at(const fold_t *fold, const tutti__reducer_t *reducer, const size_t *at)
{
    const void *srcs[MOST_SRCS];
    void *dsts[MOST_SRCS];

    for (size_t s = 0; s < fold->n; s++) {
        srcs[s] = memcpy(clear(&rooms[s], at[s], fold), values[s], fold->bytes);
        /* The other offsets are exchanged, so that aligned and unaligned arrays are mixed. */
        dsts[s] = clear(&results[s], at[fold->n - s], fold);
    }
    tutti__reduce(reducer, dsts[0], srcs, fold->n, COUNT, fold->divisor);
    check(&results[0], at[fold->n], fold, "fold");
    tutti__reduce_all(reducer, dsts, srcs, fold->n, COUNT, fold->divisor);
    for (size_t s = 0; s < fold->n; s++)
        check(&results[s], at[fold->n - s], fold, "all");
    /* Fold into the last source, which must be read before it is written. */
    tutti__reduce(reducer, (void *)(uintptr_t)srcs[fold->n - 1], srcs, fold->n, COUNT,
                  fold->divisor);
    check(&rooms[fold->n - 1], at[fold->n - 1], fold, "in place");
}

static void combinations(const fold_t *fold, const tutti__reducer_t *reducer, size_t step)
{
    for (size_t a = 0; a < LENGTH(offsets); a += step)
        for (size_t b = 0; b < LENGTH(offsets); b += step)
            for (size_t c = 0; c < LENGTH(offsets); c += step) {
                /* If there are more than two sources, they use the three offsets in turn. */
                size_t at[MOST_SRCS + 1];

                for (size_t i = 0; i <= fold->n; i++)
                    at[i] = offsets[i % 3 == 0 ? a : i % 3 == 1 ? b : c];
                fold_at(fold, reducer, at);
            }
}

/* Every `step`-th offset is used. */
static void on_all_sets(tutti_dtype_t dtype, tutti_op_t op, size_t n, size_t step)
{
    fold_t fold = { dtype, op, n, COUNT * tutti_dtype_bytes(dtype), 0 };
    tutti__reducer_t reducer;

    if (op == TUTTI_AVG)
        fold.divisor = n % 2 == 0 ? 3 : 4;
    prepare(&fold);
    for (size_t k = 0; k < ISAS; k++)
        if (tutti__reduce_force(isas[k])) {
            assert_int_equal(tutti__reducer_find(dtype, op, &reducer), 1);
            combinations(&fold, &reducer, step);
        }
}

static tutti_op_t main_op(tutti_dtype_t dtype)
{
    return is_pair(dtype) ? TUTTI_MINLOC : TUTTI_SUM;
}

static void test_two_sources(void **state)
{
    (void)state;
    for (tutti_dtype_t t = FIRST_DTYPE; t <= LAST_DTYPE; t++)
        on_all_sets(t, main_op(t), 2, 1);
}

static void test_more_sources(void **state)
{
    (void)state;
    for (tutti_dtype_t t = FIRST_DTYPE; t <= LAST_DTYPE; t++)
        for (size_t n = 1; n <= MOST_SRCS; n++)
            on_all_sets(t, main_op(t), n, 3);
}

static void test_other_operations(void **state)
{
    (void)state;
    for (tutti_dtype_t t = FIRST_DTYPE; t <= LAST_DTYPE; t++)
        for (tutti_op_t o = FIRST_OP; o <= LAST_OP; o++)
            if (is_served(t, o))
                on_all_sets(t, o, 2 + (unsigned)o % 2, 4);
}

static void test_scale(void **state)
{
    static const double by = 0.5;

    (void)state;
    for (tutti_dtype_t t = FIRST_DTYPE; t <= LAST_DTYPE; t++) {
        fold_t fold = { t, TUTTI_SUM, 1, COUNT * tutti_dtype_bytes(t), 0 };

        if (!is_float(t))
            continue;
        prepare(&fold);
        for (size_t i = 0; i < COUNT; i++) {
            size_t at = i * tutti_dtype_bytes(t);

            raw_store(wanted + at, t, expected_scale(raw_load(values[0] + at, t), t, by));
        }
        for (size_t a = 0; a < LENGTH(offsets); a++)
            for (size_t b = 0; b < LENGTH(offsets); b++) {
                void *src = memcpy(clear(&rooms[0], offsets[a], &fold), values[0], fold.bytes);

                tutti__reduce_scale(clear(&results[0], offsets[b], &fold), src, COUNT, t, by);
                check(&results[0], offsets[b], &fold, "scale");
            }
    }
}

/* A long fold is cut into blocks. The first one ends at a line, and all others have the full
   length. */
static void test_blocks(void **state)
{
    const char *lines = (const char *)rooms;

    (void)state;
    for (size_t esize = 1; esize <= ESIZE; esize *= 2)
        for (size_t at = 0; at < LINE; at++) {
            size_t most = 4 * LINE / esize, n = tutti__reduce_block(lines + at, most, esize);

            assert_true(n <= most && (most - n) * esize < LINE);
            if (at % esize == 0)
                assert_int_equal((at + n * esize) % LINE, 0);
            assert_int_equal(tutti__reduce_block(lines, most, esize), most);
        }
}

/* The beginnings of the parts that a long fold passes to its kernel. All parts after the first
   begin at a line of dst. */
static const void *begins[8];
static size_t counts[8], calls;

static void watched(void *dst, const void *const *srcs, size_t nsrcs, size_t count,
                    uint32_t divisor)
{
    (void)srcs, (void)nsrcs, (void)divisor;
    begins[calls] = dst;
    counts[calls++] = count;
}

static size_t calls_at(size_t offset, size_t count, tutti_dtype_t dtype)
{
    tutti__reducer_t reducer = { .fold = watched, .dtype = dtype };
    char *dst = (char *)results + offset;
    const void *srcs[] = { rooms, dst };

    calls = 0;
    tutti__reduce(&reducer, dst, srcs, 2, count, 0);
    return calls;
}

static void test_second_part_begins_a_line(void **state)
{
    (void)state;
    assert_int_equal(calls_at(16, COUNT, TUTTI_FLOAT32), 2);
    assert_int_equal(counts[0], 12);
    assert_int_equal(counts[1], COUNT - 12);
    assert_ptr_equal(begins[1], (char *)results + LINE);
    assert_int_equal(calls_at(8, COUNT, TUTTI_FLOAT64), 2);
    assert_int_equal(counts[0], 7);
    assert_int_equal(calls_at(0, COUNT, TUTTI_FLOAT32), 1);
    assert_int_equal(calls_at(2, COUNT, TUTTI_FLOAT32), 1); /* no element begins a line */
    assert_int_equal(calls_at(16, 100, TUTTI_FLOAT32), 1);  /* too few elements */
    assert_int_equal(counts[0], 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_sources),      cmocka_unit_test(test_more_sources),
        cmocka_unit_test(test_other_operations), cmocka_unit_test(test_scale),
        cmocka_unit_test(test_blocks),           cmocka_unit_test(test_second_part_begins_a_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
