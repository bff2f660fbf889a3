/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gate against strangers: no stranger is admitted, ends the gate, or keeps out the ranks of the
 * job.
 */
#include "boot/gate.h"

#include "boot/gate_wire.h"
#include "boot/net.h"
#include "boot/pass.h"
#include "crowd.h"
#include "tag.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE 4u

typedef struct {
    char name[64];
    tutti__net_addrs_t addrs; /* of a door on TCP */
    int over_tcp;
    int door;
    int fds[SIZE];
    int guest[SIZE]; /* the other ends of admitted connections; -1: none */
    tutti__gate_t gate;
    uint64_t timeout_ms;
    tutti_status_t status;
    char text[256];
    pthread_t thread;
} host_t;

static const tutti__gate_t right = { .purpose = TUTTI__GATE_SIDE,
                                     .number = 5,
                                     .size = SIZE,
                                     .token = { "0123456789abcde", "ABCDEFGHIJKLMNO" } };

static void *serve(void *arg)
{
    host_t *host = arg;

    host->status = tutti__gate_admit(&host->gate, host->door, host->fds,
                                     tutti__net_deadline(host->timeout_ms));
    snprintf(host->text, sizeof(host->text), "%s",
             host->status == TUTTI_OK ? "" : tutti_last_error());
    return NULL;
}

/* Start rank 0's gate. It waits for ranks 1 and 3, and does not wait for rank 2. */
static void open_door(host_t *host, uint64_t timeout_ms, int strict)
{
    static unsigned number;

    memset(host, 0, sizeof(*host));
    snprintf(host->name, sizeof(host->name), "tutti-gate-%d-%u", tag(), ++number);
    host->gate = right;
    host->gate.strict = strict;
    host->timeout_ms = timeout_ms;
    host->fds[0] = host->fds[2] = TUTTI__GATE_NOBODY;
    host->fds[1] = host->fds[3] = TUTTI__GATE_AWAITED;
    memset(host->guest, 0xff, sizeof(host->guest));
    assert_int_equal(tutti__net_unix_listen(host->name, strlen(host->name), &host->door), TUTTI_OK);
}

static void start_host(host_t *host)
{
    assert_int_equal(pthread_create(&host->thread, NULL, serve, host), 0);
}

static void open_host(host_t *host, uint64_t timeout_ms, int strict)
{
    open_door(host, timeout_ms, strict);
    start_host(host);
}

static tutti_status_t close_host(host_t *host)
{
    if (host->thread != 0)
        assert_int_equal(pthread_join(host->thread, NULL), 0);
    for (uint32_t r = 0; r < SIZE; r++) {
        if (host->fds[r] >= 0)
            close(host->fds[r]);
        if (host->guest[r] >= 0)
            close(host->guest[r]);
    }
    close(host->door);
    return host->status;
}

static int reach(const host_t *host)
{
    uint64_t deadline = tutti__net_deadline(5000);
    tutti_status_t status;
    int fd = -1;

    status = host->over_tcp
                 ? tutti__net_tcp_connect(&host->addrs.addr[0], deadline, &fd)
                 : tutti__net_unix_connect(host->name, strlen(host->name), 0, deadline, &fd);
    assert_int_equal(status, TUTTI_OK);
    if (host->over_tcp)
        assert_int_equal(tutti__net_tcp_options(fd), TUTTI_OK);
    return fd;
}

static tutti_status_t knock(const host_t *host, const tutti__gate_t *gate, uint32_t rank,
                            int *ret_fd)
{
    tutti__gate_t mine = *gate;

    mine.rank = rank;
    *ret_fd = reach(host);
    return tutti__gate_knock(&mine, *ret_fd, 0, tutti__net_deadline(5000));
}

static void let_in(host_t *host, uint32_t rank)
{
    int fd;

    assert_int_equal(knock(host, &right, rank, &fd), TUTTI_OK);
    /* Data sent on this connection must reach the host: see check_admitted. */
    assert_int_equal(send(fd, &rank, sizeof(rank), MSG_NOSIGNAL), sizeof(rank));
    host->guest[rank] = fd;
}

static void refuse(const host_t *host, const tutti__gate_t *gate, uint32_t rank, const char *text)
{
    int fd;

    assert_int_not_equal(knock(host, gate, rank, &fd), TUTTI_OK);
    if (strstr(tutti_last_error(), text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), text);
    close(fd);
}

