/* SPDX-License-Identifier: BSD-3-Clause */
/* The monotonic clock. */
#ifndef TUTTI__BASE_TIME_H
#define TUTTI__BASE_TIME_H

#include <stdint.h>
#include <time.h>

static inline uint64_t tutti__now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif
