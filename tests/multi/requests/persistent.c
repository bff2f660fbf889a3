/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that are started repeatedly; callbacks; waiting for any of several. */
#include "multi/requests/async_calls.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a thousand starts ---- */

enum {
    TENSORS = 4,
    COUNT = 300
};

static void many_starts(rank_t *self)
{
    static __thread float x[TENSORS][COUNT];
    tutti_request_t *requests[TENSORS];
    int starts = ranks_can_fork() ? 1000 : 50;
    char name[16];

    for (int t = 0; t < TENSORS; t++) {
        tutti_call_t call;

        snprintf(name, sizeof(name), "weight %d", t);
        call = ranks_sum(name, x[t], COUNT);
        CHECK_OK(tutti_persistent_create(&call, self->comm, &requests[t]));
    }
    for (int s = 0; s < starts; s++) {
        for (int k = 0; k < TENSORS; k++) {
            int t = (k + self->rank + s) % TENSORS;

            for (int i = 0; i < COUNT; i++)
                x[t][i] = (float)((self->rank + t + i + s) % 16);
            CHECK_OK(tutti_start(requests[t]));
        }
        CHECK_OK(tutti_wait_all(requests, TENSORS, -1));
        for (int t = 0; t < TENSORS; t++) {
            for (int i = 0; i < COUNT; i++) {
                int want = 0;

                for (int r = 0; r < self->size; r++)
                    want += (r + t + i + s) % 16;
                CHECK_INT(x[t][i], want);
            }
        }
    }
    for (int t = 0; t < TENSORS; t++)
        CHECK_OK(tutti_request_free(requests[t]));
}

/* Start many requests at once; and lists that cannot be started. */
static void start_all(rank_t *self)
{
    enum {
        MANY = 200
    };
    float x[MANY];
    tutti_request_t *requests[MANY], *wrong[3];
    tutti_comm_t *other;
    char name[16];

    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &other));
    for (int t = 0; t < MANY; t++) {
        tutti_call_t call;

        snprintf(name, sizeof(name), "all %d", t);
        call = ranks_sum(name, &x[t], 1);
        CHECK_OK(tutti_persistent_create(&call, t == MANY - 1 ? other : self->comm, &requests[t]));
    }
    for (int step = 0; step < 8; step++) {
        for (int t = 0; t < MANY; t++)
            x[t] = (float)(t + step);
        CHECK_OK(tutti_start_all(requests, MANY - 1));
        CHECK_OK(tutti_wait_all(requests, MANY - 1, -1));
        for (int t = 0; t < MANY - 1; t++)
            CHECK_INT(x[t], (t + step) * self->size);
    }
    CHECK_OK(tutti_start_all(NULL, 0));
    CHECK_STATUS(tutti_start_all(NULL, 1), TUTTI_ERR_INVALID_ARGUMENT);
    /* If one request of a list cannot be started, no request of the list is started. */
    memcpy(wrong, (tutti_request_t *[]){ requests[0], requests[1], requests[0] }, sizeof(wrong));
    CHECK_STATUS(tutti_start_all(wrong, 3), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "'all 0' is active") != NULL);
    CHECK_STATUS(tutti_start_all(requests, MANY), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "another communicator") != NULL);
    for (int t = 0; t < MANY; t++)
        CHECK_OK(tutti_request_free(requests[t]));
    CHECK_OK(tutti_comm_free(other));
}

/* Every kind, a few times. */
static void all_kinds(rank_t *self)
{
    for (int kind = TUTTI_CALL_ALLREDUCE; kind <= TUTTI_CALL_SENDRECV; kind++) {
        task_facts_t facts = { .number = kind,
                               .kind = (tutti_call_kind_t)kind,
                               .dtype = TUTTI_FLOAT32,
                               .op = TUTTI_SUM,
                               .count = 100,
                               .root = kind % self->size };
        task_t *task;

        facts.later = kind == TUTTI_CALL_ALLGATHERV || kind == TUTTI_CALL_ALLTOALLV;
        task = task_make(self, &facts);
        if (!task->idle)
            CHECK_OK(tutti_persistent_create(&task->call, self->comm, &task->request));
        for (int s = 0; s < 3 && !task->idle; s++) {
            task_reset(task);
            CHECK_OK(tutti_start(task->request));
            task_receive(task);
            CHECK_OK(tutti_wait(task->request, -1));
            task_verify(task);
        }
        if (!task->idle)
            CHECK_OK(tutti_request_free(task->request));
        task_free(task);
    }
}

