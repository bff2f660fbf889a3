/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trainer's side of the collectives.
 *
 *     forward  |  backward                              |  wait  |  step
 *              |  layer 3     layer 2     layer 1       |        |
 *     ---------+----------------------------------------+--------+-------
 *     loss     =======>
 *     layer3/weight         =======>
 *     layer2/weight                     =======>
 *     layer1/weight                                     =======>
 *
 * Requests are matched by name, so ranks need not start them in the same order. Direct calls
 * (broadcast, allreduce, allgather, barrier) are made in the same order on all ranks.
 */
#include "train_parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls on device memory, in the order of a stream. Tests define TRAIN_NO_TUTTI_CUDA, because their
   devices are unknown to Tutti. */
#ifndef TRAIN_NO_TUTTI_CUDA
#include <dlfcn.h>
#include <tutti/cuda.h>
#endif

#include "train_device.h"
#include "train_interrupt.h"
#include "train_options.h"

/*
 * Keep Tutti's error text, which names the rank and the tensor.
 *
 * Only an interrupted rank leaves while the others still train. After any other failure, a rank
 * stays until all ranks have compared their errors (train_parallel_agree), or it calls tutti_abort.
 */
static bool fail_tutti(train_error_t *error, const char *what, tutti_status_t status)
{
    const char *reason = tutti_last_error();

    if (status == TUTTI_ERR_SHUTDOWN)
        return train_fail(error, TRAIN_INTERRUPTED);
    return train_fail(error, "%s: %s", what, reason[0] != '\0' ? reason : tutti_strerror(status));
}

/*
 * Make Tutti use the trainer's device. By default, Tutti uses a device only if CUDA is in the
 * process. If TUTTI_DEVICE names a device, a failure to use the device is an error. Without CUDA,
 * the trainer itself reports the error.
 */
static void ask_for_device(int64_t device)
{
#ifndef TRAIN_NO_TUTTI_CUDA
    const bool has_cuda =
        device != TRAIN_DEVICE_CPU && dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL;

    if (has_cuda && device == TRAIN_DEVICE_CUDA)
        setenv("TUTTI_DEVICE", "cuda", 0);
#else
    (void)device;
#endif
}

/*
 * Read the counters of hidden and exposed communication. These times are not measured on a device:
 * there a wait of the host only queues work, and the device waits. A single rank has no
 * communication.
 */
static train_overlap_t read_overlap(const train_parallel_t *parallel)
{
    tutti_stats_t stats = TUTTI_STATS_INIT;
    train_overlap_t overlap = { 0.0, 0.0 };

    if (parallel->size == 1 || parallel->compute->on_device ||
        tutti_comm_get_stats(parallel->world, &stats) != TUTTI_OK)
        return overlap;
    overlap.hidden_seconds = 1e-9 * (double)stats.hidden_ns;
    overlap.exposed_seconds = 1e-9 * (double)stats.exposed_ns;
    return overlap;
}

/* Add the times since the step's first request. */
static void add_overlap(train_parallel_t *parallel)
{
    const train_overlap_t end = read_overlap(parallel), *begin = &parallel->begin;

    parallel->overlap.hidden_seconds += end.hidden_seconds - begin->hidden_seconds;
    parallel->overlap.exposed_seconds += end.exposed_seconds - begin->exposed_seconds;
}

bool train_parallel_start(int64_t device, train_parallel_t *ret_parallel, train_error_t *error)
{
    train_parallel_t parallel = { .size = 1 };

    *ret_parallel = parallel;
    ask_for_device(device);
    setenv("TUTTI_STATS", "quiet", 0); /* measure times, for read_overlap */
    const tutti_status_t status = tutti_init(NULL);
    if (status != TUTTI_OK)
        return fail_tutti(error, "starting Tutti", status);

    parallel.world = tutti_world();
    parallel.rank = tutti_rank(parallel.world);
    parallel.size = tutti_size(parallel.world);
    parallel.local_rank = tutti_local_rank(parallel.world);
    parallel.hosts = tutti_host_count(parallel.world);
#ifndef TRAIN_NO_TUTTI_CUDA
    parallel.device = tutti_cuda_device(parallel.world);
#else
    parallel.device = parallel.local_rank;
#endif
    *ret_parallel = parallel;
    return true;
}

void train_parallel_stop(train_parallel_t *parallel)
{
    /* also frees the gradients */
    tutti_finalize();
    memset(parallel, 0, sizeof(*parallel));
}

train_part_t train_parallel_part(const train_parallel_t *parallel, size_t count)
{
    const size_t size = (size_t)parallel->size, rank = (size_t)parallel->rank;
    const size_t first = rank * count / size;
    const train_part_t part = { first, (rank + 1) * count / size - first };

    return part;
}

