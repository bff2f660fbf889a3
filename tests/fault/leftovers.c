/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * After a job that has ended in any way, no files, names, shared memory or processes are left. In a
 * process that starts and ends the library often, no descriptors, threads, mappings or memory are
 * left.
 *
 * If the system allows this, the test runs in its own namespaces, and all objects there belong to
 * it. Otherwise a name counts only if it contains "tutti", is new, and does not disappear, because
 * other tests have such names while they run.
 */
#include "fault/fault.h"

#include "base/compiler.h"
#include "entries.h"
#include "long.h"

#include <dirent.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const places[] = { "/dev/shm", "/tmp", "/var/tmp", "/run", "/dev/mqueue" };

static int private;

enum {
    LOOKS = 600 /* checks, 100 ms apart: a file that disappears between them belongs to another
                   test */
};

typedef struct {
    char path[256][300];
    int n;
} list_t;

/* The content of shared places at the start. */
static list_t before_all;

/* Mount empty places that no other process can see. */
static void go_private(void)
{
    if (unshare(CLONE_NEWNS | CLONE_NEWIPC) != 0)
        return;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return;
    private = 1;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (access(places[i], F_OK) == 0 && mount("none", places[i], "tmpfs", 0, "size=64m") != 0)
    private = 0;
}

/* ---- after a job ---- */

static int was_there(const char *path)
{
    for (int i = 0; i < before_all.n; i++)
        if (strcmp(path, before_all.path[i]) == 0)
            return 1;
    return 0;
}

/* The library's files have names with "tutti"; in private places all names count. */
static void list_place(list_t *list, const char *place)
{
    DIR *dir = opendir(place);
    struct dirent *entry;

    while (dir != NULL && list->n < 256 && (entry = readdir(dir)) != NULL) {
        char *path = list->path[list->n];

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (!private && strstr(entry->d_name, "tutti") == NULL)
            continue;
        snprintf(path, sizeof(list->path[0]), "%s/%s", place, entry->d_name);
        list->n += !was_there(path);
    }
    if (dir != NULL)
        closedir(dir);
}

static void list_places(list_t *list)
{
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        list_place(list, places[i]);
}

static int is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static int count_there(const list_t *list)
{
    int n = 0;

    for (int i = 0; i < list->n; i++)
        n += is_there(list->path[i]);
    return n;
}

static int look_at_files(void)
{
    static list_t list;

    list.n = 0;
    list_places(&list);
    for (int looks = private ? LOOKS : 0; looks < LOOKS && count_there(&list) > 0; looks++)
        usleep(100000);
    for (int i = 0; i < list.n; i++)
        if (is_there(list.path[i]))
            fprintf(stderr, "left behind: %s\n", list.path[i]);
    return count_there(&list);
}

/* Print and count the lines of a file of /proc that contain `text`; NULL: all lines but the
   first. */
static int look_at_lines(const char *path, const char *text)
{
    FILE *file = fopen(path, "r");
    char line[512];
    int found = 0, number = 0;

    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        number++;
        if (text != NULL ? strstr(line, text) == NULL : number == 1)
            continue;
        fprintf(stderr, "left behind: %s: %s", path, line);
        found++;
    }
    fclose(file);
    return found;
}

/* Orphans become this process's children. */
static int look_at_processes(void)
{
    int found = 0;
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
        if (pid == 0) {
            fprintf(stderr, "left behind: a process\n");
            return found + 1;
        }
        fprintf(stderr, "left behind: process %d, ended\n", (int)pid);
        found++;
    }
    return found;
}

static int look_around(void)
{
    char name[64];
    int found = look_at_processes();

    found += look_at_files();
    snprintf(name, sizeof(name), "tutti-test-%d-", ranks_tag());
    found += look_at_lines("/proc/net/unix", name);
    if (private) {
        found += look_at_lines("/proc/sysvipc/shm", NULL);
        found += look_at_lines("/proc/sysvipc/sem", NULL);
    }
    return found;
}

/* ---- jobs that end in different ways ---- */

