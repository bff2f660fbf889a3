/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct collectives on buffers at any offset in a cache line: offsets of one element, of bytes
 * that are not a multiple of an element, and different offsets on each rank and for each operand;
 * in private and shared memory, in place and out of place, through slots, by zero-copy, and with
 * non-temporal stores.
 */
#include "multi/direct/coll_case.h"
#include "long.h"

#include <stdlib.h>
#include <string.h>

/* Offsets of sendbuf and recvbuf, and their step from rank to rank. */
static const struct {
    size_t send, recv, step;
} places[] = { { 0, 0, 0 }, { 16, 16, 0 }, { 4, 4, 0 }, { 0, 16, 0 }, { 48, 8, 0 },
               { 1, 1, 0 }, { 63, 2, 0 },  { 0, 0, 4 }, { 16, 5, 9 } };

static void take_place(const rank_t *self, size_t p, size_t *offsets)
{
    offsets[0] = (places[p].send + places[p].step * (size_t)self->rank) % 64;
    offsets[1] = (places[p].recv + places[p].step * (size_t)self->rank) % 64;
}

static const tutti_call_kind_t kinds[] = { TUTTI_CALL_ALLREDUCE, TUTTI_CALL_REDUCE,
                                           TUTTI_CALL_BROADCAST, TUTTI_CALL_REDUCE_SCATTER,
                                           TUTTI_CALL_ALLGATHER, TUTTI_CALL_ALLTOALL };

/* In place and out of place, in all memories. */
static void in_some_ways(area_t *area, tutti_call_kind_t kind, tutti_dtype_t dtype, size_t count)
{
    for (int memory = 0; memory < MEMORIES; memory++)
        for (int place = 0; place < 2; place++) {
            int root = case_is_rooted(kind) ? (place + memory) % area->self->size : 0;
            case_t c = {
                kind, dtype, TUTTI_SUM, count, root, place == 0 ? APART : IN_PLACE, (memory_t)memory
            };

            case_run(area, &c, TUTTI_OK);
        }
}

static void small(rank_t *self)
{
    size_t offsets[2];
    area_t area;

    area_open(&area, self, AREA_BYTES);
    area.offsets = offsets;
    for (size_t p = 0; p < COUNT_OF(places); p++) {
        take_place(self, p, offsets);
        for (size_t k = 0; k < COUNT_OF(kinds); k++) {
            in_some_ways(&area, kinds[k], TUTTI_FLOAT32, 5);
            in_some_ways(&area, kinds[k], TUTTI_FLOAT32, case_several_chunks(self, 4));
            in_some_ways(&area, kinds[k], TUTTI_BFLOAT16, case_several_chunks(self, 2));
        }
    }
    area_close(&area);
}

/* Pieces of the default size, so that folds are long and shares have many pages. */
static void large(rank_t *self)
{
    size_t offsets[2];
    area_t area;

    area_open(&area, self, 2 * AREA_BYTES);
    area.offsets = offsets;
    for (size_t p = 0; p < COUNT_OF(places); p++) {
        take_place(self, p, offsets);
        for (int turn = 0; turn < 8; turn++) {
            case_t c = { turn < 4 ? TUTTI_CALL_ALLREDUCE : TUTTI_CALL_REDUCE,
                         TUTTI_FLOAT32,
                         TUTTI_SUM,
                         70001,
                         0,
                         turn % 2 == 0 ? APART : IN_PLACE,
                         turn % 4 < 2 ? PRIVATE : SHARED };

            case_run(&area, &c, TUTTI_OK);
        }
    }
    area_close(&area);
}

int main(void)
{
    int failures = 0, threads = !ranks_can_fork();
    int whole = test_is_long("small calls of 2 ranks, and large calls of 3 ranks");

    for (int size = 2; size <= 3; size++) {
        if (whole || size == 3)
            failures += run_small(small, size, NULL, threads);
        if (whole || size == 2)
            failures += run_job_with(large, size, NULL, threads, NULL);
    }
    return failures != 0;
}
