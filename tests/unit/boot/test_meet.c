/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meeting at a Unix socket: the result on all ranks, and the errors if a rank is missing, comes
 * twice, is in another step, or dies.
 */
#include "crowd.h"

#include "base/status.h"
#include "boot/gate.h"
#include "tag.h"

#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 8 };

/* Byte i of rank r's part in step s. */
static unsigned char byte_of(uint32_t r, size_t i, unsigned s)
{
    return (unsigned char)(r * 31 + i * 7 + s);
}

static void gather_once(const tutti__meet_t *meet, size_t bytes, unsigned step)
{
    unsigned char *mine = malloc(bytes + 1), *all = malloc(bytes * meet->size + 1);

    for (size_t i = 0; i < bytes; i++)
        mine[i] = byte_of(meet->rank, i, step);
    all[bytes * meet->size] = 77;
    CHECK_EQUAL(meet->allgather(meet->ctx, mine, bytes, all, 20000), TUTTI_OK);
    for (uint32_t r = 0; r < meet->size; r++)
        for (size_t i = 0; i < bytes; i++)
            CHECK_EQUAL(all[r * bytes + i], byte_of(r, i, step));
    CHECK_EQUAL(all[bytes * meet->size], 77);
    free(mine);
    free(all);
}

static void gather_some(const crowd_rank_t *me)
{
    static const size_t bytes[] = { 1, 0, 8, 4096, 300001, 3, 0 };
    tutti__meet_t meet;

    crowd_meet(me, &meet);
    CHECK_EQUAL(meet.rank, me->rank);
    CHECK_EQUAL(meet.size, me->size);
    for (unsigned s = 0; s < sizeof(bytes) / sizeof(*bytes); s++)
        gather_once(&meet, bytes[s], s);
    meet.close(meet.ctx);
}

static void test_self(void **state)
{
    tutti__meet_t meet;

    (void)state;
    tutti__meet_self(&meet);
    assert_int_equal(meet.size, 1);
    assert_int_equal(meet.rank, 0);
    gather_once(&meet, 100, 1);
    gather_once(&meet, 0, 2);
    meet.close(meet.ctx);
}

static void test_contents(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        crowd_fork(sizes[i], 0, gather_some, NULL);
        crowd_threads(sizes[i], 0, gather_some, NULL);
    }
}

/* The rank in me->arg connects 150 ms after the others. The test runs this function once for each
   rank. */
static void come_late(const crowd_rank_t *me)
{
    const uint32_t *late = me->arg;

    if (me->rank == *late)
        crowd_sleep_ms(150);
    gather_some(me);
}

static void test_late(void **state)
{
    (void)state;
    for (uint32_t late = 0; late < 3; late++)
        crowd_threads(3, 0, come_late, &late);
}

/* Ranks 2 and 4 never come. */
static void stay_away(const crowd_rank_t *me)
{
    uint64_t begin = crowd_now_ms();
    tutti__meet_t meet;

    if (me->rank == 2 || me->rank == 4)
        return;
    /* Ranks other than 0 wait a quarter longer, because rank 0 may be late. */
    CHECK_EQUAL(tutti__meet_local(me->name, me->rank, me->size, 4000, &meet), TUTTI_ERR_TIMEOUT);
    CHECK_ERROR("ranks 2 and 4 did not connect");
    /* Rank 0 gives up before any other rank does, even if that rank has started earlier. */
    if (me->rank == 0)
        CHECK(crowd_now_ms() - begin >= 2000);
}

/* Rank 2 never comes. Rank 1's time ends long before rank 0's, as if rank 1 had started earlier. */
static void end_first(const crowd_rank_t *me)
{
    uint64_t timeout_ms = me->rank == 0 ? 60000 : 4000;
    tutti__meet_t meet;

    if (me->rank == 2)
        return;
    CHECK_EQUAL(tutti__meet_local(me->name, me->rank, me->size, timeout_ms, &meet),
                TUTTI_ERR_TIMEOUT);
    CHECK_ERROR("rank 2 did not connect");
}

