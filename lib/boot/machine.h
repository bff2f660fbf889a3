/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of one machine: the mapped arenas of all ranks, and the wake-up of a sleeping rank.
 *
 * A thread that waits for a peer polls first, and sleeps only after a long wait. The peer makes a
 * system call only to wake a thread that sleeps. There are two kinds of sleepers:
 *
 *   A direct call sleeps on the word it waits for (futex). It first increments `waiters` in the
 *     status page of the peer that will write the word; a writer reads only its own status page.
 *     There is no fence between the writer's store and this read, because a fence would cost every
 *     small allreduce 20 ns. So a wake-up can be lost while a store buffer drains. The sleep is
 *     bounded: a lost wake-up costs at most 2 ms or a sixteenth of the time already waited,
 *     whichever is longer. tests/unit/boot/test_wake.c shows that no wake-up is lost for another
 *     reason.
 *   An engine sleeps on its doorbell, an eventfd, together with its sockets. It sets `sleeping` in
 *     its own status page. After its store, a writer in the engine's lanes executes a fence and
 *     reads `sleeping`. If `sleeping` is 1, the writer rings the doorbell.
 *
 * A tutti__machine_t belongs to the communicator. Any thread may call these functions.
 */
#ifndef TUTTI__BOOT_MACHINE_H
#define TUTTI__BOOT_MACHINE_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/status.h"
#include "boot/boot.h"
#include "mem/shared.h"

/* "tutti" and the version of the layout of everything in arenas; it must be equal on all ranks. */
#define TUTTI__LAYOUT 0x74757405u

/* State of a rank's communicator. The value never decreases. */
enum {
    TUTTI__PAGE_OPEN = 0,
    TUTTI__PAGE_IDLE,  /* a rank has left: the owner runs no more buckets; direct calls may run */
    TUTTI__PAGE_ENDED, /* the communicator has ended because another rank has left */
    TUTTI__PAGE_LEFT   /* the owner has called finalize, or has freed the communicator */
};

/* The status page, first in each arena. `sleeping` and `end`, which only the owner writes, are in
   one pair of cache lines; `waiters`, which all ranks write, is in another pair. The last two
   fields are written once. */
typedef struct {
    uint32_t layout;
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t sleeping; /* written by the owner */
    tutti__word_t end; /* TUTTI__PAGE_..., written by the owner */
    /* The number of threads that sleep on a word that the owner writes; written by all ranks. */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t waiters;
    /* The status with which the communicator has ended for the owner, if this is not SHUTDOWN, and
       its text. Only ranks without a parent read these fields; see watch/orphan.c. `failed` is
       written last. */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t failed;
    char reason[TUTTI__ERROR_BYTES];
} tutti__status_page_t;

typedef struct {
    uint32_t nranks;   /* number of ranks on this machine */
    uint32_t me;       /* this rank's index among these ranks */
    uint32_t *rank;    /* [nranks] global rank numbers, ascending */
    int32_t *index_of; /* [size] index, or -1 for ranks of other machines */
    tutti__arena_t *arena;
    char **base;                 /* [nranks] the arenas' addresses in this process */
    size_t *span;                /* [nranks] */
    int *pid;                    /* [nranks] */
    int *doorbell;               /* [nranks] doorbells: eventfds */
    tutti__status_page_t **page; /* [nranks] status pages */
} tutti__machine_t;

/* Collective over all ranks of boot. */
tutti_status_t tutti__machine_open(tutti__boot_t *boot, tutti__machine_t **ret_machine);
/* Local. Peers keep their mappings. machine may be NULL or half-built. */
void tutti__machine_close(tutti__machine_t *machine);

/* Wake the peers that may wait on the futex `word`, which this rank has just written. */
void tutti__machine_wake(const tutti__machine_t *machine, tutti__word_t *word);

/* Ring a peer's doorbell if its engine sleeps. The caller has executed a fence after its stores. */
void tutti__machine_ring(const tutti__machine_t *machine, uint32_t index);

/* Ring a peer's doorbell even if its engine does not sleep: the engine then polls everything once.
   Call it after the stores. */
void tutti__machine_ring_always(const tutti__machine_t *machine, uint32_t index);

/* Sleep until *word is no longer `value`, for at most timeout_us. peer: index of *word's writer. */
void tutti__machine_sleep(const tutti__machine_t *machine, uint32_t peer, tutti__word_t *word,
                          uint32_t value, uint32_t timeout_us);

/* Call after writing a word that peers may sleep on (direct calls). */
static inline void tutti__machine_written(const tutti__machine_t *machine, tutti__word_t *word)
{
    if (TUTTI__UNLIKELY(tutti__load_relaxed(&machine->page[machine->me]->waiters) != 0))
        tutti__machine_wake(machine, word);
}

#endif
