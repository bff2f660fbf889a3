/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes every direct collective once, small and large, and messages, between hosts. Each rank of
 * collectives.sh runs this program. Like an application it uses only the library's headers.
 * tests/multi tests all types and operations. This program tests the real transport between hosts.
 */
#include "checks.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_RANKS = 16
};

static size_t n; /* elements of one part */
static int64_t *s, *r;
static tutti_comm_t *world;

/* Element i of rank `from`'s data. */
static int64_t value(int from, size_t i)
{
    return (int64_t)(i % 1009) * 100 + from;
}

static void fill(size_t count)
{
    for (size_t i = 0; i < (size_t)size * n; i++) {
        s[i] = i < count ? value(rank, i) : -7;
        r[i] = -7;
    }
}

/* Check that r, from element `at` on, has `count` elements of rank `from`, from its element `begin`
   on. */
static void got(size_t at, size_t count, int from, size_t begin)
{
    for (size_t i = 0; i < count; i++)
        CHECK(r[at + i] == value(from, begin + i), "element %zu from %d is %lld", i, from,
              (long long)r[at + i]);
}

/* Check that r has the sum over the ranks [0, end). */
static void got_sum(size_t count, int end, size_t begin)
{
    for (size_t i = 0; i < count; i++) {
        int64_t sum = 0;

        for (int q = 0; q < end; q++)
            sum += value(q, begin + i);
        CHECK(r[i] == sum, "element %zu is %lld, not %lld", i, (long long)r[i], (long long)sum);
    }
}

static void untouched(void)
{
    for (size_t i = 0; i < (size_t)size * n; i++)
        CHECK(r[i] == -7, "element %zu was written", i);
}

/* ---- reductions ---- */

static void reductions(void)
{
    size_t mine = (size_t)rank * n;

    fill(n);
    OK(tutti_allreduce(s, r, n, TUTTI_INT64, TUTTI_SUM, world));
    got_sum(n, size, 0);
    for (int root = 0; root < size; root++) {
        fill(n);
        OK(tutti_reduce(s, r, n, TUTTI_INT64, TUTTI_SUM, root, world));
        if (rank == root)
            got_sum(n, size, 0);
        else
            untouched();
    }
    fill((size_t)size * n);
    OK(tutti_reduce_scatter(s, r, n, TUTTI_INT64, TUTTI_SUM, world));
    got_sum(n, size, mine);
    fill(n);
    OK(tutti_scan(s, r, n, TUTTI_INT64, TUTTI_SUM, world));
    got_sum(n, rank + 1, 0);
    fill(n);
    OK(tutti_exscan(s, r, n, TUTTI_INT64, TUTTI_SUM, world));
    if (rank == 0)
        untouched();
    else
        got_sum(n, rank, 0);
}

/* The result is the left operand. This operation does not commute, so the result must be rank 0's
   data. */
static void keep_left(void *dst, const void *left, const void *right, size_t count,
                      tutti_dtype_t dtype, void *context)
{
    (void)right;
    (void)context;
    memmove(dst, left, count * tutti_dtype_bytes(dtype));
}

static void ordered(void)
{
    tutti_op_t left;

    OK(tutti_op_create(keep_left, NULL, 0, &left));
    fill(n);
    OK(tutti_allreduce(s, r, n, TUTTI_INT64, left, world));
    got(0, n, 0, 0);
    fill((size_t)size * n);
    OK(tutti_reduce_scatter(s, r, n, TUTTI_INT64, left, world));
    got(0, n, 0, (size_t)rank * n);
    OK(tutti_barrier(world));
    OK(tutti_op_free(left));
}

/* ---- moving data ---- */