/* Other buffers in each step, in place and out of place. */
static void moves(rank_t *self)
{
    enum {
        PLACES = 3
    };
    float memory[PLACES][COUNT], from[COUNT];
    tutti_call_t call = ranks_sum("moves", memory[0], COUNT);
    tutti_request_t *request;

    CHECK_OK(tutti_persistent_create(&call, self->comm, &request));
    for (int step = 0; step < 12; step++) {
        float *to = memory[step % PLACES], *in = step % 2 ? from : to;

        for (int p = 0; p < PLACES; p++)
            for (int i = 0; i < COUNT; i++)
                memory[p][i] = -1;
        for (int i = 0; i < COUNT; i++)
            in[i] = (float)(self->rank + step + i);
        CHECK_OK(tutti_request_set_buffers(request, in, to));
        CHECK_OK(tutti_start(request));
        CHECK_OK(tutti_wait(request, -1));
        for (int p = 0; p < PLACES; p++)
            for (int i = 0; i < COUNT; i++)
                CHECK_INT(memory[p][i], p == step % PLACES ? self->size * (step + i) +
                                                                 self->size * (self->size - 1) / 2
                                                           : -1);
    }
    /* These calls are refused, and the request keeps its buffers. */
    CHECK_STATUS(tutti_request_set_buffers(request, from, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_request_set_buffers(request, memory[0], memory[0] + 1),
                 TUTTI_ERR_INVALID_ARGUMENT);
    for (int i = 0; i < COUNT; i++)
        from[i] = 1;
    CHECK_OK(tutti_start(request));
    if (self->rank != 0 || self->size == 1)
        CHECK_STATUS(tutti_request_set_buffers(request, from, from), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_wait(request, -1));
    CHECK_INT(memory[2][COUNT - 1], self->size);
    CHECK_OK(tutti_request_free(request));
}

/* ---- mistakes ---- */

static void wrong_uses(rank_t *self)
{
    float x = 1;
    tutti_call_t call = ranks_sum("p", &x, 1);
    tutti_request_t *p, *plain, *list[3];
    size_t index = 9;
    int done;

    CHECK_OK(tutti_request_free(NULL));
    CHECK_OK(tutti_persistent_create(&call, self->comm, &p));
    CHECK_STATUS(tutti_wait(p, -1), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_test(p, &done), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_start(p));
    if (self->rank != 0 || self->size == 1) {
        CHECK_STATUS(tutti_start(p), TUTTI_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(tutti_request_free(p), TUTTI_ERR_INVALID_ARGUMENT);
    }
    CHECK_OK(tutti_wait(p, -1));
    CHECK_INT(x, self->size);
    CHECK_STATUS(tutti_wait(p, -1), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(
        tutti_allreduce_async("q", &x, &x, 1, TUTTI_FLOAT32, TUTTI_MAX, self->comm, NULL, &plain));
    CHECK_STATUS(tutti_start(plain), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_request_free(plain), TUTTI_ERR_INVALID_ARGUMENT);
    /* An inactive request counts as NULL. */
    list[0] = NULL;
    list[1] = p;
    list[2] = plain;
    CHECK_OK(tutti_wait_any(list, 3, -1, &index));
    CHECK_INT(index, 2);
    CHECK(list[1] == p && list[2] == NULL);
    CHECK_OK(tutti_wait_any(list, 3, 0, &index));
    CHECK_INT(index, 3);
    CHECK_OK(tutti_wait_all(list, 3, 0));
    CHECK_OK(tutti_request_free(p));
    call.kind = (tutti_call_kind_t)99;
    CHECK_STATUS(tutti_persistent_create(&call, self->comm, &p), TUTTI_ERR_INVALID_ARGUMENT);
    call.kind = TUTTI_CALL_ALLREDUCE;
    call.size = 8;
    CHECK_STATUS(tutti_persistent_create(&call, self->comm, &p), TUTTI_ERR_ABI);
}

/* ---- callbacks ---- */

typedef struct {
    atomic_int calls, ended; /* ended: sum of the statuses */
    tutti_comm_t *comm;
    tutti_request_t *next;  /* started by the callback */
    tutti_request_t *other; /* not done: a callback may not wait for it */
    tutti_status_t waited;
} heard_t;

static void hear(void *arg, tutti_status_t status)
{
    heard_t *h = arg;

    atomic_fetch_add(&h->ended, (int)status);
    if (h->other != NULL)
        h->waited = tutti_wait(h->other, -1);
    if (h->next != NULL)
        CHECK_OK(tutti_start(h->next));
    /* The callback takes so long that a wait which does not wait for callbacks would return before
       its end. */
    if (h->calls == 0)
        usleep(2000);
    atomic_fetch_add(&h->calls, 1);
}

static tutti_async_options_t hears(heard_t *h)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;

    options.callback = hear;
    options.callback_arg = h;
    return options;
}

/* A callback is called once for each start, before the wait is over. This holds for every thread
   that may complete the request. */
static void each_start(rank_t *self)
{
    float x[8] = { 0 };
    heard_t h[8] = { 0 };
    tutti_request_t *r[8];
    char name[8];

    for (int i = 0; i < 8; i++) {
        tutti_async_options_t options = hears(&h[i]);
        tutti_call_t call;

        snprintf(name, sizeof(name), "c%d", i);
        call = ranks_sum(name, &x[i], 1);
        call.options = &options;
        CHECK_OK(tutti_persistent_create(&call, self->comm, &r[i]));
    }
    for (int s = 0; s < 60; s++) {
        for (int i = 0; i < 8; i++)
            CHECK_OK(tutti_start(r[(i + self->rank) % 8]));
        /* By turns the library's thread, a waiting thread, or a thread that only submits completes
           the requests. */
        if (s % 3 == 0)
            usleep(1000);
        for (int i = 0; i < 8; i++) {
            if (s % 3 == 1)
                while (tutti_wait(r[i], 0) == TUTTI_ERR_TIMEOUT)
                    usleep(10);
            else
                CHECK_OK(tutti_wait(r[i], -1));
            CHECK_INT(h[i].calls, s + 1);
        }
    }
    for (int i = 0; i < 8; i++) {
        CHECK_INT(h[i].ended, 0);
        CHECK_OK(tutti_request_free(r[i]));
    }
}

/* Callbacks start other requests, in a long chain. Also tests that callbacks may not wait. */
static void chain(rank_t *self)
{
    enum {
        LINKS = 50
    };
    static __thread float x[LINKS];
    heard_t h[LINKS];
    tutti_request_t *r[LINKS], *open;
    tutti_async_options_t last;
    float y = 1;
    char name[16];

    memset(h, 0, sizeof(h));
    for (int i = 0; i < LINKS; i++) {
        tutti_async_options_t options = hears(&h[i]);
        tutti_call_t call;

        x[i] = 1;
        snprintf(name, sizeof(name), "chain %d", i);
        call = ranks_sum(name, &x[i], 1);
        call.options = &options;
        CHECK_OK(tutti_persistent_create(&call, self->comm, &r[i]));
        if (i > 0)
            h[i - 1].next = r[i];
    }
    /* This request has the same callback data as the last link of the chain, and makes the first of
       its two calls. */
    last = hears(&h[LINKS - 1]);
    CHECK_OK(tutti_allreduce_async("open", &y, &y, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, &last,
                                   &open));
    CHECK_OK(tutti_wait(open, -1));
    CHECK_INT(h[LINKS - 1].calls, 1);
    CHECK_OK(tutti_start(r[0]));
    while (atomic_load(&h[LINKS - 1].calls) < 2) {
        int done;

        tutti_test(r[LINKS - 1], &done);
        usleep(100);
    }
    for (int i = 0; i < LINKS; i++) {
        CHECK_OK(tutti_wait(r[i], -1));
        CHECK_INT(x[i], self->size);
        CHECK_OK(tutti_request_free(r[i]));
    }
}

static void no_waiting(rank_t *self)
{
    float x = 1, y = 1;
    heard_t h = { 0 };
    tutti_async_options_t options = hears(&h);
    tutti_request_t *r;

    if (self->size == 1)
        return;
    /* Rank 0 submits "never" here. The other ranks submit it only after rank 0's callback has tried
       to wait for it. */
    if (self->rank == 0)
        CHECK_OK(tutti_allreduce_async("never", &y, &y, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &h.other));
    CHECK_OK(tutti_allreduce_async("looks", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                   &options, &r));
    CHECK_OK(tutti_wait(r, -1));
    CHECK_INT(h.calls, 1);
    CHECK_INT(h.waited, self->rank == 0 ? TUTTI_ERR_INVALID_ARGUMENT : TUTTI_OK);
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank != 0)
        CHECK_OK(tutti_allreduce_async("never", &y, &y, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &h.other));
    CHECK_OK(tutti_wait(h.other, -1));
    CHECK_INT(y, self->size);
}

/* Callbacks also get errors: mismatches, and requests that are pending at the end. */
static void bad_ends(rank_t *self)
{
    float x[2] = { 1, 1 };
    heard_t h[2] = { 0 };
    tutti_async_options_t options[2] = { hears(&h[0]), hears(&h[1]) };
    tutti_request_t *r[2];

    if (self->size == 1)
        return;
    CHECK_OK(tutti_allreduce_async("misfit", x, x, self->rank == 0 ? 1 : 2, TUTTI_FLOAT32,
                                   TUTTI_SUM, self->comm, &options[0], &r[0]));
    CHECK_STATUS(tutti_wait(r[0], -1), TUTTI_ERR_MISMATCH);
    CHECK_INT(h[0].calls, 1);
    CHECK_INT(h[0].ended, TUTTI_ERR_MISMATCH);
    /* This must precede the barrier: a rank that is slow to leave the barrier may get the error
       that other ranks have left. */
    if (self->rank == 0)
        CHECK_OK(tutti_allreduce_async("alone", x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       &options[1], &r[1]));
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank != 0) {
        usleep(100000);
        return;
    }
    tutti__comm_close(self->inside);
    self->inside = NULL;
    CHECK_INT(h[1].calls, 1);
    CHECK_INT(h[1].ended, TUTTI_ERR_SHUTDOWN);
    CHECK_STATUS(tutti_wait(r[1], -1), TUTTI_ERR_SHUTDOWN);
    CHECK_INT(h[1].calls, 1);
}

