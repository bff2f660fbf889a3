/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles that concurrent threads use, the handle that a callback uses, and a buffer that a rank
 * does not pass. tests/api/handles.c tests every function.
 */
#include "engine/request.h"
#include "engine/steps.h"
#include "ranks.h"

#include "multi/requests/async_calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- stale handles in other threads, while their slots are reused ---- */

enum {
    THREADS = 2,
    ROUNDS = 300
};

typedef struct {
    tutti_comm_t *comm; /* already freed */
    tutti_request_t *request;
    atomic_int *stop;
} stale_t;

static void *misuse(void *arg)
{
    const stale_t *s = arg;
    float x = 0;
    int done;

    while (!atomic_load(s->stop)) {
        CHECK_STATUS(tutti_test(s->request, &done), TUTTI_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(tutti_wait(s->request, 0), TUTTI_ERR_INVALID_ARGUMENT);
        CHECK_STATUS(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, s->comm),
                     TUTTI_ERR_INVALID_ARGUMENT);
        CHECK_INT(tutti_size(s->comm), -1);
        usleep(100);
    }
    return NULL;
}

static void beside_threads(rank_t *self)
{
    tutti_request_t *r[8], *again;
    pthread_t thread[THREADS];
    atomic_int stop = 0;
    stale_t s = { .stop = &stop };
    float x[8] = { 0 };
    char name[16];

    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &s.comm));
    CHECK_OK(tutti_comm_free(s.comm));
    CHECK_OK(tutti_barrier_async("b", self->comm, NULL, &s.request));
    CHECK_OK(tutti_wait(s.request, -1));
    for (int t = 0; t < THREADS; t++)
        CHECK_INT(pthread_create(&thread[t], NULL, misuse, &s), 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 8; i++) {
            snprintf(name, sizeof(name), "%d", i);
            CHECK_OK(tutti_allreduce_async(name, &x[i], &x[i], 1, TUTTI_FLOAT32, TUTTI_SUM,
                                           self->comm, NULL, &r[i]));
        }
        CHECK_OK(tutti_wait_all(r, 8, -1));
        /* This request has the slot of the stale handle. */
        CHECK_OK(tutti_barrier_async("b", self->comm, NULL, &again));
        CHECK_INT((uint32_t)(uintptr_t)again, (uint32_t)(uintptr_t)s.request);
        CHECK_OK(tutti_wait(again, -1));
    }
    atomic_store(&stop, 1);
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    CHECK_OK(tutti_barrier(self->comm));
}

/* ---- the slots of known names ---- */

static void submit_two(tutti_comm_t *comm, float *x, tutti_request_t **r)
{
    for (int i = 0; i < 2; i++)
        CHECK_OK(tutti_allreduce_async(i == 0 ? "a" : "b", &x[i], &x[i], 1, TUTTI_FLOAT32,
                                       TUTTI_SUM, comm, NULL, &r[i]));
}

/* The memory of each name's request keeps its slot and its reference to the engine, in both orders
   of the waits. The old handles stay invalid. */
static void known_names(rank_t *self)
{
    const tutti__engine_t *engine = self->inside->engine;
    tutti_request_t *first[2], *r[2], *before[2];
    float x[2] = { 0 };
    int refs, done;

    submit_two(self->comm, x, first);
    memcpy(r, first, sizeof(r));
    refs = atomic_load(&engine->refs);
    for (int step = 0; step < 20; step++) {
        memcpy(before, r, sizeof(r));
        CHECK_OK(tutti_wait(r[step % 2], -1));
        CHECK_OK(tutti_wait(r[1 - step % 2], -1));
        CHECK_INT(atomic_load(&engine->refs), refs);
        submit_two(self->comm, x, r);
        for (int i = 0; i < 2; i++) {
            CHECK_INT((uint32_t)(uintptr_t)r[i], (uint32_t)(uintptr_t)first[i]);
            CHECK(r[i] != before[i]);
            CHECK_STATUS(tutti_test(before[i], &done), TUTTI_ERR_INVALID_ARGUMENT);
        }
    }
    CHECK_OK(tutti_wait_all(r, 2, -1));
    CHECK_OK(tutti_barrier(self->comm));
}

