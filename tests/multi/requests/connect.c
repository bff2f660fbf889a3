/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators from tutti_comm_connect: only their members make them, and several threads make
 * overlapping communicators at the same time. They are used beside another communicator, have
 * groups of their own, and are freed in different orders. Ranks are threads of one process, or
 * processes.
 */
#include "ranks.h"
#include "long.h"
#include "store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RANKS = 4,
    N = 3000,
    MOST_SETS = 16
};

static int is_long;

/* ---- one communicator ---- */

/* A set of ranks: bit r is rank r of the test. */
static int size_of(unsigned set)
{
    return __builtin_popcount(set);
}

static int rank_in(unsigned set, int rank)
{
    return size_of(set & ((1u << rank) - 1));
}

static tutti_comm_t *connect_set(const char *prefix, unsigned set, int rank)
{
    tutti_store_t store = store_with(prefix);
    tutti_options_t options = store_options(&store, rank_in(set, rank), size_of(set));
    tutti_comm_t *comm = NULL;

    CHECK(set >> rank & 1);
    CHECK_OK(tutti_comm_connect(&options, &comm));
    CHECK(comm != NULL);
    CHECK_INT(tutti_rank(comm), rank_in(set, rank));
    CHECK_INT(tutti_size(comm), size_of(set));
    return comm;
}

/* Direct and asynchronous calls, whose results need exactly these ranks. */
static void work(tutti_comm_t *comm, unsigned set, int rank, int times)
{
    int all[RANKS] = { 0 }, at = 0, *x = malloc(N * sizeof(*x));
    tutti_request_t *request;

    CHECK_OK(tutti_allgather(&rank, all, 1, TUTTI_INT32, comm));
    for (int r = 0; r < RANKS; r++)
        if (set >> r & 1)
            CHECK_INT(all[at++], r);
    for (int t = 0; t < times; t++) {
        int count = t % 3 == 0 ? N : 1 + t;

        for (int i = 0; i < count; i++)
            x[i] = (1 << rank) + i;
        if (t % 2 == 0)
            CHECK_OK(tutti_allreduce(x, x, (size_t)count, TUTTI_INT32, TUTTI_SUM, comm));
        else {
            CHECK_OK(tutti_allreduce_async("x", x, x, (size_t)count, TUTTI_INT32, TUTTI_SUM, comm,
                                           NULL, &request));
            CHECK_OK(tutti_wait(request, -1));
        }
        for (int i = 0; i < count; i++)
            CHECK_INT(x[i], (int)set + size_of(set) * i);
    }
    free(x);
}

/* The ranks free the communicator after all ranks have used it; connect_ends.c tests ranks that
   leave earlier. */
static void finish(tutti_comm_t *comm)
{
    CHECK_OK(tutti_barrier(comm));
    CHECK_OK(tutti_comm_free(comm));
}

/* ---- the cases ---- */

static void members(rank_t *self)
{
    unsigned everybody = (1u << self->size) - 1, others = everybody & ~1u;
    tutti_comm_t *comm;

    CHECK(tutti_world() == NULL);
    comm = connect_set("members/all", everybody, self->rank);
    CHECK(tutti_world() == NULL);
    work(comm, everybody, self->rank, 8);
    finish(comm);
    CHECK_INT(tutti_size(comm), -1);
    CHECK_STATUS(tutti_comm_free(comm), TUTTI_ERR_INVALID_ARGUMENT);
    /* Rank 0 does not take part, and makes its own call meanwhile. */
    if (self->rank == 0) {
        comm = connect_set("members/alone", 1, 0);
        work(comm, 1, 0, 8);
    } else {
        comm = connect_set("members/others", others, self->rank);
        work(comm, others, self->rank, 8);
    }
    finish(comm);
    CHECK_OK(tutti_barrier(self->comm));
}

/* Overlapping sets, each connected by a thread of its own on each member. */
typedef struct {
    int rank;
    unsigned set;
    int round;
} crossing_t;

