/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The statistics that a process shows: in the table, in the file, and at the endpoint. Garbage,
 * idle clients and forks must not disturb the endpoint.
 */
#include "api/api.h"
#include "tag.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum {
    CALLS = 10,
    LIMIT_S = 40,
    IDLERS = 12,
    MOST_FILLS = 64,
    TEXT = 1 << 17
};

static int failures;
static char folder[] = "/tmp/tutti-stats-XXXXXX";
static int port; /* the first of two: rank r uses port + r */

/* ---- helpers ---- */

static void make_calls(tutti_comm_t *comm, int n)
{
    float x = 1;

    for (int i = 0; i < n; i++)
        CHECK_OK(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_MAX, comm));
}

static void path_of(char path[128], const char *name, int rank)
{
    snprintf(path, 128, "%s/%s_%d", folder, name, rank);
}

/* Returns 0 if there is no such file. */
static int read_text(const char *path, char text[TEXT])
{
    FILE *file = fopen(path, "r");
    size_t n;

    if (file == NULL)
        return 0;
    n = fread(text, 1, TEXT - 1, file);
    text[n] = '\0';
    fclose(file);
    return 1;
}

static void check_has(const char *text, const char *line)
{
    if (strstr(text, line) == NULL)
        FAIL("no '%s' in:\n%s", line, text);
}

/* Check the sample of a communicator. */
static void check_calls(const char *text, const char *comm, int id, int rank, int n)
{
    char line[200];

    snprintf(line, sizeof(line),
             "\ntutti_operations_total{comm=\"%s\",id=\"%d\",rank=\"%d\",call=\"allreduce\","
             "mode=\"direct\"} %d\n",
             comm, id, rank, n);
    check_has(text, line);
}

static struct sockaddr_in address(int at)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)at) };

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return addr;
}

