/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A function of a rank's device fails once, at its n-th call. Each function is tested, from set-up
 * to the last call, in direct and asynchronous calls. All ranks end with an error, no rank waits
 * for its deadline, and no object of the device is left.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/device/device_job.h"

#include "base/own_thread.h"
#include "base/time.h"

#include <tutti/cuda.h>

#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* ---- a device that fails ---- */

#define FUNCTIONS(X)                                                                               \
    DEVICE_FUNCTIONS(X)                                                                            \
    X(count, (int *ret_count), (ret_count))                                                        \
    X(alloc, (size_t bytes, void **ret_ptr), (bytes, ret_ptr))                                     \
    X(host_alloc, (size_t bytes, void **ret_ptr), (bytes, ret_ptr))                                \
    X(stream_make, (int is_urgent, tutti__dstream_t **ret), (is_urgent, ret))                      \
    X(event_make, (tutti__devent_t * *ret), (ret))                                                 \
    X(nccl_id, (tutti__nccl_id_t * ret_id), (ret_id))                                              \
    X(nccl_open,                                                                                   \
      (const tutti__nccl_id_t *id, uint32_t rank, uint32_t size, int is_blocking,                  \
       tutti__nccl_t **ret_nccl),                                                                  \
      (id, rank, size, is_blocking, ret_nccl))                                                     \
    X(nccl_alloc, (size_t bytes, void **ret_ptr), (bytes, ret_ptr))                                \
    X(nccl_register, (tutti__nccl_t * nccl, void *ptr, size_t bytes, tutti__nccl_reg_t **ret_reg), \
      (nccl, ptr, bytes, ret_reg))

#define NUMBER(name, params, args) F_##name,
#define NAME(name, params, args) #name,
enum {
    FUNCTIONS(NUMBER) NFUNCTIONS
};
static const char *const names[] = { FUNCTIONS(NAME) };

static struct {
    int function, device; /* the function and device that fail */
    tutti_status_t status;
    atomic_uint calls[NFUNCTIONS]; /* calls of each function on that device */
    unsigned at;
    atomic_int came;
    atomic_int by_library; /* the library's own thread has made that call */
} fault;

static const tutti__device_ops_t *real;

static tutti_status_t hit(int function)
{
    if (real->current() != fault.device)
        return TUTTI_OK;
    if (atomic_fetch_add(&fault.calls[function], 1) != fault.at || function != fault.function)
        return TUTTI_OK;
    atomic_store(&fault.by_library, tutti__thread_is_own());
    atomic_store(&fault.came, 1);
    return tutti__fail(fault.status, "%s was made to fail", names[function]);
}

