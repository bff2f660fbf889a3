/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct calls: check the arguments, take the cached schedule, run it on this thread.
 *
 * Waiting adapts: spin for about as long as waking a sleeper costs, if there are processors enough;
 * then yield, which is all that ranks sharing a core need; then sleep on the very word that is
 * waited for. Only a sleeper looks after deadlines and dead peers.
 */
#include "api/comm.h"

#include "base/hash.h"
#include "base/names.h"
#include "base/status.h"
#include "base/time.h"

#include <sched.h>
#include <unistd.h>

/* A look at a peer's word takes 20 to 50 ns with its pause, so this is some 50 us. */
#define SPIN_LOOKS 1500
#define YIELD_LOOKS 100
/* Sleeps are bounded: see machine.h on wake-ups that can be missed, and deaths are looked after. */
#define SLEEP_US 2000
#define POLL_SLEEP_US 20

/* ---- waiting ---- */

typedef struct {
    tutti__stuck_t stuck;
    uint32_t looks;       /* at the same word, without effect */
    uint64_t deadline_ns; /* 0: not set yet */
} patience_t;

/* Peers that are dead, have left, or are too late. */
static tutti_status_t check_peers(tutti_comm_t *comm, patience_t *p)
{
    uint64_t now = tutti__now_ns();
    tutti_status_t status = tutti__engine_alive(comm->engine);

    if (status != TUTTI_OK)
        return status;
    if (p->deadline_ns == 0)
        p->deadline_ns = now + comm->conf.shared.timeout_ms * 1000000u;
    if (now < p->deadline_ns)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_TIMEOUT, "rank %d waited %llu s in a direct call for rank %d",
                       tutti_rank(comm), (unsigned long long)comm->conf.shared.timeout_ms / 1000,
                       p->stuck.peer);
}

/* Nothing could be done: spend some time, more the longer it lasts. */
static tutti_status_t wait_a_little(tutti_comm_t *comm, patience_t *p, const tutti__stuck_t *now)
{
    int32_t index;

    if (now->word != p->stuck.word || now->value != p->stuck.value) {
        p->looks = 0;
        p->deadline_ns = 0;
    }
    p->stuck = *now;
    p->looks++;
    if (p->looks < SPIN_LOOKS && comm->spin) {
        tutti__pause();
        return TUTTI_OK;
    }
    if (p->looks < SPIN_LOOKS)
        p->looks = SPIN_LOOKS;
    if (p->looks < SPIN_LOOKS + YIELD_LOOKS) {
        sched_yield();
        return TUTTI_OK;
    }
    index = now->peer < 0 ? -1 : comm->machine->index_of[now->peer];
    if (now->word != NULL && index >= 0)
        tutti__machine_sleep(comm->machine, (uint32_t)index, now->word, now->value, SLEEP_US);
    else
        usleep(POLL_SLEEP_US);
    return check_peers(comm, p);
}

static tutti_status_t run_to_end(tutti_comm_t *comm)
{
    patience_t patience = { { NULL, 0, -1 }, 0, 0 };

    for (;;) {
        tutti__stuck_t stuck;
        tutti_status_t status = tutti__run_step(&comm->run, &stuck);
        int left;

        if (status != TUTTI__AGAIN)
            return status;
        left = stuck.peer >= 0 && tutti__engine_has_left(comm->engine, (uint32_t)stuck.peer);
        if (left) {
            /* What it wrote before it left may have come after the first look. */
            status = tutti__run_step(&comm->run, &stuck);
            if (status != TUTTI__AGAIN)
                return status;
            if (stuck.peer >= 0 && tutti__engine_has_left(comm->engine, (uint32_t)stuck.peer))
                return tutti__fail(TUTTI_ERR_SHUTDOWN, "rank %d has called tutti_finalize",
                                   stuck.peer);
        }
        status = wait_a_little(comm, &patience, &stuck);
        if (status != TUTTI_OK)
            return status;
    }
}

/* ---- one call ---- */

/* What all ranks must have in common, where a transport can carry it. */
static uint32_t signature(const tutti__exec_call_t *call, uint32_t root)
{
    uint64_t facts[] = { call->tag, call->count, (uint64_t)call->dtype, (uint64_t)call->op, root };
    uint64_t hash = tutti__hash(facts, sizeof(facts));

    return (uint32_t)(hash ^ hash >> 32);
}

static tutti_status_t start(tutti_comm_t *comm, tutti__collective_t collective,
                            tutti__exec_call_t *call, uint32_t root)
{
    const tutti__sched_t *sched;
    tutti_status_t status;

    status =
        tutti__cache_get(&comm->cache, collective, call->count * tutti_dtype_bytes(call->dtype),
                         root, call->in == call->out, &sched);
    if (status != TUTTI_OK)
        return status;
    if (sched->nchans > 0) {
        call->signature = signature(call, root);
        if (tutti__run_forbidden(&comm->exec, sched, 0))
            return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                               "this thread may not use MPI: it was "
                               "initialised with a thread level below MPI_THREAD_SERIALIZED");
    }
    return tutti__run_start(&comm->run, sched, call);
}

/* An error that leaves ranks in different places ends the communicator for all. */
static tutti_status_t end_badly(tutti_comm_t *comm, tutti_status_t status, int has_channels)
{
    char text[TUTTI__ERROR_BYTES];

    /* A node operation has found out on all ranks, and nothing was moved. */
    if ((status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_NO_MEMORY) && !has_channels)
        return status;
    snprintf(text, sizeof(text), "%.500s", tutti_last_error());
    tutti__run_cancel(&comm->run);
    return tutti__engine_kill(comm->engine, status, text);
}

