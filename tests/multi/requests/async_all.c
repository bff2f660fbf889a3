/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every collective by its asynchronous function: several types, any order, three threads; as single
 * calls and in submission groups. The results must be those of a sequential program.
 */
#include "multi/requests/async_calls.h"
#include "long.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS = 3,
    VARIANTS = 6,
    COPIES = 3, /* tasks of each kind and type, so that there are tensors to fuse */
    KINDS = TUTTI_CALL_SENDRECV,
    TASKS = KINDS * VARIANTS * COPIES
};

static int whole;

/* Types and operations by variant. */
static void choose_types(task_facts_t *f, int variant, int copy)
{
    static const tutti_dtype_t types[VARIANTS] = { TUTTI_FLOAT32,  TUTTI_INT32,
                                                   TUTTI_BFLOAT16, TUTTI_FLOAT32_INT32,
                                                   TUTTI_FLOAT64,  TUTTI_INT64_INT64 };
    static const tutti_op_t ops[VARIANTS] = { TUTTI_SUM,    TUTTI_MAX, TUTTI_SUM,
                                              TUTTI_MINLOC, TUTTI_AVG, (tutti_op_t)0 };

    f->dtype = types[variant];
    f->op = (tutti_op_t)0;
    if (!task_reduces(f->kind))
        return;
    f->op = variant == 5 ? task_affine() : ops[variant];
    if (f->op == TUTTI_AVG && (f->kind == TUTTI_CALL_SCAN || f->kind == TUTTI_CALL_EXSCAN))
        f->op = TUTTI_SUM;
    if (variant == 0 && f->kind != TUTTI_CALL_EXSCAN && copy < 2) {
        f->prescale = copy == 0 ? 2 : 0.5;
        f->postscale = copy == 0 ? 0.5 : 4;
    }
}

static task_facts_t facts_of(int number, int size)
{
    static const size_t counts[] = { 1, 3, 250, 17, 5000, 64, 0, 30000 };
    int variant = number % VARIANTS, copy = number / (KINDS * VARIANTS);
    int kind = 1 + number / VARIANTS % KINDS;
    task_facts_t f = { .number = number,
                       .kind = (tutti_call_kind_t)kind,
                       .count = counts[(number * 5 + number / 7) % 8],
                       .root = (kind + variant) % size,
                       .displs = variant % 2 };

    choose_types(&f, variant, copy);
    if (f.kind == TUTTI_CALL_ALLREDUCE || f.kind == TUTTI_CALL_SCAN ||
        f.kind == TUTTI_CALL_ALLTOALL)
        f.in_place = variant % 3 == 1;
    if (f.kind == TUTTI_CALL_ALLGATHERV || f.kind == TUTTI_CALL_ALLTOALLV)
        f.later = variant >= 3;
    return f;
}

/* ---- any order, several threads ---- */

typedef struct {
    rank_t *rank;
    task_t **tasks;
    int thread, step;
} worker_t;

static int shuffled(const worker_t *w, int *order)
{
    unsigned seed = (unsigned)(w->rank->rank * 977 + w->thread * 31 + w->step * 7 + 1);
    int n = 0;

    for (int i = w->thread; i < TASKS; i += THREADS)
        if (!w->tasks[i]->idle)
            order[n++] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(rand_r(&seed) % (unsigned)(i + 1)), swap = order[i];

        order[i] = order[j];
        order[j] = swap;
    }
    return n;
}

/* One by one, all together, or in the order of completion. */
static void wait_somehow(const worker_t *w, const int *order, int n)
{
    tutti_request_t *requests[TASKS];
    size_t index;
    int done;

    for (int k = 0; k < n; k++)
        requests[k] = w->tasks[order[k]]->request;
    switch ((w->rank->rank + w->thread + w->step) % 3) {
    case 0:
        for (int k = n - 1; k >= 0; k--) {
            CHECK_OK(tutti_test(requests[k], &done));
            CHECK_OK(tutti_wait(requests[k], -1));
        }
        break;
    case 1:
        CHECK_OK(tutti_wait_all(requests, (size_t)n, -1));
        for (int k = 0; k < n; k++)
            CHECK(requests[k] == NULL);
        break;
    default:
        for (int k = 0; k < n; k++) {
            CHECK_OK(tutti_wait_any(requests, (size_t)n, -1, &index));
            CHECK(index < (size_t)n && requests[index] == NULL);
            task_verify(w->tasks[order[index]]);
        }
        CHECK_OK(tutti_wait_any(requests, (size_t)n, -1, &index));
        CHECK_INT(index, n);
        break;
    }
}

