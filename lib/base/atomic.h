/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomic words that several threads or processes share, in private or in shared memory.
 *
 * All protocols over shared memory (node/shm, xport/shm) use only these functions. So the
 * interleaving test (tests/unit/node/interleave.h) can run the real code of the protocols: with
 * TUTTI_INTERLEAVE, each access first lets the test's scheduler switch to another rank.
 */
#ifndef TUTTI__BASE_ATOMIC_H
#define TUTTI__BASE_ATOMIC_H

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint32_t tutti__word_t;
typedef _Atomic uint64_t tutti__word64_t;

#ifdef TUTTI_INTERLEAVE
void tutti__interleave_point(void);
#else
static inline void tutti__interleave_point(void)
{
}
#endif

static inline uint32_t tutti__load_acquire(const tutti__word_t *word)
{
    tutti__interleave_point();
    return atomic_load_explicit(word, memory_order_acquire);
}

static inline uint32_t tutti__load_relaxed(const tutti__word_t *word)
{
    tutti__interleave_point();
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline void tutti__store_release(tutti__word_t *word, uint32_t value)
{
    tutti__interleave_point();
    atomic_store_explicit(word, value, memory_order_release);
}

static inline void tutti__store_relaxed(tutti__word_t *word, uint32_t value)
{
    tutti__interleave_point();
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static inline uint64_t tutti__load64_acquire(const tutti__word64_t *word)
{
    tutti__interleave_point();
    return atomic_load_explicit(word, memory_order_acquire);
}

static inline void tutti__store64_release(tutti__word64_t *word, uint64_t value)
{
    tutti__interleave_point();
    atomic_store_explicit(word, value, memory_order_release);
}

/*
 * A full fence: this thread's earlier stores are visible before its later loads. Fences come in
 * pairs: each of two threads stores its own word, fences, and loads the other's word. The comment
 * at each fence names its partner.
 */
static inline void tutti__fence(void)
{
#if defined(__SANITIZE_THREAD__) && defined(__x86_64__)
    /* GCC's TSan does not model fences, and warns. No access that TSan checks relies on a fence. */
    __asm__ __volatile__("mfence" ::: "memory");
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Returns 1 if `counter`, which may wrap around, has reached `target`. Counter and target must be
   less than 2^31 apart. */
static inline int tutti__reached(uint32_t counter, uint32_t target)
{
    return (int32_t)(counter - target) >= 0;
}

/* Tell the processor that this is a spin loop. */
static inline void tutti__pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#endif
}

#endif
