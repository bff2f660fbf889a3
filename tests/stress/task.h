/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One call of the stress test, of any kind: its buffers, what must be in them afterwards, and what
 * to say if it is not.
 */
#ifndef TUTTI_TESTS_STRESS_TASK_H
#define TUTTI_TESTS_STRESS_TASK_H

#include "ranks.h"

#include "base/atomic.h"

#include <stdint.h>

enum {
    STRESS_MOST_RANKS = 8,
    STRESS_TASKS = 4 /* at once: a direct one, the others asynchronous */
};

/* The next of a row of numbers, below n. */
uint64_t stress_draw(uint64_t *row, uint64_t n);

/* What a call is; equal on all ranks of its communicator. */
typedef struct {
    uint32_t number; /* counts calls; data depend on it */
    tutti_call_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    size_t count;  /* elements; of v forms the most in one part */
    uint32_t root; /* modulo the size; of messages it chooses the peers */
    int group;     /* the communicator: 0 is all ranks, 1 those with this rank's parity */
    int symmetric; /* alltoallv: both directions have as much, so it may be in place */
    int memory;    /* 0: all in arenas, 1: all private, 2: each rank as it likes */
} stress_shape_t;

/* A buffer, with guards around it. */
typedef struct {
    char *base, *own; /* own: to be freed */
    char *want;       /* [bytes] what must be there in the end */
    size_t bytes;     /* with both guards; 0: there is no buffer */
} stress_region_t;

/* What a rank has for all its calls. */
typedef struct {
    rank_t *world;
    uint64_t seed;
    char repeat[128]; /* the command that does */
    tutti_comm_t *comm[2];
    char *arena[2];         /* of each, STRESS_ARENA_BYTES */
    tutti__word_t *entered; /* [ranks of the world] the last call made */
} stress_rank_t;

/* The parts of a buffer, one for each rank or only one. */
typedef struct {
    size_t counts[STRESS_MOST_RANKS], displs[STRESS_MOST_RANKS];
    size_t extent; /* elements of the buffer, with gaps */
    int many;
} stress_parts_t;

typedef struct {
    stress_shape_t shape;
    const stress_rank_t *rank;
    tutti_comm_t *comm;
    int me, size, root, dest, source;
    int idle; /* this rank takes no part, or has nothing to wait for */
    int in_place;
    size_t esize, gap;       /* bytes; elements between parts */
    stress_parts_t parts[2]; /* to send, to receive */
    stress_region_t region[2];
    tutti_call_t call;
    char name[16];
    tutti_request_t *request; /* or NULL */
} stress_task_t;

/* Bytes in each arena; of one buffer in a direct call, and in an asynchronous one. */
enum {
    STRESS_DIRECT_BYTES = 4 << 20,
    STRESS_ASYNC_BYTES = 256 << 10,
    STRESS_SLACK_BYTES = 8 << 10,
    STRESS_ARENA_BYTES = 2 * (STRESS_DIRECT_BYTES + (STRESS_TASKS - 1) * STRESS_ASYNC_BYTES) +
                         2 * STRESS_TASKS * STRESS_SLACK_BYTES
};

/* Does the kind have lengths of its own for each rank? */
int stress_is_v(tutti_call_kind_t kind);
/* Has one of its buffers a part for each rank? */
int stress_has_parts(tutti_call_kind_t kind);

/* slot: 0 is the direct call's. row: this rank's own. */
void stress_prepare(stress_task_t *t, const stress_rank_t *rank, const stress_shape_t *shape,
                    int slot, uint64_t *row);
void stress_direct(stress_task_t *t);
void stress_start(stress_task_t *t);
/* Wait, if it was started, and compare everything. A task that is zero is fine. */
void stress_finish(stress_task_t *t);

#endif
