/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls whose parts in recvbuf have gaps write nothing into the gaps. So a gap may belong to
 * another pending request, or the caller may write there during the call.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include "base/time.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    REQUESTS = 2,
    ROUNDS = 4,
    SMALL = 50,    /* elements of a part: all parts fit into STAGE */
    LARGE = 12000, /* elements of a part: the parts pass through STAGE in pieces */
    LIMIT_MS = 30000,
    QUEUED_US = 30000 /* the copies that rank 0 has queued are usually done after this time */
};

static const size_t lengths[] = { SMALL, LARGE };

/* Each block of n elements is a part or a gap. */
static char *block(const device_job_t *job, size_t i, size_t n)
{
    return job->memory + i * n * sizeof(int32_t);
}

static void put(char *to, size_t n, int32_t value)
{
    int32_t *host = malloc(n * sizeof(*host));

    for (size_t i = 0; i < n; i++)
        host[i] = value + (int32_t)i;
    pretend_write(to, host, n * sizeof(*host));
    free(host);
}

static void check(const char *from, size_t n, int32_t value, const char *what)
{
    int32_t *host = malloc(n * sizeof(*host));

    pretend_read(host, from, n * sizeof(*host));
    for (size_t i = 0; i < n; i++)
        if (host[i] != value + (int32_t)i)
            ranks_fail(__FILE__, __LINE__, "%s: element %zu of %zu is %d, wanted %d", what, i, n,
                       (int)host[i], (int)(value + (int32_t)i));
    free(host);
}

/* ---- requests ---- */

/* Request k receives rank r's part in block REQUESTS * r + k. */
static tutti_request_t *gather(const device_job_t *job, size_t n, int k, int to_all)
{
    static const char *const names[REQUESTS] = { "a", "b" };
    size_t counts[MOST_RANKS], displs[MOST_RANKS], blocks = (size_t)(REQUESTS * job->self->size);
    const char *send = block(job, blocks + (size_t)k, n);
    tutti_comm_t *comm = job->self->comm;
    tutti_request_t *request;

    for (int r = 0; r < job->self->size; r++) {
        counts[r] = n;
        displs[r] = (size_t)(REQUESTS * r + k) * n;
    }
    if (to_all)
        CHECK_OK(tutti_allgatherv_async(names[k], send, n, job->memory, counts, displs, TUTTI_INT32,
                                        comm, NULL, &request));
    else
        CHECK_OK(tutti_gatherv_async(names[k], send, n, job->memory, counts, displs, TUTTI_INT32, 0,
                                     comm, NULL, &request));
    return request;
}

static int32_t value_of(int round, int k, int r)
{
    return 1000000 * round + 100000 * k + 20000 * r;
}

/* Two requests whose parts alternate in one buffer. */
static void alternate(rank_t *self, size_t n, int to_all)
{
    size_t blocks = (size_t)(REQUESTS * self->size);
    tutti_request_t *requests[REQUESTS];
    device_job_t job;

    device_begin(&job, self, (blocks + REQUESTS) * n * sizeof(int32_t));
    pretend_delays(5, 300);
    for (int round = 1; round <= ROUNDS; round++) {
        for (int k = 0; k < REQUESTS; k++)
            put(block(&job, blocks + (size_t)k, n), n, value_of(round, k, self->rank));
        for (int k = 0; k < REQUESTS; k++)
            requests[k] = gather(&job, n, k, to_all);
        CHECK_OK(tutti_wait_all(requests, REQUESTS, -1));
        for (int r = 0; r < self->size && (to_all || self->rank == 0); r++)
            for (int k = 0; k < REQUESTS; k++)
                check(block(&job, (size_t)(REQUESTS * r + k), n), n, value_of(round, k, r),
                      to_all ? "allgatherv" : "gatherv");
    }
    device_end(&job);
}

static void requests(rank_t *self)
{
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        alternate(self, lengths[i], 0);
        alternate(self, lengths[i], 1);
    }
}

/* ---- direct calls ---- */

static device_job_t *shared; /* rank 0's job; all threads use it */

/* While rank 0 waits in its call for rank 1, rank 1 writes into the gap of rank 0's buffer. Between
   hosts, if calls are not compared, rank 0 copies to host memory before it waits. */
static void write_gap(size_t n, unsigned copies)
{
    uint64_t begun = tutti__now_ns();

    while (pretend_counts(0, PRETEND_COPIES) == copies) {
        CHECK(tutti__now_ns() - begun < LIMIT_MS * 1000000ull);
        usleep(1000);
    }
    usleep(QUEUED_US);
    put(block(shared, 1, n), n, 700);
}

/* A gap of n elements is between the parts of the two ranks. */
static void meanwhile(rank_t *self, size_t n)
{
    const size_t counts[] = { n, n }, displs[] = { 2 * n, 0 };
    device_job_t job;
    unsigned copies;

    device_begin(&job, self, 4 * n * sizeof(int32_t));
    put(block(&job, 1, n), n, 100);
    put(block(&job, 3, n), n, 30000 * (self->rank + 1));
    if (self->rank == 0)
        shared = &job;
    CHECK_OK(tutti_barrier(self->comm));
    copies = pretend_counts(0, PRETEND_COPIES);
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 1)
        write_gap(n, copies);
    CHECK_OK(tutti_gatherv(block(&job, 3, n), n, job.memory, counts, displs, TUTTI_INT32, 0,
                           self->comm));
    if (self->rank == 0) {
        check(block(&job, 0, n), n, 60000, "rank 1's part");
        check(block(&job, 1, n), n, 700, "the gap");
        check(block(&job, 2, n), n, 30000, "rank 0's part");
    }
    device_end(&job);
}

static void direct(rank_t *self)
{
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        meanwhile(self, lengths[i]);
}

int main(void)
{
    job_t job = {
        .size = 2, .hosts = "ab", .threads = 1, .fn = direct, .settings = device_uncompared
    };
    int failures = 0;

    failures += device_run(requests, 2, NULL, 1);
    failures += device_run(requests, 3, "aab", 1);
    failures += device_run_job(&job);
    if (ranks_can_fork())
        failures += device_run(requests, 3, NULL, 0);
    return failures != 0;
}
