/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel: messages of all sizes in both directions along the tree, and
 * detection of deaths.
 */
#include "boot/boot_inside.h"

#include "crowd.h"

#include "base/constants.h"
#include "long.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    DATA = 1,
    DONE,
    NEWS
};

#define MIB ((size_t)1 << 20)

/* The events of one rank. */
typedef struct {
    const crowd_rank_t *me;
    tutti__boot_t *boot;
    unsigned messages;            /* sent by each end of a link */
    unsigned received[CROWD_MAX]; /* data messages, by link */
    unsigned whole;               /* links from which all messages have come */
    unsigned done;                /* links whose other end has reported that it has all messages */
    unsigned lost[CROWD_MAX];     /* reports of losses, by rank */
    unsigned news[CROWD_MAX];     /* deaths reported by other ranks, by rank */
} seen_t;

/* Both ends compute the length and the bytes of message i from rank r from these numbers. */
static const size_t lengths[] = { 0, 1, 100000, 7, 5 * MIB, 0, 65536, 65535, 3, 16 * MIB, 3 };
/* Numbers of messages. */
enum {
    FEW = 4,
    MANY = 9,
    ALL = 11
};

static char first_byte(uint32_t rank, unsigned i)
{
    return (char)(rank * 16 + i);
}

static void fill(char *body, size_t bytes, char first)
{
    for (size_t i = 0; i < bytes; i++)
        body[i] = (char)(first + (char)(i % 251));
}

static int is_filled(const char *body, size_t bytes, char first)
{
    for (size_t i = 0; i < bytes; i++)
        if (body[i] != (char)(first + (char)(i % 251)))
            return 0;
    return 1;
}

static void tell_all(seen_t *seen, int but, uint32_t rank)
{
    for (uint32_t i = 0; i < tutti__side_links(seen->boot); i++)
        if ((int)i != but)
            CHECK_EQUAL(tutti__side_send(seen->boot, i, NEWS, &rank, sizeof(rank)), TUTTI_OK);
}

static void on_message(void *arg, uint32_t link, uint32_t kind, const void *body, size_t bytes)
{
    seen_t *seen = arg;
    uint32_t from = tutti__side_rank(seen->boot, link), rank;
    unsigned i = seen->received[link];

    CHECK_EQUAL((uintptr_t)body % 8, 0);
    switch (kind) {
    case DATA:
        CHECK(i < seen->messages);
        CHECK_EQUAL(bytes, lengths[i]);
        CHECK(is_filled(body, bytes, first_byte(from, i)));
        if (++seen->received[link] < seen->messages)
            break;
        seen->whole++;
        CHECK_EQUAL(tutti__side_send(seen->boot, link, DONE, NULL, 0), TUTTI_OK);
        break;
    case DONE:
        CHECK_EQUAL(bytes, 0);
        seen->done++;
        break;
    case NEWS:
        CHECK_EQUAL(bytes, sizeof(rank));
        memcpy(&rank, body, sizeof(rank));
        seen->news[rank]++;
        tell_all(seen, (int)link, rank);
        break;
    default:
        CHECK_EQUAL(kind, DATA);
    }
}

/* Report the loss to the other ranks, as the engine does. */
static void on_lost(void *arg, uint32_t link)
{
    seen_t *seen = arg;
    uint32_t rank = tutti__side_rank(seen->boot, link);

    CHECK(rank < seen->me->size && rank != seen->me->rank);
    seen->lost[rank]++;
    if (seen->news[rank] == 0)
        tell_all(seen, (int)link, rank);
}

static int is_neighbour(const seen_t *seen, uint32_t rank)
{
    for (uint32_t i = 0; i < tutti__side_links(seen->boot); i++)
        if (tutti__side_rank(seen->boot, i) == rank)
            return 1;
    return 0;
}

static void step(seen_t *seen, int timeout_ms)
{
    const tutti__side_events_t events = { seen, on_message, on_lost, NULL };
    struct pollfd pfd = { tutti__side_fd(seen->boot), POLLIN, 0 };

    poll(&pfd, 1, timeout_ms);
    CHECK_EQUAL(tutti__side_poll(seen->boot, &events), TUTTI_OK);
}

static void run_for(seen_t *seen, unsigned ms)
{
    uint64_t end = crowd_now_ms() + ms;

    while (crowd_now_ms() < end)
        step(seen, 10);
}

static int something_waits(const seen_t *seen)
{
    for (uint32_t i = 0; i < tutti__side_links(seen->boot); i++)
        if (seen->boot->side.links[i].first != NULL)
            return 1;
    return 0;
}

