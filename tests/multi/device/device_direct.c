/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct calls on device memory, on the pretend device: every collective with every type and
 * operation, served by NCCL or staged, in place or out of place; on one host and on pretended
 * hosts; in groups; between calls on host memory. Calls allocate nothing, and the caller's thread
 * keeps its own device.
 *
 * The calls with parts of different lengths are the calls of collectives_v.c, but on device memory.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/device/device_job.h"
#include "multi/direct/reference.h"

#include <stdlib.h>
#include <string.h>

enum {
    CASE_BYTES = 1 << 17,
    MESSAGE = 30000 /* elements of a message that is larger than STAGE */
};

/* ---- equal parts ---- */

static void area_begin(area_t *area, device_job_t *job, rank_t *self)
{
    device_begin(job, self, 2 * CASE_BYTES);
    area_open(area, self, CASE_BYTES);
    area->device = job->memory;
    area->read = pretend_read;
    area->write = pretend_write;
    device_forbid_alloc(self, 1);
}

static void area_end(area_t *area, device_job_t *job)
{
    device_forbid_alloc(area->self, 0);
    CHECK_INT(pretend_counts(area->self->rank, PRETEND_BLOCKING_COPIES), 0);
    area_close(area);
    device_end(job);
}

static void one_of_each(area_t *area, tutti_call_kind_t kind, tutti_dtype_t dtype, tutti_op_t op)
{
    static const size_t counts[] = { 0, 1, 37 };

    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        unsigned turn = area->salt;
        case_t c = { kind,
                     dtype,
                     op,
                     counts[i],
                     (int)(turn % (unsigned)area->self->size),
                     (place_t)(turn % PLACES),
                     turn % 5 == 0 ? PRIVATE : DEVICE };

        case_run(area, &c, TUTTI_OK);
    }
}

static void product(rank_t *self)
{
    device_job_t job;
    area_t area;

    area_begin(&area, &job, self);
    for (size_t k = 0; k < CASE_KINDS; k++) {
        for (int t = 1; t <= REFERENCE_TYPES; t++) {
            tutti_dtype_t dtype = (tutti_dtype_t)t;

            if (!case_reduces(case_kinds[k])) {
                one_of_each(&area, case_kinds[k], dtype, TUTTI_SUM);
                continue;
            }
            for (int o = 1; o <= REFERENCE_OPS; o++) {
                tutti_op_t op = (tutti_op_t)o;
                int scans = case_kinds[k] == TUTTI_CALL_SCAN || case_kinds[k] == TUTTI_CALL_EXSCAN;

                if (reference_serves(dtype, op) && !(scans && op == TUTTI_AVG))
                    one_of_each(&area, case_kinds[k], dtype, op);
            }
        }
    }
    area_end(&area, &job);
}

/* All places and roots, for small counts and for many chunks. */
static void ways_of(area_t *area, tutti_call_kind_t kind, tutti_dtype_t dtype, tutti_op_t op,
                    size_t count)
{
    int roots = case_is_rooted(kind) ? area->self->size : 1;

    for (int place = 0; place < PLACES; place++)
        for (int root = 0; root < roots; root++) {
            case_t c = { kind, dtype, op, count, root, (place_t)place, DEVICE };

            case_run(area, &c, TUTTI_OK);
        }
}

static void all_ways(rank_t *self)
{
    device_job_t job;
    area_t area;

    area_begin(&area, &job, self);
    for (size_t k = 0; k < CASE_KINDS; k++) {
        size_t parts = case_kinds[k] == TUTTI_CALL_ALLREDUCE ? 1 : (size_t)self->size;

        ways_of(&area, case_kinds[k], TUTTI_FLOAT32, TUTTI_SUM, 3);
        ways_of(&area, case_kinds[k], TUTTI_INT64, TUTTI_AVG - (k >= 8), 257);
        ways_of(&area, case_kinds[k], TUTTI_INT16, TUTTI_MAX, 1000);
        /* More data than STAGE holds. */
        ways_of(&area, case_kinds[k], TUTTI_FLOAT32, TUTTI_MAX, 100000 / 4 / parts + 1);
    }
    area_end(&area, &job);
}

