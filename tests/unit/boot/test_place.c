/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meeting at a place, over TCP and on one machine, and through a store. In these tests a rank is
 * late, missing, present twice, or does not belong to the job.
 */
#include "boot/meet.h"

#include "boot/gate_wire.h"
#include "boot/star.h"
#include "boot/waiting.h"
#include "crowd.h"

#include <errno.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 8 };

/* Shared by the ranks. The listening socket is open in all processes, but only rank 0 uses it. */
typedef struct {
    tutti__venue_t place;
    int door;
    uint32_t who;
} common_t;

static void open_place(common_t *common, int on_machine)
{
    assert_int_equal(tutti__venue_open("", on_machine, &common->place, &common->door), TUTTI_OK);
}

static tutti_status_t meet_as(const common_t *common, uint32_t rank, uint32_t size,
                              uint64_t timeout_ms, tutti__meet_t *ret_meet)
{
    if (rank == 0)
        return tutti__venue_host(&common->place, dup(common->door), size,
                                 tutti__net_deadline(timeout_ms), ret_meet);
    return tutti__venue_join(&common->place, rank, size, tutti__net_deadline(timeout_ms), ret_meet);
}

static void check_gather(const tutti__meet_t *meet, size_t bytes)
{
    unsigned char *mine = malloc(bytes), *all = malloc(bytes * meet->size);

    memset(mine, (int)meet->rank + 1, bytes);
    CHECK_EQUAL(meet->allgather(meet->ctx, mine, bytes, all, 20000), TUTTI_OK);
    for (uint32_t r = 0; r < meet->size; r++)
        for (size_t i = 0; i < bytes; i++)
            CHECK_EQUAL(all[r * bytes + i], r + 1);
    free(mine);
    free(all);
}

static void meet_and_gather(const crowd_rank_t *me)
{
    tutti__meet_t meet;
    char byte[CROWD_MAX];

    CHECK_EQUAL(meet_as(me->arg, me->rank, me->size, 20000, &meet), TUTTI_OK);
    CHECK_EQUAL(meet.rank, me->rank);
    CHECK_EQUAL(meet.size, me->size);
    check_gather(&meet, 1);
    check_gather(&meet, 200000);
    meet.settle(meet.ctx);
    CHECK(meet.allgather(meet.ctx, byte, 1, byte, 100) != TUTTI_OK);
    meet.close(meet.ctx);
}

static void run_crowds(uint32_t size, crowd_main_t *run, int on_machine, uint32_t who)
{
    for (int threads = 0; threads < 2; threads++) {
        int files = open_files();
        common_t common = { .who = who };

        open_place(&common, on_machine);
        if (threads)
            crowd_threads(size, 0, run, &common);
        else
            crowd_fork(size, 0, run, &common);
        close(common.door);
        assert_int_equal(open_files(), files);
    }
}

static void test_contents(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        for (int on_machine = 0; on_machine < 2; on_machine++)
            run_crowds(sizes[i], meet_and_gather, on_machine, 0);
}

static void come_late(const crowd_rank_t *me)
{
    const common_t *common = me->arg;

    if (me->rank == common->who)
        crowd_sleep_ms(150);
    meet_and_gather(me);
}

static void test_late(void **state)
{
    (void)state;
    for (uint32_t late = 0; late < 3; late++)
        run_crowds(3, come_late, (int)late % 2, late);
}

static void stay_away(const crowd_rank_t *me)
{
    uint64_t begin = crowd_now_ms();
    tutti__meet_t meet;

    if (me->rank == 2 || me->rank == 4)
        return;
    /* Ranks other than 0 wait a quarter longer, because rank 0 may be late. */
    CHECK_EQUAL(meet_as(me->arg, me->rank, me->size, 4000, &meet), TUTTI_ERR_TIMEOUT);
    CHECK_ERROR("ranks 2 and 4 did not connect");
    CHECK(crowd_now_ms() - begin < 50000);
}

/* Rank 0 listens at the place, but calls no accept(): only the kernel completes connections. */
static void no_rank_0(const crowd_rank_t *me)
{
    tutti__meet_t meet;

    if (me->rank == 0)
        return;
    CHECK_EQUAL(meet_as(me->arg, me->rank, me->size, 300, &meet), TUTTI_ERR_TIMEOUT);
    CHECK_ERROR("rank 0");
}