static void aborted(rank_t *self)
{
    float x = 1;
    heard_t h = { 0 };
    tutti_async_options_t options = hears(&h);
    tutti_request_t *r;

    if (self->rank == 0) {
        CHECK_OK(tutti_barrier(self->comm)); /* now all ranks have submitted it */
        CHECK_OK(tutti_abort(self->comm, "enough"));
        return;
    }
    CHECK_OK(
        tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, &options, &r));
    (void)tutti_barrier(self->comm); /* a rank that is slow to leave may get the error here */
    CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_PEER_LOST);
    CHECK_INT(h.calls, 1);
    CHECK_INT(h.ended, TUTTI_ERR_PEER_LOST);
}

/* ---- waiting for any ---- */

/* If a request is submitted again whenever it is done, tutti_wait_any must still return the other
   requests. The world has one rank, so that every request is done at once. With more ranks, all
   ranks would have to choose the same request. */
static void fair(rank_t *self)
{
    enum {
        N = 6
    };
    float x[N] = { 0 };
    tutti_request_t *r[N];
    char name[8];
    size_t index;
    int picked[N] = { 0 };

    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        CHECK_OK(tutti_allreduce_async(name, &x[i], &x[i], 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &r[i]));
    }
    for (int k = 0; k < 10 * N; k++) {
        CHECK_OK(tutti_wait_any(r, N, -1, &index));
        CHECK(r[index] == NULL);
        picked[index]++;
        snprintf(name, sizeof(name), "f%d", (int)index);
        CHECK_OK(tutti_allreduce_async(name, &x[index], &x[index], 1, TUTTI_FLOAT32, TUTTI_SUM,
                                       self->comm, NULL, &r[index]));
    }
    for (int i = 0; i < N; i++)
        CHECK_INT(picked[i], 10);
    CHECK_OK(tutti_wait_all(r, N, -1));
}

