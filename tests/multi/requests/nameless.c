/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous calls without a name, matched by their order: a mixture of all collectives beside
 * named and direct calls; messages of each pair of ranks; lists, persistent requests and callbacks;
 * mismatches, after which the next call works; ranks that leave, and a communicator that is freed.
 */
#include "multi/requests/async_calls.h"
#include "long.h"

#include "base/time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TASKS = 160,
    OPEN = 12, /* requests that a rank has in flight */
    MESSAGES = 40,
    ROOM = 64
};

static int is_long;

/* ---- a mixture ---- */

/* A hash, so that choices are equal on all ranks. */
static unsigned mix(unsigned x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static task_facts_t facts_of(int number, int size)
{
    static const size_t counts[] = { 1, 3, 250, 17, 5000, 64, 0, 30000 };
    static const tutti_dtype_t types[] = { TUTTI_FLOAT32, TUTTI_INT32, TUTTI_BFLOAT16,
                                           TUTTI_FLOAT64 };
    unsigned random = mix((unsigned)number + 1);
    task_facts_t f = { .number = number,
                       .kind = (tutti_call_kind_t)(1 + random % TUTTI_CALL_BARRIER),
                       .dtype = types[random >> 8 & 3],
                       .count = counts[random >> 12 & 7],
                       .root = (int)(random >> 16) % size,
                       .displs = (int)(random >> 24 & 1) };

    if (task_reduces(f.kind))
        f.op = random >> 25 & 1 ? TUTTI_MAX : TUTTI_SUM;
    if (f.kind == TUTTI_CALL_ALLREDUCE && f.dtype == TUTTI_FLOAT32 && f.op == TUTTI_SUM) {
        f.prescale = 2;
        f.postscale = 0.5;
    }
    f.in_place = f.kind == TUTTI_CALL_ALLREDUCE && (random >> 26 & 1);
    return f;
}

/* Has this call no name? Calls with names are submitted out of order. */
static int is_nameless(int number)
{
    return mix((unsigned)number * 3 + 7) % 4 != 0;
}

static void finish(task_t **open, int i)
{
    CHECK_OK(tutti_wait(open[i]->request, -1));
    task_verify(open[i]);
    task_free(open[i]);
    open[i] = NULL;
}

/* Wait for one of the requests, or for all of them. */
static void finish_some(const rank_t *self, task_t **open, int step, int all)
{
    int first = (int)(mix((unsigned)(self->rank * 1000 + step)) % OPEN), done = 0;

    for (int i = 0; i < OPEN; i++) {
        int at = (first + i) % OPEN;

        if (open[at] == NULL || (!all && done))
            continue;
        finish(open, at);
        done = 1;
    }
}

static void start(const rank_t *self, task_t **open, int number, int named)
{
    task_facts_t facts = facts_of(number, self->size);
    int at = 0;

    while (open[at] != NULL)
        at++;
    open[at] = task_make(self, &facts);
    if (!named)
        open[at]->call.name = NULL;
    CHECK_OK(task_start(open[at], self->comm));
}

/* Named calls are submitted late, by a number of calls that differs between ranks. A rank may
   submit up to OPEN / 2 calls before it waits. */
static void mixture(rank_t *self)
{
    task_t *open[OPEN] = { NULL };
    int late = -1, count = is_long ? 10 * TASKS : TASKS, x = 0;

    for (int number = 0; number < count; number++) {
        int used = 0;

        for (int i = 0; i < OPEN; i++)
            used += open[i] != NULL;
        if (used > OPEN - 4)
            finish_some(self, open, number, 0);
        if (is_nameless(number)) {
            start(self, open, number, 0);
        } else if (late < 0 && (number + self->rank) % 2) {
            late = number;
        } else {
            start(self, open, number, 1);
        }
        if (late >= 0 && number > late + self->rank) {
            start(self, open, late, 1);
            late = -1;
        }
        /* Direct calls are made at the same time; their order is independent. */
        if (number % 16 == 5)
            CHECK_OK(tutti_allreduce(&number, &x, 1, TUTTI_INT32, TUTTI_MAX, self->comm));
        if (number % 16 == 5)
            CHECK_INT(x, number);
        if (late >= 0 && number % 8 == 7) {
            start(self, open, late, 1);
            late = -1;
        }
        /* Now and then all ranks wait for all their calls, so that no rank waits for a call that
           another rank makes only after a wait. */
        if (number % 8 == 7)
            finish_some(self, open, number, 1);
    }
    if (late >= 0)
        start(self, open, late, 1);
    finish_some(self, open, count, 1);
}

/* Many small calls. A rank waits for them one by one, for all at once, or only at the end. */
static void many(rank_t *self)
{
    enum {
        N = 300
    };
    tutti_request_t *requests[N];
    int x[N];

    for (int way = 0; way < 3; way++) {
        for (int i = 0; i < N; i++) {
            x[i] = i + self->rank;
            CHECK_OK(tutti_allreduce_async(NULL, &x[i], &x[i], 1, TUTTI_INT32, TUTTI_SUM,
                                           self->comm, NULL, &requests[i]));
            if (way == 0)
                CHECK_OK(tutti_wait(requests[i], -1));
        }
        for (int i = N; way == 1 && i-- > 0;)
            CHECK_OK(tutti_wait(requests[i], -1));
        if (way == 2)
            CHECK_OK(tutti_wait_all(requests, N, -1));
        for (int i = 0; i < N; i++)
            CHECK_INT(x[i], self->size * i + self->size * (self->size - 1) / 2);
    }
}

/* No thread of this rank waits: the library's thread makes progress. */
static void unattended(rank_t *self)
{
    tutti_request_t *request;
    int x[3000];

    for (int round = 0; round < 3; round++) {
        int done = 0;

        for (int i = 0; i < 3000; i++)
            x[i] = self->rank;
        if (self->rank == round % self->size)
            usleep(3000); /* the others usually sleep by then; the result does not depend on it */
        CHECK_OK(tutti_allreduce_async(NULL, x, x, 3000, TUTTI_INT32, TUTTI_SUM, self->comm, NULL,
                                       &request));
        if (self->rank % 2) {
            CHECK_OK(tutti_wait(request, -1));
        } else {
            while (!done) {
                usleep(500);
                CHECK_OK(tutti_test(request, &done));
            }
            CHECK_OK(tutti_wait(request, 0));
        }
        CHECK_INT(x[2999], self->size * (self->size - 1) / 2);
    }
    CHECK_OK(tutti_barrier(self->comm));
}

/* ---- messages ---- */

static int message(int from, int to, int n)
{
    return from * 10000 + to * 1000 + n;
}

/* Each rank first sends to all, then receives from all. The n-th send to a rank matches the n-th
   receive from the sender. */
static void messages(rank_t *self)
{
    int peers = self->size, n = is_long ? MESSAGES : 8, at = 0;
    tutti_request_t **requests = calloc((size_t)(2 * peers * n), sizeof(tutti_request_t *));
    int *in = calloc((size_t)(peers * n * ROOM), sizeof(*in));
    int *out = calloc((size_t)(peers * n), sizeof(*out) * ROOM);

    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            for (int p = 0; p < peers; p++) {
                int *buffer = (pass == 0 ? out : in) + (p * n + i) * ROOM;
                size_t count = (size_t)(1 + i % ROOM);

                if (p == self->rank)
                    continue;
                if (pass == 0) {
                    buffer[i % ROOM] = message(self->rank, p, i);
                    CHECK_OK(tutti_send_async(NULL, buffer, count, TUTTI_INT32, p, self->comm, NULL,
                                              &requests[at++]));
                } else {
                    CHECK_OK(tutti_recv_async(NULL, buffer, count, TUTTI_INT32, p, self->comm, NULL,
                                              &requests[at++]));
                }
            }
        }
    }
    CHECK_OK(tutti_wait_all(requests, (size_t)at, -1));
    for (int p = 0; p < peers; p++)
        for (int i = 0; i < n && p != self->rank; i++)
            CHECK_INT(in[(p * n + i) * ROOM + i % ROOM], message(p, self->rank, i));
    free(requests);
    free(in);
    free(out);
    /* If one message mismatches, only its two ranks get an error, and the next messages arrive. */
    if (self->rank < 2) {
        int x[4] = { 1, 2, 3, 4 };
        tutti_request_t *r[2];

        for (int i = 0; i < 2; i++) {
            size_t count = i == 0 && self->rank == 1 ? 3 : 2;

            if (self->rank == 0)
                CHECK_OK(tutti_send_async(NULL, x, count, TUTTI_INT32, 1, self->comm, NULL, &r[i]));
            else
                CHECK_OK(tutti_recv_async(NULL, x, count, TUTTI_INT32, 0, self->comm, NULL, &r[i]));
        }
        CHECK_STATUS(tutti_wait(r[0], -1), TUTTI_ERR_MISMATCH);
        last_error_says("from rank 0 to rank 1, without a name", NULL, NULL);
        CHECK_OK(tutti_wait(r[1], -1));
    }
    CHECK_OK(tutti_barrier(self->comm));
}