static void *cross(void *arg)
{
    const crossing_t *c = arg;
    tutti_comm_t *comm;
    char prefix[64];

    snprintf(prefix, sizeof(prefix), "crossing/%d/%x", c->round, c->set);
    comm = connect_set(prefix, c->set, c->rank);
    work(comm, c->set, c->rank, 6);
    finish(comm);
    return NULL;
}

/* All sets of two and three ranks, and all ranks. The orders of the threads differ. */
static void overlap(rank_t *self)
{
    int rounds = is_long ? 10 : 2;

    for (int round = 0; round < rounds; round++) {
        crossing_t crossings[MOST_SETS];
        pthread_t threads[MOST_SETS];
        int n = 0;

        for (unsigned i = 0; i < 1u << self->size; i++) {
            unsigned set = self->rank % 2 ? (1u << self->size) - 1 - i : i;

            if (size_of(set) < 2 || !(set >> self->rank & 1))
                continue;
            crossings[n] = (crossing_t){ self->rank, set, round };
            CHECK_INT(pthread_create(&threads[n], NULL, cross, &crossings[n]), 0);
            n++;
        }
        for (int i = 0; i < n; i++)
            pthread_join(threads[i], NULL);
    }
    CHECK_OK(tutti_barrier(self->comm));
}

/* Several communicators exist beside the job's communicator; each rank frees them in a different
   order. */
static void orders(rank_t *self)
{
    enum {
        COMMS = 3
    };
    unsigned everybody = (1u << self->size) - 1;
    tutti_comm_t *comms[COMMS];
    tutti_request_t *requests[COMMS];
    int x[COMMS];

    for (int i = 0; i < COMMS; i++) {
        char prefix[32];

        snprintf(prefix, sizeof(prefix), "orders/%d", i);
        comms[i] = connect_set(prefix, everybody, self->rank);
    }
    /* Requests of several communicators are pending at the same time; the rank waits for them in
       another order. */
    for (int i = 0; i < COMMS; i++) {
        int c = (i + self->rank) % COMMS;

        x[c] = 1 << self->rank;
        CHECK_OK(tutti_allreduce_async("o", &x[c], &x[c], 1, TUTTI_INT32, TUTTI_SUM, comms[c], NULL,
                                       &requests[c]));
    }
    CHECK_OK(tutti_wait_all(requests, COMMS, -1));
    for (int i = 0; i < COMMS; i++) {
        CHECK_INT(x[i], (int)everybody);
        work(comms[i], everybody, self->rank, 3);
    }
    CHECK_OK(tutti_barrier(self->comm));
    for (int i = 0; i < COMMS; i++)
        CHECK_OK(tutti_comm_free(comms[(i + self->rank) % COMMS]));
    CHECK_OK(tutti_barrier(self->comm));
}

static void check_group_text(tutti_comm_t *group, int size)
{
    int x[4] = { 0 };
    char want[64];

    if (size < 2)
        return;
    CHECK_STATUS(
        tutti_allreduce(x, x, tutti_rank(group) == 0 ? 1 : 2, TUTTI_INT32, TUTTI_SUM, group),
        TUTTI_ERR_MISMATCH);
    snprintf(want, sizeof(want), "in a group of %d ranks", size);
    CHECK(strstr(tutti_last_error(), want) != NULL);
}

/* Groups of a connected communicator, and groups of these groups. They end when the communicator
   ends. */
