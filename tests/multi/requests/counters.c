/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti_comm_get_stats: known calls, and the exact counters on every rank, with and without
 * measured times, on one host and on two, while another thread reads them. Also tests which small
 * calls between hosts have their data in the frame that compares them ("ride").
 *
 * Fusion is off, so each tensor is a bucket. The names are new in each step, so no plan is learned.
 */
#include "ranks.h"

#include "base/time.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum {
    DIRECT = 20,  /* repeated allreduces */
    TENSORS = 12, /* asynchronous allreduces */
    COUNT = 100
};

static tutti_stats_t read_stats(const rank_t *self)
{
    tutti_stats_t stats = TUTTI_STATS_INIT;

    CHECK_OK(tutti_comm_get_stats(self->comm, &stats));
    CHECK_INT(stats.size, sizeof(stats));
    return stats;
}

/* ---- the calls ---- */

static void direct_calls(rank_t *self)
{
    float x[COUNT], y[8 * COUNT];
    size_t counts[8], n = (size_t)self->size, own = (size_t)self->rank + 1;
    int next = (self->rank + 1) % self->size, before = (self->rank + self->size - 1) % self->size;

    memset(x, 0, sizeof(x));
    for (size_t r = 0; r < n; r++)
        counts[r] = r + 1;
    for (int i = 0; i < DIRECT; i++)
        CHECK_OK(tutti_allreduce(x, x, 2, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK_OK(tutti_allreduce(x, y, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK_OK(tutti_allgather(x, y, COUNT, TUTTI_FLOAT32, self->comm));
    CHECK_OK(tutti_broadcast(x, COUNT, TUTTI_FLOAT32, 0, self->comm));
    CHECK_OK(tutti_allgatherv(x, own, y, counts, NULL, TUTTI_FLOAT32, self->comm));
    /* Only the root passes valid recvcounts; on other ranks they are not read. */
    CHECK_OK(tutti_gatherv(x, own, y, self->rank == 0 ? counts : (const size_t *)8, NULL,
                           TUTTI_FLOAT32, 0, self->comm));
    for (int i = 0; i < 3; i++)
        CHECK_OK(tutti_barrier(self->comm));
    if (self->size > 1)
        CHECK_OK(tutti_sendrecv(x, COUNT, next, y, COUNT, before, TUTTI_FLOAT32, self->comm));
    CHECK_STATUS(tutti_reduce(x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, 99, self->comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
}

static void check_direct(const rank_t *self, const tutti_stats_t *s)
{
    const uint64_t n = (uint64_t)self->size, all = n * (n + 1) / 2 * 4, messages = n > 1;
    const tutti_stats_count_t *direct = s->direct;

    CHECK_INT(direct[TUTTI_CALL_ALLREDUCE].operations, DIRECT + 1);
    CHECK_INT(direct[TUTTI_CALL_ALLREDUCE].bytes, 8 * DIRECT + 4 * COUNT);
    CHECK_INT(direct[TUTTI_CALL_ALLGATHER].operations, 1);
    CHECK_INT(direct[TUTTI_CALL_ALLGATHER].bytes, 4 * COUNT * n);
    CHECK_INT(direct[TUTTI_CALL_BROADCAST].bytes, 4 * COUNT);
    CHECK_INT(direct[TUTTI_CALL_ALLGATHERV].bytes, all);
    CHECK_INT(direct[TUTTI_CALL_GATHERV].bytes,
              self->rank == 0 ? all : ((uint64_t)self->rank + 1) * 4);
    CHECK_INT(direct[TUTTI_CALL_BARRIER].operations, 3);
    CHECK_INT(direct[TUTTI_CALL_BARRIER].bytes, 0);
    CHECK_INT(direct[TUTTI_CALL_SENDRECV].operations, messages);
    CHECK_INT(direct[TUTTI_CALL_SENDRECV].bytes, messages * 4 * COUNT);
    CHECK_INT(direct[TUTTI_CALL_REDUCE].operations, 0); /* the reduce has failed */
    CHECK_INT(s->direct_bytes.count, DIRECT + 8 + messages);
    CHECK_INT(s->direct_bytes.buckets[0], 3); /* the barriers */
    CHECK_INT(s->direct_ns.count, s->times ? DIRECT + 9 + messages : 0);
}

/* Names are new in each round. The last call has no name. */
static void requests(rank_t *self)
{
    tutti_request_t *request[TENSORS];
    float x[TENSORS][COUNT];
    char name[32];

    memset(x, 0, sizeof(x));
    for (int i = 0; i < TENSORS - 1; i++) {
        snprintf(name, sizeof(name), "tensor %d", i);
        CHECK_OK(tutti_allreduce_async(name, x[i], x[i], COUNT, TUTTI_FLOAT32, TUTTI_SUM,
                                       self->comm, NULL, &request[i]));
    }
    CHECK_OK(tutti_allreduce_async(NULL, x[TENSORS - 1], x[TENSORS - 1], COUNT, TUTTI_FLOAT32,
                                   TUTTI_SUM, self->comm, NULL, &request[TENSORS - 1]));
    CHECK_OK(tutti_wait_all(request, TENSORS, -1));
    /* All ranks get the mismatch. */
    CHECK_OK(tutti_allreduce_async("wrong", x, x, self->rank == 0 ? 1 : 2, TUTTI_FLOAT32, TUTTI_SUM,
                                   self->comm, NULL, &request[0]));
    CHECK_STATUS(tutti_wait(request[0], -1), self->size == 1 ? TUTTI_OK : TUTTI_ERR_MISMATCH);
}

static void check_requests(const rank_t *self, const tutti_stats_t *s)
{
    const uint64_t lone = self->size == 1, done = TENSORS + lone;

    CHECK_INT(s->requests, TENSORS + 1);
    CHECK_INT(s->failed, !lone);
    CHECK_INT(s->ordered, 1);
    CHECK_INT(s->buckets, TENSORS - 1 + lone);
    CHECK_INT(s->bucket_tensors, TENSORS - 1 + lone);
    CHECK_INT(s->bucket_bytes, (TENSORS - 1) * 4 * COUNT + 4 * lone);
    CHECK_INT(s->async[TUTTI_CALL_ALLREDUCE].operations, done);
    CHECK_INT(s->async[TUTTI_CALL_ALLREDUCE].bytes, TENSORS * 4 * COUNT + 4 * lone);
    CHECK_INT(s->async_bytes.count, done);
    CHECK_INT(s->async_ns.count, TENSORS + 1);
    CHECK(s->async_ns.sum > 0);
    /* A rank announces each tensor to its parent. Rank 0 has no parent. */
    CHECK_INT(s->announcements_sent, self->rank > 0 ? TENSORS : 0);
    if (self->rank == 0 && !lone)
        CHECK(s->bucket_messages_sent >= TENSORS - 1);
    CHECK_INT(s->plan_hits + s->plan_breaks + s->plan_steps, 0);
}

/* The parts' sums must be equal to the totals. */
static void check_parts(const rank_t *self, const tutti_stats_t *s)
{
    tutti_stats_part_t part = TUTTI_STATS_PART_INIT;
    uint64_t direct = 0, async = 0, direct_bytes = 0, ns = 0;
    const char *transport = self->size == 1 ? "none" : "shm";

    for (size_t i = 0; i < s->nparts; i++) {
        CHECK_OK(tutti_comm_get_stats_part(self->comm, i, &part));
        CHECK(strcmp(part.transport, transport) == 0);
        CHECK(part.algorithm[0] != '\0' && strcmp(part.algorithm, "other") != 0);
        CHECK(part.operations > 0);
        *(part.is_async ? &async : &direct) += part.operations;
        direct_bytes += part.is_async ? 0 : part.bytes;
        ns += part.ns;
    }
    CHECK_STATUS(tutti_comm_get_stats_part(self->comm, s->nparts, &part),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_INT(direct, s->direct_bytes.count);
    CHECK_INT(direct_bytes, s->direct_bytes.sum);
    CHECK_INT(async, s->buckets + s->ordered);
    CHECK((ns > 0) == (s->times > 0));
}

static void check_times(const tutti_stats_t *s)
{
    if (!s->times) {
        CHECK_INT(s->exposed_ns + s->in_flight_ns + s->hidden_ns + s->direct_ns.sum, 0);
        return;
    }
    CHECK(s->direct_ns.sum > 0 && s->exposed_ns >= s->direct_ns.sum);
    CHECK(s->in_flight_ns > 0 && s->hidden_ns <= s->in_flight_ns);
    CHECK(s->exposed_ns + s->hidden_ns <= s->age_ns);
}

/* ---- a thread that reads the counters during the calls ---- */

typedef struct {
    const rank_t *rank;
    atomic_int stop;
    pthread_t thread;
} reader_t;

/* No counter may decrease. */
static void *keep_reading(void *arg)
{
    reader_t *reader = arg;
    tutti_stats_t last = read_stats(reader->rank), now;

    while (!atomic_load(&reader->stop)) {
        tutti_stats_part_t part = TUTTI_STATS_PART_INIT;

        now = read_stats(reader->rank);
        for (size_t i = 0; i < now.nparts; i++)
            CHECK_OK(tutti_comm_get_stats_part(reader->rank->comm, i, &part));
        CHECK(now.direct_bytes.count >= last.direct_bytes.count);
        CHECK(now.direct_bytes.sum >= last.direct_bytes.sum);
        CHECK(now.requests >= last.requests && now.buckets >= last.buckets);
        CHECK(now.exposed_ns >= last.exposed_ns && now.hidden_ns >= last.hidden_ns);
        CHECK(now.in_flight_ns >= last.in_flight_ns && now.nparts >= last.nparts);
        last = now;
        usleep(100);
    }
    return NULL;
}

static void run(rank_t *self)
{
    reader_t reader = { .rank = self };
    tutti_stats_t before = read_stats(self), after;
    int is_timed = self->arg != NULL;

    CHECK_INT(before.times, is_timed);
    CHECK_INT(before.nparts, 0);
    CHECK_INT(before.requests + before.direct_bytes.count + before.announcements_sent, 0);
    pthread_create(&reader.thread, NULL, keep_reading, &reader);
    direct_calls(self);
    before = read_stats(self);
    check_direct(self, &before);
    /* Direct calls need no agreement. */
    CHECK_INT(before.announcements_sent + before.bucket_messages_sent + before.other_messages_sent,
              0);
    requests(self);
    atomic_store(&reader.stop, 1);
    pthread_join(reader.thread, NULL);
    after = read_stats(self);
    check_direct(self, &after);
    check_requests(self, &after);
    check_parts(self, &after);
    check_times(&after);
}

/* A group has counters of its own. */
static void groups(rank_t *self)
{
    tutti_stats_t stats = TUTTI_STATS_INIT;
    tutti_comm_t *group;
    float x = 1;

    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &group));
    CHECK_OK(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, group));
    CHECK_OK(tutti_comm_get_stats(group, &stats));
    CHECK_INT(stats.direct[TUTTI_CALL_ALLREDUCE].operations, 1);
    CHECK_OK(tutti_comm_free(group));
    CHECK_STATUS(tutti_comm_get_stats(group, &stats), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_INT(read_stats(self).direct_bytes.count, 0); /* the library's own calls do not count */
}

/* Only the time of the wait is exposed; time in flight is either hidden or exposed. */
static void waits(rank_t *self)
{
    tutti_request_t *request;
    uint64_t begin;
    float x = 1;
    tutti_stats_t s;

    if (self->rank == 0)
        usleep(30000);
    CHECK_OK(tutti_allreduce_async("late", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                   &request));
    begin = tutti__now_ns();
    CHECK_OK(tutti_wait(request, -1));
    s = read_stats(self);
    CHECK(s.exposed_ns <= tutti__now_ns() - begin);
    CHECK(s.in_flight_ns > 0 && s.in_flight_ns - s.hidden_ns <= s.exposed_ns);
    CHECK_INT(s.direct_ns.count, 0);
}

/* The operations of one kind of direct call that an algorithm has served. */
static uint64_t served(const rank_t *self, tutti_call_kind_t kind, const char *algorithm)
{
    const tutti_stats_t stats = read_stats(self);
    tutti_stats_part_t part = TUTTI_STATS_PART_INIT;
    uint64_t operations = 0;

    for (size_t i = 0; i < stats.nparts; i++) {
        CHECK_OK(tutti_comm_get_stats_part(self->comm, i, &part));
        if (part.call == kind && !part.is_async && strcmp(part.algorithm, algorithm) == 0)
            operations += part.operations;
    }
    return operations;
}

/* Small calls ride, except those of collectives that TUTTI_ALGORITHM names. */
static void forced(rank_t *self)
{
    int x[2] = { self->rank, 1 };

    CHECK_OK(tutti_allreduce(x, x, 2, TUTTI_INT32, TUTTI_SUM, self->comm));
    CHECK(x[0] == 6 && x[1] == 4);
    x[0] = self->rank;
    CHECK_OK(tutti_broadcast(x, 1, TUTTI_INT32, 3, self->comm));
    CHECK_INT(x[0], 3);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_INT(served(self, TUTTI_CALL_ALLREDUCE, "ride"), 1);
    CHECK_INT(served(self, TUTTI_CALL_BARRIER, "ride"), 1);
    CHECK_INT(served(self, TUTTI_CALL_BROADCAST, "ride"), 0);
    CHECK_INT(served(self, TUTTI_CALL_BROADCAST, "binomial"), 1);
}

static void no_fusion(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.fusion_bytes = 0;
}

static void measured(tutti__conf_t *conf, int rank)
{
    no_fusion(conf, rank);
    conf->stats = TUTTI__CONF_STATS_QUIET;
}

int main(void)
{
    static const struct {
        int size;
        const char *hosts;
    } places[] = { { 1, NULL }, { 2, NULL }, { 3, NULL }, { 4, "aabb" }, { 2, "ab" } };
    static int is_timed = 1;
    int failures = 0;

    for (int threads = 1; threads >= !ranks_can_fork(); threads--) {
        job_t job = { .size = 4,
                      .hosts = "aabb",
                      .threads = threads,
                      .algorithm = "broadcast:binomial",
                      .fn = forced };

        RUN_JOB(failures, &job);
        job.algorithm = NULL;

        for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
            job.size = places[i].size;
            job.hosts = places[i].hosts;
            job.fn = run;
            job.settings = no_fusion;
            job.arg = NULL;
            RUN_JOB(failures, &job);
            job.settings = measured;
            job.arg = &is_timed;
            RUN_JOB(failures, &job);
            job.fn = groups;
            RUN_JOB(failures, &job);
            job.fn = waits;
            RUN_JOB(failures, &job);
        }
    }
    return failures != 0;
}
