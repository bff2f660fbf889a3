/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti_join: ranks with different numbers of batches end an epoch together. */
#include "engine/steps.h"
#include "long.h"
#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    N = 200,
    LARGE = 40000
};

/* A rank's batches in an epoch, and the number of ranks that take part in step s. */
static int batches_of(int rank, int size, int epoch)
{
    return epoch % 2 == 0 ? rank : 2 * (size - 1 - rank);
}

static int works(int rank, int size, int epoch, int step)
{
    return step < batches_of(rank, size, epoch);
}

static int busiest(int size, int epoch)
{
    return epoch % 2 == 0 ? size - 1 : 0;
}

static double sum_of(int size, int epoch, int step, int i)
{
    double sum = 0;

    for (int r = 0; r < size; r++)
        if (works(r, size, epoch, step))
            sum += (r + 1) * size + i % 8;
    return sum;
}

typedef struct {
    float sum[N], avg[N], large[LARGE], scatter[N];
    int32_t tell[N], reduced[N];
    float *parts;
    size_t *counts;
} batch_t;

static void fill(const rank_t *self, batch_t *b, int step)
{
    for (int i = 0; i < LARGE; i++)
        b->large[i] = (float)((self->rank + 1) * self->size + i % 8);
    memcpy(b->sum, b->large, sizeof(b->sum));
    memcpy(b->avg, b->large, sizeof(b->avg));
    for (int i = 0; i < N; i++) {
        b->reduced[i] = (self->rank + 1) * self->size + i % 8;
        b->tell[i] = self->rank * 1000 + step * 10 + i;
    }
}

static void start(rank_t *self, batch_t *b, int epoch, tutti_request_t **r)
{
    tutti_comm_t *c = self->comm;
    int root = busiest(self->size, epoch);
    size_t part = N / (size_t)self->size;

    CHECK_OK(
        tutti_allreduce_async("sum", b->sum, b->sum, N, TUTTI_FLOAT32, TUTTI_SUM, c, NULL, &r[0]));
    CHECK_OK(
        tutti_allreduce_async("avg", b->avg, b->avg, N, TUTTI_FLOAT32, TUTTI_AVG, c, NULL, &r[1]));
    CHECK_OK(tutti_allreduce_async("large", b->large, b->large, LARGE, TUTTI_FLOAT32, TUTTI_SUM, c,
                                   NULL, &r[2]));
    CHECK_OK(tutti_broadcast_async("tell", b->tell, N, TUTTI_INT32, root, c, NULL, &r[3]));
    CHECK_OK(tutti_reduce_async("reduced", b->reduced, b->reduced, N, TUTTI_INT32, TUTTI_SUM, root,
                                c, NULL, &r[4]));
    CHECK_OK(tutti_reduce_scatter_async("scatter", b->parts, b->scatter, part, TUTTI_FLOAT32,
                                        TUTTI_SUM, c, NULL, &r[5]));
    CHECK_OK(tutti_barrier_async("barrier", c, NULL, &r[6]));
    CHECK_OK(tutti_allgatherv_async("gather", b->parts, (size_t)self->rank + 1, NULL, NULL, NULL,
                                    TUTTI_FLOAT32, c, NULL, &r[7]));
}

static void gather(rank_t *self, tutti_request_t *r, int epoch, int step)
{
    float *all = calloc((size_t)(self->size + 1) * (size_t)self->size, sizeof(*all));
    size_t counts[16], at = 0;

    CHECK_OK(tutti_request_recvcounts(r, -1, counts));
    for (int s = 0; s < self->size; s++)
        CHECK_INT(counts[s], works(s, self->size, epoch, step) ? s + 1 : 0);
    CHECK_OK(tutti_request_receive(r, all, NULL));
    CHECK_OK(tutti_wait(r, -1));
    for (int s = 0; s < self->size; s++)
        for (size_t i = 0; i < counts[s]; i++)
            CHECK_INT(all[at++], s);
    free(all);
}

static void verify(const rank_t *self, const batch_t *b, int epoch, int step)
{
    int size = self->size, root = busiest(size, epoch);
    size_t part = N / (size_t)size;
    int workers = 0, ranks = 0;

    for (int r = 0; r < size; r++) {
        workers += works(r, size, epoch, step);
        ranks += works(r, size, epoch, step) ? r : 0;
    }
    for (int i = 0; i < N; i++) {
        CHECK_INT(b->sum[i], sum_of(size, epoch, step, i));
        /* The average divides by the number of all ranks, joined or not. */
        if (b->avg[i] != (float)(sum_of(size, epoch, step, i) / size))
            ranks_fail(__FILE__, __LINE__, "avg %g, wanted %g", b->avg[i],
                       sum_of(size, epoch, step, i) / size);
        CHECK_INT(b->tell[i], root * 1000 + step * 10 + i);
        if (self->rank == root)
            CHECK_INT(b->reduced[i], sum_of(size, epoch, step, i));
    }
    for (int i = 0; i < LARGE; i += 7)
        CHECK_INT(b->large[i], sum_of(size, epoch, step, i));
    for (size_t i = 0; i < part; i++)
        CHECK_INT(b->scatter[i], ranks);
    (void)workers;
}