static void check_nobody_lost(const seen_t *seen)
{
    for (uint32_t r = 0; r < seen->me->size; r++)
        CHECK_EQUAL(seen->lost[r] + seen->news[r], 0);
}

static void exchange(seen_t *seen, unsigned messages)
{
    uint32_t links = tutti__side_links(seen->boot);
    uint64_t end = crowd_now_ms() + 60000;
    char *body = malloc(16 * MIB);

    /* No message can have arrived before this: each rank has waited in agree for all others. */
    seen->messages = messages;
    CHECK_EQUAL(tutti__boot_agree(seen->boot, TUTTI_OK), TUTTI_OK);
    for (unsigned i = 0; i < messages; i++) {
        fill(body, lengths[i], first_byte(seen->me->rank, i));
        for (uint32_t l = 0; l < links; l++)
            CHECK_EQUAL(tutti__side_send(seen->boot, l, DATA, body, lengths[i]), TUTTI_OK);
        if (i % 3 == 0)
            step(seen, 0);
    }
    free(body);
    /* A rank is done when it has received all messages of the other ranks, and the other ranks have
       reported that they have received all of its messages. */
    while (seen->whole < links || seen->done < links || something_waits(seen)) {
        CHECK(crowd_now_ms() < end);
        step(seen, 100);
    }
    check_nobody_lost(seen);
}

static void send_and_receive(const crowd_rank_t *me)
{
    seen_t seen = { .me = me, .boot = crowd_open(me) };
    struct pollfd pfd = { tutti__side_fd(seen.boot), POLLIN, 0 };

    CHECK_EQUAL(tutti__boot_agree(seen.boot, TUTTI_OK), TUTTI_OK);
    CHECK_EQUAL(poll(&pfd, 1, 0), 0); /* no traffic when idle */
    exchange(&seen, me->size <= 3 ? ALL : MANY);
    CHECK_EQUAL(tutti__boot_agree(seen.boot, TUTTI_OK), TUTTI_OK);
    tutti__boot_close(seen.boot);
}

static int whole; /* 0: the quick form */

static void test_messages(void **state)
{
    static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 8 };

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i += whole ? 1 : 2) {
        crowd_fork(sizes[i], 1, send_and_receive, NULL);
        crowd_threads(sizes[i], 2, send_and_receive, NULL);
    }
    crowd_fork(5, 5, send_and_receive, NULL);
}

static void too_long(const crowd_rank_t *me)
{
    tutti__boot_t *boot = crowd_open(me);

    CHECK_EQUAL(tutti__side_send(boot, 0, DATA, me, 16 * MIB + 1), TUTTI_ERR_INTERNAL);
    CHECK_EQUAL(tutti__boot_agree(boot, TUTTI_OK), TUTTI_OK);
    tutti__boot_close(boot);
}

/* Rank 1 sends a last message and leaves. The message must arrive before the loss is reported. */
static void say_goodbye(const crowd_rank_t *me)
{
    seen_t seen = { .me = me, .boot = crowd_open(me) };
    char *body = calloc(1, lengths[2]);
    uint32_t news = 5;

    CHECK_EQUAL(tutti__boot_agree(seen.boot, TUTTI_OK), TUTTI_OK);
    if (me->rank == 1) {
        CHECK_EQUAL(tutti__side_send(seen.boot, 0, NEWS, &news, sizeof(news)), TUTTI_OK);
        tutti__boot_close(seen.boot);
    } else {
        while (seen.lost[1] == 0) {
            CHECK_EQUAL(seen.boot->side.links[0].fd < 0, 0);
            step(&seen, 1000);
        }
        CHECK_EQUAL(seen.news[5], 1);
        /* These messages to a lost rank are discarded. */
        CHECK_EQUAL(tutti__side_send(seen.boot, 0, DATA, body, lengths[2]), TUTTI_OK);
        run_for(&seen, 50);
        CHECK_EQUAL(seen.lost[1], 1);
        tutti__boot_close(seen.boot);
    }
    free(body);
}

static void test_ends(void **state)
{
    (void)state;
    crowd_fork(2, 1, too_long, NULL);
    crowd_fork(2, 1, say_goodbye, NULL);
    crowd_fork(2, 2, say_goodbye, NULL);
    crowd_threads(2, 1, say_goodbye, NULL);
    crowd_threads(2, 2, say_goodbye, NULL);
}

