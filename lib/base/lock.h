/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mutexes with a place in the lock order.
 *
 * A thread that holds a mutex may take only mutexes of places further down in the enum. So it never
 * holds two mutexes of one place, and no two threads can wait for each other. Debug builds (without
 * NDEBUG) check the order at every lock.
 *
 * Critical sections are short: no thread waits for a peer while it holds a mutex. Two mutexes are
 * exceptions. tutti_init holds TUTTI__LOCK_WORLD while the ranks meet. tutti_trace_stop holds
 * TUTTI__LOCK_TRACE while other ranks append to the trace's file.
 *
 * If another thread holds a static mutex at a fork, the mutex would stay locked in the child for
 * ever. So a fork waits for a mutex whose data must be complete in the child (mem/mapping.c), and
 * the child makes the other mutexes anew.
 */
#ifndef TUTTI__BASE_LOCK_H
#define TUTTI__BASE_LOCK_H

#include <pthread.h>

/* The order in which mutexes may be taken. The comment of each mutex lists the protected data. */
typedef enum {
    TUTTI__LOCK_WORLD,        /* init, finalize, the world's pointer */
    TUTTI__LOCK_LIMITED,      /* the pointer to the world whose own thread may not call MPI */
    TUTTI__LOCK_PARTS,        /* lists of a world's groups; the end of unique ids */
    TUTTI__LOCK_ENGINES,      /* the list of the process's engines */
    TUTTI__LOCK_ENGINE_QUEUE, /* submitted requests that the engine has not taken */
    TUTTI__LOCK_WATCH,        /* the reason of a communicator's end */
    TUTTI__LOCK_MODULE,       /* one call into MPI or another package */
    TUTTI__LOCK_ARENA,        /* ranges of shared memory */
    TUTTI__LOCK_STATS,        /* times of exposed and hidden communication */
    TUTTI__LOCK_RECORDERS,    /* adding a flight recorder to the table */
    TUTTI__LOCK_TRACE,        /* start and stop of the trace */
    TUTTI__LOCK_TRACE_GROW,   /* the size of the trace's file */
    TUTTI__LOCK_LOG_CHANGE,   /* the log callback, while it is changed */
    TUTTI__LOCK_LOG,          /* messages for the log callback */
    TUTTI__LOCK_PLACES
} tutti__lock_place_t;

typedef struct {
    pthread_mutex_t mutex;
    tutti__lock_place_t place;
} tutti__mutex_t;

#define TUTTI__MUTEX_INIT(place)                                                                   \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, place                                                           \
    }

void tutti__mutex_init(tutti__mutex_t *mutex, tutti__lock_place_t place);
void tutti__mutex_destroy(tutti__mutex_t *mutex);
void tutti__mutex_lock(tutti__mutex_t *mutex);
/* Lock a static mutex. A child that is forked later initialises the mutex again. In the child, the
   data under the mutex may be half changed. */
void tutti__mutex_lock_renewed(tutti__mutex_t *mutex);
/* 1 if taken. Allowed in any order, because it does not wait. */
int tutti__mutex_trylock(tutti__mutex_t *mutex);
void tutti__mutex_unlock(tutti__mutex_t *mutex);

/* May this thread take a mutex of this place now? Always 1 with NDEBUG. For tests, and for asserts
   in functions that must be called without a lock. */
int tutti__lock_allowed(tutti__lock_place_t place);

#endif
