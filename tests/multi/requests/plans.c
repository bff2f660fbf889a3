/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Learned plans: programs whose steps repeat, and programs that leave the plan at any point. Sums
 * are exact, and mismatches are detected, as without plans. The long form makes 102,000 random
 * steps. In some of them ranks have several threads and delays.
 */
#include "base/time.h"
#include "engine/steps.h"
#include "long.h"
#include "ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST = 24,
    LONGEST = 3000,
    MOST_THREADS = 3,
    PROGRAMS = 17, /* number of programs for each number of ranks, in the long form */
    PROGRAM_STEPS = 2000
};

/* The kind of a random program. */
typedef struct {
    int steps;
    unsigned seed;
    unsigned longest; /* most elements of a tensor */
    unsigned threads; /* number of threads of a rank that submit at the same time */
    int has_delays;   /* 1: delays before some submissions */
} kind_t;

/* A tensor of a step. The fields are equal on all ranks. */
typedef struct {
    char name[20];
    size_t count;
    int is_out;  /* 1: the tensor is not in this step */
    int late;    /* the rank that submits it after it has waited for the others; or -1 */
    int wrong;   /* the rank that submits another count; or -1 */
    int grouped; /* 1: in one submission group with the next tensor */
    int urgent;  /* ranks below this number give the tensor a priority */
    tutti_call_kind_t kind;
    int root;
} tensor_t;

typedef struct {
    rank_t *self;
    uint64_t common; /* state of random numbers that are equal on all ranks */
    uint64_t own;
    kind_t kind;
    float *x[MOST], *apart[MOST];
    float *block; /* memory of all tensors, one after the other */
    tutti_request_t *request[MOST];
} program_t;

/* The next random number below `below`: a linear congruential generator (Knuth's MMIX). */
static unsigned random_below(uint64_t *state, unsigned below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % below;
}

/* The engine's counters. They are read without the engine's token, so only while no request is
   pending. */
static const tutti__plan_requests_t *counted(const rank_t *self)
{
    return &self->inside->engine->its_owners.agreed.plan;
}

/* Most calls are allreduces. */
static tutti_call_kind_t random_kind(uint64_t *state)
{
    static const tutti_call_kind_t others[] = { TUTTI_CALL_ALLGATHER, TUTTI_CALL_REDUCE,
                                                TUTTI_CALL_BROADCAST, TUTTI_CALL_BARRIER };
    unsigned i = random_below(state, 16);

    return i < 4 ? others[i] : TUTTI_CALL_ALLREDUCE;
}

static float element(int rank, int t, int step, size_t i)
{
    return (float)((rank + 1) * (int)(i % 7 + 1) + t + step % 50);
}

static float sum(int size, int t, int step, size_t i)
{
    float total = 0;

    for (int r = 0; r < size; r++)
        total += element(r, t, step, i);
    return total;
}

static void fill(program_t *p, const tensor_t *tensor, int t, int step)
{
    size_t first = tensor->kind == TUTTI_CALL_ALLGATHER ? tensor->count * (size_t)p->self->rank : 0;

    for (size_t i = 0; i < tensor->count; i++)
        p->x[t][first + i] = element(p->self->rank, t, step, i);
}

static void check(const program_t *p, const tensor_t *tensor, int t, int step)
{
    tutti_call_kind_t kind = tensor->kind;

    if (kind == TUTTI_CALL_REDUCE && p->self->rank != tensor->root)
        return;
    for (size_t i = 0; i < tensor->count; i++) {
        if (kind == TUTTI_CALL_ALLREDUCE || kind == TUTTI_CALL_REDUCE)
            CHECK_INT(p->x[t][i], sum(p->self->size, t, step, i));
        if (kind == TUTTI_CALL_BROADCAST)
            CHECK_INT(p->x[t][i], element(tensor->root, t, step, i));
        for (int r = 0; r < p->self->size && kind == TUTTI_CALL_ALLGATHER; r++)
            CHECK_INT(p->x[t][tensor->count * (size_t)r + i], element(r, t, step, i));
    }
}

