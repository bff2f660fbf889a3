/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mutexes, and the check of their order. Each thread has a mask of its mutexes' places (lock.h).
 */
#include "base/lock.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>

/* The largest number of mutexes that tutti__mutex_lock_renewed can lock. */
#define RENEWED 16

static tutti__mutex_t *_Atomic renewed[RENEWED]; /* in the order of their first use */

#ifndef NDEBUG
/* Bit p is set while this thread holds a mutex of place p. */
static _Thread_local unsigned held;

static void mark(tutti__lock_place_t place)
{
    held |= 1u << place;
}

static void unmark(tutti__lock_place_t place)
{
    assert((held >> place & 1) && "unlocked by a thread that does not hold it");
    held &= ~(1u << place);
}

int tutti__lock_allowed(tutti__lock_place_t place)
{
    return held >> place == 0;
}
#else
static void mark(tutti__lock_place_t place)
{
    (void)place;
}

static void unmark(tutti__lock_place_t place)
{
    (void)place;
}

int tutti__lock_allowed(tutti__lock_place_t place)
{
    (void)place;
    return 1;
}
#endif

void tutti__mutex_init(tutti__mutex_t *mutex, tutti__lock_place_t place)
{
    pthread_mutex_init(&mutex->mutex, NULL);
    mutex->place = place;
}

void tutti__mutex_destroy(tutti__mutex_t *mutex)
{
    pthread_mutex_destroy(&mutex->mutex);
}

void tutti__mutex_lock(tutti__mutex_t *mutex)
{
    assert(tutti__lock_allowed(mutex->place) && "taken against the order in base/lock.h");
    pthread_mutex_lock(&mutex->mutex);
    mark(mutex->place);
}

static void in_child(void)
{
    for (unsigned i = 0; i < RENEWED; i++) {
        tutti__mutex_t *mutex = atomic_load(&renewed[i]);

        if (mutex != NULL)
            tutti__mutex_init(mutex, mutex->place);
    }
}

static void register_handler(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

void tutti__mutex_lock_renewed(tutti__mutex_t *mutex)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tutti__mutex_t *found = NULL;

    pthread_once(&once, register_handler);
    for (unsigned i = 0; i < RENEWED && found != mutex; i++) {
        found = NULL;
        if (atomic_compare_exchange_strong(&renewed[i], &found, mutex))
            found = mutex;
    }
    assert(found == mutex && "RENEWED is too small");
    tutti__mutex_lock(mutex);
}

int tutti__mutex_trylock(tutti__mutex_t *mutex)
{
    if (pthread_mutex_trylock(&mutex->mutex) != 0)
        return 0;
    mark(mutex->place);
    return 1;
}

void tutti__mutex_unlock(tutti__mutex_t *mutex)
{
    unmark(mutex->place);
    pthread_mutex_unlock(&mutex->mutex);
}
