/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unique ids: their bytes, and meetings by an id. Any rank or another process makes the id. The id
 * is used once, twice, or never.
 */
#include "boot/meet.h"

#include "base/compiler.h"
#include "crowd.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 8 };

/* ---- bytes ---- */

static tutti__id_t some_id(uint32_t n4, uint32_t n6)
{
    tutti__id_t id = { .addrs.count = n4 + n6 };

    for (size_t i = 0; i < sizeof(id.token); i++)
        ((unsigned char *)&id.token)[i] = (unsigned char)(i * 7 + 1);
    /* In this test IPv6 comes first. */
    for (uint32_t i = 0; i < n4 + n6; i++) {
        id.addrs.addr[i].family = i < n6 ? 6 : 4;
        id.addrs.addr[i].port = 40000;
        for (int k = 0; k < (i < n6 ? 16 : 4); k++)
            id.addrs.addr[i].ip[k] = (unsigned char)(i * 16 + (uint32_t)k + 1);
    }
    return id;
}

static void test_bytes(void **state)
{
    tutti_unique_id_t bytes;
    tutti__id_t id, got;

    (void)state;
    for (uint32_t n4 = 0; n4 <= TUTTI__NET_ADDRS; n4++) {
        for (uint32_t n6 = n4 == 0; n4 + n6 <= TUTTI__NET_ADDRS; n6++) {
            uint32_t fit6 = TUTTI__MIN(n6, (124 - 42 - 4 * n4) / 16);

            id = some_id(n4, n6);
            tutti__id_encode(&id, &bytes);
            assert_int_equal(tutti__id_decode(&bytes, &got), TUTTI_OK);
            assert_memory_equal(&got.token, &id.token, sizeof(id.token));
            assert_int_equal(got.addrs.count, n4 + fit6);
            for (uint32_t i = 0; i < got.addrs.count; i++)
                assert_memory_equal(&got.addrs.addr[i], &id.addrs.addr[i < n4 ? n6 + i : i - n4],
                                    sizeof(tutti__net_addr_t));
        }
    }
}

/* A change of any byte is detected. */
static void test_damage(void **state)
{
    tutti__id_t id = some_id(2, 1), got;
    tutti_unique_id_t bytes, damaged;

    (void)state;
    tutti__id_encode(&id, &bytes);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        for (int bit = 0; bit < 8; bit++) {
            tutti_status_t status;

            damaged = bytes;
            damaged.bytes[i] ^= (char)(1 << bit);
            status = tutti__id_decode(&damaged, &got);
            assert_true(status == TUTTI_ERR_INVALID_ARGUMENT ||
                        (status == TUTTI_ERR_ABI && (i == 4 || i == 5)));
        }
    }
    memset(&damaged, 0, sizeof(damaged));
    assert_int_equal(tutti__id_decode(&damaged, &got), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "is no unique id"));
}

/* ---- meeting ---- */

/* In memory that all ranks share. */
typedef struct {
    tutti_unique_id_t id;
    int there;
    uint32_t maker; /* the rank that makes the id; no rank: this process makes the id */
} common_t;

static common_t *new_common(uint32_t maker)
{
    common_t *common =
        mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(common != MAP_FAILED);
    common->maker = maker;
    return common;
}

static tutti__conf_t make_conf(uint64_t timeout_ms)
{
    tutti__conf_t conf;

    tutti__conf_defaults(&conf);
    conf.shared.timeout_ms = timeout_ms;
    return conf;
}

static void make_id(common_t *common, uint64_t timeout_ms)
{
    tutti__conf_t conf = make_conf(timeout_ms);

    CHECK_EQUAL(tutti__id_create(&conf, &common->id), TUTTI_OK);
    __atomic_store_n(&common->there, 1, __ATOMIC_RELEASE);
}

static tutti_status_t meet_by_id(common_t *common, uint32_t rank, uint32_t size,
                                 uint64_t timeout_ms, tutti__meet_t *ret_meet)
{
    tutti__conf_t conf = make_conf(timeout_ms);

    while (!__atomic_load_n(&common->there, __ATOMIC_ACQUIRE))
        crowd_sleep_ms(1);
    return tutti__meet_id(&common->id, &conf, rank, size, ret_meet);
}

static void meet_and_gather(const crowd_rank_t *me)
{
    common_t *common = me->arg;
    uint32_t all[CROWD_MAX];
    tutti__meet_t meet;

    if (me->rank == common->maker)
        make_id(common, 120000);
    CHECK_EQUAL(meet_by_id(common, me->rank, me->size, 120000, &meet), TUTTI_OK);
    CHECK_EQUAL(meet.rank, me->rank);
    CHECK_EQUAL(meet.size, me->size);
    CHECK_EQUAL(meet.allgather(meet.ctx, &me->rank, sizeof(me->rank), all, 120000), TUTTI_OK);
    for (uint32_t r = 0; r < me->size; r++)
        CHECK_EQUAL(all[r], r);
    meet.close(meet.ctx);
}

