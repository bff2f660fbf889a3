/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the programs *_check.c share that scripts start on several hosts. Like an application they
 * use only the library's headers, so ranks.h is not for them. A failed check prints its place, the
 * rank and its words, and ends the process.
 */
#ifndef TUTTI_TESTS_HOSTS_CHECKS_H
#define TUTTI_TESTS_HOSTS_CHECKS_H

#include <tutti/tutti.h>

#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* This process in the communicator that is tested. */
static int rank = -1, size;

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: rank %d of %d: %s: ", __FILE__, __LINE__, rank, size, #cond);  \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#define OK(call) CHECK((call) == TUTTI_OK, "%s", tutti_last_error())

/* Makes the world, and sets rank and size. */
static inline void start_world(void)
{
    OK(tutti_init(NULL));
    rank = tutti_rank(tutti_world());
    size = tutti_size(tutti_world());
}

static inline double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

#endif