static void epochs(rank_t *self)
{
    static __thread batch_t b;
    int n = ranks_can_fork() ? 6 : 3;

    b.parts = calloc(N + 16, sizeof(*b.parts));
    for (int epoch = 0; epoch < n; epoch++) {
        int last = -1;

        for (int step = 0; works(self->rank, self->size, epoch, step); step++) {
            tutti_request_t *r[8];

            fill(self, &b, step);
            for (int i = 0; i < N + 16; i++)
                b.parts[i] = (float)self->rank;
            start(self, &b, epoch, r);
            gather(self, r[7], epoch, step);
            CHECK_OK(tutti_wait_all(r, 7, -1));
            verify(self, &b, epoch, step);
        }
        CHECK_OK(tutti_join(self->comm, &last));
        if (self->size > 1)
            CHECK_INT(last, busiest(self->size, epoch));
    }
    CHECK_OK(tutti_join(self->comm, NULL));
    free(b.parts);
}

/* ---- calls that are not served ---- */

static void refuse(rank_t *self, tutti_request_t *r)
{
    CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_last_error(), "joined") != NULL);
    (void)self;
}

static void refused(rank_t *self)
{
    float x[64] = { 0 }, y[64];
    size_t counts[16];
    tutti_request_t *r;
    tutti_call_t calls[2] = { TUTTI_CALL_INIT, TUTTI_CALL_INIT };
    tutti_request_t *both[2];
    int last;

    /* The last rank has joined, so it does not receive the message. */
    if (self->rank == self->size - 1) {
        CHECK_OK(tutti_join(self->comm, &last));
        return;
    }
    CHECK_OK(tutti_allreduce_async("max", x, x, 1, TUTTI_FLOAT32, TUTTI_MAX, self->comm, NULL, &r));
    refuse(self, r);
    CHECK_OK(
        tutti_broadcast_async("root", x, 1, TUTTI_FLOAT32, self->size - 1, self->comm, NULL, &r));
    refuse(self, r);
    CHECK_OK(tutti_alltoall_async("all", x, y, 1, TUTTI_FLOAT32, self->comm, NULL, &r));
    refuse(self, r);
    CHECK_OK(tutti_allgather_async("gather", x, y, 1, TUTTI_FLOAT32, self->comm, NULL, &r));
    refuse(self, r);
    for (int i = 0; i < self->size; i++)
        counts[i] = 1;
    CHECK_OK(tutti_allgatherv_async("gatherv", x, 1, y, counts, NULL, TUTTI_FLOAT32, self->comm,
                                    NULL, &r));
    refuse(self, r);
    CHECK_OK(tutti_send_async("send", x, 1, TUTTI_FLOAT32, self->size - 1, self->comm, NULL, &r));
    refuse(self, r);
    /* If a message of a ring has no receiver, the whole ring ends with an error on all ranks. */
    CHECK_OK(tutti_sendrecv_async("ring", x, 1, (self->rank + 1) % self->size, y, 1,
                                  (self->rank + self->size - 1) % self->size, TUTTI_FLOAT32,
                                  self->comm, NULL, &r));
    refuse(self, r);
    /* A refused tensor ends its whole group. */
    for (int i = 0; i < 2; i++) {
        calls[i].kind = TUTTI_CALL_ALLREDUCE;
        calls[i].name = i ? "sum" : "product";
        calls[i].sendbuf = calls[i].recvbuf = x + i;
        calls[i].count = 1;
        calls[i].dtype = TUTTI_FLOAT32;
        calls[i].op = i ? TUTTI_SUM : TUTTI_PROD;
    }
    CHECK_OK(tutti_submit(calls, 2, self->comm, both));
    refuse(self, both[0]);
    refuse(self, both[1]);
    /* Calls that are served still work. */
    x[0] = 1;
    CHECK_OK(tutti_allreduce_async("sum", x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &r));
    CHECK_OK(tutti_wait(r, -1));
    CHECK_INT(x[0], self->size - 1);
    x[0] = x[1] = 1;
    calls[0].op = TUTTI_SUM;
    CHECK_OK(tutti_submit(calls, 2, self->comm, both));
    CHECK_OK(tutti_wait_all(both, 2, -1));
    CHECK_INT(x[0] + x[1], 2 * (self->size - 1));
    CHECK_OK(tutti_join(self->comm, &last));
    CHECK(last < self->size - 1);
}