/* Sanitizers stop children forked beside a thread that is allocating: the lock stays taken. */
#ifdef TUTTI__SANITIZED
#define CAN_FORK_BESIDE_THREADS 0
#else
#define CAN_FORK_BESIDE_THREADS 1
#endif

/* Run the ranks first as processes, if possible, then as threads. If no rank makes the id, this
   process makes it. At the end this process ends its ids. */
static void run_crowds(uint32_t size, crowd_main_t *run, uint32_t maker, uint64_t timeout_ms)
{
    for (int threads = maker >= size && !CAN_FORK_BESIDE_THREADS; threads < 2; threads++) {
        common_t *common = new_common(maker);
        int files = open_files();

        if (maker >= size)
            make_id(common, timeout_ms);
        if (threads)
            crowd_threads(size, 0, run, common);
        else
            crowd_fork(size, 0, run, common);
        tutti__id_end_all();
        assert_int_equal(open_files(), files);
        munmap(common, sizeof(*common));
    }
}

static void test_meet(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        for (uint32_t maker = 0; maker <= sizes[i]; maker += TUTTI__MAX(sizes[i] / 2, 1u))
            run_crowds(sizes[i], meet_and_gather, maker, 120000);
}

static void come_late(const crowd_rank_t *me)
{
    crowd_sleep_ms(100 * me->rank);
    meet_and_gather(me);
}