/* One request of self->comm, and one of `other`, which also has all ranks. */
static void timeouts(rank_t *self, tutti_comm_t *other)
{
    float x[2] = { 1, 1 };
    tutti_request_t *r[2] = { NULL, NULL };
    size_t index = 77;

    if (self->size == 1)
        return;
    if (self->rank == 0) {
        CHECK_OK(tutti_allreduce_async("t0", x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                       &r[0]));
        CHECK_OK(tutti_allreduce_async("t1", x + 1, x + 1, 1, TUTTI_FLOAT32, TUTTI_SUM, other, NULL,
                                       &r[1]));
        CHECK_STATUS(tutti_wait_any(r, 2, 0, &index), TUTTI_ERR_TIMEOUT);
        CHECK_STATUS(tutti_wait_any(r, 2, 20, &index), TUTTI_ERR_TIMEOUT);
        CHECK_INT(index, 77);
        CHECK_STATUS(tutti_wait_all(r, 2, 20), TUTTI_ERR_TIMEOUT);
        CHECK(r[0] != NULL && r[1] != NULL);
    }
    CHECK_OK(tutti_barrier(self->comm));
    for (int i = 0; i < 2 && self->rank != 0; i++)
        CHECK_OK(tutti_allreduce_async(i ? "t1" : "t0", &x[i], &x[i], 1, TUTTI_FLOAT32, TUTTI_SUM,
                                       i ? other : self->comm, NULL, &r[i]));
    CHECK_OK(tutti_wait_all(r, 2, 20000));
    CHECK_INT(x[0] + x[1], 2 * self->size);
}