/* Connect to a port. Returns -1 if the connection is refused. */
static int reach(int at)
{
    const struct sockaddr_in addr = address(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Send bytes, and read until the other end closes. */
static void ask(int at, const void *request, size_t bytes, char answer[TEXT])
{
    const struct timeval limit = { LIMIT_S, 0 };
    int fd = reach(at);
    size_t got = 0;
    ssize_t n;

    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
    CHECK(send(fd, request, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    while (got < TEXT - 1 && (n = recv(fd, answer + got, TEXT - 1 - got, 0)) > 0)
        got += (size_t)n;
    answer[got] = '\0';
    close(fd);
}

static void ask_text(int at, const char *request, const char *want, char answer[TEXT])
{
    ask(at, request, strlen(request), answer);
    if (strncmp(answer, want, strlen(want)) != 0)
        FAIL("'%s' is answered by '%.200s'", request, answer);
}

/* ---- the table ---- */

static void for_table(int rank, int size)
{
    (void)rank, (void)size;
    CHECK_OK(tutti_init(NULL));
    make_calls(tutti_world(), CALLS);
    CHECK_OK(tutti_finalize());
}

/* ---- the file ---- */

static void for_file(int rank, int size)
{
    static char text[TEXT];
    char path[128], line[64];
    tutti_comm_t *group;

    path_of(path, "each", rank);
    CHECK_OK(tutti_init(NULL));
    /* The file exists soon after the start. */
    for (int i = 0; i < LIMIT_S * 100 && !read_text(path, text); i++)
        usleep(10000);
    check_has(text, "# TYPE tutti_operations_total counter\n");
    CHECK_OK(tutti_comm_split(tutti_world(), 0, 0, &group));
    make_calls(group, 3);
    CHECK_OK(tutti_comm_free(group));
    make_calls(tutti_world(), CALLS);
    CHECK_OK(tutti_finalize());
    CHECK(read_text(path, text));
    check_calls(text, "world", 1, rank, CALLS);
    check_calls(text, "group", 2, rank, 3); /* the file has the group even after its end */
    snprintf(line, sizeof(line), "transport=\"%s\"", size == 1 ? "none" : "shm");
    check_has(text, line);
    check_has(text, "tutti_call_seconds_count{comm=\"world\"");
    snprintf(path + strlen(path), 8, ".tmp");
    CHECK(!read_text(path, text));
    /* A second world writes the file again. */
    CHECK_OK(tutti_init(NULL));
    make_calls(tutti_world(), 1);
    CHECK_OK(tutti_finalize());
    path_of(path, "each", rank);
    CHECK(read_text(path, text));
    check_calls(text, "world", 3, rank, 1);
}

/* Without %r, only rank 0 writes. */
static void for_one_file(int rank, int size)
{
    static char text[TEXT];
    char path[128];

    for_table(rank, size);
    if (rank > 0)
        return;
    snprintf(path, sizeof(path), "%s/one", folder);
    CHECK(read_text(path, text));
    check_calls(text, "world", 1, 0, CALLS);
}

/* ---- the endpoint ---- */

static const char get[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

static void for_port(int rank, int size)
{
    static char answer[TEXT];
    int mine = port + rank, idle[IDLERS];
    unsigned char noise[3000];

    (void)size;
    CHECK_OK(tutti_init(NULL));
    make_calls(tutti_world(), CALLS);
    ask_text(mine, get, "HTTP/1.1 200 OK\r\n", answer);
    check_calls(answer, "world", 1, rank, CALLS);
    ask_text(mine, "GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 404 ", answer);
    ask_text(mine, "POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 ", answer);
    ask_text(mine, "hello\r\n\r\n", "HTTP/1.1 400 ", answer);
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (unsigned char)(i * 7919 + 128);
    ask(mine, noise, sizeof(noise), answer);
    /* There are more clients than places. They send no data, or only the beginning of a request. */
    for (int i = 0; i < IDLERS; i++) {
        idle[i] = reach(mine);
        CHECK(idle[i] >= 0);
        if (i % 2)
            CHECK(send(idle[i], "GET /met", 8, MSG_NOSIGNAL) == 8);
    }
    make_calls(tutti_world(), CALLS);
    ask_text(mine, get, "HTTP/1.1 200 OK\r\n", answer);
    check_calls(answer, "world", 1, rank, 2 * CALLS);
    CHECK_OK(tutti_barrier(tutti_world()));
    CHECK_OK(tutti_finalize());
    CHECK_INT(reach(mine), -1);
    for (int i = 0; i < IDLERS; i++)
        close(idle[i]);
}

/* A client closes before it has read the whole answer. */
static void for_leaver(int rank, int size)
{
    static char answer[TEXT];
    const struct linger reset = { 1, 0 };

    (void)size;
    CHECK_OK(tutti_init(NULL));
    for (int i = 0; i < 30; i++) {
        int fd = reach(port + rank);

        CHECK(fd >= 0 && send(fd, get, sizeof(get) - 1, MSG_NOSIGNAL) == sizeof(get) - 1);
        CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
        close(fd);
    }
    ask_text(port + rank, get, "HTTP/1.1 200 OK\r\n", answer);
    CHECK_OK(tutti_finalize());
}

/* A client connects when the process has no free descriptor. The client waits, and the thread that
   would serve it sleeps until there is a descriptor. */
static void for_no_descriptor(int rank, int size)
{
    static char answer[TEXT];
    const struct sockaddr_in addr = address(port + rank);
    int fd = socket(AF_INET, SOCK_STREAM, 0), fill[MOST_FILLS], n = 0;
    struct rlimit before, few = { 0, 0 };
    struct timespec began, ended;

    (void)size;
    CHECK(fd >= 0);
    CHECK_OK(tutti_init(NULL));
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few.rlim_cur = (rlim_t)fd + MOST_FILLS - 4;
    few.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (n < MOST_FILLS && (fill[n] = dup(fd)) >= 0)
        n++;
    CHECK(n < MOST_FILLS);
    CHECK(connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0);
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &began) == 0);
    usleep(1000000);
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended) == 0);
    CHECK(ended.tv_sec - began.tv_sec + 1e-9 * (double)(ended.tv_nsec - began.tv_nsec) < 0.3);
    while (n > 0)
        close(fill[--n]);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(send(fd, get, sizeof(get) - 1, MSG_NOSIGNAL) == sizeof(get) - 1);
    CHECK(recv(fd, answer, 12, MSG_WAITALL) == 12 && memcmp(answer, "HTTP/1.1 200", 12) == 0);
    close(fd);
    CHECK_OK(tutti_finalize());
}

/* A child does not keep the port, and does not serve it. */
static void for_fork(int rank, int size)
{
    static char answer[TEXT];
    int client, status;
    pid_t pid;

    (void)size;
    CHECK_OK(tutti_init(NULL));
    client = reach(port + rank);
    ask_text(port + rank, get, "HTTP/1.1 200 OK\r\n", answer); /* so `client` was accepted */
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        tutti_stats_t stats = TUTTI_STATS_INIT;

        close(client);
        CHECK_STATUS(tutti_comm_get_stats(tutti_world(), &stats), TUTTI_ERR_SHUTDOWN);
        pause();
        _exit(1);
    }
    ask_text(port + rank, get, "HTTP/1.1 200 OK\r\n", answer);
    CHECK_OK(tutti_finalize());
    CHECK_INT(recv(client, answer, 1, 0), 0); /* closed by the parent and by the child */
    CHECK_INT(reach(port + rank), -1);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status));
    close(client);
}

