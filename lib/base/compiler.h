/* SPDX-License-Identifier: BSD-3-Clause */
/* The only file with GNU extensions of C11: attributes, and properties of the compiler. */
#ifndef TUTTI__BASE_COMPILER_H
#define TUTTI__BASE_COMPILER_H

#include <stddef.h>

#define TUTTI__PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define TUTTI__LIKELY(x) __builtin_expect(!!(x), 1)
#define TUTTI__UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TUTTI__ALIGNED(bytes) __attribute__((aligned(bytes)))
#define TUTTI__ALWAYS_INLINE static inline __attribute__((always_inline))

/* For a typedef: its objects may have any address, and may lie in memory of any declared type. */
#define TUTTI__UNALIGNED __attribute__((aligned(1), may_alias))

/* Placed before a loop. Promises the compiler that no iteration writes data that another iteration
   reads, so the compiler need not check the pointers for overlap. */
#if defined(__clang__)
#define TUTTI__INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
/* Sanitizers prevent vectorisation, and clang's warning about each such loop is useless. */
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define TUTTI__INDEPENDENT _Pragma("GCC ivdep")
#endif

/* TUTTI__SANITIZED: built with AddressSanitizer (TUTTI__ASAN) or ThreadSanitizer (TUTTI__TSAN). */
#if defined(__has_feature)
#define TUTTI__HAS_FEATURE(x) __has_feature(x)
#else
#define TUTTI__HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || TUTTI__HAS_FEATURE(thread_sanitizer)
#define TUTTI__TSAN 1
#define TUTTI__SANITIZED 1
#elif defined(__SANITIZE_ADDRESS__) || TUTTI__HAS_FEATURE(address_sanitizer)
#define TUTTI__ASAN 1
#define TUTTI__SANITIZED 1
#endif

/* The distance that prevents false sharing is two cache lines, because x86's adjacent-line
   prefetcher fetches lines in pairs. */
#define TUTTI__LINE_BYTES 64
#define TUTTI__FALSE_SHARING_BYTES 128

/*
 * Prefetch the cache line of `at` for writing. Written in assembler: if the target processor need
 * not have PREFETCHW, compilers turn __builtin_prefetch(at, 1) into a prefetch for reading.
 */
#if defined(__x86_64__)
#define TUTTI__FETCH_TO_WRITE(at) __asm__ volatile("prefetchw %0" : : "m"(*(const char *)(at)))
#else
#define TUTTI__FETCH_TO_WRITE(at) __builtin_prefetch(at, 1)
#endif

#define TUTTI__MIN(a, b) ((a) < (b) ? (a) : (b))
#define TUTTI__MAX(a, b) ((a) > (b) ? (a) : (b))

/* The offset of a field's end. This was the structure's size in the version in which this field was
   the last one. */
#define TUTTI__END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

/* Round x up to a multiple of m; m is a power of two. */
#define TUTTI__ROUND_UP(x, m) (((x) + ((m)-1)) & ~((m)-1))

#endif
