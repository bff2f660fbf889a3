/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that end without being served, because their communicator is freed, a rank has left, or
 * another call's deadline has passed. Also calls that a callback may not make.
 */
#include "engine/steps.h"
#include "multi/requests/async_calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tutti_status_t reduce(const char *name, float *x, tutti_comm_t *comm,
                             const tutti_async_options_t *options, tutti_request_t **ret_request)
{
    return tutti_allreduce_async(name, x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, options,
                                 ret_request);
}

/* Wait until this rank has received the report that the communicator is dead. */
static void await_death(rank_t *self)
{
    while (tutti__watch_alive(self->inside->watch) == TUTTI_OK)
        usleep(1000);
}

/* ---- a buffer that is passed while all requests are being ended ---- */

enum {
    FILLERS = 4000,
    LATE = 8
};

/*
 * Ending the fillers one after another takes time. During this time rank 0 passes the buffers of
 * the `late` requests. The library will end these requests, but they are not done at this moment.
 */
static void given_late(rank_t *self, int aborts)
{
    tutti_request_t **filler = calloc(FILLERS, sizeof(tutti_request_t *)), *late[LATE];
    size_t ones[16], counts[16], index;
    tutti_comm_t *part;
    char name[32];
    int x[16] = { 0 }, y[16];

    for (int r = 0; r < 16; r++)
        ones[r] = 1;
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    for (int i = 0; i < LATE; i++) {
        snprintf(name, sizeof(name), "late %d", i);
        CHECK_OK(tutti_alltoallv_async(name, x, ones, NULL, NULL, NULL, NULL, TUTTI_INT32, part,
                                       NULL, &late[i]));
        CHECK_OK(tutti_request_recvcounts(late[i], -1, counts));
    }
    for (int i = 0; self->rank == 0 && i < FILLERS; i++) {
        snprintf(name, sizeof(name), "filler %d", i);
        CHECK_OK(tutti_barrier_async(name, part, NULL, &filler[i]));
    }
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0) {
        CHECK(tutti_wait_any(filler, FILLERS, -1, &index) != TUTTI_OK);
        for (int i = 0; i < LATE; i++)
            (void)tutti_request_receive(late[i], y, NULL);
    } else {
        /* The other rank sleeps by then, so the library's thread ends its requests. */
        usleep(20000);
        if (aborts)
            CHECK_OK(tutti_abort(part, "enough"));
        CHECK_OK(tutti_comm_free(part));
    }
    for (int i = 0; i < LATE; i++)
        CHECK_STATUS(tutti_wait(late[i], -1), aborts ? TUTTI_ERR_PEER_LOST : TUTTI_ERR_SHUTDOWN);
    CHECK((tutti_wait_all(filler, FILLERS, -1) != TUTTI_OK) == (self->rank == 0));
    if (self->rank == 0)
        CHECK_OK(tutti_comm_free(part));
    CHECK_OK(tutti_barrier(self->comm));
    free(filler);
}

static void buffers_too_late(rank_t *self)
{
    for (int i = 0; i < 10; i++)
        given_late(self, i % 2);
}

/* ---- one of several communicators is freed ---- */

static void freed_before(rank_t *self)
{
    float x[2] = { 1, 1 };
    tutti_comm_t *part;
    tutti_request_t *r[2];
    size_t index = 9;

    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    CHECK_OK(reduce("part", &x[0], part, NULL, &r[0]));
    if (self->rank == 0)
        CHECK_OK(reduce("more", &x[1], part, NULL, &r[1]));
    CHECK_OK(tutti_wait(r[0], -1));
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(part));
    if (self->rank == 0)
        r[0] = r[1];
    CHECK_OK(reduce("all", &x[1], self->comm, NULL, &r[1]));
    if (self->rank == 0) {
        CHECK_STATUS(tutti_wait_any(r, 2, -1, &index), TUTTI_ERR_SHUTDOWN);
        CHECK_INT(index, 0);
    }
    CHECK_OK(tutti_wait(r[1], -1));
}

static void *wait_for_both(void *arg)
{
    tutti_request_t **r = arg;
    size_t index;

    CHECK_STATUS(tutti_wait_any(r, 2, -1, &index), TUTTI_ERR_SHUTDOWN);
    CHECK_INT(index, 0);
    return NULL;
}

