/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators of some of the ranks: their members, wrong calls, several groups at the same time,
 * and ends.
 */
#include "ranks.h"
#include "entries.h"
#include "long.h"

#include "base/compiler.h"
#include "base/time.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    N = 5000 /* more than the one-shot limit, also with two ranks */
};

static int whole;

/* ---- does a communicator work? ---- */

/* The ranks' numbers in the test's world, in order. */
typedef struct {
    int n, rank[16];
} members_t;

static void check_members(tutti_comm_t *comm, int me, const members_t *want)
{
    int all[16] = { 0 };

    CHECK_INT(tutti_size(comm), want->n);
    CHECK_INT(want->rank[tutti_rank(comm)], me);
    CHECK_OK(tutti_allgather(&me, all, 1, TUTTI_INT32, comm));
    for (int i = 0; i < want->n; i++)
        CHECK_INT(all[i], want->rank[i]);
}

/* Allreduces of each rank's number in the world: direct, with buffers of tutti_mem_alloc,
   and by name. */
static void work(tutti_comm_t *comm, int me, int times)
{
    int size = tutti_size(comm), sum = me;
    int *x = malloc(N * sizeof(*x)), *y;
    tutti_request_t *request;
    void *ptr;

    CHECK_OK(tutti_allreduce(&sum, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm));
    for (int t = 0; t < times; t++) {
        int count = t % 3 == 0 ? N : 1 + t % 50;

        for (int i = 0; i < count; i++)
            x[i] = me + i + t;
        if (t % 2 == 0) {
            CHECK_OK(tutti_allreduce(x, x, (size_t)count, TUTTI_INT32, TUTTI_SUM, comm));
        } else {
            CHECK_OK(tutti_allreduce_async("x", x, x, (size_t)count, TUTTI_INT32, TUTTI_SUM, comm,
                                           NULL, &request));
            CHECK_OK(tutti_wait(request, -1));
        }
        for (int i = 0; i < count; i++)
            CHECK_INT(x[i], sum + size * (i + t));
    }
    free(x);
    CHECK_OK(tutti_mem_alloc(comm, N * sizeof(*y), &ptr));
    y = ptr;
    y[N - 1] = me;
    CHECK_OK(tutti_allreduce(y, y, N, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK_INT(y[N - 1], sum);
    CHECK_OK(tutti_barrier(comm));
    CHECK_OK(tutti_mem_free(comm, ptr));
}

/* The ranks with this color, by ascending key of `sign` times the rank. */
static members_t with_color(int size, int color, int (*color_of)(int rank), int sign)
{
    members_t members = { 0, { 0 } };

    for (int i = 0; i < size; i++) {
        int rank = sign > 0 ? i : size - 1 - i;

        if (color_of(rank) == color)
            members.rank[members.n++] = rank;
    }
    return members;
}

/* After a barrier, all ranks free the group at the same time. Ranks that are threads share
   mappings; freeing at different times is not tested here. */
static void free_one(rank_t *self, tutti_comm_t *comm)
{
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(comm));
}

/* ---- members ---- */

static int parity(int rank)
{
    return rank % 2;
}

static int everybody(int rank)
{
    (void)rank;
    return INT_MAX;
}

static int alone(int rank)
{
    return 1000 - rank;
}

static int nobody(int rank)
{
    (void)rank;
    return TUTTI_COLOR_NONE;
}

static int not_the_first(int rank)
{
    return rank == 0 ? TUTTI_COLOR_NONE : 0;
}

static void split(rank_t *self)
{
    static int (*const colors[])(int rank) = { parity, everybody, alone, nobody, not_the_first };

    for (size_t c = 0; c < sizeof(colors) / sizeof(colors[0]); c++) {
        for (int sign = -1; sign <= 1; sign += 2) {
            int color = colors[c](self->rank);
            members_t want = with_color(self->size, color, colors[c], sign);
            tutti_comm_t *comm = self->comm;

            CHECK_OK(tutti_comm_split(self->comm, color, sign * self->rank, &comm));
            CHECK((comm == NULL) == (color == TUTTI_COLOR_NONE));
            if (comm != NULL) {
                check_members(comm, self->rank, &want);
                work(comm, self->rank, 4);
            }
            free_one(self, comm);
        }
    }
    work(self->comm, self->rank, 2);
}

/* Keys at their limits, and equal keys. */
static void keys(rank_t *self)
{
    static const int list[] = { 5, INT_MIN, 0, INT_MAX, -1, 0, 5, INT_MIN };
    members_t want = { 0, { 0 } };
    tutti_comm_t *comm;

    for (int i = 0; i < self->size; i++) {
        int at = want.n++;

        for (; at > 0 && list[want.rank[at - 1]] > list[i]; at--)
            want.rank[at] = want.rank[at - 1];
        want.rank[at] = i;
    }
    CHECK_OK(tutti_comm_split(self->comm, 3, list[self->rank], &comm));
    check_members(comm, self->rank, &want);
    free_one(self, comm);
}

/* Split, and split the result, until each rank is alone. */
static void deeper(rank_t *self)
{
    tutti_comm_t *comm = self->comm, *list[8];
    int depth = 0;

    while (tutti_size(comm) > 1) {
        CHECK_OK(tutti_comm_split(comm, tutti_rank(comm) % 2, -tutti_rank(comm), &list[depth]));
        comm = list[depth++];
        work(comm, self->rank, 2);
    }
    /* A group stays usable after its parent is freed. */
    CHECK_OK(tutti_barrier(self->comm));
    for (int i = 0; i < depth; i++)
        work(list[i], self->rank, 2);
    CHECK_OK(tutti_barrier(self->comm));
    for (int i = 0; i < depth; i++)
        CHECK_OK(tutti_comm_free(list[i]));
}

static void create(rank_t *self)
{
    members_t want = { 0, { 0 } };
    tutti_comm_t *comm = self->comm;
    int in = 0;

    /* First a group without ranks, then a group of all ranks in reverse order, then a group of
       every second rank, beginning with the last. */
    CHECK_OK(tutti_comm_create(self->comm, NULL, 0, &comm));
    CHECK(comm == NULL);
    for (int step = 1; step <= 2; step++) {
        want.n = in = 0;
        for (int rank = self->size - 1; rank >= 0; rank -= step) {
            in |= rank == self->rank;
            want.rank[want.n++] = rank;
        }
        CHECK_OK(tutti_comm_create(self->comm, want.rank, want.n, &comm));
        CHECK((comm != NULL) == in);
        if (comm != NULL) {
            check_members(comm, self->rank, &want);
            work(comm, self->rank, 4);
        }
        free_one(self, comm);
    }
}

/* ---- mistakes ---- */

#define CHECK_SAYS(words)                                                                          \
    do {                                                                                           \
        if (strstr(tutti_last_error(), words) == NULL)                                             \
            ranks_fail(__FILE__, __LINE__, "'%s' does not say '%s'", tutti_last_error(), words);   \
    } while (0)

/* If the last rank makes a wrong call, all ranks get an error, and the parent continues. */
static void mistakes(rank_t *self)
{
    int last = self->size - 1, odd = self->rank == last;
    int list[16], other[16], x = 0;
    tutti_comm_t *comm = self->comm;

    for (int i = 0; i < self->size; i++) {
        list[i] = i;
        other[i] = self->size - 1 - i;
    }
    CHECK_STATUS(tutti_comm_split(self->comm, odd ? -2 : 0, 0, &comm), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_SAYS("color -2");
    CHECK_STATUS(tutti_comm_split(self->comm, 0, 0, odd ? NULL : &comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_SAYS("ret_comm is NULL");
    CHECK_STATUS(tutti_comm_create(self->comm, list, self->size + odd, &comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_comm_create(self->comm, list, odd ? -1 : 1, &comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_comm_create(self->comm, odd ? NULL : list, 1, &comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_SAYS("ranks is NULL");
    list[0] = odd ? self->size : 0;
    CHECK_STATUS(tutti_comm_create(self->comm, list, self->size, &comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_SAYS("is no rank");
    list[0] = odd ? last : 0;
    if (self->size > 1) {
        CHECK_STATUS(tutti_comm_create(self->comm, list, self->size, &comm),
                     TUTTI_ERR_INVALID_ARGUMENT);
        CHECK_SAYS("twice");
        list[0] = 0;
        CHECK_STATUS(tutti_comm_create(self->comm, odd ? list : other, self->size, &comm),
                     TUTTI_ERR_MISMATCH);
        CHECK_SAYS("different lists");
        CHECK_STATUS(odd ? tutti_comm_split(self->comm, 0, 0, &comm)
                         : tutti_comm_create(self->comm, list, self->size, &comm),
                     TUTTI_ERR_MISMATCH);
    }
    CHECK(comm == self->comm);
    CHECK_STATUS(tutti_comm_split(NULL, 0, 0, &comm), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_comm_create(NULL, list, 1, &comm), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_comm_free(self->comm), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_SAYS("tutti_finalize");
    CHECK_OK(tutti_comm_free(NULL));
    CHECK_OK(tutti_allreduce(&x, &x, 1, TUTTI_INT32, TUTTI_SUM, self->comm));
    split(self);
}

/* ---- several at the same time ---- */

typedef struct {
    tutti_comm_t *comm;
    int me, times;
} task_t;

static void *work_there(void *arg)
{
    task_t *task = arg;

    work(task->comm, task->me, task->times);
    return NULL;
}

/* Separate threads use the rows, the columns and the world at the same time; some calls have
   names. */
static void overlapping(rank_t *self)
{
    task_t task[3];
    pthread_t thread[3];
    tutti_comm_t *row, *column;

    CHECK_OK(tutti_comm_split(self->comm, self->rank / 2, 0, &row));
    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, 0, &column));
    for (int i = 0; i < 3; i++) {
        task[i] = (task_t){ i == 0 ? row : i == 1 ? column : self->comm, self->rank, 60 };
        pthread_create(&thread[i], NULL, work_there, &task[i]);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    free_one(self, row);
    work(column, self->rank, 2);
    free_one(self, column);
}

/* Groups of the world are made and freed while another group is in use. */
static void beside_work(rank_t *self)
{
    pthread_t thread;
    tutti_comm_t *busy, *comm;
    task_t task;

    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, 0, &busy));
    task = (task_t){ busy, self->rank, 150 };
    pthread_create(&thread, NULL, work_there, &task);
    for (int i = 0; i < 6; i++) {
        CHECK_OK(tutti_comm_split(self->comm, (self->rank + i) / 2, -self->rank, &comm));
        work(comm, self->rank, 2);
        free_one(self, comm);
    }
    pthread_join(thread, NULL);
    free_one(self, busy);
}

/* Two threads make groups of two communicators at the same time. */
static void *split_again(void *arg)
{
    task_t *task = arg;

    for (int i = 0; i < task->times; i++) {
        tutti_comm_t *comm;

        CHECK_OK(tutti_comm_split(task->comm, tutti_rank(task->comm) / 2, 0, &comm));
        work(comm, task->me, 2);
        CHECK_OK(tutti_barrier(task->comm));
        CHECK_OK(tutti_comm_free(comm));
    }
    return NULL;
}

static void made_at_once(rank_t *self)
{
    tutti_comm_t *one, *two;
    task_t task[2];
    pthread_t thread[2];

    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &one));
    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, -self->rank, &two));
    for (int i = 0; i < 2; i++) {
        task[i] = (task_t){ i == 0 ? one : two, self->rank, 4 };
        pthread_create(&thread[i], NULL, split_again, &task[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    free_one(self, one);
    free_one(self, two);
}

/* The error of a rank whose peer has freed a group. */
static void check_freed(tutti_comm_t *comm, const char *who)
{
    tutti_request_t *request;
    float x = 1;

    CHECK_STATUS(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm), TUTTI_ERR_SHUTDOWN);
    CHECK_SAYS(who);
    CHECK_SAYS("has freed this communicator (tutti_comm_free");
    CHECK_STATUS(
        tutti_allreduce_async("y", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL, &request),
        TUTTI_ERR_SHUTDOWN);
    CHECK_SAYS(who);
    CHECK_OK(tutti_comm_free(comm));
}

/* One rank frees a group in which requests are pending; its peers must get this error. */
static void freed_pending(rank_t *self)
{
    static const char *const who[] = { "rank 3 of the group (world rank 0) has",
                                       "rank 2 of the group (world rank 1) has",
                                       "rank 1 of the group (world rank 2) has",
                                       "rank 0 of the group (world rank 3) has" };

    for (int leaver = 0; leaver < self->size; leaver++) {
        uint64_t begin = tutti__now_ns();
        tutti_request_t *request;
        tutti_comm_t *comm;
        float x = 1;

        CHECK_OK(tutti_comm_split(self->comm, 0, -self->rank, &comm));
        if (self->rank != (leaver + 1) % self->size)
            CHECK_OK(tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL,
                                           &request));
        CHECK_OK(tutti_barrier(self->comm));
        if (self->rank == leaver)
            CHECK_OK(tutti_comm_free(comm));
        if (self->rank != (leaver + 1) % self->size)
            CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_SHUTDOWN);
        CHECK_SAYS(self->rank == (leaver + 1) % self->size ? "" : "tutti_comm_free");
        if (self->rank != leaver)
            check_freed(comm, who[leaver]);
        work(self->comm, self->rank, 4);
        CHECK(tutti__now_ns() - begin < 50000000000u);
        CHECK_OK(tutti_barrier(self->comm));
    }
}

/* While a tensor is in flight, two ranks free a group, one after the other, in all orders. All
   ranks get the sum, or the report of the end. */
static void freed_in_flight(rank_t *self)
{
    int rounds = whole ? 36 : 12, delay = 360 / rounds;

    for (int i = 0; i < rounds; i++) {
        int first = i % self->size, second = (first + 1 + i / self->size % 3) % self->size;
        uint64_t begin = tutti__now_ns();
        tutti_request_t *request;
        tutti_status_t status;
        tutti_comm_t *comm;
        float x = 1;

        CHECK_OK(tutti_comm_split(self->comm, 0, 0, &comm));
        /* The first rank may have left before this call. */
        status =
            tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL, &request);
        if (self->rank == second)
            usleep((unsigned)(i * delay));
        if (self->rank == first || self->rank == second)
            CHECK_OK(tutti_comm_free(comm));
        if (status == TUTTI_OK)
            status = tutti_wait(request, -1);
        if (status != TUTTI_OK)
            CHECK_STATUS(status, TUTTI_ERR_SHUTDOWN);
        else
            CHECK_INT(x, self->size);
        CHECK(tutti__now_ns() - begin < 50000000000u);
        /* The others leave when all are done. */
        CHECK_OK(tutti_barrier(self->comm));
        if (self->rank != first && self->rank != second)
            CHECK_OK(tutti_comm_free(comm));
    }
}

static void aborted(rank_t *self)
{
    tutti_comm_t *comm, *other;

    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, 0, &comm));
    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, 0, &other));
    if (self->rank == 2)
        CHECK_OK(tutti_abort(comm, "for the test"));
    if (self->rank % 2 == 0) {
        CHECK_STATUS(tutti_barrier(comm), TUTTI_ERR_PEER_LOST);
        CHECK_SAYS("rank 1 of the group (world rank 2) called tutti_abort: for the test");
    } else {
        work(comm, self->rank, 4);
    }
    work(other, self->rank, 4);
    work(self->comm, self->rank, 4);
    /* The dead group is freed with its parent at the end. */
    free_one(self, other);
}

