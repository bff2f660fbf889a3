/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Forks of ranks that use a device. For all actions and ends of the child that are tested, the
 * child never uses the device, and its calls return errors with a text. The parent continues
 * undisturbed with its calls in flight, and with the calls of another thread.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include <tutti/cuda.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS = 3,
    COUNT = 1000,
    ROUNDS = 4 /* ways for a child to end, see end_child */
};

/* ---- a device that checks its callers ---- */

static struct {
    atomic_int parents[RANKS]; /* the process that may use each device; 0: none so far */
    atomic_int wrong;          /* calls of other processes */
} * board;

static const tutti__device_ops_t *real;

static void look(void)
{
    int mine = 0;

    for (int r = 0; r < RANKS; r++)
        mine |= atomic_load(&board->parents[r]) == getpid();
    if (!mine)
        atomic_fetch_add(&board->wrong, 1);
}

#define PASS(type, name, params, args)                                                             \
    static type seen_##name params                                                                 \
    {                                                                                              \
        look();                                                                                    \
        return real->name args;                                                                    \
    }
#define DROP(name, params, args)                                                                   \
    static void seen_##name params                                                                 \
    {                                                                                              \
        look();                                                                                    \
        real->name args;                                                                           \
    }

PASS(tutti_status_t, count, (int *ret_count), (ret_count))
PASS(tutti_status_t, use, (int device), (device))
PASS(int, current, (void), ())
PASS(tutti__where_t, where, (const void *ptr), (ptr))
PASS(tutti_status_t, alloc, (size_t bytes, void **ret_ptr), (bytes, ret_ptr))
DROP(free, (void *ptr), (ptr))
PASS(tutti_status_t, host_alloc, (size_t bytes, void **ret_ptr), (bytes, ret_ptr))
DROP(host_free, (void *ptr), (ptr))
PASS(tutti_status_t, stream_make, (int is_urgent, tutti__dstream_t **ret), (is_urgent, ret))
DROP(stream_drop, (tutti__dstream_t * stream), (stream))
PASS(int, stream_captures, (tutti__dstream_t * stream), (stream))
PASS(tutti_status_t, event_make, (tutti__devent_t * *ret), (ret))
DROP(event_drop, (tutti__devent_t * event), (event))
PASS(tutti_status_t, record, (tutti__devent_t * event, tutti__dstream_t *stream), (event, stream))
PASS(tutti_status_t, wait, (tutti__dstream_t * stream, tutti__devent_t *event), (stream, event))
PASS(tutti_status_t, query, (tutti__devent_t * event), (event))
PASS(tutti_status_t, copy, (void *dst, const void *src, size_t bytes, tutti__dstream_t *stream),
     (dst, src, bytes, stream))
PASS(tutti_status_t, nccl_poll, (tutti__nccl_t * nccl), (nccl))
PASS(tutti_status_t, nccl_call,
     (tutti__nccl_t * nccl, const tutti__nccl_call_t *calls, size_t ncalls,
      tutti__dstream_t *stream),
     (nccl, calls, ncalls, stream))
DROP(nccl_close, (tutti__nccl_t * nccl), (nccl))
DROP(nccl_abort, (tutti__nccl_t * nccl), (nccl))

static const tutti__device_ops_t *seeing_device(void)
{
    static tutti__device_ops_t ops;

    real = pretend_device();
    ops = *real;
#define PUT(name) ops.name = seen_##name;
    PUT(count)
    PUT(use)
    PUT(current) PUT(where) PUT(alloc) PUT(free) PUT(host_alloc) PUT(host_free) PUT(stream_make)
        PUT(stream_drop) PUT(stream_captures) PUT(event_make) PUT(event_drop) PUT(record) PUT(wait)
            PUT(query) PUT(copy) PUT(nccl_poll) PUT(nccl_call) PUT(nccl_close)
                PUT(nccl_abort) return &ops;
}

/* ---- the child ---- */

#define REFUSED(call)                                                                              \
    do {                                                                                           \
        CHECK_STATUS(call, TUTTI_ERR_SHUTDOWN);                                                    \
        CHECK_WORDS("forked");                                                                     \
    } while (0)

static void in_child(rank_t *self, float *x, tutti_comm_t *part, tutti_request_t *pending,
                     struct CUstream_st *stream)
{
    tutti_request_t *request = pending;
    tutti_call_t call = ranks_sum(NULL, x, COUNT);
    tutti_comm_t *comm = self->comm;
    int done;

    REFUSED(tutti_allreduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm));
    REFUSED(tutti_allreduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, part));
    REFUSED(tutti_scan(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm));
    REFUSED(tutti_send(x, 1, TUTTI_FLOAT32, 0, comm));
    REFUSED(tutti_cuda_allreduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm, stream));
    REFUSED(tutti_cuda_run(&call, comm, stream));
    call.name = "child";
    REFUSED(tutti_submit(&call, 1, comm, &request));
    REFUSED(tutti_cuda_submit(&call, 1, comm, stream, &request));
    REFUSED(tutti_persistent_create(&call, comm, &request));
    REFUSED(tutti_test(pending, &done));
    REFUSED(tutti_wait(pending, -1));
    REFUSED(tutti_cuda_wait(pending, -1, stream));
    REFUSED(tutti_comm_split(comm, 0, 0, &part));
    REFUSED(tutti_comm_free(part));
    REFUSED(tutti_abort(comm, "child"));
    REFUSED(tutti_barrier(comm));
    CHECK_INT(tutti_cuda_device(comm), self->rank);
    CHECK_INT(tutti_rank(comm), self->rank);
}

