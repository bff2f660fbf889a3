/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meeting over MPI: allgathers of small blocks on a duplicate of the application's communicator.
 *
 * Called while a communicator is made, on the thread that makes it. A meeting uses non-blocking
 * collectives, because a blocking collective waits for ever if a rank is dead. The thread tests the
 * collective until the deadline, or until the library reports that a rank has ended.
 * tutti__mpi_meet has no timeout, so the first allgather makes the duplicate. MPI cannot cancel a
 * collective. If a collective is not complete when the wait ends, the collective's memory is kept
 * for ever, and MPI is not finalized at exit.
 */
#include "xport/mpi/mpi_module.h"

#include "base/constants.h"
#include "base/time.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* MPI has no event on which a thread could sleep. At first, yield only, to react fast. Later,
   sleep, so that late ranks get the processor. */
static void wait_a_little(uint64_t waited_ns)
{
    if (waited_ns < TUTTI__MPI_MEET_BUSY_NS)
        sched_yield();
    else
        usleep(TUTTI__MPI_MEET_NAP_US);
}

/* Test until the request is complete, the time has passed, or another rank has ended. After an
   error *request is still in flight. */
static tutti_status_t wait_for(const tutti__mpi_meet_t *meet, MPI_Request *request,
                               uint64_t timeout_ms, const char *what)
{
    uint64_t start = tutti__now_ns();
    uint64_t check = TUTTI__MPI_MEET_BUSY_NS; /* next check of the other ranks, as `waited` */
    uint64_t waited;
    tutti_status_t status;
    int done = 0;
    int code;

    for (;;) {
        status = tutti__mpi_enter(meet->rank);
        if (status != TUTTI_OK)
            return status;
        code = PMPI_Test(request, &done, MPI_STATUS_IGNORE);
        tutti__mpi_leave();
        if (code != MPI_SUCCESS)
            return tutti__mpi_fail_code(code, "%s", what);
        if (done)
            return TUTTI_OK;
        waited = tutti__now_ns() - start;
        if (waited / 1000000 >= timeout_ms)
            break;
        if (waited >= check) {
            status = tutti__mpi_still();
            if (status != TUTTI_OK)
                return status;
            check = waited + TUTTI__NET_CHECK_MS * (uint64_t)1000000;
        }
        wait_a_little(waited);
    }
    return tutti__mpi_fail(TUTTI_ERR_TIMEOUT,
                           "mpi: %s: not all ranks came within %llu ms (TUTTI_TIMEOUT)", what,
                           (unsigned long long)timeout_ms);
}

/* Give up a collective, which stays in flight for ever. MPI still uses the buffer `memory`. */
static void give_up(tutti__mpi_meet_t *meet, void *memory)
{
    tutti__mpi_lock();
    meet->broken = 1;
    meet->stale = 1;
    tutti__mpi_keep(memory);
    tutti__mpi_leave();
    tutti__mpi_give_up();
}

/* Duplicate the application's communicator. MPI's calls on the duplicate return their errors. For
   an error of the duplication itself, MPI calls the error handler of the application's
   communicator; by default this handler aborts. */
static tutti_status_t duplicate(tutti__mpi_meet_t *meet, uint64_t timeout_ms)
{
    struct {
        MPI_Comm comm;
        MPI_Request request;
    } *making = calloc(1, sizeof(*making));
    tutti_status_t status;
    int code;

    if (making == NULL)
        return tutti__mpi_fail(TUTTI_ERR_NO_MEMORY, "mpi: out of memory");
    status = tutti__mpi_enter(meet->rank);
    if (status != TUTTI_OK)
        goto free_making;
    code = PMPI_Comm_idup(meet->parent, &making->comm, &making->request);
    tutti__mpi_leave();
    if (code != MPI_SUCCESS) {
        status = tutti__mpi_fail_code(code, "MPI_Comm_idup");
        goto free_making;
    }
    status = wait_for(meet, &making->request, timeout_ms, "duplicating the communicator");
    if (status != TUTTI_OK) {
        give_up(meet, making);
        return status;
    }
    meet->comm = making->comm;
    status = tutti__mpi_enter(meet->rank);
    if (status == TUTTI_OK) {
        PMPI_Comm_set_errhandler(meet->comm, MPI_ERRORS_RETURN);
        tutti__mpi_leave();
    }

free_making:
    free(making);
    return status;
}

