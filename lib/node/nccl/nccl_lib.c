/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of mem/device.h that use NCCL. They belong to the CUDA module, not to the library.
 *
 * Communicators are non-blocking, so no function here waits for other ranks: a call returns while
 * NCCL still connects or launches in a thread of its own. When nccl_poll reports success, the
 * call's work is in the stream.
 *
 * Before NCCL 2.27, a call stores its remaining work in thread-local storage of the calling thread.
 * Until that work is done and joined, the calling thread must neither end nor make another call
 * (tutti__cuda_nccl_binds). Before NCCL 2.19, an abort in another thread does not join that work,
 * so the work must be done before the abort.
 *
 * From 2.23 on, each call of a non-blocking communicator starts a thread that launches the call.
 *
 * Closing involves the other ranks: NCCL flushes, and frees a communicator when all ranks have
 * closed it. nccl_close waits for this for a short time. A communicator that is not closed by then
 * is put into a list. Whenever another communicator is opened or closed, the list is checked. The
 * end of the process frees the communicators that are still in the list.
 *
 * From 2.19 on, NCCL can register buffers. If one of NCCL's functions for registration is missing,
 * none of them is used. Registering is local and immediate: NCCL stores the range of addresses. At
 * the first use of the range the ranks exchange data about it, in the order of calls.
 * NCCL_LOCAL_REGISTER=0 disables registration. An abort removes the registrations.
 *
 * Threads: one thread at a time uses a communicator (mem/device.h), so only the list has a lock.
 * NCCL starts threads that inherit the caller's signal mask. Calls that may start threads are made
 * with all signals blocked, because signals belong to the application.
 */
#include "node/nccl/nccl_lib.h"

#include "base/constants.h"
#include "base/status.h"
#include "mem/cuda/cuda_parts.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The first versions of NCCL with: float8; calls that are not bound to a thread; an abort that
   waits for calls of other threads. The first compute capability of devices that reduce float8. */
#define FLOAT8 22400
#define UNBOUND 22700
#define ABORTS_ANYWHERE 21900
#define FLOAT8_CAPABILITY 90

_Static_assert(sizeof(tutti__nccl_id_t) == sizeof(ncclUniqueId), "an id");

struct tutti__nccl {
    struct tutti__nccl *next; /* in the list of closing communicators */
    ncclComm_t comm;
    int is_alone; /* 1: the only rank */
    int is_bound; /* 1: bound to the thread of the last open or call, see above */
    void *handle; /* of the last registration; not on a stack: NCCL may write it after the call */
};

static tutti__nccl_t *closing; /* under lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- errors ---- */

/* Is this result an error? "In progress" is the usual result of non-blocking calls. */
static int is_bad(ncclResult_t code)
{
    return TUTTI__UNLIKELY(code != ncclSuccess && code != ncclInProgress);
}

static tutti_status_t check(ncclResult_t code, const char *what, ncclComm_t comm)
{
    const char *last;

    if (!is_bad(code))
        return TUTTI_OK;
    last = tutti__nccl_lib.ncclGetLastError(comm);
    return tutti__cuda_fail(TUTTI_ERR_TRANSPORT, "nccl: %s: %s (%d)%s%.250s", what,
                            tutti__nccl_lib.ncclGetErrorString(code), (int)code,
                            last == NULL || *last == '\0' ? "" : ": ", last == NULL ? "" : last);
}

/* Log an error that cannot be returned. */
static void note(ncclResult_t code, const char *what)
{
    if (is_bad(code))
        tutti__cuda_note("nccl: %s: %s", what, tutti__nccl_lib.ncclGetErrorString(code));
}

static tutti_status_t check_there(void)
{
    return tutti__nccl_lib.version > 0
               ? TUTTI_OK
               : tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "no NCCL: %s", tutti__nccl_lib.reason);
}

/* ---- signals ---- */

static sigset_t block_signals(void)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    return before;
}

