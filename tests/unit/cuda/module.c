/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens the CUDA module as the core does, for module.sh. `module FILE open` prints the result as
 * text. `module FILE calls` makes every call of the module's table over the libraries of stubs.c:
 * once successfully, and once for each library function that can fail.
 */
#include "base/status.h"
#include "boot/module.h"
#include "mem/device.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char last_error[TUTTI__ERROR_BYTES], last_note[TUTTI__ERROR_BYTES];
static const tutti__device_ops_t *ops;
static int errors, registers; /* registers: the NCCL in use can register buffers */

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "line %d: not true: %s (last error: %s; note: %s)\n", __LINE__, #x,    \
                    last_error, last_note);                                                        \
            errors++;                                                                              \
        }                                                                                          \
    } while (0)

static tutti_status_t keep_error(tutti_status_t status, const char *text)
{
    snprintf(last_error, sizeof(last_error), "%s", text);
    return status;
}

static int log_on(tutti__log_level_t level)
{
    return level <= TUTTI__LOG_WARN;
}

static void log_line(tutti__log_level_t level, const char *text)
{
    (void)level;
    snprintf(last_note, sizeof(last_note), "%s", text);
}

static const tutti__core_t core = {
    .abi = TUTTI__MODULE_ABI, .fail = keep_error, .log_on = log_on, .log = log_line
};

/* ---- calls: each function of the table ---- */

static tutti__dstream_t *stream;
static tutti__devent_t *event;
static tutti__nccl_t *comm;
static void *memory;
static char room[64];

static tutti_status_t call_use(void)
{
    return ops->use(1);
}

static tutti_status_t call_alloc(void)
{
    tutti_status_t status = ops->alloc(64, &memory);

    if (status == TUTTI_OK)
        ops->free(memory);
    return status;
}

static tutti_status_t call_host_alloc(void)
{
    tutti_status_t status = ops->host_alloc(64, &memory);

    if (status == TUTTI_OK)
        ops->host_free(memory);
    return status;
}

static tutti_status_t call_stream(void)
{
    tutti_status_t status = ops->stream_make(1, &stream);

    if (status == TUTTI_OK)
        ops->stream_drop((tutti__dstream_t *)room);
    return status;
}

static tutti_status_t call_event(void)
{
    tutti_status_t status = ops->event_make(&event);

    if (status == TUTTI_OK)
        ops->event_drop((tutti__devent_t *)room);
    return status;
}

/* The module must not drop a timer's event, so that the event can be timed. */
static tutti_status_t call_timer(void)
{
    tutti__devent_t *timer;
    double us = 0;
    tutti_status_t status = ops->timer_make(&timer);

    if (status == TUTTI_OK)
        status = ops->elapsed(timer, timer, &us);
    CHECK((status == TUTTI_OK) == (us == 1500));
    return status;
}

static tutti_status_t call_record(void)
{
    return ops->record(event, stream);
}

static tutti_status_t call_wait(void)
{
    return ops->wait(stream, event);
}

static tutti_status_t call_query(void)
{
    return ops->query(event);
}

static tutti_status_t call_words(void)
{
    void *words = NULL, *again;
    tutti_status_t status = ops->words(&words);

    if (status != TUTTI_OK)
        return status;
    CHECK(ops->words(&again) == TUTTI_OK && again == words && words != NULL);
    for (size_t i = 0; i < (size_t)TUTTI__DEVICE_WORDS * TUTTI__DEVICE_WORD_BYTES; i++)
        CHECK(((const char *)words)[i] == 0);
    return TUTTI_OK;
}

static tutti_status_t call_await(void)
{
    return ops->await(stream, room, 77);
}

static tutti_status_t call_copy(void)
{
    return ops->copy(room, room + 32, 8, stream);
}

static tutti_status_t call_pack(void)
{
    tutti__piece_t piece = { room, room + 32, 4 };

    return ops->pack(&piece, 1, TUTTI_INT8, TUTTI_INT8, 1, stream);
}

static tutti_status_t call_sum(void)
{
    const void *srcs[] = { room, room + 8 };

    return ops->sum(room + 16, srcs, 2, 4, TUTTI_INT8, 0, stream);
}

static tutti_status_t call_id(void)
{
    tutti__nccl_id_t id;

    return ops->nccl_id(&id);
}

