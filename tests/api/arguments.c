/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls every public function with invalid arguments, in a world of one. Checks the status, that
 * the text names the error, that outputs do not change, and that the communicator still works.
 */
#include "api/api.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

static float x[16], y[16];
static tutti_comm_t *world;

static const size_t all_bytes[] = { 0, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1, 8, 16, 8, 16 };

enum {
    PAGE = 65536, /* a multiple of each page size */
    TYPES = 19,
    OPS = 13
};

/* Does this type have this operation, according to the table in types.h? */
static int is_served(int t, int o)
{
    int is_pair = t >= TUTTI_FLOAT32_INT32, is_bool = t == TUTTI_BOOL;
    int is_float = t >= TUTTI_FLOAT16 && t <= TUTTI_FLOAT8_E5M2;

    if (o == TUTTI_MINLOC || o == TUTTI_MAXLOC || is_pair)
        return is_pair && (o == TUTTI_MINLOC || o == TUTTI_MAXLOC);
    if (is_bool)
        return o != TUTTI_AVG;
    return !is_float || o <= TUTTI_PROD;
}

static void keep_right(void *dst, const void *left, const void *right, size_t count,
                       tutti_dtype_t dtype, void *context)
{
    (void)left;
    (void)context;
    memmove(dst, right, count * tutti_dtype_bytes(dtype));
}

/* ---- texts ---- */

/* Each type and each operation has its own name. */
static void type_names(void)
{
    tutti_op_t op;

    CHECK(strcmp(tutti_dtype_name(TUTTI_FLOAT32), "float32") == 0);
    CHECK(strcmp(tutti_dtype_name(TUTTI_FLOAT8_E5M2), "float8_e5m2") == 0);
    CHECK(strcmp(tutti_op_name(TUTTI_SUM), "sum") == 0);
    CHECK(strcmp(tutti_op_name(TUTTI_MAXLOC), "maxloc") == 0);
    for (int a = 0; a <= TYPES + 1; a++) {
        int is_type = a >= 1 && a <= TYPES, is_op = a >= 1 && a <= OPS;

        CHECK_INT(strcmp(tutti_dtype_name((tutti_dtype_t)a), "unknown type") != 0, is_type);
        CHECK_INT(strcmp(tutti_op_name((tutti_op_t)a), "unknown operation") != 0, is_op);
        for (int b = 1; b < a && is_type; b++)
            CHECK(strcmp(tutti_dtype_name((tutti_dtype_t)a), tutti_dtype_name((tutti_dtype_t)b)) !=
                  0);
        for (int b = 1; b < a && is_op; b++)
            CHECK(strcmp(tutti_op_name((tutti_op_t)a), tutti_op_name((tutti_op_t)b)) != 0);
    }
    CHECK(strcmp(tutti_dtype_name((tutti_dtype_t)-1), "unknown type") == 0);
    CHECK(strcmp(tutti_op_name((tutti_op_t)-1), "unknown operation") == 0);
    CHECK_OK(tutti_op_create(keep_right, NULL, 1, &op));
    CHECK(strcmp(tutti_op_name(op), "user operation") == 0);
    /* All unknown operations have the same text, which is permanent. */
    CHECK(tutti_op_name(op) == tutti_op_name((tutti_op_t)((int)op + 1)));
    CHECK_OK(tutti_op_free(op));
}

static void texts(void)
{
#define TEXT(name, number, text)                                                                   \
    CHECK_INT(name, number);                                                                       \
    CHECK(strcmp(tutti_strerror(name), text) == 0);
    TUTTI_STATUS_LIST(TEXT)
#undef TEXT
    CHECK(strcmp(tutti_strerror((tutti_status_t)12), "unknown status") == 0);
    CHECK(strcmp(tutti_strerror((tutti_status_t)-1), "unknown status") == 0);
    CHECK_INT(tutti_version(), TUTTI_API_VERSION);
    for (int t = 0; t <= TYPES; t++)
        CHECK_INT(tutti_dtype_bytes((tutti_dtype_t)t), all_bytes[t]);
    CHECK_INT(tutti_dtype_bytes((tutti_dtype_t)(TYPES + 1)), 0);
    CHECK_INT(tutti_dtype_bytes((tutti_dtype_t)-1), 0);
    type_names();
}

