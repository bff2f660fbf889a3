/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Invalid handles, which were freed or have never been valid. In a world of one rank, every public
 * function is called with every kind of invalid handle, and must return an error.
 */
#include "api/api.h"

#include <tutti/cuda.h>

#include <stdio.h>
#include <stdlib.h>

enum {
    N = 4,
    REUSES = 70000 /* more than 2^16 */
};

static float x[N], y[N];
static size_t counts[1] = { 1 };
static tutti_request_t *never = (tutti_request_t *)(void *)x; /* must not change */

#define F TUTTI_FLOAT32
#define CALL(name, expression)                                                                     \
    static tutti_status_t call_##name(tutti_comm_t *c)                                             \
    {                                                                                              \
        return (expression);                                                                       \
    }

static tutti_call_t a_call(void)
{
    tutti_call_t call = TUTTI_CALL_INIT;

    call.kind = TUTTI_CALL_ALLREDUCE;
    call.dtype = F;
    call.op = TUTTI_SUM;
    call.sendbuf = call.recvbuf = x;
    call.count = 1;
    return call;
}

static tutti_status_t submit(tutti_comm_t *c, int how)
{
    tutti_call_t call = a_call();

    if (how != 0)
        call.name = "n";
    if (how == 0)
        return tutti_cuda_run(&call, c, NULL);
    if (how == 1)
        return tutti_cuda_submit(&call, 1, c, NULL, &never);
    return how == 2 ? tutti_submit(&call, 1, c, &never) : tutti_persistent_create(&call, c, &never);
}

/* ---- functions of a communicator that return a status ---- */

static int color_of_none = TUTTI_COLOR_NONE, the_rank;
static tutti_comm_t *no_comm;
static tutti_status_t state = TUTTI_ERR_INTERNAL; /* neither state nor the text may change */
static tutti_stats_t stats = TUTTI_STATS_INIT;
static tutti_stats_part_t stats_part = TUTTI_STATS_PART_INIT;
static char state_text[8] = "as is";
static void *no_memory;

CALL(tutti_abort, tutti_abort(c, "no"))
CALL(tutti_allgather, tutti_allgather(x, y, 1, F, c))
CALL(tutti_allgather_async, tutti_allgather_async("n", x, y, 1, F, c, NULL, &never))
CALL(tutti_allgatherv, tutti_allgatherv(x, 1, y, counts, NULL, F, c))
CALL(tutti_allgatherv_async, tutti_allgatherv_async("n", x, 1, y, counts, NULL, F, c, NULL, &never))
CALL(tutti_allreduce, tutti_allreduce(x, y, 1, F, TUTTI_SUM, c))
CALL(tutti_allreduce_async, tutti_allreduce_async("n", x, y, 1, F, TUTTI_SUM, c, NULL, &never))
CALL(tutti_allreduce_scaled, tutti_allreduce_scaled(x, y, 1, F, TUTTI_SUM, 2, 1, c))
CALL(tutti_alltoall, tutti_alltoall(x, y, 1, F, c))
CALL(tutti_alltoall_async, tutti_alltoall_async("n", x, y, 1, F, c, NULL, &never))
CALL(tutti_alltoallv, tutti_alltoallv(x, counts, NULL, y, counts, NULL, F, c))
CALL(tutti_alltoallv_async,
     tutti_alltoallv_async("n", x, counts, NULL, y, counts, NULL, F, c, NULL, &never))