/* A communicator's slots are free after tutti_comm_free, also those of requests that are freed
   later. If they were not, each rank would take slots for two names in each of the ten rounds after
   the second. A persistent request can no longer be started, but can be freed. */
static void freed_slots(rank_t *self)
{
    uint32_t used = 0;

    for (int round = 0; round < 12; round++) {
        tutti_request_t *r[2], *persistent;
        tutti_comm_t *comm;
        float x[2] = { 0 };
        tutti_call_t call = ranks_sum("p", x, 1);
        int done[2] = { 0 };

        CHECK_OK(tutti_comm_split(self->comm, 0, 0, &comm));
        CHECK_OK(tutti_persistent_create(&call, comm, &persistent));
        submit_two(comm, x, r);
        for (int i = 0; i < 2; i++)
            while (!done[i])
                CHECK_OK(tutti_test(r[i], &done[i]));
        CHECK_OK(tutti_wait(r[0], -1));
        CHECK_OK(tutti_comm_free(comm));
        CHECK_OK(tutti_wait(r[1], -1));
        CHECK_STATUS(tutti_start(persistent), TUTTI_ERR_SHUTDOWN);
        CHECK_OK(tutti_request_free(persistent));
        CHECK_OK(tutti_barrier(self->comm));
        if (round == 1)
            used = atomic_load(&tutti__requests.used);
        CHECK_OK(tutti_barrier(self->comm));
    }
    CHECK(atomic_load(&tutti__requests.used) <= used + 2 * (uint32_t)self->size);
}

/* ---- callbacks ---- */

enum {
    TOLD = 50
};

typedef struct {
    tutti_request_t **request; /* the variable in which the submitting call stores the request */
    const char *name;
    int calls;
} told_t;

/* Even if this callback runs early, the submitting call has already stored the request. */
static void tell(void *arg, tutti_status_t status)
{
    const tutti_callback_info_t *info = arg;
    told_t *told = info->arg;
    int done = 1;

    CHECK_OK(status);
    CHECK_INT(info->size, sizeof(*info));
    CHECK(info->request != NULL && info->request == *told->request);
    CHECK_INT(strcmp(info->name, told->name), 0);
    CHECK_OK(tutti_test(info->request, &done));
    CHECK_INT(done, 0);
    told->calls++;
}

static void tell_argument(void *arg, tutti_status_t status)
{
    CHECK_OK(status);
    *(int *)arg += 1;
}

/* In a job of one rank, the submitting call completes the request and calls the callback. */
static void told_at_once(rank_t *self)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT, plain = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *r[TOLD] = { NULL };
    told_t told = { .calls = 0 };
    tutti_comm_t *alone;
    float x = 1;
    char name[16];
    int calls = 0;

    CHECK_OK(tutti_comm_split(self->comm, self->rank, 0, &alone));
    options.callback = tell;
    options.callback_arg = &told;
    options.callback_info = 1;
    plain.callback = tell_argument;
    plain.callback_arg = &calls;
    told.name = name;
    for (int i = 0; i < TOLD; i++) {
        snprintf(name, sizeof(name), "told %d", i);
        told.request = &r[i];
        CHECK_OK(tutti_allreduce_async(name, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, alone, &options,
                                       &r[i]));
        CHECK_OK(tutti_wait(r[i], -1));
        CHECK_OK(tutti_barrier_async(name, alone, &plain, &r[i]));
        CHECK_OK(tutti_wait(r[i], -1));
    }
    CHECK_INT(told.calls, TOLD);
    CHECK_INT(calls, TOLD);
    CHECK_OK(tutti_comm_free(alone));
}

