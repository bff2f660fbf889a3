/* SPDX-License-Identifier: BSD-3-Clause */
/* State that the owner of the token publishes for threads that do not have the token. */
#ifndef TUTTI__ENGINE_SIGNALS_H
#define TUTTI__ENGINE_SIGNALS_H

#include <stdatomic.h>
#include <stdint.h>

/* Written by the owner of the token, read by any thread. */
typedef struct {
    atomic_int polling;        /* some work in flight advances only when polled */
    atomic_int waits;          /* the last check for stalls found a waiting tensor or request */
    atomic_int plans;          /* a plan runs, so requests may wait in the queue: see planned.c */
    atomic_int given;          /* requests that were handed over to streams */
    _Atomic uint64_t moved_ns; /* after tutti_join: when a bucket was last served */
} tutti__signals_t;

#endif
