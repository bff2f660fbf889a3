/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executes threads as coroutines, in all interleavings.
 *
 * Before each access to shared memory the code under test calls weak_point(), where another actor
 * may continue. Memory is that of x86 (TSO): a store may stay in its writer's store buffer, which
 * has one entry, until the writer's next store, fence, locked operation or system call. So the
 * other actors see the store late. Futexes and doorbells (eventfd) are modelled as well: a waiter
 * sleeps only if the word still has the value, and only a wake-up wakes it. Bounded sleeps do not
 * end by themselves unless all actors sleep.
 *
 * A run is a list of choices. Exhaustive exploration tries all lists within limits. Otherwise the
 * choices are drawn at random.
 */
#ifndef TUTTI_TESTS_EXPLORE_H
#define TUTTI_TESTS_EXPLORE_H

#include <stdint.h>

#define EX_ACTORS 4
#define EX_BELLS 4

typedef struct {
    uint32_t switches; /* per run at most: switches away from an actor that could continue */
    uint32_t delays;   /* per run at most: stores that stay in a buffer */
    uint32_t random;   /* number of runs with random choices; 0: try all lists of choices */
    int first;         /* no more runs after the first deadlock */
    int timeouts;      /* if all actors sleep, bounded sleeps end; 0: this is a deadlock */
    /* Planted bugs. */
    uint32_t no_fence;   /* bit a: actor a's fences do nothing */
    int futex_blind;     /* FUTEX_WAIT does not compare */
    int bells_forgotten; /* a ring before the waiter sleeps is lost */
} ex_limits_t;

typedef struct {
    uint64_t runs, deadlocks, wrong;
    uint64_t timed_out; /* runs in which a bounded sleep ended by itself */
    uint64_t excused;   /* runs counted in timed_out in which a store was delayed */
} ex_result_t;

typedef struct {
    int n;                               /* actors */
    void (*begin)(void *arg);            /* before each run */
    void (*actor[EX_ACTORS])(void *arg); /* each runs to its end */
    int (*is_right)(const void *arg);    /* after each completed run; or NULL */
    void *arg;
} ex_play_t;

void ex_explore(const ex_play_t *play, const ex_limits_t *limits, ex_result_t *ret_result);

/* For actors: this actor's number; wait until is_there() is true. */
int ex_me(void);
void ex_await(int (*is_there)(void *arg), void *arg);

#endif