/* Ranks 2 and 3 are a group. Rank 2 does not make a direct call, and then does not make an
   asynchronous call. */
static void late(rank_t *self)
{
    tutti_request_t *request;
    tutti_comm_t *comm[2];
    float x = 0;

    for (int i = 0; i < 2; i++) {
        CHECK_OK(tutti_comm_split(self->comm, self->rank / 2, -self->rank, &comm[i]));
        ranks_inside(comm[i])->conf.shared.timeout_ms = 700;
    }
    if (self->rank == 3) {
        CHECK_STATUS(tutti_barrier(comm[0]), TUTTI_ERR_TIMEOUT);
        CHECK_SAYS("rank 0 of the group (world rank 3) waited");
        CHECK_SAYS("for rank 1 of the group (world rank 2)");
        CHECK_OK(tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm[1], NULL,
                                       &request));
        CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_TIMEOUT);
        CHECK_SAYS("rank 0 of the group (world rank 3) waited");
        CHECK_SAYS("rank 1 of the group (world rank 2) has not submitted it");
    }
    while (self->rank == 2 && tutti__watch_alive(ranks_inside(comm[1])->watch) == TUTTI_OK)
        usleep(1000);
    if (self->rank == 2) {
        CHECK_STATUS(tutti_barrier(comm[0]), TUTTI_ERR_TIMEOUT);
        CHECK_SAYS("rank 0 of the group (world rank 3) waited");
    }
}

