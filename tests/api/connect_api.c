/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti_comm_connect through the public interface. Tests its arguments, its use beside tutti_init
 * and tutti_finalize, unique ids of two front ends in one process, one rank, and a forked child.
 */
#include "api/api.h"
#include "store.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/wait.h>

static int refuse_set(void *context, const char *key, const void *value, size_t bytes)
{
    (void)context;
    (void)value;
    (void)bytes;
    FAIL("set of %s", key);
}

static int refuse_get(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
                      int timeout_ms)
{
    (void)context;
    (void)value;
    (void)room;
    (void)ret_bytes;
    (void)timeout_ms;
    FAIL("get of %s", key);
}

/* A store that no call may use. */
static tutti_store_t unused_store(void)
{
    return (tutti_store_t){ sizeof(tutti_store_t), NULL, "unused", refuse_set, refuse_get };
}

static int threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    int n = 0;

    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void reduces(tutti_comm_t *comm, int want)
{
    tutti_request_t *request;
    int x = 1, y = 0;

    CHECK_OK(tutti_allreduce(&x, &y, 1, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK_INT(y, want);
    CHECK_OK(tutti_allreduce_async("a", &x, &y, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, &request));
    CHECK_OK(tutti_wait(request, -1));
    CHECK_INT(y, want);
}

/* ---- one process ---- */

static void in_callback(void *arg, tutti_status_t status)
{
    tutti_store_t store = unused_store();
    tutti_options_t options = store_options(&store, 0, 1);
    tutti_comm_t *comm = NULL;

    CHECK_OK(status);
    CHECK_ERROR(tutti_comm_connect(&options, &comm), TUTTI_ERR_INVALID_ARGUMENT, "callback");
    CHECK_ERROR(tutti_comm_free(arg), TUTTI_ERR_INVALID_ARGUMENT, "callback");
}

static void arguments(void)
{
    tutti_store_t store = unused_store();
    tutti_options_t o = store_options(&store, 0, 1);
    tutti_async_options_t async = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_comm_t *comm = NULL;
    tutti_unique_id_t id;
    tutti_request_t *request;

    memset(&id, 0, sizeof(id));
    CHECK_ERROR(tutti_comm_connect(&o, NULL), TUTTI_ERR_INVALID_ARGUMENT, "ret_comm");
    CHECK_ERROR(tutti_comm_connect(NULL, &comm), TUTTI_ERR_INVALID_ARGUMENT, "options->store");
    o.store = NULL;
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_INVALID_ARGUMENT, "nranks");
    o.nranks = 0;
    o.mpi_comm = &o;
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_INVALID_ARGUMENT, "mpi_comm");
    o = store_options(&store, 0, 1);
    o.mpi_comm = &o;
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_INVALID_ARGUMENT, "mpi_comm");
    o = store_options(&store, 0, 1);
    o.unique_id = &id;
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_INVALID_ARGUMENT, "both");
    o.store = NULL;
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_INVALID_ARGUMENT, "unique id");
    o = store_options(&store, 1, 1);
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_INVALID_ARGUMENT, "no rank 1");
    o = store_options(&store, -1, 1);
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_INVALID_ARGUMENT, "no rank -1");
    o = store_options(&store, 0, 1);
    o.timeout_ms = -1;
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_INVALID_ARGUMENT, "timeout_ms is -1");
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "timeout_ms is -1");
    o.timeout_ms = 0;
    o.reserved_end = 1;
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_INVALID_ARGUMENT, "reserved_end");
    o.reserved_end = 0;
    store.get = NULL;
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_INVALID_ARGUMENT, "store->get");
    store = unused_store();
    store.size = 8;
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_ABI, "store->size");
    store = unused_store();
    o.size = 32;
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_ABI, "options->size");
    /* A program that was built with the previous version has no timeout_ms. */
    o = store_options(&store, 0, 1);
    o.size = offsetof(tutti_options_t, timeout_ms);
    o.timeout_ms = -7;
    CHECK(comm == NULL);
    CHECK_OK(tutti_comm_connect(&o, &comm));
    async.callback = in_callback;
    async.callback_arg = comm;
    CHECK_OK(tutti_barrier_async("b", comm, &async, &request));
    CHECK_OK(tutti_wait(request, -1));
    CHECK_OK(tutti_comm_free(comm));
}

