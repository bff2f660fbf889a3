/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's state. Any thread may use the outer structure (struct tutti__engine). Only the
 * token's owner may use the inner structure (tutti__owned_t). The parts have headers of their own;
 * a file that works on one part includes only the header of this part.
 */
#ifndef TUTTI__ENGINE_STATE_H
#define TUTTI__ENGINE_STATE_H

#include "engine/queued.h"
#include "engine/spares.h"
#include "engine/stalls.h"
#include "engine/token.h"

/* For the owner of the token only. */
typedef struct {
    uint32_t polls;
    int is_buried; /* the state was cleared after the end of the communicator */
    tutti__lanes_t lanes;
    tutti__agreement_t agreed;
    tutti__semaphores_t semaphores;
    tutti__stalls_t stalls;
    uint64_t queued_ns; /* time of the last check of work queued in streams */
} tutti__owned_t;

struct tutti__engine {
    /* Any thread. */
    tutti__token_t token;
    tutti__pending_t pending;
    tutti__events_t events;
    tutti__signals_t signals;
    tutti__spares_t spares;
    atomic_int refs;    /* references: the communicator's, and one for each request */
    atomic_int news;    /* the doorbell or a socket has woken a thread: poll everything */
    atomic_int alarmed; /* the alarm is set, or has gone off and the thread has not read it yet */
    atomic_uint alarm_waits;     /* pending.waits when the alarm was set */
    _Atomic uint64_t alarm_ns;   /* when the alarm was set */
    _Atomic uint32_t alarm_us;   /* the time from setting the alarm until it goes off: thread.c */
    _Atomic uint64_t crowded_ns; /* before this time waiters do not spin, see wait_loop.c; 0: they
                                    may spin */
    _Atomic uint32_t crowded_for_ns; /* the last such time, see wait_loop.c */
    _Atomic uint64_t shared_ns;      /* before this time waiters between hosts yield, as above */
    atomic_int closed;               /* tutti__engine_stop has begun */

    tutti__owned_t its_owners; /* accessed through tutti__owned */

    /* The engines of one world; see help.c. */
    tutti__engine_t *world; /* the world's engine; in a world, this engine */
    tutti__xport_t *far;    /* the transport to other hosts, or NULL */
    tutti__mutex_t groups_lock;
    tutti__engine_t *groups;      /* under groups_lock: list of the world's groups */
    tutti__engine_t *next_group;  /* under the world's groups_lock */
    tutti__engine_t *next_engine; /* of all engines; under the lock of help.c */

    /* Set up once. */
    tutti__engine_env_t env;
    uint32_t rank, size;
    unsigned generation; /* see base/forked.h */
    int spin;            /* there are enough processors for spinning */
    int has_semaphores;  /* CUDA streams may wait on semaphores */
    int epfd;            /* polls the doorbell, the side channel and the alarm */
    int alarm;           /* a timer that wakes the thread: see tutti__engine_ring_later */
    pthread_t thread;
    int has_thread;
    atomic_int stop;
};

static inline tutti__owned_t *tutti__owned(tutti__engine_t *e)
{
    assert(tutti__token_is_mine(&e->token));
    return &e->its_owners;
}

/* help.c: open adds the engine to its world's list and to the list of all engines; close removes
   it. The engine's `pending` is open. */
void tutti__help_open(tutti__engine_t *e);
void tutti__help_close(tutti__engine_t *e);
/* The calling thread waits in `e`. Does an engine have work that its own thread may not do, so that
   the calling thread must do it? If so, the caller must sleep only briefly. */
int tutti__help_is_due(const tutti__engine_t *e);
/* `e` has begun work that advances only when polled, and has set signals.polling. If its own thread
   may not do this work, wake the threads that wait for requests and may help. 0: its own thread may
   do the work, and no thread was woken. With the token. */
int tutti__help_wake(tutti__engine_t *e);

/* thread.c */
/* A lone rank without a device needs no thread: it waits only for its own program. */
int tutti__thread_is_needed(const tutti__engine_t *e);
tutti_status_t tutti__thread_start(tutti__engine_t *e);
void tutti__thread_stop(tutti__engine_t *e);

/* submit.c: may this thread use the engine's `env`? If so, close waits until the thread has called
   leave. */
int tutti__engine_enter(tutti__engine_t *e);
void tutti__engine_leave(tutti__engine_t *e);

#endif