static void work(rank_t *self)
{
    enum {
        N = 200000
    };
    float *x = calloc(N, sizeof(*x));
    tutti_request_t *request;
    void *ptr;

    CHECK_OK(tutti_mem_alloc(self->comm, 1 << 20, &ptr));
    CHECK_OK(tutti_allreduce(x, x, N, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK_OK(
        tutti_allreduce_async("x", x, x, N, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &request));
    CHECK_OK(tutti_wait(request, -1));
    free(x);
}

/* 1: in the current job, ranks that are not killed end at once, without a barrier. */
static int finalizing, whole;

/* Ranks whose bits are set in *arg kill themselves after some work. The others end at the same
   time, or first wait for the killed ranks. */
static void die(rank_t *self)
{
    const unsigned *killed = self->arg;

    work(self);
    CHECK_OK(tutti_barrier(self->comm));
    atomic_fetch_add(&board->ready, 1);
    while (atomic_load(&board->ready) < self->size)
        usleep(100);
    if ((*killed >> self->rank & 1) != 0)
        kill(getpid(), SIGKILL);
    if (!finalizing)
        tutti_barrier(self->comm);
}

static int endings(int size, const char *hosts)
{
    unsigned killed[] = { 0, 1, 1u << (size - 1), (1u << size) - 1 };
    int failures = 0;

    for (size_t i = 0; i < sizeof(killed) / sizeof(killed[0]); i++) {
        job_t job = {
            .size = size, .hosts = hosts, .fn = die, .arg = &killed[i], .killed = killed[i]
        };

        if (size == 1 && i > 0 && i < 3)
            continue;
        board_clear();
        RUN_JOB(failures, &job);
        if (look_around() > 0) {
            fprintf(stderr, "FAILED: %d ranks, of which %x were killed%s\n", size, killed[i],
                    finalizing ? ", while the others ended" : "");
            failures++;
        }
    }
    return failures;
}

/* ---- starting and ending often ---- */

static int count_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    int n = 0, c;

    CHECK(file != NULL);
    while ((c = fgetc(file)) != EOF)
        n += c == '\n';
    fclose(file);
    return n;
}

/* Bytes that malloc has allocated; 0 if unknown. */
static long heap_bytes(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    return (long)mallinfo2().uordblks;
#else
    return 0;
#endif
}

typedef struct {
    int fds, threads, mappings;
    long rss_kib, heap_bytes;
} usage_t;

static usage_t usage(void)
{
    return (usage_t){ open_files(), count_entries("/proc/self/task"),
                      count_lines("/proc/self/maps"), proc_status("VmRSS:"), heap_bytes() };
}

/* Make one more communicator, beside the job's own. */
static void once_more(rank_t *self, int number)
{
    rank_t inner = *self;
    tutti__conf_t conf;
    tutti__meet_t meet;
    char name[64];

    snprintf(name, sizeof(name), "tutti-test-%d-again-%d", ranks_tag(), number);
    tutti__conf_defaults(&conf);
    conf.shared.timeout_ms = 120000;
    if (self->arg != NULL)
        snprintf(conf.host_id, sizeof(conf.host_id), "host-%d", self->rank % 2);
    CHECK_OK(tutti__meet_local(name, (uint32_t)self->rank, (uint32_t)self->size, 120000, &meet));
    CHECK_OK(tutti__comm_open(&meet, NULL, &conf, &inner.inside));
    inner.comm = inner.inside->handle;
    work(&inner);
    CHECK_OK(tutti_barrier(inner.comm));
    tutti__comm_close(inner.inside);
}

static void often(rank_t *self)
{
    enum {
        WARM = 6
    };
    int times = whole || self->arg == NULL ? 106 : 46;
    usage_t before = { 0, 0, 0, 0, 0 }, after;

    for (int i = 0; i < times; i++) {
        if (i == WARM)
            before = usage();
        once_more(self, i);
    }
    /* pthread_join returns a little before the kernel removes the thread from /proc. */
    for (int i = 0; i < 10000 && count_entries("/proc/self/task") > before.threads; i++)
        usleep(1000);
    after = usage();
    /* A rank that leaves closes its sockets. So no rank may leave before all ranks have counted
       their sockets. */
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_INT(after.fds, before.fds);
    CHECK_INT(after.threads, before.threads);
#ifndef TUTTI__SANITIZED
    /* malloc may map or trim occasionally; each communicator has dozens of mappings. */
    if (after.mappings > before.mappings + 8)
        ranks_fail(__FILE__, __LINE__, "%d mappings, were %d", after.mappings, before.mappings);
    if (after.rss_kib > before.rss_kib + 1024)
        ranks_fail(__FILE__, __LINE__, "%ld KiB resident, were %ld", after.rss_kib, before.rss_kib);
    /* Measured: 22 KB after 100 times and after 400, because threads keep freed memory. */
    if (after.heap_bytes > before.heap_bytes + 40960)
        ranks_fail(__FILE__, __LINE__, "%ld bytes allocated, were %ld", after.heap_bytes,
                   before.heap_bytes);
#endif
}

int main(void)
{
    int failures = 0;

    if (!ranks_can_fork()) {
        fprintf(stderr, "ranks must be processes\n");
        return 77;
    }
    whole = test_is_long("5 ranks of one host, and 60 of 100 new communicators between hosts");
    board_open();
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        fprintf(stderr, "orphans would not be seen\n");
    go_private();
    printf("places are %s\n", private ? "private" : "shared: only names with tutti count");
    list_places(&before_all);
    for (finalizing = 0; finalizing < 2; finalizing++) {
        failures += endings(1, NULL);
        failures += endings(2, NULL);
        if (whole)
            failures += endings(5, NULL);
        failures += endings(4, "aabb");
    }
    for (int hosts = 0; hosts < 2; hosts++) {
        job_t job = { .size = 3, .fn = often, .arg = hosts ? &failures : NULL };

        RUN_JOB(failures, &job);
        failures += look_around();
    }
    return failures != 0;
}