/* A rank is missing in a step of the meeting: rank 2 has connected, but does not gather. */
static void end_step_first(const crowd_rank_t *me)
{
    sem_t *ended = me->arg;
    tutti__meet_t meet;
    char all[3];

    crowd_meet(me, &meet);
    if (me->rank == 2) {
        for (int i = 0; i < 2; i++)
            CHECK_EQUAL(sem_wait(ended), 0);
    } else {
        CHECK_EQUAL(meet.allgather(meet.ctx, "x", 1, all, me->rank == 0 ? 60000 : 4000),
                    TUTTI_ERR_TIMEOUT);
        CHECK_ERROR("rank 2 did not come");
        CHECK_EQUAL(sem_post(ended), 0);
    }
    meet.close(meet.ctx);
}

static void test_unequal(void **state)
{
    sem_t ended;

    (void)state;
    assert_int_equal(sem_init(&ended, 0, 0), 0);
    crowd_threads(3, 0, end_first, NULL);
    crowd_threads(3, 0, end_step_first, &ended);
    sem_destroy(&ended);
}

static void no_rank_0(const crowd_rank_t *me)
{
    tutti__meet_t meet;

    if (me->rank == 0)
        return;
    CHECK_EQUAL(tutti__meet_local(me->name, me->rank, me->size, 200, &meet), TUTTI_ERR_TIMEOUT);
    CHECK_ERROR("rank 0 is not there");
}

/* Rank 3 comes, but never gathers. */
static void gather_without(const crowd_rank_t *me)
{
    sem_t *ended = me->arg;
    char all[4];
    tutti__meet_t meet;

    crowd_meet(me, &meet);
    if (me->rank == 3) {
        for (int i = 0; i < 3; i++)
            CHECK_EQUAL(sem_wait(ended), 0);
    } else {
        CHECK_EQUAL(meet.allgather(meet.ctx, "x", 1, all, 3000), TUTTI_ERR_TIMEOUT);
        CHECK_ERROR("rank 3 did not come");
        /* The meeting has ended. */
        CHECK_EQUAL(meet.allgather(meet.ctx, "x", 1, all, 300), TUTTI_ERR_TIMEOUT);
        CHECK_EQUAL(sem_post(ended), 0);
    }
    meet.close(meet.ctx);
}