/* A rank's data in train_parallel_agree. */
typedef struct {
    train_error_t error;
    char shared[TRAIN_SHARED_BYTES];
    uint32_t data;
} report_t;

/* The bytes of the first line of a text. */
static int line_bytes(const char *text)
{
    return (int)strcspn(text, "\n");
}

/* Advance both texts to their first lines that differ, or to the end. */
static void find_difference(const char **a, const char **b)
{
    while (**a != '\0' && line_bytes(*a) == line_bytes(*b) &&
           memcmp(*a, *b, (size_t)line_bytes(*a)) == 0) {
        const size_t next = (size_t)line_bytes(*a) + 1;

        *a += next;
        *b += next;
    }
}

/* Print how the report of `rank` differs from rank 0's. */
static void print_difference(size_t rank, const report_t *report, const report_t *zero)
{
    const char *theirs = report->shared, *ours = zero->shared;

    find_difference(&theirs, &ours);
    if (*theirs == '\0' && *ours == '\0')
        fprintf(stderr, "example_train: rank %zu has other data than rank 0\n", rank);
    else
        fprintf(stderr,
                "example_train: rank %zu has other options than rank 0: %.*s instead of %.*s\n",
                rank, line_bytes(theirs), theirs, line_bytes(ours), ours);
}

/* Find errors in all ranks' reports. Prints this rank's error, unless a lower rank has the same
   error. */
static bool judge(const train_parallel_t *parallel, const report_t *reports)
{
    const size_t size = (size_t)parallel->size;
    const char *mine = reports[parallel->rank].error.text;
    int lowest = parallel->rank;
    size_t failed = 0, alike = 0;

    for (size_t i = size; i-- > 0;) {
        failed += reports[i].error.text[0] != '\0';
        if (strcmp(reports[i].error.text, mine) == 0) {
            alike++;
            lowest = (int)i;
        }
    }
    if (mine[0] != '\0' && lowest == parallel->rank) {
        if (alike == size)
            fprintf(stderr, "example_train: %s\n", mine);
        else
            fprintf(stderr, "example_train: rank %d: %s\n", parallel->rank, mine);
    }
    if (failed > 0)
        return false;

    for (size_t i = 1; i < size; i++) {
        if (strcmp(reports[i].shared, reports[0].shared) != 0 ||
            reports[i].data != reports[0].data) {
            if (parallel->rank == 0)
                print_difference(i, &reports[i], &reports[0]);
            return false;
        }
    }
    return true;
}

bool train_parallel_agree(const train_parallel_t *parallel, const char *shared, uint32_t data,
                          train_error_t *error)
{
    report_t mine = { .error = *error, .data = data };
    report_t *reports = malloc((size_t)parallel->size * sizeof(*reports));

    snprintf(mine.shared, sizeof(mine.shared), "%s", shared);
    if (reports == NULL) {
        train_fail(error, "not enough memory");
        tutti_abort(parallel->world, error->text);
        return false;
    }
    tutti_status_t status =
        tutti_allgather(&mine, reports, sizeof(mine), TUTTI_UINT8, parallel->world);
    bool agreed = false;
    if (status == TUTTI_OK) {
        agreed = judge(parallel, reports);
        error->text[0] = '\0';
        /* a launcher may kill all ranks when the first ends: wait until the line is printed */
        status = tutti_barrier(parallel->world);
    }
    free(reports);

    if (status != TUTTI_OK)
        return fail_tutti(error, "agreeing with the other ranks", status);
    return agreed;
}

bool train_parallel_share_model(train_parallel_t *parallel, train_model_t *model,
                                train_error_t *error)
{
    train_compute_t *compute = model->compute;
    const size_t bytes = model->parameter_count * sizeof(float);
    tutti_status_t status = TUTTI_OK;
    void *gradients = NULL;

    if (compute->on_device)
        gradients = compute->ops->alloc(compute, bytes);
    else
        status = tutti_mem_alloc(parallel->world, bytes, &gradients);
    if (status != TUTTI_OK)
        return fail_tutti(error, "allocating gradients", status);
    if (!train_compute_works(compute, error))
        return train_parallel_abort(parallel, error);
    train_model_place_gradients(model, gradients);
    parallel->compute = compute;
    parallel->gradients = gradients;

    status = tutti_broadcast(model->host_parameters, model->parameter_count, TUTTI_FLOAT32, 0,
                             parallel->world);
    if (status != TUTTI_OK)
        return fail_tutti(error, "sharing the parameters", status);
    return true;
}

bool train_parallel_share(const train_parallel_t *parallel, void *buffer, size_t bytes,
                          train_error_t *error)
{
    const tutti_status_t status = tutti_broadcast(buffer, bytes, TUTTI_UINT8, 0, parallel->world);

    if (status != TUTTI_OK)
        return fail_tutti(error, "sharing the state", status);
    return true;
}

