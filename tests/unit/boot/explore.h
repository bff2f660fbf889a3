/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads as coroutines, and all the ways in which they can take turns.
 *
 * Where the code under test touches shared memory it passes a point: there another one may go on.
 * Memory is that of x86 (TSO): a store may stay in its writer's store buffer, which has one place,
 * until the writer's next store, fence, locked operation or system call; others see it late. Futex
 * and bells (eventfd) are modelled with it: a waiter sleeps only if the word still has the value,
 * and nothing but a wake-up wakes it. Bounded sleeps do not end by themselves unless all sleep.
 *
 * A run is a list of choices; exhaustive exploration tries all of them within limits, else they are
 * drawn at random.
 */
#ifndef TUTTI_TESTS_EXPLORE_H
#define TUTTI_TESTS_EXPLORE_H

#include <stdint.h>

#define EX_ACTORS 4
#define EX_BELLS 4

typedef struct {
    uint32_t switches; /* away from one that could go on, in one run, at most */
    uint32_t delays;   /* stores that stay in a buffer, in one run, at most */
    uint32_t random;   /* runs with random choices; 0: all there are */
    int timeouts;      /* if all sleep, bounded sleeps end; else that is a deadlock */
    /* Planted mistakes. */
    uint32_t no_fence;   /* bit a: actor a's fences do nothing */
    int futex_blind;     /* FUTEX_WAIT does not compare */
    int bells_forgotten; /* what rings before somebody sleeps is lost */
} ex_limits_t;

typedef struct {
    uint64_t runs, deadlocks, wrong;
    uint64_t timed_out; /* runs in which a bounded sleep had to end by itself */
    uint64_t excused;   /* of these: a store had been delayed */
} ex_result_t;

typedef struct {
    int n;                               /* actors */
    void (*begin)(void *arg);            /* before each run */
    void (*actor[EX_ACTORS])(void *arg); /* each to its end */
    int (*is_right)(const void *arg);    /* after each run that ended; or NULL */
    void *arg;
} ex_play_t;

void ex_explore(const ex_play_t *play, const ex_limits_t *limits, ex_result_t *ret_result);

/* For actors: who am I; wait until others may have done something. */
int ex_me(void);
void ex_await(int (*is_there)(void *arg), void *arg);

#endif
