/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct collectives with equal parts against a sequential reference: every collective with
 * every type and operation that is served, on 1 to 8 ranks, with all roots, in place on all, some
 * or no ranks, in private and shared memory, with more than a chunk; user-defined operations; one
 * host and pretended hosts.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/direct/reference.h"

#include <stdlib.h>
#include <string.h>

/* ---- every type with every operation ---- */

/* Places, memories and roots rotate, so that each of them is used with all types and operations. */
static void one_of_each(area_t *area, tutti_call_kind_t kind, tutti_dtype_t dtype, tutti_op_t op)
{
    static const size_t counts[] = { 0, 1, 37, 150 };
    unsigned turn = area->salt;

    for (size_t i = 0; i < COUNT_OF(counts); i++, turn++)
        case_turn(area, kind, dtype, op, counts[i], turn);
}

static void product(rank_t *self)
{
    area_t area;

    area_open(&area, self, AREA_BYTES);
    for (size_t k = 0; k < CASE_KINDS; k++) {
        for (int t = 1; t <= REFERENCE_TYPES; t++) {
            tutti_dtype_t dtype = (tutti_dtype_t)t;

            if (!case_reduces(case_kinds[k])) {
                one_of_each(&area, case_kinds[k], dtype, TUTTI_SUM);
                continue;
            }
            for (int o = 1; o <= REFERENCE_OPS; o++) {
                tutti_op_t op = (tutti_op_t)o;
                int scans = case_kinds[k] == TUTTI_CALL_SCAN || case_kinds[k] == TUTTI_CALL_EXSCAN;
                case_t c = { case_kinds[k], dtype, op, 5, 0, APART, PRIVATE };

                if (reference_serves(dtype, op) && !(scans && op == TUTTI_AVG))
                    one_of_each(&area, case_kinds[k], dtype, op);
                else
                    case_run(&area, &c, TUTTI_ERR_UNSUPPORTED);
            }
        }
    }
    area_close(&area);
}

/* ---- places, memories, roots and sizes ---- */

static void default_pieces(rank_t *self)
{
    area_t area;

    area_open(&area, self, 4 * AREA_BYTES);
    for (size_t k = 0; k < CASE_KINDS; k++) {
        size_t parts = case_kinds[k] == TUTTI_CALL_ALLREDUCE ? 1 : (size_t)self->size;
        case_t c = { case_kinds[k], TUTTI_FLOAT32, TUTTI_SUM, 300001 / parts, 0, APART, PRIVATE };

        case_run(&area, &c, TUTTI_OK);
        c.memory = SHARED;
        c.place = IN_PLACE;
        case_run(&area, &c, TUTTI_OK);
    }
    area_close(&area);
}

/* ---- user-defined operations ---- */

static void user_ops_of(area_t *area, tutti_call_kind_t kind)
{
    size_t large = case_several_chunks(area->self, 8);

    case_ways(area, kind, TUTTI_UINT64, reference_user_op(REFERENCE_SHIFTED_PRODUCT), 5);
    case_ways(area, kind, TUTTI_UINT64, reference_user_op(REFERENCE_AFFINE), 5);
    case_ways(area, kind, TUTTI_UINT64, reference_user_op(REFERENCE_SHIFTED_PRODUCT), large);
    case_ways(area, kind, TUTTI_UINT64, reference_user_op(REFERENCE_AFFINE), large);
    for (int t = 1; t <= REFERENCE_TYPES; t++)
        one_of_each(area, kind, (tutti_dtype_t)t, reference_user_op(REFERENCE_LEFT));
}

static void user_ops(rank_t *self)
{
    area_t area;

    area_open(&area, self, AREA_BYTES);
    for (size_t k = 0; k < CASE_KINDS; k++)
        if (case_reduces(case_kinds[k]))
            user_ops_of(&area, case_kinds[k]);
    area_close(&area);
}

/* ---- factors ---- */

/* The factors are powers of two, so the products are exact. */
static void scaled_one(rank_t *self, size_t count, int in_place, double prescale, double postscale)
{
    float *x = calloc(2 * (count + 1), sizeof(*x)), *y = in_place ? x : x + count;
    uint16_t half = 0;

    for (size_t i = 0; i < count; i++)
        reference_value(TUTTI_FLOAT32, TUTTI_SUM, self->rank, i, 1, x + i);
    CHECK_OK(tutti_allreduce_scaled(x, y, count, TUTTI_FLOAT32, TUTTI_SUM, prescale, postscale,
                                    self->comm));
    for (size_t i = 0; i < count; i++) {
        float sum, own;

        reference_fold(TUTTI_FLOAT32, TUTTI_SUM, 0, self->size, i, 1, &sum);
        reference_value(TUTTI_FLOAT32, TUTTI_SUM, self->rank, i, 1, &own);
        CHECK(y[i] == sum * (prescale == 0 ? 1 : (float)prescale) *
                          (postscale == 0 ? 1 : (float)postscale));
        CHECK(in_place || x[i] == own);
    }
    /* 1.0 on each rank: doubled, averaged over the ranks, and halved. */
    half = 0x3c00;
    CHECK_OK(tutti_allreduce_scaled(&half, &half, 1, TUTTI_FLOAT16, TUTTI_AVG, 2, 0.5, self->comm));
    CHECK_INT(half, 0x3c00);
    free(x);
}

