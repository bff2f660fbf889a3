/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of the executor: what each collective does, said without schedules; buffers for it, and
 * a look at the results.
 *
 * Each rank has its whole IN and OUT, also where only one block of them is there for it. In place
 * both are one buffer. Everything that is not a block of OUT must stay as it was.
 */
#ifndef TESTS_UNIT_EXEC_MODEL_H
#define TESTS_UNIT_EXEC_MODEL_H

#include "coll/coll.h"
#include "exec/exec.h"
#include "unit/exec/data.h"
#include "unit/node/world.h"

/* Elements of the longest buffer. */
#define MODEL_MOST ((size_t)6000)
#define MODEL_BYTES ((MODEL_MOST + 8) * 8)

typedef struct {
    size_t table[WORLD_RANKS + 1]; /* of the map, as the executor is told */
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

/* What may be asked about a collective. */
int model_has_root(tutti__collective_t collective);
int model_is_flat(tutti__collective_t collective); /* one buffer, cut as the schedule likes */
int model_by_pair(tutti__collective_t collective); /* maps known to their ranks only */
int model_is_scan(tutti__collective_t collective);
int model_has_tables(tutti__collective_t collective); /* always, and so may REDUCE_SCATTER */

/* Lengths: `count` of the whole if it is flat, else of each block, or up to it if they are unequal.
   0 if that does not fit. */
int model_lay_out(model_t *model, size_t count, uint32_t *seed);

/* in, out: [n] of MODEL_BYTES each. Fills them, and says what the executor is to be told. */
void model_fill(model_t *model, char *const *in, char *const *out, tutti__exec_call_t *calls);

/* NULL, or what is wrong; static. */
const char *model_check(const model_t *model);

void model_free(model_t *model);

#endif
