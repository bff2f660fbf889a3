/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internal to the interpreter: the ranks' memory and the definitions of the collectives. Only
 * interpret*.c include this header.
 */
#ifndef TESTS_UNIT_COLL_INTERPRET_WORLD_H
#define TESTS_UNIT_COLL_INTERPRET_WORLD_H

#include "unit/coll/interpret.h"

#define STREAMS TUTTI__SCHED_STREAMS
#define LONGEST 3 /* elements of a block's chunk */
#define MOST_STEPS 1000000

/* If the order of operands matters: a function x -> a x + b, and addition is composition.
   Otherwise: a pair of numbers, and addition is element-wise. */
typedef struct {
    uint64_t a, b;
    enum {
        GIVEN, /* not added */
        ADDED, /* a sum that has not been stored, so it is exact */
        ROUNDED
    } is;
} number_t;

typedef struct {
    uint32_t pc, end, trip, trips; /* trips 0: outside of loops */
    uint32_t marks;
    int at_node;     /* the stream waits at a node operation */
    uint32_t passed; /* operations */
} stream_t;

typedef struct {
    number_t *numbers; /* without credits: NULL until the receiver takes the message */
    uint32_t count;
    /* without credits: the SEND of the message */
    const tutti__op_t *op;
    uint32_t rank, trip;
} message_t;

typedef struct {
    message_t *slots; /* [slots] */
    uint32_t head, count;
} chan_t;

typedef struct {
    const set_t *set;
    int ordered;
    uint32_t size, nblocks, credits, slots, trips, order;
    tutti__collective_t collective;
    uint32_t seed;
    const char *wrong;
    int has_taken;     /* has taken a message in this round */
    stream_t *streams; /* [size * STREAMS] */
    number_t *memory;  /* [size][BUFS][trips][room] */
    size_t room;       /* elements of one buffer and trip */
    chan_t *chans;     /* [from][to][stream] */
} world_t;

/* Keep the first error. Returns 0. */
int world_wrong(world_t *w, const char *wrong);
/* The number of elements in a chunk of block blk. Each order has a different map. */
uint32_t world_length(const world_t *w, uint32_t rank, unsigned buf, uint32_t blk);
/* Element e of a block's chunk; NULL beyond the buffer's end. */
number_t *world_element(const world_t *w, uint32_t rank, unsigned buf, uint32_t blk, uint32_t trip,
                        uint32_t e);
number_t world_combine(const world_t *w, number_t left, number_t right);
/* Finish x as the division of an average would. If x has been rounded before, the result is a wrong
   value, except in a scan. */
number_t world_finished(const world_t *w, number_t x);
/* Set the initial memory: the call's input, and garbage that differs in each order. */
void world_fill(world_t *w);
/* Defined in interpret_sends.c. message_take: read the message from the sender's blocks; called
   when the receiver has reached the operation that receives it. op_must_wait: would the operation
   overwrite a message that has not been taken? */
void message_take(world_t *w, message_t *message);
int op_must_wait(const world_t *w, uint32_t rank, const tutti__op_t *op, uint32_t begin,
                 uint32_t upto);
/* At the end: is a block's chunk correct? `before` is the initial memory. */
void world_look(world_t *w, uint32_t r, uint32_t blk, uint32_t trip, const number_t *before);

#endif