static void end_child(int round)
{
    if (round == 0)
        _exit(0);
    if (round == 1)
        execlp("true", "true", (char *)NULL);
    if (round == 2) /* if the child had a thread of the library, it would use the device now */
        usleep(100000);
    exit(0);
}

/* ---- the parent ---- */

typedef struct {
    rank_t *self;
    tutti_comm_t *part;
    float *x;
} caller_t;

/* Another thread makes calls on the group all the time. */
static void *call_always(void *arg)
{
    const caller_t *caller = arg;
    float one = 1;

    real->use(caller->self->rank);
    for (int i = 0; i < 40; i++) {
        pretend_write(caller->x, &one, sizeof(one));
        CHECK_OK(tutti_allreduce(caller->x, caller->x, 1, TUTTI_FLOAT32, TUTTI_SUM, caller->part));
        pretend_read(&one, caller->x, sizeof(one));
        CHECK(one == (float)caller->self->size);
        one = 1;
    }
    return NULL;
}

static void fork_one(rank_t *self, float *x, tutti_comm_t *part, tutti_request_t *pending,
                     tutti__dstream_t *stream, int round)
{
    int result;
    pid_t pid;

    pid = ranks_fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        in_child(self, x, part, pending, (struct CUstream_st *)(void *)stream);
        end_child(round);
    }
    CHECK_INT(waitpid(pid, &result, 0), pid);
    CHECK_INT(result, 0);
}

static void forks(rank_t *self)
{
    tutti__dstream_t *stream;
    tutti_request_t *pending;
    float got, one = 1, *x;
    tutti_comm_t *part;
    device_job_t job;
    pthread_t thread;

    device_begin(&job, self, 4 * COUNT * sizeof(float));
    x = (float *)(void *)job.memory;
    CHECK_OK(real->stream_make(0, &stream));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    for (int round = 0; round < ROUNDS; round++) {
        caller_t caller = { self, part, x + 2 * COUNT };

        pretend_delays((unsigned)round, 500);
        CHECK_INT(pthread_create(&thread, NULL, call_always, &caller), 0);
        for (int i = 0; i < 3; i++) {
            pretend_write(x, &one, sizeof(one));
            CHECK_OK(tutti_allreduce_async("over a fork", x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM,
                                           self->comm, NULL, &pending));
            fork_one(self, x, part, pending, stream, round);
            CHECK_OK(tutti_wait(pending, -1));
            pretend_read(&got, x, sizeof(got));
            CHECK(got == (float)self->size);
        }
        CHECK_INT(pthread_join(thread, NULL), 0);
    }
    CHECK_INT(atomic_load(&board->wrong), 0);
    CHECK_OK(tutti_comm_free(part));
    real->stream_drop(stream);
    device_end(&job);
}

static void settings(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    atomic_store(&board->parents[rank], getpid());
}

/* Fork a rank that uses the default world. The child may try to end the world, or to start it
   again. */
static int world(void)
{
    int result = 1;
    pid_t pid;

    setenv("TUTTI_DEVICE", "pretend", 1);
    atomic_store(&board->parents[0], getpid());
    if (pretend_prepare(1) != 0 || tutti_init(NULL) != TUTTI_OK ||
        tutti_cuda_device(tutti_world()) < 0)
        return 1;
    pid = ranks_fork();
    if (pid == 0) {
        int failed = tutti_init(NULL) != TUTTI_ERR_SHUTDOWN;

        failed += tutti_barrier(tutti_world()) != TUTTI_ERR_SHUTDOWN;
        tutti_finalize();
        exit(failed);
    }
    if (pid < 0 || waitpid(pid, &result, 0) != pid || tutti_barrier(tutti_world()) != TUTTI_OK)
        return 1;
    tutti_finalize();
    return result != 0 || atomic_load(&board->wrong) != 0 || pretend_reset() != 0;
}

int main(void)
{
    job_t job = { .size = RANKS, .fn = forks, .settings = settings };
    int failures = pretend_prepare(RANKS) != 0;

    if (!ranks_can_fork())
        return 77;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    tutti__module_lend_device(seeing_device());
    RUN_JOB(failures, &job);
    job.hosts = "aab";
    failures += pretend_prepare(RANKS) != 0;
    RUN_JOB(failures, &job);
    (void)pretend_reset();
    if (world() != 0) {
        fprintf(stderr, "FAILED: the world; %d calls from children\n", atomic_load(&board->wrong));
        failures++;
    }
    return failures != 0;
}
