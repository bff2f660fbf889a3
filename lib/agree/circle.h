/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that wait for each other in a circle. Example: rank 0 waits for tensor 'a', which rank 1
 * has not submitted, and rank 1 waits for tensor 'b', which rank 0 has not submitted.
 *
 *      a rank      --STUCK-->     coordinator               its wait has become long
 *      coordinator --QUESTION-->  all                       ranks are stuck in different waits
 *      stuck ranks --STUCK-->     coordinator               the tensors that each of them lacks
 *
 * A rank is stuck if the only thread that submits its tensors waits, without a timeout, for a
 * tensor that is not agreed. A rank is also stuck if this thread waits in a direct call for another
 * rank of its machine.
 *
 * Ranks answer at different times, so their answers may form a circle that never existed. Therefore
 * the coordinator asks a second time. Suppose that each rank of the circle answers again with the
 * same wait, and still lacks the same tensor. Then all of these waits were in progress when the
 * second question was sent, and no rank of the circle could submit the tensor that it lacks. So
 * these waits do not end. Exception: a thread that has submitted no tensor so far may submit a
 * missing tensor.
 *
 * This file has only the coordinator's search. engine/stuck.c owns it, and handles the messages.
 */
#ifndef TUTTI__AGREE_CIRCLE_H
#define TUTTI__AGREE_CIRCLE_H

#include "agree/metadata.h"

/* The body of STUCK. Behind it: the tensor's name or the direct call's text, not terminated. */
typedef struct {
    uint64_t hash;  /* of the tensor's name; 0: a direct call */
    uint64_t lacks; /* bit i: the rank has not submitted tensor i of the question */
    uint32_t rank;
    uint32_t wait;     /* number of the rank's wait, from 1 */
    uint32_t question; /* the question that this message answers; 0: no answer, but a wait that has
                          become long */
    uint32_t peer[2];  /* messages and direct calls: the ranks that the rank waits for, or NOBODY.
                          Both NOBODY: the rank waits for all ranks that lack the tensor */
    uint8_t name_bytes, unused[3];
} tutti__stuck_msg_t;

/* The body of QUESTION. */
#define TUTTI__QUESTION_TENSORS 64
typedef struct {
    uint32_t number; /* from 1 */
    uint32_t n;
    uint64_t hash[TUTTI__QUESTION_TENSORS]; /* of the names of tensors that stuck ranks wait for */
} tutti__question_t;

#define TUTTI__STUCK_NAME 80

/* The coordinator's record of one rank. */
typedef struct {
    tutti__stuck_msg_t msg; /* the last message; wait 0: none */
    /* The rank's answer to the previous question, if that question had the same tensors;
       before_wait 0: none. */
    uint32_t before_wait;
    uint64_t before_lacks;
    uint32_t reported; /* number of the rank's last wait that was in a reported circle */
    int is_new;        /* the rank's last wait was reported after the last question */
    /* Used during a search. lacks: bits of the question's tensors; at: index of the rank's tensor
       in the question, or -1; next: the rank to try next; seen: see circle.c. */
    uint64_t lacks;
    uint32_t next;
    int seen, at;
    char name[TUTTI__STUCK_NAME];
} tutti__stuck_t;

typedef struct {
    uint32_t size;
    int has_answers; /* answers have arrived since the last search, or that search has found a
                        circle */
    int has_news;    /* waits have become long since the last question */
    tutti__question_t question;
    uint32_t *path;         /* [size] */
    tutti__stuck_t stuck[]; /* [size] */
} tutti__circle_t;

/* NULL: no memory. */
tutti__circle_t *tutti__circle_new(uint32_t size);
/* NULL is allowed. */
void tutti__circle_free(tutti__circle_t *circle);

/* Store a message STUCK that has arrived. Returns 0 if the message is damaged. */
int tutti__circle_take(tutti__circle_t *circle, const void *body, size_t bytes);

static inline int tutti__circle_is_due(const tutti__circle_t *circle)
{
    return circle->has_answers || circle->has_news;
}

/* Search for a circle. Returns the number of its ranks, which are path[0] and so on: each rank
   waits for the next rank, and the last rank for the first rank. Returns 0 if no circle is proved.
   Then, if *ret_asks is 1, the caller sends circle->question. Each circle is returned only once. */
uint32_t tutti__circle_search(tutti__circle_t *circle, int *ret_asks);

#endif