/* Each thread has its own last error, which is "" at first. A successful call does not clear it. */
static void *other_thread(void *arg)
{
    CHECK(tutti_last_error()[0] == '\0');
    CHECK_ERROR(tutti_test(NULL, NULL), TUTTI_ERR_INVALID_ARGUMENT, "request");
    return arg;
}

static void last_error(void)
{
    pthread_t thread;

    CHECK_ERROR(tutti_barrier(NULL), TUTTI_ERR_INVALID_ARGUMENT, "comm is NULL");
    CHECK_OK(tutti_barrier(world));
    CHECK_INT(pthread_create(&thread, NULL, other_thread, NULL), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK(strstr(tutti_last_error(), "comm is NULL") != NULL);
}

/* ---- options ---- */

typedef struct {
    tutti_options_t known;
    char more[40];
} newer_t;

static void options(void)
{
    tutti_options_t o = TUTTI_OPTIONS_INIT;
    newer_t newer = { TUTTI_OPTIONS_INIT, { 0 } };

    /* The size is smaller than in the first version. */
    o.size = offsetof(tutti_options_t, mpi_comm) + sizeof(o.mpi_comm) - 1;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_ABI, "size");
    o.size = 0;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_ABI, "options->size is 0");
    o.size = offsetof(tutti_options_t, store);
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_ABI, "options->size is 32, which no version had");
    o.size = SIZE_MAX;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_ABI, "size");
    o = (tutti_options_t)TUTTI_OPTIONS_INIT;
    o.api_version = (TUTTI_VERSION_MAJOR + 1) << 16;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_ABI, "version");
    o = (tutti_options_t)TUTTI_OPTIONS_INIT;
    o.reserved = 1;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "reserved");
    newer.known.size = sizeof(newer);
    newer.more[39] = 1;
    CHECK_ERROR(tutti_init(&newer.known), TUTTI_ERR_ABI, "field");
    CHECK(tutti_world() == NULL);
    /* A newer program that uses no new field, and a program built with an older minor version, are
       accepted. */
    newer.more[39] = 0;
    CHECK_OK(tutti_init(&newer.known));
    CHECK_OK(tutti_finalize());
    o = (tutti_options_t)TUTTI_OPTIONS_INIT;
    o.size = offsetof(tutti_options_t, mpi_comm) + sizeof(o.mpi_comm);
    o.api_version = TUTTI_VERSION_MAJOR << 16;
    CHECK_OK(tutti_init(&o));
    CHECK_OK(tutti_finalize());
}

static void async_options(void)
{
    struct {
        tutti_async_options_t known;
        char more[8];
    } newer = { TUTTI_ASYNC_OPTIONS_INIT, { 0 } };
    tutti_async_options_t o = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *request = NULL;

    newer.known.size = sizeof(newer);
#define START(options)                                                                             \
    tutti_allreduce_async("t", x, x, 16, TUTTI_FLOAT32, TUTTI_SUM, world, options, &request)
    o.size = sizeof(o.size) - 1;
    CHECK_ERROR(START(&o), TUTTI_ERR_ABI, "size");
    o.size = SIZE_MAX;
    CHECK_ERROR(START(&o), TUTTI_ERR_ABI, "size");
    newer.more[7] = 1;
    CHECK_ERROR(START(&newer.known), TUTTI_ERR_ABI, "field");
    CHECK(request == NULL);
    newer.more[7] = 0;
    CHECK_OK(START(&newer.known));
    CHECK_OK(tutti_wait(request, -1));
    o.size = sizeof(o);
    o.priority = -1;
    CHECK_ERROR(START(&o), TUTTI_ERR_INVALID_ARGUMENT, "options->priority is -1");
    o.priority = 256;
    CHECK_ERROR(START(&o), TUTTI_ERR_INVALID_ARGUMENT, "options->priority is 256");
    o.priority = 255;
    CHECK_OK(START(&o));
    CHECK_OK(tutti_wait(request, -1));
#undef START
}

/* All calls of one array have the same size, which the library uses as the distance
   between them. */