/* Restore the signal mask. Returns `code`, so that a call can be written as an argument. */
static ncclResult_t unblock(sigset_t before, ncclResult_t code)
{
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

/* ---- types and operations ---- */

static int is_float8(int type)
{
    return type == 10 || type == 11;
}

/* NCCL's number of a type, or -1 if NCCL does not have the type. Elements of such a type are moved
   as bytes. NCCL's numbers never change, but older headers have no names for the last three. */
static int type_of(tutti_dtype_t dtype)
{
    static const signed char types[] = {
        [TUTTI_INT8] = ncclInt8,       [TUTTI_UINT8] = ncclUint8,     [TUTTI_INT16] = -1,
        [TUTTI_UINT16] = -1,           [TUTTI_INT32] = ncclInt32,     [TUTTI_UINT32] = ncclUint32,
        [TUTTI_INT64] = ncclInt64,     [TUTTI_UINT64] = ncclUint64,   [TUTTI_FLOAT16] = ncclFloat16,
        [TUTTI_FLOAT32] = ncclFloat32, [TUTTI_FLOAT64] = ncclFloat64, [TUTTI_BFLOAT16] = 9,
        [TUTTI_FLOAT8_E4M3] = 10,      [TUTTI_FLOAT8_E5M2] = 11,
    };

    if (dtype < TUTTI_INT8 || dtype > TUTTI_FLOAT8_E5M2)
        return -1;
    return is_float8(types[dtype]) && tutti__nccl_lib.version < FLOAT8 ? -1 : types[dtype];
}

static int op_of(tutti_op_t op)
{
    switch (op) {
    case TUTTI_SUM:
        return ncclSum;
    case TUTTI_PROD:
        return ncclProd;
    case TUTTI_MAX:
        return ncclMax;
    case TUTTI_MIN:
        return ncclMin;
    case TUTTI_AVG:
        return ncclAvg;
    default:
        return -1;
    }
}

int tutti__cuda_nccl_serves(tutti_dtype_t dtype, tutti_op_t op)
{
    int type = type_of(dtype);

    if (tutti__nccl_lib.version == 0 || type < 0 || op_of(op) < 0)
        return 0;
    /* NCCL cannot reduce float8 on older devices. */
    return !is_float8(type) || tutti__cuda_capability() >= FLOAT8_CAPABILITY;
}

/* ---- communicators ---- */

static void nap(void)
{
    const struct timespec step = { 0, TUTTI__NCCL_NAP_US * 1000L };

    nanosleep(&step, NULL);
}

/* If the closing of a communicator is over, free the communicator and return 1. An error ends
   closing as well; the other ranks detect the error by themselves. */
static int let_go(tutti__nccl_t *nccl)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t code = tutti__nccl_lib.ncclCommGetAsyncError(nccl->comm, &state);
    sigset_t before;

    if (code == ncclSuccess && state == ncclInProgress)
        return 0;
    if (code != ncclSuccess || state != ncclSuccess) {
        tutti__cuda_nccl_abort(nccl);
        return 1;
    }
    before = block_signals();
    note(unblock(before, tutti__nccl_lib.ncclCommDestroy(nccl->comm)), "ncclCommDestroy");
    free(nccl);
    return 1;
}

/* Put a communicator that is still closing into the list. */
static void keep(tutti__nccl_t *nccl)
{
    pthread_mutex_lock(&lock);
    nccl->next = closing;
    closing = nccl;
    pthread_mutex_unlock(&lock);
}

/* Free communicators whose closing is over. If NCCL binds calls to threads, free no communicator.
   The lock is not held while a communicator is freed, because an abort may never return. */
static void sweep(void)
{
    tutti__nccl_t *list, *next;

    if (tutti__cuda_nccl_binds())
        return;
    pthread_mutex_lock(&lock);
    list = closing;
    closing = NULL;
    pthread_mutex_unlock(&lock);
    for (; list != NULL; list = next) {
        next = list->next;
        if (!let_go(list))
            keep(list);
    }
}

tutti_status_t tutti__cuda_nccl_id(tutti__nccl_id_t *ret_id)
{
    tutti_status_t status = check_there();
    sigset_t before;
    ncclUniqueId id;

    if (status != TUTTI_OK)
        return status;
    before = block_signals();
    status = check(unblock(before, tutti__nccl_lib.ncclGetUniqueId(&id)), "ncclGetUniqueId", NULL);
    if (status == TUTTI_OK)
        memcpy(ret_id, &id, sizeof(id));
    return status;
}

tutti_status_t tutti__cuda_nccl_open(const tutti__nccl_id_t *id, uint32_t rank, uint32_t size,
                                     int is_blocking, tutti__nccl_t **ret_nccl)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    tutti_status_t status = check_there();
    tutti__nccl_t *nccl;
    ncclUniqueId same;
    ncclResult_t code;
    sigset_t before;

    if (status != TUTTI_OK)
        return status;
    sweep();
    nccl = calloc(1, sizeof(*nccl));
    if (nccl == NULL)
        return tutti__cuda_fail(TUTTI_ERR_NO_MEMORY, "nccl: a communicator");
    config.blocking = is_blocking;
    memcpy(&same, id, sizeof(same));
    before = block_signals();
    code = tutti__nccl_lib.ncclCommInitRankConfig(&nccl->comm, (int)size, same, (int)rank, &config);
    status = check(unblock(before, code), "ncclCommInitRankConfig", NULL);
    if (status != TUTTI_OK) {
        tutti__cuda_nccl_abort(nccl);
        return status;
    }
    nccl->is_alone = size == 1;
    nccl->is_bound = tutti__cuda_nccl_binds();
    *ret_nccl = nccl;
    return TUTTI_OK;
}