/* ---- lists, persistent requests, callbacks ---- */

static tutti_call_t call_of(tutti_call_kind_t kind, void *x, size_t count)
{
    tutti_call_t call = TUTTI_CALL_INIT;

    call.kind = kind;
    call.dtype = TUTTI_INT32;
    call.op = TUTTI_SUM;
    call.sendbuf = call.recvbuf = x;
    call.count = count;
    return call;
}

static void lists(rank_t *self)
{
    int x[4] = { 1, 2, 3, 4 }, peer = self->rank ^ 1, got = -1, mine = self->rank;
    tutti_request_t *requests[4] = { NULL };
    tutti_call_t calls[4];

    for (int i = 0; i < 4; i++)
        calls[i] = call_of(TUTTI_CALL_ALLREDUCE, &x[i], 1);
    calls[2] = call_of(TUTTI_CALL_BROADCAST, &x[2], 1);
    calls[1].name = "named";
    CHECK_STATUS(tutti_submit(calls, 4, self->comm, requests), TUTTI_ERR_INVALID_ARGUMENT);
    last_error_says("calls[1] has a name", NULL, NULL);
    CHECK(requests[0] == NULL);
    calls[1].name = NULL;
    CHECK_OK(tutti_submit(calls, 4, self->comm, requests));
    CHECK_OK(tutti_wait_all(requests, 4, -1));
    CHECK_INT(x[0], self->size);
    CHECK_INT(x[1], 2 * self->size);
    CHECK_INT(x[2], 3);
    CHECK_INT(x[3], 4 * self->size);
    /* If a list has an error, none of its calls is counted. */
    calls[3].count = 1;
    calls[3].dtype = (tutti_dtype_t)99;
    CHECK_STATUS(tutti_submit(calls, 4, self->comm, requests), TUTTI_ERR_INVALID_ARGUMENT);
    still_works(self, NULL);
    /* A list has sends and receives; its order differs between ranks. */
    if (peer < self->size) {
        calls[0] = call_of(TUTTI_CALL_SEND, &mine, 1);
        calls[1] = call_of(TUTTI_CALL_RECV, &got, 1);
        calls[0].root = calls[1].root = peer;
        CHECK_OK(tutti_submit(calls, 2, self->comm, requests));
        CHECK_OK(tutti_wait_all(requests, 2, -1));
        CHECK_INT(got, peer);
    }
    CHECK_OK(tutti_barrier(self->comm));
}