/* Open, poll until ready, and close. */
static tutti_status_t call_comm(void)
{
    tutti__nccl_id_t id;
    tutti_status_t status;

    memset(&id, 5, sizeof(id));
    status = ops->nccl_open(&id, 1, 2, 0, &comm);
    if (status != TUTTI_OK)
        return status;
    status = ops->nccl_poll(comm);
    if (status == TUTTI__AGAIN)
        status = ops->nccl_poll(comm);
    if (status != TUTTI_OK)
        ops->nccl_abort(comm);
    else
        ops->nccl_close(comm);
    return status;
}

static tutti_status_t call_nccl(void)
{
    static const tutti__nccl_call_t calls[] = {
        { TUTTI__NCCL_ALLREDUCE, room, room, 3, TUTTI_BFLOAT16, TUTTI_AVG, 0 },
        { TUTTI__NCCL_REDUCE_SCATTER, room, room, 3, TUTTI_INT32, TUTTI_MAX, 0 },
        { TUTTI__NCCL_ALLGATHER, room, room, 3, TUTTI_INT16, TUTTI_SUM, 0 },
        { TUTTI__NCCL_BROADCAST, room, room, 3, TUTTI_FLOAT32, TUTTI_SUM, 1 },
        { TUTTI__NCCL_REDUCE, room, room, 3, TUTTI_FLOAT64, TUTTI_MIN, 1 },
        { TUTTI__NCCL_SEND, room, NULL, 3, TUTTI_INT8, TUTTI_SUM, 1 },
        { TUTTI__NCCL_RECV, NULL, room, 3, TUTTI_INT8, TUTTI_SUM, 1 },
    };

    return ops->nccl_call(comm, calls, 7, stream);
}

static tutti_status_t call_nccl_alloc(void)
{
    tutti_status_t status = ops->nccl_alloc(64, &memory);

    if (status == TUTTI_OK)
        ops->nccl_free(memory);
    return status;
}

static tutti_status_t call_register(void)
{
    tutti__nccl_reg_t *reg = NULL;
    tutti_status_t status = ops->nccl_register(comm, room, sizeof(room), &reg);

    if (status == TUTTI_OK)
        ops->nccl_deregister(comm, reg);
    CHECK((status == TUTTI_OK) == ((void *)reg == room));
    return status;
}