static tutti_call_t call_of(const program_t *p, const tensor_t *tensor, int t)
{
    tutti_call_t call = TUTTI_CALL_INIT;
    float *x = p->x[t];

    call.kind = tensor->kind;
    call.name = tensor->name;
    if (tensor->kind == TUTTI_CALL_BARRIER)
        return call;
    call.root = tensor->root;
    call.dtype = TUTTI_FLOAT32;
    call.op = TUTTI_SUM;
    call.recvbuf = x;
    call.count = tensor->count + (tensor->wrong == p->self->rank);
    call.sendbuf = tensor->kind == TUTTI_CALL_ALLGATHER   ? x + call.count * (size_t)p->self->rank
                   : tensor->kind == TUTTI_CALL_BROADCAST ? NULL
                                                          : x;
    return call;
}

static void submit(program_t *p, const tensor_t *tensor, int t, int step)
{
    tutti_async_options_t urgent = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *request[MOST];
    tutti_call_t calls[MOST];
    int which[MOST];
    size_t n = 0;

    urgent.priority = 1 + p->self->rank;
    for (int k = 0; k == 0 || tensor[k - 1].grouped; k++) {
        if (tensor[k].is_out)
            continue;
        fill(p, &tensor[k], t + k, step);
        calls[n] = call_of(p, &tensor[k], t + k);
        if (tensor[k].urgent > p->self->rank)
            calls[n].options = &urgent;
        which[n++] = t + k;
    }
    CHECK_OK(tutti_submit(calls, n, p->self->comm, request));
    for (size_t i = 0; i < n; i++)
        p->request[which[i]] = request[i];
}

/* Wait with a random call. random: the calling thread's random numbers. */
static void finish_by(program_t *p, const tensor_t *tensor, int t, int step, uint64_t *random)
{
    tutti_status_t status;
    int done = 0;

    if (p->request[t] == NULL)
        return;
    while (random_below(random, 4) == 0 && !done)
        (void)tutti_test(p->request[t], &done);
    status = tutti_wait(p->request[t], -1);
    p->request[t] = NULL;
    if (tensor->wrong >= 0) {
        CHECK_STATUS(status, TUTTI_ERR_MISMATCH);
        return;
    }
    CHECK_STATUS(status, TUTTI_OK);
    check(p, tensor, t, step);
}

static void finish(program_t *p, const tensor_t *tensor, int t, int step)
{
    finish_by(p, tensor, t, step, &p->own);
}

/* The tensors that one thread submits. */
typedef struct {
    program_t *p;
    const tensor_t *tensor;
    const int *order;
    int n, step, waits; /* waits: 1: the thread waits, except for late tensors */
    uint64_t random;
    pthread_t thread;
} share_t;

static void *submit_share(void *arg)
{
    share_t *share = arg;
    program_t *p = share->p;

    for (int i = 0; i < share->n; i++) {
        int t = share->order[i];

        if (p->kind.has_delays && random_below(&share->random, 16) == 0)
            usleep(random_below(&share->random, 300));
        submit(p, &share->tensor[t], t, share->step);
    }
    for (int i = 0; i < share->n && share->waits; i++) {
        const tensor_t *tensor = &share->tensor[share->order[i]];

        for (int k = 0; k == 0 || tensor[k - 1].grouped; k++)
            if (tensor[k].late < 0)
                finish_by(p, &tensor[k], share->order[i] + k, share->step, &share->random);
    }
    return NULL;
}

/* Divide the tensors between the rank's threads. */
static void submit_shares(program_t *p, const tensor_t *tensor, const int *order, int n, int step)
{
    int threads = 1 + (int)random_below(&p->own, p->kind.threads), from = 0;
    share_t share[MOST_THREADS];

    for (int i = 0; i < threads; i++) {
        int end = n * (i + 1) / threads, is_last = i + 1 == threads;

        share[i] = (share_t){ .p = p,
                              .tensor = tensor,
                              .order = order + from,
                              .n = end - from,
                              .step = step,
                              .waits = !is_last && random_below(&p->own, 2),
                              .random = p->own + (unsigned)i };
        from = end;
        if (!is_last)
            CHECK_INT(pthread_create(&share[i].thread, NULL, submit_share, &share[i]), 0);
    }
    submit_share(&share[threads - 1]);
    for (int i = 0; i + 1 < threads; i++)
        CHECK_INT(pthread_join(share[i].thread, NULL), 0);
}

