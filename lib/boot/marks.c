/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections between the marks of the ranks. See marks.h.
 *
 * Each rank first listens at its socket, then tries to connect to the sockets of all other ranks.
 * In each pair of ranks, the rank that listens later finds the socket of the other rank. So each
 * pair has a connection, in whatever order the ranks start.
 *
 * Both ends read the peer's process id from the connection (SO_PEERCRED). The listener reads the
 * connecting rank's number from the name to which that rank has bound its end. A connection stays
 * in the listener's queue even if the connecting rank closes its end or dies. No data are sent.
 */
#include "boot/marks.h"

#include "base/hash.h"
#include "base/log.h"
#include "boot/boot_inside.h"
#include "boot/waiting.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The value of pid[r] if r is this rank, or a detected rank in another pid namespace. */
#define HIDDEN (-1)

struct tutti__marks {
    uint64_t job;
    uint32_t rank, size; /* as the launcher numbers the ranks */
    uint32_t local_size; /* the launcher's number of ranks on this host; 0: not known */
    const char *launcher;
    tutti__waiting_t waiting; /* for tutti__marks_still */
    int door;                 /* the socket */
    int pid[];                /* [size]; 0: the rank is not detected */
};

/* Compute the job's hash. Returns 0 if the job has no name, and its ranks no common parent. */
static int hash_job(int size, uint64_t *ret_hash)
{
    char job[512];

    tutti__conf_launcher_job(job, sizeof(job));
    if (job[0] == '\0' && getppid() <= 1)
        return 0;
    /* If the job has no name, its ranks are the processes with the same parent process. */
    if (job[0] == '\0')
        snprintf(job, sizeof(job), "%d of %d", (int)getppid(), size);
    *ret_hash = tutti__hash(job, strlen(job));
    return 1;
}

/* Write an address of a socket. If `caller` is "", the socket is the one at which `rank` listens.
   If `caller` is "-R", the socket is rank R's end of a connection to `rank`. */
static socklen_t address_of(const tutti__marks_t *marks, uint32_t rank, const char *caller,
                            struct sockaddr_un *ret_addr)
{
    size_t capacity = sizeof(ret_addr->sun_path) - 1;
    int n;

