/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of one machine: their arenas mapped, and how to wake one that sleeps.
 *
 * Whoever waits for a peer spins first; only one that waited for long sleeps, and only then does
 * the peer pay for a system call. Two kinds of sleepers:
 *
 *   a direct call sleeps on the very word it waits for (futex). It first adds itself to `waiters`
 *     in the door of the peer that will write the word; a publisher looks at its own door only.
 *     The publisher has no fence between its store and that look, since it would cost every small
 *     allreduce 20 ns; the window is as long as a store buffer takes to drain, and the sleep is
 *     bounded, so a wake-up lost there costs 2 ms, or a sixteenth of the wait, at worst. That there
 *     is no other way to lose one: tests/unit/boot/test_wake.c.
 *   an engine sleeps on its bell, an eventfd, together with its sockets. It says so in `sleeping`
 *     in its own door; publishers in the engine's lanes do fence, look there, and ring.
 *
 * Belongs to the communicator; its functions may be called by any thread.
 */
#ifndef TUTTI__BOOT_MACHINE_H
#define TUTTI__BOOT_MACHINE_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "boot/boot.h"
#include "mem/shared.h"

/* "tutti" and the number of the layout of everything in arenas; ranks must agree on it. */
#define TUTTI__LAYOUT 0x74757404u

/* How near its end a rank's communicator is, in this order. */
enum {
    TUTTI__DOOR_OPEN = 0,
    TUTTI__DOOR_IDLE,  /* no bucket is run any more, since a rank has left; direct calls may be */
    TUTTI__DOOR_ENDED, /* it has ended because another rank has left */
    TUTTI__DOOR_LEFT   /* the owner has called finalize, or freed it */
};

/* The first page of each arena. Each word has a line pair of its own. */
typedef struct {
    uint32_t layout;
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t sleeping; /* written by the owner */
    tutti__word_t end; /* TUTTI__DOOR_..., written by the owner */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t waiters; /* futex sleepers, by all */
} tutti__door_t;

typedef struct {
    uint32_t nranks;   /* on this machine */
    uint32_t me;       /* my index among them */
    uint32_t *rank;    /* [nranks] their global ranks, ascending */
    int32_t *index_of; /* [size of the world] index, or -1 for ranks elsewhere */
    tutti__arena_t *arena;
    char **base;          /* [nranks] arenas as this process sees them */
    size_t *span;         /* [nranks] */
    int *pid;             /* [nranks] */
    int *bell;            /* [nranks] eventfds */
    tutti__door_t **door; /* [nranks] */
} tutti__machine_t;

/* Collective over all ranks of boot. */
tutti_status_t tutti__machine_open(tutti__boot_t *boot, tutti__machine_t **ret_machine);
/* Local. Peers keep what they mapped. NULL and half-built ones are fine. */
void tutti__machine_close(tutti__machine_t *machine);

/* Wake peers whose futex wait may be on `word`, which this rank has just written. */
void tutti__machine_wake(const tutti__machine_t *machine, tutti__word_t *word);

/* Ring a peer's engine if it sleeps. The caller has fenced after its stores. */
void tutti__machine_ring(const tutti__machine_t *machine, uint32_t index);

/* Sleep until *word is no longer `value`, for at most timeout_us. peer: index of its writer. */
void tutti__machine_sleep(const tutti__machine_t *machine, uint32_t peer, tutti__word_t *word,
                          uint32_t value, uint32_t timeout_us);

/* A word that peers may sleep on (direct calls) was written. */
static inline void tutti__machine_written(const tutti__machine_t *machine, tutti__word_t *word)
{
    if (TUTTI__UNLIKELY(tutti__load_relaxed(&machine->door[machine->me]->waiters) != 0))
        tutti__machine_wake(machine, word);
}

#endif