CALL(tutti_barrier, tutti_barrier(c))
CALL(tutti_barrier_async, tutti_barrier_async("n", c, NULL, &never))
CALL(tutti_broadcast, tutti_broadcast(x, 1, F, 0, c))
CALL(tutti_broadcast_async, tutti_broadcast_async("n", x, 1, F, 0, c, NULL, &never))
CALL(tutti_comm_create, tutti_comm_create(c, &the_rank, 1, &no_comm))
CALL(tutti_comm_free, tutti_comm_free(c))
CALL(tutti_comm_get_stats, tutti_comm_get_stats(c, &stats))
CALL(tutti_comm_get_stats_part, tutti_comm_get_stats_part(c, 0, &stats_part))
CALL(tutti_comm_state, tutti_comm_state(c, &state, state_text, sizeof(state_text)))
CALL(tutti_comm_split, tutti_comm_split(c, color_of_none, 0, &no_comm))
CALL(tutti_cuda_allreduce, tutti_cuda_allreduce(x, y, 1, F, TUTTI_SUM, c, NULL))
CALL(tutti_cuda_run, submit(c, 0))
CALL(tutti_cuda_submit, submit(c, 1))
CALL(tutti_exscan, tutti_exscan(x, y, 1, F, TUTTI_SUM, c))
CALL(tutti_exscan_async, tutti_exscan_async("n", x, y, 1, F, TUTTI_SUM, c, NULL, &never))
CALL(tutti_gather, tutti_gather(x, y, 1, F, 0, c))
CALL(tutti_gather_async, tutti_gather_async("n", x, y, 1, F, 0, c, NULL, &never))
CALL(tutti_gatherv, tutti_gatherv(x, 1, y, counts, NULL, F, 0, c))
CALL(tutti_gatherv_async, tutti_gatherv_async("n", x, 1, y, counts, NULL, F, 0, c, NULL, &never))
CALL(tutti_join, tutti_join(c, NULL))
CALL(tutti_mem_alloc, tutti_mem_alloc(c, 1, &no_memory))
CALL(tutti_mem_alloc_local, tutti_mem_alloc_local(c, 1, &no_memory))
CALL(tutti_mem_free, tutti_mem_free(c, NULL))
CALL(tutti_mem_register, tutti_mem_register(c, NULL, 0))
CALL(tutti_persistent_create, submit(c, 3))
CALL(tutti_recv, tutti_recv(x, 1, F, 0, c))
CALL(tutti_recv_async, tutti_recv_async("n", x, 1, F, 0, c, NULL, &never))
CALL(tutti_reduce, tutti_reduce(x, y, 1, F, TUTTI_SUM, 0, c))
CALL(tutti_reduce_async, tutti_reduce_async("n", x, y, 1, F, TUTTI_SUM, 0, c, NULL, &never))
CALL(tutti_reduce_scatter, tutti_reduce_scatter(x, y, 1, F, TUTTI_SUM, c))
CALL(tutti_reduce_scatter_async,
     tutti_reduce_scatter_async("n", x, y, 1, F, TUTTI_SUM, c, NULL, &never))
CALL(tutti_reduce_scatterv, tutti_reduce_scatterv(x, y, counts, F, TUTTI_SUM, c))
CALL(tutti_reduce_scatterv_async,
     tutti_reduce_scatterv_async("n", x, y, counts, F, TUTTI_SUM, c, NULL, &never))
CALL(tutti_scan, tutti_scan(x, y, 1, F, TUTTI_SUM, c))
CALL(tutti_scan_async, tutti_scan_async("n", x, y, 1, F, TUTTI_SUM, c, NULL, &never))
CALL(tutti_scatter, tutti_scatter(x, y, 1, F, 0, c))
CALL(tutti_scatter_async, tutti_scatter_async("n", x, y, 1, F, 0, c, NULL, &never))
CALL(tutti_scatterv, tutti_scatterv(x, counts, NULL, y, 1, F, 0, c))
CALL(tutti_scatterv_async, tutti_scatterv_async("n", x, counts, NULL, y, 1, F, 0, c, NULL, &never))
CALL(tutti_send, tutti_send(x, 1, F, 0, c))
CALL(tutti_send_async, tutti_send_async("n", x, 1, F, 0, c, NULL, &never))
CALL(tutti_sendrecv, tutti_sendrecv(x, 1, 0, y, 1, 0, F, c))
CALL(tutti_sendrecv_async, tutti_sendrecv_async("n", x, 1, 0, y, 1, 0, F, c, NULL, &never))
CALL(tutti_submit, submit(c, 2))

/* ---- functions of a communicator without a status ---- */

static tutti_status_t none(int answer)
{
    CHECK_INT(answer, -1);
    return TUTTI_ERR_INVALID_ARGUMENT;
}

CALL(tutti_cuda_device, none(tutti_cuda_device(c)))
CALL(tutti_host_count, none(tutti_host_count(c)))
CALL(tutti_host_rank, none(tutti_host_rank(c)))
CALL(tutti_local_rank, none(tutti_local_rank(c)))
CALL(tutti_local_size, none(tutti_local_size(c)))
CALL(tutti_rank, none(tutti_rank(c)))
CALL(tutti_size, none(tutti_size(c)))

/* ---- functions of a request ---- */

static int done = 7;
static size_t which = 7;

static tutti_status_t in_list(tutti_request_t *r, int all)
{
    tutti_request_t *list[3] = { NULL, r, NULL };
    tutti_status_t status = all ? tutti_wait_all(list, 3, -1) : tutti_wait_any(list, 3, -1, &which);

    CHECK(list[0] == NULL && list[1] == r && list[2] == NULL);
    return status;
}