/* ---- deaths; processes only ---- */

static void kill_one(rank_t *self)
{
    tutti_comm_t *comm;
    int victim = 1;

    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, 0, &comm));
    work(comm, self->rank, 2);
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == victim) {
        usleep(50000);
        kill(getpid(), SIGKILL);
    }
    CHECK_STATUS(tutti_barrier(self->comm), TUTTI_ERR_PEER_LOST);
    CHECK_SAYS("rank 1 was lost");
    if (self->rank % 2 == victim % 2) {
        CHECK_STATUS(tutti_barrier(comm), TUTTI_ERR_PEER_LOST);
        CHECK_SAYS("rank 0 of the group (world rank 1) was lost");
        CHECK_STATUS(tutti_comm_split(comm, 0, 0, &comm), TUTTI_ERR_PEER_LOST);
    } else {
        work(comm, self->rank, 40);
        CHECK_OK(tutti_comm_split(comm, 0, 0, &comm));
        work(comm, self->rank, 2);
    }
}

/* Rank 1 never takes part in making the new group: it is killed while the others wait. */
static void kill_while_making(rank_t *self)
{
    uint64_t begin = tutti__now_ns();
    tutti_comm_t *comm;

    if (self->rank == 1) {
        /* The alarm kills this rank. */
        alarm(1);
        pause();
    }
    CHECK_STATUS(tutti_comm_split(self->comm, 0, 0, &comm), TUTTI_ERR_PEER_LOST);
    CHECK(tutti__now_ns() - begin < 50000000000u);
}