/* Submit the tensors [first, end), in an order that differs between ranks. */
static void submit_some(program_t *p, const tensor_t *tensor, int first, int end, int step,
                        int late)
{
    int order[MOST], n = 0;

    for (int t = first; t < end; t++)
        if (!tensor[t].is_out && (tensor[t].late == p->self->rank) == late &&
            (t == 0 || !tensor[t - 1].grouped))
            order[n++] = t;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)random_below(&p->own, (unsigned)i + 1), t = order[i];

        order[i] = order[k];
        order[k] = t;
    }
    submit_shares(p, tensor, order, n, step);
}

static void run_step(program_t *p, const tensor_t *tensor, int n, int step)
{
    int half = random_below(&p->common, 4) == 0 ? n / 2 : n;

    /* A group is not divided. */
    while (half < n && half > 0 && tensor[half - 1].grouped)
        half++;
    submit_some(p, tensor, 0, half, step, 0);
    if (half < n && random_below(&p->own, 2)) {
        for (int t = 0; t < half; t++)
            if (tensor[t].late < 0)
                finish(p, &tensor[t], t, step);
    }
    submit_some(p, tensor, half, n, step, 0);
    if (random_below(&p->common, 6) == 0)
        CHECK_OK(tutti_barrier(p->self->comm));
    for (int t = 0; t < n; t++)
        if (tensor[t].late < 0)
            finish(p, &tensor[t], t, step);
    submit_some(p, tensor, 0, n, step, 1);
    for (int t = 0; t < n; t++)
        finish(p, &tensor[t], t, step);
}

/* One rank is late, or has another count, in all calls of the tensor's submission group. */
static void spoil(tensor_t *tensor, int t, int late, int wrong)
{
    while (t > 0 && tensor[t - 1].grouped)
        t--;
    do {
        tensor[t].late = late;
        tensor[t].wrong = wrong;
    } while (tensor[t++].grouped);
}

/* Make one step differ from the other steps. */
static void deviate(program_t *p, tensor_t *tensor, int n)
{
    int t = (int)random_below(&p->common, (unsigned)n);
    int r = (int)random_below(&p->common, (unsigned)p->self->size);

    switch (random_below(&p->common, 8)) {
    case 0:
        tensor[t].is_out = 1;
        break;
    case 1:
        spoil(tensor, t, r, -1);
        break;
    case 2:
        tensor[t].count = 1 + random_below(&p->common, p->kind.longest);
        p->x[t] = p->apart[t];
        break;
    case 3:
        if (p->self->size > 1 && tensor[t].kind != TUTTI_CALL_BARRIER)
            spoil(tensor, t, -1, r);
        break;
    case 4:
        if (t + 1 < n)
            tensor[t].grouped ^= 1;
        break;
    case 5:
        tensor[t].kind = random_kind(&p->common);
        p->x[t] = p->apart[t];
        break;
    case 6:
        tensor[t].urgent = r + 1;
        break;
    default:
        snprintf(tensor[t].name, sizeof(tensor[t].name), "extra %d",
                 (int)random_below(&p->common, 10));
        break;
    }
}

static void open_program(program_t *p, rank_t *self, const kind_t *kind)
{
    *p = (program_t){ .self = self,
                      .common = kind->seed,
                      .own = kind->seed * (uint64_t)31 + (unsigned)self->rank,
                      .kind = *kind };
    for (int t = 0; t < MOST; t++) {
        p->x[t] = p->apart[t] = calloc((size_t)self->size * (LONGEST + 1), sizeof(float));
        CHECK(p->x[t] != NULL);
    }
    CHECK_OK(tutti_mem_alloc(self->comm, (size_t)self->size * MOST * (LONGEST + 1) * sizeof(float),
                             (void **)&p->block));
}