/* Lists, persistent requests, and ranks that wait for each other. */
static void told_of_lists(rank_t *self)
{
    tutti_async_options_t options[4];
    tutti_call_t call[4];
    tutti_request_t *r[4] = { NULL };
    told_t told[4];
    float x[4] = { 1, 2, 3, 4 };
    char name[4][16];

    for (int i = 0; i < 4; i++) {
        snprintf(name[i], sizeof(name[i]), "list %d", i);
        told[i] = (told_t){ &r[i], name[i], 0 };
        options[i] = (tutti_async_options_t)TUTTI_ASYNC_OPTIONS_INIT;
        options[i].callback = tell;
        options[i].callback_arg = &told[i];
        options[i].callback_info = 1;
        call[i] = ranks_sum(name[i], &x[i], 1);
        call[i].options = &options[i];
    }
    for (int times = 1; times <= TOLD; times++) {
        CHECK_OK(tutti_submit(call, 4, self->comm, r));
        CHECK_OK(tutti_wait_all(r, 4, -1));
        for (int i = 0; i < 4; i++)
            CHECK_INT(told[i].calls, times);
    }
    CHECK_OK(tutti_persistent_create(&call[0], self->comm, &r[0]));
    for (int times = 1; times <= TOLD; times++) {
        CHECK_OK(tutti_start(r[0]));
        CHECK_OK(tutti_wait(r[0], -1));
        CHECK_INT(told[0].calls, TOLD + times);
    }
    CHECK_OK(tutti_request_free(r[0]));
}

/* A program that was built with the first version passes a shorter structure. Also tests invalid
   options. */
static void old_options(rank_t *self)
{
    tutti_async_options_t options;
    tutti_request_t *r = NULL;
    int calls = 0;

    memset(&options, 0xff, sizeof(options)); /* after the first version's fields: garbage */
    options.size = offsetof(tutti_async_options_t, callback_info);
    options.callback = tell_argument;
    options.callback_arg = &calls;
    options.prescale = options.postscale = 0;
    CHECK_OK(tutti_barrier_async("old", self->comm, &options, &r));
    CHECK_OK(tutti_wait(r, -1));
    CHECK_INT(calls, 1);
    r = NULL;
    options.size = sizeof(options);
    options.callback_info = 2;
    options.timeout_ms = 0;
    CHECK_STATUS(tutti_barrier_async("new", self->comm, &options, &r), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "callback_info is 2") != NULL);
    options.callback_info = 0;
    options.timeout_ms = -1;
    CHECK_STATUS(tutti_barrier_async("new", self->comm, &options, &r), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "timeout_ms is -1") != NULL);
    options.timeout_ms = 0;
    options.size = sizeof(options) - 1;
    CHECK_STATUS(tutti_barrier_async("new", self->comm, &options, &r), TUTTI_ERR_ABI);
    CHECK(r == NULL);
    CHECK_OK(tutti_barrier(self->comm));
}

/* A call whose name is pending fails, and leaves the caller's variable unchanged. */
static void unchanged(rank_t *self)
{
    tutti_request_t *first, *second = (tutti_request_t *)(void *)self;
    float x = 0;

    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0) {
        CHECK_OK(tutti_allreduce_async("twice", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &first));
        CHECK_STATUS(tutti_allreduce_async("twice", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                           NULL, &second),
                     TUTTI_ERR_INVALID_ARGUMENT);
        CHECK(second == (tutti_request_t *)(void *)self);
    }
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank != 0)
        CHECK_OK(tutti_allreduce_async("twice", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &first));
    CHECK_OK(tutti_wait(first, -1));
}

/* ---- a rank without the second phase of a call with unknown counts ---- */

#define ONLY_COUNTS                                                                                \
    "rank 1 has announced only its counts: tutti_request_receive is missing, or the process is "   \
    "stopped"

/* From now on, waits in the rank's engine have a shorter deadline than tutti_init had. The engine's
   thread reads it with the token. */
static void soon(rank_t *self)
{
    tutti__token_await(&self->inside->engine->token);
    self->inside->conf.shared.timeout_ms = 700;
    tutti__engine_yield(self->inside->engine, TUTTI__STEP_WAITER);
}

