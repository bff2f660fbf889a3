/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A world of one rank: all calls work, and need no other process. Other tests call init, finalize
 * and init again, and fork a child while another thread is in tutti_init.
 */
#include "api/api.h"
#include "store.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>

enum {
    N = 100000
};

static float x[N], y[N];

static void fill(void)
{
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 1000);
        y[i] = -1;
    }
}

static void direct(tutti_comm_t *world)
{
    static const tutti_op_t ops[] = { TUTTI_SUM, TUTTI_AVG, TUTTI_MIN, TUTTI_MAX };
    static const size_t counts[] = { 1, 5, 1000, N };

    for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) {
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            size_t n = counts[c];

            fill();
            CHECK_OK(tutti_allreduce(x, y, n, TUTTI_FLOAT32, ops[o], world));
            CHECK_INT(memcmp(x, y, n * sizeof(*x)), 0);
            CHECK(n == N || y[n] == -1);
            CHECK_OK(tutti_allreduce(x, x, n, TUTTI_FLOAT32, ops[o], world));
            CHECK_INT(memcmp(x, y, n * sizeof(*x)), 0);
        }
    }
    fill();
    CHECK_OK(tutti_allgather(x, y, N, TUTTI_FLOAT32, world));
    CHECK_INT(memcmp(x, y, sizeof(x)), 0);
    CHECK_OK(tutti_allgather(x, x, N, TUTTI_FLOAT32, world));
    CHECK_OK(tutti_broadcast(x, N, TUTTI_FLOAT32, 0, world));
    CHECK_INT(memcmp(x, y, sizeof(x)), 0);
    CHECK_OK(tutti_barrier(world));
}

/* The other collectives: out of place they copy, in place they have no effect. */
static void copies(tutti_comm_t *world)
{
    static const size_t counts[] = { N }, displs[] = { 5 }, small[] = { N - 5 };
    const tutti_dtype_t f32 = TUTTI_FLOAT32;

#define COPIES(send, recv, call)                                                                   \
    do {                                                                                           \
        const float *send = x;                                                                     \
        float *recv = y;                                                                           \
                                                                                                   \
        fill();                                                                                    \
        CHECK_OK(call);                                                                            \
        CHECK_INT(memcmp(x, y, sizeof(x)), 0);                                                     \
        recv = x;                                                                                  \
        CHECK_OK(call);                                                                            \
        CHECK_INT(memcmp(x, y, sizeof(x)), 0);                                                     \
    } while (0)
    COPIES(s, r, tutti_reduce(s, r, N, f32, TUTTI_SUM, 0, world));
    COPIES(s, r, tutti_reduce_scatter(s, r, N, f32, TUTTI_AVG, world));
    COPIES(s, r, tutti_reduce_scatterv(s, r, counts, f32, TUTTI_MAX, world));
    COPIES(s, r, tutti_allgatherv(s, N, r, counts, NULL, f32, world));
    COPIES(s, r, tutti_gather(s, r, N, f32, 0, world));
    COPIES(s, r, tutti_gatherv(s, N, r, counts, NULL, f32, 0, world));
    COPIES(s, r, tutti_scatter(s, r, N, f32, 0, world));
    COPIES(s, r, tutti_scatterv(s, counts, NULL, r, N, f32, 0, world));
    COPIES(s, r, tutti_alltoall(s, r, N, f32, world));
    COPIES(s, r, tutti_alltoallv(s, counts, NULL, r, counts, NULL, f32, world));
    COPIES(s, r, tutti_scan(s, r, N, f32, TUTTI_SUM, world));
#undef COPIES
    fill();
    CHECK_OK(tutti_exscan(x, y, N, f32, TUTTI_SUM, world));
    CHECK(y[0] == -1 && y[N - 1] == -1);
    CHECK_OK(tutti_alltoallv(x, small, displs, y, small, NULL, f32, world));
    CHECK_INT(memcmp(x + 5, y, (N - 5) * sizeof(*x)), 0);
    CHECK(y[N - 5] == -1);
}

static void by_name(tutti_comm_t *world)
{
    tutti_request_t *request[50];
    char name[16];
    int done = 0;

    fill();
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof(name), "%d", i);
        CHECK_OK(tutti_allreduce_async(name, x + 2000 * i, y + 2000 * i, 2000, TUTTI_FLOAT32,
                                       TUTTI_AVG, world, NULL, &request[i]));
    }
    /* tutti_test never frees the request, so it can be repeated. */
    for (int i = 0; i < 1000000 && !done; i++)
        CHECK_OK(tutti_test(request[0], &done));
    CHECK_INT(done, 1);
    CHECK_OK(tutti_test(request[0], &done));
    CHECK_INT(done, 1);
    for (int i = 49; i >= 0; i--)
        CHECK_OK(tutti_wait(request[i], i % 2 ? -1 : 10000));
    CHECK_INT(memcmp(x, y, sizeof(x)), 0);
}