static void close_program(program_t *p)
{
    for (int t = 0; t < MOST; t++)
        free(p->apart[t]);
    CHECK_OK(tutti_mem_free(p->self->comm, p->block));
}

/* Each tensor has memory of its own, or all tensors follow each other in memory. Each rank chooses
   for itself. */
static void place(program_t *p, const tensor_t *tensor, int n)
{
    int are_apart = random_below(&p->own, 4) == 0;
    float *at = p->block;

    for (int t = 0; t < n; t++) {
        p->x[t] = are_apart ? p->apart[t] : at;
        at +=
            tensor[t].count * (tensor[t].kind == TUTTI_CALL_ALLGATHER ? (size_t)p->self->size : 1) +
            (random_below(&p->own, 40) == 0);
    }
}

static int tensors_of(program_t *p, tensor_t *tensor)
{
    int n = 1 + (int)random_below(&p->common, MOST);

    for (int t = 0; t < n; t++) {
        tensor[t] = (tensor_t){ .count = 1 + random_below(&p->common, p->kind.longest),
                                .late = -1,
                                .wrong = -1,
                                .kind = random_kind(&p->common),
                                .root = (int)random_below(&p->common, (unsigned)p->self->size),
                                .grouped = t + 1 < n && random_below(&p->common, 6) == 0 };
        snprintf(tensor[t].name, sizeof(tensor[t].name), "tensor %d", t);
    }
    place(p, tensor, n);
    return n;
}

/* Random programs: some steps deviate from the model, and sometimes the model changes. */
static void random_steps(rank_t *self)
{
    program_t p;
    tensor_t model[MOST], tensor[MOST];
    const kind_t *kind = self->arg;
    float *x[MOST];

    open_program(&p, self, kind);
    for (int step = 0, n = 0; step < kind->steps; step++) {
        if (n == 0 || random_below(&p.common, 40) == 0)
            n = tensors_of(&p, model);
        memcpy(tensor, model, sizeof(tensor));
        memcpy(x, p.x, sizeof(x));
        if (random_below(&p.common, 6) == 0)
            deviate(&p, tensor, n);
        run_step(&p, tensor, n, step);
        memcpy(p.x, x, sizeof(x));
    }
    close_program(&p);
    if (getenv("SHOW"))
        printf("rank %d of %d: %d plans, %d planned, %d agreed, %d returned\n", self->rank,
               self->size, (int)counted(self)->plans,
               (int)self->inside->engine->its_owners.lanes.plan_served,
               (int)self->inside->engine->its_owners.lanes.agreed_served,
               (int)self->inside->engine->its_owners.lanes.plan_returned);
    CHECK(self->size == 1 || counted(self)->plans > 0);
}

static int has_group(const tensor_t *tensor, int n)
{
    for (int t = 0; t < n; t++)
        if (tensor[t].grouped)
            return 1;
    return 0;
}

/* What this rank has counted, while nothing is pending. */
typedef struct {
    tutti_stats_t stats;
    uint64_t plans, served, agreed;
} figures_t;

static figures_t figures_of(const rank_t *self)
{
    figures_t figures = { .stats = TUTTI_STATS_INIT,
                          .plans = counted(self)->plans,
                          .served = self->inside->engine->its_owners.lanes.plan_served,
                          .agreed = self->inside->engine->its_owners.lanes.agreed_served };

    CHECK_OK(tutti_comm_get_stats(self->comm, &figures.stats));
    return figures;
}

/* Run 40 steps. after[0] and after[1]: the figures after 6 steps and after all. 1: on no rank did a
   plan stop. */