/* ---- limits ---- */

static long resident_kib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[128];
    long kib = -1;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = atol(line + 6);
    if (file != NULL)
        fclose(file);
    return kib;
}

/* The last rank may open only a few files. The library raises the soft limit, so only a hard limit
   is an error. */
static void too_many_files(rank_t *self)
{
    tutti_comm_t *comm, *other;
    struct rlimit limit;
    int odd = self->rank == self->size - 1;

    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &other));
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)open_files() + 4;
    if (odd)
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &comm));
    work(comm, self->rank, 2);
    limit.rlim_cur = limit.rlim_max = (rlim_t)open_files() + 4;
    if (odd)
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    CHECK_STATUS(tutti_comm_split(self->comm, 0, 0, &comm), TUTTI_ERR_NO_MEMORY);
    CHECK_SAYS("more files are needed");
    work(other, self->rank, 2);
}

static void often(rank_t *self)
{
    enum {
        WARM = 10
    };
    int times = whole ? 110 : 60;
    int files = 0;
    long kib = 0;
    uint64_t begin = 0;

    for (int i = 0; i < times; i++) {
        tutti_comm_t *comm;

        if (i == WARM) {
            files = open_files();
            kib = resident_kib();
            begin = tutti__now_ns();
        }
        CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, 0, &comm));
        work(comm, self->rank, 2);
        CHECK_OK(tutti_barrier(comm));
        CHECK_OK(tutti_comm_free(comm));
    }
    if (self->rank == 0)
        printf("%d ranks: %.2f ms for a split in two, some work and a free\n", self->size,
               (double)(tutti__now_ns() - begin) * 1e-6 / (times - WARM));
    CHECK_INT(open_files(), files);
