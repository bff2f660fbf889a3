/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by fault tests: a page that all processes of a job map, and checks for ranks that survive
 * a fault of another rank.
 */
#ifndef TUTTI_TESTS_FAULT_H
#define TUTTI_TESTS_FAULT_H

#include "ranks.h"

#include <stdatomic.h>

/* Mapped once by main, before any fork; board_clear zeroes it before each job. */
typedef struct {
    atomic_ullong when_ns; /* time of the fault */
    atomic_int pid;        /* of the rank with the fault */
    atomic_int done;       /* ranks that have passed all checks */
    atomic_int ready;      /* ranks that have reached a place that the test defines */
} board_t;

extern board_t *board;

void board_open(void);
void board_clear(void);

/* A rank must detect the fault within this time in seconds, also on a busy machine. */
#define SOON_S 50.0

/* Seconds since the fault. */
double board_age_s(void);

/* Every kind of call returns `want` at once, with `text` in its error text. */
void check_dead(rank_t *self, tutti_status_t want, const char *text);

/* Sets ret_path to another path of the file `path`, with the largest length of a setting. */
void long_path(char ret_path[TUTTI__CONF_PATH], const char *path);

/* A number from /proc/self/status, such as "VmRSS:"; -1 if it is not there. */
long proc_status(const char *key);

/* User and system time of all threads of this process, in milliseconds. */
double cpu_ms(void);
double wall_ms(void);

#endif