static void check_admitted(host_t *host)
{
    assert_int_equal(pthread_join(host->thread, NULL), 0);
    host->thread = 0;
    assert_int_equal(host->status, TUTTI_OK);
    for (uint32_t r = 1; r < SIZE; r += 2) {
        uint32_t rank = 0;

        assert_int_equal(recv(host->fds[r], &rank, sizeof(rank), 0), sizeof(rank));
        assert_int_equal(rank, r);
    }
    close_host(host);
}

static void test_strangers(void **state)
{
    int silent[80], fd;
    tutti__gate_t wrong;
    host_t host;

    (void)state;
    open_host(&host, 10000, 0);
    wrong = right;
    wrong.token.knock[15] ^= 1;
    refuse(&host, &wrong, 1, "closed");
    wrong = right;
    wrong.purpose = TUTTI__GATE_SHARE;
    refuse(&host, &wrong, 1, "closed");
    wrong = right;
    wrong.number = 4;
    refuse(&host, &wrong, 1, "two processes are rank 1");
    wrong = right;
    wrong.size = 5;
    refuse(&host, &wrong, 1, "rank 1 was told of 5 ranks, rank 0 of 4");
    refuse(&host, &right, 2, "two processes are rank 2");
    refuse(&host, &right, 4, "there is no rank 4");

    /* The gate also sends a token to the guest. So a guest detects a server that is not the
       gate. */
    wrong = right;
    wrong.token.answer[0] ^= 1;
    refuse(&host, &wrong, 3, "not of this job");

    fd = reach(&host);
    close(fd);
    fd = reach(&host);
    assert_int_equal(send(fd, "GET / HTTP/1.1\r\nHost: somebody.example\r\nUser-Agent: me\r\n", 57,
                          MSG_NOSIGNAL),
                     57);
    let_in(&host, 3);
    close(fd);

    /* There are more silent strangers than the gate has places for guests. */
    for (size_t i = 0; i < 80; i++)
        silent[i] = reach(&host);
    let_in(&host, 1);
    check_admitted(&host);
    for (size_t i = 0; i < 80; i++)
        close(silent[i]);
}

/* A guest gives up before it receives the answer, and connects again. */
static void test_impatient(void **state)
{
    tutti__gate_t gate = right;
    host_t host;
    int fd;

    (void)state;
    open_door(&host, 10000, 0);
    gate.rank = 1;
    fd = reach(&host);
    assert_int_equal(tutti__gate_knock(&gate, fd, 0, 0), TUTTI_ERR_TIMEOUT);
    start_host(&host);
    crowd_sleep_ms(20);
    close(fd);
    let_in(&host, 3);
    let_in(&host, 1);
    check_admitted(&host);
}

/* Knock as rank 3, and receive the answer. The caller may then confirm. */
static int half_come(const host_t *host)
{
    tutti__gate_knock_t knock = { .magic = TUTTI__GATE_MAGIC,
                                  .layout = TUTTI__BOOT_LAYOUT,
                                  .purpose = right.purpose,
                                  .number = right.number,
                                  .rank = 3,
                                  .size = SIZE };
    tutti__gate_answer_t answer;
    int fd = reach(host);

    memcpy(knock.token, right.token.knock, sizeof(knock.token));
    assert_int_equal(tutti__net_send(fd, 0, &knock, sizeof(knock), UINT64_MAX), TUTTI_OK);
    assert_int_equal(tutti__net_recv(fd, 0, &answer, sizeof(answer), UINT64_MAX), TUTTI_OK);
    assert_int_equal(answer.status, TUTTI_OK);
    return fd;
}

/* However many strangers come, a guest that has shown the token keeps its place. */
static void test_flood(void **state)
{
    const uint32_t confirm = TUTTI__GATE_CONFIRM, rank = 3;
    int silent[200];
    host_t host;

    (void)state;
    open_host(&host, 60000, 0);
    host.guest[3] = half_come(&host);
    for (size_t i = 0; i < 200; i++)
        silent[i] = reach(&host);
    let_in(&host, 1);
    assert_int_equal(send(host.guest[3], &confirm, sizeof(confirm), MSG_NOSIGNAL), 4);
    assert_int_equal(send(host.guest[3], &rank, sizeof(rank), MSG_NOSIGNAL), 4);
    check_admitted(&host);
    for (size_t i = 0; i < 200; i++)
        close(silent[i]);
}

/* A rank ends while another one is awaited, before or after its admission. The gate
   stops waiting. */