#ifdef TUTTI__SANITIZED
    kib = LONG_MAX - 1024; /* no limit is tested: a sanitizer keeps freed memory */
#endif
    if (resident_kib() > kib + 1024)
        ranks_fail(__FILE__, __LINE__, "%ld KiB resident, were %ld", resident_kib(), kib);
    /* A rank that leaves closes its sockets. So no rank may leave before all ranks have counted
       their sockets. */
    CHECK_OK(tutti_barrier(self->comm));
}

static void many(rank_t *self)
{
    enum {
        MOST = 200
    };
    tutti_comm_t *comm[MOST];
    int count = whole ? MOST : 60;
    struct rlimit limit;
    int files = open_files();
    long kib = resident_kib();
    uint64_t begin;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 8000)
        return;
    begin = tutti__now_ns();
    for (int i = 0; i < count; i++)
        CHECK_OK(tutti_comm_split(self->comm, 0, i % 2 ? self->rank : -self->rank, &comm[i]));
    if (self->rank < 2)
        printf("rank %d of %d: %d communicators: %.2f ms, %.1f files, %ld KiB each\n", self->rank,
               self->size, count, (double)(tutti__now_ns() - begin) * 1e-6 / count,
               (double)(open_files() - files) / count, (resident_kib() - kib) / count);
    for (int i = 0; i < count; i += 7)
        work(comm[i], self->rank, 2);
    /* The other groups are freed with the world. */
    for (int i = 0; i < count; i += 2)
        CHECK_OK(tutti_comm_free(comm[i]));
}

