/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The token: its owner is the only thread that works on the engine's state (tutti__owned_t in
 * state.h). Builds without NDEBUG store the owner, and check it at each access.
 *
 * A thread with work for the engine tries to take the token. If another thread has the token, the
 * work stays in the queue, where the owner finds it (steps.c).
 */
#ifndef TUTTI__ENGINE_TOKEN_H
#define TUTTI__ENGINE_TOKEN_H

#include "base/compiler.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct {
    atomic_int taken;
    atomic_int wanted; /* number of threads in token_await; not 0: token_take fails */
#ifndef NDEBUG
    pthread_t owner; /* valid while taken; only the owner reads or writes it */
#endif
} tutti__token_t;

/* For asserts only: a call by a thread that is not the owner is a bug. */
static inline int tutti__token_is_mine(const tutti__token_t *token)
{
#ifndef NDEBUG
    return atomic_load(&token->taken) && pthread_equal(token->owner, pthread_self());
#else
    (void)token;
    return 1;
#endif
}

/* Store this thread, which has taken the token, as its owner. */
static inline void tutti__token_note(tutti__token_t *token)
{
#ifndef NDEBUG
    token->owner = pthread_self();
#else
    (void)token;
#endif
}

/* Take the token if it is free. Returns 1 if it was free. */
static inline int tutti__token_take(tutti__token_t *token)
{
    if (TUTTI__UNLIKELY(atomic_load(&token->wanted) != 0) || atomic_exchange(&token->taken, 1) != 0)
        return 0;
    tutti__token_note(token);
    return 1;
}

/* Wait for the token and take it; no thread keeps it for long. Call this function rarely: while a
   thread waits here, token_take fails on other threads. */
void tutti__token_await(tutti__token_t *token);

/* Only give the token back. tutti__engine_yield also tells the peers whether to ring, takes the
   remaining steps, and calls the callbacks that are due. */
static inline void tutti__token_leave(tutti__token_t *token)
{
    assert(tutti__token_is_mine(token));
    atomic_store(&token->taken, 0);
}

#endif
