/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Strangers on all TCP ports at which ranks meet: a process opens connections, and keeps them
 * silent or closes them at once. All jobs must start.
 *
 *   flood           a few jobs of each kind
 *   flood 30 [way]  30 of each, with the rates that were reached
 *
 * Loopback only; at most RATE connections a second, of which KEPT stay open, for one job.
 */
#include "fault/startup.h"

#include "ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RATE 20000
#define KEPT 4000
#define RANKS 4

/* Shared with the flooding process. */
static atomic_ullong *opened;

/* Each socket uses another address of 127/8, because one address has only 28 000 ports. */
static int open_one(int port, unsigned number)
{
    struct sockaddr_in from = { .sin_family = AF_INET }, to = { .sin_family = AF_INET };
    int fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    from.sin_addr.s_addr = htonl(0x7f000002u + number % 64);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)port);
    (void)syscall(SYS_bind, fd, &from, sizeof(from));
    (void)syscall(SYS_connect, fd, &to, sizeof(to));
    atomic_fetch_add(opened, 1);
    return fd;
}

static void flood(int close_at_once, double until)
{
    struct linger at_once = { 1, 0 }; /* no TIME_WAIT */
    static int kept[KEPT];
    struct rlimit limit;
    double begin = 0;
    unsigned long long n = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    memset(kept, 0xff, sizeof(kept));
    while (now_s() < until) {
        int ports = atomic_load(&hall->nports);
        int *place = &kept[n % KEPT];

        ports = ports > MOST_PORTS ? MOST_PORTS : ports;
        if (ports == 0 || (double)n > (now_s() - begin) * RATE) {
            begin = ports == 0 ? now_s() : begin;
            poll(NULL, 0, 1);
            continue;
        }
        if (*place >= 0) {
            (void)syscall(SYS_setsockopt, *place, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
            close(*place);
        }
        *place = open_one(atomic_load(&hall->port[n % (unsigned)ports]), (unsigned)n);
        n++;
        if (close_at_once && *place >= 0) {
            close(*place);
            *place = -1;
        }
    }
}

/* As soon as a rank listens, the flood comes before any other rank. */
static void wait_for_flood(const char *name)
{
    if (strcmp(name, "listening") == 0)
        poll(NULL, 0, 60);
}

static void before(int rank)
{
    on_call = wait_for_flood;
    poll(NULL, 0, 30 * rank);
}

static int start_under_fire(way_t way, int close_at_once, double *ret_rate)
{
    startup_t job = {
        .way = way, .size = RANKS, .hosts = "aabb", .timeout_s = 60, .limit_s = 90, .before = before
    };
    unsigned long long before_n;
    double begin = now_s();
    int failed;
    pid_t pid;

    memset(hall, 0, sizeof(*hall));
    before_n = atomic_load(opened);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        flood(close_at_once, begin + 100);
        _exit(0);
    }
    failed = startup_run(&job);
    *ret_rate = (double)(atomic_load(opened) - before_n) / (now_s() - begin);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int r = 0; r < RANKS; r++) {
        const outcome_t *out = &hall->outcome[r];

        if (out->ended && out->status == TUTTI_OK)
            continue;
        fprintf(stderr, "FAILED: by %s, %s: rank %d: %d, %s\n", way_names[way],
                close_at_once ? "closing" : "idle", r, out->status,
                out->ended ? out->text : "did not end");
        failed = 1;
    }
    return failed;
}

int main(int argc, char **argv)
{
    int jobs = argc > 1 ? atoi(argv[1]) : 2, failures = 0;

    if (!ranks_can_fork())
        return 77;
    startup_open();
    opened = mmap(NULL, sizeof(*opened), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (opened == MAP_FAILED)
        return 1;
    for (way_t way = 0; way < WAYS; way++) {
        if (argc > 2 && strcmp(argv[2], way_names[way]) != 0)
            continue;
        for (int close_at_once = 0; close_at_once < 2; close_at_once++) {
            double longest_s = 0, rates = 0;
            int failed = 0;

            for (int i = 0; i < jobs; i++) {
                double begin = now_s(), rate;

                failed += start_under_fire(way, close_at_once, &rate);
                rates += rate;
                if (now_s() - begin > longest_s)
                    longest_s = now_s() - begin;
            }
            fprintf(stderr,
                    "by %s, %s: %d of %d jobs failed, %.0f connections a second, longest "
                    "%.2f s\n",
                    way_names[way], close_at_once ? "closing" : "idle", failed, jobs, rates / jobs,
                    longest_s);
            failures += failed;
        }
    }
    return failures != 0;
}