/* ---- errors ---- */

/* If the port is taken, there is a warning, and the job runs. */
static void for_taken_port(int rank, int size)
{
    const struct sockaddr_in addr = address(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    CHECK(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0 && listen(fd, 1) == 0);
    for_table(rank, size);
    close(fd);
}

static void for_bad_arguments(int rank, int size)
{
    tutti_stats_t stats = TUTTI_STATS_INIT;
    tutti_stats_part_t part = TUTTI_STATS_PART_INIT;

    (void)rank, (void)size;
    CHECK_STATUS(tutti_comm_get_stats(NULL, &stats), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_init(NULL));
    CHECK_ERROR(tutti_comm_get_stats(tutti_world(), NULL), TUTTI_ERR_INVALID_ARGUMENT,
                "stats is NULL");
    CHECK_ERROR(tutti_comm_get_stats_part(tutti_world(), 0, NULL), TUTTI_ERR_INVALID_ARGUMENT,
                "part is NULL");
    CHECK_ERROR(tutti_comm_get_stats_part(tutti_world(), 7, &part), TUTTI_ERR_INVALID_ARGUMENT,
                "there is no part 7");
    stats.size = 0;
    CHECK_ERROR(tutti_comm_get_stats(tutti_world(), &stats), TUTTI_ERR_ABI, "TUTTI_STATS_INIT");
    part.size = 3;
    CHECK_ERROR(tutti_comm_get_stats_part(tutti_world(), 0, &part), TUTTI_ERR_ABI,
                "TUTTI_STATS_PART_INIT");
    CHECK_OK(tutti_finalize());
}

/* ---- running ---- */

static int is_free(int at)
{
    const struct sockaddr_in addr = address(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1, is;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    is = bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0;
    close(fd);
    return is;
}

/* Find two free ports below those that the system gives to outgoing connections. */
static void find_ports(void)
{
    port = 20000 + getpid() % 5000 * 2;
    while (!is_free(port) || !is_free(port + 1))
        port += 2;
    CHECK(port < 32000);
}

/* want, dislike: texts that the stderr of the ranks must have, and must not have. */
static void run(int size, const char *settings, void (*fn)(int rank, int size), const char *want,
                const char *dislike)
{
    static int number;
    static char text[TEXT];
    char env[512];

    snprintf(env, sizeof(env), "TUTTI_BOOT=local:tutti-test-stats-%d-%d\nTUTTI_TIMEOUT=60\n%s",
             tag(), number++, settings);
    if (run_children(size, env, fn, text, sizeof(text)) != 0 || strstr(text, want) == NULL ||
        strstr(text, dislike) != NULL) {
        fprintf(stderr, "FAILED: %d ranks with %s:\n%s\n", size, settings, text);
        failures++;
    }
}

static void run_ports(void (*fn)(int rank, int size), int size, const char *want)
{
    char settings[64];

    find_ports();
    snprintf(settings, sizeof(settings), "TUTTI_STATS_PORT=%d", port);
    run(size, settings, fn, want, want[0] != '\0' ? "\nno such text" : "tutti");
}

static void run_file(const char *name, void (*fn)(int rank, int size), int size, const char *want)
{
    char settings[160];

    snprintf(settings, sizeof(settings), "TUTTI_STATS_FILE=%s/%s", folder, name);
    run(size, settings, fn, want, want[0] != '\0' ? "\nno such text" : "tutti");
}

int main(void)
{
    char command[64], missing[128];

    clean_environment();
    CHECK(mkdtemp(folder) != NULL);
    run(2, "TUTTI_STATS=1", for_table, "tutti: statistics of world, as rank 0 of 2 saw them",
        "rank 1 of 2");
    run(1, "TUTTI_STATS=1", for_table, "allreduce, direct ", "asynchronous");
    run(2, "TUTTI_STATS=quiet", for_table, "", "tutti");
    run(2, "", for_table, "", "tutti");
    run_file("each_%r", for_file, 2, "");
    run_file("each_%r", for_file, 1, "");
    run_file("one", for_one_file, 2, "");
    run_file("missing/file", for_table, 1, "statistics: cannot write");
    snprintf(missing, sizeof(missing), "%s/one_1", folder);
    CHECK(access(missing, F_OK) != 0);
    run_ports(for_port, 2, "");
    run_ports(for_port, 1, "");
    run_ports(for_leaver, 1, "");
    run_ports(for_no_descriptor, 1, "");
    run_ports(for_fork, 1, "");
    run_ports(for_taken_port, 1, "statistics: cannot listen at 127.0.0.1:");
    run(1, "", for_bad_arguments, "", "tutti warn");
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    CHECK(system(command) == 0);
    return failures != 0;
}