/* The wait for the first request of a list uses a part of the timeout. The error must still name
   the whole timeout. */
static void whole_timeout(rank_t *self)
{
    float x[2] = { 1, 1 };
    tutti_request_t *r[2] = { NULL, NULL };

    if (self->size == 1)
        return;
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank != 0)
        usleep(20000);
    CHECK_OK(
        tutti_allreduce_async("soon", x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &r[0]));
    if (self->rank == 0) {
        CHECK_OK(tutti_allreduce_async("late", x + 1, x + 1, 1, TUTTI_FLOAT32, TUTTI_SUM,
                                       self->comm, NULL, &r[1]));
        CHECK_STATUS(tutti_wait_all(r, 2, 100), TUTTI_ERR_TIMEOUT);
        CHECK_WORDS("is not done after 100 ms");
    }
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank != 0)
        CHECK_OK(tutti_allreduce_async("late", x + 1, x + 1, 1, TUTTI_FLOAT32, TUTTI_SUM,
                                       self->comm, NULL, &r[1]));
    CHECK_OK(tutti_wait_all(r, 2, -1));
    CHECK_INT(x[0] + x[1], 2 * self->size);
}

/* Requests of two communicators in one list. */
static void mixed(rank_t *self)
{
    float x[2] = { 1, 1 };
    tutti_comm_t *half, *other;
    tutti_request_t *r[2];
    size_t index;

    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, 0, &half));
    for (int i = 0; i < 40; i++) {
        CHECK_OK(tutti_allreduce_async("all", &x[0], &x[0], 1, TUTTI_FLOAT32, TUTTI_MAX, self->comm,
                                       NULL, &r[i % 2]));
        CHECK_OK(tutti_allreduce_async("half", &x[1], &x[1], 1, TUTTI_FLOAT32, TUTTI_MAX, half,
                                       NULL, &r[1 - i % 2]));
        if (i % 4 == 3) {
            CHECK_OK(tutti_wait_all(r, 2, -1));
            continue;
        }
        CHECK_OK(tutti_wait_any(r, 2, -1, &index));
        CHECK(index < 2 && r[index] == NULL);
        CHECK_OK(tutti_wait_any(r, 2, -1, &index));
        CHECK(r[0] == NULL && r[1] == NULL);
    }
    CHECK_OK(tutti_comm_free(half));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &other));
    timeouts(self, other);
    CHECK_OK(tutti_comm_free(other));
}

static void everything(rank_t *self)
{
    many_starts(self);
    start_all(self);
    all_kinds(self);
    moves(self);
    wrong_uses(self);
    each_start(self);
    chain(self);
    no_waiting(self);
    if (self->size == 1)
        fair(self);
    timeouts(self, self->comm);
    whole_timeout(self);
    mixed(self);
    bad_ends(self);
}

int main(void)
{
    static const int sizes[] = { 1, 2, 3, 5, 8 };
    static const char *const hosts[] = { "ab", "aabb", "abab" };
    int failures = 0, threads = !ranks_can_fork();

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        job_t job = { .size = sizes[i], .threads = threads, .fn = everything };

        if (threads && sizes[i] != 2)
            continue;
        RUN_JOB(failures, &job);
        job.fn = aborted;
        if (sizes[i] > 1 && !threads)
            RUN_JOB(failures, &job);
    }
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        job_t job = {
            .size = (int)strlen(hosts[i]), .hosts = hosts[i], .threads = threads, .fn = everything
        };

        if (threads && i != 1)
            continue;
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