static atomic_int refused_all;

static void *look(void *arg)
{
    tutti_request_t *request = arg;
    int done = 0;

    while (!atomic_load(&refused_all) && !done)
        if (tutti_test(request, &done) != TUTTI_OK)
            break;
    return NULL;
}

static tutti_status_t sum_of_two(rank_t *self, const char *name)
{
    float x = 1;
    tutti_request_t *r;

    CHECK_OK(
        tutti_allreduce_async(name, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &r));
    return tutti_wait(r, -1);
}

/* A message to a joined rank is refused as soon as it is announced, by any thread that makes
   progress. At the same time the message's owner frees it. */
static void refused_often(rank_t *self)
{
    float x = 0, open = 1;
    tutti_request_t *r, *until;
    pthread_t thread;

    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0) {
        CHECK_OK(tutti_allreduce_async("open", &open, &open, 1, TUTTI_FLOAT32, TUTTI_SUM,
                                       self->comm, NULL, &until));
        CHECK_INT(pthread_create(&thread, NULL, look, until), 0);
        for (int i = 0; i < 5000; i++) {
            CHECK_OK(tutti_send_async("send", &x, 1, TUTTI_FLOAT32, 1, self->comm, NULL, &r));
            CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_UNSUPPORTED);
        }
        atomic_store(&refused_all, 1);
        pthread_join(thread, NULL);
        CHECK_OK(sum_of_two(self, "end"));
        CHECK_OK(tutti_wait(until, -1));
        CHECK_INT(open, 2);
    }
    if (self->rank == 2) {
        CHECK_OK(sum_of_two(self, "end"));
        CHECK_OK(sum_of_two(self, "open"));
    }
    CHECK_OK(tutti_join(self->comm, NULL));
}

static void pending(rank_t *self)
{
    float x = 1;
    tutti_request_t *r;
    int last = 99;

    CHECK_OK(tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &r));
    if (self->rank == 0 && self->size > 1)
        CHECK_STATUS(tutti_join(self->comm, &last), TUTTI_ERR_INVALID_ARGUMENT);
    if (self->rank == 0)
        CHECK_INT(last, 99);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_wait(r, -1));
    CHECK_INT(x, self->size);
    CHECK_OK(tutti_join(self->comm, &last));
    CHECK(last >= 0 && last < self->size);
}

/* Rank 0 cannot join while its tensor is pending. The other ranks submit the tensor late, after the
   barrier. */
static void late(rank_t *self)
{
    float x = 1;
    tutti_request_t *r;
    int last = 99;

    if (self->rank != 0) {
        CHECK_OK(tutti_barrier(self->comm));
        CHECK_OK(
            tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &r));
        CHECK_OK(tutti_wait(r, -1));
        CHECK_OK(tutti_join(self->comm, &last));
        return;
    }
    CHECK_OK(tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &r));
    CHECK_STATUS(tutti_join(self->comm, &last), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "pending") != NULL);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_wait(r, -1));
    CHECK_OK(tutti_join(self->comm, &last));
}

/* ---- ranks that die or leave meanwhile ---- */

static void dies(rank_t *self)
{
    if (self->rank == self->size - 1) {
        usleep(200000);
        raise(SIGKILL);
    }
    CHECK_STATUS(tutti_join(self->comm, NULL), TUTTI_ERR_PEER_LOST);
}

/* Every rank's error names the rank that has left first. Rank 0 gets this error, and leaves. Rank 1
   joins only after that. */
static void leaves(rank_t *self)
{
    char text[32];

    if (self->rank == self->size - 1) {
        usleep(200000);
        return;
    }
    for (int i = 0; self->rank == 1 && !tutti__watch_has_left(self->inside->watch, 0); i++) {
        CHECK(i < 30000);
        usleep(1000);
    }
    CHECK_STATUS(tutti_join(self->comm, NULL), TUTTI_ERR_SHUTDOWN);
    snprintf(text, sizeof(text), "rank %d has called", self->size - 1);
    CHECK(strstr(tutti_last_error(), text) != NULL);
}

/* ---- a rank leaves while others need a zero contribution ---- */

/* Flags that all processes share. HAS_BYE: rank 2 has received a goodbye. IS_CLOSED: rank 2's
   communicator is closed. */
enum {
    HAS_BYE,
    IS_CLOSED,
    HAS_ENDED, /* rank 0's join */
    FLAGS
};

static atomic_int *flags;

static void await_flag(int flag, int limit_ms)
{
    for (int i = 0; i < limit_ms && !atomic_load(&flags[flag]); i++)
        usleep(1000);
}

static void set_closed(void)
{
    atomic_store(&flags[IS_CLOSED], 1);
}

