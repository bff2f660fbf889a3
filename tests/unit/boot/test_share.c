/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Passing descriptors: each rank gets those of all ranks, in the order of ranks.
 */
#include "crowd.h"

#include "base/status.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* The byte that rank r writes into rank q's memory. */
static char mark(uint32_t r, uint32_t q)
{
    return (char)(1 + r * CROWD_MAX + q);
}

/* Each rank shares two descriptors: a memfd in which every rank leaves its mark, and an eventfd. */
static void share_once(const crowd_rank_t *me, tutti__boot_t *boot)
{
    int mine[2] = { memfd_create("test", MFD_CLOEXEC), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    int fds[2 * CROWD_MAX], pids[CROWD_MAX];
    uint64_t one = 1, count;

    CHECK(mine[0] >= 0 && mine[1] >= 0);
    CHECK_EQUAL(tutti__boot_share_fds(boot, mine, 2, fds, pids), TUTTI_OK);
    for (uint32_t q = 0; q < me->size; q++) {
        char c = mark(me->rank, q);

        CHECK_EQUAL(pwrite(fds[2 * q], &c, 1, (off_t)me->rank), 1);
        CHECK_EQUAL(write(fds[2 * q + 1], &one, sizeof(one)), sizeof(one));
        CHECK(fcntl(fds[2 * q], F_GETFD) & FD_CLOEXEC);
        CHECK(fds[2 * q] != mine[0]);
        if (me->pids == NULL)
            CHECK_EQUAL(pids[q], getpid());
        else if (q < me->rank)
            CHECK_EQUAL(pids[q], me->pids[q]);
    }
    CHECK_EQUAL(tutti__boot_agree(boot, TUTTI_OK), TUTTI_OK);
    for (uint32_t r = 0; r < me->size; r++) {
        char c = 0;

        CHECK_EQUAL(pread(mine[0], &c, 1, (off_t)r), 1);
        CHECK_EQUAL(c, mark(r, me->rank));
    }
    CHECK_EQUAL(read(mine[1], &count, sizeof(count)), sizeof(count));
    CHECK_EQUAL(count, me->size);
    for (uint32_t i = 0; i < 2 * me->size; i++)
        close(fds[i]);
    close(mine[0]);
    close(mine[1]);
}

/* Each rank shares more descriptors than fit into one message. */
static void share_many(const crowd_rank_t *me, tutti__boot_t *boot)
{
    enum {
        MANY = 130
    };
    int *mine = malloc(MANY * sizeof(int)), *fds = malloc(MANY * me->size * sizeof(int));
    int pids[CROWD_MAX];
    uint64_t count;

    for (unsigned i = 0; i < MANY; i++)
        mine[i] = eventfd(me->rank * 1000 + i + 1, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    CHECK_EQUAL(tutti__boot_share_fds(boot, mine, MANY, fds, pids), TUTTI_OK);
    for (unsigned i = 0; i < MANY * me->size; i++)
        CHECK(fds[i] >= 0);
    /* Rank 0 reads from the last descriptor of each rank a value that identifies this rank. */
    for (uint32_t r = 0; r < me->size && me->rank == 0; r++) {
        unsigned n = 0;

        while (read(fds[r * MANY + MANY - 1], &count, sizeof(count)) == sizeof(count))
            n++;
        CHECK_EQUAL(n, r * 1000 + MANY);
    }
    for (unsigned i = 0; i < MANY * me->size; i++)
        close(fds[i]);
    for (unsigned i = 0; i < MANY; i++)
        close(mine[i]);
    free(mine);
    free(fds);
}

static void share(const crowd_rank_t *me)
{
    int before = open_files(), pids[CROWD_MAX];
    tutti__boot_t *boot = crowd_open(me);

    share_once(me, boot);
    CHECK_EQUAL(tutti__boot_share_fds(boot, NULL, 0, NULL, pids), TUTTI_OK);
    share_once(me, boot);
    share_many(me, boot);
    tutti__boot_close(boot);
    if (me->pids != NULL)
        CHECK_EQUAL(open_files(), before);
}

static void test_share(void **state)
{
    static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 8 };
    int before = open_files();

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        crowd_fork(sizes[i], 1, share, NULL);
        crowd_fork(sizes[i], 3, share, NULL); /* 3 pretended hosts on one machine */
    }
    crowd_threads(3, 2, share, NULL);
    assert_int_equal(open_files(), before);
}

static void share_unequal(const crowd_rank_t *me)
{
    int before = open_files(), fds[3 * CROWD_MAX], pids[CROWD_MAX];
    int mine[3] = { 0, 1, 2 };
    tutti__boot_t *boot = crowd_open(me);
    uint32_t n = me->rank == 2 ? 3 : 2;

    CHECK_EQUAL(tutti__boot_share_fds(boot, mine, n, fds, pids), TUTTI_ERR_MISMATCH);
    CHECK_ERROR("rank 2 passes 3 descriptors, rank 0 2");
    for (uint32_t i = 0; i < n * me->size; i++)
        CHECK_EQUAL(fds[i], -1);
    tutti__boot_close(boot);
    CHECK_EQUAL(open_files(), before);
}

/* Rank 1's limit of descriptors is too low. */
static void share_too_many(const crowd_rank_t *me)
{
    int before = open_files(), mine[20], fds[20 * CROWD_MAX], pids[CROWD_MAX];
    tutti__boot_t *boot = crowd_open(me);
    struct rlimit limit = { 64, 64 };
    tutti_status_t status;

    if (me->rank == 1)
        CHECK_EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 20; i++)
        mine[i] = 2;
    status = tutti__boot_share_fds(boot, mine, 20, fds, pids);
    if (me->rank == 1) {
        CHECK_EQUAL(status, TUTTI_ERR_NO_MEMORY);
        CHECK_ERROR("too many open files");
    }
    CHECK_EQUAL(tutti__boot_agree(boot, status), TUTTI_ERR_NO_MEMORY);
    for (uint32_t i = 0; status == TUTTI_OK && i < 20 * me->size; i++)
        close(fds[i]);
    tutti__boot_close(boot);
    CHECK_EQUAL(open_files(), before);
}

/* Rank 1 dies instead of sharing. */
static void share_alone(const crowd_rank_t *me)
{
    int mine = 2, fds[CROWD_MAX], pids[CROWD_MAX];
    tutti__boot_t *boot;
    tutti__conf_t conf;
    tutti__meet_t meet;
    uint64_t begin;

    crowd_conf(me, &conf);
    conf.shared.timeout_ms = 60000;
    crowd_meet(me, &meet);
    CHECK_EQUAL(tutti__boot_open(&meet, &conf, &boot), TUTTI_OK);
    if (me->rank == 1)
        _exit(0);
    begin = crowd_now_ms();
    CHECK_EQUAL(tutti__boot_share_fds(boot, &mine, 1, fds, pids), TUTTI_ERR_PEER_LOST);
    CHECK_EQUAL(tutti__boot_agree(boot, TUTTI_ERR_PEER_LOST), TUTTI_ERR_PEER_LOST);
    CHECK_ERROR("rank 1 ended while ranks met");
    CHECK(crowd_now_ms() - begin < 50000);
    tutti__boot_close(boot);
}

static void test_failures(void **state)
{
    (void)state;
    crowd_fork(4, 1, share_unequal, NULL);
    crowd_fork(4, 1, share_too_many, NULL);
    crowd_fork(3, 1, share_alone, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_failures),
    };

    return cmocka_run_group_tests_name("boot/share", tests, NULL, NULL);
}