/* Rank 1 writes an invalid message to its link. */
static void talk_nonsense(const crowd_rank_t *me)
{
    seen_t seen = { .me = me, .boot = crowd_open(me) };
    unsigned char nonsense[64];

    memset(nonsense, 0xff, sizeof(nonsense));
    if (me->rank == 1)
        CHECK_EQUAL(send(seen.boot->side.links[0].fd, nonsense, sizeof(nonsense), MSG_NOSIGNAL),
                    sizeof(nonsense));
    while (me->rank == 0 && seen.lost[1] == 0)
        step(&seen, 1000);
    CHECK_EQUAL(tutti__boot_agree(seen.boot, TUTTI_OK), TUTTI_OK);
    tutti__boot_close(seen.boot);
}

static void test_nonsense(void **state)
{
    (void)state;
    crowd_fork(2, 1, talk_nonsense, NULL);
    crowd_threads(2, 2, talk_nonsense, NULL);
}

/*
 * The heir of the victim, which is a process that lives on. NO_HEIR: there is none. FORKED_HEIR: a
 * child made by fork() closes the victim's sockets; no rank watches the victim's process.
 * CLONED_HEIR: no fork handler ran, so the child keeps the sockets.
 */
typedef enum {
    NO_HEIR,
    FORKED_HEIR,
    CLONED_HEIR
} heir_t;

/* Shared by test and ranks while ranks die. */
typedef struct {
    atomic_int ready, finish;
    atomic_int heir; /* the heir's process */
    uint32_t victim;
    heir_t how;
    _Atomic uint64_t killed_ms;
    _Atomic uint64_t slowest_ms;
} stage_t;

static stage_t *open_stage(uint32_t victim)
{
    stage_t *stage =
        mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(stage != MAP_FAILED);
    stage->victim = victim;
    return stage;
}

static void await_ready(stage_t *stage, int ranks)
{
    uint64_t end = crowd_now_ms() + 60000;

    while (atomic_load(&stage->ready) < ranks) {
        assert_true(crowd_now_ms() < end);
        crowd_sleep_ms(1);
    }
}

static void leave_heir(stage_t *stage)
{
    pid_t pid = stage->how == FORKED_HEIR ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

    CHECK(pid >= 0);
    if (pid == 0) {
        atomic_store(&stage->heir, (int)syscall(SYS_getpid));
        for (;;)
            pause();
    }
    while (atomic_load(&stage->heir) == 0)
        crowd_sleep_ms(1);
}

/* As on a kernel without pidfds, or between machines. */
static void stop_watching(tutti__boot_t *boot)
{
    for (uint32_t i = 0; i < boot->side.nwatches; i++) {
        close(boot->side.watches[i].pidfd);
        boot->side.watches[i].pidfd = -1;
    }
}

static void note_time(stage_t *stage)
{
    uint64_t took_ms = crowd_now_ms() - atomic_load(&stage->killed_ms);
    uint64_t slowest = atomic_load(&stage->slowest_ms);

    while (took_ms > slowest &&
           !atomic_compare_exchange_weak(&stage->slowest_ms, &slowest, took_ms))
        continue;
}

static void await_death(const crowd_rank_t *me)
{
    stage_t *stage = me->arg;
    uint32_t victim = stage->victim;
    seen_t seen = { .me = me, .boot = crowd_open(me) };
    uint64_t end;

    if (me->rank == victim && stage->how != NO_HEIR)
        leave_heir(stage);
    if (stage->how == FORKED_HEIR)
        stop_watching(seen.boot);
    exchange(&seen, FEW);
    CHECK_EQUAL(tutti__boot_agree(seen.boot, TUTTI_OK), TUTTI_OK);
    atomic_fetch_add(&stage->ready, 1);
    while (atomic_load(&stage->killed_ms) == 0)
        step(&seen, 5);
    end = crowd_now_ms() + 10000;
    while (seen.lost[victim] + seen.news[victim] == 0) {
        CHECK(crowd_now_ms() < end);
        step(&seen, 100);
    }
    note_time(stage);
    run_for(&seen, 300);
    /* Neighbours detect the death themselves. */
    for (uint32_t r = 0; r < me->size; r++) {
        if (r != victim)
            CHECK_EQUAL(seen.lost[r] + seen.news[r], 0);
        else
            CHECK_EQUAL(seen.lost[r], is_neighbour(&seen, r));
    }
    atomic_fetch_add(&stage->finish, 1);
    while (atomic_load(&stage->finish) < (int)me->size - 1)
        run_for(&seen, 5);
    tutti__boot_close(seen.boot);
}