/* Many communicators of one rank use no store and start no thread. */
static void alone(void)
{
    enum {
        COMMS = 50
    };
    tutti_store_t store = unused_store();
    tutti_options_t o = store_options(&store, 0, 1);
    tutti_comm_t *comms[COMMS], *group;
    int before = threads();

    setenv("TUTTI_BOOT", "self", 1); /* applies only to tutti_init */
    for (int i = 0; i < COMMS; i++) {
        CHECK_OK(tutti_comm_connect(&o, &comms[i]));
        CHECK_INT(tutti_size(comms[i]), 1);
        reduces(comms[i], 1);
    }
    CHECK_INT(threads(), before);
    CHECK(tutti_world() == NULL);
    CHECK_OK(tutti_comm_split(comms[0], 3, 0, &group));
    reduces(group, 1);
    CHECK_OK(tutti_init(NULL));
    CHECK_ERROR(tutti_comm_free(tutti_world()), TUTTI_ERR_INVALID_ARGUMENT, "tutti_finalize");
    CHECK_OK(tutti_finalize());
    reduces(group, 1);
    for (int i = COMMS; i-- > 0;)
        CHECK_OK(tutti_comm_free(comms[i]));
    CHECK_ERROR(tutti_barrier(group), TUTTI_ERR_INVALID_ARGUMENT, "freed");
    unsetenv("TUTTI_BOOT");
}

/* ---- one trace ---- */

static int has_text(const char *path, const char *text)
{
    static char bytes[1 << 16];
    FILE *file = fopen(path, "r");
    size_t n;

    CHECK(file != NULL);
    n = fread(bytes, 1, sizeof(bytes) - 1, file);
    bytes[n] = '\0';
    fclose(file);
    return strstr(bytes, text) != NULL;
}

static void reduces_as(const char *name, tutti_comm_t *comm)
{
    tutti_request_t *request;
    int x = 1;

    CHECK_OK(tutti_allreduce_async(name, &x, &x, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, &request));
    CHECK_OK(tutti_wait(request, -1));
}

/* A tutti_init that fails does not stop a trace that it has not started. Even without a world,
   tutti_finalize stops the trace. */
static void traces(void)
{
    tutti_store_t store = unused_store();
    tutti_options_t o = store_options(&store, 0, 1);
    tutti_comm_t *comm;
    char path[64];

    snprintf(path, sizeof(path), "/tmp/tutti-test-connect-%d", (int)getpid());
    CHECK_OK(tutti_comm_connect(&o, &comm));
    CHECK_OK(tutti_trace_start(path));
    setenv("TUTTI_BOOT", "self", 1);
    setenv("TUTTI_ALGORITHM", "allreduce:@/missing", 1);
    CHECK(tutti_init(NULL) != TUTTI_OK);
    unsetenv("TUTTI_ALGORITHM");
    setenv("TUTTI_TRACE", path, 1);
    CHECK(tutti_init(NULL) != TUTTI_OK);
    unsetenv("TUTTI_TRACE");
    unsetenv("TUTTI_BOOT");
    reduces_as("later", comm);
    CHECK_OK(tutti_trace_stop());
    CHECK(has_text(path, "later"));

    CHECK_OK(tutti_trace_start(path));
    reduces_as("last", comm);
    CHECK_OK(tutti_comm_free(comm));
    CHECK_OK(tutti_finalize());
    CHECK(has_text(path, "last"));
    unlink(path);
}

/* ---- two processes ---- */

/* The world is made and finalized while connected communicators exist. */
static void beside_world(int rank, int size)
{
    tutti_store_t first = store_with("first"), world = store_with("world"),
                  second = store_with("second"), again = store_with("again");
    tutti_options_t o = store_options(&first, rank, size);
    tutti_comm_t *a, *b, *group;
    tutti_request_t *request;
    int x = 1, y = 0;

    CHECK_OK(tutti_comm_connect(&o, &a));
    o.store = &world;
    CHECK_OK(tutti_init(&o));
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "already");
    o.store = &second;
    CHECK_OK(tutti_comm_connect(&o, &b));
    CHECK(tutti_world() != a && tutti_world() != b);
    CHECK_OK(tutti_comm_split(a, 0, 0, &group));
    reduces(a, size);
    reduces(tutti_world(), size);
    reduces(b, size);
    CHECK_OK(tutti_barrier(tutti_world()));
    /* A request of a connected communicator is pending while the world is made and finalized. */
    CHECK_OK(tutti_allreduce_async("over", &x, &y, 1, TUTTI_INT32, TUTTI_SUM, a, NULL, &request));
    CHECK_OK(tutti_finalize());
    CHECK(tutti_world() == NULL);
    CHECK_OK(tutti_wait(request, -1));
    CHECK_INT(y, size);
    reduces(a, size);
    reduces(b, size);
    reduces(group, size);
    o.store = &again;
    CHECK_OK(tutti_init(&o));
    reduces(tutti_world(), size);
    CHECK_OK(tutti_barrier(tutti_world()));
    if (rank == 0)
        CHECK_OK(tutti_finalize());
    CHECK_OK(tutti_barrier(b));
    CHECK_OK(tutti_comm_free(a));
    CHECK_OK(tutti_barrier(b));
    CHECK_OK(tutti_comm_free(b));
    CHECK_OK(tutti_finalize());
}