int tutti__cuda_nccl_binds(void)
{
    return tutti__nccl_lib.version < UNBOUND;
}

/* Asking for the communicator's size joins NCCL's thread. This does not wait, because all calls of
   the communicator are done. */
static tutti_status_t unbind(tutti__nccl_t *nccl)
{
    int size;

    nccl->is_bound = 0;
    return check(tutti__nccl_lib.ncclCommCount(nccl->comm, &size), "ncclCommCount", nccl->comm);
}

tutti_status_t tutti__cuda_nccl_poll(tutti__nccl_t *nccl)
{
    ncclResult_t state = ncclSuccess;
    tutti_status_t status = check(tutti__nccl_lib.ncclCommGetAsyncError(nccl->comm, &state),
                                  "ncclCommGetAsyncError", nccl->comm);

    if (status != TUTTI_OK)
        return status;
    if (state == ncclInProgress)
        return TUTTI__AGAIN;
    status = check(state, "communicator", nccl->comm);
    return status == TUTTI_OK && nccl->is_bound ? unbind(nccl) : status;
}

void tutti__cuda_nccl_close(tutti__nccl_t *nccl)
{
    ncclResult_t code;
    sigset_t before;

    if (nccl == NULL)
        return;
    sweep();
    before = block_signals();
    code = unblock(before, tutti__nccl_lib.ncclCommFinalize(nccl->comm));
    if (is_bad(code)) {
        note(code, "ncclCommFinalize");
        tutti__cuda_nccl_abort(nccl);
        return;
    }
    for (int i = 0; i < TUTTI__NCCL_CLOSE_US / TUTTI__NCCL_NAP_US; i++) {
        if (let_go(nccl))
            return;
        nap();
    }
    keep(nccl);
}

/* Wait for the end of NCCL's call. If another rank has ended and never connects, this function
   waits for ever. */
static void await_end(const tutti__nccl_t *nccl)
{
    ncclResult_t state = ncclSuccess;

    while (tutti__nccl_lib.ncclCommGetAsyncError(nccl->comm, &state) == ncclSuccess &&
           state == ncclInProgress)
        nap();
}

void tutti__cuda_nccl_abort(tutti__nccl_t *nccl)
{
    sigset_t before;

    if (nccl == NULL)
        return;
    if (nccl->comm != NULL && tutti__nccl_lib.version < ABORTS_ANYWHERE)
        await_end(nccl);
    before = block_signals();
    if (nccl->comm != NULL)
        note(tutti__nccl_lib.ncclCommAbort(nccl->comm), "ncclCommAbort");
    (void)unblock(before, ncclSuccess);
    free(nccl);
}

/* ---- registered buffers ---- */

static tutti_status_t check_registers(void)
{
    tutti_status_t status = check_there();

    if (status != TUTTI_OK || tutti__nccl_lib.registers)
        return status;
    return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "nccl: this version registers no buffers");
}

tutti_status_t tutti__cuda_nccl_alloc(size_t bytes, void **ret_ptr)
{
    tutti_status_t status = check_registers();
    void *ptr = NULL;

    if (status == TUTTI_OK)
        status = check(
            tutti__nccl_lib.ncclMemAlloc(&ptr, TUTTI__ROUND_UP(bytes, TUTTI__NCCL_ALLOC_BYTES)),
            "ncclMemAlloc", NULL);
    if (status == TUTTI_OK)
        *ret_ptr = ptr;
    return status;
}

void tutti__cuda_nccl_free(void *ptr)
{
    if (ptr != NULL)
        note(tutti__nccl_lib.ncclMemFree(ptr), "ncclMemFree");
}

/* NCCL returns the result of a registration at once, even for a non-blocking communicator. */
tutti_status_t tutti__cuda_nccl_register(tutti__nccl_t *nccl, void *ptr, size_t bytes,
                                         tutti__nccl_reg_t **ret_reg)
{
    tutti_status_t status = check_registers();
    ncclResult_t code;

    if (status != TUTTI_OK)
        return status;
    nccl->handle = NULL;
    code = tutti__nccl_lib.ncclCommRegister(nccl->comm, ptr, bytes, &nccl->handle);
    status = check(code, "ncclCommRegister", nccl->comm);
    if (status != TUTTI_OK)
        return status;
    if (code != ncclSuccess || nccl->handle == NULL)
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "nccl: ncclCommRegister: %s",
                                code != ncclSuccess ? "in progress"
                                                    : "no handle; is NCCL_LOCAL_REGISTER 0?");
    *ret_reg = nccl->handle;
    return TUTTI_OK;
}