static void *work(void *arg)
{
    worker_t *w = arg;
    int order[TASKS], n = shuffled(w, order);

    for (int k = 0; k < n; k++) {
        task_reset(w->tasks[order[k]]);
        CHECK_OK(task_start(w->tasks[order[k]], w->rank->comm));
    }
    for (int k = 0; k < n; k++)
        task_receive(w->tasks[order[k]]);
    wait_somehow(w, order, n);
    for (int k = 0; k < n; k++)
        task_verify(w->tasks[order[k]]);
    return NULL;
}

static task_t **make_tasks(const rank_t *self)
{
    task_t **tasks = calloc(TASKS, sizeof(*tasks));

    CHECK(tasks != NULL);
    for (int i = 0; i < TASKS; i++) {
        task_facts_t facts = facts_of(i, self->size);

        tasks[i] = task_make(self, &facts);
    }
    return tasks;
}

static void free_tasks(task_t **tasks)
{
    for (int i = 0; i < TASKS; i++)
        task_free(tasks[i]);
    free(tasks);
}

static void any_order(rank_t *self, task_t **tasks, int steps)
{
    for (int step = 0; step < steps; step++) {
        pthread_t threads[THREADS];
        worker_t workers[THREADS];
        int32_t one = 1;

        for (int t = 0; t < THREADS; t++) {
            workers[t] = (worker_t){ self, tasks, t, step };
            pthread_create(&threads[t], NULL, work, &workers[t]);
        }
        /* Direct calls are made at the same time. */
        CHECK_OK(tutti_allreduce(&one, &one, 1, TUTTI_INT32, TUTTI_SUM, self->comm));
        CHECK_INT(one, self->size);
        for (int t = 0; t < THREADS; t++)
            pthread_join(threads[t], NULL);
    }
}

/* ---- groups ---- */

/* Make one submission group of the tasks i with i % of == number. Messages between pairs are left
   out, because not all ranks have them. */
static size_t make_group(task_t **tasks, int of, int number, tutti_call_t *calls, int *order)
{
    size_t n = 0;

    for (int i = number; i < TASKS; i += of) {
        tutti_call_kind_t kind = tasks[i]->facts.kind;

        if (kind == TUTTI_CALL_SEND || kind == TUTTI_CALL_RECV || tasks[i]->idle)
            continue;
        task_reset(tasks[i]);
        order[n] = i;
        calls[n++] = tasks[i]->call;
    }
    return n;
}

static void groups(rank_t *self, task_t **tasks)
{
    for (int of = 1; of <= 4; of += 3) {
        tutti_request_t *requests[4][TASKS];
        tutti_call_t calls[TASKS];
        int order[4][TASKS];
        size_t n[4];

        for (int k = 0; k < of; k++) {
            int g = (k + self->rank) % of;

            n[g] = make_group(tasks, of, g, calls, order[g]);
            CHECK_OK(tutti_submit(calls, n[g], self->comm, requests[g]));
            for (size_t i = 0; i < n[g]; i++)
                tasks[order[g][i]]->request = requests[g][i];
        }
        for (int g = 0; g < of; g++)
            for (size_t i = 0; i < n[g]; i++)
                task_receive(tasks[order[g][i]]);
        for (int g = 0; g < of; g++) {
            CHECK_OK(tutti_wait_all(requests[g], n[g], -1));
            for (size_t i = 0; i < n[g]; i++)
                task_verify(tasks[order[g][i]]);
        }
    }
}

static void settings(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.fusion_bytes = 20000;
}

static void everything(rank_t *self)
{
    task_t **tasks = make_tasks(self);

    any_order(self, tasks, 3);
    groups(self, tasks);
    if (whole) { /* the same names with other buffers */
        free_tasks(tasks);
        tasks = make_tasks(self);
    }
    any_order(self, tasks, whole ? 3 : 1);
    free_tasks(tasks);
}

int main(void)
{
    static const int sizes[] = { 1, 2, 5, 3, 4, 7, 8 };
    static const char *const hosts[] = { "aaabb", "abc", "ab", "aabb", "abcabc" };
    int failures = 0, threads = !ranks_can_fork();

    whole = test_is_long("3 to 8 ranks of one host, four of five placings on hosts, and two of six "
                         "rounds");
    for (size_t i = 0; i < (whole ? sizeof(sizes) / sizeof(sizes[0]) : 2); i++) {
        job_t job = { .size = sizes[i], .threads = threads, .fn = everything };

        if (threads && sizes[i] != 3)
            continue;
        if (sizes[i] % 2 == 0)
            job.settings = settings;
        RUN_JOB(failures, &job);
    }
    for (size_t i = 0; i < (whole ? sizeof(hosts) / sizeof(hosts[0]) : 1); i++) {
        job_t job = {
            .size = (int)strlen(hosts[i]), .hosts = hosts[i], .threads = threads, .fn = everything
        };

        if (threads && i != 0)
            continue;
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