static void call_sizes(void)
{
    struct {
        tutti_call_t known;
        char more[16];
    } newer[2] = { { TUTTI_CALL_INIT, { 0 } }, { TUTTI_CALL_INIT, { 0 } } };
    tutti_request_t *requests[2] = { NULL, NULL };

    for (int i = 0; i < 2; i++) {
        tutti_call_t *call = &newer[i].known;

        call->size = sizeof(newer[i]);
        call->kind = TUTTI_CALL_ALLREDUCE;
        call->dtype = TUTTI_FLOAT32;
        call->op = TUTTI_SUM;
        call->name = i == 0 ? "a" : "b";
        call->sendbuf = call->recvbuf = &x[i];
        call->count = 1;
    }
    CHECK_OK(tutti_submit(&newer[0].known, 2, world, requests));
    CHECK_OK(tutti_wait_all(requests, 2, -1));
    newer[1].known.size = sizeof(tutti_call_t);
    CHECK_ERROR(tutti_submit(&newer[0].known, 2, world, requests), TUTTI_ERR_ABI,
                "calls[1].size is 112, but calls[0].size is 128");
    newer[1].known.size = sizeof(newer[1]);
    newer[1].more[0] = 1;
    CHECK_ERROR(tutti_submit(&newer[0].known, 2, world, requests), TUTTI_ERR_ABI,
                "call->size is 128, and a field beyond the 112 bytes");
    newer[0].known.size = sizeof(tutti_call_t) - 1;
    CHECK_ERROR(tutti_submit(&newer[0].known, 1, world, requests), TUTTI_ERR_ABI,
                "call->size is 111, but the first version had 112");
    CHECK(requests[0] == NULL);
}

/* ---- outside of init and finalize ---- */

static void without_world(void)
{
    tutti_request_t *request;
    const size_t n[] = { 1 };
    void *ptr = x;

    CHECK(tutti_world() == NULL);
    CHECK_OK(tutti_finalize());
    CHECK_INT(tutti_rank(NULL), -1);
    CHECK_INT(tutti_size(NULL), -1);
    CHECK_INT(tutti_local_rank(NULL), -1);
    CHECK_INT(tutti_local_size(NULL), -1);
    CHECK_INT(tutti_host_rank(NULL), -1);
    CHECK_INT(tutti_host_count(NULL), -1);
#define NO_COMM(call) CHECK_ERROR(call, TUTTI_ERR_INVALID_ARGUMENT, "comm is NULL")
    NO_COMM(tutti_allreduce(x, y, 1, TUTTI_FLOAT32, TUTTI_SUM, NULL));
    NO_COMM(tutti_allreduce(NULL, NULL, 0, TUTTI_FLOAT32, TUTTI_SUM, NULL));
    NO_COMM(tutti_allgather(x, y, 1, TUTTI_FLOAT32, NULL));
    NO_COMM(tutti_broadcast(x, 1, TUTTI_FLOAT32, 0, NULL));
    NO_COMM(tutti_barrier(NULL));
    NO_COMM(tutti_allreduce_scaled(x, y, 1, TUTTI_FLOAT32, TUTTI_SUM, 1, 1, NULL));
    NO_COMM(tutti_reduce(x, y, 1, TUTTI_FLOAT32, TUTTI_SUM, 0, NULL));
    NO_COMM(tutti_reduce_scatter(x, y, 1, TUTTI_FLOAT32, TUTTI_SUM, NULL));
    NO_COMM(tutti_reduce_scatterv(x, y, n, TUTTI_FLOAT32, TUTTI_SUM, NULL));
    NO_COMM(tutti_allgatherv(x, 1, y, n, NULL, TUTTI_FLOAT32, NULL));
    NO_COMM(tutti_gather(x, y, 1, TUTTI_FLOAT32, 0, NULL));
    NO_COMM(tutti_gatherv(x, 1, y, n, NULL, TUTTI_FLOAT32, 0, NULL));
    NO_COMM(tutti_scatter(x, y, 1, TUTTI_FLOAT32, 0, NULL));
    NO_COMM(tutti_scatterv(x, n, NULL, y, 1, TUTTI_FLOAT32, 0, NULL));
    NO_COMM(tutti_alltoall(x, y, 1, TUTTI_FLOAT32, NULL));
    NO_COMM(tutti_alltoallv(x, n, NULL, y, n, NULL, TUTTI_FLOAT32, NULL));
    NO_COMM(tutti_scan(x, y, 1, TUTTI_FLOAT32, TUTTI_SUM, NULL));
    NO_COMM(tutti_exscan(x, y, 1, TUTTI_FLOAT32, TUTTI_SUM, NULL));
    NO_COMM(tutti_send(x, 1, TUTTI_FLOAT32, 0, NULL));
    NO_COMM(tutti_recv(x, 1, TUTTI_FLOAT32, 0, NULL));
    NO_COMM(tutti_sendrecv(x, 1, 0, y, 1, 0, TUTTI_FLOAT32, NULL));
    NO_COMM(tutti_abort(NULL, "x"));
    NO_COMM(tutti_mem_alloc(NULL, 1, &ptr));
    NO_COMM(tutti_mem_free(NULL, NULL));
    NO_COMM(tutti_allreduce_async("t", x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, NULL, NULL, &request));
#undef NO_COMM
    CHECK(ptr == (void *)x);
}

