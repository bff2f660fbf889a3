/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes random calls, sequential and concurrent, for a given time.
 *
 * All ranks draw the same calls from one seed: kind, type, operation, count, root, communicator,
 * direct or by name. Each rank draws its local choices itself: the places of its buffers, in-place
 * calls, delays, and the order in which it submits and waits. Call number n depends only on the
 * seed and n, so the same seed repeats the same calls, but not the same timing.
 *
 *     STRESS_SECONDS  for all jobs together; 2, in the long form 60
 *     STRESS_SEED     by default from the clock; each run prints its seed
 *     STRESS_JOB      the number of the only job to run; each run prints its jobs' numbers
 */
#include "long.h"
#include "stress/task.h"

#include "base/compiler.h"
#include "base/time.h"
#include "multi/direct/reference.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    ALL_BUT_DIRECT = STRESS_TASKS - 1,
    MOST_CHUNKS = 64, /* most chunks of a direct call: with small chunks, more would take long */
    SYNC_EVERY = 64   /* calls between two points at which rank 0 may end the job */
};

/* The parameters that rank 0 gives the ranks of a job. */
typedef struct {
    int number;
    double seconds;
    uint64_t seed;
    tutti__word_t *entered;
} stress_job_t;

/* Settings of the current job: the defaults, or small values with which little data executes every
   path; with or without groups. */
static tutti__conf_shared_t pieces;

static void set_pieces(uint64_t seed, int job)
{
    uint64_t row = seed + (uint64_t)job;
    tutti__conf_t conf;

    tutti__conf_defaults(&conf);
    pieces = conf.shared;
    pieces.group_size = stress_draw(&row, 4); /* 1: no groups */
    if (stress_draw(&row, 2) == 0)
        return;
    pieces.chunk_bytes = 4096;
    pieces.node_chunk_bytes = (uint64_t)8192 << stress_draw(&row, 3);
    pieces.oneshot_bytes = 1024;
    pieces.l3_bytes = 1 + stress_draw(&row, 200000);
}

static void settings(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.chunk_bytes = pieces.chunk_bytes;
    conf->shared.node_chunk_bytes = pieces.node_chunk_bytes;
    conf->shared.oneshot_bytes = pieces.oneshot_bytes;
    conf->shared.group_size = pieces.group_size;
    conf->shared.l3_bytes = pieces.l3_bytes;
}

/* ---- drawing a call ---- */

/* Draw the bytes of a buffer: a size near a limit between algorithms, or any size. All ranges
   between two powers of two are equally probable. */
static size_t draw_bytes(uint64_t *row, size_t size)
{
    static const size_t factors[] = { 1, 1, 2, 3 };
    const size_t borders[] = { 48,
                               pieces.oneshot_bytes / size,
                               pieces.oneshot_bytes,
                               pieces.chunk_bytes,
                               pieces.node_chunk_bytes,
                               pieces.node_chunk_bytes * size,
                               (size_t)1 << stress_draw(row, 22) };
    size_t power = (size_t)1 << stress_draw(row, 22);

    if (stress_draw(row, 2))
        return power + stress_draw(row, power);
    return borders[stress_draw(row, sizeof(borders) / sizeof(borders[0]))] *
           factors[stress_draw(row, sizeof(factors) / sizeof(factors[0]))];
}

/* Draw the elements of a call, which has at most `most` bytes. */
static size_t draw_count(const stress_shape_t *s, uint64_t *row, size_t size, size_t most)
{
    size_t parts = stress_has_parts(s->kind) ? size : 1, esize = tutti_dtype_bytes(s->dtype);
    size_t divisor = stress_draw(row, 2) ? parts : 1; /* the limit is for all parts, or for one */
    size_t count = draw_bytes(row, size) / esize / divisor + stress_draw(row, 3);

    count = count > 1 ? count - 1 : 1;
    return TUTTI__MIN(count, most / parts / esize);
}