/* A persistent request gets its place in the order when it is started. */
static void persistent(rank_t *self)
{
    int a = 0, b = 0;
    tutti_call_t first = call_of(TUTTI_CALL_ALLREDUCE, &a, 1);
    tutti_call_t second = call_of(TUTTI_CALL_ALLREDUCE, &b, 1);
    tutti_request_t *x, *y, *list[2];

    second.op = TUTTI_MAX;
    CHECK_OK(tutti_persistent_create(&first, self->comm, &x));
    CHECK_OK(tutti_persistent_create(&second, self->comm, &y));
    for (int round = 0; round < 10; round++) {
        a = 1;
        b = self->rank;
        CHECK_OK(tutti_start(round % 2 ? x : y));
        still_works(self, NULL);
        CHECK_OK(tutti_start(round % 2 ? y : x));
        list[0] = x;
        list[1] = y;
        CHECK_OK(tutti_wait_all(list, 2, -1));
        CHECK_INT(a, self->size);
        CHECK_INT(b, self->size - 1);
    }
    CHECK_OK(tutti_request_free(x));
    CHECK_OK(tutti_request_free(y));
}

/* Each callback submits the next call, up to the last call. */
typedef struct {
    tutti_comm_t *comm;
    tutti_async_options_t options;
    tutti_request_t *requests[20];
    int x[20], next;
    atomic_int done;
} chain_t;

static void submit_next(chain_t *chain)
{
    int i = chain->next++;

    chain->x[i] = i;
    CHECK_OK(tutti_allreduce_async(NULL, &chain->x[i], &chain->x[i], 1, TUTTI_INT32, TUTTI_SUM,
                                   chain->comm, &chain->options, &chain->requests[i]));
}

