/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators from tutti_comm_connect that fail or end badly: members that never connect, die, or
 * connect twice; deadlines of one communicator only. The other communicators of the process still
 * work.
 */
#include "ranks.h"
#include "store.h"

#include "base/time.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SHORT_MS = 400
};

/* The job's own deadlines are 100 s and more, so they do not cause an end before this time. */
#define IN_TIME_NS 60000000000u

static tutti_options_t options_of(const rank_t *self, tutti_store_t *store, const char *prefix)
{
    *store = store_with(prefix);
    return store_options(store, self->rank, self->size);
}

static tutti_comm_t *connect_all(const rank_t *self, const char *prefix, int timeout_ms)
{
    tutti_store_t store;
    tutti_options_t options = options_of(self, &store, prefix);
    tutti_comm_t *comm;

    options.timeout_ms = timeout_ms;
    CHECK_OK(tutti_comm_connect(&options, &comm));
    return comm;
}

/* The last rank never connects. */
static void missing(rank_t *self)
{
    tutti_store_t store;
    tutti_options_t options = options_of(self, &store, "missing");
    uint64_t begin = tutti__now_ns();
    tutti_comm_t *comm = NULL;
    char want[32];

    options.timeout_ms = SHORT_MS;
    if (self->rank < self->size - 1) {
        tutti_status_t status = tutti_comm_connect(&options, &comm);

        /* The first rank whose deadline passes gets TIMEOUT. The other ranks may detect that this
           rank gives up. On a busy machine the first rank is not always rank 0. */
        CHECK(status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_PEER_LOST);
        CHECK(comm == NULL);
        CHECK_WORDS("communicator 'missing'");
        snprintf(want, sizeof(want), "rank %d did not", self->size - 1);
        if (self->rank == 0 && status == TUTTI_ERR_TIMEOUT)
            CHECK_WORDS(want);
        CHECK(tutti__now_ns() - begin < IN_TIME_NS);
    }
    /* The next communicator works. */
    CHECK_OK(tutti_barrier(self->comm));
    comm = connect_all(self, "found", 0);
    CHECK_OK(tutti_barrier(comm));
    CHECK_OK(tutti_comm_free(comm));
    CHECK_OK(tutti_barrier(self->comm));
}

/* The first rank never connects: the others find no key. */
static void no_host(rank_t *self)
{
    tutti_store_t store;
    tutti_options_t options = options_of(self, &store, "no_host");
    uint64_t begin = tutti__now_ns();
    tutti_comm_t *comm = NULL;

    options.timeout_ms = SHORT_MS;
    if (self->rank > 0) {
        CHECK_STATUS(tutti_comm_connect(&options, &comm), TUTTI_ERR_TIMEOUT);
        CHECK_WORDS("rank 0 has not written it");
        CHECK(tutti__now_ns() - begin < IN_TIME_NS);
    }
    CHECK_OK(tutti_barrier(self->comm));
}

/* Two processes are rank 1, and no process is the last rank. */
static void twice(rank_t *self)
{
    tutti_store_t store;
    tutti_options_t options = options_of(self, &store, "twice");
    tutti_comm_t *comm = NULL;
    uint64_t begin = tutti__now_ns();
    tutti_status_t status;

    if (self->rank == self->size - 1)
        options.rank = 1;
    status = tutti_comm_connect(&options, &comm);
    CHECK(status == TUTTI_ERR_INVALID_ARGUMENT || status == TUTTI_ERR_PEER_LOST);
    CHECK(comm == NULL);
    CHECK_WORDS("communicator 'twice'");
    if (status == TUTTI_ERR_INVALID_ARGUMENT)
        CHECK_WORDS("rank 1");
    if (self->rank == 0)
        CHECK_INT(status, TUTTI_ERR_INVALID_ARGUMENT);
    CHECK(tutti__now_ns() - begin < IN_TIME_NS);
    CHECK_OK(tutti_barrier(self->comm));
}

/* The ranks pass different numbers of ranks. */
static void sizes(rank_t *self)
{
    tutti_store_t store;
    tutti_options_t options = options_of(self, &store, "sizes");
    tutti_comm_t *comm = NULL;

    options.nranks += self->rank == 1;
    CHECK(tutti_comm_connect(&options, &comm) != TUTTI_OK && comm == NULL);
    CHECK_WORDS("communicator 'sizes'");
    CHECK_OK(tutti_barrier(self->comm));
}

/* The last rank dies while the others connect: when it reads the store, or after it has
   connected. */
static int die(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
               int timeout_ms)
{
    (void)context;
    (void)store_get(NULL, key, value, room, ret_bytes, timeout_ms);
    raise(SIGKILL);
    return 1;
}