static void kill_one(uint32_t size, uint32_t hosts, uint32_t victim, heir_t how)
{
    static const char *const words[] = { "", " and leaves a child", " and leaves a clone" };

    stage_t *stage = open_stage(victim);
    pid_t pids[CROWD_MAX];

    stage->how = how;
    crowd_start(size, hosts, await_death, stage, pids);
    await_ready(stage, (int)size);
    crowd_sleep_ms(20);
    assert_int_equal(kill(pids[victim], SIGKILL), 0);
    atomic_store(&stage->killed_ms, crowd_now_ms());
    for (uint32_t r = 0; r < size; r++)
        assert_int_equal(crowd_end(pids[r]), r == victim ? 128 + SIGKILL : 0);
    if (how != NO_HEIR)
        assert_int_equal(kill(atomic_load(&stage->heir), SIGKILL), 0);
    /* On an idle machine this takes milliseconds, but this machine may be busy. */
    assert_true(atomic_load(&stage->slowest_ms) < 5000);
    print_message("%u ranks on %u hosts, rank %u dies%s: the last one knows after %u ms\n", size,
                  hosts, victim, words[how], (unsigned)atomic_load(&stage->slowest_ms));
    munmap(stage, sizeof(*stage));
}

static void test_death(void **state)
{
    (void)state;
    if (whole) {
        kill_one(2, 1, 0, NO_HEIR);
        kill_one(2, 1, 1, NO_HEIR);
        kill_one(4, 1, 0, NO_HEIR); /* rank 0, leader and root */
        kill_one(4, 1, 3, NO_HEIR); /* a leaf */
    }
    kill_one(5, 2, 0, NO_HEIR); /* the root of two hosts */
    kill_one(5, 2, 1, NO_HEIR); /* the leader of the other host: ranks 1 and 3 */
    kill_one(5, 2, 3, NO_HEIR); /* a leaf there */
}

static void test_death_with_heir(void **state)
{
    (void)state;
    if (whole) {
        kill_one(4, 1, 0, CLONED_HEIR);
        kill_one(4, 1, 2, CLONED_HEIR);
        kill_one(5, 2, 0, FORKED_HEIR);
    }
    kill_one(5, 2, 1, CLONED_HEIR);
    kill_one(4, 1, 2, FORKED_HEIR);
    kill_one(5, 2, 1, FORKED_HEIR);
}

/* If a child closes its copy of the side channel, the parent's is not affected. */
static void fork_a_child(const crowd_rank_t *me)
{
    seen_t seen = { .me = me, .boot = crowd_open(me) };
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(tutti__side_fd(seen.boot) < 0);
        tutti__boot_close(seen.boot);
        _exit(0);
    }
    CHECK_EQUAL(waitpid(pid, NULL, 0), pid);
    exchange(&seen, FEW);
    /* A child that closes all descriptors without a fork handler does not affect the parent's side
       channel. */
    CHECK_EQUAL(tutti__boot_agree(seen.boot, TUTTI_OK), TUTTI_OK);
    pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        CHECK(tutti__side_fd(seen.boot) >= 0);
        tutti__boot_close(seen.boot);
        _exit(0);
    }
    CHECK_EQUAL(waitpid(pid, NULL, 0), pid);
    CHECK_EQUAL(tutti__boot_agree(seen.boot, TUTTI_OK), TUTTI_OK);
    run_for(&seen, 50);
    check_nobody_lost(&seen);
    CHECK_EQUAL(tutti__boot_agree(seen.boot, TUTTI_OK), TUTTI_OK);
    tutti__boot_close(seen.boot);
}

static void test_fork(void **state)
{
    (void)state;
    crowd_fork(4, 2, fork_a_child, NULL);
}

/* Rank 2 is stopped for a while. The other ranks must not take this for a death. */
static void be_stopped(const crowd_rank_t *me)
{
    seen_t seen = { .me = me, .boot = crowd_open(me) };
    stage_t *stage = me->arg;

    CHECK_EQUAL(tutti__boot_agree(seen.boot, TUTTI_OK), TUTTI_OK);
    atomic_fetch_add(&stage->ready, 1);
    while (!atomic_load(&stage->finish)) {
        step(&seen, 5);
        check_nobody_lost(&seen);
    }
    exchange(&seen, FEW);
    CHECK_EQUAL(tutti__boot_agree(seen.boot, TUTTI_OK), TUTTI_OK);
    tutti__boot_close(seen.boot);
}

