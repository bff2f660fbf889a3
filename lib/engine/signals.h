/* SPDX-License-Identifier: BSD-3-Clause */
/* State that the owner of the token publishes for threads that do not have the token. */
#ifndef TUTTI__ENGINE_SIGNALS_H
#define TUTTI__ENGINE_SIGNALS_H

#include <stdatomic.h>
#include <stdint.h>

/* The owner of the token writes, any thread reads. */
typedef struct {
    atomic_int polling;        /* only polling advances something in flight */
    atomic_int waits;          /* the last check for stalls found a waiting tensor or request */
    atomic_int given;          /* requests that were handed over to streams */
    _Atomic uint64_t moved_ns; /* while this rank has joined: when a bucket was served last */
} tutti__signals_t;

#endif
