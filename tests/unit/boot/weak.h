/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replaces base/atomic.h: sources compiled with -include weak.h use the memory and the system calls
 * of explore.c.
 */
#ifndef TUTTI_TESTS_WEAK_H
#define TUTTI_TESTS_WEAK_H

#define TUTTI__BASE_ATOMIC_H

/* With fewer polls before a rank rings a doorbell, the protocol is the same but needs fewer
   runs. */
#include "base/constants.h"
#undef TUTTI__RING_LOOKS
#define TUTTI__RING_LOOKS 2

/* The words of base/forked.h belong to one process, and none of the protocols uses them. So they
   are not modelled. */
#include "base/forked.h"
#include "base/handles.h"
#include "base/own_thread.h"
#include "record/record.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

typedef _Atomic uint32_t tutti__word_t;
typedef _Atomic uint64_t tutti__word64_t;

void weak_point(void);
uint32_t weak_load(const tutti__word_t *word);
void weak_store(tutti__word_t *word, uint32_t value);
void weak_fence(void);
/* Drain the store buffer, as a locked operation or a system call does. Planted bugs do not remove
   this. */
void weak_drain(void);
long weak_syscall(long number, tutti__word_t *word, int what, uint32_t value, const void *timeout,
                  const void *unused, int unused_too);
ssize_t weak_write(int fd, const void *data, size_t bytes);
ssize_t weak_read(int fd, void *data, size_t bytes);
int weak_poll(struct pollfd *events, nfds_t n, const void *timeout);
/* Replaces tutti__thread_launch; the code under test makes one thread. */
int weak_thread(pthread_t *ret_thread, void *(*fn)(void *), void *arg);

#define tutti__load_acquire(word) weak_load(word)
#define tutti__load_relaxed(word) weak_load(word)
#define tutti__store_release(word, value) weak_store(word, value)
#define tutti__store_relaxed(word, value) weak_store(word, value)
#define tutti__fence() weak_fence()

static inline uint64_t tutti__load64_acquire(const tutti__word64_t *word)
{
    weak_point();
    return *word;
}

static inline void tutti__store64_release(tutti__word64_t *word, uint64_t value)
{
    weak_drain();
    weak_point();
    *word = value;
}

static inline int tutti__reached(uint32_t counter, uint32_t target)
{
    return (int32_t)(counter - target) >= 0;
}

static inline void tutti__pause(void)
{
}

/* Sequentially consistent: loads are plain, all other operations are locked. */
#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_load_explicit
#undef atomic_store_explicit
#define WEAK_LOCKED (weak_drain(), weak_point())
#define atomic_load(p) (weak_point(), *(p))
#define atomic_store(p, v) (WEAK_LOCKED, (void)(*(p) = (v)))
#define atomic_exchange(p, v) (WEAK_LOCKED, atomic_exchange_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_add(p, v) (WEAK_LOCKED, (void)(*(p) += (v)))
#define atomic_fetch_sub(p, v) (WEAK_LOCKED, (void)(*(p) -= (v)))
#define atomic_load_explicit(p, order) weak_load(p)
#define atomic_store_explicit(p, v, order) weak_store(p, v)

#define syscall(...) weak_syscall(__VA_ARGS__)
#define write(fd, data, bytes) weak_write(fd, data, bytes)
#define read(fd, data, bytes) weak_read(fd, data, bytes)
#define ppoll(events, n, timeout, mask) weak_poll(events, n, timeout)
#define tutti__thread_launch(fn, arg, thread) weak_thread(thread, fn, arg)

#endif
