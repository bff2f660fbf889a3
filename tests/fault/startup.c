/* SPDX-License-Identifier: BSD-3-Clause */
/* Running the jobs of startup.h. */
#include "fault/startup.h"

#include "tag.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *const way_names[WAYS] = { "name", "id", "other's id", "store", "env" };

hall_t *hall;
int startup_rank = -1;
static int master_port; /* BY_ENV */

double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void startup_open(void)
{
    hall = mmap(NULL, sizeof(*hall), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (hall == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    (void)tag(); /* before any fork, so that all processes have the same tag */
}

int startup_seal_fate(int fate)
{
    int none = 0;

    return atomic_compare_exchange_strong(&hall->fate, &none, fate) || none == fate;
}

/* ---- a store ---- */

/* There is a value if has_value is odd; a reader has the whole value if has_value is unchanged
   after it has copied the value. */
static int set_value(void *context, const char *key, const void *value, size_t bytes)
{
    (void)context;
    (void)key;
    if (bytes > sizeof(hall->value))
        return EMSGSIZE;
    atomic_fetch_add(&hall->has_value, atomic_load(&hall->has_value) & 1);
    memcpy(hall->value, value, bytes);
    hall->value_bytes = bytes;
    atomic_fetch_add(&hall->has_value, 1);
    return 0;
}

static int get_value(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
                     int timeout_ms)
{
    double until = now_s() + timeout_ms * 1e-3;

    (void)context;
    (void)key;
    for (;;) {
        int number = atomic_load(&hall->has_value);

        if (number & 1) {
            size_t bytes = hall->value_bytes < room ? hall->value_bytes : room;

            memcpy(value, hall->value, bytes);
            *ret_bytes = bytes;
            if (atomic_load(&hall->has_value) == number)
                return 0;
        } else if (now_s() > until) {
            return ETIMEDOUT;
        }
        poll(NULL, 0, 1);
    }
}

/* ---- a rank ---- */

static void await(atomic_int *word, int least)
{
    while (atomic_load(word) < least)
        poll(NULL, 0, 1);
}

static void make_id(void)
{
    if (tutti_unique_id_create(&hall->id) != TUTTI_OK) {
        fprintf(stderr, "no id: %s\n", tutti_last_error());
        _exit(1);
    }
    atomic_store(&hall->has_id, 1);
}

/* The variables that torchrun and similar programs set. */
static void set_env(const startup_t *job, int rank)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof(text), "%d", job->size);
    setenv("WORLD_SIZE", text, 1);
    snprintf(text, sizeof(text), "%d", master_port);
    setenv("MASTER_PORT", text, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("TUTTI_JOB_SECRET", "of this test", 1);
}

/* The socket is bound, but does not listen: other tests do not get this port, and rank 0 can listen
   at it. */
static int reserve_port(void)
{
    struct sockaddr_in addr = { .sin_family = AF_INET };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    socklen_t bytes = sizeof(addr);

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(fd, (struct sockaddr *)&addr, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&addr, &bytes) != 0) {
        perror("a free port");
        exit(1);
    }
    master_port = ntohs(addr.sin_port);
    return fd;
}

static void set_environment(const startup_t *job, int rank, int number)
{
    char text[80], host[2] = { job->hosts != NULL ? job->hosts[rank] : '\0', '\0' };

    snprintf(text, sizeof(text), "%d", job->timeout_s);
    setenv("TUTTI_TIMEOUT", text, 1);
    setenv("TUTTI_LOG", "none", 1);
    setenv("TUTTI_INTERFACE", "lo", 1);
    if (job->hosts != NULL)
        setenv("TUTTI_HOST_ID", host, 1);
    if (job->way == BY_ENV)
        set_env(job, rank);
    if (job->way != BY_NAME)
        return;
    snprintf(text, sizeof(text), "local:tutti-startup-%d-%d", tag(), number);
    setenv("TUTTI_BOOT", text, 1);
    snprintf(text, sizeof(text), "%d", rank);
    setenv("TUTTI_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", job->size);
    setenv("TUTTI_SIZE", text, 1);
}

static void run_rank(const startup_t *job, int rank, int number)
{
    tutti_store_t store = { sizeof(store), NULL, "startup", set_value, get_value };
    tutti_options_t options = TUTTI_OPTIONS_INIT;
    outcome_t *mine = &hall->outcome[rank];
    tutti_status_t status;

    set_environment(job, rank, number);
    if (job->at_start != NULL)
        job->at_start(rank);
    if (job->way == BY_ID && rank == job->maker)
        make_id();
    if (job->way == BY_ID || job->way == BY_OTHER) {
        await(&hall->has_id, 1);
        options.unique_id = &hall->id;
    }
    if (job->way == BY_STORE)
        options.store = &store;
    if (job->way != BY_NAME && job->way != BY_ENV) {
        options.rank = rank;
        options.nranks = job->size;
    }
    /* All ranks continue at the same time, even if some processes took long to start. */
    atomic_fetch_add(&hall->ready, 1);
    await(&hall->ready, job->size);
    startup_rank = rank;
    if (job->before != NULL)
        job->before(rank);
    status = tutti_init(&options);
    if (on_call != NULL && !startup_seal_fate(LIVES))
        pause();
    on_call = NULL;
    if (status == TUTTI_OK)
        status = tutti_barrier(tutti_world());
    mine->status = (int)status;
    snprintf(mine->text, sizeof(mine->text), "%s", status == TUTTI_OK ? "" : tutti_last_error());
    atomic_store(&mine->ended_ns, now_ns());
    atomic_store(&mine->ended, 1);
    tutti_finalize();
}

/* ---- a job ---- */

/* A process that makes an id, and ends when the other end of the pipe is closed. */
static void run_maker(const startup_t *job, int number, int until)
{
    char byte;

    set_environment(job, 0, number);
    unsetenv("TUTTI_HOST_ID");
    make_id();
    while (read(until, &byte, 1) < 0 && errno == EINTR)
        ;
    tutti_finalize();
}

static pid_t start(const startup_t *job, int rank, int number, const int *ends)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[1]);
    if (rank < 0)
        run_maker(job, number, ends[0]);
    else
        run_rank(job, rank, number);
    exit(0);
}

/* Wait for the end of the process. Returns 1 if the process had to be killed. */
static int end(pid_t pid, double until)
{
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_s() > until) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return 1;
        }
        poll(NULL, 0, 1);
    }
    return 0;
}

int startup_run(const startup_t *job)
{
    static int number;
    double until = now_s() + job->limit_s;
    pid_t pid[MOST_RANKS], maker = 0;
    int late = 0, ends[2], reserved = job->way == BY_ENV ? reserve_port() : -1;

    number++;
    memset(hall, 0, sizeof(*hall));
    if (pipe(ends) != 0)
        return 1;
    if (job->way == BY_OTHER)
        maker = start(job, -1, number, ends);
    for (int r = 0; r < job->size; r++)
        pid[r] = start(job, r, number, ends);
    close(ends[0]);
    for (int r = 0; r < job->size; r++)
        late += end(pid[r], until);
    close(ends[1]);
    if (maker > 0)
        late += end(maker, now_s() + 10);
    if (reserved >= 0)
        close(reserved);
    return late;
}