static void memory(tutti_comm_t *world)
{
    void *ptr, *other;

    CHECK_OK(tutti_mem_alloc(world, sizeof(x), &ptr));
    CHECK_OK(tutti_mem_alloc(world, 1, &other));
    CHECK_INT((size_t)ptr % 4096, 0);
    CHECK(ptr != other);
    for (int i = 0; i < N; i++)
        CHECK(((float *)ptr)[i] == 0);
    fill();
    CHECK_OK(tutti_allreduce(x, ptr, N, TUTTI_FLOAT32, TUTTI_SUM, world));
    CHECK_INT(memcmp(x, ptr, sizeof(x)), 0);
    CHECK_OK(tutti_mem_free(world, ptr));
    /* tutti_finalize frees `other`. */
}

static void ends_by_abort(tutti_comm_t *world)
{
    CHECK_OK(tutti_abort(world, "enough"));
    CHECK_ERROR(tutti_barrier(world), TUTTI_ERR_PEER_LOST, "enough");
    CHECK_ERROR(tutti_allreduce(x, x, N, TUTTI_FLOAT32, TUTTI_SUM, world), TUTTI_ERR_PEER_LOST,
                "enough");
}

static void *somewhere_else(void *arg)
{
    direct(arg);
    by_name(arg);
    return NULL;
}

/* A forked child cannot use its parent's objects, but may finalize and begin again. */
static void in_child(void)
{
    CHECK_ERROR(tutti_init(NULL), TUTTI_ERR_SHUTDOWN, "forked");
    CHECK_ERROR(tutti_barrier(tutti_world()), TUTTI_ERR_SHUTDOWN, "forked");
    CHECK_OK(tutti_finalize());
    CHECK_OK(tutti_init(NULL));
    direct(tutti_world());
    by_name(tutti_world());
    CHECK_OK(tutti_finalize());
    _exit(0);
}

static void forks(void)
{
    pid_t pid = fork();
    int result;

    CHECK(pid >= 0);
    if (pid == 0)
        in_child();
    CHECK_INT(waitpid(pid, &result, 0), pid);
    CHECK_INT(result, 0);
}

static sem_t is_inside, may_fail;

/* The `get` of a store in which rank 0 has set no key. */
static int get_never(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
                     int timeout_ms)
{
    (void)context;
    (void)key;
    (void)value;
    (void)room;
    (void)ret_bytes;
    (void)timeout_ms;
    sem_post(&is_inside);
    sem_wait(&may_fail);
    return ENOENT;
}

static void *init_in_vain(void *arg)
{
    tutti_store_t store = { sizeof(store), NULL, "never", store_set, get_never };
    tutti_options_t o = store_options(&store, 1, 2);

    CHECK(tutti_init(&o) != TUTTI_OK);
    return arg;
}

/* A thread of the parent waits in tutti_init while the process forks. The child need not wait for
   anything before it calls tutti_finalize and tutti_init. */
static void forks_during_init(void)
{
    pthread_t thread;
    pid_t pid;
    int result;

    sem_init(&is_inside, 0, 0);
    sem_init(&may_fail, 0, 0);
    CHECK_INT(pthread_create(&thread, NULL, init_in_vain, NULL), 0);
    sem_wait(&is_inside);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(60);
        CHECK_OK(tutti_finalize());
        CHECK_OK(tutti_init(NULL));
        direct(tutti_world());
        CHECK_OK(tutti_finalize());
        _exit(0);
    }
    CHECK_INT(waitpid(pid, &result, 0), pid);
    CHECK_INT(result, 0);
    sem_post(&may_fail);
    CHECK_INT(pthread_join(thread, NULL), 0);
}

int main(void)
{
    clean_environment();
    forks_during_init();
    for (int i = 0; i < 5; i++) {
        tutti_request_t *late;
        tutti_comm_t *world;
        pthread_t thread;

        CHECK_OK(tutti_init(NULL));
        CHECK_ERROR(tutti_init(NULL), TUTTI_ERR_INVALID_ARGUMENT, "already");
        world = tutti_world();
        CHECK(world != NULL && world == tutti_world());
        CHECK_INT(tutti_rank(world), 0);
        CHECK_INT(tutti_size(world), 1);
        CHECK_INT(tutti_local_rank(world), 0);
        CHECK_INT(tutti_local_size(world), 1);
        CHECK_INT(tutti_host_rank(world), 0);
        CHECK_INT(tutti_host_count(world), 1);
        forks();
        direct(world);
        copies(world);
        by_name(world);
        memory(world);
        CHECK_INT(pthread_create(&thread, NULL, somewhere_else, world), 0);
        CHECK_INT(pthread_join(thread, NULL), 0);
        CHECK_OK(
            tutti_allreduce_async("late", x, x, N, TUTTI_FLOAT32, TUTTI_SUM, world, NULL, &late));
        if (i % 2)
            ends_by_abort(world);
        CHECK_OK(tutti_finalize());
        CHECK_OK(tutti_finalize());
        CHECK(tutti_world() == NULL);
        /* A request stays valid after tutti_finalize. It is complete, or has ended with
           SHUTDOWN. */
        (void)tutti_wait(late, -1);
    }
    return 0;
}