/* Only rank 0 has a pending request, and frees the communicator during the wait. */
static void freed_meanwhile(rank_t *self)
{
    for (int i = 0; i < 20; i++) {
        float x[2] = { 1, 1 };
        tutti_comm_t *part;
        tutti_request_t *r[2];
        pthread_t thread;

        CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
        if (self->rank == 0) {
            CHECK_OK(reduce("part", &x[0], part, NULL, &r[0]));
            CHECK_OK(reduce("all", &x[1], self->comm, NULL, &r[1]));
            pthread_create(&thread, NULL, wait_for_both, r);
            usleep(i % 5 * 50u);
            CHECK_OK(tutti_comm_free(part));
            pthread_join(thread, NULL);
        }
        CHECK_OK(tutti_barrier(self->comm));
        if (self->rank != 0) {
            CHECK_OK(tutti_comm_free(part));
            CHECK_OK(reduce("all", &x[1], self->comm, NULL, &r[1]));
        }
        CHECK_OK(tutti_wait(r[1], -1));
        CHECK_INT(x[1], self->size);
    }
}

/* Repeat this until the communicator ends. */
static void *start_and_receive(void *arg)
{
    tutti_request_t *r = arg;
    tutti_status_t status;
    size_t counts[16];
    int y[16];

    do {
        status = tutti_start(r);
        if (status != TUTTI_OK)
            break;
        status = tutti_request_recvcounts(r, -1, counts);
        if (status == TUTTI_OK)
            (void)tutti_request_receive(r, y, NULL);
        status = tutti_wait(r, -1);
    } while (status == TUTTI_OK);
    CHECK_STATUS(status, TUTTI_ERR_SHUTDOWN);
    CHECK_OK(tutti_request_free(r));
    return NULL;
}

/* Calls on requests need no communicator. */
static void started_meanwhile(rank_t *self)
{
    for (int i = 0; i < 20; i++) {
        tutti_call_t call = TUTTI_CALL_INIT;
        size_t ones[16];
        int x[16] = { 0 };
        tutti_comm_t *part;
        tutti_request_t *r;
        pthread_t thread;

        for (int k = 0; k < 16; k++)
            ones[k] = 1;
        call.kind = TUTTI_CALL_ALLTOALLV;
        call.name = "again";
        call.dtype = TUTTI_INT32;
        call.sendbuf = x;
        call.sendcounts = ones;
        CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
        CHECK_OK(tutti_persistent_create(&call, part, &r));
        pthread_create(&thread, NULL, start_and_receive, r);
        usleep(1000 + (unsigned)i % 7 * 30);
        if (self->rank == 0)
            CHECK_OK(tutti_comm_free(part));
        pthread_join(thread, NULL);
        CHECK_OK(tutti_barrier(self->comm));
        if (self->rank != 0)
            CHECK_OK(tutti_comm_free(part));
    }
}

/* ---- another call's deadline ---- */

static void *wait_to_the_end(void *arg)
{
    CHECK_STATUS(tutti_wait(arg, -1), TUTTI_ERR_TIMEOUT);
    return NULL;
}

#define LONG_MS 20000 /* much longer than the communicator's deadline */

/* With a timeout of the caller's own, TIMEOUT only means that the request is still pending. */
static void deadlines(rank_t *self)
{
    float x[6] = { 0 };
    tutti_request_t *r[6], *v;
    size_t ones[16], counts[16], index = 9;
    pthread_t thread;
    char name[32];
    int times = 0, done;
    tutti_status_t status;

    if (self->rank != 0) {
        await_death(self);
        return;
    }
    for (int i = 0; i < 16; i++)
        ones[i] = 1;
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof(name), "r%d", i);
        CHECK_OK(reduce(name, &x[i], self->comm, NULL, &r[i]));
    }
    CHECK_OK(tutti_alltoallv_async("v", x, ones, NULL, NULL, NULL, NULL, TUTTI_FLOAT32, self->comm,
                                   NULL, &v));
    pthread_create(&thread, NULL, wait_to_the_end, r[0]);
    while ((status = tutti_wait(r[1], 50)) == TUTTI_ERR_TIMEOUT)
        CHECK(++times < 200);
    CHECK_STATUS(status, TUTTI_ERR_SHUTDOWN);
    last_error_says("deadline", "rank 0 waited", "'r0'");
    /* The requests end one after another, so the others may still be pending. */
    CHECK_STATUS(tutti_wait_any(&r[2], 2, LONG_MS, &index), TUTTI_ERR_SHUTDOWN);
    CHECK(index < 2 && r[2 + index] == NULL);
    CHECK_STATUS(tutti_wait_all(&r[2], 2, LONG_MS), TUTTI_ERR_SHUTDOWN);
    CHECK(r[2] == NULL && r[3] == NULL);
    CHECK_STATUS(tutti_request_recvcounts(v, LONG_MS, counts), TUTTI_ERR_SHUTDOWN);
    CHECK_STATUS(tutti_wait(v, LONG_MS), TUTTI_ERR_SHUTDOWN);
    /* When the request has ended, tutti_test returns its status. */
    while ((status = tutti_test(r[4], &done)) == TUTTI_OK)
        CHECK_INT(done, 0);
    CHECK_STATUS(status, TUTTI_ERR_TIMEOUT);
    CHECK_INT(done, 1);
    CHECK_STATUS(tutti_wait(r[4], -1), TUTTI_ERR_TIMEOUT);
    CHECK_STATUS(tutti_wait_any(&r[5], 1, -1, &index), TUTTI_ERR_TIMEOUT);
    CHECK_INT(index, 0);
    pthread_join(thread, NULL);
}