/* ---- calls ---- */

static void buffers_and_counts(void)
{
    tutti_request_t *request = NULL;

#define WRONG(call, words) CHECK_ERROR(call, TUTTI_ERR_INVALID_ARGUMENT, words)
    WRONG(tutti_allreduce(NULL, x, 1, TUTTI_FLOAT32, TUTTI_SUM, world), "NULL");
    WRONG(tutti_allreduce(x, NULL, 1, TUTTI_FLOAT32, TUTTI_SUM, world), "NULL");
    WRONG(tutti_allgather(NULL, x, 1, TUTTI_FLOAT32, world), "NULL");
    WRONG(tutti_allgather(x, NULL, 1, TUTTI_FLOAT32, world), "NULL");
    WRONG(tutti_broadcast(NULL, 1, TUTTI_FLOAT32, 0, world), "NULL");
    WRONG(tutti_allreduce(x, x, SIZE_MAX, TUTTI_FLOAT32, TUTTI_SUM, world), "count");
    WRONG(tutti_allreduce(x, x, SIZE_MAX / 4, TUTTI_FLOAT32, TUTTI_SUM, world), "count");
    WRONG(tutti_allgather(x, y, SIZE_MAX / 2, TUTTI_FLOAT64, world), "count");
    WRONG(tutti_broadcast(x, SIZE_MAX, TUTTI_UINT8, 0, world), "count");
    WRONG(tutti_broadcast(x, 1, TUTTI_FLOAT32, 1, world), "root 1");
    WRONG(tutti_broadcast(x, 1, TUTTI_FLOAT32, -1, world), "root -1");
    WRONG(tutti_broadcast(NULL, 0, TUTTI_FLOAT32, 7, world), "root 7");
    WRONG(tutti_allreduce(x, x + 1, 3, TUTTI_FLOAT32, TUTTI_SUM, world), "overlap");
    WRONG(tutti_allgather(x, x + 1, 3, TUTTI_FLOAT32, world), "overlap");
    WRONG(tutti_send(x, 1, TUTTI_FLOAT32, 0, world), "dest 0 is this rank itself");
    WRONG(tutti_recv(x, 1, TUTTI_FLOAT32, 0, world), "source 0 is this rank itself");
    WRONG(tutti_sendrecv(x, 1, 0, y, 1, 0, TUTTI_FLOAT32, world), "dest 0 is this rank itself");
    WRONG(tutti_mem_alloc(world, 1, NULL), "ret_ptr");
    WRONG(tutti_mem_free(world, x), "allocated");
#define START(name, send, recv, count, ret)                                                        \
    tutti_allreduce_async(name, send, recv, count, TUTTI_FLOAT32, TUTTI_SUM, world, NULL, ret)
    WRONG(START("call 1 without a name", x, x, 1, &request), "name");
    WRONG(START("", x, x, 1, &request), "name");
    WRONG(START("t", NULL, x, 1, &request), "NULL");
    WRONG(START("t", x, NULL, 1, &request), "NULL");
    WRONG(START("t", x, x, 1, NULL), "ret_request");
    WRONG(START("t", x, x, SIZE_MAX, &request), "count");
    WRONG(tutti_wait(NULL, -1), "request");
    WRONG(tutti_wait(NULL, 0), "request");
    CHECK(request == NULL);
    /* Without elements, NULL buffers are valid. */
    CHECK_OK(tutti_allreduce(NULL, NULL, 0, TUTTI_FLOAT32, TUTTI_SUM, world));
    CHECK_OK(tutti_allgather(NULL, NULL, 0, TUTTI_FLOAT32, world));
    CHECK_OK(tutti_broadcast(NULL, 0, TUTTI_FLOAT32, 0, world));
    CHECK_OK(START("nothing", NULL, NULL, 0, &request));
    WRONG(tutti_test(request, NULL), "ret_done");
    CHECK_OK(tutti_wait(request, -1));
#undef WRONG
}

