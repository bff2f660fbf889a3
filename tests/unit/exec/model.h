/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of the executor: each collective's definition, which uses no schedule, its buffers, and
 * a check of its results.
 *
 * Each rank has a whole IN and a whole OUT, even if only one block of them exists for this rank. In
 * place, both are one buffer. Everything outside the blocks of OUT must stay unchanged.
 */
#ifndef TESTS_UNIT_EXEC_MODEL_H
#define TESTS_UNIT_EXEC_MODEL_H

#include "coll/coll.h"
#include "exec/exec.h"
#include "unit/coll/shapes.h"
#include "unit/exec/data.h"
#include "unit/node/world.h"

/* Elements of the longest buffer. */
#define MODEL_MOST ((size_t)6000)
#define MODEL_BYTES ((MODEL_MOST + 8) * 8)

typedef struct {
    size_t table[WORLD_RANKS + 1]; /* of the map, as passed to the executor */
    size_t count;
    char *buffer, *before;
} model_side_t;

typedef struct {
    tutti__collective_t collective;
    uint32_t n, root;
    int in_place;
    int unequal; /* blocks have different lengths */
    data_t data;
    model_side_t in[WORLD_RANKS], out[WORLD_RANKS];
} model_t;

/* Properties of a collective. */
int model_has_root(tutti__collective_t collective);
int model_is_flat(tutti__collective_t collective); /* one buffer, cut as the schedule requires */
int model_by_pair(tutti__collective_t collective); /* only the ranks of a pair have its map */
int model_is_scan(tutti__collective_t collective);
int model_has_tables(tutti__collective_t collective); /* optional for REDUCE_SCATTER */

/* Choose the lengths of blocks. In a flat collective they are `count` in total. Otherwise each
   block has `count` elements or, if unequal, at most `count`. Returns 0 if this does not fit. */
int model_lay_out(model_t *model, size_t count, uint32_t *seed);

/* in, out: [n] of MODEL_BYTES each. Fill the buffers, and make the calls for the executor. */
void model_fill(model_t *model, char *const *in, char *const *out, tutti__exec_call_t *calls);

/* Returns NULL, or the error as a static text. */
const char *model_check(const model_t *model);

void model_free(model_t *model);

/* Call `each` for all variants of an algorithm on a shape: for every `sub`, out of place and in
   place; radix and root are drawn. There are no variants if the algorithm refuses the shape. `each`
   builds and frees the schedules. */
void model_each_set(const tutti__algorithm_t *algorithm, const shape_t *shape, uint32_t *seed,
                    void (*each)(void *arg, set_t *set), void *arg);

#endif
