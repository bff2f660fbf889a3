/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One call of the stress test, of any kind: its buffers, their expected contents, and the text
 * of a failure.
 */
#ifndef TUTTI_TESTS_STRESS_TASK_H
#define TUTTI_TESTS_STRESS_TASK_H

#include "ranks.h"

#include "base/atomic.h"

#include <stdint.h>

enum {
    STRESS_MOST_RANKS = 8,
    STRESS_TASKS = 4 /* concurrent calls: one direct call, the others are asynchronous */
};

/* The next number of a random sequence, below n. */
uint64_t stress_draw(uint64_t *row, uint64_t n);

/* A call's parameters; equal on all ranks of its communicator. */
typedef struct {
    uint32_t number; /* number of the call; the data depend on it */
    tutti_call_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    size_t count;  /* elements; in v forms: elements of the largest part */
    uint32_t root; /* the root is this modulo the size; it also determines the peers of messages */
    int group;     /* the communicator: 0: all ranks; 1: the ranks with this rank's parity */
    int symmetric; /* alltoallv: both directions have the same counts, so it may be in place */
    int memory;    /* 0: all in arenas, 1: all private, 2: each rank chooses */
} stress_shape_t;

/* A buffer, with guards around it. */
typedef struct {
    char *base, *own; /* own: must be freed */
    char *want;       /* [bytes] the expected contents */
    size_t bytes;     /* with both guards; 0: no buffer */
} stress_region_t;

/* One rank's resources for all its calls. */
typedef struct {
    rank_t *world;
    uint64_t seed;
    char repeat[128]; /* the command that repeats the run */
    tutti_comm_t *comm[2];
    char *arena[2];         /* one per communicator, STRESS_ARENA_BYTES each */
    tutti__word_t *entered; /* [ranks of the world] the last call that each rank has entered */
} stress_rank_t;

/* The parts of a buffer: one for each rank, or only one. */
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
    int idle; /* 1: this rank takes no part, or does not wait */
    int in_place;
    size_t esize, gap;       /* bytes; elements between parts */
    stress_parts_t parts[2]; /* send, receive */
    stress_region_t region[2];
    tutti_call_t call;
    char name[16];
    tutti_request_t *request; /* NULL: no pending request */
} stress_task_t;

/* Most bytes of a buffer in a direct call, and in an asynchronous one; bytes between buffers, for
   guards and random offsets; bytes of an arena. */
enum {
    STRESS_DIRECT_BYTES = 4 << 20,
    STRESS_ASYNC_BYTES = 256 << 10,
    STRESS_SLACK_BYTES = 8 << 10,
    STRESS_ARENA_BYTES = 2 * (STRESS_DIRECT_BYTES + (STRESS_TASKS - 1) * STRESS_ASYNC_BYTES) +
                         2 * STRESS_TASKS * STRESS_SLACK_BYTES
};

/* Does the kind have a separate length for each rank? */
int stress_is_v(tutti_call_kind_t kind);
/* Does one of the call's buffers have a part for each rank? */
int stress_has_parts(tutti_call_kind_t kind);

/* Prepare a call. slot: 0 for the direct call. row: this rank's own random sequence. */
void stress_prepare(stress_task_t *t, const stress_rank_t *rank, const stress_shape_t *shape,
                    int slot, uint64_t *row);
void stress_direct(stress_task_t *t);
void stress_start(stress_task_t *t);
/* If the call was started, wait for it. Then compare all data. A zeroed task is allowed. */
void stress_finish(stress_task_t *t);

#endif