/* The function is cast to the same type as the others. */
#define REQUEST(name, expression)                                                                  \
    static tutti_status_t call_##name(tutti_comm_t *c)                                             \
    {                                                                                              \
        tutti_request_t *r = (tutti_request_t *)(void *)c;                                         \
                                                                                                   \
        return (expression);                                                                       \
    }

REQUEST(tutti_cuda_wait, tutti_cuda_wait(r, -1, NULL))
REQUEST(tutti_request_free, tutti_request_free(r))
REQUEST(tutti_request_receive, tutti_request_receive(r, y, NULL))
REQUEST(tutti_request_recvcounts, tutti_request_recvcounts(r, -1, counts))
REQUEST(tutti_start, tutti_start(r))
REQUEST(tutti_start_all, tutti_start_all(&r, 1))
REQUEST(tutti_request_set_buffers, tutti_request_set_buffers(r, &x, &x))
REQUEST(tutti_test, tutti_test(r, &done))
REQUEST(tutti_wait, tutti_wait(r, -1))
REQUEST(tutti_wait_all, in_list(r, 1))
REQUEST(tutti_wait_any, in_list(r, 0))

/* ---- all functions ---- */

typedef struct {
    const char *name;
    enum {
        NOTHING,
        COMM,
        NUMBER,
        A_REQUEST
    } takes;
    tutti_status_t (*call)(tutti_comm_t *handle);
} function_t;

#define C(name)                                                                                    \
    {                                                                                              \
#name, COMM, call_##name                                                                   \
    }
#define I(name)                                                                                    \
    {                                                                                              \
#name, NUMBER, call_##name                                                                 \
    }
#define R(name)                                                                                    \
    {                                                                                              \
#name, A_REQUEST, call_##name                                                              \
    }
#define O(name)                                                                                    \
    {                                                                                              \
#name, NOTHING, NULL                                                                       \
    }

/* clang-format off */
static const function_t functions[] = {
    C(tutti_abort), C(tutti_allgather), C(tutti_allgather_async), C(tutti_allgatherv),
    C(tutti_allgatherv_async), C(tutti_allreduce), C(tutti_allreduce_async),
    C(tutti_allreduce_scaled), C(tutti_alltoall), C(tutti_alltoall_async), C(tutti_alltoallv),
    C(tutti_alltoallv_async), C(tutti_barrier), C(tutti_barrier_async), C(tutti_broadcast),
    C(tutti_broadcast_async), C(tutti_comm_create), C(tutti_comm_free), C(tutti_comm_split),
    C(tutti_comm_get_stats), C(tutti_comm_get_stats_part), C(tutti_comm_state),
    C(tutti_cuda_allreduce), C(tutti_cuda_run), C(tutti_cuda_submit), C(tutti_exscan),
    C(tutti_exscan_async), C(tutti_gather), C(tutti_gather_async), C(tutti_gatherv),
    C(tutti_gatherv_async), C(tutti_join), C(tutti_mem_alloc), C(tutti_mem_alloc_local),
    C(tutti_mem_free), C(tutti_mem_register), C(tutti_persistent_create),
    C(tutti_recv), C(tutti_recv_async),
    C(tutti_reduce), C(tutti_reduce_async), C(tutti_reduce_scatter), C(tutti_reduce_scatter_async),
    C(tutti_reduce_scatterv), C(tutti_reduce_scatterv_async), C(tutti_scan), C(tutti_scan_async),
    C(tutti_scatter), C(tutti_scatter_async), C(tutti_scatterv), C(tutti_scatterv_async),
    C(tutti_send), C(tutti_send_async), C(tutti_sendrecv), C(tutti_sendrecv_async),
    C(tutti_submit),
    I(tutti_cuda_device), I(tutti_host_count), I(tutti_host_rank), I(tutti_local_rank),
    I(tutti_local_size), I(tutti_rank), I(tutti_size),
    R(tutti_cuda_wait), R(tutti_request_free), R(tutti_request_receive),
    R(tutti_request_recvcounts), R(tutti_request_set_buffers), R(tutti_start), R(tutti_start_all),
    R(tutti_test), R(tutti_wait), R(tutti_wait_all), R(tutti_wait_any),
    O(tutti_comm_connect), O(tutti_dtype_bytes), O(tutti_dtype_name), O(tutti_dump),
    O(tutti_finalize), O(tutti_init),
    O(tutti_last_error), O(tutti_log_set_callback), O(tutti_mem_free_local),
    O(tutti_mem_unregister),
    O(tutti_op_create), O(tutti_op_free), O(tutti_op_name), O(tutti_strerror),
    O(tutti_trace_start), O(tutti_trace_stop),
    O(tutti_unique_id_create), O(tutti_version),
    O(tutti_world),
};
/* clang-format on */