static const struct {
    tutti_status_t (*call)(void);
    tutti_status_t expected; /* of the function that fails */
    const char *function;
} cases[] = {
    { call_use, TUTTI_ERR_UNSUPPORTED, "cuModuleLoadData" },
    { call_use, TUTTI_ERR_SYSTEM, "cuModuleGetFunction" },
    { call_use, TUTTI_ERR_SYSTEM, "cudaSetDevice" },
    { call_use, TUTTI_ERR_SYSTEM, "cudaFree" },
    { call_alloc, TUTTI_ERR_NO_MEMORY, "cudaMalloc" },
    { call_alloc, TUTTI_OK, "cudaFree" },
    { call_alloc, TUTTI_OK, "cudaThreadExchangeStreamCaptureMode" },
    { call_host_alloc, TUTTI_ERR_NO_MEMORY, "cudaHostAlloc" },
    { call_host_alloc, TUTTI_OK, "cudaFreeHost" },
    { call_stream, TUTTI_ERR_SYSTEM, "cudaDeviceGetStreamPriorityRange" },
    { call_stream, TUTTI_ERR_SYSTEM, "cudaStreamCreateWithPriority" },
    { call_stream, TUTTI_OK, "cudaStreamDestroy" },
    { call_event, TUTTI_ERR_SYSTEM, "cudaEventCreateWithFlags" },
    { call_event, TUTTI_OK, "cudaEventDestroy" },
    { call_timer, TUTTI_ERR_SYSTEM, "cudaEventCreateWithFlags" },
    { call_timer, TUTTI_ERR_SYSTEM, "cudaEventElapsedTime" },
    { call_record, TUTTI_ERR_SYSTEM, "cudaEventRecord" },
    { call_wait, TUTTI_ERR_SYSTEM, "cudaStreamWaitEvent" },
    { call_query, TUTTI_ERR_SYSTEM, "cudaEventQuery" },
    { call_words, TUTTI_ERR_NO_MEMORY, "cudaHostAlloc" },
    { call_await, TUTTI_ERR_SYSTEM, "cudaDeviceGetStreamPriorityRange" },
    { call_await, TUTTI_ERR_SYSTEM, "cudaStreamGetPriority" },
    { call_await, TUTTI_ERR_SYSTEM, "cuStreamWaitValue32" },
    { call_copy, TUTTI_ERR_SYSTEM, "cudaMemcpyAsync" },
    { call_pack, TUTTI_ERR_SYSTEM, "cuLaunchKernel" },
    { call_pack, TUTTI_ERR_SYSTEM, "cudaGetDevice" },
    { call_sum, TUTTI_ERR_SYSTEM, "cuLaunchKernel" },
    { call_id, TUTTI_ERR_TRANSPORT, "ncclGetUniqueId" },
    { call_comm, TUTTI_ERR_TRANSPORT, "ncclCommInitRankConfig" },
    { call_comm, TUTTI_ERR_TRANSPORT, "ncclCommGetAsyncError" },
    { call_comm, TUTTI_OK, "ncclCommFinalize" },
    { call_comm, TUTTI_OK, "ncclCommDestroy" },
    { call_nccl, TUTTI_ERR_TRANSPORT, "ncclGroupStart" },
    { call_nccl, TUTTI_ERR_TRANSPORT, "ncclGroupEnd" },
    { call_nccl, TUTTI_ERR_TRANSPORT, "ncclAllReduce" },
    { call_nccl, TUTTI_ERR_TRANSPORT, "ncclReduceScatter" },
    { call_nccl, TUTTI_ERR_TRANSPORT, "ncclAllGather" },
    { call_nccl, TUTTI_ERR_TRANSPORT, "ncclBroadcast" },
    { call_nccl, TUTTI_ERR_TRANSPORT, "ncclReduce" },
    { call_nccl, TUTTI_ERR_TRANSPORT, "ncclSend" },
    { call_nccl, TUTTI_ERR_TRANSPORT, "ncclRecv" },
    { call_nccl_alloc, TUTTI_ERR_TRANSPORT, "ncclMemAlloc" },
    { call_nccl_alloc, TUTTI_OK, "ncclMemFree" },
    { call_register, TUTTI_ERR_TRANSPORT, "ncclCommRegister" },
    { call_register, TUTTI_OK, "ncclCommDeregister" },
};

/* Calls restore the thread's signals and capture mode. */
static void check_restored(void)
{
    const char *mode = getenv("STUB_MODE");
    sigset_t now;

    sigemptyset(&now);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    CHECK(!sigismember(&now, SIGINT) && !sigismember(&now, SIGUSR1));
    CHECK(mode != NULL && strcmp(mode, "0") == 0);
}

/* Make the failing call first, so that the module has cached nothing. */
static void run_case(size_t i)
{
    tutti_status_t status;

    last_error[0] = last_note[0] = '\0';
    setenv("STUB_FAIL", cases[i].function, 1);
    status = cases[i].call();
    unsetenv("STUB_FAIL");
    if (status != cases[i].expected)
        fprintf(stderr, "%s: status %d\n", cases[i].function, (int)status);
    CHECK(status == cases[i].expected);
    check_restored();
    CHECK(strstr(status == TUTTI_OK ? last_note : last_error, cases[i].function) != NULL);
}

static void test_where(void)
{
    tutti__where_t where = ops->where(room);

    CHECK(where.kind == TUTTI__MEM_HOST && where.device == -1);
    where = ops->where(NULL);
    CHECK(where.kind == TUTTI__MEM_HOST && where.device == -1);
    where = ops->where((void *)1);
    CHECK(where.kind == TUTTI__MEM_PINNED && where.device == 1);
    where = ops->where((void *)2);
    CHECK(where.kind == TUTTI__MEM_DEVICE && where.device == 1);
    where = ops->where((void *)3);
    CHECK(where.kind == TUTTI__MEM_PINNED && where.device == 1);
    setenv("STUB_FAIL", "cuPointerGetAttributes", 1);
    CHECK(ops->where((void *)2).kind == TUTTI__MEM_HOST);
    unsetenv("STUB_FAIL");
}