static void stay_away(const crowd_rank_t *me)
{
    uint64_t begin = crowd_now_ms();
    tutti__meet_t meet;

    if (me->rank == 1)
        return;
    CHECK_EQUAL(meet_by_id(me->arg, me->rank, me->size, 5000, &meet), TUTTI_ERR_TIMEOUT);
    CHECK_ERROR("rank 1 did not come within 2.0 s");
    CHECK(crowd_now_ms() - begin < 50000);
    /* A rank that comes after the maker has ended the id. */
    CHECK_EQUAL(meet_by_id(me->arg, 1, me->size, 5000, &meet), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_ERROR("used already, and that failed");
}

static void come_twice(const crowd_rank_t *me)
{
    tutti__meet_t meet;

    CHECK_EQUAL(meet_by_id(me->arg, me->rank == 2 ? 1 : me->rank, 4, 60000, &meet),
                TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_ERROR("two processes are rank 1");
}

static void other_size(const crowd_rank_t *me)
{
    tutti__meet_t meet;

    CHECK_EQUAL(meet_by_id(me->arg, me->rank, 2 + me->rank, 60000, &meet),
                TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_ERROR("was told of");
}

static void use_twice(const crowd_rank_t *me)
{
    uint64_t begin;
    tutti__meet_t meet;

    meet_and_gather(me);
    begin = crowd_now_ms();
    CHECK_EQUAL(meet_by_id(me->arg, me->rank, me->size, 60000, &meet), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_ERROR("used already: it serves one tutti_init");
    CHECK(crowd_now_ms() - begin < 50000);
}

/* Rank 0 cannot listen, and reports it. */
static void cannot_listen(const crowd_rank_t *me)
{
    const common_t *common = me->arg;
    tutti__conf_t conf = make_conf(5000);
    tutti__meet_t meet;

    if (me->rank == 0)
        strcpy(conf.interface, "nonesuch0");
    CHECK_EQUAL(tutti__meet_id(&common->id, &conf, me->rank, me->size, &meet),
                TUTTI_ERR_UNSUPPORTED);
    CHECK_ERROR("rank 0: TUTTI_INTERFACE=nonesuch0");
}

static void test_mistakes(void **state)
{
    (void)state;
    run_crowds(3, come_late, 3, 120000);
    run_crowds(3, stay_away, 3, 2000);
    run_crowds(3, come_twice, 3, 5000);
    run_crowds(2, other_size, 2, 5000);
    run_crowds(3, use_twice, 3, 120000);
    run_crowds(3, cannot_listen, 3, 5000);
}

/* The maker's deadline is long after rank 0's deadline. Still, the maker gives up early enough to
   report that rank 1 is missing. */
static void test_unequal(void **state)
{
    common_t *common = new_common(9);
    tutti__meet_t meet;

    (void)state;
    make_id(common, 60000);
    assert_int_equal(meet_by_id(common, 0, 2, 4000, &meet), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(tutti_last_error(), "rank 1 did not come within"));
    tutti__id_end_all();
    munmap(common, sizeof(*common));
}

/* ---- ends ---- */

static void *end_soon(void *arg)
{
    crowd_sleep_ms(200);
    tutti__id_end_all();
    return arg;
}

/* The maker ends before any rank has come, while some ranks wait, or after the meeting. */
static void test_ends(void **state)
{
    common_t *common = new_common(9);
    int files = open_files();
    uint64_t begin = crowd_now_ms();
    tutti__meet_t meet;
    pthread_t thread;

    (void)state;
    for (int i = 0; i < 20; i++)
        make_id(common, 60000);
    tutti__id_end_all();
    tutti__id_end_all();
    assert_int_equal(open_files(), files);
    assert_int_equal(meet_by_id(common, 0, 2, 60000, &meet), TUTTI_ERR_TRANSPORT);
    assert_non_null(strstr(tutti_last_error(), "has ended"));

    make_id(common, 60000);
    pthread_create(&thread, NULL, end_soon, NULL);
    assert_int_equal(meet_by_id(common, 1, 2, 60000, &meet), TUTTI_ERR_SHUTDOWN);
    pthread_join(thread, NULL);
    assert_true(crowd_now_ms() - begin < 50000);
    assert_int_equal(open_files(), files);
    munmap(common, sizeof(*common));
}

typedef struct {
    common_t common;
    int files; /* open before there was an id */
} family_t;

/* A child has none of the id's resources, and can make its own id. */
static void in_child(const crowd_rank_t *me)
{
    family_t *family = me->arg;

    CHECK_EQUAL(open_files(), family->files);
    tutti__id_end_all();
    make_id(&family->common, 1000);
    tutti__id_end_all();
    CHECK_EQUAL(open_files(), family->files);
}

static void test_fork(void **state)
{
    family_t family;

    (void)state;
    if (!CAN_FORK_BESIDE_THREADS)
        skip();
    memset(&family, 0, sizeof(family));
    family.files = open_files();
    make_id(&family.common, 120000);
    crowd_fork(1, 0, in_child, &family);
    /* The parent's id is still served. */
    family.common.maker = 9;
    crowd_fork(2, 0, meet_and_gather, &family.common);
    tutti__id_end_all();
}

static void has_only(const crowd_rank_t *me)
{
    CHECK_EQUAL(open_files(), *(int *)me->arg);
}

/* A child does not hold the connections between ranks and its parent, the id's maker. */
static void test_fork_while_meeting(void **state)
{
    common_t *common = new_common(9);
    int files = open_files(), with_id;
    uint64_t begin = crowd_now_ms();
    tutti__meet_t meet;
    int status;
    pid_t rank;

    (void)state;
    if (!CAN_FORK_BESIDE_THREADS)
        skip();
    make_id(common, 120000);
    with_id = open_files();
    rank = fork();
    if (rank == 0)
        _exit((int)meet_by_id(common, 1, 2, 60000, &meet));
    while (open_files() == with_id && crowd_now_ms() - begin < 120000)
        crowd_sleep_ms(1);
    assert_true(open_files() > with_id);
    crowd_fork(1, 0, has_only, &files);
    tutti__id_end_all();
    assert_int_equal(waitpid(rank, &status, 0), rank);
    /* TRANSPORT: the maker ended before it had read the rank's knock. */
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == TUTTI_ERR_SHUTDOWN ||
                                      WEXITSTATUS(status) == TUTTI_ERR_TRANSPORT));
    munmap(common, sizeof(*common));
}

/* ---- strangers ---- */

static void *be_strange(void *arg)
{
    const tutti__id_t *id = arg;
    char garbage[3000];
    int fd[5];

    memset(garbage, 'G', sizeof(garbage));
    for (int i = 0; i < 5; i++)
        assert_int_equal(
            tutti__net_tcp_connect(&id->addrs.addr[0], tutti__net_deadline(5000), &fd[i]),
            TUTTI_OK);
    close(fd[0]);
    (void)send(fd[1], garbage, sizeof(garbage), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)send(fd[2], garbage, 7, MSG_NOSIGNAL);
    shutdown(fd[3], SHUT_RDWR);
    crowd_sleep_ms(300);
    for (int i = 1; i < 5; i++)
        close(fd[i]);
    return NULL;
}

static void test_strangers(void **state)
{
    common_t *common = new_common(9);
    tutti_unique_id_t bytes;
    tutti__meet_t meet;
    pthread_t thread;
    tutti__id_t id, wrong;

    (void)state;
    make_id(common, 120000);
    assert_int_equal(tutti__id_decode(&common->id, &id), TUTTI_OK);
    pthread_create(&thread, NULL, be_strange, &id);
    crowd_sleep_ms(50);
    /* An id with the right place and a wrong token. */
    wrong = id;
    wrong.token.knock[0] ^= 1;
    bytes = common->id;
    tutti__id_encode(&wrong, &common->id);
    assert_int_equal(meet_by_id(common, 0, 3, 200, &meet), TUTTI_ERR_TIMEOUT);
    common->id = bytes;
    crowd_threads(3, 0, meet_and_gather, common);
    pthread_join(thread, NULL);
    tutti__id_end_all();
    munmap(common, sizeof(*common));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),     cmocka_unit_test(test_damage),
        cmocka_unit_test(test_meet),      cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_unequal),   cmocka_unit_test(test_ends),
        cmocka_unit_test(test_fork),      cmocka_unit_test(test_fork_while_meeting),
        cmocka_unit_test(test_strangers),
    };

    return cmocka_run_group_tests_name("boot/id", tests, NULL, NULL);
}