static void dies_early(rank_t *self)
{
    tutti_store_t store;
    tutti_options_t options = options_of(self, &store, "dies");
    uint64_t begin = tutti__now_ns();
    tutti_comm_t *comm = NULL;
    char want[32];

    options.timeout_ms = 2000;
    if (self->rank == self->size - 1)
        store.get = die;
    CHECK(tutti_comm_connect(&options, &comm) != TUTTI_OK && comm == NULL);
    CHECK(tutti__now_ns() - begin < IN_TIME_NS);
    snprintf(want, sizeof(want), "rank %d did not", self->size - 1);
    if (self->rank == 0)
        CHECK_WORDS(want);
}

/* A rank dies after all are connected: the error names it and the communicator. */
static void dies_later(rank_t *self)
{
    tutti_comm_t *comm = connect_all(self, "later", 0);
    uint64_t begin = tutti__now_ns();
    tutti_status_t status = TUTTI_OK;
    char want[64];

    if (self->rank == self->size - 1)
        raise(SIGKILL);
    while (status == TUTTI_OK)
        status = tutti_barrier(comm);
    CHECK_INT(status, TUTTI_ERR_PEER_LOST);
    snprintf(want, sizeof(want), "rank %d of communicator 'later'", self->size - 1);
    CHECK_WORDS(want);
    CHECK(tutti__now_ns() - begin < IN_TIME_NS);
    CHECK_OK(tutti_comm_free(comm));
}

/* The communicator's own deadline passes, in a direct call and in a wait; other communicators still
   work. */
static void deadlines(rank_t *self)
{
    static const char *const prefixes[] = { "deadline/direct", "deadline/async" };

    for (int async = 0; async < 2; async++) {
        tutti_comm_t *comm = connect_all(self, prefixes[async], SHORT_MS);
        tutti_comm_t *other = connect_all(self, async ? "deadline/c" : "deadline/d", 0);
        uint64_t begin = tutti__now_ns();
        tutti_request_t *request;
        tutti_status_t status = TUTTI_OK;
        float x = 1;

        if (self->rank > 0 && async) {
            CHECK_OK(tutti_allreduce_async("late", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL,
                                           &request));
            status = tutti_wait(request, -1);
        } else if (self->rank > 0) {
            status = tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm);
        }
        if (self->rank > 0) {
            CHECK_INT(status, TUTTI_ERR_TIMEOUT);
            CHECK_WORDS("of communicator 'deadline/");
            CHECK_WORDS("rank 0");
            CHECK(tutti__now_ns() - begin < IN_TIME_NS);
        }
        CHECK_OK(tutti_barrier(other));
        CHECK_OK(tutti_comm_free(comm));
        CHECK_OK(tutti_barrier(self->comm));
        CHECK_OK(tutti_comm_free(other));
    }
    CHECK_OK(tutti_barrier(self->comm));
}

/* Rank 0's deadline counts on all ranks. */
static void one_deadline(rank_t *self)
{
    tutti_comm_t *comm = connect_all(self, "one_deadline", self->rank == 0 ? SHORT_MS : 60000);
    uint64_t begin = tutti__now_ns();
    float x = 1;

    if (self->rank == 1) {
        CHECK_STATUS(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm), TUTTI_ERR_TIMEOUT);
        CHECK(tutti__now_ns() - begin < IN_TIME_NS);
    }
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(comm));
    CHECK_OK(tutti_barrier(self->comm));
}

/* A member frees the communicator while the others still use it: they get SHUTDOWN, with the
   communicator's name. */
static void leaves(rank_t *self)
{
    tutti_comm_t *comm = connect_all(self, "leaves", 0);
    tutti_status_t status = TUTTI_OK;

    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 1) {
        CHECK_OK(tutti_comm_free(comm));
    } else {
        while (status == TUTTI_OK)
            status = tutti_barrier(comm);
        CHECK_INT(status, TUTTI_ERR_SHUTDOWN);
        CHECK_WORDS("rank 1 of communicator 'leaves'");
        CHECK_OK(tutti_barrier(self->comm));
        CHECK_OK(tutti_comm_free(comm));
        return;
    }
    CHECK_OK(tutti_barrier(self->comm));
}

int main(void)
{
    static const struct {
        rank_fn_t fn;
        int kills; /* 1: the last rank is killed */
    } cases[] = { { missing, 0 },   { no_host, 0 },      { twice, 0 },
                  { sizes, 0 },     { dies_early, 1 },   { dies_later, 1 },
                  { deadlines, 0 }, { one_deadline, 0 }, { leaves, 0 } };
    int failures = 0;

    setenv("TUTTI_TIMEOUT", "100", 1);
    unsetenv("TUTTI_BOOT");
    if (!ranks_can_fork())
        return 77;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        for (int size = 3; size <= 4; size++) {
            job_t job = { .size = size,
                          .fn = cases[c].fn,
                          .killed = cases[c].kills ? 1u << (size - 1) : 0 };

            store_open();
            RUN_JOB(failures, &job);
        }
    }
    return failures != 0;
}