static void on_end(void *arg, tutti_status_t status)
{
    const tutti_callback_info_t *info = arg;
    chain_t *chain = info->arg;

    CHECK_OK(status);
    CHECK(info->name == NULL);
    if (chain->next < 20)
        submit_next(chain);
    else
        atomic_store(&chain->done, 1);
}

static void callbacks(rank_t *self)
{
    chain_t chain = { .comm = self->comm, .options = TUTTI_ASYNC_OPTIONS_INIT };

    chain.options.callback = on_end;
    chain.options.callback_arg = &chain;
    chain.options.callback_info = 1;
    submit_next(&chain);
    if (self->rank % 2)
        while (!atomic_load(&chain.done))
            usleep(200);
    for (int i = 0; i < 20; i++) {
        while (i > 0 && !atomic_load(&chain.done))
            usleep(200);
        CHECK_OK(tutti_wait(chain.requests[i], -1));
        CHECK_INT(chain.x[i], self->size * i);
    }
    CHECK_OK(tutti_barrier(self->comm));
}

static void refused(rank_t *self)
{
    int x = 1;
    size_t counts[16] = { 0 };
    tutti_request_t *request = NULL;
    tutti_comm_t *comm = self->comm;

    CHECK_STATUS(tutti_barrier_async("call 1 without a name", comm, NULL, &request),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_barrier_async("message 1 from rank 0 to rank 1, without a name", comm, NULL,
                                     &request),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_sendrecv_async(NULL, &x, 1, 0, &x, 1, 0, TUTTI_INT32, comm, NULL, &request),
                 TUTTI_ERR_INVALID_ARGUMENT);
    last_error_says("sendrecv", "name", NULL);
    CHECK_STATUS(tutti_alltoallv_async(NULL, &x, counts, NULL, NULL, NULL, NULL, TUTTI_INT32, comm,
                                       NULL, &request),
                 TUTTI_ERR_INVALID_ARGUMENT);
    last_error_says("recvcounts NULL needs a name", NULL, NULL);
    CHECK_STATUS(
        tutti_allreduce_async(NULL, &x, &x, 1, (tutti_dtype_t)99, TUTTI_SUM, comm, NULL, &request),
        TUTTI_ERR_INVALID_ARGUMENT);
    CHECK(request == NULL);
    /* The refused calls are not counted. A name that is only similar to the library's own names is
       not refused. */
    still_works(self, NULL);
    still_works(self, "call 1 with a name");
    still_works(self, "without a name");
    if (self->size > 1) {
        int last_rank;

        CHECK_OK(tutti_join(comm, &last_rank));
        still_works(self, NULL);
    }
}

/* ---- mismatches ---- */

typedef struct {
    tutti_call_t call, last; /* call: of all ranks but the last; last: of the last rank */
    const char *one, *other; /* words of the error's text, on one host */
} misfit_t;

static int data[16 * ROOM];
static size_t some[16], others[16];

static misfit_t misfit(int i, int size)
{
    static const tutti_async_options_t scaled = { .size = sizeof(scaled), .prescale = 0.5 };
    tutti_call_t call = call_of(TUTTI_CALL_ALLREDUCE, data, 8);
    misfit_t m = { call, call, "allreduce", NULL };

    switch (i) {
    case 0:
        m.last.count = 9;
        m.one = "8 elements";
        m.other = "9 elements";
        break;
    case 1:
        m.last.kind = TUTTI_CALL_BROADCAST;
        m.other = "broadcast";
        break;
    case 2:
        m.last.op = TUTTI_MAX;
        m.other = "max";
        break;
    case 3:
        m.last.dtype = TUTTI_UINT32;
        m.other = "uint32";
        break;
    case 4:
        m.call.kind = m.last.kind = TUTTI_CALL_BROADCAST;
        m.last.root = 1 % size;
        m.one = "root 0";
        m.other = "root 1";
        break;
    case 5:
        m.call.dtype = m.last.dtype = TUTTI_FLOAT32;
        m.last.options = &scaled;
        break;
    case 6:
        m.call.kind = m.last.kind = TUTTI_CALL_ALLGATHERV;
        m.call.sendbuf = m.last.sendbuf = data + 8 * ROOM;
        m.call.count = m.last.count = 2;
        m.call.recvcounts = some;
        m.last.recvcounts = others;
        m.one = "recvcounts";
        break;
    case 7:
        m.call.kind = TUTTI_CALL_BARRIER;
        m.one = "barrier";
        break;
    case 8:
        m.last.count = 30;
        m.last.kind = TUTTI_CALL_SCAN;
        m.other = "scan";
        break;
    default:
        m.call.kind = (tutti_call_kind_t)0;
    }
    return m;
}