    memset(ret_addr, 0, sizeof(*ret_addr));
    ret_addr->sun_family = AF_UNIX;
    n = snprintf(ret_addr->sun_path + 1, capacity, "tutti-mpi-init-%u-%016llx-%u%s",
                 (unsigned)getuid(), (unsigned long long)marks->job, rank, caller);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Store the process id of `rank`, which is at the other end of a connection. */
static void note(tutti__marks_t *marks, uint32_t rank, int fd)
{
    struct ucred cred = { 0 };
    socklen_t bytes = sizeof(cred);

    /* Check the user, because any user can make a socket of this name. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) == 0 && cred.uid == geteuid())
        marks->pid[rank] = cred.pid > 0 ? cred.pid : HIDDEN;
}

/* Connect to the ranks that listen already. If a rank's queue is full (EAGAIN), that rank and this
   rank do not detect each other. */
static void greet(tutti__marks_t *marks)
{
    char caller[24];

    snprintf(caller, sizeof(caller), "-%u", marks->rank);
    for (uint32_t r = 0; r < marks->size; r++) {
        struct sockaddr_un mine, theirs;
        socklen_t mine_bytes = address_of(marks, r, caller, &mine);
        socklen_t theirs_bytes = address_of(marks, r, "", &theirs);
        int fd =
            r == marks->rank ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0)
            continue;
        if (bind(fd, (struct sockaddr *)&mine, mine_bytes) == 0 &&
            connect(fd, (struct sockaddr *)&theirs, theirs_bytes) == 0)
            note(marks, r, fd);
        close(fd);
    }
}

/* Accept the connections in the queue, and store their ranks. */
static void admit(tutti__marks_t *marks)
{
    struct sockaddr_un addr;
    socklen_t bytes = sizeof(addr);
    int fd;

    while ((fd = accept4(marks->door, (struct sockaddr *)&addr, &bytes,
                         SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        size_t length = bytes - offsetof(struct sockaddr_un, sun_path);
        const char *dash;

        addr.sun_path[TUTTI__MIN(length, sizeof(addr.sun_path) - 1)] = '\0';
        dash = length > 1 ? strrchr(addr.sun_path + 1, '-') : NULL;
        if (dash != NULL && strtoul(dash + 1, NULL, 10) < marks->size)
            note(marks, (uint32_t)strtoul(dash + 1, NULL, 10), fd);
        close(fd);
        bytes = sizeof(addr);
    }
}

static int open_door(const tutti__marks_t *marks)
{
    struct sockaddr_un addr;
    socklen_t bytes = address_of(marks, marks->rank, "", &addr);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && bind(fd, (struct sockaddr *)&addr, bytes) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    TUTTI__LOG(TUTTI__LOG_DEBUG, "no mark of this rank for MPI");
    if (fd >= 0)
        close(fd);
    return -1;
}

tutti__marks_t *tutti__marks_open(void)
{
    const char *launcher = "";
    int size = tutti__conf_launcher_size(&launcher), rank = tutti__conf_launcher_own_rank();
    tutti__marks_t *marks = NULL;
    uint64_t job;

    if (rank >= 0 && rank < size && hash_job(size, &job))
        marks = calloc(1, sizeof(*marks) + (size_t)size * sizeof(marks->pid[0]));
    if (marks == NULL)
        return NULL;
    marks->job = job;
    marks->rank = (uint32_t)rank;
    marks->size = (uint32_t)size;
    marks->local_size = (uint32_t)tutti__conf_launcher_local_size();
    marks->launcher = launcher;
    marks->pid[rank] = HIDDEN;
    marks->door = open_door(marks);
    if (marks->door < 0) {
        free(marks);
        return NULL;
    }
    greet(marks);
    return marks;
}

int tutti__marks_fit(const tutti__marks_t *marks, uint32_t rank, uint32_t size)
{
    return marks != NULL && marks->rank == rank && marks->size == size;
}

uint32_t tutti__marks_find(tutti__marks_t *marks, unsigned char *ret_here)
{
    uint32_t count = 0;

    admit(marks);
    for (uint32_t r = 0; r < marks->size; r++)
        count += ret_here[r] =
            (unsigned char)(marks->pid[r] != 0 && !tutti__boot_has_ended(marks->pid[r]));
    return count;
}

int tutti__marks_describe(tutti__marks_t *marks, char *ret_text, size_t text_bytes)
{
    unsigned char *listed = calloc(marks->size, 1);
    int missing = 0, ended = 0;
    char ranks[256], host[] = " on this host";
    uint32_t count, lowest = 0;

    if (listed == NULL)
        return 0;
    count = tutti__marks_find(marks, listed);
    while (!listed[lowest]) /* ends at this rank at the latest */
        lowest++;
    if (marks->local_size == marks->size && count < marks->size) {
        missing = 1;
        count = marks->size - count;
        for (uint32_t r = 0; r < marks->size; r++) {
            listed[r] = !listed[r];
            ended |= listed[r] && marks->pid[r] != 0;
        }
    }
    tutti__net_list_ranks(listed, marks->size, ranks, sizeof(ranks));
    free(listed);
    snprintf(ret_text, text_bytes, "of the %u ranks that %s started%s, %s %s%s called tutti_init%s",
             marks->local_size > 0 ? marks->local_size : marks->size, marks->launcher,
             marks->local_size > 0 ? host : "", ranks, count == 1 ? "has" : "have",
             missing ? " not" : "", ended ? ", or ended in it" : "");
    return lowest == marks->rank;
}

static void warn_of_missing(tutti__marks_t *marks)
{
    double waited_s;
    char text[400];

    if (tutti__waiting_now(&marks->waiting, &waited_s) &&
        tutti__marks_describe(marks, text, sizeof(text)))
        TUTTI__LOG(TUTTI__LOG_WARN, "rank %u has waited %.1f s in tutti_init: %s", marks->rank,
                   waited_s, text);
}

tutti_status_t tutti__marks_still(void *arg)
{
    tutti__marks_t *marks = arg;
    unsigned char *dead;
    tutti_status_t status = TUTTI_OK;

    admit(marks);
    dead = calloc(marks->size, 1);
    for (uint32_t r = 0; dead != NULL && r < marks->size; r++)
        dead[r] = (unsigned char)tutti__boot_has_ended(marks->pid[r]);
    if (dead != NULL)
        status = tutti__boot_report_dead(dead, marks->size);
    free(dead);
    if (status == TUTTI_OK)
        warn_of_missing(marks);
    return status;
}

void tutti__marks_close(tutti__marks_t *marks)
{
    if (marks == NULL)
        return;
    close(marks->door);
    free(marks);
}