static int run_steadily(program_t *p, const tensor_t *tensor, int n, figures_t after[2])
{
    rank_t *self = p->self;
    uint64_t breaks = figures_of(self).stats.plan_breaks;
    int stopped;

    for (int step = 0; step < 40; step++) {
        submit_some(p, tensor, 0, n, step, 0);
        for (int t = 0; t < n; t++)
            finish(p, &tensor[t], t, step);
        if (step == 5)
            after[0] = figures_of(self);
    }
    after[1] = figures_of(self);
    stopped = after[1].stats.plan_breaks != breaks;
    CHECK_OK(tutti_allreduce(&stopped, &stopped, 1, TUTTI_INT32, TUTTI_MAX, self->comm));
    return !stopped;
}

/* After three steps every bucket is planned, also those of submission groups, and nothing is
   announced. If a thread rests for long between two tensors, the plan stops; the steps are then
   made again. */
static void steady(rank_t *self)
{
    /* ThreadSanitizer takes long for each element. */
    kind_t kind = { .seed = 5, .longest = ranks_can_fork() ? LONGEST : 100, .threads = 1 };
    program_t p;
    tensor_t tensor[MOST];
    figures_t after[2];
    int n, tries = 0;

    open_program(&p, self, &kind);
    do
        n = tensors_of(&p, tensor);
    while (n < 8 || !has_group(tensor, n));
    while (!run_steadily(&p, tensor, n, after) && ++tries < 10) {
    }
    close_program(&p);
    CHECK(tries < 10);
    CHECK_INT(after[1].stats.announcements_sent, after[0].stats.announcements_sent);
    if (self->size == 1)
        return;
    CHECK(tries > 0 || after[1].plans == 1);
    CHECK_INT(after[1].plans, after[0].plans);
    CHECK(after[1].served >= after[0].served + 34);
    CHECK_INT(after[1].stats.plan_steps, after[0].stats.plan_steps + 34);
    CHECK_INT(after[1].stats.bucket_messages_sent, after[0].stats.bucket_messages_sent);
    CHECK_INT(after[1].stats.other_messages_sent, after[0].stats.other_messages_sent);
    CHECK_INT(after[1].agreed, after[0].agreed);
}

/* A rank joins while the others follow a plan. */
static void joins(rank_t *self)
{
    float x[4] = { 0 };
    tutti_request_t *request[4];
    char name[8];
    int last, steps = 6 + self->rank;

    for (int step = 0; step < steps; step++) {
        for (int t = 0; t < 4; t++) {
            snprintf(name, sizeof(name), "t%d", t);
            x[t] = 1;
            CHECK_OK(tutti_allreduce_async(name, &x[t], &x[t], 1, TUTTI_FLOAT32, TUTTI_SUM,
                                           self->comm, NULL, &request[t]));
        }
        CHECK_OK(tutti_wait_all(request, 4, -1));
        for (int t = 0; t < 4; t++)
            CHECK_INT(x[t], step < 6 ? self->size : self->size - (step - 5));
    }
    CHECK_OK(tutti_join(self->comm, &last));
    CHECK_INT(last, self->size - 1);
}

static void set_called(void *arg, tutti_status_t status)
{
    CHECK_OK(status);
    atomic_store((atomic_int *)arg, 1);
}

/* The program submits one tensor of a bucket, and no further tensor: the plan stops, and the
   request ends. If arg is not NULL, the request has a callback, and no thread makes a call until
   the request has ended. Otherwise this thread only tests the request. */
static void submits_a_part(rank_t *self)
{
    enum {
        N = 5
    };
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *request[N];
    atomic_int called = 0;
    float x[N];
    int done = 0;

    options.callback = set_called;
    options.callback_arg = &called;
    for (int step = 0; step < 9; step++) {
        int is_last = step == 8;

        /* Wait until the library's thread sleeps for long; while requests are pending it wakes each
           0.5 s. The result does not depend on this. */
        if (is_last)
            usleep(600000);
        for (int t = 0; t < (is_last ? 1 : N); t++) {
            char name[8];

            snprintf(name, sizeof(name), "t%d", t);
            x[t] = 1;
            CHECK_OK(
                tutti_allreduce_async(name, &x[t], &x[t], 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                      is_last && self->arg != NULL ? &options : NULL, &request[t]));
        }
        if (is_last)
            break;
        CHECK_OK(tutti_wait_all(request, N, -1));
        CHECK(step < 7 || counted(self)->plans > 0);
    }
    for (; self->arg != NULL && !atomic_load(&called); usleep(1000)) {
    }
    for (; !done; usleep(1000))
        CHECK_OK(tutti_test(request[0], &done));
    CHECK_OK(tutti_wait(request[0], 0));
    CHECK_INT(x[0], self->size);
    CHECK_OK(tutti_barrier(self->comm));
}

