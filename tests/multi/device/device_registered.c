/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory registered with NCCL. The same calls must use it on all ranks; otherwise the pretended
 * NCCL refuses them. Also communicators in which one rank, or all ranks, cannot register; and
 * deregistration before each communicator ends.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include <unistd.h>

enum {
    COUNT = 60,
    TENSORS = 4,
    ROOM = TENSORS * COUNT * MOST_RANKS * (int)sizeof(float)
};

typedef struct {
    device_job_t job;
    tutti_comm_t *comm;
    int is_registered; /* 1: this communicator's memory is registered */
} user_t;

static unsigned registered(const user_t *u)
{
    return pretend_counts(u->job.self->rank, PRETEND_REGISTERED);
}

static float *tensor(const user_t *u, int t)
{
    return (float *)(void *)u->job.memory + t * COUNT * MOST_RANKS;
}

static int is_root(const user_t *u)
{
    return u->job.self->rank == u->job.self->size - 1;
}

static tutti_call_t call_of(const user_t *u, tutti_call_kind_t kind, const char *name, int t)
{
    tutti_call_t call = TUTTI_CALL_INIT;

    call.kind = kind;
    call.name = name;
    call.dtype = TUTTI_FLOAT32;
    call.op = TUTTI_SUM;
    call.count = COUNT;
    if (kind == TUTTI_CALL_REDUCE || kind == TUTTI_CALL_BROADCAST)
        call.root = u->job.self->size - 1;
    call.sendbuf = call.recvbuf = tensor(u, t);
    return call;
}

/* Each rank's tensors are filled with its number plus 1. */
static void fill(const user_t *u)
{
    float host[ROOM / (int)sizeof(float)];

    for (size_t i = 0; i < sizeof(host) / sizeof(*host); i++)
        host[i] = (float)(u->job.self->rank + 1);
    pretend_write(u->job.memory, host, sizeof(host));
}

static void check(const user_t *u, int t, double want)
{
    float host[COUNT];

    pretend_read(host, tensor(u, t), sizeof(host));
    for (int i = 0; i < COUNT; i++)
        if (host[i] != (float)want)
            ranks_fail(__FILE__, __LINE__, "tensor %d, element %d: %g, wanted %g", t, i,
                       (double)host[i], want);
}

/* The sum over the ranks from `first` to the last. */
static double sum_from(const user_t *u, int first)
{
    int size = u->job.self->size;

    return (double)(size * (size + 1) - first * (first + 1)) / 2;
}

/* Several calls at once. goes_through: the calls are packed. So if NCCL executes them, they use
   registered memory; between hosts NCCL executes only an allreduce. */
static void run(const user_t *u, const tutti_call_t *calls, int n, int goes_through)
{
    int by_nccl = calls->kind == TUTTI_CALL_ALLREDUCE || ranks_inside(u->comm)->shape.nhosts == 1;
    tutti_request_t *requests[TENSORS];
    unsigned before = registered(u);

    fill(u);
    CHECK_OK(tutti_submit(calls, (size_t)n, u->comm, requests));
    for (int i = 0; i < n; i++)
        CHECK_OK(tutti_wait(requests[i], -1));
    CHECK_INT(registered(u) > before, goes_through && by_nccl && u->is_registered);
}

static void fused(const user_t *u)
{
    static const char *const names[TENSORS] = { "a", "b", "c", "d" };
    tutti_call_t calls[TENSORS];

    for (int t = 0; t < TENSORS; t++)
        calls[t] = call_of(u, TUTTI_CALL_ALLREDUCE, names[t], t);
    run(u, calls, TENSORS, 1);
    for (int t = 0; t < TENSORS; t++)
        check(u, t, sum_from(u, 0));
}

/* Plain tensors are served in place. */
static void single(const user_t *u)
{
    tutti_call_t call = call_of(u, TUTTI_CALL_ALLREDUCE, "single", 0);

    run(u, &call, 1, 0);
    check(u, 0, sum_from(u, 0));
}

/* The prescaled data and the result are in the lane's memory. */
static void scaled(const user_t *u)
{
    static const tutti_call_kind_t kinds[] = { TUTTI_CALL_REDUCE, TUTTI_CALL_REDUCE_SCATTER,
                                               TUTTI_CALL_ALLREDUCE };
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;

    options.prescale = 0.5;
    for (int k = 0; k < 3; k++) {
        tutti_call_t call = call_of(u, kinds[k], "scaled", 0);

        call.options = &options;
        call.recvbuf = tensor(u, 1);
        run(u, &call, 1, kinds[k] != TUTTI_CALL_ALLREDUCE);
        if (kinds[k] != TUTTI_CALL_REDUCE || is_root(u))
            check(u, 1, sum_from(u, 0) / 2);
    }
}

