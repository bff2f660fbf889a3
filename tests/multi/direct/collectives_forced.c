/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each algorithm of the table, forced by TUTTI_ALGORITHM, for direct collectives with equal parts:
 * in all places and memories, with all roots, with several chunks, with operations that do not
 * commute.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/direct/reference.h"

#include <string.h>

static int whole;

/* case_in_all_ways; the quick form has less than half of its elements. */
static void in_all_ways(area_t *area, tutti_call_kind_t kind)
{
    size_t count = case_several_chunks(area->self, 16);

    if (whole) {
        case_in_all_ways(area, kind);
        return;
    }
    case_ways(area, kind, TUTTI_FLOAT32, TUTTI_SUM, 3);
    case_ways(area, kind, TUTTI_UINT8, TUTTI_BXOR, 257);
    case_ways(area, kind, TUTTI_FLOAT64_INT64, TUTTI_MINLOC, count);
}

/* Run all cases that one algorithm serves. */
static void with_algorithm(rank_t *self)
{
    const forced_t *forced = self->arg;
    const tutti__algorithm_t *algorithm = forced->algorithm;
    area_t area;

    area_open(&area, self, AREA_BYTES);
    for (size_t k = 0; k < CASE_KINDS; k++) {
        if (tutti__call_collective(case_kinds[k]) != algorithm->collective)
            continue;
        in_all_ways(&area, case_kinds[k]);
        if (!case_reduces(case_kinds[k]))
            continue;
        case_ways(&area, case_kinds[k], TUTTI_UINT64, reference_user_op(REFERENCE_SHIFTED_PRODUCT),
                  9);
        if (forced->ordered) {
            case_ways(&area, case_kinds[k], TUTTI_UINT64, reference_user_op(REFERENCE_AFFINE),
                      1500);
        } else {
            case_t c = { case_kinds[k], TUTTI_UINT64, reference_user_op(REFERENCE_AFFINE), 9, 0,
                         APART,         PRIVATE };

            case_run(&area, &c, TUTTI_ERR_UNSUPPORTED);
            CHECK(strstr(tutti_last_error(), algorithm->name) != NULL);
        }
    }
    for (int i = 0; i < 10; i++)
        CHECK_OK(tutti_barrier(self->comm));
    area_close(&area);
}

int main(void)
{
    static const int sizes[] = { 2, 3, 5, 8 };
    int failures = 0, threads = !ranks_can_fork();

    whole = test_is_long("2, 5 and 8 ranks on one host, 5 on two, and int16 of several chunks");
    reference_create_ops();
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        if (sizes[i] == 3 || (whole && !threads))
            failures += run_each_algorithm(with_algorithm, sizes[i], NULL, threads);
    failures += run_each_algorithm(with_algorithm, 4, "aabb", threads);
    if (whole && !threads)
        failures += run_each_algorithm(with_algorithm, 5, "aabba", threads);
    return failures != 0;
}