static void short_deadline(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.timeout_ms = 2000; /* the set-up is within this timeout */
}

/* ---- callbacks ---- */

typedef struct {
    tutti_comm_t *part, *other;
    atomic_int calls;
} freeing_t;

static void frees(void *arg, tutti_status_t status)
{
    freeing_t *f = arg;

    CHECK_OK(status);
    CHECK_STATUS(tutti_comm_free(f->part), TUTTI_ERR_INVALID_ARGUMENT);
    last_error_says("callback", NULL, NULL);
    CHECK_STATUS(tutti_comm_free(f->other), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_comm_free(NULL));
    CHECK_STATUS(tutti_finalize(), TUTTI_ERR_INVALID_ARGUMENT);
    last_error_says("callback", NULL, NULL);
    atomic_fetch_add(&f->calls, 1);
}

/* Callbacks may not free communicators, on the waiting thread or on the library's thread. */
static void ends_in_callbacks(rank_t *self)
{
    float x = 1;
    freeing_t f = { 0 };
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *r;

    options.callback = frees;
    options.callback_arg = &f;
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &f.part));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &f.other));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(reduce("x", &x, f.part, &options, &r));
        while (i % 2 && atomic_load(&f.calls) <= i)
            usleep(1000);
        CHECK_OK(tutti_wait(r, -1));
        CHECK_INT(atomic_load(&f.calls), i + 1);
    }
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(f.part));
    CHECK_OK(tutti_comm_free(f.other));
}

static void takes(void *arg, tutti_status_t status)
{
    tutti_request_t **r = arg;

    CHECK_OK(status);
    CHECK_OK(tutti_wait(*r, 0));
}

/* A request is done, and would end a wait. But the waiting thread calls a callback that frees this
   request. Then the wait continues until another request is done. */
static void freed_by_callback(rank_t *self)
{
    tutti__engine_t *e = self->inside->engine;
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    float x[3] = { 1, 1, 1 }, all;
    tutti_request_t *list[2], *first, *second;
    size_t index = 7;

    /* While this thread owns the token, no request is done. */
    tutti__token_await(&e->token);
    CHECK_OK(reduce("first", &x[0], self->comm, NULL, &first));
    options.callback = takes;
    options.callback_arg = &first;
    CHECK_OK(reduce("second", &x[1], self->comm, &options, &second));
    CHECK_OK(tutti_allgatherv_async("later", &x[2], 1, NULL, NULL, NULL, TUTTI_FLOAT32, self->comm,
                                    NULL, &list[1]));
    tutti__token_leave(&e->token);
    list[0] = first;
    CHECK_STATUS(tutti_wait_any(list, 2, 500, &index), TUTTI_ERR_TIMEOUT);
    CHECK_INT(index, 7);
    CHECK_OK(tutti_wait(second, LONG_MS));
    /* `first` is freed. */
    CHECK_STATUS(tutti_wait(first, 0), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_request_receive(list[1], &all, NULL));
    list[0] = NULL;
    CHECK_OK(tutti_wait_any(list, 2, LONG_MS, &index));
    CHECK_INT(index, 1);
}

enum {
    OTHERS = 200
};

static void counts(void *arg, tutti_status_t status)
{
    CHECK_OK(status);
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* Ends another communicator's requests, whose callbacks this thread cannot call. */
static void ends_others(void *arg, tutti_status_t status)
{
    freeing_t *f = arg;
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;

    CHECK_OK(status);
    options.callback = counts;
    options.callback_arg = &f->calls;
    for (int i = 0; i < OTHERS; i++) {
        tutti_request_t *r;
        float y = 1;
        int done = 0;

        CHECK_OK(reduce("y", &y, f->other, &options, &r));
        while (tutti_test(r, &done) == TUTTI_OK && !done)
            ;
        CHECK_INT(y, tutti_size(f->other));
        while (atomic_load(&f->calls) == i)
            usleep(1000);
    }
}

/* Without stall warnings the library's thread does not wake at intervals. So the library's thread
   calls the callbacks only if the thread inside a callback wakes it. In a communicator of one rank
   the library has no thread. */
static void end_others(rank_t *self, int is_alone)
{
    float x = 1, y;
    freeing_t f = { 0 };
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *r = NULL, *other = NULL;

    options.callback = ends_others;
    options.callback_arg = &f;
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &f.part));
    CHECK_OK(tutti_comm_split(self->comm, is_alone ? self->rank : 0, 0, &f.other));
    CHECK_OK(reduce("x", &x, f.part, self->rank == 0 ? &options : NULL, &r));
    for (int i = 0; i < OTHERS && self->rank == 1; i++) {
        y = 1;
        CHECK_OK(reduce("y", &y, f.other, NULL, &other));
        CHECK_OK(tutti_wait(other, -1));
    }
    CHECK_OK(tutti_wait(r, -1));
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(f.part));
    CHECK_OK(tutti_comm_free(f.other));
}