static void test_missing(void **state)
{
    tutti__meet_t meet;
    common_t common;

    (void)state;
    for (int on_machine = 0; on_machine < 2; on_machine++) {
        uint64_t begin = crowd_now_ms();

        run_crowds(5, stay_away, on_machine, 0);
        run_crowds(2, no_rank_0, on_machine, 0);
        /* If no process listens, the ranks detect this at once. */
        open_place(&common, on_machine);
        close(common.door);
        begin = crowd_now_ms();
        assert_int_not_equal(
            tutti__venue_join(&common.place, 1, 2, tutti__net_deadline(120000), &meet), TUTTI_OK);
        assert_true(crowd_now_ms() - begin < 50000);
    }
}

/* ---- ranks in different steps ---- */

static void come_twice(const crowd_rank_t *me)
{
    uint32_t rank = me->rank == 2 ? 1 : me->rank;
    tutti__meet_t meet;

    CHECK_EQUAL(meet_as(me->arg, rank, me->size, 60000, &meet), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_ERROR("two processes are rank 1");
}

/* Knock as rank 1, and receive the answer. */
static int half_come(const tutti__gate_t *gate, const tutti__venue_t *place)
{
    tutti__gate_knock_t knock = { .magic = TUTTI__GATE_MAGIC,
                                  .layout = TUTTI__BOOT_LAYOUT,
                                  .purpose = (uint32_t)gate->purpose,
                                  .rank = gate->rank,
                                  .size = gate->size };
    tutti__gate_answer_t answer;
    int fd;

    memcpy(knock.token, place->token.knock, sizeof(knock.token));
    CHECK_EQUAL(tutti__net_unix_connect(place->name, sizeof(place->name), 0,
                                        tutti__net_deadline(20000), &fd),
                TUTTI_OK);
    CHECK_EQUAL(tutti__net_send(fd, 0, &knock, sizeof(knock), UINT64_MAX), TUTTI_OK);
    CHECK_EQUAL(tutti__net_recv(fd, 0, &answer, sizeof(answer), UINT64_MAX), TUTTI_OK);
    CHECK_EQUAL(answer.status, TUTTI_OK);
    return fd;
}

/* Two processes knock as rank 1, and rank 0 answers both before either confirms. Both get the
   error. */
static void confirm_twice(const crowd_rank_t *me)
{
    const common_t *common = me->arg;
    const tutti__gate_t gate = { .purpose = TUTTI__GATE_MEET, .rank = 1, .size = 3 };
    const uint32_t confirm = TUTTI__GATE_CONFIRM;
    tutti__meet_t meet;
    int fd[2];

    if (me->rank == 0) {
        CHECK_EQUAL(meet_as(common, 0, 3, 20000, &meet), TUTTI_ERR_INVALID_ARGUMENT);
        return;
    }
    for (int i = 0; i < 2; i++)
        fd[i] = half_come(&gate, &common->place);
    for (int i = 0; i < 2; i++)
        CHECK_EQUAL(tutti__net_send(fd[i], 0, &confirm, sizeof(confirm), UINT64_MAX), TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        uint64_t deadline = tutti__net_deadline(20000);

        CHECK_EQUAL(tutti__star_join(&gate, "test", fd[i], deadline, deadline, &meet),
                    TUTTI_ERR_INVALID_ARGUMENT);
        CHECK_ERROR("two processes are rank 1");
    }
}

static void other_size(const crowd_rank_t *me)
{
    tutti__meet_t meet;

    CHECK_EQUAL(meet_as(me->arg, me->rank, me->rank == 1 ? 7 : me->size, 60000, &meet),
                TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_ERROR("rank 1 was told of 7 ranks, rank 0 of 2");
}

static void no_such_rank(const crowd_rank_t *me)
{
    tutti__meet_t meet;

    CHECK_EQUAL(meet_as(me->arg, me->rank == 1 ? 2 : 0, 2, 60000, &meet),
                TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_ERROR("no rank 2 among 2");
}

static void test_other_mind(void **state)
{
    (void)state;
    run_crowds(3, come_twice, 0, 0);
    run_crowds(2, confirm_twice, 1, 0);
    run_crowds(2, other_size, 0, 0);
    run_crowds(2, no_such_rank, 1, 0);
}

/* ---- strangers ---- */

static int connect_to(const tutti__venue_t *place)
{
    int fd = -1;

    assert_int_equal(tutti__net_tcp_connect(&place->addrs.addr[0], tutti__net_deadline(5000), &fd),
                     TUTTI_OK);
    return fd;
}

static void *be_strange(void *arg)
{
    const common_t *common = arg;
    char garbage[5000];
    int fd[6];

    memset(garbage, 'G', sizeof(garbage));
    for (int i = 0; i < 6; i++)
        fd[i] = connect_to(&common->place);
    /* Connections that are closed, send too much, send half a message, stay silent, are half
       closed, or are reset. */
    close(fd[0]);
    (void)send(fd[1], garbage, sizeof(garbage), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)send(fd[2], "GET / HTTP/1.0\r\n", 16, MSG_NOSIGNAL);
    shutdown(fd[4], SHUT_WR);
    setsockopt(fd[5], SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
    close(fd[5]);
    crowd_sleep_ms(400);
    for (int i = 1; i < 5; i++)
        close(fd[i]);
    return NULL;
}

static void *wrong_token(void *arg)
{
    common_t common = *(const common_t *)arg;
    tutti__meet_t meet;

    common.place.token.knock[3] ^= 1;
    assert_int_equal(tutti__venue_join(&common.place, 1, 3, tutti__net_deadline(200), &meet),
                     TUTTI_ERR_TIMEOUT);
    return NULL;
}

/* A server with the right knock but the wrong answer is not rank 0. */
static void wrong_answer(const crowd_rank_t *me)
{
    common_t common = *(const common_t *)me->arg;
    tutti__meet_t meet;

    if (me->rank == 1)
        common.place.token.answer[15] ^= 1;
    CHECK_EQUAL(meet_as(&common, me->rank, 2, 400, &meet), TUTTI_ERR_TIMEOUT);
    CHECK_ERROR(me->rank == 0 ? "rank 1 did not connect" : "cannot reach rank 0");
}

static void test_strangers(void **state)
{
    pthread_t thread[2];
    common_t common;

    (void)state;
    open_place(&common, 0);
    pthread_create(&thread[0], NULL, be_strange, &common);
    pthread_create(&thread[1], NULL, wrong_token, &common);
    crowd_sleep_ms(50);
    crowd_threads(3, 0, meet_and_gather, &common);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    close(common.door);
    run_crowds(2, wrong_answer, 0, 0);
}

/* ---- a watch ends waits ---- */

static tutti_status_t say_enough(void *arg)
{
    int *times = arg;

    return ++*times < 3 ? TUTTI_OK : tutti__fail(TUTTI_ERR_PEER_LOST, "enough");
}

static void test_watch(void **state)
{
    tutti__meet_t meet;
    common_t common;
    int files = open_files(), times;

    (void)state;
    for (int on_machine = 0; on_machine < 2; on_machine++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            uint64_t begin = crowd_now_ms();

            times = 0;
            open_place(&common, on_machine);
            tutti__net_watch(say_enough, &times);
            assert_int_equal(meet_as(&common, rank, 2, 30000, &meet), TUTTI_ERR_PEER_LOST);
            tutti__net_watch(NULL, NULL);
            assert_string_equal(tutti_last_error(), "enough");
            assert_true(crowd_now_ms() - begin < 10000);
            close(common.door);
        }
    }
    assert_int_equal(open_files(), files);
}

/* ---- a store ---- */

/* One key, in memory that all processes share. */
typedef struct {
    pthread_mutex_t lock;
    size_t bytes;
    char key[64], value[1024];
    int set_code, get_code; /* the functions' return values */
    int spoil;              /* get returns one byte less */
} shelf_t;

static int set(void *context, const char *key, const void *value, size_t bytes)
{
    shelf_t *shelf = context;

    if (shelf->set_code != 0)
        return shelf->set_code;
    pthread_mutex_lock(&shelf->lock);
    CHECK(bytes <= sizeof(shelf->value));
    snprintf(shelf->key, sizeof(shelf->key), "%s", key);
    memcpy(shelf->value, value, bytes);
    shelf->bytes = bytes;
    pthread_mutex_unlock(&shelf->lock);
    return 0;
}

static int get(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
               int timeout_ms)
{
    shelf_t *shelf = context;

    for (int waited = 0; shelf->get_code == 0 && waited <= timeout_ms; waited += 10) {
        size_t bytes;

        pthread_mutex_lock(&shelf->lock);
        bytes = shelf->bytes;
        if (bytes > 0) {
            CHECK(strcmp(key, shelf->key) == 0);
            CHECK(room >= bytes);
            memcpy(value, shelf->value, bytes);
            *ret_bytes = bytes - (shelf->spoil != 0);
        }
        pthread_mutex_unlock(&shelf->lock);
        if (bytes > 0)
            return 0;
        crowd_sleep_ms(10);
    }
    return shelf->get_code != 0 ? shelf->get_code : -110;
}

static tutti_store_t make_store(shelf_t *shelf)
{
    return (tutti_store_t){ sizeof(tutti_store_t), shelf, "job 7", set, get };
}

static shelf_t *new_shelf(void)
{
    shelf_t *shelf =
        mmap(NULL, sizeof(*shelf), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attr;

    assert_true(shelf != MAP_FAILED);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shelf->lock, &attr);
    return shelf;
}

static tutti_status_t by_store(const crowd_rank_t *me, uint64_t timeout_ms, const char *interface,
                               tutti__meet_t *ret_meet)
{
    tutti_store_t store = make_store(me->arg);
    tutti__conf_t conf;

    tutti__conf_defaults(&conf);
    conf.shared.timeout_ms = timeout_ms;
    snprintf(conf.interface, sizeof(conf.interface), "%s", interface);
    return tutti__meet_store(&store, &conf, me->rank, me->size, ret_meet);
}

static void meet_by_store(const crowd_rank_t *me)
{
    tutti__meet_t meet;

    CHECK_EQUAL(by_store(me, 20000, "", &meet), TUTTI_OK);
    check_gather(&meet, 100);
    meet.close(meet.ctx);
}

static void set_fails(const crowd_rank_t *me)
{
    tutti__meet_t meet;

    CHECK(by_store(me, 300, "", &meet) != TUTTI_OK);
    CHECK_ERROR("key job 7/tutti/place");
    CHECK_ERROR(me->rank == 0 ? "answered -5" : "answered -110");
}

static void get_fails(const crowd_rank_t *me)
{
    tutti__meet_t meet;

    if (me->rank == 0) {
        CHECK_EQUAL(by_store(me, 300, "", &meet), TUTTI_ERR_TIMEOUT);
        return;
    }
    CHECK_EQUAL(by_store(me, 20000, "", &meet), TUTTI_ERR_SYSTEM);
    CHECK_ERROR("get of key job 7/tutti/place answered 42");
}

static void get_spoils(const crowd_rank_t *me)
{
    tutti__meet_t meet;

    if (me->rank == 0) {
        CHECK_EQUAL(by_store(me, 300, "", &meet), TUTTI_ERR_TIMEOUT);
        return;
    }
    CHECK_EQUAL(by_store(me, 20000, "", &meet), TUTTI_ERR_ABI);
    CHECK_ERROR("not this library's");
}

/* Rank 0 cannot listen, and reports it. */
static void cannot_listen(const crowd_rank_t *me)
{
    tutti__meet_t meet;

    CHECK_EQUAL(by_store(me, 20000, "nonesuch0", &meet), TUTTI_ERR_UNSUPPORTED);
    CHECK_ERROR("rank 0: TUTTI_INTERFACE=nonesuch0");
}

static void with_shelf(uint32_t size, crowd_main_t *run, int set_code, int get_code, int spoil)
{
    for (int threads = 0; threads < 2; threads++) {
        shelf_t *shelf = new_shelf();

        shelf->set_code = set_code;
        shelf->get_code = get_code;
        shelf->spoil = spoil;
        if (threads)
            crowd_threads(size, 0, run, shelf);
        else
            crowd_fork(size, 0, run, shelf);
        munmap(shelf, sizeof(*shelf));
    }
}

static void test_store(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        with_shelf(sizes[i], meet_by_store, 0, 0, 0);
    with_shelf(3, set_fails, -5, 0, 0);
    with_shelf(2, get_fails, 0, 42, 0);
    with_shelf(2, get_spoils, 0, 0, 1);
    with_shelf(3, cannot_listen, 0, 0, 0);
}

/* The `get` of a store. It ends after three quarters of its time, and rounds a time below 0.2 s to
   0. Only the third get finds the key, with a value that the library has not set. */
static int get_early(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
                     int timeout_ms)
{
    int *gets = context;

    (void)key, (void)value, (void)room;
    *ret_bytes = 0;
    if (++*gets == 3)
        return 0;
    if (timeout_ms >= 200)
        crowd_sleep_ms((unsigned)timeout_ms * 3 / 4);
    return -110;
}

/* The wait for rank 0 consists of several gets, so that warnings are possible between them. This
   works with a store of coarse time as well. */
static void test_coarse_store(void **state)
{
    int gets = 0;
    tutti_store_t store = { sizeof(store), &gets, "job 7", set, get_early };
    tutti_status_t status;
    tutti__meet_t meet;
    tutti__conf_t conf;

    (void)state;
    tutti__conf_defaults(&conf);
    conf.shared.timeout_ms = 60000;
    tutti__waiting_every(600);
    status = tutti__meet_store(&store, &conf, 1, 2, &meet);
    tutti__waiting_every(0);
    assert_int_equal(status, TUTTI_ERR_ABI);
    assert_int_equal(gets, 3);
}

static void test_store_arguments(void **state)
{
    struct {
        tutti_store_t store;
        char more[16];
    } newer = { make_store(NULL), { 0 } };
    tutti_store_t store;
    tutti__meet_t meet;
    tutti__conf_t conf;

    (void)state;
    tutti__conf_defaults(&conf);
    conf.shared.timeout_ms = 100;
    store = make_store(NULL);
    store.size = 8;
    assert_int_equal(tutti__meet_store(&store, &conf, 0, 1, &meet), TUTTI_ERR_ABI);
    newer.store.size = sizeof(newer);
    newer.more[15] = 1;
    assert_int_equal(tutti__meet_store(&newer.store, &conf, 0, 1, &meet), TUTTI_ERR_ABI);
    store = make_store(NULL);
    store.get = NULL;
    assert_int_equal(tutti__meet_store(&store, &conf, 0, 1, &meet), TUTTI_ERR_INVALID_ARGUMENT);
    assert_string_equal(tutti_last_error(), "store->get is NULL");
    store = make_store(NULL);
    store.prefix = NULL;
    assert_int_equal(tutti__meet_store(&store, &conf, 0, 1, &meet), TUTTI_ERR_INVALID_ARGUMENT);
}

/* ---- nobody listens ---- */

/* Enter a new network namespace in which the kernel can give a socket one port only. Returns 0 if
   this is not permitted. */
static int open_network(uint16_t port)
{
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), is_open;
    FILE *range;

    if (fd < 0 || unshare(CLONE_NEWNET) != 0)
        return 0;
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    is_open = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
    close(fd);
    range = is_open ? fopen("/proc/sys/net/ipv4/ip_local_port_range", "w") : NULL;
    return range != NULL && fprintf(range, "%u %u", port, port) > 0 && fclose(range) == 0;
}

/* TCP connects a socket to itself if the kernel gives it the port to which it connects. */
static void connect_to_itself(const crowd_rank_t *me)
{
    const tutti__net_addr_t addr = { 40000, 4, { 127, 0, 0, 1 } };
    int fd = -1;

    (void)me;
    if (!open_network(addr.port)) {
        printf("no network of its own: needs root\n");
        return;
    }
    CHECK_EQUAL(tutti__net_tcp_connect(&addr, tutti__net_deadline(5000), &fd), TUTTI_ERR_TRANSPORT);
    CHECK_ERROR("nobody listens");
    CHECK_EQUAL(fd, -1);
}

static void test_nobody(void **state)
{
    (void)state;
    crowd_fork(1, 1, connect_to_itself, NULL);
}

/* ---- a host that is gone ---- */

static int recv_error; /* errno of recv; 0: the system's own recv */

ssize_t __real_recv(int fd, void *data, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t bytes, int flags);

ssize_t __wrap_recv(int fd, void *data, size_t bytes, int flags)
{
    if (recv_error == 0)
        return __real_recv(fd, data, bytes, flags);
    errno = recv_error;
    return -1;
}

/* If the kernel gives a connection up, it may report why the other host cannot be reached. */
static void test_lost_host(void **state)
{
    static const int errors[] = {
        EPIPE, ECONNRESET, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, EHOSTDOWN
    };
    char data;

    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        recv_error = errors[i];
        CHECK_EQUAL(tutti__net_recv(-1, 3, &data, 1, UINT64_MAX), TUTTI_ERR_PEER_LOST);
        CHECK_ERROR("rank 3 closed its connection");
    }
    recv_error = EINVAL;
    CHECK_EQUAL(tutti__net_recv(-1, 3, &data, 1, UINT64_MAX), TUTTI_ERR_SYSTEM);
    recv_error = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents),  cmocka_unit_test(test_late),
        cmocka_unit_test(test_missing),   cmocka_unit_test(test_other_mind),
        cmocka_unit_test(test_strangers), cmocka_unit_test(test_watch),
        cmocka_unit_test(test_store),     cmocka_unit_test(test_store_arguments),
        cmocka_unit_test(test_nobody),    cmocka_unit_test(test_coarse_store),
        cmocka_unit_test(test_lost_host),
    };

    return cmocka_run_group_tests_name("boot/place", tests, NULL, NULL);
}
