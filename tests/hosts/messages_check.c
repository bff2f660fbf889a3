/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct messages that mismatch, between hosts. Each rank of messages.sh runs this program. Like an
 * application it uses only the library's headers.
 *
 * usage: messages_check misfits       both ranks get MISMATCH, no buffer is written, and the next
 *                                     call works
 *        messages_check collective N  rank 0 is in a collective call of N elements; this ends the
 *                                     communicator
 */
#include "checks.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST = 100000 /* elements; several pieces */
};

static tutti_comm_t *world;
static int32_t s[MOST], r[MOST];

static void prepare(void)
{
    for (int i = 0; i < MOST; i++) {
        s[i] = rank;
        r[i] = -7;
    }
}

static void got(size_t n, int from)
{
    for (size_t i = 0; i < MOST; i++)
        CHECK(r[i] == (i < n ? from : -7), "element %zu is %d", i, (int)r[i]);
}

static void works(void)
{
    int32_t one = 1, sum = 0;

    OK(tutti_allreduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, world));
    CHECK(sum == size, "%d", (int)sum);
}

static void is_mismatch(tutti_status_t status, const char *words)
{
    CHECK(status == TUTTI_ERR_MISMATCH, "%s", tutti_strerror(status));
    CHECK(strstr(tutti_last_error(), words) != NULL, "no '%s' in: %s", words, tutti_last_error());
}

/* Rank 0 sends `n` elements to the last rank, which expects `wanted` elements, perhaps of another
   type. */
static void message(size_t n, size_t wanted, tutti_dtype_t dtype, const char *words)
{
    int last = size - 1;

    prepare();
    if (rank == 0)
        is_mismatch(tutti_send(s, n, TUTTI_INT32, last, world), words);
    else if (rank == last)
        is_mismatch(tutti_recv(r, wanted, dtype, 0, world), words);
    got(0, 0);
    /* These two ranks can exchange the next message: no data of the first message are left. */
    if (rank == 0)
        OK(tutti_send(s, MOST, TUTTI_INT32, last, world));
    if (rank == last) {
        OK(tutti_recv(r, MOST, TUTTI_INT32, 0, world));
        got(MOST, 0);
    }
    works();
}

/* Send messages around a ring. Rank `odd` sends too few elements, and all other messages arrive. */
static void ring(int odd)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    tutti_status_t status;

    prepare();
    status = tutti_sendrecv(s, rank == odd ? MOST - 1 : MOST, next, r, MOST, previous, TUTTI_INT32,
                            world);
    if (rank == odd || previous == odd)
        is_mismatch(status, "99999 elements of int32");
    else
        OK(status);
    got(previous == odd ? 0 : MOST, previous);
    works();
}

static void misfits(void)
{
    message(10, 20, TUTTI_INT32, "which expects 20 of int32");
    message(MOST, MOST - 1, TUTTI_INT32, "rank 0 sends 100000 elements of int32 to rank ");
    /* Both types have the same size, so lengths do not show the mismatch. */
    message(10, 10, TUTTI_FLOAT32, "which expects 10 of float32");
    for (int odd = 0; odd < size; odd++)
        ring(odd);
}

/*
 * One rank sends a message while its peer is in a collective call. The rank that detects this ends
 * the communicator, and its peer receives the report.
 *
 * n  elements of the collective call. 3 elements are as long as the head of a message. Then rank 1
 *    detects the mismatch by the received data, and rank 0 may have used the head as data
 */
static void collective(size_t n)
{
    tutti_status_t status = TUTTI_OK;

    for (int i = 0; i < MOST; i++)
        s[i] = r[i] = 1;
    if (rank == 0)
        for (int i = 0; i < 100000 && status == TUTTI_OK; i++)
            status = tutti_allreduce(s, r, n, TUTTI_INT32, TUTTI_MAX, world);
    else
        status = tutti_send(s, n, TUTTI_INT32, 0, world);
    CHECK(status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_PEER_LOST, "%s",
          tutti_strerror(status));
    /* The error has "another call" or "different calls": rank 1 must not accept the call's data as
       a message. */
    CHECK(rank == 0 || strstr(tutti_last_error(), " call") != NULL, "%s", tutti_last_error());
    for (size_t i = 0; i < n && n != 3; i++)
        CHECK(r[i] == 1, "element %zu is %d", i, (int)r[i]);
    CHECK(tutti_barrier(world) == status, "the communicator goes on");
}

int main(int argc, char **argv)
{
    int hosts;

    start_world();
    world = tutti_world();
    hosts = tutti_host_count(world);
    if (argc == 3 && strcmp(argv[1], "collective") == 0)
        collective(strtoul(argv[2], NULL, 10));
    else
        misfits();
    printf("rank %d of %d on %d hosts: messages_check passed\n", rank, size, hosts);
    tutti_finalize();
    return 0;
}