/* ---- groups ---- */

static void groups(rank_t *self)
{
    tutti_comm_t *comm;
    device_job_t job;
    rank_t part;
    area_t area;

    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, -self->rank, &comm));
    part = (rank_t){ tutti_rank(comm), tutti_size(comm), comm, ranks_inside(comm), NULL };
    device_begin(&job, self, 2 * CASE_BYTES);
    area_open(&area, &part, CASE_BYTES);
    area.device = job.memory;
    area.read = pretend_read;
    area.write = pretend_write;
    for (size_t k = 0; k < CASE_KINDS; k++) {
        ways_of(&area, case_kinds[k], TUTTI_FLOAT32, TUTTI_SUM, 100);
        ways_of(&area, case_kinds[k], TUTTI_BFLOAT16, TUTTI_MIN, 11);
    }
    area_close(&area);
    CHECK_OK(tutti_comm_free(comm));
    device_end(&job);
}

/* ---- other calls ---- */

/* A rank's message of n elements that are all `value`, and its receive buffer. */
static void fill_message(const device_job_t *job, size_t n, int32_t value)
{
    int32_t host[MESSAGE];

    for (size_t i = 0; i < n; i++)
        host[i] = value;
    pretend_write(job->memory, host, n * 4);
    memset(host, 0x11, n * 4);
    pretend_write(job->memory + (size_t)MESSAGE * 4, host, n * 4);
}

static void check_received(const device_job_t *job, size_t n, int32_t value)
{
    int32_t host[MESSAGE];

    pretend_read(host, job->memory + (size_t)MESSAGE * 4, n * 4);
    for (size_t i = 0; i < n; i++)
        CHECK_INT(host[i], value);
}

/* Rank 0's sendrecv of n elements with rank 1, which expects `expects` elements and sends `sends`:
   if a direction's lengths match, its data are moved, even if the other direction does not
   match. */
static void one_direction(const device_job_t *job, size_t n, size_t expects, size_t sends)
{
    char *send = job->memory, *recv = job->memory + (size_t)MESSAGE * 4;
    tutti_comm_t *comm = job->self->comm;
    tutti_status_t status = expects == n && sends == n ? TUTTI_OK : TUTTI_ERR_MISMATCH;

    fill_message(job, n, 7 + job->self->rank);
    if (job->self->rank == 0) {
        CHECK_STATUS(tutti_sendrecv(send, n, 1, recv, n, 1, TUTTI_INT32, comm), status);
        if (status != TUTTI_OK)
            CHECK_WORDS(expects != n ? "rank 0 sends" : "rank 1 sends");
        check_received(job, n, sends == n ? 8 : 0x11111111);
    } else {
        CHECK_STATUS(tutti_recv(recv, expects, TUTTI_INT32, 0, comm),
                     expects == n ? TUTTI_OK : TUTTI_ERR_MISMATCH);
        check_received(job, expects, expects == n ? 7 : 0x11111111);
        CHECK_STATUS(tutti_send(send, sends, TUTTI_INT32, 0, comm),
                     sends == n ? TUTTI_OK : TUTTI_ERR_MISMATCH);
    }
}

static void directions(const device_job_t *job)
{
    static const size_t counts[] = { 9, MESSAGE };

    for (size_t i = 0; i < COUNT_OF(counts) && job->self->size > 1 && job->self->rank < 2; i++) {
        one_direction(job, counts[i], counts[i] - 1, counts[i]);
        one_direction(job, counts[i], counts[i], counts[i] - 1);
        one_direction(job, counts[i], counts[i] - 1, counts[i] - 1);
        one_direction(job, counts[i], counts[i], counts[i]);
    }
}