/* Rank 0 makes ids. The second id is used after rank 0's tutti_finalize. */
static void ids(int rank, int size)
{
    tutti_store_t store = store_with("ids");
    tutti_options_t o = store_options(&store, rank, size);
    tutti_unique_id_t id[2];
    tutti_comm_t *a, *b;

    CHECK_OK(tutti_comm_connect(&o, &a));
    if (rank == 0)
        for (int i = 0; i < 2; i++)
            CHECK_OK(tutti_unique_id_create(&id[i]));
    CHECK_OK(tutti_broadcast(id, sizeof(id), TUTTI_UINT8, 0, a));
    o.store = NULL;
    o.unique_id = &id[0];
    CHECK_OK(tutti_init(&o));
    reduces(tutti_world(), size);
    CHECK_OK(tutti_barrier(a));
    CHECK_OK(tutti_finalize());
    CHECK_OK(tutti_barrier(a));
    o.unique_id = &id[1];
    CHECK_OK(tutti_comm_connect(&o, &b));
    reduces(b, size);
    CHECK_OK(tutti_barrier(a));
    CHECK_OK(tutti_comm_free(a));
    /* The thread that serves the first id still answers. */
    o.unique_id = &id[0];
    CHECK_ERROR(tutti_comm_connect(&o, &a), TUTTI_ERR_INVALID_ARGUMENT, "used already");
    CHECK_OK(tutti_barrier(b));
    CHECK_OK(tutti_comm_free(b));
    /* When the last communicator has ended, the ids and their threads have ended as well. */
    if (rank == 0)
        CHECK_INT(threads(), 1);
}

/* A child of rank 0 may not use its parent's communicator, and connects a new one with rank 1. */
static void forked(int rank, int size)
{
    tutti_store_t store = store_with("parents"), own = store_with("childs");
    tutti_options_t o = store_options(&store, rank, size);
    tutti_comm_t *comm, *mine;
    int status = -1;
    pid_t pid;

    CHECK_OK(tutti_comm_connect(&o, &comm));
    reduces(comm, size);
    o.store = &own;
    if (rank > 0) {
        CHECK_OK(tutti_comm_connect(&o, &mine));
        reduces(mine, size);
        CHECK_OK(tutti_barrier(mine));
        CHECK_OK(tutti_comm_free(mine));
        reduces(comm, size);
        CHECK_OK(tutti_barrier(comm));
        CHECK_OK(tutti_comm_free(comm));
        return;
    }
    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK_ERROR(tutti_barrier(comm), TUTTI_ERR_SHUTDOWN, "forked");
        CHECK_ERROR(tutti_comm_free(comm), TUTTI_ERR_SHUTDOWN, "forked");
        CHECK_OK(tutti_comm_connect(&o, &mine));
        reduces(mine, size);
        CHECK_OK(tutti_finalize());
        CHECK_OK(tutti_barrier(mine));
        CHECK_OK(tutti_comm_free(mine));
        _exit(0);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    reduces(comm, size);
    CHECK_OK(tutti_barrier(comm));
    CHECK_OK(tutti_comm_free(comm));
}

/* The deadline of the world does not apply to connected communicators. */
static void deadline(int rank, int size)
{
    tutti_store_t store = store_with("deadline");
    tutti_options_t o = store_options(&store, rank, size);
    tutti_comm_t *comm;
    float x = 1;

    o.timeout_ms = 300;
    CHECK_OK(tutti_init(&o));
    o.store = &(tutti_store_t){ sizeof(tutti_store_t), NULL, "other", store_set, store_get };
    o.timeout_ms = 0;
    CHECK_OK(tutti_comm_connect(&o, &comm));
    if (rank == 1)
        CHECK_ERROR(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, tutti_world()),
                    TUTTI_ERR_TIMEOUT, "0.3 s");
    reduces(comm, size);
    CHECK_OK(tutti_barrier(comm));
    CHECK_OK(tutti_comm_free(comm));
    CHECK_OK(tutti_finalize());
}

/* Between hosts a connected communicator cannot use MPI, and the test's environment forbids UCX. */
static void hosts(int rank, int size)
{
    tutti_store_t store = store_with("hosts");
    tutti_options_t o = store_options(&store, rank, size);
    tutti_comm_t *comm;

    setenv("TUTTI_HOST_ID", rank == 0 ? "a" : "b", 1);
    setenv("TUTTI_TRANSPORT", "mpi", 1);
    CHECK_ERROR(tutti_comm_connect(&o, &comm), TUTTI_ERR_UNSUPPORTED,
                "communicators from tutti_comm_connect do not use MPI");
}

int main(void)
{
    static void (*const cases[])(int rank, int size) = { beside_world, ids, forked, deadline,
                                                         hosts };
    int failures = 0;

    clean_environment();
    setenv("TUTTI_TIMEOUT", "60", 1);
    alarm(250);
    arguments();
    alone();
    traces();
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        store_open();
        failures += run_children(c == 0 ? 3 : 2, NULL, cases[c], NULL, 0);
    }
    return failures != 0;
}
