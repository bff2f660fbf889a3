/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libnccl: communicators. A non-blocking communicator is in progress until ncclCommGetAsyncError
 * has reported the end. The real NCCL may finish earlier, but here a call before that report is an
 * error. After ncclCommFinalize the communicator is in progress until all ranks have called
 * ncclCommFinalize.
 */
#include "cuda_libs/inside.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONFIG_MAGIC 0xcafebeefu
/* Before this version the remaining work of a call belongs to its thread. */
#define UNBOUND 22700
/* A communicator is reported as in progress at least so many times. */
#define POLLS 2

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int is_attached;

/* ---- the process ---- */

static int version(void)
{
    const char *text = getenv("TUTTI_TEST_NCCL_VERSION");

    return text != NULL ? atoi(text) : NCCL_VERSION_CODE;
}

static void attach(void)
{
    const char *file = getenv("TUTTI_TEST_PRETEND");
    int failed =
        file != NULL && file[0] != '\0' ? pretend_attach(file) : pretend_prepare(PRETEND_RANKS);

    is_attached = !failed;
    pretend_bind_calls(version() < UNBOUND);
}

static ncclResult_t begin(void)
{
    pthread_once(&once, attach);
    return is_attached ? ncclSuccess
                       : nccl_say(ncclSystemError, "cannot map the file TUTTI_TEST_PRETEND");
}

ncclResult_t ncclGetVersion(int *version_code)
{
    *version_code = version();
    return ncclSuccess;
}

_Static_assert(sizeof(ncclUniqueId) == sizeof(tutti__nccl_id_t), "an id");

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    ncclResult_t code = begin();

    return code == ncclSuccess ? nccl_code(nccl_id((tutti__nccl_id_t *)(void *)uniqueId)) : code;
}

/* ---- communicators ---- */

static ncclResult_t check_comm(const char *what, ncclComm_t comm)
{
    return comm != NULL && comm->magic == COMM_MAGIC
               ? ncclSuccess
               : nccl_say(ncclInvalidArgument, "%s: this is no communicator", what);
}

ncclResult_t comm_ready(const char *what, ncclComm_t comm)
{
    ncclResult_t code = check_comm(what, comm);

    if (code == ncclSuccess && atomic_load(&comm->is_busy))
        code = nccl_say(ncclInvalidArgument,
                        "%s: before the previous operation returned ncclSuccess", what);
    return code;
}

static ncclResult_t check_config(const ncclConfig_t *config, int *ret_is_blocking)
{
    if (config == NULL || config->magic != CONFIG_MAGIC || config->size != sizeof(*config))
        return nccl_say(ncclInvalidArgument, "ncclConfig_t was not initialized");
    if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
        return nccl_say(ncclInvalidArgument, "ncclConfig_t: blocking %d", config->blocking);
    *ret_is_blocking = config->blocking != 0;
    return ncclSuccess;
}

static ncclResult_t open_comm(ncclUniqueId id, ncclComm_t comm)
{
    tutti_status_t status;

    if (rt_end(rt_begin("ncclCommInitRankConfig")) != cudaSuccess)
        return nccl_say(ncclUnhandledCudaError, "%s", cudaGetErrorString(cudaGetLastError()));
    status = nccl_open((const tutti__nccl_id_t *)(const void *)&id, (uint32_t)comm->rank,
                       (uint32_t)comm->size, comm->is_blocking, &comm->nccl);
    return nccl_code(status);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t *config)
{
    int is_blocking = 1;
    ncclResult_t code = begin();
    ncclComm_t made;

    *comm = NULL;
    if (code == ncclSuccess)
        code = check_config(config, &is_blocking);
    if (code == ncclSuccess && (nranks < 1 || rank < 0 || rank >= nranks))
        code = nccl_say(ncclInvalidArgument, "rank %d of %d", rank, nranks);
    if (code != ncclSuccess)
        return code;
    made = calloc(1, sizeof(*made));
    if (made == NULL)
        return ncclSystemError;
    made->magic = COMM_MAGIC;
    made->rank = rank;
    made->size = nranks;
    made->is_blocking = is_blocking;
    atomic_store(&made->is_busy, !is_blocking);
    code = open_comm(commId, made);
    if (code != ncclSuccess) {
        free(made);
        return code;
    }
    *comm = made;
    return is_blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    ncclResult_t code = comm_ready("ncclCommCount", comm);

    if (code == ncclSuccess)
        *count = comm->size;
    return code;
}

