/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What fault tests share: a page that all processes of a job see, and what a rank must find after
 * another one is gone.
 */
#ifndef TUTTI_TESTS_FAULT_H
#define TUTTI_TESTS_FAULT_H

#include "ranks.h"

#include <stdatomic.h>

/* Mapped once by main, before any fork; zeroed by board_clear before each job. */
typedef struct {
    atomic_ullong when_ns; /* the fault happened */
    atomic_int pid;        /* of the rank it happened to */
    atomic_int done;       /* ranks that have seen all they should */
    atomic_int ready;      /* ranks that have come to some place */
} board_t;

extern board_t *board;

void board_open(void);
void board_clear(void);

/* Seconds from the fault until a rank must know; also those of a machine that does other things. */
#define SOON_S 10.0

/* Seconds since the fault. */
double board_age_s(void);

/* Every kind of call answers `want` at once, with `text` in its words. */
void check_dead(rank_t *self, tutti_status_t want, const char *text);

/* A number from /proc/self/status, such as "VmRSS:"; -1 if it is not there. */
long proc_status(const char *key);

/* User and system time of all threads of this process, in milliseconds. */
double cpu_ms(void);
double wall_ms(void);

#endif
