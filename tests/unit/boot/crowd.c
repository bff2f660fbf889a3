/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting and ending crowds. See crowd.h. */
#include "crowd.h"

#include "base/time.h"
#include "tag.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct {
    crowd_main_t *run;
    crowd_rank_t me;
} thread_arg_t;

static crowd_rank_t make_rank(uint32_t rank, uint32_t size, uint32_t hosts, unsigned number)
{
    crowd_rank_t me = { .rank = rank, .size = size, .hosts = hosts };

    snprintf(me.name, sizeof(me.name), "tutti-crowd-%d-%u", tag(), number);
    return me;
}

/* Each crowd meets under its own name. */
static unsigned next_number(void)
{
    static unsigned number;

    return ++number;
}

void crowd_start(uint32_t size, uint32_t hosts, crowd_main_t *run, void *arg, pid_t *ret_pids)
{
    unsigned number = next_number();

    for (uint32_t r = 0; r < size; r++) {
        crowd_rank_t me = make_rank(r, size, hosts, number);

        me.arg = arg;
        me.pids = ret_pids;
        fflush(NULL);
        ret_pids[r] = fork();
        assert_true(ret_pids[r] >= 0);
        if (ret_pids[r] == 0) {
            run(&me);
            exit(0); /* not _exit: the leak checker runs at exit */
        }
    }
}

int crowd_end(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void crowd_fork(uint32_t size, uint32_t hosts, crowd_main_t *run, void *arg)
{
    pid_t pids[CROWD_MAX];
    int failed = 0;

    crowd_start(size, hosts, run, arg, pids);
    for (uint32_t r = 0; r < size; r++)
        failed += crowd_end(pids[r]) != 0;
    assert_int_equal(failed, 0);
}

static void *thread_main(void *arg)
{
    thread_arg_t *a = arg;

    a->run(&a->me);
    return NULL;
}

void crowd_threads(uint32_t size, uint32_t hosts, crowd_main_t *run, void *arg)
{
    unsigned number = next_number();
    pthread_t threads[CROWD_MAX];
    thread_arg_t args[CROWD_MAX];

    for (uint32_t r = 0; r < size; r++) {
        args[r] = (thread_arg_t){ run, make_rank(r, size, hosts, number) };
        args[r].me.arg = arg;
        assert_int_equal(pthread_create(&threads[r], NULL, thread_main, &args[r]), 0);
    }
    for (uint32_t r = 0; r < size; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
}

void crowd_conf(const crowd_rank_t *me, tutti__conf_t *ret_conf)
{
    tutti__conf_defaults(ret_conf);
    ret_conf->shared.timeout_ms = 120000;
    if (me->hosts > 1)
        snprintf(ret_conf->host_id, sizeof(ret_conf->host_id), "host-%u", me->rank % me->hosts);
}

void crowd_meet(const crowd_rank_t *me, tutti__meet_t *ret_meet)
{
    CHECK_EQUAL(tutti__meet_local(me->name, me->rank, me->size, 120000, ret_meet), TUTTI_OK);
}

tutti__boot_t *crowd_open(const crowd_rank_t *me)
{
    tutti__boot_t *boot;
    tutti__conf_t conf;
    tutti__meet_t meet;

    crowd_conf(me, &conf);
    crowd_meet(me, &meet);
    CHECK_EQUAL(tutti__boot_open(&meet, &conf, &boot), TUTTI_OK);
    return boot;
}

uint64_t crowd_now_ms(void)
{
    return tutti__now_ns() / 1000000u;
}

void crowd_sleep_ms(unsigned ms)
{
    poll(NULL, 0, (int)ms);
}

void crowd_die(const char *file, int line, const char *fmt, ...)
{
    va_list args;

    flockfile(stderr);
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, " (last error: %s)\n", tutti_last_error());
    funlockfile(stderr);
    _exit(1);
}
