/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the tasks of async_calls.c. */
#include "multi/requests/async_calls.h"

#include <string.h>

tutti_status_t task_start(task_t *t, tutti_comm_t *comm)
{
    const tutti_call_t *c = &t->call;
    const tutti_async_options_t *o = c->options;
    tutti_request_t **r = &t->request;

    switch (c->kind) {
    case TUTTI_CALL_ALLREDUCE:
        return tutti_allreduce_async(c->name, c->sendbuf, c->recvbuf, c->count, c->dtype, c->op,
                                     comm, o, r);
    case TUTTI_CALL_REDUCE:
        return tutti_reduce_async(c->name, c->sendbuf, c->recvbuf, c->count, c->dtype, c->op,
                                  c->root, comm, o, r);
    case TUTTI_CALL_BROADCAST:
        return tutti_broadcast_async(c->name, c->recvbuf, c->count, c->dtype, c->root, comm, o, r);
    case TUTTI_CALL_REDUCE_SCATTER:
        return tutti_reduce_scatter_async(c->name, c->sendbuf, c->recvbuf, c->count, c->dtype,
                                          c->op, comm, o, r);
    case TUTTI_CALL_REDUCE_SCATTERV:
        return tutti_reduce_scatterv_async(c->name, c->sendbuf, c->recvbuf, c->recvcounts, c->dtype,
                                           c->op, comm, o, r);
    case TUTTI_CALL_ALLGATHER:
        return tutti_allgather_async(c->name, c->sendbuf, c->recvbuf, c->count, c->dtype, comm, o,
                                     r);
    case TUTTI_CALL_ALLGATHERV:
        return tutti_allgatherv_async(c->name, c->sendbuf, c->count, c->recvbuf, c->recvcounts,
                                      c->recvdispls, c->dtype, comm, o, r);
    case TUTTI_CALL_GATHER:
        return tutti_gather_async(c->name, c->sendbuf, c->recvbuf, c->count, c->dtype, c->root,
                                  comm, o, r);
    case TUTTI_CALL_GATHERV:
        return tutti_gatherv_async(c->name, c->sendbuf, c->count, c->recvbuf, c->recvcounts,
                                   c->recvdispls, c->dtype, c->root, comm, o, r);
    case TUTTI_CALL_SCATTER:
        return tutti_scatter_async(c->name, c->sendbuf, c->recvbuf, c->count, c->dtype, c->root,
                                   comm, o, r);
    case TUTTI_CALL_SCATTERV:
        return tutti_scatterv_async(c->name, c->sendbuf, c->sendcounts, c->senddispls, c->recvbuf,
                                    c->count, c->dtype, c->root, comm, o, r);
    case TUTTI_CALL_ALLTOALL:
        return tutti_alltoall_async(c->name, c->sendbuf, c->recvbuf, c->count, c->dtype, comm, o,
                                    r);
    case TUTTI_CALL_ALLTOALLV:
        return tutti_alltoallv_async(c->name, c->sendbuf, c->sendcounts, c->senddispls, c->recvbuf,
                                     c->recvcounts, c->recvdispls, c->dtype, comm, o, r);
    case TUTTI_CALL_SCAN:
        return tutti_scan_async(c->name, c->sendbuf, c->recvbuf, c->count, c->dtype, c->op, comm, o,
                                r);
    case TUTTI_CALL_EXSCAN:
        return tutti_exscan_async(c->name, c->sendbuf, c->recvbuf, c->count, c->dtype, c->op, comm,
                                  o, r);
    case TUTTI_CALL_BARRIER:
        return tutti_barrier_async(c->name, comm, o, r);
    case TUTTI_CALL_SEND:
        return tutti_send_async(c->name, c->sendbuf, c->count, c->dtype, c->root, comm, o, r);
    case TUTTI_CALL_RECV:
        return tutti_recv_async(c->name, c->recvbuf, c->count, c->dtype, c->root, comm, o, r);
    default:
        return tutti_sendrecv_async(c->name, c->sendbuf, c->count, c->root, c->recvbuf,
                                    c->recvcount, c->source, c->dtype, comm, o, r);
    }
}

void task_receive(task_t *t)
{
    size_t *want = t->facts.kind == TUTTI_CALL_ALLGATHERV ? t->arrays : t->arrays + 2 * t->size;
    size_t counts[64];

    if (!t->facts.later)
        return;
    CHECK_OK(tutti_request_recvcounts(t->request, -1, counts));
    for (int r = 0; r < t->size; r++)
        CHECK_INT(counts[r], want[r]);
    CHECK_OK(tutti_request_receive(t->request, t->recv, t->facts.displs ? want + t->size : NULL));
}

void task_verify(const task_t *t)
{
    if (t->idle)
        return;
    for (size_t i = 0; i < t->recv_bytes; i++)
        if (t->recv[i] != t->want[i])
            ranks_fail(__FILE__, __LINE__,
                       "%s (kind %d, type %d, operation %d, count %zu, root %d): byte %zu of "
                       "%zu is %d, wanted %d",
                       t->name, t->facts.kind, t->facts.dtype, t->facts.op, t->facts.count,
                       t->facts.root, i, t->recv_bytes, t->recv[i], t->want[i]);
    if (memcmp(t->send, t->sent, t->send_bytes) != 0)
        ranks_fail(__FILE__, __LINE__, "%s: sendbuf was changed", t->name);
}

/* ---- for tests of errors ---- */

void still_works(const rank_t *self, const char *name)
{
    int32_t x = 1;
    tutti_request_t *r;

    CHECK_OK(tutti_allreduce_async(name, &x, &x, 1, TUTTI_INT32, TUTTI_SUM, self->comm, NULL, &r));
    CHECK_OK(tutti_wait(r, -1));
    CHECK_INT(x, self->size);
}

void last_error_says(const char *name, const char *one, const char *other)
{
    const char *text = tutti_last_error();

    if (strstr(text, name) == NULL || (one && strstr(text, one) == NULL) ||
        (other && strstr(text, other) == NULL))
        ranks_fail(__FILE__, __LINE__, "'%s' does not say '%s', '%s' and '%s'", text, name,
                   one ? one : "", other ? other : "");
}

int run_on_hosts(rank_fn_t fn, const int *sizes, size_t nsizes)
{
    static const char *const hosts[] = { "ab", "aabb", "abab", "aaabb", "abbb" };
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    for (size_t i = 0; i < nsizes; i++) {
        job_t job = { .size = sizes[i], .fn = fn };

        RUN_JOB(failures, &job);
    }
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        job_t job = { .size = (int)strlen(hosts[i]), .hosts = hosts[i], .fn = fn };

        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