bool train_parallel_abort(const train_parallel_t *parallel, const train_error_t *error)
{
    tutti_abort(parallel->world, error->text);
    return false;
}

/* Submit a call on device memory, behind the work that is in the backend's stream now. */
static tutti_status_t train_gpu_submit(const tutti_call_t *call, tutti_comm_t *comm,
                                       train_compute_t *compute, tutti_request_t **ret_request)
{
#ifndef TRAIN_NO_TUTTI_CUDA
    return tutti_cuda_submit(call, 1, comm, compute->device->stream, ret_request);
#else
    compute->ops->sync(compute);
    return tutti_allreduce_async(call->name, call->sendbuf, call->recvbuf, call->count, call->dtype,
                                 call->op, comm, NULL, ret_request);
#endif
}

/* On a device it suffices that the sum is queued: later work in the stream runs after it. */
static tutti_status_t wait_for(const train_parallel_t *parallel, tutti_request_t *request)
{
#ifndef TRAIN_NO_TUTTI_CUDA
    if (parallel->compute->on_device)
        return tutti_cuda_wait(request, -1, parallel->compute->device->stream);
#else
    (void)parallel;
#endif
    return tutti_wait(request, -1);
}

static tutti_status_t submit(train_parallel_t *parallel, const char *name, void *buffer,
                             size_t count, tutti_dtype_t dtype, tutti_request_t **ret_request)
{
    tutti_call_t call = TUTTI_CALL_INIT;

    if (!parallel->compute->on_device)
        return tutti_allreduce_async(name, buffer, buffer, count, dtype, TUTTI_SUM, parallel->world,
                                     NULL, ret_request);
    call.kind = TUTTI_CALL_ALLREDUCE;
    call.name = name;
    call.sendbuf = call.recvbuf = buffer;
    call.count = count;
    call.dtype = dtype;
    call.op = TUTTI_SUM;
    return train_gpu_submit(&call, parallel->world, parallel->compute, ret_request);
}

/* Start an allreduce in place: the sums of `count` elements over the ranks. After a failure, no
   more requests are started. */
static void reduce(train_parallel_t *parallel, const char *name, void *buffer, size_t count,
                   tutti_dtype_t dtype)
{
    if (parallel->start_error.text[0] != '\0')
        return;
    if (!train_compute_works(parallel->compute, &parallel->start_error)) {
        train_parallel_abort(parallel, &parallel->start_error);
        return;
    }
    if (parallel->request_count == 0)
        parallel->begin = read_overlap(parallel);

    const tutti_status_t status =
        submit(parallel, name, buffer, count, dtype, &parallel->requests[parallel->request_count]);
    if (status != TUTTI_OK) {
        fail_tutti(&parallel->start_error, name, status);
        /* without tutti_abort, the other ranks would wait for this tensor until their deadline,
           unless they have been told that a rank has left */
        if (status != TUTTI_ERR_SHUTDOWN)
            train_parallel_abort(parallel, &parallel->start_error);
        return;
    }
    parallel->request_count++;
    parallel->reductions++;
}

void train_parallel_reduce_loss(train_parallel_t *parallel, double *loss)
{
    reduce(parallel, "loss", loss, 1, TUTTI_FLOAT64);
}

void train_parallel_reduce_gradient(void *context, const train_tensor_t *tensor)
{
    reduce(context, tensor->name, tensor->gradient, tensor->count, TUTTI_FLOAT32);
}

bool train_parallel_wait(train_parallel_t *parallel, train_error_t *error)
{
    const double begin = train_seconds();
    bool done = true;

    if (parallel->start_error.text[0] != '\0')
        done = train_fail(error, "%s", parallel->start_error.text);

    /* also after a failure: only a wait frees a request */
    for (size_t i = 0; i < parallel->request_count; i++) {
        const tutti_status_t status = wait_for(parallel, parallel->requests[i]);

        if (status != TUTTI_OK)
            done = fail_tutti(error, "adding up gradients", status);
    }
    if (parallel->request_count > 0)
        add_overlap(parallel);
    parallel->request_count = 0;
    parallel->wait_seconds += train_seconds() - begin;
    return done;
}

bool train_parallel_sum(const train_parallel_t *parallel, double *values, size_t count,
                        train_error_t *error)
{
    const tutti_status_t status =
        tutti_allreduce(values, values, count, TUTTI_FLOAT64, TUTTI_SUM, parallel->world);

    if (status != TUTTI_OK)
        return fail_tutti(error, "adding up statistics", status);
    return true;
}

bool train_parallel_gather(const train_parallel_t *parallel, uint64_t value, uint64_t *ret_values,
                           train_error_t *error)
{
    const tutti_status_t status =
        tutti_allgather(&value, ret_values, sizeof(value), TUTTI_UINT8, parallel->world);

    if (status != TUTTI_OK)
        return fail_tutti(error, "gathering the digests", status);
    return true;
}