static void groups(rank_t *self)
{
    unsigned everybody = (1u << self->size) - 1;
    int parity = self->rank % 2, sum = 1, size = (self->size + 1 - parity) / 2;
    int reversed[RANKS] = { 0 };
    tutti_comm_t *comm = connect_set("groups", everybody, self->rank), *half, *listed, *again;

    CHECK_OK(tutti_comm_split(comm, parity, -self->rank, &half));
    CHECK_INT(tutti_size(half), size);
    CHECK_OK(tutti_allreduce(&sum, &sum, 1, TUTTI_INT32, TUTTI_SUM, half));
    CHECK_INT(sum, size);
    check_group_text(half, size);
    for (int r = 0; r < self->size; r++)
        reversed[r] = self->size - 1 - r;
    CHECK_OK(tutti_comm_create(comm, reversed, self->size, &listed));
    CHECK_INT(tutti_rank(listed), self->size - 1 - self->rank);
    CHECK_OK(tutti_comm_split(half, 0, 0, &again));
    CHECK_INT(tutti_size(again), size);
    CHECK_OK(tutti_barrier(again));
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(half)); /* `again` stays usable */
    CHECK_OK(tutti_barrier(again));
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(comm)); /* this also frees its groups */
    CHECK_INT(tutti_size(again), -1);
    CHECK_INT(tutti_size(listed), -1);
    CHECK_STATUS(tutti_barrier(again), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_barrier(self->comm));
}

/* The name of the communicator is in its errors. */
static void names(rank_t *self)
{
    static const char prefix[] =
        "names/a-prefix-that-is-longer-than-the-part-of-it-which-a-message-has/7";
    tutti_comm_t *comm = connect_set(prefix, (1u << self->size) - 1, self->rank);
    tutti_status_t state;
    int x[4] = { 0 };
    char text[256];

    CHECK_STATUS(tutti_allreduce(x, x, self->rank == 0 ? 1 : 2, TUTTI_INT32, TUTTI_SUM, comm),
                 TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "in communicator '...") != NULL);
    CHECK(strstr(tutti_last_error(), "a-message-has/7'") != NULL);
    CHECK_OK(tutti_barrier(comm));
    if (self->rank == 1)
        CHECK_OK(tutti_abort(comm, "enough"));
    while (tutti_comm_state(comm, &state, text, sizeof(text)) == TUTTI_OK && state == TUTTI_OK)
        usleep(1000);
    CHECK(strstr(text, "rank 1 of communicator '...") != NULL);
    CHECK(strstr(text, "enough") != NULL);
    CHECK_STATUS(tutti_barrier(comm), TUTTI_ERR_PEER_LOST);
    /* The other communicators still work. */
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(comm));
    CHECK_OK(tutti_barrier(self->comm));
}

/* Communicators are connected by unique ids: one id of one member for all, and a different id for
   each pair. */
static void ids(rank_t *self)
{
    tutti_options_t options = TUTTI_OPTIONS_INIT;
    tutti_unique_id_t id;
    tutti_comm_t *comm;

    if (self->rank == 1)
        CHECK_OK(tutti_unique_id_create(&id));
    CHECK_OK(tutti_broadcast(&id, sizeof(id), TUTTI_UINT8, 1, self->comm));
    options.unique_id = &id;
    options.rank = self->rank;
    options.nranks = self->size;
    CHECK_OK(tutti_comm_connect(&options, &comm));
    work(comm, (1u << self->size) - 1, self->rank, 4);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(comm));
    CHECK_OK(tutti_barrier(self->comm));
    /* If ranks are processes, the id stays valid until the rank that created it calls
       tutti_finalize. */
    CHECK_STATUS(tutti_comm_connect(&options, &comm), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "used already") != NULL);
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 1)
        CHECK_OK(tutti_finalize());
    CHECK_OK(tutti_barrier(self->comm));
}

int main(void)
{
    static const rank_fn_t cases[] = { members, overlap, orders, groups, names, ids };
    int failures = 0;

    is_long = test_is_long("3 ranks, and 8 of 10 rounds of overlapping communicators");
    setenv("TUTTI_TIMEOUT", "50", 1);
    unsetenv("TUTTI_BOOT");
    for (int threads = 0; threads < 2; threads++) {
        if (!threads && !ranks_can_fork())
            continue;
        for (int size = 2; size <= RANKS; size += is_long ? 1 : 2) {
            for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
                job_t job = { .size = size, .threads = threads, .fn = cases[c] };

                store_open();
                RUN_JOB(failures, &job);
            }
        }
    }
    return failures != 0;
}