/* Messages, scaled calls, the thread's current device, and calls on host memory in between. */
static void rest(rank_t *self)
{
    int next = (self->rank + 1) % self->size;
    int before = (self->rank + self->size - 1) % self->size;
    int32_t own = 7 * self->rank, other = -1;
    float x = 2;
    device_job_t job;

    device_begin(&job, self, 2 * MESSAGE * 4);
    CHECK_OK(job.ops->use(PRETEND_DEVICES - 1));
    for (int i = 0; i < 3; i++) {
        pretend_write(job.memory, &own, 4);
        if (self->size > 1)
            CHECK_OK(tutti_sendrecv(job.memory, 1, next, job.memory + 512, 1, before, TUTTI_INT32,
                                    self->comm));
        pretend_read(&other, job.memory + 512, 4);
        CHECK_INT(other, self->size > 1 ? 7 * before : 0);
        pretend_write(job.memory, &x, 4);
        CHECK_OK(tutti_allreduce_scaled(job.memory, job.memory, 1, TUTTI_FLOAT32, TUTTI_SUM, 0.5, 4,
                                        self->comm));
        pretend_read(&x, job.memory, 4);
        CHECK(x == (float)(4 * self->size));
        x = 2;
        case_works(self);
        CHECK_OK(tutti_barrier(self->comm));
    }
    CHECK_INT(job.ops->current(), PRETEND_DEVICES - 1);
    CHECK_OK(job.ops->use(self->rank));
    /* In a message each rank may use its own kind of memory. */
    if (self->size > 1 && self->rank < 2) {
        void *buf = self->rank == 0 ? (void *)job.memory : &other;

        if (self->rank == 0) {
            own = 77;
            pretend_write(buf, &own, 4);
            CHECK_OK(tutti_send(buf, 1, TUTTI_INT32, 1, self->comm));
        } else {
            CHECK_OK(tutti_recv(buf, 1, TUTTI_INT32, 0, self->comm));
            CHECK_INT(other, 77);
        }
    }
    directions(&job);
    device_end(&job);
}

/* ---- parts of different lengths ---- */

/* A call's buffers on the device. If the caller's buffers overlap, these buffers overlap in the
   same way. */
typedef struct {
    char *send, *recv;
    size_t send_bytes, recv_bytes;
    const void *host_send;
    void *host_recv;
} copies_t;

static __thread char *v_memory;
#define V_BYTES ((size_t)1 << 20)

static copies_t to_device(const void *send, size_t send_bytes, void *recv, size_t recv_bytes)
{
    uintptr_t s = (uintptr_t)send, r = (uintptr_t)recv, least = s < r ? s : r;
    copies_t c = { v_memory, v_memory + V_BYTES / 2, send_bytes, recv_bytes, send, recv };

    CHECK(send_bytes < V_BYTES / 2 && recv_bytes < V_BYTES / 2);
    if (s < r + recv_bytes && r < s + send_bytes) {
        c.send = v_memory + (s - least);
        c.recv = v_memory + (r - least);
    }
    pretend_write(c.recv, recv, recv_bytes);
    pretend_write(c.send, send, send_bytes);
    if (send == NULL)
        c.send = NULL;
    if (recv == NULL)
        c.recv = NULL;
    return c;
}

static tutti_status_t from_device(const copies_t *c, tutti_status_t status)
{
    if (c->recv != NULL)
        pretend_read(c->host_recv, c->recv, c->recv_bytes);
    return status;
}

static size_t extent(const size_t *counts, const size_t *displs, size_t esize, tutti_comm_t *comm)
{
    size_t next = 0, end = 0;

    for (int r = 0; counts != NULL && r < tutti_size(comm); r++) {
        size_t begin = displs != NULL ? displs[r] : next;

        next += counts[r];
        if (counts[r] > 0 && begin + counts[r] > end)
            end = begin + counts[r];
    }
    return end * esize;
}

static tutti_status_t device_allgatherv(const void *s, size_t n, void *r, const size_t *counts,
                                        const size_t *displs, tutti_dtype_t t, tutti_comm_t *comm)
{
    size_t esize = tutti_dtype_bytes(t);
    copies_t c = to_device(s, n * esize, r, extent(counts, displs, esize, comm));

    return from_device(&c, tutti_allgatherv(c.send, n, c.recv, counts, displs, t, comm));
}

