/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks in memory: one agreement per rank, a random tree, and queues for links. The test decides
 * which message arrives next and what the clock shows.
 */
#ifndef TUTTI_TESTS_UNIT_AGREE_WORLD_H
#define TUTTI_TESTS_UNIT_AGREE_WORLD_H

#include "reference.h"

#include <stdlib.h>

#define MOST_ROUNDS 20
#define MOST_SERVED 512
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

/* The place of a rank's call that is not announced. */
typedef enum {
    PLACE_NONE,
    PLACE_WAITS, /* waits in the plan until its bucket is complete */
    PLACE_HELD,  /* waits until the plan is over */
    PLACE_FLIES, /* in a bucket of the plan that has started */
    PLACE_QUEUED /* will be announced to agreement, with all calls of its submission group */
} place_t;

/* A rank's state of a plan, as in engine/planned.c. See planned.c in this folder. */
typedef struct {
    tutti__agree_plan_t plan;
    int runs, why; /* why: not 0: this rank must stop the plan; 2: because of a deviation */
    uint32_t next;
    uint64_t started;
    uint32_t entered, done; /* counts of buckets of all plans in the lane */
    uint32_t returned;      /* the plan of the last bucket that was not served */
    place_t place[MOST_TENSORS];
} planned_t;

/* One bucket of a plan, in the order of the lane. */
typedef struct {
    uint32_t plan, entered;       /* entered: bit r is set if rank r has entered */
    uint64_t number;              /* in its plan */
    uint32_t tensors[MOST_RANKS]; /* of each rank, as bits; 0: the rank lacks some */
} flight_t;

#define MOST_FLIGHTS 1024

typedef struct {
    world_t *world;
    tutti__agree_t *agree;
    uint32_t rank;
    int parent, parents_link; /* the parent's rank, and its link to this rank */
    uint32_t nlinks;
    tutti__agree_link_t links[MOST_RANKS]; /* link 0 leads to the parent, except at rank 0 */
    uint32_t behind[MOST_RANKS][MOST_RANKS];
    queue_t in[MOST_RANKS]; /* by link */
    int gone;               /* has left, has died, or has received the report of a death */
    int told;               /* has received a goodbye */
    uint32_t round;
    uint32_t at[MOST_TENSORS];          /* the round of the latest call of each tensor */
    uint8_t is_announced[MOST_TENSORS]; /* the call is announced and is in no bucket */
    planned_t plan;
    int joining, has_joined; /* is in tutti_join; has called tutti_join in this round */
    /* Outcome bits of each round. PENDING from the submission on. */
    unsigned outcome[MOST_ROUNDS][MOST_TENSORS];
    uint8_t phase[MOST_TENSORS]; /* 1: the counts are known; 2: and the call is submitted again */
    served_t served[MOST_SERVED];
    uint64_t bytes[MOST_SERVED]; /* of each served tensor, if this rank has the call */
    uint32_t nserved;
} rank_state_t;

struct world {
    uint64_t seed, random, now_ns;
    uint32_t nranks, nrounds;
    scenario_t scenario[MOST_ROUNDS];
    rank_state_t rank[MOST_RANKS];
    int failed; /* world_complain has printed the reason */
    int broken; /* a rank has left or died */
    /* Plans: */
    uint64_t plan_bytes; /* 0: there are none */
    uint64_t sent;       /* messages so far */
    flight_t flight[MOST_FLIGHTS];
    uint32_t plans, served, returned; /* plans begun at rank 0; buckets, counted on each rank */
    uint32_t ready;                   /* ranks that have the latest plan */
    uint32_t adjacent;                /* tensors marked as adjacent, in all plans and ranks */
    uint32_t grouped;                 /* tensors in submission groups, counted in the same way */
};

uint32_t draw(world_t *w, uint32_t below);
void world_open(world_t *w);
void world_close(world_t *w);

/* Submit a rank's part of a tensor: with its whole submission group, or as a lone call. */
void world_submit(rank_state_t *rank, uint32_t tensor);
/* Submit the second phase of a call whose counts are known. */
void world_submit_again(rank_state_t *rank, uint32_t tensor);
/* The address of rank 0's tensor. */
uint64_t world_place(const world_t *w, uint32_t tensor);
/* The rank calls tutti_join. */
void world_join(rank_state_t *rank);
/* Announce a call that has returned, or its submission group, unless it belongs to a plan. */
void world_announce(rank_state_t *rank, uint32_t tensor);
/* The submission group of the rank's latest call of a tensor. */
tutti__group_msg_t world_group(const rank_state_t *rank, uint32_t tensor);
/* Are the rank's latest calls of these two tensors in one submission group? */
int world_is_with(const rank_state_t *rank, uint32_t tensor, uint32_t other);
/* Deliver one message, drawn by chance. Returns 0 if there is none. */
int world_deliver(world_t *w);
/* The rank calls finalize, or dies. */
void world_leave(world_t *w, uint32_t rank);
void world_die(world_t *w, uint32_t rank);

/* planned.c: the callbacks of agree.h */
void planned_begin(void *owner);
uint64_t planned_stop(void *owner);
void planned_end(void *owner, uint64_t buckets);
/* The call's index in the plan that runs, if it is the call of the plan; otherwise -1. */
int64_t planned_find(const rank_state_t *rank, uint32_t tensor);
/* Returns 1 if the call belongs to the plan. */
int planned_take(rank_state_t *rank, uint32_t tensor);
/* One action of the rank: stop the plan, end a bucket, or announce a tensor that has returned from
   the plan. Returns 0 if none was possible. */
int planned_act(rank_state_t *rank);
/* The rank stops waiting for its plan. Returns 0 if it does not wait for one. */
int planned_hurry(rank_state_t *rank);

/* scenario.c: parts of a scenario, drawn by chance */
tutti__metadata_t call_of(world_t *w);
/* Change one field, so that the call differs. */
void spoil(world_t *w, part_t *part);
void make_collective(world_t *w, scenario_t *s, uint32_t tensor, int may_ask);
/* Messages in rings and between pairs of ranks. */
void make_messages(world_t *w, scenario_t *s, uint32_t tensor);
/* Tensors `tensor` to tensor + n - 1, in submission groups. */
void make_groups(world_t *w, scenario_t *s, uint32_t tensor, uint32_t n);
/* Make a call that is alone in its submission group a lone call. */
void dissolve_lone(scenario_t *s);
/* Do all calls end, and do all ranks join? If so, another round may follow. */
int scenario_ends(const scenario_t *s);

/* judge.c. Judge a world in which no action is possible. If the world has failed, print the reason
   and return 1. */
int judge(world_t *w);
/* For main: run the seeds of the command line, [FIRST_SEED [SEEDS]]; by default 1 to `quick`, in
   the long form to `all`. 1: a seed has failed. */
int run_seeds(int argc, char **argv, uint64_t quick, uint64_t all, int (*run_seed)(uint64_t seed));

void world_complain(world_t *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
