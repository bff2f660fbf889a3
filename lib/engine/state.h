/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's state: one structure for any thread, and in it one for the owner of the token only.
 * The parts have headers of their own; a file that works on one part includes that header only.
 */
#ifndef TUTTI__ENGINE_STATE_H
#define TUTTI__ENGINE_STATE_H

#include "engine/queued.h"
#include "engine/spares.h"
#include "engine/stalls.h"
#include "engine/token.h"

/* Only the owner of the token. */
typedef struct {
    uint32_t polls;
    int is_buried; /* the state was cleared after the end */
    tutti__lanes_t lanes;
    tutti__agreement_t agreed;
    tutti__semaphores_t semaphores;
    tutti__stalls_t stalls;
    uint64_t queued_ns; /* the last check of the work queued in streams */
} tutti__owned_t;

struct tutti__engine {
    /* Any thread. */
    tutti__token_t token;
    tutti__pending_t pending;
    tutti__events_t events;
    tutti__signals_t signals;
    tutti__spares_t spares;
    atomic_int refs;   /* the communicator's and one per request */
    atomic_int news;   /* the doorbell or a socket has woken a thread: poll everything */
    atomic_int closed; /* tutti__engine_close has begun */
    atomic_int inside; /* threads that may still use env */

    tutti__owned_t its_owners; /* see tutti__owned */

    /* The engines of one world; see help.c. */
    tutti__engine_t *world; /* itself in a world's engine */
    tutti__xport_t *far;    /* the transport to other hosts, or NULL */
    tutti__mutex_t groups_lock;
    tutti__engine_t *groups;     /* under groups_lock: those of the world's groups */
    tutti__engine_t *next_group; /* under the world's groups_lock */

    /* Set up once. */
    tutti__engine_env_t env;
    uint32_t rank, size;
    unsigned generation; /* see base/forked.h */
    int spin;            /* there are enough processors for spinning */
    int has_semaphores;  /* streams may wait on semaphores */
    int epfd;            /* the doorbell and the side channel */
    pthread_t thread;
    int has_thread;
    atomic_int stop;
};

static inline tutti__owned_t *tutti__owned(tutti__engine_t *e)
{
    assert(tutti__token_is_mine(&e->token));
    return &e->its_owners;
}

/* help.c: enter the engine in its world's list, and leave it. */
void tutti__help_open(tutti__engine_t *e);
void tutti__help_close(tutti__engine_t *e);

/* thread.c */
tutti_status_t tutti__thread_start(tutti__engine_t *e);
void tutti__thread_stop(tutti__engine_t *e);

/* submit.c: may this thread use the engine's environment? It lives until the last thread has
   left. */
int tutti__engine_enter(tutti__engine_t *e);
void tutti__engine_leave(tutti__engine_t *e);

#endif