static void equal_parts(void)
{
    fill(n);
    OK(tutti_allgather(s, r, n, TUTTI_INT64, world));
    for (int q = 0; q < size; q++)
        got((size_t)q * n, n, q, 0);
    fill((size_t)size * n);
    OK(tutti_alltoall(s, r, n, TUTTI_INT64, world));
    for (int q = 0; q < size; q++)
        got((size_t)q * n, n, q, (size_t)rank * n);
    for (int root = 0; root < size; root++) {
        fill(n);
        OK(tutti_gather(s, r, n, TUTTI_INT64, root, world));
        for (int q = 0; q < size && rank == root; q++)
            got((size_t)q * n, n, q, 0);
        fill((size_t)size * n);
        OK(tutti_scatter(s, r, n, TUTTI_INT64, root, world));
        got(0, n, root, (size_t)rank * n);
        fill(n);
        if (rank == root)
            memcpy(r, s, n * sizeof(*r));
        OK(tutti_broadcast(r, n, TUTTI_INT64, root, world));
        got(0, n, root, 0);
    }
}

/* The number of elements from rank q to rank p. Some parts are empty. */
static size_t count_of(int q, int p)
{
    return n * (size_t)((q + p) % 3) / 2;
}

static void different_parts(void)
{
    size_t out[MOST_RANKS], in[MOST_RANKS], displs[MOST_RANKS], at = 0;

    for (int q = 0; q < size; q++) {
        displs[q] = (size_t)(size - 1 - q) * n;
        out[q] = in[q] = count_of(rank, q);
    }
    fill((size_t)size * n);
    OK(tutti_alltoallv(s, out, displs, r, in, displs, TUTTI_INT64, world));
    for (int q = 0; q < size; q++)
        got(displs[q], in[q], q, displs[rank]);
    for (int root = 0; root < size; root++) {
        for (int q = 0; q < size; q++)
            in[q] = count_of(q, root);
        fill(n);
        OK(tutti_gatherv(s, in[rank], r, in, displs, TUTTI_INT64, root, world));
        for (int q = 0; q < size && rank == root; q++)
            got(displs[q], in[q], q, 0);
        fill((size_t)size * n);
        OK(tutti_scatterv(s, in, displs, r, in[rank], TUTTI_INT64, root, world));
        got(0, in[rank], root, displs[rank]);
    }
    for (int q = 0; q < size; q++)
        in[q] = count_of(q, 1);
    fill(n);
    OK(tutti_allgatherv(s, in[rank], r, in, displs, TUTTI_INT64, world));
    for (int q = 0; q < size; q++)
        got(displs[q], in[q], q, 0);
    fill((size_t)size * n);
    OK(tutti_reduce_scatterv(s, r, in, TUTTI_INT64, TUTTI_SUM, world));
    for (int q = 0; q < rank; q++)
        at += in[q];
    got_sum(in[rank], size, at);
}

static void messages(void)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;

    fill(n);
    OK(tutti_sendrecv(s, n, next, r, n, previous, TUTTI_INT64, world));
    got(0, n, previous, 0);
    fill(n);
    if (rank == 0)
        OK(tutti_send(s, n, TUTTI_INT64, size - 1, world));
    if (rank == size - 1) {
        OK(tutti_recv(r, n, TUTTI_INT64, 0, world));
        got(0, n, 0, 0);
    }
}

int main(void)
{
    static const size_t counts[] = { 1, 7, 30001 };

    start_world();
    world = tutti_world();
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        n = counts[c];
        snprintf(now_at, sizeof(now_at), ", n %zu", n);
        s = malloc((size_t)size * n * sizeof(*s));
        r = malloc((size_t)size * n * sizeof(*r));
        CHECK(s != NULL && r != NULL && size <= MOST_RANKS, "%d ranks", size);
        reductions();
        ordered();
        equal_parts();
        different_parts();
        messages();
        OK(tutti_barrier(world));
        free(s);
        free(r);
    }
    printf("rank %d of %d on %d hosts: collectives passed\n", rank, size, tutti_host_count(world));
    OK(tutti_finalize());
    return 0;
}