void tutti__cuda_nccl_deregister(tutti__nccl_t *nccl, tutti__nccl_reg_t *reg)
{
    note(tutti__nccl_lib.ncclCommDeregister(nccl->comm, reg), "ncclCommDeregister");
}

/* ---- calls ---- */

static ncclResult_t queue(const tutti__nccl_t *nccl, const tutti__nccl_call_t *call,
                          cudaStream_t stream, const char **ret_what)
{
    ncclComm_t comm = nccl->comm;
    int moves = call->kind == TUTTI__NCCL_ALLGATHER || call->kind >= TUTTI__NCCL_SEND ||
                call->kind == TUTTI__NCCL_BROADCAST;
    int type = type_of(call->dtype), root = (int)call->root;
    ncclDataType_t elem = (ncclDataType_t)type;
    ncclRedOp_t op = (ncclRedOp_t)op_of(call->op);
    size_t count = call->count;

    /* NCCL 2.28.9 refuses an average of float8 in a communicator of one rank. */
    if (nccl->is_alone && op == ncclAvg)
        op = ncclSum;
    /* Move elements as bytes. On older devices NCCL refuses float8 even in collectives that only
       move data. */
    if (moves && (type < 0 || is_float8(type))) {
        elem = ncclUint8;
        count *= tutti__cuda_dtype_bytes(call->dtype);
    }
    switch (call->kind) {
    case TUTTI__NCCL_ALLREDUCE:
        *ret_what = "ncclAllReduce";
        return tutti__nccl_lib.ncclAllReduce(call->src, call->dst, count, elem, op, comm, stream);
    case TUTTI__NCCL_REDUCE_SCATTER:
        *ret_what = "ncclReduceScatter";
        return tutti__nccl_lib.ncclReduceScatter(call->src, call->dst, count, elem, op, comm,
                                                 stream);
    case TUTTI__NCCL_ALLGATHER:
        *ret_what = "ncclAllGather";
        return tutti__nccl_lib.ncclAllGather(call->src, call->dst, count, elem, comm, stream);
    case TUTTI__NCCL_BROADCAST:
        *ret_what = "ncclBroadcast";
        return tutti__nccl_lib.ncclBroadcast(call->src, call->dst, count, elem, root, comm, stream);
    case TUTTI__NCCL_REDUCE:
        *ret_what = "ncclReduce";
        return tutti__nccl_lib.ncclReduce(call->src, call->dst, count, elem, op, root, comm,
                                          stream);
    case TUTTI__NCCL_SEND:
        *ret_what = "ncclSend";
        return tutti__nccl_lib.ncclSend(call->src, count, elem, root, comm, stream);
    case TUTTI__NCCL_RECV:
        *ret_what = "ncclRecv";
        return tutti__nccl_lib.ncclRecv(call->dst, count, elem, root, comm, stream);
    }
    *ret_what = "unknown kind";
    return ncclInvalidArgument;
}

/* Check a call before its group begins, because an incomplete group would have to be aborted. */
static tutti_status_t check_call(const tutti__nccl_call_t *call)
{
    int reduces = call->kind == TUTTI__NCCL_ALLREDUCE || call->kind == TUTTI__NCCL_REDUCE ||
                  call->kind == TUTTI__NCCL_REDUCE_SCATTER;

    if (!reduces || tutti__cuda_nccl_serves(call->dtype, call->op))
        return TUTTI_OK;
    return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "nccl: operation %d on type %d", (int)call->op,
                            (int)call->dtype);
}

static ncclResult_t end_group(void)
{
    sigset_t before = block_signals();

    return unblock(before, tutti__nccl_lib.ncclGroupEnd());
}

tutti_status_t tutti__cuda_nccl_call(tutti__nccl_t *nccl, const tutti__nccl_call_t *calls,
                                     size_t ncalls, tutti__dstream_t *stream)
{
    tutti_status_t status = TUTTI_OK;
    const char *what = "";
    ncclResult_t code;

    for (size_t i = 0; i < ncalls && status == TUTTI_OK; i++)
        status = check_call(&calls[i]);
    if (status == TUTTI_OK)
        status = check(tutti__nccl_lib.ncclGroupStart(), "ncclGroupStart", nccl->comm);
    if (status != TUTTI_OK)
        return status;
    for (size_t i = 0; i < ncalls && status == TUTTI_OK; i++) {
        code = queue(nccl, &calls[i], (cudaStream_t)stream, &what);
        status = check(code, what, nccl->comm);
    }
    /* End the group also after a failure, so that the thread does not stay in the group. Keep the
       first error's text. */
    if (status != TUTTI_OK) {
        note(end_group(), "ncclGroupEnd");
        return status;
    }
    nccl->is_bound = tutti__cuda_nccl_binds();
    return check(end_group(), "ncclGroupEnd", nccl->comm);
}