/* Without a check for stalls, nothing else wakes the library's thread. */
static void no_stalls(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.stall_ms = 0;
}

/* Rank 0 has no pending request, but runs a bucket without requests, as after a plan's end. So its
   status page must ask the other ranks to wake it. */
static void sleeps_in_bucket(rank_t *self)
{
    tutti__engine_t *e = self->inside->engine;
    const tutti__machine_t *machine = e->env.machine;
    tutti__plan_requests_t *plan;

    if (self->rank == 0) {
        tutti__token_await(&e->token);
        plan = &tutti__owned(e)->agreed.plan;
        CHECK(tutti__planned_end(plan, plan->started + 1) == NULL);
        tutti__engine_step(e, TUTTI__STEP_WAITER);
        CHECK_INT(tutti__owned(e)->lanes.planned, 1);
        tutti__engine_yield(e, TUTTI__STEP_WAITER);
        CHECK_INT(tutti__load_relaxed(&machine->page[machine->me]->sleeping), 1);
    }
    CHECK_OK(tutti_barrier(self->comm));
}

static int partial_submissions(void)
{
    static const char *const hosts[] = { NULL, "ab" };
    int failures = 0, has_callback = 1;

    for (int i = 0; i < 4; i++) {
        job_t job = { .size = 2,
                      .hosts = hosts[i / 2],
                      .threads = !ranks_can_fork(),
                      .settings = no_stalls,
                      .fn = submits_a_part,
                      .arg = i % 2 ? &has_callback : NULL };

        RUN_JOB(failures, &job);
        job.fn = sleeps_in_bucket;
        if (job.arg == NULL)
            RUN_JOB(failures, &job);
    }
    return failures;
}

/* On ranks where tensors follow each other in shared memory, they are reduced there, and the memory
   beside them must not change. In each step a rank submits the tensors from the end of the memory
   to its beginning. If arg is not NULL, the order differs between steps and ranks. */
static void adjacent(rank_t *self)
{
    enum {
        N = 9,
        GUARD = 3
    };
    const tutti_async_options_t *none = NULL;
    tutti_stats_t stats = TUTTI_STATS_INIT;
    tutti_request_t *request[N];
    int is_apart = self->rank % 2, is_own = self->rank % 4 == 2;
    float *block, *x[N], *at, own[1000];

    CHECK_OK(tutti_mem_alloc(self->comm, sizeof(own), (void **)&block));
    at = is_own ? own : block;
    for (int t = 0; t < N; t++) {
        x[t] = at + GUARD;
        at += 1 + 7 * t + is_apart;
    }
    for (int step = 0; step < 12; step++) {
        x[0][-1] = at[GUARD] = 77;
        for (int k = N; k-- > 0;) {
            int t = self->arg != NULL ? (k * 5 + step * 4 + self->rank) % N : k;
            size_t count = (size_t)(1 + 7 * t);
            char name[16];

            snprintf(name, sizeof(name), "adjacent %d", t);
            for (size_t i = 0; i < count; i++)
                x[t][i] = element(self->rank, t, step, i);
            if (is_apart)
                x[t][count] = 77;
            CHECK_OK(tutti_allreduce_async(name, x[t], x[t], count, TUTTI_FLOAT32, TUTTI_SUM,
                                           self->comm, none, &request[t]));
        }
        CHECK_OK(tutti_wait_all(request, N, -1));
        for (int t = 0; t < N; t++) {
            for (int i = 0; i < 1 + 7 * t; i++)
                CHECK_INT(x[t][i], sum(self->size, t, step, (size_t)i));
            CHECK(!is_apart || x[t][1 + 7 * t] == 77);
        }
        CHECK(x[0][-1] == 77 && at[GUARD] == 77);
    }
    CHECK_OK(tutti_comm_get_stats(self->comm, &stats));
    if (self->size > 1)
        CHECK_INT(stats.plan_in_place > 0, !is_apart && !is_own);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_mem_free(self->comm, block));
}