/* Memory from tutti_mem_alloc_local can be freed only by tutti_mem_free_local. */
static void local_memory(void)
{
    void *ptr = NULL;

    CHECK_OK(tutti_mem_alloc_local(world, 1, &ptr));
    CHECK_ERROR(tutti_mem_free(world, ptr), TUTTI_ERR_INVALID_ARGUMENT, "tutti_mem_free_local");
    CHECK_ERROR(tutti_mem_unregister(ptr), TUTTI_ERR_INVALID_ARGUMENT, "tutti_mem_register");
    CHECK_ERROR(tutti_mem_register(world, ptr, PAGE), TUTTI_ERR_UNSUPPORTED, "is shared");
    CHECK_OK(tutti_mem_free_local(ptr));
}

/* Registered memory can only be unregistered, not freed by the library. */
static void registered_memory(void)
{
    char *ptr = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(ptr != MAP_FAILED);
    CHECK_ERROR(tutti_mem_register(world, NULL, PAGE), TUTTI_ERR_INVALID_ARGUMENT, "ptr is NULL");
    CHECK_ERROR(tutti_mem_register(world, ptr, 5), TUTTI_ERR_UNSUPPORTED, "whole pages");
    CHECK_OK(tutti_mem_register(world, NULL, 0));
    CHECK_OK(tutti_mem_unregister(NULL));
    CHECK_OK(tutti_mem_register(world, ptr, PAGE));
    CHECK_ERROR(tutti_mem_free(world, ptr), TUTTI_ERR_INVALID_ARGUMENT, "tutti_mem_unregister");
    CHECK_ERROR(tutti_mem_free_local(ptr), TUTTI_ERR_INVALID_ARGUMENT, "tutti_mem_alloc_local");
    CHECK_OK(tutti_mem_unregister(ptr));
    CHECK_ERROR(tutti_mem_unregister(ptr), TUTTI_ERR_INVALID_ARGUMENT, "unregistered before");
    munmap(ptr, PAGE);
}

/* 255 bytes are a valid name, 256 are not. */
static void names(void)
{
    tutti_request_t *request = NULL;
    char name[300];

    memset(name, 'n', sizeof(name));
    name[256] = '\0';
    CHECK_ERROR(START(name, x, x, 1, &request), TUTTI_ERR_INVALID_ARGUMENT, "255");
    CHECK(request == NULL);
    name[255] = '\0';
    CHECK_OK(START(name, x, x, 1, &request));
    /* The library has copied the name. */
    name[0] = 'o';
    CHECK_OK(tutti_wait(request, -1));
    CHECK_OK(START(name, x, x, 1, &request));
    CHECK_OK(tutti_wait(request, -1));
#undef START
}

