/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A crowd: several ranks of one test, as forked processes or as threads of the test.
 *
 * If a rank finds an error, it ends its process at once (die), and the parent detects the failure.
 * If the rank is a thread, the whole test ends, which also counts as a failure.
 */
#ifndef CROWD_H
#define CROWD_H

#include "boot/boot.h"
#include "entries.h"

#include <sys/types.h>

#define CROWD_MAX 16

typedef struct {
    uint32_t rank, size;
    uint32_t hosts;    /* pretended hosts; rank r is on host r % hosts; 0 or 1: one host */
    char name[64];     /* of the ranks' meeting */
    const pid_t *pids; /* forked crowd: the processes of the lower ranks */
    void *arg;
} crowd_rank_t;

typedef void crowd_main_t(const crowd_rank_t *me);

/* Run `size` ranks; returns when all have ended. If a rank fails, the cmocka test fails. */
void crowd_fork(uint32_t size, uint32_t hosts, crowd_main_t *run, void *arg);
void crowd_threads(uint32_t size, uint32_t hosts, crowd_main_t *run, void *arg);

/* crowd_fork in two steps, for tests that act on the ranks while they run. ret_pids [size] */
void crowd_start(uint32_t size, uint32_t hosts, crowd_main_t *run, void *arg, pid_t *ret_pids);
/* Wait for the end of one rank. Returns its exit status, or 128 + signal. */
int crowd_end(pid_t pid);

/* Default settings for this rank: a timeout of 20 s, and its pretended host. */
void crowd_conf(const crowd_rank_t *me, tutti__conf_t *ret_conf);
/* Meet and open; dies if that fails. */
tutti__boot_t *crowd_open(const crowd_rank_t *me);
void crowd_meet(const crowd_rank_t *me, tutti__meet_t *ret_meet);

uint64_t crowd_now_ms(void);
void crowd_sleep_ms(unsigned ms);

__attribute__((format(printf, 3, 4), noreturn)) void crowd_die(const char *file, int line,
                                                               const char *fmt, ...);

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x))                                                                                  \
            crowd_die(__FILE__, __LINE__, "not true: %s", #x);                                     \
    } while (0)

#define CHECK_EQUAL(got, want)                                                                     \
    do {                                                                                           \
        long long got_ = (long long)(got), want_ = (long long)(want);                              \
        if (got_ != want_)                                                                         \
            crowd_die(__FILE__, __LINE__, "%s is %lld, not %lld", #got, got_, want_);              \
    } while (0)

/* The last error must contain `text`. */
#define CHECK_ERROR(text)                                                                          \
    do {                                                                                           \
        if (strstr(tutti_last_error(), text) == NULL)                                              \
            crowd_die(__FILE__, __LINE__, "no \"%s\" in the last error", text);                    \
    } while (0)

#endif