/* ---- memory in flight ---- */

static int still_reads(tutti__xport_t *xport)
{
    (void)xport;
    return 1;
}

static void close_nothing(tutti__xport_t *xport)
{
    (void)xport;
}

/* Is the memory mapped? The kernel checks this without a signal. */
static int is_mapped(const void *memory)
{
    int fds[2], mapped;

    CHECK(pipe(fds) == 0);
    mapped = write(fds[1], memory, 1) == 1;
    close(fds[0]);
    close(fds[1]);
    return mapped;
}

/* A group ends while its transport may still read sent messages. */
static void kept(rank_t *self)
{
    static const tutti__xport_ops_t ops = { .close = close_nothing, .keeps = still_reads };
    tutti__xport_t xport = { .ops = &ops };
    tutti_comm_t *comm;
    tutti__comm_t *inside;
    const void *scratch;
    void *memory;
    float *x = calloc(1 << 20, sizeof(*x));

    CHECK(x != NULL);
    CHECK_OK(tutti_comm_split(self->comm, 0, self->rank, &comm));
    CHECK_OK(tutti_mem_alloc(comm, 1 << 20, &memory));
    CHECK_OK(tutti_reduce(x, x, 1 << 20, TUTTI_FLOAT32, TUTTI_SUM, 0, comm));
    inside = ranks_inside(comm);
    scratch = tutti__comm_state(inside)->op.run.scratch;
    CHECK(self->rank != 0 || scratch != NULL);
    inside->mpi = &xport;
    CHECK_OK(tutti_comm_free(comm));
    CHECK(is_mapped(memory));
    CHECK(scratch == NULL || is_mapped(scratch));
    free(x);
}