/* Every type with every operation, and numbers beyond both lists. */
static void types_and_operations(void)
{
    for (int t = -1; t <= TYPES + 2; t++) {
        for (int o = -1; o <= OPS + 2; o++) {
            tutti_dtype_t dtype = (tutti_dtype_t)t;
            tutti_op_t op = (tutti_op_t)o;
            tutti_status_t want = TUTTI_ERR_INVALID_ARGUMENT, scan;
            tutti_request_t *request = NULL;
            static double z[4], u[4];

            if (t >= 1 && t <= TYPES && o >= 1 && o <= OPS)
                want = is_served(t, o) ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED;
            scan = want == TUTTI_OK && op == TUTTI_AVG ? TUTTI_ERR_UNSUPPORTED : want;
            CHECK_STATUS(tutti_allreduce(z, z, 2, dtype, op, world), want);
            CHECK_STATUS(tutti_allreduce(NULL, NULL, 0, dtype, op, world), want);
            CHECK_STATUS(tutti_reduce(z, u, 2, dtype, op, 0, world), want);
            CHECK_STATUS(tutti_reduce_scatter(z, u, 2, dtype, op, world), want);
            CHECK_STATUS(tutti_scan(z, u, 2, dtype, op, world), scan);
            CHECK_STATUS(tutti_exscan(z, u, 2, dtype, op, world), scan);
            CHECK_STATUS(tutti_allreduce_async("z", z, z, 2, dtype, op, world, NULL, &request),
                         want);
            CHECK((request == NULL) == (want != TUTTI_OK));
            if (request != NULL)
                CHECK_OK(tutti_wait(request, -1));
        }
    }
    for (int t = -1; t <= TYPES + 2; t++) {
        tutti_dtype_t dtype = (tutti_dtype_t)t;
        tutti_status_t want = t >= 1 && t <= TYPES ? TUTTI_OK : TUTTI_ERR_INVALID_ARGUMENT;

        CHECK_STATUS(tutti_broadcast(x, 1, dtype, 0, world), want);
        CHECK_STATUS(tutti_allgather(x, y, 1, dtype, world), want);
        CHECK_STATUS(tutti_alltoall(NULL, NULL, 0, dtype, world), want);
    }
}

/* Only floating point types can be scaled. */
static void scaling(void)
{
    for (int t = 1; t <= TYPES; t++) {
        static char z[32];
        int is_float = t >= TUTTI_FLOAT16 && t <= TUTTI_FLOAT8_E5M2;
        tutti_op_t op = t > TUTTI_BOOL ? TUTTI_MINLOC : TUTTI_MAX;

        CHECK_STATUS(tutti_allreduce_scaled(z, z, 2, (tutti_dtype_t)t, op, 1, 1, world),
                     is_float ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED);
        CHECK_STATUS(tutti_allreduce_scaled(z, z, 2, (tutti_dtype_t)t, op, 2, 0.5, world),
                     is_float ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED);
    }
    x[0] = 3;
    CHECK_OK(tutti_allreduce_scaled(x, y, 1, TUTTI_FLOAT32, TUTTI_SUM, 2, 5, world));
    CHECK(x[0] == 3 && y[0] == 30);
    /* A factor of 0 means 1. */
    CHECK_OK(tutti_allreduce_scaled(x, y, 1, TUTTI_FLOAT32, TUTTI_SUM, 0, 5, world));
    CHECK(y[0] == 15);
    CHECK_OK(tutti_allreduce_scaled(x, y, 1, TUTTI_FLOAT32, TUTTI_SUM, 2, -0.0, world));
    CHECK(y[0] == 6);
    CHECK_OK(tutti_allreduce_scaled(x, y, 1, TUTTI_FLOAT32, TUTTI_SUM, 0, 0, world));
    CHECK(y[0] == 3);
}

/* ---- the caller's own operations ---- */

static void user_operations(void)
{
    tutti_op_t op = (tutti_op_t)0;

    CHECK_STATUS(tutti_op_create(NULL, NULL, 1, &op), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_op_create(keep_right, NULL, 1, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_INT(op, 0);
    CHECK_OK(tutti_op_create(keep_right, NULL, 0, &op));
    CHECK(op > TUTTI_MAXLOC);
    for (int t = 1; t <= TYPES; t++) {
        CHECK_OK(tutti_allreduce(x, y, 1, (tutti_dtype_t)t, op, world));
        CHECK_OK(tutti_scan(x, y, 1, (tutti_dtype_t)t, op, world));
    }
    CHECK_STATUS(tutti_allreduce(x, y, 1, (tutti_dtype_t)0, op, world), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_op_free(op));
    CHECK_ERROR(tutti_allreduce(x, y, 1, TUTTI_INT8, op, world), TUTTI_ERR_INVALID_ARGUMENT, "op");
    CHECK_STATUS(tutti_op_free(op), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_op_free(TUTTI_SUM), TUTTI_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    clean_environment();
    texts();
    without_world();
    options();
    CHECK_OK(tutti_init(NULL));
    world = tutti_world();
    last_error();
    async_options();
    call_sizes();
    buffers_and_counts();
    local_memory();
    registered_memory();
    names();
    types_and_operations();
    scaling();
    user_operations();
    CHECK_OK(tutti_barrier(world));
    CHECK_OK(tutti_finalize());
    without_world();
    return 0;
}
