/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct messages between two ranks: around a ring, from one rank to all, between only two ranks,
 * in both directions at once. Messages have from one element to many more than a channel holds;
 * some channels hold only one piece.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/direct/reference.h"

#include "base/time.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RUBBISH = 0xa5
};

/* The current parameters of the tests. */
typedef struct {
    rank_t *self;
    tutti_dtype_t dtype;
    unsigned salt;
} way_t;

static char *new_buffer(const way_t *w, size_t elements)
{
    size_t bytes = elements * tutti_dtype_bytes(w->dtype) + 1;
    char *buf = malloc(bytes);

    CHECK(buf != NULL);
    memset(buf, RUBBISH, bytes);
    return buf;
}

/* Write the data of rank `from`. */
static void put(const way_t *w, char *to, int from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        reference_value(w->dtype, TUTTI_SUM, from, i, w->salt,
                        to + i * tutti_dtype_bytes(w->dtype));
}

static void check_data(const way_t *w, const char *got, int from, size_t count)
{
    size_t esize = tutti_dtype_bytes(w->dtype);
    char element[REFERENCE_MOST_BYTES];

    for (size_t i = 0; i < count; i++) {
        reference_value(w->dtype, TUTTI_SUM, from, i, w->salt, element);
        if (memcmp(got + i * esize, element, esize) != 0)
            ranks_fail(__FILE__, __LINE__, "type %d: element %zu of %zu from %d is wrong",
                       (int)w->dtype, i, count, from);
    }
}

/* Around the ring: each rank sends to the next rank, with data of different lengths. */
static void ring(const way_t *w, size_t base)
{
    int me = w->self->rank, size = w->self->size;
    int next = (me + 1) % size, previous = (me + size - 1) % size;
    size_t out = base + (size_t)me, in = base + (size_t)previous;
    char *send = new_buffer(w, out), *recv = new_buffer(w, in);

    put(w, send, me, out);
    CHECK_OK(tutti_sendrecv(send, out, next, recv, in, previous, w->dtype, w->self->comm));
    check_data(w, recv, previous, in);
    CHECK_INT((unsigned char)recv[in * tutti_dtype_bytes(w->dtype)], RUBBISH);
    free(recv);
    free(send);
}

/* Rank 0 sends to all other ranks, and they send back; several messages are in flight. */
static void star(const way_t *w, size_t count)
{
    int me = w->self->rank, size = w->self->size;
    char *buf = new_buffer(w, count);

    for (int r = 1; r < size; r++) {
        for (int i = 0; i < 3; i++) {
            if (me == 0) {
                put(w, buf, 10 * r + i, count);
                CHECK_OK(tutti_send(buf, count, w->dtype, r, w->self->comm));
            } else if (me == r) {
                CHECK_OK(tutti_recv(buf, count, w->dtype, 0, w->self->comm));
                check_data(w, buf, 10 * r + i, count);
            }
        }
        if (me == r)
            CHECK_OK(tutti_send(buf, count, w->dtype, 0, w->self->comm));
        if (me == 0) {
            CHECK_OK(tutti_recv(buf, count, w->dtype, r, w->self->comm));
            check_data(w, buf, 10 * r + 2, count);
        }
    }
    free(buf);
}

/* Only two ranks exchange data; the others take no part. One direction may be empty. */
static void pair(const way_t *w, size_t out, size_t back)
{
    int me = w->self->rank, last = w->self->size - 1;
    char *send = new_buffer(w, out + back), *recv = new_buffer(w, out + back);

    put(w, send, me, out + back);
    if (me == 0) {
        CHECK_OK(tutti_sendrecv(send, out, last, recv, back, last, w->dtype, w->self->comm));
        check_data(w, recv, last, back);
    } else if (me == last) {
        CHECK_OK(tutti_sendrecv(send, back, 0, recv, out, 0, w->dtype, w->self->comm));
        check_data(w, recv, 0, out);
    }
    free(recv);
    free(send);
}

/* A send returns only after its receive has begun. */
static void waits(rank_t *self)
{
    uint64_t begin = tutti__now_ns();
    int x = self->rank;

    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 1) {
        usleep(50000);
        CHECK_OK(tutti_recv(&x, 1, TUTTI_INT32, 0, self->comm));
        CHECK_INT(x, 0);
    } else if (self->rank == 0) {
        CHECK_OK(tutti_send(&x, 1, TUTTI_INT32, 1, self->comm));
        CHECK(tutti__now_ns() - begin >= 50000000u);
    }
}

static void messages(rank_t *self)
{
    static const tutti_dtype_t dtypes[] = { TUTTI_UINT8, TUTTI_FLOAT32, TUTTI_INT64_INT64 };
    /* With TSan, where ranks are threads, the largest count is left out. */
    static const size_t counts[] = { 1, 13, 5000, 120000 };
    size_t ncounts = COUNT_OF(counts) - !ranks_can_fork();
    int me = self->rank, x = 1;

    if (self->size > 1) {
        for (size_t t = 0; t < COUNT_OF(dtypes); t++) {
            for (size_t c = 0; c < ncounts; c++) {
                way_t w = { self, dtypes[t], (unsigned)(t + 3 * c) };

                ring(&w, counts[c]);
                star(&w, counts[c]);
                pair(&w, counts[c], counts[c]);
                pair(&w, counts[c], 2);
                pair(&w, 0, counts[c]);
                CHECK_OK(tutti_allreduce(&x, &x, 1, TUTTI_INT32, TUTTI_MAX, self->comm));
            }
        }
        CHECK_OK(tutti_sendrecv(NULL, 0, (me + 1) % self->size, NULL, 0,
                                (me + self->size - 1) % self->size, TUTTI_INT8, self->comm));
        if (self->inside->conf.shared.compare)
            waits(self);
    }
    CHECK_STATUS(tutti_send(&x, 1, TUTTI_INT32, me, self->comm), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "this rank itself") != NULL);
    CHECK_STATUS(tutti_recv(&x, 1, TUTTI_INT32, me, self->comm), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_barrier(self->comm));
}

int main(void)
{
    static void (*const settings[])(tutti__conf_t *, int) = { small_one_piece, small_uncompared };
    static const int sizes[] = { 1, 2, 3, 5, 4, 7, 8 };
    static const char *const hosts[] = { "abc", "aabb", "ab", "aaabb", "abab" };
    int failures = 0, threads = !ranks_can_fork();
    int whole = test_is_long("4 to 8 ranks of one host, and three of five placings on hosts");

    for (size_t i = 0; i < (whole ? COUNT_OF(sizes) : 3) && !(threads && sizes[i] > 3); i++)
        failures += run_small(messages, sizes[i], NULL, threads);
    for (size_t i = 0; i < (whole ? COUNT_OF(hosts) : 2) && !(threads && i > 1); i++)
        failures += run_small(messages, (int)strlen(hosts[i]), hosts[i], threads);
    for (size_t i = 0; i < 2 * COUNT_OF(settings); i++)
        failures += run_job_with(messages, 3, i % 2 ? "aab" : NULL, threads, settings[i / 2]);
    return failures != 0;
}