static stress_shape_t draw_shape(const stress_rank_t *rank, uint32_t number, size_t most,
                                 uint64_t *row)
{
    stress_shape_t s = { .number = number };

    s.group = stress_draw(row, 4) == 0;
    /* Receive and send are drawn as one kind. */
    do
        s.kind = (tutti_call_kind_t)(1 + stress_draw(row, TUTTI_CALL_SENDRECV));
    while (s.kind == TUTTI_CALL_RECV);
    if (stress_draw(row, 4) == 0)
        s.kind = TUTTI_CALL_ALLREDUCE;
    do {
        s.dtype = (tutti_dtype_t)(1 + stress_draw(row, REFERENCE_TYPES));
        s.op = (tutti_op_t)(1 + stress_draw(row, REFERENCE_OPS));
    } while (!reference_serves(s.dtype, s.op) ||
             (s.op == TUTTI_AVG && (s.kind == TUTTI_CALL_SCAN || s.kind == TUTTI_CALL_EXSCAN)));
    s.root = (uint32_t)stress_draw(row, 840);
    s.symmetric = s.kind == TUTTI_CALL_ALLTOALLV && stress_draw(row, 2);
    s.count = draw_count(&s, row, (size_t)tutti_size(rank->comm[s.group]), most);
    return s;
}

/* ---- one rank's calls ---- */

static void delay(uint64_t *row)
{
    uint64_t what = stress_draw(row, 400);

    if (what == 0)
        usleep(20000);
    else if (what < 20)
        usleep((useconds_t)stress_draw(row, 1000));
    else if (what < 80)
        sched_yield();
}

/* Makes a random mixture of direct and named calls. Often a shape is repeated with other
   buffers. */
typedef struct {
    stress_rank_t rank;
    stress_task_t task[STRESS_TASKS]; /* 0 is direct */
    stress_shape_t shape[STRESS_TASKS];
    int repeats[2]; /* remaining repeats: [0]: of the direct shape; [1]: of the other shapes */
} driver_t;

/* Draw the next shape of a task, or keep the last one. */
static void next_shape(driver_t *d, int slot, uint32_t number, uint64_t *row)
{
    stress_shape_t *s = &d->shape[slot];
    size_t most = TUTTI__MIN(STRESS_DIRECT_BYTES, MOST_CHUNKS * pieces.node_chunk_bytes);

    if (d->repeats[slot > 0] == 0 || s->kind == 0)
        *s = draw_shape(&d->rank, number, slot > 0 ? STRESS_ASYNC_BYTES : most, row);
    s->number = number;
    s->memory = (int)stress_draw(row, 3);
}

static void direct_call(driver_t *d, uint32_t number, uint64_t *row, uint64_t *own)
{
    next_shape(d, 0, number, row);
    stress_prepare(&d->task[0], &d->rank, &d->shape[0], 0, own);
    delay(own);
    stress_direct(&d->task[0]);
    stress_finish(&d->task[0]);
}

/* Start the next calls of all asynchronous tasks, in an order that differs between ranks. */
static void start_batch(driver_t *d, uint32_t number, uint64_t *row, uint64_t *own)
{
    uint64_t turn = stress_draw(own, ALL_BUT_DIRECT);

    for (int i = 1; i < STRESS_TASKS; i++) {
        stress_finish(&d->task[i]);
        next_shape(d, i, number, row);
        stress_prepare(&d->task[i], &d->rank, &d->shape[i], i, own);
    }
    for (uint64_t i = 0; i < ALL_BUT_DIRECT; i++) {
        delay(own);
        stress_start(&d->task[1 + (i + turn) % ALL_BUT_DIRECT]);
    }
}

static void finish_all(driver_t *d)
{
    for (int i = 1; i < STRESS_TASKS; i++)
        stress_finish(&d->task[i]);
}