#define PASS(name, params, args)                                                                   \
    static tutti_status_t faulty_##name params                                                     \
    {                                                                                              \
        tutti_status_t status = hit(F_##name);                                                     \
                                                                                                   \
        return status == TUTTI_OK ? real->name args : status;                                      \
    }

FUNCTIONS(PASS)

static const tutti__device_ops_t *faulty_device(void)
{
    static tutti__device_ops_t ops;

    real = pretend_device();
    ops = *real;
#define PUT(name, params, args) ops.name = faulty_##name;
    FUNCTIONS(PUT)
    return &ops;
}

/* ---- the ranks' calls ---- */

enum {
    RANKS = 3,
    COUNT = 3000,
    TENSORS = 6
};

typedef struct {
    tutti_comm_t *comm;
    char *memory;
    tutti__dstream_t *stream;
} mine_t;

/* Calls by NCCL, by NCCL in pieces, and staged; the last call stays in the stream. */
static tutti_status_t direct(const mine_t *m)
{
    float *a = (float *)(void *)m->memory, *b = a + 8 * COUNT;
    tutti_status_t status;
    tutti_call_t call = TUTTI_CALL_INIT;

    status = tutti_allreduce(a, b, COUNT, TUTTI_FLOAT32, TUTTI_AVG, m->comm);
    if (status == TUTTI_OK)
        status = tutti_allreduce(a, b, COUNT, TUTTI_INT32, TUTTI_AVG, m->comm);
    if (status == TUTTI_OK)
        status = tutti_reduce_scatter(a, a, COUNT, TUTTI_FLOAT32, TUTTI_SUM, m->comm);
    if (status == TUTTI_OK)
        status = tutti_alltoall(a, a, COUNT, TUTTI_FLOAT32, m->comm);
    if (status == TUTTI_OK)
        status = tutti_scan(a, b, COUNT, TUTTI_INT16, TUTTI_BXOR, m->comm);
    if (status == TUTTI_OK)
        status = tutti_allreduce_scaled(a, b, COUNT, TUTTI_FLOAT32, TUTTI_SUM, 2, 1, m->comm);
    call.kind = TUTTI_CALL_BROADCAST;
    call.dtype = TUTTI_FLOAT32;
    call.count = COUNT;
    call.recvbuf = b;
    if (status == TUTTI_OK)
        status = tutti_cuda_run(&call, m->comm, (struct CUstream_st *)(void *)m->stream);
    return status;
}

static tutti_status_t asynchronous(const mine_t *m)
{
    float *a = (float *)(void *)m->memory;
    tutti_request_t *requests[TENSORS];
    tutti_status_t status = TUTTI_OK, waited;
    char name[TENSORS][8];
    int n = 0;

    for (; n < TENSORS && status == TUTTI_OK; n++) {
        tutti_call_t call = TUTTI_CALL_INIT;
        tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;

        snprintf(name[n], sizeof(name[n]), "t%d", n);
        options.prescale = n == 1 ? 0.5 : 0;
        call.kind = n == 2 ? TUTTI_CALL_ALLTOALL : TUTTI_CALL_ALLREDUCE;
        call.name = name[n];
        call.options = &options;
        call.dtype = n == 3 ? TUTTI_INT16 : TUTTI_FLOAT32;
        call.op = n == 2 ? 0 : n == 3 ? TUTTI_BXOR : TUTTI_SUM;
        call.count = COUNT / TENSORS / 4;
        call.sendbuf = a + n * COUNT;
        call.recvbuf = a + (TENSORS + n) * COUNT;
        status = tutti_cuda_submit(&call, 1, m->comm, (struct CUstream_st *)(void *)m->stream,
                                   &requests[n]);
        if (status != TUTTI_OK) {
            /* As after wrong arguments, the other ranks have not been told of the error. */
            tutti_abort(m->comm, tutti_last_error());
            break;
        }
    }
    for (int i = 0; i < n; i++) {
        waited = tutti_wait(requests[i], -1);
        if (status == TUTTI_OK)
            status = waited;
    }
    return status;
}

typedef struct {
    const char *hosts;
    int number, in_group;
    int came; /* 1: the fault has occurred before the end of the calls */
    pthread_barrier_t end;
    tutti_status_t status[RANKS];
    char words[RANKS][128];
} world_t;

static tutti_status_t calls(tutti_comm_t *comm)
{
    mine_t m = { comm, NULL, NULL };
    tutti_status_t status = TUTTI_OK;
    void *memory;

    CHECK_OK(real->alloc((size_t)COUNT * 64, &memory));
    CHECK_OK(real->stream_make(0, &m.stream));
    m.memory = memory;
    for (int i = 0; i < 2 && status == TUTTI_OK; i++) {
        status = direct(&m);
        if (status == TUTTI_OK)
            status = asynchronous(&m);
    }
    if (status == TUTTI_OK)
        status = tutti_barrier(comm);
    real->stream_drop(m.stream);
    real->free(memory);
    return status;
}

static void settings(tutti__conf_t *conf, const world_t *world, int rank)
{
    tutti__conf_defaults(conf);
    device_settings(conf, rank);
    conf->log_level = TUTTI__LOG_NONE;
    conf->shared.timeout_ms = 20000;
    if (world->hosts != NULL)
        snprintf(conf->host_id, sizeof(conf->host_id), "host-%c", world->hosts[rank]);
}

/* The job's own communicator is for host memory, and is not affected. */
static void one_world(rank_t *self)
{
    world_t *world = self->arg;
    tutti__comm_t *comm = NULL;
    tutti_comm_t *part = NULL;
    tutti_status_t status;
    tutti__conf_t conf;
    tutti__meet_t meet;
    char name[64];

    CHECK_OK(real->use(self->rank));
    settings(&conf, world, self->rank);
    snprintf(name, sizeof(name), "tutti-faults-%d-%d", ranks_tag(), world->number);
    CHECK_OK(tutti__meet_local(name, (uint32_t)self->rank, RANKS, 60000, &meet));
    status = tutti__comm_open(&meet, NULL, &conf, &comm);
    if (status == TUTTI_OK && world->in_group)
        status = tutti_comm_split(comm->handle, 0, 0, &part);
    CHECK_OK(real->use(self->rank)); /* the library may have failed to restore the device */
    if (status == TUTTI_OK)
        status = calls(world->in_group ? part : comm->handle);
    world->status[self->rank] = status;
    if (status != TUTTI_OK)
        snprintf(world->words[self->rank], 128, "%s", tutti_last_error());
    if (self->rank == fault.device)
        world->came = atomic_load(&fault.came);
    pthread_barrier_wait(&world->end);
    tutti__comm_close(comm);
}

static int is_wrong(const world_t *world, tutti_status_t status)
{
    /* If the leader could not get an id of NCCL, all calls continue without NCCL. If memory could
       not be allocated or registered with NCCL, they continue without that memory. */
    int goes_on = !world->came || fault.function == F_nccl_id || fault.function == F_nccl_alloc ||
                  fault.function == F_nccl_register;

    /* The library's thread also calls `query` after all calls are done. Then a fault makes no call
       fail. */
    if (fault.function == F_query && atomic_load(&fault.by_library) && status == TUTTI_OK)
        return 0;
    return status == TUTTI_ERR_TIMEOUT || (status == TUTTI_OK) != goes_on;
}

/* Returns the number of failures. If there are at least fault.at calls, checks that the fault has
   occurred. */
static int run_world(const char *hosts, int in_group)
{
    static int number;
    world_t world = { .hosts = hosts, .number = number++, .in_group = in_group };
    job_t job = { .size = RANKS, .threads = 1, .fn = one_world, .arg = &world };
    int failures = 0, left;

    for (int i = 0; i < NFUNCTIONS; i++)
        atomic_store(&fault.calls[i], 0);
    atomic_store(&fault.came, 0);
    atomic_store(&fault.by_library, 0);
    pthread_barrier_init(&world.end, NULL, RANKS);
    RUN_JOB(failures, &job);
    pthread_barrier_destroy(&world.end);
    left = pretend_reset();
    failures += left != 0;
    for (int r = 0; r < RANKS; r++)
        failures += is_wrong(&world, world.status[r]);
    if (failures == 0)
        return 0;
    fprintf(stderr, "FAILED: call %u of %s on device %d, hosts %s; %d things are left\n", fault.at,
            names[fault.function], fault.device, hosts != NULL ? hosts : "one", left);
    for (int r = 0; r < RANKS; r++)
        fprintf(stderr, "    rank %d: %s: %s\n", r, tutti_strerror(world.status[r]),
                world.words[r]);
    return failures;
}

/* For each function: let its first calls fail, then later and later calls, up to its last call. */
/* The quick form tests every third function; each run_all begins one function later. */
static int whole, turn;

static int run_all(tutti_status_t status, int device, const char *hosts, int in_group)
{
    int failures = 0;

    fault.status = status;
    fault.device = device;
    for (fault.function = whole ? 0 : turn++ % 3; fault.function < NFUNCTIONS;
         fault.function += whole ? 1 : 3) {
        fault.at = 0;
        do {
            failures += run_world(hosts, in_group);
            fault.at += 1 + fault.at;
        } while (atomic_load(&fault.came));
    }
    return failures;
}

int main(void)
{
    int failures = pretend_prepare(RANKS) != 0;

    tutti__module_lend_device(faulty_device());
    whole = test_is_long("two of three functions for each kind of group");
    failures += run_all(TUTTI_ERR_NO_MEMORY, 1, NULL, 0);
    failures += run_all(TUTTI_ERR_SYSTEM, 0, "aab", 0);
    if (ranks_can_fork()) /* with threads it takes long */
        failures += run_all(TUTTI_ERR_TRANSPORT, 2, NULL, 1);
    return failures != 0;
}