static tutti_status_t device_gatherv(const void *s, size_t n, void *r, const size_t *counts,
                                     const size_t *displs, tutti_dtype_t t, int root,
                                     tutti_comm_t *comm)
{
    size_t esize = tutti_dtype_bytes(t);
    copies_t c = to_device(s, n * esize, r, extent(counts, displs, esize, comm));

    return from_device(&c, tutti_gatherv(c.send, n, c.recv, counts, displs, t, root, comm));
}

static tutti_status_t device_scatterv(const void *s, const size_t *counts, const size_t *displs,
                                      void *r, size_t n, tutti_dtype_t t, int root,
                                      tutti_comm_t *comm)
{
    size_t esize = tutti_dtype_bytes(t);
    copies_t c = to_device(s, extent(counts, displs, esize, comm), r, n * esize);

    return from_device(&c, tutti_scatterv(c.send, counts, displs, c.recv, n, t, root, comm));
}

static tutti_status_t device_alltoallv(const void *s, const size_t *scounts, const size_t *sdispls,
                                       void *r, const size_t *rcounts, const size_t *rdispls,
                                       tutti_dtype_t t, tutti_comm_t *comm)
{
    size_t esize = tutti_dtype_bytes(t);
    copies_t c = to_device(s, extent(scounts, sdispls, esize, comm), r,
                           extent(rcounts, rdispls, esize, comm));

    return from_device(
        &c, tutti_alltoallv(c.send, scounts, sdispls, c.recv, rcounts, rdispls, t, comm));
}

static tutti_status_t device_reduce_scatterv(const void *s, void *r, const size_t *counts,
                                             tutti_dtype_t t, tutti_op_t op, tutti_comm_t *comm)
{
    size_t esize = tutti_dtype_bytes(t);
    copies_t c =
        to_device(s, extent(counts, NULL, esize, comm), r, counts[tutti_rank(comm)] * esize);

    return from_device(&c, tutti_reduce_scatterv(c.send, c.recv, counts, t, op, comm));
}

#define tutti_allgatherv device_allgatherv
#define tutti_gatherv device_gatherv
#define tutti_scatterv device_scatterv
#define tutti_alltoallv device_alltoallv
#define tutti_reduce_scatterv device_reduce_scatterv
#define main main_of_collectives_v
int main_of_collectives_v(void);
#include "multi/direct/collectives_v.c"
#undef main

static void parts(rank_t *self)
{
    device_job_t job;

    device_begin(&job, self, V_BYTES);
    v_memory = job.memory;
    device_forbid_alloc(self, 1);
    vectors(self);
    device_forbid_alloc(self, 0);
    CHECK_INT(pretend_counts(self->rank, PRETEND_BLOCKING_COPIES), 0);
    device_end(&job);
}

/* ---- jobs ---- */

#ifndef OTHER_JOBS /* gpu/direct.c has other jobs */
int main(void)
{
    static const int sizes[] = { 1, 2, 3, 5 };
    static const char *const hosts[] = { "ab", "aaabb", "aabb" };
    int failures = 0, threads = !ranks_can_fork();
    int whole = test_is_long("3 and 5 ranks of one host, all types but for 2 ranks, and one of "
                             "three placings on hosts");

    reference_create_ops();
    for (size_t i = 0; i < (whole ? COUNT_OF(sizes) : 2) && !(threads && sizes[i] > 3); i++) {
        if (sizes[i] == 2 || (whole && sizes[i] == 1))
            failures += device_run(product, sizes[i], NULL, threads);
        failures += device_run(all_ways, sizes[i], NULL, 1);
        failures += device_run(rest, sizes[i], NULL, 1);
        failures += device_run(parts, sizes[i], NULL, threads);
    }
    failures += device_run(groups, 4, NULL, 1);
    for (size_t i = 0; i < (whole ? COUNT_OF(hosts) : 2) && !(threads && i > 0); i++) {
        failures += device_run(all_ways, (int)strlen(hosts[i]), hosts[i], threads);
        failures += device_run(rest, (int)strlen(hosts[i]), hosts[i], 1);
        failures += device_run(parts, (int)strlen(hosts[i]), hosts[i], threads);
    }
    return failures != 0;
}
#endif