enum {
    FUNCTIONS = sizeof(functions) / sizeof(functions[0])
};

/* Every exported function is in the table, except tutti__info, which is private. */
static void table_is_complete(void)
{
    const char *srcdir = getenv("srcdir");
    char path[4096], line[256], name[64];
    FILE *map;

    snprintf(path, sizeof(path), "%s/lib/libtutti.map", srcdir != NULL ? srcdir : ".");
    map = fopen(path, "r");
    if (map == NULL)
        return; /* the test was started by hand in another folder */
    while (fgets(line, sizeof(line), map) != NULL) {
        int at = 0;

        if (sscanf(line, " tutti_%50[a-z0-9_];", name) != 1 || name[0] == '_')
            continue;
        while (at < FUNCTIONS && strcmp(functions[at].name + strlen("tutti_"), name) != 0)
            at++;
        if (at == FUNCTIONS)
            FAIL("tutti_%s is not in the table of this test", name);
    }
    fclose(map);
}

/* Check that no function accepts this pointer as a communicator, or as a request. */
static void refused(const void *handle, int as_request, const char *words)
{
    for (int i = 0; i < FUNCTIONS; i++) {
        const function_t *f = &functions[i];
        tutti_status_t status;

        if (f->takes == NOTHING || (f->takes == A_REQUEST) != as_request)
            continue;
        status = f->call((tutti_comm_t *)(uintptr_t)handle);
        if (status != TUTTI_ERR_INVALID_ARGUMENT)
            FAIL("%s(%p): %s", f->name, handle, tutti_strerror(status));
        if (f->takes != NUMBER && strstr(tutti_last_error(), words) == NULL)
            FAIL("%s: '%s' does not say '%s'", f->name, tutti_last_error(), words);
        CHECK(never == (tutti_request_t *)(void *)x && no_comm == NULL && no_memory == NULL);
        CHECK(done == 7 && which == 7);
        CHECK(state == TUTTI_ERR_INTERNAL && strcmp(state_text, "as is") == 0);
    }
}

/* Pointers that were never handles. */
static void garbage(tutti_comm_t *world)
{
    char *mine = malloc(64);
    tutti_request_t *request;

    CHECK(mine != NULL);
    memset(mine, 0xff, 64);
    for (int as_request = 0; as_request < 2; as_request++) {
        const char *words = as_request ? "is no request" : "is no communicator";

        refused((void *)(uintptr_t)0x1234, as_request, words);
        refused((void *)(uintptr_t)1, as_request, words);
        refused((void *)(uintptr_t)4097, as_request, words);
        refused((void *)UINTPTR_MAX, as_request, words);
        refused((void *)(UINTPTR_MAX << 32), as_request, words);
        refused(mine, as_request, words);
        refused(&world, as_request, words);
    }
    CHECK_OK(tutti_barrier_async("b", world, NULL, &request));
    refused(request, 0, "comm is a request, not a communicator");
    refused(world, 1, "request is a communicator, not a request");
    CHECK_OK(tutti_wait(request, -1));
    /* Values that are close to valid handles: other generations and indices. */
    refused((void *)((uintptr_t)world + 1), 0, "");
    refused((void *)((uintptr_t)world + 100000), 0, "");
    refused((void *)((uintptr_t)world ^ (uintptr_t)1 << 32), 0, "");
    refused((void *)~(uintptr_t)world, 0, "");
    refused((void *)~(uintptr_t)request, 1, "");
    free(mine);
}

static void comms(tutti_comm_t *world)
{
    tutti_comm_t *part, *next;

    CHECK_OK(tutti_comm_split(world, 0, 0, &part));
    CHECK_OK(tutti_barrier(part));
    CHECK_OK(tutti_comm_free(part));
    refused(part, 0, "comm is a communicator that was freed");
    /* Another object has the slot of the freed object. */
    CHECK_OK(tutti_comm_split(world, 0, 0, &next));
    CHECK(next != part);
    refused(part, 0, "comm is a communicator that was freed");
    CHECK_OK(tutti_barrier(next));
    CHECK_OK(tutti_comm_free(next));
    CHECK_ERROR(tutti_comm_free(next), TUTTI_ERR_INVALID_ARGUMENT, "was freed");
    CHECK_OK(tutti_barrier(world));
}