/* Make calls until rank 0's time is over; returns their number. */
static uint32_t make_calls(driver_t *d, const stress_job_t *job)
{
    uint64_t end = tutti__now_ns() + (uint64_t)(job->seconds * 1e9);
    const rank_t *world = d->rank.world;
    uint32_t calls = 0;

    for (uint32_t number = 1;; number++) {
        uint64_t row = ((job->seed * 31 + (uint64_t)job->number) << 32) + number;
        uint64_t own = row * 67 + (uint64_t)world->rank + 1;
        int batch = stress_draw(&row, 4) == 0, over = tutti__now_ns() > end;

        own = stress_draw(&own, UINT64_MAX);
        row = stress_draw(&row, UINT64_MAX);
        if (number % SYNC_EVERY == 0)
            CHECK_OK(tutti_broadcast(&over, 1, TUTTI_INT32, 0, world->comm));
        if (number % SYNC_EVERY == 0 && over)
            return calls;
        if (d->repeats[batch] > 0)
            d->repeats[batch]--;
        else if (stress_draw(&row, 4) == 0)
            d->repeats[batch] = 1 + (int)stress_draw(&row, 6);
        if (batch)
            start_batch(d, number, &row, &own);
        else
            direct_call(d, number, &row, &own);
        calls += batch ? ALL_BUT_DIRECT : 1;
        if (stress_draw(&own, 8) == 0)
            finish_all(d);
    }
}

static void drive(rank_t *self)
{
    const stress_job_t *job = self->arg;
    driver_t d = { .rank = { .world = self, .seed = job->seed, .entered = job->entered } };
    tutti_comm_t *group;
    void *ptr;
    uint32_t calls;

    snprintf(d.rank.repeat, sizeof(d.rank.repeat),
             "STRESS_SEED=%llu STRESS_JOB=%d STRESS_SECONDS=600 tests/stress/stress",
             (unsigned long long)job->seed, job->number);
    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, -self->rank, &group));
    d.rank.comm[0] = self->comm;
    d.rank.comm[1] = group;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tutti_mem_alloc(d.rank.comm[i], STRESS_ARENA_BYTES, &ptr));
        d.rank.arena[i] = ptr;
    }
    for (int i = 0; i < STRESS_TASKS; i++)
        d.task[i].idle = 1;
    calls = make_calls(&d, job);
    finish_all(&d);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(group));
    if (self->rank == 0)
        fprintf(stderr, "%u calls\n", calls);
}

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value != NULL ? value : otherwise;
}

int main(void)
{
    static const struct {
        int size;
        const char *hosts;
    } list[] = { { 2, NULL }, { 2, "ab" },   { 3, NULL }, { 3, "aab" },
                 { 4, NULL }, { 4, "aabb" }, { 8, NULL }, { 8, "aaaabbbb" } };
    int threads = !ranks_can_fork(), end = threads ? 4 : 8, failures = 0;
    int only = atoi(setting("STRESS_JOB", "-1"));
    const char *usual = test_is_long("all but 2 of 60 seconds") ? "60" : "2";
    double seconds = strtod(setting("STRESS_SECONDS", usual), NULL);
    const char *seed = getenv("STRESS_SEED");
    stress_job_t job = { .seed = seed != NULL ? strtoull(seed, NULL, 0)
                                              : tutti__now_ns() % 1000000007 };

    job.entered = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job.entered == MAP_FAILED)
        return 1;
    fprintf(stderr, "STRESS_SEED=%llu\n", (unsigned long long)job.seed);
    job.seconds = only < 0 ? seconds / end : seconds;
    for (job.number = 0; job.number < end && failures == 0; job.number++) {
        job_t run = { .size = list[job.number].size,
                      .hosts = list[job.number].hosts,
                      .threads = threads,
                      .timeout_s = (int)job.seconds + 120,
                      .fn = drive,
                      .settings = settings,
                      .arg = &job };

        if (only >= 0 && only != job.number)
            continue;
        set_pieces(job.seed, job.number);
        memset(job.entered, 0, 4096);
        fprintf(stderr, "STRESS_JOB=%d: %d ranks, hosts %s, chunks of %zu bytes: ", job.number,
                run.size, run.hosts != NULL ? run.hosts : "one", (size_t)pieces.chunk_bytes);
        RUN_JOB(failures, &run);
    }
    return failures != 0;
}