/* Random programs of all kinds: 102,000 steps. Every third program is on several hosts. */
static int random_programs(void)
{
    static const char *const hosts[] = { "ab", "aab", "aabbc" };
    /* With ThreadSanitizer ranks are threads, and a step takes ten times as long. */
    int failures = 0, steps = ranks_can_fork() ? PROGRAM_STEPS : PROGRAM_STEPS / 10;

    for (int i = 0; i < 3; i++) {
        uint64_t began = tutti__now_ns();

        for (unsigned k = 0; k < PROGRAMS; k++) {
            kind_t kind = { .steps = steps,
                            .seed = 1000 + 100 * (unsigned)i + k,
                            .longest = k % 5 == 4 ? LONGEST : 100,
                            .threads = 1 + k % MOST_THREADS,
                            .has_delays = k / 2 % 2 };
            job_t job = { .size = (int)strlen(hosts[i]),
                          .hosts = k % 3 == 1 ? hosts[i] : NULL,
                          .threads = !ranks_can_fork(),
                          .timeout_s = 600,
                          .fn = random_steps,
                          .arg = &kind };

            RUN_JOB(failures, &job);
        }
        printf("%zu ranks: %d steps in %.0f s\n", strlen(hosts[i]), PROGRAMS * steps,
               (double)(tutti__now_ns() - began) / 1e9);
        fflush(stdout);
    }
    return failures;
}

int main(void)
{
    static const char *const hosts[] = { NULL, "aabb", "abc", "aab" };
    static const int sizes[] = { 1, 2, 3, 5 };
    kind_t few = { .steps = 40, .seed = 47, .longest = LONGEST, .threads = 1 }, many = few;
    kind_t threads = {
        .steps = 40, .seed = 3, .longest = 100, .threads = MOST_THREADS, .has_delays = 1
    };
    int failures = 0, is_long;

    is_long = test_is_long("102,000 steps of random programs with threads and delays, half of the "
                           "other steps, 5 ranks of one host (with ThreadSanitizer, 1 rank too), "
                           "and one of three placings on hosts");
    many.steps = !ranks_can_fork() ? 60 : is_long ? 400 : 200;
    many.seed = 7 + (unsigned)many.steps;

    for (int i = 0; i < 4; i++) {
        job_t job = { .size = sizes[i], .threads = !ranks_can_fork() };

        if (!is_long && (job.size > 3 || (job.threads && job.size == 1)))
            continue;
        job.fn = steady;
        RUN_JOB(failures, &job);
        job.fn = adjacent;
        RUN_JOB(failures, &job);
        job.arg = &many;
        RUN_JOB(failures, &job);
        job.arg = NULL;
        job.fn = joins;
        RUN_JOB(failures, &job);
        job.fn = random_steps;
        job.arg = &many;
        RUN_JOB(failures, &job);
    }
    for (int i = 1; i < 4; i++) {
        job_t job = { .size = (int)strlen(hosts[i]),
                      .hosts = hosts[i],
                      .threads = !ranks_can_fork() };

        if (!is_long && i == 3)
            continue;
        job.fn = steady;
        RUN_JOB(failures, &job);
        job.fn = adjacent;
        RUN_JOB(failures, &job);
        job.fn = random_steps;
        job.arg = i == 1 ? &many : &few;
        RUN_JOB(failures, &job);
        job.arg = &threads;
        RUN_JOB(failures, &job);
    }
    failures += partial_submissions();
    if (is_long)
        failures += random_programs();
    return failures != 0;
}