static void test_death(void **state)
{
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        for (int half = 0; half < 2; half++) {
            uint64_t begin = crowd_now_ms();
            host_t host;

            open_host(&host, 60000, strict);
            if (half)
                host.guest[3] = half_come(&host);
            else
                let_in(&host, 3);
            close(host.guest[3]);
            host.guest[3] = -1;
            assert_int_equal(close_host(&host), TUTTI_ERR_PEER_LOST);
            assert_string_equal(host.text, "rank 3 ended while ranks met");
            assert_true(crowd_now_ms() - begin < 50000);
        }
    }
}

/* ---- the watch ---- */

static tutti_status_t say_lost(void *arg)
{
    (void)arg;
    return tutti__fail(TUTTI_ERR_PEER_LOST, "rank 1 was lost");
}

static void *serve_watched(void *arg)
{
    tutti__net_watch(say_lost, NULL);
    serve(arg);
    tutti__net_watch(NULL, NULL);
    return NULL;
}

/* Strangers connect so often that each wait for the next stranger is short. The host must still
   call its watch. */
static void test_watch(void **state)
{
    uint64_t begin = crowd_now_ms();
    host_t host;
    int stranger;

    (void)state;
    open_door(&host, 60000, 0);
    host.status = TUTTI_ERR_INTERNAL;
    assert_int_equal(pthread_create(&host.thread, NULL, serve_watched, &host), 0);
    while (pthread_tryjoin_np(host.thread, NULL) != 0) {
        assert_int_equal(tutti__net_unix_connect(host.name, strlen(host.name), 0,
                                                 tutti__net_deadline(5000), &stranger),
                         TUTTI_OK);
        close(stranger);
        crowd_sleep_ms(1);
    }
    host.thread = 0;
    assert_int_equal(close_host(&host), TUTTI_ERR_PEER_LOST);
    assert_string_equal(host.text, "rank 1 was lost");
    assert_true(crowd_now_ms() - begin < 30000);
}

/* ---- a host that vanishes ---- */

/* Does the gate's end of the connection send keepalive probes? */
static int is_probed(const host_t *host, int guest)
{
    struct sockaddr_in6 mine, peer; /* an IPv4 address has its port at the same place */
    socklen_t bytes = sizeof(mine);
    int probes;

    memset(&mine, 0, sizeof(mine));
    assert_int_equal(getsockname(guest, (struct sockaddr *)&mine, &bytes), 0);
    for (int fd = 0; fd < 1024; fd++) {
        bytes = sizeof(peer);
        memset(&peer, 0, sizeof(peer));
        if (fd == guest || fd == host->door ||
            getpeername(fd, (struct sockaddr *)&peer, &bytes) != 0 || peer.sin6_family == AF_UNIX ||
            peer.sin6_port != mine.sin6_port)
            continue;
        bytes = sizeof(probes);
        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &probes, &bytes), 0);
        return probes;
    }
    return 0;
}

/* While the gate awaits another rank, the kernel already probes the host of a guest. */
static void test_probes(void **state)
{
    const uint32_t confirm = TUTTI__GATE_CONFIRM, rank = 3;
    uint64_t begin = crowd_now_ms();
    host_t host;

    (void)state;
    open_door(&host, 60000, 0);
    close(host.door);
    host.over_tcp = 1;
    assert_int_equal(tutti__net_addrs("", 1, &host.addrs), TUTTI_OK);
    assert_int_equal(tutti__net_tcp_listen(&host.addrs, &host.door), TUTTI_OK);
    start_host(&host);
    host.guest[3] = half_come(&host);
    while (!is_probed(&host, host.guest[3]) && crowd_now_ms() - begin < 50000)
        crowd_sleep_ms(1);
    assert_true(is_probed(&host, host.guest[3]));
    assert_int_equal(send(host.guest[3], &confirm, sizeof(confirm), MSG_NOSIGNAL), 4);
    assert_int_equal(send(host.guest[3], &rank, sizeof(rank), MSG_NOSIGNAL), 4);
    let_in(&host, 1);
    check_admitted(&host);
}

/* ---- greetings ---- */

typedef struct {
    tutti__net_addrs_t addrs;
    tutti__pass_t pass;
    int door;
} greeter_t;

