/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Strangers on all TCP ports at which ranks meet: processes open connections, and keep them silent
 * or close them at once. All jobs must start.
 *
 *   flood           one flooding process; 2 jobs of each kind, or 30 in the long form
 *   flood N [way]   FLOODERS flooding processes; N jobs of each kind, or only of the kind `way`
 *
 * It prints the rates that were reached.
 *
 * The connections use loopback only: for one job at most RATE connections a second, of which KEPT
 * stay open. A connection costs 10 to 20 us of a processor, so on an idle machine one process
 * reaches RATE; on a busy machine several processes get a larger share of the processors. The rate
 * counts from the time at which the first rank listens.
 */
#include "fault/startup.h"

#include "long.h"
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

/* [connections a second] Jobs must start at 20 000. RATE is somewhat larger, because the flooders
   never quite reach it. */
#define RATE 21000
#define KEPT 4000
#define RANKS 4
#define FLOODERS 4

/* Shared with the flooding processes; zeroed before each job. */
static struct {
    atomic_ullong opened;
    atomic_ullong begin_us; /* when a flooder first detected a listening rank; 0: not yet */
} * fire;

/* The totals that the flooders of one or several jobs have reached. */
typedef struct {
    double opened, s, processor_s;
} reached_t;

/* Successive sockets use 64 addresses of 127/8, because one address has only 28 000 ports. */
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
    atomic_fetch_add(&fire->opened, 1);
    return fd;
}

static void allow_files(void)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Wait until a rank listens. Returns the time at which the first flooder detected this. */
static double await_ports(double until)
{
    unsigned long long none = 0;

    while (atomic_load(&hall->nports) == 0 && now_s() < until)
        poll(NULL, 0, 1);
    atomic_compare_exchange_strong(&fire->begin_us, &none, (unsigned long long)(now_s() * 1e6));
    return (double)atomic_load(&fire->begin_us) * 1e-6;
}

/* Flooder `self` of `flooders` makes each `flooders`-th connection. */
static void flood(int self, int flooders, int close_at_once, double until)
{
    struct linger at_once = { 1, 0 }; /* so that close leaves no TIME_WAIT state */
    int most = KEPT / flooders;
    static int kept[KEPT];
    unsigned long long n = 0;
    double begin;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    allow_files();
    memset(kept, 0xff, sizeof(kept));
    begin = await_ports(until);
    while (now_s() < until) {
        unsigned number = (unsigned)n * (unsigned)flooders + (unsigned)self;
        int ports = atomic_load(&hall->nports);
        int *place = &kept[n % (unsigned)most];

        ports = ports > MOST_PORTS ? MOST_PORTS : ports;
        if ((double)n * flooders > (now_s() - begin) * RATE) {
            poll(NULL, 0, 1);
            continue;
        }
        if (*place >= 0) {
            (void)syscall(SYS_setsockopt, *place, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
            close(*place);
        }
        *place = open_one(atomic_load(&hall->port[number % (unsigned)ports]), number);
        n++;
        if (close_at_once && *place >= 0) {
            close(*place);
            *place = -1;
        }
    }
}

/* After a rank has begun to listen, it waits, so that the flood begins before any other rank
   connects. */
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

static void begin_fire(int flooders, int close_at_once, pid_t *ret_pids)
{
    double until = now_s() + 100;

    memset(fire, 0, sizeof(*fire));
    fflush(NULL);
    for (int i = 0; i < flooders; i++) {
        ret_pids[i] = fork();
        if (ret_pids[i] == 0) {
            flood(i, flooders, close_at_once, until);
            _exit(0);
        }
    }
}

static void end_fire(int flooders, const pid_t *pids, reached_t *reached)
{
    unsigned long long begin_us = atomic_load(&fire->begin_us);

    reached->opened += (double)atomic_load(&fire->opened);
    reached->s += begin_us > 0 ? now_s() - (double)begin_us * 1e-6 : 0;
    for (int i = 0; i < flooders; i++) {
        struct rusage used = { 0 };

        if (pids[i] <= 0)
            continue;
        kill(pids[i], SIGKILL);
        wait4(pids[i], NULL, 0, &used);
        reached->processor_s += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                                (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    }
}

static int start_under_fire(way_t way, int flooders, int close_at_once, reached_t *reached)
{
    startup_t job = {
        .way = way, .size = RANKS, .hosts = "aabb", .timeout_s = 60, .limit_s = 90, .before = before
    };
    pid_t pids[FLOODERS];
    int failed;

    memset(hall, 0, sizeof(*hall));
    begin_fire(flooders, close_at_once, pids);
    failed = startup_run(&job);
    end_fire(flooders, pids, reached);
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

/* Run jobs of one kind. Returns the number of failed jobs. */
static int run_jobs(way_t way, int jobs, int flooders, int close_at_once)
{
    reached_t reached = { 0 };
    double longest_s = 0;
    int failed = 0;

    for (int i = 0; i < jobs; i++) {
        double begin = now_s();

        failed += start_under_fire(way, flooders, close_at_once, &reached);
        if (now_s() - begin > longest_s)
            longest_s = now_s() - begin;
    }
    fprintf(stderr,
            "by %s, %s: %d of %d jobs failed, %.0f connections a second, each %.0f us of a "
            "processor, longest %.2f s\n",
            way_names[way], close_at_once ? "closing" : "idle", failed, jobs,
            reached.s > 0 ? reached.opened / reached.s : 0,
            reached.opened > 0 ? reached.processor_s / reached.opened * 1e6 : 0, longest_s);
    return failed;
}

int main(int argc, char **argv)
{
    int jobs, flooders = argc > 1 ? FLOODERS : 1, failures = 0;

    if (!ranks_can_fork())
        return 77;
    jobs = argc > 1 ? atoi(argv[1]) : test_is_long("28 of 30 jobs of each kind") ? 30 : 2;
    startup_open();
    fire = mmap(NULL, sizeof(*fire), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fire == MAP_FAILED)
        return 1;
    for (way_t way = 0; way < WAYS; way++) {
        if (argc > 2 && strcmp(argv[2], way_names[way]) != 0)
            continue;
        for (int close_at_once = 0; close_at_once < 2; close_at_once++)
            failures += run_jobs(way, jobs, flooders, close_at_once);
    }
    return failures != 0;
}