static void test_states(void)
{
    setenv("STUB_FAIL", "not ready", 1);
    CHECK(ops->query(event) == TUTTI__AGAIN);
    CHECK(call_timer() == TUTTI__AGAIN);
    setenv("STUB_FAIL", "captured", 1);
    CHECK(ops->stream_captures(stream) == 1);
    setenv("STUB_FAIL", "implicit", 1);
    CHECK(ops->stream_captures(stream) == 1);
    unsetenv("STUB_FAIL");
    CHECK(ops->stream_captures(stream) == 0);
    setenv("STUB_DEVICE", "0", 1); /* the kernels of device 0 are not loaded */
    CHECK(call_pack() == TUTTI_ERR_SYSTEM);
    CHECK(strstr(last_error, "device 0") != NULL);
    CHECK(ops->use(0) == TUTTI_OK);
}

/* await is refused if kernels of the library could be queued behind the wait. */
static void test_await(void)
{
    static const char *const why[] = { "no words", "urgent", "one priority" };

    for (int i = 0; i < 3; i++) {
        setenv("STUB_FAIL", why[i], 1);
        setenv("STUB_VALUE", "0", 1);
        CHECK(call_await() == TUTTI_ERR_UNSUPPORTED);
        CHECK(strcmp(getenv("STUB_VALUE"), "0") == 0);
    }
    unsetenv("STUB_FAIL");
    CHECK(call_await() == TUTTI_OK && strcmp(getenv("STUB_VALUE"), "77") == 0);
}

/* If the thread has the device, with its kernels loaded, only the driver is called. */
static void test_use_again(void)
{
    setenv("STUB_FAIL", "cudaSetDevice", 1);
    CHECK(ops->use(0) == TUTTI_OK && ops->current() == 0);
    CHECK(ops->use(1) == TUTTI_ERR_SYSTEM && ops->current() == 0);
    unsetenv("STUB_FAIL");
    CHECK(call_use() == TUTTI_OK && ops->current() == 1);
    setenv("STUB_FAIL", "cuCtxGetDevice", 1); /* no context */
    CHECK(call_use() == TUTTI_OK && ops->current() == -1);
    unsetenv("STUB_FAIL");
    CHECK(ops->use(64) == TUTTI_ERR_UNSUPPORTED && call_use() == TUTTI_OK);
}

/* If the peers do not come, close returns soon, and the next call completes it. */
static void test_close(void)
{
    setenv("STUB_FAIL", "asynchronous", 1);
    CHECK(call_comm() == TUTTI_ERR_TRANSPORT && strstr(last_error, "this is why") != NULL);
    setenv("STUB_FAIL", "ncclCommCount", 1); /* only called if the NCCL in use binds a thread */
    CHECK(call_comm() == (ops->nccl_binds() ? TUTTI_ERR_TRANSPORT : TUTTI_OK));
    unsetenv("STUB_FAIL");
    puts("stuck:");
    CHECK(ops->nccl_open(&(tutti__nccl_id_t){ { 5, 5, 5, 5, 5, 5 } }, 0, 1, 0, &comm) == TUTTI_OK);
    setenv("STUB_FAIL", "stuck", 1);
    CHECK(ops->nccl_poll(comm) == TUTTI__AGAIN);
    ops->nccl_close(comm);
    unsetenv("STUB_FAIL");
    puts("later:");
    CHECK(ops->nccl_open(&(tutti__nccl_id_t){ { 5, 5, 5, 5, 5, 5 } }, 0, 1, 0, &comm) == TUTTI_OK);
    ops->nccl_abort(comm);
    CHECK(ops->nccl_open(&(tutti__nccl_id_t){ { 5, 5, 5, 5, 5, 5 } }, 0, 1, 0, &comm) == TUTTI_OK);
}

static int is_registering(size_t i)
{
    return cases[i].call == call_nccl_alloc || cases[i].call == call_register;
}

/* NCCL does not support registration, has it disabled, or does not complete it at once. */
static void test_no_register(void)
{
    if (!registers) {
        CHECK(call_nccl_alloc() == TUTTI_ERR_UNSUPPORTED);
        CHECK(call_register() == TUTTI_ERR_UNSUPPORTED);
        CHECK(strstr(last_error, "registers no buffers") != NULL);
        return;
    }
    setenv("STUB_FAIL", "not local", 1);
    CHECK(call_register() == TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(last_error, "NCCL_LOCAL_REGISTER") != NULL);
    setenv("STUB_FAIL", "later", 1);
    CHECK(call_register() == TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(last_error, "in progress") != NULL);
    unsetenv("STUB_FAIL");
}