/* MPI works on copies, so an abandoned gather never writes into the caller's memory. */
static tutti_status_t gather(tutti__mpi_meet_t *meet, const void *mine, size_t bytes, void *ret_all,
                             uint64_t timeout_ms)
{
    size_t all_bytes = bytes * meet->size;
    unsigned char *copy = malloc(all_bytes + bytes);
    MPI_Request request;
    tutti_status_t status;
    int code;

    if (copy == NULL)
        return tutti__mpi_fail(TUTTI_ERR_NO_MEMORY, "mpi: no memory for a gather of %zu bytes",
                               all_bytes);
    memcpy(copy + all_bytes, mine, bytes);
    status = tutti__mpi_enter(meet->rank);
    if (status != TUTTI_OK)
        goto free_copy;
    code = PMPI_Iallgather(copy + all_bytes, (int)bytes, MPI_BYTE, copy, (int)bytes, MPI_BYTE,
                           meet->comm, &request);
    tutti__mpi_leave();
    if (code != MPI_SUCCESS) {
        status = tutti__mpi_fail_code(code, "MPI_Iallgather");
        goto free_copy;
    }
    status = wait_for(meet, &request, timeout_ms, "gathering at set-up");
    if (status != TUTTI_OK) {
        give_up(meet, copy);
        return status;
    }
    memcpy(ret_all, copy, all_bytes);

free_copy:
    free(copy);
    return status;
}

static tutti_status_t meet_allgather(void *ctx, const void *mine, size_t bytes, void *ret_all,
                                     uint64_t timeout_ms)
{
    tutti__mpi_meet_t *meet = ctx;
    uint64_t start = tutti__now_ns();
    uint64_t spent_ms;
    tutti_status_t status;

    if (meet->broken)
        return tutti__mpi_fail(TUTTI_ERR_TRANSPORT, "mpi: an earlier gather has failed");
    if (meet->comm == MPI_COMM_NULL) {
        status = duplicate(meet, timeout_ms);
        if (status != TUTTI_OK)
            return status;
    }
    if (bytes == 0)
        return TUTTI_OK;
    if (bytes > INT_MAX)
        return tutti__mpi_fail(TUTTI_ERR_INTERNAL, "mpi: a gather of %zu bytes each", bytes);
    spent_ms = (tutti__now_ns() - start) / 1000000;
    return gather(meet, mine, bytes, ret_all, spent_ms < timeout_ms ? timeout_ms - spent_ms : 0);
}

/*
 * If the duplicate may have messages in flight, do not free it: Open MPI could give the duplicate's
 * number to a later communicator, and deliver the messages there. MPI_Finalize frees the duplicate.
 */
static void meet_close(void *ctx)
{
    tutti__mpi_meet_t *meet = ctx;

    tutti__mpi_lock();
    if (meet->comm != MPI_COMM_NULL && !meet->stale && !tutti__mpi_is_gone() &&
        tutti__mpi_may_call(0))
        PMPI_Comm_free(&meet->comm);
    tutti__mpi_count_meets(-1);
    tutti__mpi_leave();
    free(meet);
}

static tutti_status_t check_comm(MPI_Comm comm)
{
    int is_inter = 0;

    if (comm == MPI_COMM_NULL)
        return tutti__mpi_fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "mpi: options->mpi_comm is MPI_COMM_NULL: this process is not in "
                               "the communicator");
    if (PMPI_Comm_test_inter(comm, &is_inter) == MPI_SUCCESS && is_inter)
        return tutti__mpi_fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "mpi: options->mpi_comm is an inter-communicator");
    return TUTTI_OK;
}

tutti_status_t tutti__mpi_meet(const tutti__core_t *core, const void *mpi_comm,
                               tutti__meet_t *ret_meet)
{
    MPI_Comm parent = MPI_COMM_WORLD;
    tutti__mpi_meet_t *meet;
    tutti_status_t status;
    int rank = 0;
    int size = 0;

    status = tutti__mpi_start(core);
    if (status != TUTTI_OK)
        return status;
    if (mpi_comm != NULL)
        parent = *(const MPI_Comm *)mpi_comm;
    status = check_comm(parent);
    if (status != TUTTI_OK)
        return status;
    meet = calloc(1, sizeof(*meet));
    if (meet == NULL)
        return tutti__mpi_fail(TUTTI_ERR_NO_MEMORY, "mpi: out of memory");

    tutti__mpi_lock();
    PMPI_Comm_rank(parent, &rank);
    PMPI_Comm_size(parent, &size);
    tutti__mpi_count_meets(1);
    tutti__mpi_leave();
    meet->parent = parent;
    meet->comm = MPI_COMM_NULL;
    meet->rank = (uint32_t)rank;
    meet->size = (uint32_t)size;
    *ret_meet = (tutti__meet_t){
        .name = "mpi",
        .ctx = meet,
        .rank = meet->rank,
        .size = meet->size,
        .allgather = meet_allgather,
        .close = meet_close,
    };
    return TUTTI_OK;
}