static void test_stop(void **state)
{
    (void)state;
    for (uint32_t hosts = 1; hosts <= 4; hosts++) {
        stage_t *stage = open_stage(2);
        pid_t pids[CROWD_MAX];

        crowd_start(4, hosts, be_stopped, stage, pids);
        await_ready(stage, 4);
        assert_int_equal(kill(pids[2], SIGSTOP), 0);
        crowd_sleep_ms(300);
        atomic_store(&stage->finish, 1);
        crowd_sleep_ms(100);
        assert_int_equal(kill(pids[2], SIGCONT), 0);
        for (uint32_t r = 0; r < 4; r++)
            assert_int_equal(crowd_end(pids[r]), 0);
        munmap(stage, sizeof(*stage));
    }
}

/* The neighbour is on another machine, and its process id is that of an ended process here. This
   rank must not take the neighbour for dead. */
static void test_other_machine(void **state)
{
    uint32_t machine_of[2] = { 0, 1 };
    tutti__topo_t topo = { .size = 2, .machine_of = machine_of };
    tutti__boot_peer_t peers[2] = { { .pid = (int)getpid() } };
    tutti__boot_t boot = { .topo = &topo, .peers = peers, .owner = getpid() };
    pid_t pid = fork();
    int ends[2];

    (void)state;
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    peers[1].pid = (int)pid;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(tutti__side_begin(&boot), TUTTI_OK);
    boot.side.links[0].fd = ends[0];
    boot.side.links[0].rank = 1;
    boot.side.nlinks = 1;
    assert_int_equal(tutti__side_start(&boot), TUTTI_OK);
    assert_int_equal(boot.side.nwatches, 0);
    tutti__side_end(&boot);
    close(ends[1]);
}

/* ---- a receiver that does not read ---- */

static int limit_of(int fd)
{
    int limit_ms = -1;
    socklen_t bytes = sizeof(limit_ms);

    CHECK_EQUAL(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, &bytes), 0);
    return limit_ms;
}

/* Call the check until it sets `patient` to this value. Reads from `from`, if this is not -1. */
static void await_patient(int fd, int *patient, int value, int from)
{
    static char rest[1 << 16];

    for (int i = 0; i < 60000 && *patient != value; i++) {
        while (from >= 0 && recv(from, rest, sizeof(rest), MSG_DONTWAIT) > 0) {
        }
        tutti__net_tcp_check(fd, patient);
        poll(NULL, 0, 1);
    }
    CHECK_EQUAL(*patient, value);
}

/* TCP_USER_TIMEOUT must not end the connection to a stopped process whose buffer is full. */
static void test_unread(void **state)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), minute_ms = 60000, patient = 0;
    int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), in;
    socklen_t bytes = sizeof(at);
    char block[1000] = "";

    (void)state;
    CHECK_EQUAL(bind(door, (struct sockaddr *)&at, sizeof(at)), 0);
    CHECK_EQUAL(getsockname(door, (struct sockaddr *)&at, &bytes), 0);
    CHECK_EQUAL(listen(door, 1), 0);
    CHECK_EQUAL(connect(out, (struct sockaddr *)&at, sizeof(at)), 0);
    in = accept(door, NULL, NULL);
    CHECK(in >= 0);
    CHECK_EQUAL(tutti__net_tcp_options(out), TUTTI_OK);
    CHECK_EQUAL(limit_of(out), TUTTI__TCP_USER_TIMEOUT_MS);
    /* A starved test may need more than the usual limit. */
    CHECK_EQUAL(setsockopt(out, IPPROTO_TCP, TCP_USER_TIMEOUT, &minute_ms, sizeof(int)), 0);
    tutti__net_tcp_check(out, &patient);
    CHECK_EQUAL(patient, 0);
    CHECK_EQUAL(limit_of(out), minute_ms);
    while (send(out, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    await_patient(out, &patient, 1, -1);
    CHECK_EQUAL(limit_of(out), 0);
    await_patient(out, &patient, 0, in);
    CHECK_EQUAL(limit_of(out), TUTTI__TCP_USER_TIMEOUT_MS);
    close(out);
    close(in);
    close(door);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_death_with_heir),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_other_machine),
        cmocka_unit_test(test_unread),
    };

    whole = test_is_long("half of the numbers of ranks, and half of the deaths");
    return cmocka_run_group_tests_name("boot/side", tests, NULL, NULL);
}
