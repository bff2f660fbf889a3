/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of the programs *_check.c, which scripts start on several hosts. Like an application these
 * programs include only the library's headers, so they cannot use ranks.h. A failed check prints
 * its place, the rank and a text, and ends the process.
 */
#ifndef TUTTI_TESTS_HOSTS_CHECKS_H
#define TUTTI_TESTS_HOSTS_CHECKS_H

#include <tutti/tutti.h>

#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* This process's rank in the tested communicator, and the communicator's size. */
static int rank = -1, size;
/* The present call, for the text of a failed check: ", call 7". */
static char now_at[40];

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: rank %d of %d%s: %s: ", __FILE__, __LINE__, rank, size,        \
                    now_at, #cond);                                                                \
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

static inline int reduces(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_ALLREDUCE || kind == TUTTI_CALL_REDUCE ||
           kind == TUTTI_CALL_REDUCE_SCATTER || kind == TUTTI_CALL_REDUCE_SCATTERV ||
           kind == TUTTI_CALL_SCAN || kind == TUTTI_CALL_EXSCAN;
}

static inline int is_rooted(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_REDUCE || kind == TUTTI_CALL_BROADCAST || kind == TUTTI_CALL_GATHER ||
           kind == TUTTI_CALL_GATHERV || kind == TUTTI_CALL_SCATTER || kind == TUTTI_CALL_SCATTERV;
}

static inline double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

#endif