static void mismatches(rank_t *self)
{
    char want[48];

    for (int i = 0; misfit(i, self->size).call.kind != 0; i++) {
        misfit_t m = misfit(i, self->size);
        tutti_call_t *call = self->rank == self->size - 1 ? &m.last : &m.call;
        tutti_request_t *request, *next;
        int x = 1, y = 0;

        CHECK_OK(tutti_submit(call, 1, self->comm, &request));
        /* Now the next call is already in flight. */
        CHECK_OK(tutti_allreduce_async(NULL, &x, &y, 1, TUTTI_INT32, TUTTI_SUM, self->comm, NULL,
                                       &next));
        CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_MISMATCH);
        snprintf(want, sizeof(want), "call %d without a name", 2 * i + 1);
        last_error_says(want, m.one, m.other);
        CHECK_OK(tutti_wait(next, -1));
        CHECK_INT(y, self->size);
    }
    still_works(self, "x");
    CHECK_OK(tutti_barrier(self->comm));
}

/* ---- ends ---- */

/* Rank 1 leaves. At this time one call of the other ranks is in the lane, and another call waits
   for the lane. */
static void departure(rank_t *self)
{
    tutti_comm_t *comm;
    tutti_request_t *requests[2];
    int x = 1, y = 1;

    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &comm));
    if (self->rank == 1) {
        CHECK_OK(tutti_comm_free(comm));
        CHECK_OK(tutti_barrier(self->comm));
        return;
    }
    for (int i = 0; i < 2; i++) {
        tutti_status_t status = tutti_allreduce_async(NULL, &x, &y, 1, TUTTI_INT32, TUTTI_SUM, comm,
                                                      NULL, &requests[i]);

        if (status != TUTTI_OK) {
            CHECK_INT(status, TUTTI_ERR_SHUTDOWN);
            continue;
        }
        CHECK_STATUS(tutti_wait(requests[i], -1), TUTTI_ERR_SHUTDOWN);
        last_error_says("rank 1", NULL, NULL);
    }
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(comm));
}

/* Rank 0 frees a communicator with such calls in flight. */
static void freed(rank_t *self)
{
    tutti_comm_t *comm;
    tutti_request_t *requests[3];
    int x[3] = { 0 };

    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &comm));
    CHECK_OK(tutti_barrier(self->comm));
    for (int i = 0; self->rank == 0 && i < 3; i++)
        CHECK_OK(tutti_allreduce_async(NULL, &x[i], &x[i], 1, TUTTI_INT32, TUTTI_SUM, comm, NULL,
                                       &requests[i]));
    if (self->rank == 0) {
        CHECK_OK(tutti_comm_free(comm));
        for (int i = 0; i < 3; i++)
            CHECK_STATUS(tutti_wait(requests[i], -1),
                         self->size > 1 ? TUTTI_ERR_SHUTDOWN : TUTTI_OK);
    }
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank != 0)
        CHECK_OK(tutti_comm_free(comm));
    CHECK_OK(tutti_barrier(self->comm));
}

int main(void)
{
    static const struct {
        rank_fn_t fn;
        int least; /* ranks */
    } cases[] = { { mixture, 1 },    { many, 1 },       { unattended, 1 }, { messages, 2 },
                  { lists, 1 },      { persistent, 1 }, { callbacks, 1 },  { refused, 1 },
                  { mismatches, 2 }, { departure, 2 },  { freed, 1 } };
    static const char *const hosts[] = { NULL, "aabb" };
    int failures = 0;

    for (int i = 0; i < 16; i++)
        some[i] = others[i] = 2;
    others[0] = 3;
    is_long = test_is_long("3 ranks, 4 on one host, most of the calls and messages");
    for (int threads = 0; threads < 2; threads++) {
        if (!threads && !ranks_can_fork())
            continue;
        for (int size = 1; size <= 4; size += size > 1 && !is_long ? 2 : 1)
            for (size_t h = size > 2 && !is_long ? 1 : 0; h < (size > 1 || is_long ? 2 : 1); h++)
                for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
                    job_t job = { .size = size,
                                  .threads = threads,
                                  .hosts = size > 2 || h == 0 ? hosts[h] : "ab",
                                  .fn = cases[c].fn };

                    if (size >= cases[c].least)
                        RUN_JOB(failures, &job);
                }
    }
    return failures != 0;
}