tutti_status_t tutti__comm_direct(tutti_comm_t *comm, tutti__collective_t collective,
                                  tutti__exec_call_t *call, uint32_t root)
{
    tutti_status_t status = tutti__engine_alive(comm->engine);
    int has_channels;

    if (status != TUTTI_OK)
        return status;
    if (atomic_exchange_explicit(&comm->busy, 1, memory_order_acquire))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "another thread is in a direct call on this communicator");
    status = start(comm, collective, call, root);
    if (status == TUTTI_OK) {
        has_channels = comm->run.sched->nchans > 0;
        status = run_to_end(comm);
        if (status != TUTTI_OK)
            status = end_badly(comm, status, has_channels);
    } else if (status != TUTTI_ERR_UNSUPPORTED && status != TUTTI_ERR_INVALID_ARGUMENT) {
        /* Those are the same on all ranks; of others the peers know nothing yet. */
        status = end_badly(comm, status, 1);
    }
    atomic_store_explicit(&comm->busy, 0, memory_order_release);
    return status;
}

/* ---- arguments ---- */

static tutti_status_t check_type(tutti_dtype_t dtype, tutti_op_t op)
{
    if (TUTTI__LIKELY(tutti__reduce_find(dtype, op) != NULL))
        return TUTTI_OK;
    if (tutti_dtype_bytes(dtype) == 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%d is no element type", (int)dtype);
    if (op < TUTTI_SUM || op > TUTTI_BXOR)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%d is no operation", (int)op);
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s with %s is not served by this version",
                       tutti__dtype_name(dtype), tutti__op_name(op));
}

/* Counts are limited by memory: the bytes of all ranks together must fit a size_t. */
tutti_status_t tutti__comm_check_call(const tutti_comm_t *comm, const void *a, const void *b,
                                      size_t count, tutti_dtype_t dtype, tutti_op_t op)
{
    tutti_status_t status = tutti__comm_check(comm);

    if (status == TUTTI_OK)
        status = check_type(dtype, op);
    if (status != TUTTI_OK)
        return status;
    if (TUTTI__UNLIKELY(count > 0 && (a == NULL || b == NULL)))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "a buffer is NULL but count is %zu", count);
    if (TUTTI__UNLIKELY(count > ((size_t)1 << 48) / comm->topo->size))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "count %zu is larger than any memory",
                           count);
    return TUTTI_OK;
}

/* ---- the calls ---- */

tutti_status_t tutti_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                               tutti_dtype_t dtype, tutti_op_t op, tutti_comm_t *comm)
{
    tutti__exec_call_t call = { sendbuf, recvbuf, count, dtype, op, 0, TUTTI__TAG_ALLREDUCE };
    tutti_status_t status = tutti__comm_check_call(comm, sendbuf, recvbuf, count, dtype, op);

    if (status != TUTTI_OK || count == 0)
        return status;
    return tutti__comm_direct(comm, TUTTI__ALLREDUCE, &call, 0);
}

tutti_status_t tutti_allgather(const void *sendbuf, void *recvbuf, size_t sendcount,
                               tutti_dtype_t dtype, tutti_comm_t *comm)
{
    tutti_status_t status =
        tutti__comm_check_call(comm, sendbuf, recvbuf, sendcount, dtype, TUTTI_SUM);
    tutti__exec_call_t call;
    uintptr_t before;

    if (status != TUTTI_OK || sendcount == 0)
        return status;
    /* The schedule sees this rank's part as its block of the whole; so point before it. As numbers,
       since no object may begin there. */
    before = (uintptr_t)comm->topo->rank * sendcount * tutti_dtype_bytes(dtype);
    call = (tutti__exec_call_t){ (const void *)((uintptr_t)sendbuf - before),
                                 recvbuf,
                                 sendcount * comm->topo->size,
                                 dtype,
                                 TUTTI_SUM,
                                 0,
                                 TUTTI__TAG_ALLGATHER };
    return tutti__comm_direct(comm, TUTTI__ALLGATHER, &call, 0);
}

tutti_status_t tutti_broadcast(void *buffer, size_t count, tutti_dtype_t dtype, int root,
                               tutti_comm_t *comm)
{
    tutti__exec_call_t call = { buffer, buffer, count, dtype, TUTTI_SUM, 0, TUTTI__TAG_BROADCAST };
    tutti_status_t status = tutti__comm_check_call(comm, buffer, buffer, count, dtype, TUTTI_SUM);

    if (status != TUTTI_OK)
        return status;
    if (root < 0 || root >= tutti_size(comm))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "root %d is no rank: there are %d", root,
                           tutti_size(comm));
    if (count == 0)
        return TUTTI_OK;
    return tutti__comm_direct(comm, TUTTI__BROADCAST, &call, (uint32_t)root);
}

tutti_status_t tutti_barrier(tutti_comm_t *comm)
{
    tutti__exec_call_t call = { NULL, NULL, 1, TUTTI_UINT8, TUTTI_MAX, 0, TUTTI__TAG_BARRIER };
    tutti_status_t status = tutti__comm_check(comm);

    if (status != TUTTI_OK)
        return status;
    return tutti__comm_direct(comm, TUTTI__BARRIER, &call, 0);
}
