/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks in memory: one agreement per rank, a random tree, and queues for links. The test decides
 * which message arrives next, and what time it is.
 */
#ifndef TUTTI_TESTS_UNIT_AGREE_WORLD_H
#define TUTTI_TESTS_UNIT_AGREE_WORLD_H

#include "reference.h"

#include <stdlib.h>

#define MOST_ROUNDS 3
#define MOST_SERVED 256
#define BUCKET_BYTES 512

typedef struct letter letter_t;
struct letter {
    letter_t *next;
    uint32_t kind, bytes;
    _Alignas(8) char body[];
};

typedef struct {
    letter_t *first, *last;
} queue_t;

/* One tensor of a bucket, as a rank was told. */
typedef struct {
    uint32_t bucket, tensor;
    uint8_t phase, counts, last, has_metadata;
} served_t;

typedef struct world world_t;

typedef struct {
    world_t *world;
    tutti__agree_t *agree;
    uint32_t rank;
    int parent, parents_link; /* rank; and the parent's link to this rank */
    uint32_t nlinks;
    tutti__agree_link_t links[MOST_RANKS]; /* 0: the parent's, but at rank 0 */
    uint32_t behind[MOST_RANKS][MOST_RANKS];
    queue_t in[MOST_RANKS]; /* by link */
    int gone;               /* has left, or died, or was told of a death */
    int told;               /* of a departure */
    uint32_t round;
    int joining, has_joined; /* is in tutti_join; has called it in this round */
    /* Of the present round: outcome bits; PENDING once submitted. */
    unsigned outcome[MOST_ROUNDS][MOST_TENSORS];
    uint8_t phase[MOST_TENSORS]; /* 1: the counts are known; 2: and submitted again */
    served_t served[MOST_SERVED];
    uint64_t bytes[MOST_SERVED]; /* of each, if it concerns this rank */
    uint32_t nserved;
} rank_state_t;

struct world {
    uint64_t seed, random, now_ns;
    uint32_t nranks, nrounds;
    scenario_t scenario[MOST_ROUNDS];
    rank_state_t rank[MOST_RANKS];
    int failed; /* tests print why */
    int broken; /* a rank has left or died */
};

uint32_t draw(world_t *w, uint32_t below);
void world_open(world_t *w);
void world_close(world_t *w);

/* Submit what a rank's part of a tensor belongs to: its submission group, or the lone call. */
void world_submit(rank_state_t *rank, uint32_t tensor);
/* Deliver one message, drawn by chance; 0: there are none. */
int world_deliver(world_t *w);
/* The rank calls finalize, or dies. */
void world_leave(world_t *w, uint32_t rank);
void world_die(world_t *w, uint32_t rank);

void world_complain(world_t *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