/* One rank after another joins. Then the single tensors of the other ranks are combined with the
   zero contributions of the joined ranks. */
static void joined(const user_t *u)
{
    static const tutti_call_kind_t kinds[] = { TUTTI_CALL_ALLREDUCE, TUTTI_CALL_REDUCE,
                                               TUTTI_CALL_REDUCE_SCATTER, TUTTI_CALL_BROADCAST };
    int last;

    for (int step = 1; step <= u->job.self->rank; step++)
        for (int k = 0; k < 4; k++) {
            tutti_call_t call = call_of(u, kinds[k], "joined", 0);

            if (kinds[k] == TUTTI_CALL_REDUCE_SCATTER)
                call.recvbuf = tensor(u, 1);
            if (kinds[k] == TUTTI_CALL_BROADCAST) {
                call.sendbuf = NULL;
                call.op = (tutti_op_t)0;
            }
            run(u, &call, 1, 1);
            if (kinds[k] == TUTTI_CALL_BROADCAST)
                check(u, 0, u->job.self->size);
            else if (kinds[k] != TUTTI_CALL_REDUCE || is_root(u))
                check(u, kinds[k] == TUTTI_CALL_REDUCE_SCATTER, sum_from(u, step));
        }
    CHECK_OK(tutti_join(u->comm, &last));
}

static void all_ways(const user_t *u)
{
    device_forbid_alloc(u->job.self, 1);
    fused(u);
    single(u);
    scaled(u);
    joined(u);
    fused(u);
    device_forbid_alloc(u->job.self, 0);
    CHECK_INT(pretend_counts(u->job.self->rank, PRETEND_MISREGISTERED), 0);
}

static void in_world_and_part(rank_t *self)
{
    user_t u = { .comm = self->comm, .is_registered = self->arg != NULL };

    device_begin(&u.job, self, ROOM);
    all_ways(&u);
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &u.comm));
    all_ways(&u);
    CHECK_OK(tutti_comm_free(u.comm));
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_INT(pretend_counts(self->rank, PRETEND_MISREGISTERED), 0);
    device_end(&u.job);
}

/* After an abort no memory is deregistered: NCCL has dropped all registrations. */
static void aborted(rank_t *self)
{
    user_t u = { .is_registered = 1 };
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *request;
    tutti_call_t call;

    device_begin(&u.job, self, ROOM);
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &u.comm));
    fused(&u);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_hang(0, 0);
    CHECK_OK(tutti_barrier(self->comm));
    call = call_of(&u, TUTTI_CALL_REDUCE, "hangs", 0);
    options.prescale = 2; /* so that the data are packed */
    call.options = &options;
    CHECK_OK(tutti_submit(&call, 1, u.comm, &request));
    usleep(10000);
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 1)
        (void)tutti_abort(u.comm, "enough");
    (void)tutti_wait(request, -1);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_free(u.comm));
    CHECK_INT(pretend_counts(self->rank, PRETEND_MISREGISTERED), 0);
    CHECK_OK(tutti_barrier(self->comm));
    device_end(&u.job);
}

/* refused: the device that cannot register; -1: all can. lacks: 1 if NCCL is too old. */
static int run_with(rank_fn_t fn, int size, const char *hosts, int refused, int lacks)
{
    int failures = 0, yes = 1;

    for (int threads = 0; threads < 2; threads++) {
        job_t job = { .size = size, .hosts = hosts, .threads = threads, .fn = fn };

        if (!threads && !ranks_can_fork())
            continue;
        job.arg = refused < 0 && !lacks ? &yes : NULL;
        pretend_refuse_register(refused);
        pretend_lack_register(lacks);
        if (device_run_job(&job) == 0)
            continue;
        fprintf(stderr, "FAILED: device %d refuses, NCCL is old: %d\n", refused, lacks);
        failures++;
    }
    return failures;
}

int main(void)
{
    int failures = 0;

    failures += run_with(in_world_and_part, 1, NULL, -1, 0);
    failures += run_with(in_world_and_part, 3, NULL, -1, 0);
    failures += run_with(in_world_and_part, 4, "aabb", -1, 0);
    failures += run_with(in_world_and_part, 3, NULL, 1, 0);
    failures += run_with(in_world_and_part, 3, "aab", 2, 0);
    failures += run_with(in_world_and_part, 3, NULL, -1, 1);
    failures += run_with(aborted, 3, NULL, -1, 0);
    return failures != 0;
}