/* ---- its state ---- */

static ncclResult_t final_state(ncclComm_t comm)
{
    slot_t *slot = comm->nccl->slot;
    int all;

    if (comm->polls > 0) {
        comm->polls--;
        return ncclInProgress;
    }
    shared_lock(&slot->lock);
    all = (int)slot->finalized == comm->size;
    pthread_mutex_unlock(&slot->lock);
    return all && atomic_load(&comm->nccl->in_flight) == 0 ? ncclSuccess : ncclInProgress;
}

static ncclResult_t state_of(ncclComm_t comm)
{
    ncclResult_t state;
    visit_t visit;

    if (comm->is_final)
        return final_state(comm);
    visit_device(comm->nccl->device, &visit);
    state = nccl_code(nccl_poll(comm->nccl));
    visit_end(&visit);
    return state;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    ncclResult_t code = check_comm("ncclCommGetAsyncError", comm);

    if (code != ncclSuccess)
        return code;
    *asyncError = state_of(comm);
    if (*asyncError != ncclInProgress)
        atomic_store(&comm->is_busy, 0);
    return ncclSuccess;
}

/* ---- the end ---- */

static void await_final(ncclComm_t comm)
{
    const struct timespec step = { 0, 100000 };

    while (final_state(comm) == ncclInProgress)
        nanosleep(&step, NULL);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t code = comm_ready("ncclCommFinalize", comm);
    slot_t *slot;

    if (code == ncclSuccess && comm->is_final)
        code = nccl_say(ncclInvalidArgument, "ncclCommFinalize: for the second time");
    if (code != ncclSuccess)
        return code;
    slot = comm->nccl->slot;
    shared_lock(&slot->lock);
    slot->finalized++;
    pthread_mutex_unlock(&slot->lock);
    comm->is_final = 1;
    comm->polls = POLLS;
    atomic_store(&comm->is_busy, !comm->is_blocking);
    if (!comm->is_blocking)
        return ncclInProgress;
    await_final(comm);
    return ncclSuccess;
}

static void forget(ncclComm_t comm)
{
    comm->magic = 0;
    free(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclResult_t code = comm == NULL ? ncclSuccess : comm_ready("ncclCommDestroy", comm);

    if (comm == NULL || code != ncclSuccess)
        return code;
    nccl_close(comm->nccl);
    forget(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ncclResult_t code = comm == NULL ? ncclSuccess : check_comm("ncclCommAbort", comm);

    if (comm == NULL || code != ncclSuccess)
        return code;
    nccl_abort(comm->nccl);
    forget(comm);
    return ncclSuccess;
}

/* ---- registered buffers: missing in NCCL 2.18 ---- */

#if NCCL_VERSION_CODE >= 21900
ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    if (rt_end(rt_begin("ncclMemAlloc")) != cudaSuccess)
        return nccl_say(ncclUnhandledCudaError, "%s", cudaGetErrorString(cudaGetLastError()));
    return nccl_code(memory_nccl_alloc(size, ptr));
}

ncclResult_t ncclMemFree(void *ptr)
{
    memory_nccl_free(ptr);
    return ncclSuccess;
}

/* If registration is disabled, this function returns no handle and no error. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    const char *local = getenv("NCCL_LOCAL_REGISTER");
    ncclResult_t code = comm_ready("ncclCommRegister", comm);
    tutti__nccl_reg_t *reg = NULL;

    *handle = NULL;
    if (code != ncclSuccess || (local != NULL && strcmp(local, "0") == 0))
        return code;
    code = nccl_code(nccl_register(comm->nccl, buff, size, &reg));
    if (code == ncclSuccess)
        *handle = reg;
    return code;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    ncclResult_t code = check_comm("ncclCommDeregister", comm);

    if (code == ncclSuccess && handle != NULL)
        nccl_deregister(comm->nccl, handle);
    return code;
}
#endif