/* Only rank 0 waits, so all ranks get the text of rank 0's error. */
static void end_without(rank_t *self, tutti_request_t *r)
{
    while (self->rank != 0 && tutti__watch_alive(self->inside->watch) == TUTTI_OK)
        usleep(1000);
    CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_TIMEOUT);
    last_error_says("v", ONLY_COUNTS, "");
    CHECK(strstr(tutti_last_error(), "submitted") == NULL);
}

/* Rank 1 asks for its counts, but passes no buffer. */
static void no_buffer(rank_t *self)
{
    size_t ones[16], counts[16];
    tutti_request_t *r;
    int x[16] = { 0 }, y[16];

    for (int i = 0; i < 16; i++)
        ones[i] = 1;
    CHECK_OK(tutti_alltoallv_async("v", x, ones, NULL, NULL, NULL, NULL, TUTTI_INT32, self->comm,
                                   NULL, &r));
    CHECK_OK(tutti_request_recvcounts(r, -1, counts));
    if (self->rank != 1)
        CHECK_OK(tutti_request_receive(r, y, NULL));
    soon(self);
    end_without(self, r);
}

static atomic_int ended; /* rank 0 has its error */

/* Hold rank 1's engine: it makes steps until the first phase is complete, and then no steps. */
static void stop_between(rank_t *self, const tutti_request_t *handle)
{
    tutti__engine_t *engine = self->inside->engine;
    tutti__request_t *request;

    CHECK_OK(tutti__request_of(handle, &request));
    while (request->phase == 0)
        if (!tutti__engine_step(engine, TUTTI__STEP_WAITER))
            usleep(100);
    while (!atomic_load(&ended))
        usleep(1000);
    tutti__engine_yield(engine, TUTTI__STEP_WAITER);
}

/* Rank 1 has passed its counts and its buffer in the call, and is stopped between the phases. */
static void stopped_between(rank_t *self)
{
    size_t ones[16], counts[16];
    tutti_request_t *r;
    int x[16] = { 0 }, y[16];

    atomic_store(&ended, 0);
    CHECK_OK(tutti_barrier(self->comm));
    for (int i = 0; i < 16; i++)
        ones[i] = 1;
    if (self->rank == 1) {
        tutti__token_await(&self->inside->engine->token);
        CHECK_OK(tutti_alltoallv_async("v", x, ones, NULL, y, ones, NULL, TUTTI_INT32, self->comm,
                                       NULL, &r));
        stop_between(self, r);
    } else {
        CHECK_OK(tutti_alltoallv_async("v", x, ones, NULL, NULL, NULL, NULL, TUTTI_INT32,
                                       self->comm, NULL, &r));
        CHECK_OK(tutti_request_recvcounts(r, -1, counts));
        CHECK_OK(tutti_request_receive(r, y, NULL));
        soon(self);
    }
    if (self->rank != 0) {
        end_without(self, r);
        return;
    }
    CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_TIMEOUT);
    last_error_says("v", ONLY_COUNTS, "");
    atomic_store(&ended, 1);
}

/* ---- all requests of tutti_wait_any are freed inside a callback ---- */

enum {
    FREED = 2
};

/* Shared by rank 0 and its callbacks. */
typedef struct {
    rank_t *self;
    pthread_t thread;                        /* of rank 0 */
    tutti_request_t *_Atomic request[FREED]; /* NULL: not submitted yet */
    atomic_int in_callback, may_end;
    int is_freed[FREED];
} freed_t;

/* Occupies the engine's own thread, so that only rank 0's thread takes steps. */
static void occupy(void *arg, tutti_status_t status)
{
    freed_t *f = arg;

    (void)status;
    atomic_store(&f->in_callback, 1);
    while (!atomic_load(&f->may_end) && !pthread_equal(pthread_self(), f->thread))
        usleep(100);
}

static void free_all(void *arg, tutti_status_t status)
{
    freed_t *f = arg;

    (void)status;
    for (int i = 0; i < FREED; i++) {
        tutti_request_t *r = atomic_load(&f->request[i]);
        int done = 0;

        if (r != NULL && tutti_test(r, &done) == TUTTI_OK && done)
            f->is_freed[i] = tutti_wait(r, -1) == TUTTI_OK;
    }
}