/* Greet one guest, receive its hello, and close the connection without an answer. */
static void *greet(void *arg)
{
    uint64_t deadline = tutti__net_deadline(60000);
    const greeter_t *greeter = arg;
    tutti__gate_greeting_t greeting;
    tutti__gate_hello_t hello;
    int fd;

    CHECK_EQUAL(tutti__pass_greet(&greeter->pass, &greeting), TUTTI_OK);
    CHECK_EQUAL(tutti__net_wait(greeter->door, 1, POLLIN, deadline), TUTTI_OK);
    fd = accept(greeter->door, NULL, NULL);
    CHECK(fd >= 0);
    CHECK_EQUAL(tutti__net_send(fd, 1, &greeting, sizeof(greeting), deadline), TUTTI_OK);
    CHECK_EQUAL(tutti__net_recv(fd, 1, &hello, sizeof(hello), deadline), TUTTI_OK);
    close(fd);
    return NULL;
}

/* If a gate of the job `theirs` greets rank 1 of this job, does rank 1 count this as a greeting of
   its own rank 0? */
static int counts(const tutti__conf_job_t *theirs)
{
    static const tutti__conf_job_t job = { .run = "a", .restart = 1, .port = 29500 };
    tutti__pass_t pass;
    tutti__gate_t gate = { .purpose = TUTTI__GATE_JOB, .rank = 1, .size = 2, .pass = &pass };
    tutti__gate_round_t round = { .count = 1, .try_ms = 60000 };
    greeter_t greeter;
    tutti__conf_t conf;
    pthread_t thread;
    int fd;

    tutti__conf_defaults(&conf);
    assert_int_equal(tutti__pass_init(&pass, &conf, &job), TUTTI_OK);
    assert_int_equal(tutti__pass_init(&greeter.pass, &conf, theirs), TUTTI_OK);
    assert_int_equal(tutti__net_addrs("", 1, &greeter.addrs), TUTTI_OK);
    assert_int_equal(tutti__net_tcp_listen(&greeter.addrs, &greeter.door), TUTTI_OK);
    assert_int_equal(pthread_create(&thread, NULL, greet, &greeter), 0);
    round.addrs = greeter.addrs.addr;
    assert_int_not_equal(tutti__gate_try(&gate, &round, 0, tutti__net_deadline(60000), &fd),
                         TUTTI_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(round.is_final);
    close(greeter.door);
    return round.is_greeted;
}

/* If a greeting of another job counted, a rank would report the end of a rank 0 that has not
   started yet. */
static void test_greetings(void **state)
{
    static const tutti__conf_job_t same = { .run = "a", .restart = 1, .port = 29500 };
    static const tutti__conf_job_t others[] = {
        { .run = "b", .restart = 1, .port = 29500 },
        { .run = "a", .restart = 0, .port = 29500 },
        { .run = "a", .restart = 1, .port = 29501 },
    };

    (void)state;
    assert_true(counts(&same));
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        assert_false(counts(&others[i]));
}

static void test_missing(void **state)
{
    host_t host;

    (void)state;
    open_host(&host, 100, 0);
    let_in(&host, 1);
    assert_int_equal(close_host(&host), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(host.text, "rank 3 did not connect to rank 0"));
}

static void test_strict(void **state)
{
    host_t host;

    (void)state;
    open_host(&host, 10000, 1);
    refuse(&host, &right, 2, "two processes are rank 2");
    assert_int_equal(close_host(&host), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(host.text, "two processes are rank 2"));
}

static void test_list_ranks(void **state)
{
    unsigned char listed[40] = { 0 };
    char text[100];

    (void)state;
    listed[7] = 1;
    tutti__net_list_ranks(listed, 40, text, sizeof(text));
    assert_string_equal(text, "rank 7");
    listed[9] = 1;
    tutti__net_list_ranks(listed, 40, text, sizeof(text));
    assert_string_equal(text, "ranks 7 and 9");
    listed[39] = 1;
    tutti__net_list_ranks(listed, 40, text, sizeof(text));
    assert_string_equal(text, "ranks 7, 9 and 39");
    memset(listed, 1, sizeof(listed));
    tutti__net_list_ranks(listed, 40, text, sizeof(text));
    assert_string_equal(text, "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 28 more");
    tutti__net_list_ranks(listed, 40, text, 10);
    assert_string_equal(text, "ranks 0, ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strangers),  cmocka_unit_test(test_impatient),
        cmocka_unit_test(test_flood),      cmocka_unit_test(test_death),
        cmocka_unit_test(test_missing),    cmocka_unit_test(test_strict),
        cmocka_unit_test(test_list_ranks), cmocka_unit_test(test_watch),
        cmocka_unit_test(test_probes),     cmocka_unit_test(test_greetings),
    };

    return cmocka_run_group_tests_name("boot/gate", tests, NULL, NULL);
}