static void test_missing(void **state)
{
    sem_t *ended =
        mmap(NULL, sizeof(*ended), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(ended != MAP_FAILED && sem_init(ended, 1, 0) == 0);
    crowd_fork(5, 0, stay_away, NULL);
    crowd_threads(5, 0, stay_away, NULL);
    crowd_threads(2, 0, no_rank_0, NULL);
    crowd_fork(4, 0, gather_without, ended);
    crowd_threads(4, 0, gather_without, ended);
    munmap(ended, sizeof(*ended));
}

/* Rank 2 claims to be rank 1. */
static void come_twice(const crowd_rank_t *me)
{
    uint32_t rank = me->rank == 2 ? 1 : me->rank;
    tutti__meet_t meet;

    CHECK(tutti__meet_local(me->name, rank, me->size, 60000, &meet) != TUTTI_OK);
    if (me->rank == 0)
        CHECK_ERROR("two processes are rank 1");
}

static void other_size(const crowd_rank_t *me)
{
    uint32_t size = me->rank == 1 ? 7 : me->size;
    tutti__meet_t meet;

    CHECK_EQUAL(tutti__meet_local(me->name, me->rank, size, 60000, &meet),
                TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_ERROR("rank 1 was told of 7 ranks, rank 0 of 2");
}

static void other_bytes(const crowd_rank_t *me)
{
    char mine[8] = "", all[8 * 3];
    tutti__meet_t meet;

    crowd_meet(me, &meet);
    CHECK_EQUAL(meet.allgather(meet.ctx, mine, me->rank == 2 ? 7 : 8, all, 60000),
                TUTTI_ERR_MISMATCH);
    CHECK_ERROR("rank 2 gave 7 bytes where rank 0 gave 8");
    meet.close(meet.ctx);
}

static void test_other_mind(void **state)
{
    tutti__meet_t meet;

    (void)state;
    crowd_threads(3, 0, come_twice, NULL);
    crowd_threads(2, 0, other_size, NULL);
    crowd_threads(3, 0, other_bytes, NULL);
    assert_int_equal(tutti__meet_local("x", 2, 2, 10, &meet), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti__meet_local("x", 0, 0, 10, &meet), TUTTI_ERR_INVALID_ARGUMENT);
}

static void die_between(const crowd_rank_t *me)
{
    const uint32_t *victim = me->arg;
    char all[4];
    tutti__meet_t meet;

    crowd_meet(me, &meet);
    if (me->rank == *victim)
        _exit(0);
    CHECK_EQUAL(meet.allgather(meet.ctx, "x", 1, all, 20000), TUTTI_ERR_PEER_LOST);
    CHECK_ERROR(*victim == 0 ? "rank 0" : "rank 2 ended");
    meet.close(meet.ctx);
}

static void test_death(void **state)
{
    uint32_t victim = 2;

    (void)state;
    crowd_fork(4, 0, die_between, &victim);
    victim = 0;
    crowd_fork(4, 0, die_between, &victim);
}

/* ---- a rank that does not read ---- */

/* The answer to three ranks is longer than a socket's buffer. */
#define MANY_BYTES (4u << 20)

/* Rank 1's message, as in star.c. */
typedef struct {
    uint32_t number, left_ms;
    uint64_t bytes;
} ask_t;

/* As rank 1: take part in the first step, and do not read rank 0's answer. Leave when rank 2 has
   received its answer. */
static void never_read(const crowd_rank_t *me)
{
    const tutti__gate_t gate = { .purpose = TUTTI__GATE_MEET, .rank = 1, .size = 3 };
    const ask_t ask = { .number = 1, .bytes = MANY_BYTES };
    uint64_t deadline = tutti__net_deadline(60000);
    char *mine = calloc(MANY_BYTES, 1);
    int fd;

    CHECK(mine != NULL);
    CHECK_EQUAL(tutti__net_unix_connect(me->name, strlen(me->name), 1, deadline, &fd), TUTTI_OK);
    CHECK_EQUAL(tutti__gate_knock(&gate, fd, 0, deadline), TUTTI_OK);
    CHECK_EQUAL(tutti__net_send(fd, 0, &ask, sizeof(ask), deadline), TUTTI_OK);
    CHECK_EQUAL(tutti__net_send(fd, 0, mine, MANY_BYTES, deadline), TUTTI_OK);
    CHECK_EQUAL(sem_wait(me->arg), 0);
    close(fd);
    free(mine);
}

static void read_beside(const crowd_rank_t *me)
{
    tutti__meet_t meet;
    char *mine, *all;

    if (me->rank == 1) {
        never_read(me);
        return;
    }
    mine = calloc(MANY_BYTES, 1);
    all = malloc((size_t)3 * MANY_BYTES);
    CHECK(mine != NULL && all != NULL);
    crowd_meet(me, &meet);
    CHECK_EQUAL(meet.allgather(meet.ctx, mine, MANY_BYTES, all, 20000), TUTTI_OK);
    if (me->rank == 2)
        CHECK_EQUAL(sem_post(me->arg), 0);
    CHECK_EQUAL(meet.allgather(meet.ctx, "x", 1, all, 20000), TUTTI_ERR_PEER_LOST);
    CHECK_ERROR("rank 1 ended");
    meet.close(meet.ctx);
    free(mine);
    free(all);
}

/* Rank 2 receives its answer although rank 1 does not. */
static void test_not_read(void **state)
{
    sem_t received;

    (void)state;
    assert_int_equal(sem_init(&received, 0, 0), 0);
    crowd_threads(3, 0, read_beside, &received);
    sem_destroy(&received);
}

static void test_name_taken(void **state)
{
    char name[200];
    tutti__meet_t first, second;

    (void)state;
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(tutti__meet_local(name, 0, 1, 10, &first), TUTTI_ERR_INVALID_ARGUMENT);

    /* A finished meeting frees its name. */
    snprintf(name, sizeof(name), "tutti-meet-%d", tag());
    assert_int_equal(tutti__meet_local(name, 0, 1, 10, &first), TUTTI_OK);
    assert_int_equal(tutti__meet_local(name, 0, 1, 10, &second), TUTTI_OK);
    first.close(first.ctx);
    second.close(second.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self),       cmocka_unit_test(test_contents),
        cmocka_unit_test(test_late),       cmocka_unit_test(test_missing),
        cmocka_unit_test(test_other_mind), cmocka_unit_test(test_death),
        cmocka_unit_test(test_name_taken), cmocka_unit_test(test_unequal),
        cmocka_unit_test(test_not_read),
    };

    return cmocka_run_group_tests_name("boot/meet", tests, NULL, NULL);
}