static void submit_freed(freed_t *f, tutti_async_options_t *options, float *x,
                         tutti_request_t **request)
{
    static const char *const names[FREED + 1] = { "a", "b", "c" };
    tutti_call_t call[FREED + 1];

    for (int i = 0; i <= FREED; i++) {
        call[i] = ranks_sum(names[i], x + i, 1);
        call[i].options = i == FREED ? options : NULL;
    }
    CHECK_OK(tutti_submit(call, FREED + 1, f->self->comm, request));
}

/* 1: the callback has freed all entries while tutti_wait_any waited for them. */
static int wait_for_freed(freed_t *f)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *r[FREED + 1], *list[FREED];
    float x[FREED + 1] = { 0 };
    size_t index = FREED + 1;
    int all = 1;

    options.callback = free_all;
    options.callback_arg = f;
    submit_freed(f, &options, x, r);
    for (int i = 0; i < FREED; i++) {
        f->is_freed[i] = 0;
        list[i] = r[i];
        atomic_store(&f->request[i], r[i]);
    }
    CHECK_OK(tutti_wait_any(list, FREED, -1, &index));
    CHECK_OK(tutti_wait(r[FREED], -1));
    for (int i = 0; i < FREED; i++) {
        all &= f->is_freed[i];
        CHECK(!f->is_freed[i] || (size_t)i != index);
        if (!f->is_freed[i] && (size_t)i != index)
            CHECK_OK(tutti_wait(r[i], -1));
        atomic_store(&f->request[i], NULL);
    }
    CHECK_INT(index == FREED, all);
    return all;
}

/* Rank 1 submits a little later, so rank 0 usually waits by then. If rank 0 does not wait, the
   ranks agree on another round. */
static void freed_in_callback(rank_t *self)
{
    freed_t f = { .self = self, .thread = pthread_self() };
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *r[FREED + 1], *occupied;
    float x[FREED + 1] = { 0 };
    int seen = 0;

    options.callback = occupy;
    options.callback_arg = &f;
    CHECK_OK(
        tutti_barrier_async("occupied", self->comm, self->rank == 0 ? &options : NULL, &occupied));
    while (self->rank == 0 && !atomic_load(&f.in_callback))
        usleep(100);
    while (!seen) {
        CHECK_OK(tutti_barrier(self->comm));
        if (self->rank == 0) {
            seen = wait_for_freed(&f);
        } else {
            usleep(20000);
            submit_freed(&f, NULL, x, r);
            CHECK_OK(tutti_wait_all(r, FREED + 1, -1));
        }
        CHECK_OK(tutti_broadcast(&seen, 1, TUTTI_INT32, 0, self->comm));
    }
    atomic_store(&f.may_end, 1);
    CHECK_OK(tutti_wait(occupied, -1));
}

int main(void)
{
    const job_t freed = { .size = 2, .threads = 1, .fn = freed_in_callback };
    int failures = 0;

    for (int size = 1; size <= 3; size += 2) {
        rank_fn_t fns[] = { beside_threads, known_names, freed_slots, told_at_once,
                            told_of_lists,  old_options, unchanged };

        for (size_t i = 0; i < sizeof(fns) / sizeof(fns[0]); i++) {
            job_t job = { .size = size, .threads = 1, .fn = fns[i] };

            if (size > 1 || fns[i] != unchanged)
                RUN_JOB(failures, &job);
        }
    }
    RUN_JOB(failures, &freed);
    for (int split = 0; split < 2; split++) {
        const char *hosts = split ? "aab" : NULL;
        job_t silent = { .size = 3, .hosts = hosts, .threads = 1, .fn = no_buffer };
        job_t stopped = { .size = 3, .hosts = hosts, .threads = 1, .fn = stopped_between };

        RUN_JOB(failures, &silent);
        RUN_JOB(failures, &stopped);
    }
    return failures != 0;
}