static void test_types(void)
{
    tutti__nccl_call_t call = { TUTTI__NCCL_ALLREDUCE, room, room, 3, TUTTI_INT16, TUTTI_SUM, 0 };

    CHECK(ops->nccl_serves(TUTTI_BFLOAT16, TUTTI_AVG));
    CHECK(ops->nccl_serves(TUTTI_INT64, TUTTI_PROD));
    CHECK(!ops->nccl_serves(TUTTI_INT16, TUTTI_SUM) && !ops->nccl_serves(TUTTI_BOOL, TUTTI_SUM));
    CHECK(!ops->nccl_serves(TUTTI_INT32, TUTTI_BAND));
    /* Device 1 is older than 9.0. */
    CHECK(!ops->nccl_serves(TUTTI_FLOAT8_E4M3, TUTTI_SUM));
    CHECK(ops->nccl_call(comm, &call, 1, stream) == TUTTI_ERR_UNSUPPORTED);
    ops->nccl_abort(comm);
}

/* The identity is empty if CUDA does not report it. */
static void test_identity(void)
{
    char text[TUTTI__DEVICE_IDENTITY_BYTES] = "before";

    ops->identity(1, text);
    CHECK(strcmp(text, "0000:01:00.0") == 0);
    setenv("STUB_FAIL", "cudaDeviceGetPCIBusId", 1);
    ops->identity(1, text);
    CHECK(text[0] == '\0');
    unsetenv("STUB_FAIL");
}

static void run_calls(void)
{
    int count = 0;

    CHECK(ops->count(&count) == TUTTI_OK && count == 2);
    test_where();
    test_identity();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        if (cases[i].call == call_use)
            run_case(i);
    CHECK(call_use() == TUTTI_OK && call_use() == TUTTI_OK);
    test_states();
    test_await();
    test_use_again();
    test_close();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (cases[i].call == call_use || cases[i].call == call_comm ||
            (is_registering(i) && !registers))
            continue;
        run_case(i);
        last_note[0] = '\0';
        CHECK(cases[i].call() == TUTTI_OK && last_note[0] == '\0');
    }
    test_no_register();
    test_types();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        if (cases[i].call == call_comm)
            run_case(i);
}

/* All members after the name are functions. */
static void check_slots(void)
{
    const char *at = (const char *)&ops->count, *end = (const char *)(ops + 1);

    for (; at < end; at += sizeof(void *)) {
        void *slot;

        memcpy(&slot, at, sizeof(slot));
        CHECK(slot != NULL);
    }
    CHECK(ops->abi == TUTTI__DEVICE_ABI && strcmp(ops->name, "cuda") == 0);
}

/* A library that cannot be used is not left in the process. */
static void check_closed(void)
{
    static const char *const files[] = { "libcuda.so.1", "libcudart.so.13", "libcudart.so.12",
                                         "libnccl.so.2" };

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        CHECK(dlopen(files[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) == NULL);
}

int main(int argc, char **argv)
{
    const tutti__device_module_t *module;
    const char *versions = NULL;
    tutti_status_t status;
    void *handle;

    handle = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    module = handle == NULL ? NULL : dlsym(handle, "tutti_module");
    if (module == NULL || module->abi != TUTTI__MODULE_ABI || strcmp(module->name, "cuda") != 0) {
        fprintf(stderr, "usage: module FILE open|calls; %s\n", handle == NULL ? dlerror() : "");
        return 2;
    }
    status = module->open(&core, &ops, &versions);
    printf("%d: %s\n", (int)status, status == TUTTI_OK ? versions : last_error);
    if (status != TUTTI_OK) {
        CHECK(ops == NULL && versions == NULL);
        check_closed();
        dlclose(handle);
        return errors > 0;
    }
    check_slots();
    registers = strstr(versions, "registers no buffers") == NULL;
    if (strstr(versions, "no NCCL") != NULL) {
        CHECK(call_id() == TUTTI_ERR_UNSUPPORTED && strstr(last_error, "no NCCL: ") != NULL);
        CHECK(!ops->nccl_serves(TUTTI_FLOAT32, TUTTI_SUM));
    }
    if (strcmp(argv[2], "calls") == 0)
        run_calls();
    return errors > 0;
}