static void *watch_byes(void *arg)
{
    const rank_t *self = arg;

    for (int i = 0; i < 60000 && !tutti__watch_any_left(self->inside->watch); i++)
        usleep(1000);
    atomic_store(&flags[HAS_BYE], 1);
    return NULL;
}

/* Rank 2 has joined, and waits for rank 3 in the tree of the reduce. */
static void joins_meanwhile(rank_t *self)
{
    pthread_t thread;

    atexit(set_closed);
    CHECK_INT(pthread_create(&thread, NULL, watch_byes, self), 0);
    CHECK_STATUS(tutti_join(self->comm, NULL), TUTTI_ERR_SHUTDOWN);
    CHECK_INT(pthread_join(thread, NULL), 0);
}

/* Rank 1 leaves after its own part of the reduce. Rank 3 submits the reduce, and then makes no
   progress until rank 2 has received rank 1's goodbye. All ranks have agreed on the reduce, so it
   is served. */
static void leaves_early(rank_t *self)
{
    tutti__engine_t *e = self->inside->engine;
    tutti_request_t *r;
    float x = 1, y = 0;

    if (self->rank == 2) {
        joins_meanwhile(self);
        return;
    }
    if (self->rank == 3)
        tutti__token_await(&e->token);
    CHECK_OK(tutti_reduce_async("x", &x, &y, 1, TUTTI_FLOAT32, TUTTI_SUM, 0, self->comm, NULL, &r));
    if (self->rank == 3) {
        tutti__engine_step(e, TUTTI__STEP_WAITER);
        await_flag(HAS_BYE, 60000);
        await_flag(IS_CLOSED, 300); /* it must not be closed, so this time passes */
        tutti__engine_yield(e, TUTTI__STEP_WAITER);
    }
    CHECK_OK(tutti_wait(r, -1));
    if (self->rank == 0)
        CHECK_INT(y, 3);
}

static int early_leavers(void)
{
    job_t job = { .size = 4, .hosts = "abcd", .algorithm = "reduce:binomial", .fn = leaves_early };
    int failures = 0;

    flags = mmap(NULL, FLAGS * sizeof(*flags), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                 -1, 0);
    CHECK(flags != MAP_FAILED);
    RUN_JOB(failures, &job);
    return failures;
}

/* With a longer deadline, rank 1 may be scheduled later without an error. */
static unsigned never_ms;

static void short_deadline(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.timeout_ms = never_ms;
}

/* If the other ranks do nothing, the wait in tutti_join ends at the deadline, and the error names
   the missing ranks. While other ranks make calls, the wait continues. */
static void never(rank_t *self)
{
    float x = 1;
    tutti_request_t *r;

    if (self->rank == 0) {
        CHECK_STATUS(tutti_join(self->comm, NULL), TUTTI_ERR_TIMEOUT);
        CHECK(strstr(tutti_last_error(), "rank 1 has not called tutti_join") != NULL);
        atomic_store(&flags[HAS_ENDED], 1);
        return;
    }
    for (int i = 0; i < 8; i++) {
        usleep(150 * never_ms);
        CHECK_OK(
            tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &r));
        CHECK_OK(tutti_wait(r, -1));
    }
    await_flag(HAS_ENDED, 60000);
}

int main(void)
{
    static const int sizes[] = { 1, 2, 3, 5, 8 };
    static const char *const hosts[] = { "ab", "aabb", "abab", "aaabb" };
    int failures = 0, threads = !ranks_can_fork();
    int whole = test_is_long("2, 5 and 8 ranks of one host, three of four placings on hosts, and "
                             "long pauses of working ranks");

    for (size_t i = 0; i < 9; i++) {
        const char *host = i < 5 ? NULL : hosts[i - 5];
        int size = i < 5 ? sizes[i] : (int)strlen(host);
        job_t job = { .size = size, .hosts = host, .threads = threads, .fn = epochs };

        if ((threads || (!whole && i != 0)) && i != 2 && i != 6)
            continue;
        RUN_JOB(failures, &job);
        job.fn = pending;
        if (size == 1) {
            RUN_JOB(failures, &job);
            continue;
        }
        job.fn = late;
        RUN_JOB(failures, &job);
        job.fn = refused;
        RUN_JOB(failures, &job);
        if (threads)
            continue;
        job.fn = leaves;
        RUN_JOB(failures, &job);
        job.fn = dies;
        job.killed = 1u << (size - 1);
        RUN_JOB(failures, &job);
    }
    if (!threads) {
        job_t job = { .size = 3, .fn = refused_often };

        never_ms = whole ? 10000 : 2000;
        failures += early_leavers();
        RUN_JOB(failures, &job);
        job.size = 2;
        job.fn = never;
        job.settings = short_deadline;
        RUN_JOB(failures, &job);
        atomic_store(&flags[HAS_ENDED], 0);
        job.hosts = "ab";
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
