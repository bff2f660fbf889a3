/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Invalid direct calls, on all ranks or on one: they return the right status, and a text that names
 * the wrong argument; the communicator still serves the next call.
 */
#include "multi/direct/coll_case.h"
#include "multi/direct/reference.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- invalid calls ---- */

static _Thread_local int x[64], y[64];
static const size_t ones[MOST_RANKS] = { 1, 1, 1, 1, 1, 1, 1, 1 };
static const size_t huge[MOST_RANKS] = { SIZE_MAX / 2, SIZE_MAX / 2, SIZE_MAX / 2 };
static const size_t same_place[MOST_RANKS];

#define WRONG(call, status, words)                                                                 \
    do {                                                                                           \
        CHECK_STATUS(call, status);                                                                \
        CHECK_WORDS(words);                                                                        \
    } while (0)
#define INVALID(call, words) WRONG(call, TUTTI_ERR_INVALID_ARGUMENT, words)
#define UNSUPPORTED(call, words) WRONG(call, TUTTI_ERR_UNSUPPORTED, words)

/* Wrong buffers, types, operations and roots in the calls with equal parts. */
static void bad_cases(rank_t *self)
{
    for (int k = 0; k < CASE_KINDS; k++) {
        case_t good = { case_kinds[k], TUTTI_INT32, TUTTI_SUM, 4, self->rank, APART, PRIVATE };
        int is_buffer = good.kind == TUTTI_CALL_BROADCAST;
        int gets = good.kind != TUTTI_CALL_EXSCAN || self->rank > 0;
        case_t c = good;

        if (!is_buffer)
            INVALID(case_call(&c, NULL, y, self->comm), "sendbuf is NULL");
        if (gets)
            INVALID(case_call(&c, x, NULL, self->comm),
                    is_buffer ? "buffer is NULL" : "recvbuf is NULL");
        if (!is_buffer && gets)
            INVALID(case_call(&c, x, x + 1, self->comm), "overlap");
        c.dtype = (tutti_dtype_t)77;
        INVALID(case_call(&c, x, y, self->comm), "77");
        c.count = 0;
        INVALID(case_call(&c, x, y, self->comm), "77");
        c = good;
        c.count = SIZE_MAX / 2;
        INVALID(case_call(&c, x, y, self->comm), "larger than any memory");
        c = good;
        c.root = self->size;
        if (case_is_rooted(c.kind))
            INVALID(case_call(&c, x, y, self->comm), "root");
        c.root = -1;
        c.count = 0;
        if (case_is_rooted(c.kind))
            INVALID(case_call(&c, x, y, self->comm), "root -1");
        c = good;
        c.op = (tutti_op_t)5000;
        if (case_reduces(c.kind))
            INVALID(case_call(&c, x, y, self->comm), "5000");
        c.op = TUTTI_MINLOC;
        if (case_reduces(c.kind))
            UNSUPPORTED(case_call(&c, x, y, self->comm), "int32");
        c.op = TUTTI_AVG;
        if (c.kind == TUTTI_CALL_SCAN || c.kind == TUTTI_CALL_EXSCAN)
            UNSUPPORTED(case_call(&c, x, y, self->comm), "avg");
        CHECK_STATUS(case_call(&good, x, y, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    }
}

/* Calls with arrays. Every rank is root. */
static void bad_vectors(rank_t *self)
{
    int me = self->rank;
    tutti_comm_t *comm = self->comm;
    tutti_dtype_t i32 = TUTTI_INT32;

    INVALID(tutti_allgatherv(x, 1, y, NULL, NULL, i32, comm), "recvcounts is NULL");
    INVALID(tutti_allgatherv(x, 2, y, ones, NULL, i32, comm), "itself");
    INVALID(tutti_allgatherv(NULL, 1, y, ones, NULL, i32, comm), "sendbuf is NULL");
    INVALID(tutti_allgatherv(x, 1, NULL, ones, NULL, i32, comm), "recvbuf is NULL");
    INVALID(tutti_allgatherv(x, 1, y, huge, NULL, i32, comm), "recvcounts");
    INVALID(tutti_allgatherv(x, 1, y, ones, huge, i32, comm), "displs[0]");
    INVALID(tutti_gatherv(x, 1, y, NULL, NULL, i32, me, comm), "recvcounts is NULL");
    INVALID(tutti_gatherv(x, 2, y, ones, NULL, i32, me, comm), "itself");
    INVALID(tutti_gatherv(x, 1, NULL, ones, NULL, i32, me, comm), "recvbuf is NULL");
    INVALID(tutti_gatherv(x, 1, y, ones, NULL, i32, self->size, comm), "root");
    INVALID(tutti_scatterv(x, NULL, NULL, y, 1, i32, me, comm), "sendcounts is NULL");
    INVALID(tutti_scatterv(x, ones, NULL, y, 0, i32, me, comm), "itself");
    INVALID(tutti_scatterv(NULL, ones, NULL, y, 1, i32, me, comm), "sendbuf is NULL");
    INVALID(tutti_scatterv(x, ones, NULL, NULL, 1, i32, me, comm), "recvbuf is NULL");
    INVALID(tutti_scatterv(x, ones, NULL, y, 1, i32, -3, comm), "root -3");
    INVALID(tutti_alltoallv(x, NULL, NULL, y, ones, NULL, i32, comm), "sendcounts is NULL");
    INVALID(tutti_alltoallv(x, ones, NULL, y, NULL, NULL, i32, comm), "recvcounts is NULL");
    INVALID(tutti_alltoallv(x, huge, NULL, y, huge, NULL, i32, comm), "sendcounts");
    INVALID(tutti_reduce_scatterv(x, y, NULL, i32, TUTTI_SUM, comm), "recvcounts is NULL");
    INVALID(tutti_reduce_scatterv(x, NULL, ones, i32, TUTTI_SUM, comm), "recvbuf is NULL");
    INVALID(tutti_reduce_scatterv(NULL, y, ones, i32, TUTTI_SUM, comm), "sendbuf is NULL");
    INVALID(tutti_alltoallv(x, ones, NULL, x, ones, huge, i32, comm), "recvdispls[0]");
    if (self->size == 1)
        return;
    INVALID(tutti_allgatherv(x, 1, y, ones, same_place, i32, comm), "ranks 0 and 1 in recvbuf");
    INVALID(tutti_gatherv(x, 1, y, ones, same_place, i32, me, comm), "overlap: see displs");
    INVALID(tutti_alltoallv(x, ones, NULL, y, ones, same_place, i32, comm), "see recvdispls");
    INVALID(tutti_alltoallv(x, ones, NULL, x, ones, NULL, (tutti_dtype_t)0, comm), "dtype 0");
    INVALID(tutti_alltoallv(x, ones, same_place, x, ones, NULL, i32, comm), "in place");
    INVALID(tutti_allgatherv(x + (me == 0), 1, x, ones, NULL, i32, comm), "in place");
    if (me == 0)
        INVALID(tutti_reduce_scatterv(x, x + 1, ones, i32, TUTTI_SUM, comm), "in place");
}

static void bad_messages(rank_t *self)
{
    int other = (self->rank + 1) % self->size;

    INVALID(tutti_send(x, 1, TUTTI_INT32, self->rank, self->comm), "dest");
    INVALID(tutti_recv(x, 1, TUTTI_INT32, self->rank, self->comm), "source");
    INVALID(tutti_send(x, 1, TUTTI_INT32, self->size, self->comm), "dest");
    INVALID(tutti_recv(x, 1, TUTTI_INT32, -1, self->comm), "source -1");
    if (self->size == 1)
        return;
    INVALID(tutti_send(NULL, 1, TUTTI_INT32, other, self->comm), "buffer is NULL");
    INVALID(tutti_recv(NULL, 1, TUTTI_INT32, other, self->comm), "buffer is NULL");
    INVALID(tutti_sendrecv(x, 1, other, y, 1, self->rank, TUTTI_INT32, self->comm), "source");
    INVALID(tutti_sendrecv(x, 1, -1, y, 1, other, TUTTI_INT32, self->comm), "dest -1");
    INVALID(tutti_sendrecv(x, 1, other, x, 1, other, TUTTI_INT32, self->comm), "overlap");
    INVALID(tutti_sendrecv(x, 1, other, NULL, 1, other, TUTTI_INT32, self->comm), "recvbuf");
}

/* Interleaved parts do not overlap. */
static void odd_but_good(rank_t *self)
{
    size_t even[MOST_RANKS], odd[MOST_RANKS];
    int z[2 * MOST_RANKS];

    for (int r = 0; r < self->size; r++) {
        even[r] = 2 * (size_t)r;
        odd[r] = 2 * (size_t)r + 1;
        z[2 * r] = 10 * self->rank + r;
        z[2 * r + 1] = -1;
    }
    CHECK_OK(tutti_alltoallv(z, ones, even, z, ones, odd, TUTTI_INT32, self->comm));
    for (int r = 0; r < self->size; r++)
        CHECK_INT(z[2 * r + 1], 10 * r + self->rank);
}

/* In-place calls, with explicit displacements or NULL, and with any displacements of empty
   parts. */
static void same_places(rank_t *self)
{
    size_t counts[MOST_RANKS], displs[MOST_RANKS];
    int z[2 * MOST_RANKS];

    for (int way = 0; way < 2; way++) {
        for (int r = 0; r < self->size; r++) {
            counts[r] = 2;
            displs[r] = 2 * (size_t)r;
            z[2 * r] = z[2 * r + 1] = 10 * self->rank + r;
        }
        CHECK_OK(tutti_alltoallv(z, counts, way ? displs : NULL, z, counts, way ? NULL : displs,
                                 TUTTI_INT32, self->comm));
        for (int r = 0; r < 2 * self->size; r++)
            CHECK_INT(z[r], 10 * (r / 2) + self->rank);
    }
    /* Each rank sends a part only to itself. */
    for (int r = 0; r < self->size; r++) {
        counts[r] = r == self->rank;
        displs[r] = r == self->rank ? 0 : 7;
    }
    z[0] = self->rank;
    CHECK_OK(tutti_alltoallv(z, counts, displs, z, counts, NULL, TUTTI_INT32, self->comm));
    CHECK_INT(z[0], self->rank);
}

static void bad_arguments(rank_t *self)
{
    bad_cases(self);
    bad_vectors(self);
    bad_messages(self);
    case_works(self);
    /* Now only one rank makes the mistakes. These calls start nothing, so this rank then makes the
       right call. */
    for (int r = 0; r < self->size; r++) {
        if (self->rank == r) {
            bad_cases(self);
            bad_vectors(self);
        }
        case_works(self);
    }
    odd_but_good(self);
    same_places(self);
}

/* ---- two threads ---- */

static void *late_barrier(void *arg)
{
    rank_t *self = arg;
    tutti_status_t status;

    do
        status = tutti_barrier(self->comm);
    while (status == TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_INT(status, TUTTI_OK);
    return NULL;
}

/* Two threads make a call at the same time: one call is refused, and the other call has the right
   result. */
static void two_threads(rank_t *self)
{
    for (int i = 0; i < 50; i++) {
        pthread_t thread;

        CHECK_INT(pthread_create(&thread, NULL, late_barrier, self), 0);
        late_barrier(self);
        CHECK_INT(pthread_join(thread, NULL), 0);
    }
    case_works(self);
}

int main(void)
{
    static const int sizes[] = { 1, 2, 3, 5, 8 };
    int failures = 0, threads = !ranks_can_fork();

    for (size_t i = 0; i < COUNT_OF(sizes) && !(threads && sizes[i] > 3); i++) {
        failures += run_small(bad_arguments, sizes[i], NULL, threads);
        if (sizes[i] < 5)
            failures += run_small(two_threads, sizes[i], NULL, threads);
    }
    failures += run_small(bad_arguments, 4, "aabb", threads);
    return failures != 0;
}