static void scaled(rank_t *self)
{
    static const double factors[][2] = { { 1, 1 }, { 0.5, 1 }, { 1, 4 }, { 0.25, -2 },
                                         { 0, 1 }, { 0, 4 },   { 2, 0 }, { 0, 0 } };
    int32_t n = 1;

    for (size_t f = 0; f < COUNT_OF(factors); f++)
        for (int in_place = 0; in_place < 2; in_place++) {
            scaled_one(self, 3, in_place, factors[f][0], factors[f][1]);
            scaled_one(self, 5000, in_place, factors[f][0], factors[f][1]);
        }
    CHECK_STATUS(tutti_allreduce_scaled(&n, &n, 1, TUTTI_INT32, TUTTI_SUM, 1, 1, self->comm),
                 TUTTI_ERR_UNSUPPORTED);
    CHECK_INT(n, 1);
}

/* ---- results ---- */

/* The sum of floats that must be rounded has the same bits on all ranks. */
static void same_bits(rank_t *self)
{
    enum {
        N = 50000
    };
    float *x = malloc(N * sizeof(*x)), *all = malloc(N * sizeof(*all) * (size_t)self->size);

    for (int i = 0; i < N; i++)
        x[i] = 1.0f / (float)(1 + (i * 31 + self->rank * 17) % 1009);
    CHECK_OK(tutti_allreduce(x, x, N, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK_OK(tutti_allgather(x, all, N, TUTTI_FLOAT32, self->comm));
    for (int r = 0; r < self->size; r++)
        CHECK_INT(memcmp(all + (size_t)r * N, x, N * sizeof(*x)), 0);
    free(x);
    free(all);
}

static void rest(rank_t *self)
{
    CHECK_INT(tutti_rank(self->comm), self->rank);
    CHECK_INT(tutti_size(self->comm), self->size);
    for (int i = 0; i < 20; i++)
        CHECK_OK(tutti_barrier(self->comm));
    scaled(self);
    same_bits(self);
    default_pieces(self);
}

/* ---- bits that do not depend on the size ---- */

enum {
    MANY = 40000 /* too many elements for the frame that compares the calls */
};

/* The exact sum of the first four ranks is 258. Rounding after each addition gives 256. */
static const uint16_t narrow_values[] = { 0x4380, 0x3f80, 0x3f80, 0 }; /* 256, 1, 1, 0 */
/* The sum of the first host's two groups is 0x1p24 + 2. Adding rank after rank gives 0x1p24. */
static const float wide_values[] = { 0x1p24f, 0, 1, 1, 0 };

static void check_sizes(rank_t *self, const void *value, tutti_dtype_t dtype, const void *want)
{
    static const size_t counts[] = { 1, MANY };
    size_t esize = tutti_dtype_bytes(dtype);
    char *x = malloc(MANY * esize);

    for (size_t k = 0; k < COUNT_OF(counts); k++) {
        size_t n = counts[k];

        for (size_t i = 0; i < n; i++)
            memcpy(x + i * esize, value, esize);
        CHECK_OK(tutti_allreduce(x, x, n, dtype, TUTTI_SUM, self->comm));
        for (size_t i = 0; i < n; i++)
            if (memcmp(x + i * esize, want, esize) != 0)
                ranks_fail(__FILE__, __LINE__, "element %zu of %zu has other bits", i, n);
    }
    free(x);
}

static void narrow_sizes(rank_t *self)
{
    const uint16_t want = 0x4381;

    check_sizes(self, &narrow_values[self->rank], TUTTI_BFLOAT16, &want);
}

static void wide_sizes(rank_t *self)
{
    const float want = 0x1p24f + 2;

    check_sizes(self, &wide_values[self->rank], TUTTI_FLOAT32, &want);
}

static void in_pairs(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.strict = 1;
    conf->shared.group_size = 2;
}

/* ---- jobs ---- */

int main(void)
{
    static const int sizes[] = { 1, 2, 3, 5, 4, 7, 8 };
    static const char *const hosts[] = { "ab", "aabb", "abc", "aaabb", "aaaab", "abab", "aabbc" };
    int failures = 0, threads = !ranks_can_fork();
    int whole = test_is_long("4 to 8 ranks of one host, all types but for 2 ranks, and five of "
                             "seven placings on hosts");

    reference_create_ops();
    for (size_t i = 0; i < (whole ? COUNT_OF(sizes) : 3) && !(threads && sizes[i] > 3); i++) {
        if (sizes[i] == 2 || (whole && !threads))
            failures += run_small(product, sizes[i], NULL, threads);
        failures += run_small(case_all_ways, sizes[i], NULL, threads);
        failures += run_small(user_ops, sizes[i], NULL, threads);
        failures += run_job_with(rest, sizes[i], NULL, threads, NULL);
    }
    for (size_t i = 0; i < (whole ? COUNT_OF(hosts) : 2) && !(threads && i > 2); i++) {
        failures += run_small(case_all_ways, (int)strlen(hosts[i]), hosts[i], threads);
        failures += run_small(user_ops, (int)strlen(hosts[i]), hosts[i], threads);
        failures += run_job_with(rest, (int)strlen(hosts[i]), hosts[i], threads, NULL);
    }
    failures += run_job_with(narrow_sizes, 4, "aaab", threads, in_pairs);
    failures += run_job_with(wide_sizes, 5, "aaaab", threads, in_pairs);
    return failures != 0;
}