int main(void)
{
    static const int sizes[] = { 1, 4, 3, 2, 5, 8 };
    static const char *const hosts[] = { "a", "abab", "aab", "ab", "aabbc", "aaaabbbb" };
    static const char *const four[] = { NULL, "abab", "aabb", "abcd" };
    static const rank_fn_t any[] = { split, keys, deeper, create };
    static const rank_fn_t some[] = { overlapping, beside_work, made_at_once, aborted };
    int failures = 0, can_fork = ranks_can_fork();

    whole = test_is_long("2, 3, 5 and 8 ranks, most of the hosts, most of the jobs with threads "
                         "(with ThreadSanitizer on one host), two of three rounds of early ends, "
                         "50 of 100 repeated splits, and 140 of 200 communicators");
    for (size_t s = 0; s < (whole ? sizeof(sizes) / sizeof(sizes[0]) : 2); s++) {
        job_t job = { .size = sizes[s] };

        for (int several = 0; several < 2; several++) {
            job.hosts = several ? hosts[s] : NULL;
            for (job.threads = !can_fork; job.threads < 2; job.threads++) {
                /* With ThreadSanitizer ranks are always threads. */
                if (!whole && (can_fork ? job.threads != several : !several))
                    continue;
                for (size_t f = 0; f < sizeof(any) / sizeof(any[0]); f++) {
                    job.fn = any[f];
                    RUN_JOB(failures, &job);
                }
            }
        }
    }
    for (int threads = !can_fork; threads < (whole || !can_fork ? 2 : 1); threads++) {
        job_t job = { .size = 4, .threads = threads };

        job.fn = mistakes;
        RUN_JOB(failures, &job);
        job.size = 1;
        RUN_JOB(failures, &job);
        job.size = 4;
        for (size_t h = 0; h < (whole ? sizeof(four) / sizeof(four[0]) : 2); h++) {
            job.hosts = four[h];
            job.fn = freed_pending;
            RUN_JOB(failures, &job);
            job.fn = freed_in_flight;
            RUN_JOB(failures, &job);
            job.algorithm = "allreduce:ring";
            RUN_JOB(failures, &job);
            job.algorithm = NULL;
        }
        for (int several = 0; several < 2; several++) {
            job.hosts = several ? "aabb" : NULL;
            for (size_t f = 0; f < sizeof(some) / sizeof(some[0]); f++) {
                job.fn = some[f];
                RUN_JOB(failures, &job);
            }
        }
    }
    /* Not with TSan: `late` changes a setting that the engines' threads read. */
    for (int several = 0; several < 2 && can_fork; several++) {
        job_t job = { .size = 4, .hosts = several ? "abab" : NULL, .threads = 1, .fn = late };

        RUN_JOB(failures, &job);
    }
    if (can_fork) {
        job_t job = { .size = 4, .fn = too_many_files };

        RUN_JOB(failures, &job);
        job.hosts = "aabb";
        job.fn = kept;
        RUN_JOB(failures, &job);
        job.hosts = NULL;
        job.fn = often;
        RUN_JOB(failures, &job);
        job.fn = many;
        RUN_JOB(failures, &job);
        job.killed = 1u << 1;
        job.fn = kill_one;
        RUN_JOB(failures, &job);
        job.fn = kill_while_making;
        RUN_JOB(failures, &job);
        job.hosts = "aabb";
        RUN_JOB(failures, &job);
        job.fn = kill_one;
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