static tutti_request_t *start_one(tutti_comm_t *world, const char *name)
{
    tutti_request_t *request;

    CHECK_OK(tutti_allreduce_async(name, x, y, 1, F, TUTTI_SUM, world, NULL, &request));
    return request;
}

static void requests(tutti_comm_t *world)
{
    tutti_call_t call = a_call();
    tutti_request_t *request = start_one(world, "r"), *twice[2], *next;
    size_t index = 9;

    CHECK_OK(tutti_wait(request, -1));
    refused(request, 1, "request is a request that was freed");
    next = start_one(world, "r");
    CHECK(next != request);
    refused(request, 1, "request is a request that was freed");
    CHECK_OK(tutti_wait(next, 10000));
    /* A persistent request that is inactive, and then freed. */
    call.name = "p";
    CHECK_OK(tutti_persistent_create(&call, world, &request));
    CHECK_OK(tutti_start(request));
    CHECK_OK(tutti_wait(request, -1));
    CHECK_ERROR(tutti_wait(request, -1), TUTTI_ERR_INVALID_ARGUMENT, "not active");
    CHECK_OK(tutti_request_free(request));
    refused(request, 1, "request is a request that was freed");
    /* The same request is twice in one list. */
    twice[0] = twice[1] = start_one(world, "t");
    CHECK_ERROR(tutti_wait_all(twice, 2, -1), TUTTI_ERR_INVALID_ARGUMENT, "was freed");
    CHECK(twice[0] == NULL && twice[1] != NULL);
    twice[0] = twice[1] = start_one(world, "t");
    CHECK_OK(tutti_wait_any(twice, 2, -1, &index));
    CHECK(index < 2 && twice[index] == NULL);
    CHECK_ERROR(tutti_wait_any(twice, 2, -1, &index), TUTTI_ERR_INVALID_ARGUMENT, "was freed");
    /* A list with an invalid handle frees nothing. */
    twice[1] = start_one(world, "t");
    twice[0] = request;
    CHECK_ERROR(tutti_wait_any(twice, 2, -1, &index), TUTTI_ERR_INVALID_ARGUMENT, "was freed");
    CHECK_OK(tutti_wait(twice[1], -1));
}

/* An old handle does not become valid again, and no handle is returned twice. */
static int compare(const void *a, const void *b)
{
    uintptr_t left = (uintptr_t) * (void *const *)a, right = (uintptr_t) * (void *const *)b;

    return (left > right) - (left < right);
}

static void reuses(tutti_comm_t *world)
{
    tutti_request_t **all = malloc(REUSES * sizeof(*all));

    CHECK(all != NULL);
    for (int i = 0; i < REUSES; i++) {
        CHECK_OK(tutti_barrier_async("again", world, NULL, &all[i]));
        CHECK_OK(tutti_wait(all[i], -1));
        CHECK_STATUS(tutti_wait(all[0], -1), TUTTI_ERR_INVALID_ARGUMENT);
    }
    qsort(all, REUSES, sizeof(*all), compare);
    for (int i = 1; i < REUSES; i++)
        CHECK(all[i] != all[i - 1]);
    free(all);
}

int main(void)
{
    tutti_comm_t *world = NULL, *part = NULL;
    tutti_request_t *late = NULL;

    clean_environment();
    table_is_complete();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tutti_init(NULL));
        if (i > 0) {
            CHECK(tutti_world() != world);
            refused(world, 0, "comm is a communicator that was freed");
            refused(part, 0, "comm is a communicator that was freed");
            refused(late, 1, "request is a request that was freed");
        }
        world = tutti_world();
        garbage(world);
        comms(world);
        requests(world);
        CHECK_OK(tutti_comm_split(world, 0, 0, &part));
        late = start_one(world, "late");
        CHECK_OK(tutti_finalize());
        refused(world, 0, "comm is a communicator that was freed");
        refused(part, 0, "comm is a communicator that was freed");
        (void)tutti_wait(late, -1);
        refused(late, 1, "request is a request that was freed");
    }
    CHECK_OK(tutti_init(NULL));
    reuses(tutti_world());
    CHECK_OK(tutti_finalize());
    return 0;
}