static void callbacks_of_others(rank_t *self)
{
    end_others(self, 0);
    end_others(self, 1);
}

static void no_warnings(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.stall_ms = 0;
}

/* ---- after a rank has left ---- */

/* New requests are refused. Pending messages between two ranks continue, until a call needs the
   missing rank. */
static void left_behind(rank_t *self)
{
    float x = (float)self->rank, y = 1;
    tutti_call_t call = TUTTI_CALL_INIT;
    tutti_request_t *persistent, *r = NULL;
    tutti_status_t status;

    call.kind = TUTTI_CALL_BARRIER;
    call.name = "again";
    CHECK_OK(tutti_persistent_create(&call, self->comm, &persistent));
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == self->size - 1) {
        CHECK_OK(tutti_request_free(persistent));
        return;
    }
    /* The last rank may have left before this call. */
    status = tutti_barrier_async("first", self->comm, NULL, &r);
    CHECK_STATUS(status == TUTTI_OK ? tutti_wait(r, -1) : status, TUTTI_ERR_SHUTDOWN);
    r = NULL;
    CHECK_STATUS(reduce("x", &x, self->comm, NULL, &r), TUTTI_ERR_SHUTDOWN);
    last_error_says("tutti_finalize", "rank", NULL);
    CHECK_STATUS(tutti_submit(&call, 1, self->comm, &r), TUTTI_ERR_SHUTDOWN);
    CHECK(r == NULL);
    CHECK_STATUS(tutti_start(persistent), TUTTI_ERR_SHUTDOWN);
    CHECK_OK(tutti_request_free(persistent));
    CHECK_STATUS(tutti_join(self->comm, NULL), TUTTI_ERR_SHUTDOWN);
    if (self->rank == 0)
        CHECK_OK(tutti_send(&x, 1, TUTTI_FLOAT32, 1, self->comm));
    else
        CHECK_OK(tutti_recv(&y, 1, TUTTI_FLOAT32, 0, self->comm));
    if (self->rank == 1) {
        CHECK_INT(y, 0);
        CHECK_OK(tutti_send(&x, 1, TUTTI_FLOAT32, 0, self->comm));
    } else {
        CHECK_OK(tutti_recv(&y, 1, TUTTI_FLOAT32, 1, self->comm));
        CHECK_INT(y, 1);
    }
    /* This call ends the communicator. */
    CHECK_STATUS(tutti_barrier(self->comm), TUTTI_ERR_SHUTDOWN);
    await_death(self);
    CHECK_STATUS(tutti_send(&x, 1, TUTTI_FLOAT32, !self->rank, self->comm), TUTTI_ERR_SHUTDOWN);
}

int main(void)
{
    static const char *const hosts[] = { "aaa", "aab", "abb", "abc" };
    static const rank_fn_t fns[] = { buffers_too_late, freed_before, freed_meanwhile,
                                     started_meanwhile, ends_in_callbacks };
    job_t alone = { .size = 1, .threads = !ranks_can_fork(), .fn = freed_by_callback };
    int failures = 0, threads = !ranks_can_fork();

    RUN_JOB(failures, &alone);
    for (size_t i = 0; i < sizeof(fns) / sizeof(fns[0]); i++) {
        job_t job = { .size = 2, .threads = threads, .fn = fns[i] };

        RUN_JOB(failures, &job);
        job.hosts = "ab";
        RUN_JOB(failures, &job);
    }
    for (int of_hosts = 0; of_hosts < 2; of_hosts++) {
        job_t job = { .size = 2, .threads = threads, .fn = callbacks_of_others };

        job.hosts = of_hosts ? "ab" : NULL;
        job.settings = no_warnings;
        RUN_JOB(failures, &job);
    }
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]) && !threads; i++) {
        job_t job = { .size = 3, .hosts = hosts[i], .fn = left_behind };

        RUN_JOB(failures, &job);
        job.fn = deadlines;
        job.settings = short_deadline;
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
