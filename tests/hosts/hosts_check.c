/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hosts_check CASE [ARGUMENT]: every rank of a job under mpirun runs this program. hosts.sh starts
 * it. Like an application it uses only the library's headers. It prints "rank R of N on H hosts:
 * CASE passed" and exits with 0, or prints the error.
 *
 *     data      all collectives, exact results, direct and by name, up to 2 MB
 *     twice     data, with tutti_finalize and tutti_init in between
 *     forked    a forked child does not use what its parent has used to meet; then data
 *     many N    N small allreduces; prints their time in milliseconds
 *     named N   N named allreduces, one after the other, and no other call
 *     passed N  rank 0 sends to rank 2, which sends to rank 1, which sends to rank 0; N rounds
 *     groups N  groups, several at the same time; N rounds
 *     aborted   groups, one of which is ended
 *     refused   tutti_init must fail
 *     killed R  rank R is killed while the others wait for it
 *     exited R  rank R calls exit(0) while its asynchronous calls are in flight
 *     groupkilled R  as killed; ranks with a group without R continue there
 */
#include "checks.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Sums of these values over 8 ranks are exact in all types that are used. */
static float value(int r, size_t i)
{
    return (float)((i * 7 + (size_t)r * 5) % 31);
}

static float sum(size_t i)
{
    float total = 0;

    for (int r = 0; r < size; r++)
        total += value(r, i);
    return total;
}

static void *room(size_t bytes)
{
    void *ptr = malloc(bytes + 1);

    CHECK(ptr != NULL, "%zu bytes", bytes);
    return ptr;
}

/* ---- the collectives ---- */

static void allreduce(size_t count, int in_place)
{
    float *x = room(count * sizeof(*x)), *y = in_place ? x : room(count * sizeof(*y));

    for (size_t i = 0; i < count; i++)
        x[i] = value(rank, i);
    OK(tutti_allreduce(x, y, count, TUTTI_FLOAT32, TUTTI_SUM, tutti_world()));
    for (size_t i = 0; i < count; i++)
        CHECK(y[i] == sum(i), "element %zu of %zu is %g, not %g", i, count, y[i], sum(i));
    if (!in_place)
        free(y);
    free(x);
}

static void allreduce_max(size_t count)
{
    int64_t *x = room(count * sizeof(*x));

    for (size_t i = 0; i < count; i++)
        x[i] = (int64_t)i * 100 + rank;
    OK(tutti_allreduce(x, x, count, TUTTI_INT64, TUTTI_MAX, tutti_world()));
    for (size_t i = 0; i < count; i++)
        CHECK(x[i] == (int64_t)i * 100 + size - 1, "element %zu is %lld", i, (long long)x[i]);
    free(x);
}

static void broadcast(size_t count, int root)
{
    int32_t *x = room(count * sizeof(*x));

    for (size_t i = 0; i < count; i++)
        x[i] = rank == root ? (int32_t)i + root : -1;
    OK(tutti_broadcast(x, count, TUTTI_INT32, root, tutti_world()));
    for (size_t i = 0; i < count; i++)
        CHECK(x[i] == (int32_t)i + root, "root %d, element %zu is %d", root, i, x[i]);
    free(x);
}

static void allgather(size_t count)
{
    double *all = room(count * (size_t)size * sizeof(*all)), *mine = all + count * (size_t)rank;

    for (size_t i = 0; i < count; i++)
        mine[i] = rank * 1e6 + (double)i;
    OK(tutti_allgather(mine, all, count, TUTTI_FLOAT64, tutti_world()));
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < count; i++)
            CHECK(all[(size_t)r * count + i] == r * 1e6 + (double)i, "rank %d's element %zu", r, i);
    free(all);
}

/* No rank may leave a barrier before the last rank has entered it. All ranks use the clock of one
   machine. */
static void barriers(void)
{
    for (int late = 0; late < size; late++) {
        double came, last;

        OK(tutti_barrier(tutti_world()));
        if (rank == late)
            usleep(5000);
        came = now_ms();
        OK(tutti_barrier(tutti_world()));
        last = now_ms();
        OK(tutti_allreduce(&came, &came, 1, TUTTI_FLOAT64, TUTTI_MAX, tutti_world()));
        CHECK(last >= came, "left a barrier %.3f ms before the last one came", came - last);
    }
}

static void mem(void)
{
    size_t count = 300000;
    void *ptr;
    float *x;

    OK(tutti_mem_alloc(tutti_world(), count * sizeof(*x), &ptr));
    x = ptr;
    for (size_t i = 0; i < count; i++)
        x[i] = value(rank, i);
    OK(tutti_allreduce(x, x, count, TUTTI_FLOAT32, TUTTI_SUM, tutti_world()));
    for (size_t i = 0; i < count; i++)
        CHECK(x[i] == sum(i), "element %zu is %g", i, x[i]);
    OK(tutti_barrier(tutti_world()));
    OK(tutti_mem_free(tutti_world(), ptr));
}

enum {
    TENSORS = 20
};

/* Make named calls. Each rank has a different order. */
static void by_name(void)
{
    static const size_t counts[] = { 1, 1000, 0, 70000, 12345 };
    tutti_request_t *request[TENSORS];
    float *x[TENSORS];
    char name[32];

    for (int k = 0; k < TENSORS; k++) {
        int t = (k * 7 + rank * 3) % TENSORS;
        size_t count = counts[t % 5];

        x[t] = room(count * sizeof(*x[t]));
        for (size_t i = 0; i < count; i++)
            x[t][i] = value(rank, i + (size_t)t);
        snprintf(name, sizeof(name), "tensor %d", t);
        OK(tutti_allreduce_async(name, x[t], x[t], count, TUTTI_FLOAT32, TUTTI_SUM, tutti_world(),
                                 NULL, &request[t]));
        /* Direct calls are made between the named calls, in the same order on all ranks. */
        if (k % 5 == 2)
            allreduce(100, 1);
    }
    for (int t = 0; t < TENSORS; t++) {
        OK(tutti_wait(request[t], -1));
        for (size_t i = 0; i < counts[t % 5]; i++)
            CHECK(x[t][i] == sum(i + (size_t)t), "tensor %d, element %zu is %g, not %g", t, i,
                  x[t][i], sum(i + (size_t)t));
        free(x[t]);
    }
}

/* Each name is new, so the ranks agree on each tensor, and learn no plan. */
static void named(int rounds)
{
    tutti_request_t *request;
    char name[32];

    for (int k = 0; k < rounds; k++) {
        float x = value(rank, (size_t)k);

        snprintf(name, sizeof(name), "tensor %d", k);
        OK(tutti_allreduce_async(name, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, tutti_world(), NULL,
                                 &request));
        OK(tutti_wait(request, -1));
        CHECK(x == sum((size_t)k), "round %d: %g, not %g", k, x, sum((size_t)k));
    }
}

/* In each round rank 0 waits for rank 1 of its host, which waits for rank 2 of another host. */
static void passed(int rounds)
{
    int from = (rank + 1) % 3, to = (rank + 2) % 3;

    for (int k = 0; k < rounds; k++) {
        int token = rank == 0 ? k : -1;

        if (rank == 0)
            OK(tutti_send(&token, 1, TUTTI_INT32, to, tutti_world()));
        token = -1;
        OK(tutti_recv(&token, 1, TUTTI_INT32, from, tutti_world()));
        if (rank != 0)
            OK(tutti_send(&token, 1, TUTTI_INT32, to, tutti_world()));
        CHECK(token == k, "round %d: %d", k, token);
    }
}

/* A mismatch of a named tensor is an error on all ranks, and does not end the communicator. */
static void mismatch(void)
{
    tutti_request_t *request;
    float x[8] = { 0 };

    if (size == 1)
        return;
    OK(tutti_allreduce_async("odd", x, x, rank == size - 1 ? 7 : 8, TUTTI_FLOAT32, TUTTI_SUM,
                             tutti_world(), NULL, &request));
    CHECK(tutti_wait(request, -1) == TUTTI_ERR_MISMATCH, "%s", tutti_last_error());
    CHECK(strstr(tutti_last_error(), "'odd'") != NULL, "%s", tutti_last_error());
}

static void data(void)
{
    static const size_t counts[] = { 0, 1, 3, 1000, 60001, 524288 };

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        allreduce(counts[c], 0);
        allreduce(counts[c], 1);
        allreduce_max(counts[c] / 2);
        broadcast(counts[c], (int)c % size);
        broadcast(counts[c], size - 1);
        allgather(counts[c] / 16 + 1);
    }
    barriers();
    mem();
    by_name();
    mismatch();
    by_name();
}

/* ---- groups ---- */

/* Make in-place sums of all sizes over `comm`, and check that this rank gets the sum of its
   members' numbers. */
static void sums(tutti_comm_t *comm, int times)
{
    static const size_t counts[] = { 1, 700, 40000, 200000 };
    int members = tutti_size(comm), total = rank;
    float *x = room(200000 * sizeof(*x));

    OK(tutti_allreduce(&total, &total, 1, TUTTI_INT32, TUTTI_SUM, comm));
    for (int t = 0; t < times; t++) {
        size_t count = counts[t % 4];
        tutti_request_t *request;

        for (size_t i = 0; i < count; i++)
            x[i] = (float)(rank + (int)(i % 100) + t);
        if (t % 3 == 2) {
            OK(tutti_allreduce_async("x", x, x, count, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL,
                                     &request));
            OK(tutti_wait(request, -1));
        } else {
            OK(tutti_allreduce(x, x, count, TUTTI_FLOAT32, TUTTI_SUM, comm));
        }
        for (size_t i = 0; i < count; i++)
            CHECK(x[i] == (float)(total + members * ((int)(i % 100) + t)), "element %zu is %g", i,
                  x[i]);
    }
    free(x);
}

static void *sums_there(void *comm)
{
    sums(comm, 24);
    return NULL;
}

/* Groups that share ranks, and that the ranks make in different orders: the messages of two groups
   must not be confused. */
static void groups(int rounds)
{
    for (int round = 0; round < rounds; round++) {
        tutti_comm_t *half, *pair = NULL, *back;
        pthread_t thread;
        double began = now_ms();

        OK(tutti_comm_split(tutti_world(), rank % 2, rank, &half));
        if (rank % 2 == 0)
            OK(tutti_comm_split(half, tutti_rank(half) / 2, 0, &pair));
        OK(tutti_comm_split(tutti_world(), 0, -rank, &back));
        if (rank == 0 && round == 0)
            printf("groups: %.1f ms for three\n", now_ms() - began);
        CHECK(tutti_rank(back) == size - 1 - rank, "%d", tutti_rank(back));
        CHECK(pthread_create(&thread, NULL, sums_there, half) == 0, "no thread");
        if (pair != NULL)
            sums(pair, 8);
        sums(back, 24);
        CHECK(pthread_join(thread, NULL) == 0, "no end");
        sums(tutti_world(), 4);
        OK(tutti_comm_free(half));
        OK(tutti_comm_free(pair));
        /* In the last round, `back` is left to tutti_finalize. */
        if (round < rounds - 1)
            OK(tutti_comm_free(back));
    }
}

/* If a rank ends a group, the other groups, and MPI, still work. */
static void aborted(void)
{
    tutti_comm_t *comm, *other;
    float *x = room(500000 * sizeof(*x));

    OK(tutti_comm_split(tutti_world(), 0, 0, &comm));
    OK(tutti_comm_split(tutti_world(), 0, 0, &other));
    for (size_t i = 0; i < 500000; i++)
        x[i] = 1;
    if (rank == size - 1) {
        usleep(100000);
        OK(tutti_abort(comm, "for the test"));
    } else {
        CHECK(tutti_allreduce(x, x, 500000, TUTTI_FLOAT32, TUTTI_SUM, comm) == TUTTI_ERR_PEER_LOST,
              "%s", tutti_last_error());
    }
    sums(other, 8);
    sums(tutti_world(), 4);
    free(x);
}

/* ---- killed ranks and others ---- */

static void many(int times)
{
    double began;
    float x;

    OK(tutti_barrier(tutti_world()));
    began = now_ms();
    for (int i = 0; i < times; i++) {
        x = (float)(rank + i % 7);
        OK(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, tutti_world()));
        CHECK(x == (float)(size * (size - 1) / 2 + size * (i % 7)), "%g", x);
    }
    if (rank == 0)
        printf("many: %.0f ms\n", now_ms() - began);
}

static void killed(int victim)
{
    char name[32];
    float x = 0;
    double began;

    snprintf(name, sizeof(name), "rank %d", victim);
    OK(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, tutti_world()));
    if (rank == victim) {
        /* After this time the other ranks are most probably in their next call. If not, they detect
           the death when they make this call. */
        usleep(200000);
        kill(getpid(), SIGKILL);
    }
    began = now_ms();
    CHECK(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, tutti_world()) ==
              TUTTI_ERR_PEER_LOST,
          "%s", tutti_last_error());
    CHECK(now_ms() - began < 50000, "%.0f ms", now_ms() - began);
    CHECK(strstr(tutti_last_error(), name) != NULL, "%s", tutti_last_error());
    CHECK(tutti_barrier(tutti_world()) == TUTTI_ERR_PEER_LOST, "%s", tutti_last_error());
}

/* This exit handler is registered before MPI starts, so it runs after the library's exit handler.
   During it the victim's other threads continue, and must report only the exit. */
static void stay_a_while(void)
{
    usleep(300000);
}

enum {
    IN_FLIGHT = 16,
    IN_FLIGHT_COUNT = 1 << 18
};

static void exited(int victim)
{
    float *x = calloc((size_t)IN_FLIGHT * IN_FLIGHT_COUNT, sizeof(*x));
    tutti_request_t *request[IN_FLIGHT];
    char name[32], want[32];

    CHECK(x != NULL, "no memory");
    snprintf(want, sizeof(want), "rank %d was lost", victim);
    for (int i = 0; i < IN_FLIGHT; i++) {
        snprintf(name, sizeof(name), "tensor %d", i);
        request[i] = NULL;
        tutti_allreduce_async(name, x + i * IN_FLIGHT_COUNT, x + i * IN_FLIGHT_COUNT,
                              IN_FLIGHT_COUNT, TUTTI_FLOAT32, TUTTI_SUM, tutti_world(), NULL,
                              &request[i]);
    }
    if (rank == victim) {
        tutti_wait(request[0], -1);
        exit(0);
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        tutti_status_t status = request[i] == NULL ? TUTTI_OK : tutti_wait(request[i], -1);

        CHECK(status == TUTTI_OK || status == TUTTI_ERR_PEER_LOST, "%s", tutti_last_error());
    }
    CHECK(tutti_barrier(tutti_world()) == TUTTI_ERR_PEER_LOST, "%s", tutti_last_error());
    CHECK(strstr(tutti_last_error(), want) != NULL, "%s", tutti_last_error());
    free(x);
}

/* The groups of even and of odd ranks: the group without the victim continues. */
static void killed_in_group(int victim)
{
    tutti_comm_t *comm;
    float x = 0;

    OK(tutti_comm_split(tutti_world(), rank % 2, 0, &comm));
    sums(comm, 4);
    OK(tutti_barrier(tutti_world()));
    if (rank == victim) {
        usleep(200000);
        kill(getpid(), SIGKILL);
    }
    CHECK(tutti_barrier(tutti_world()) == TUTTI_ERR_PEER_LOST, "%s", tutti_last_error());
    if (rank % 2 != victim % 2)
        sums(comm, 40);
    else
        CHECK(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm) == TUTTI_ERR_PEER_LOST,
              "%s", tutti_last_error());
}

static int refused(void)
{
    tutti_status_t status = tutti_init(NULL);

    CHECK(status != TUTTI_OK, "a world of %d", tutti_size(tutti_world()));
    CHECK(tutti_last_error()[0] != '\0', "no words");
    CHECK(tutti_world() == NULL, "a world all the same");
    printf("refused: %s: %s\n", tutti_strerror(status), tutti_last_error());
    return 0;
}

static void forked(void)
{
    int status = -1;
    pid_t child = fork();

    CHECK(child >= 0, "fork");
    if (child == 0) {
        OK(tutti_finalize());
        CHECK(tutti_init(NULL) == TUTTI_ERR_UNSUPPORTED, "a child used its parent's connections");
        CHECK(strstr(tutti_last_error(), "was forked after its parent") != NULL, "%s",
              tutti_last_error());
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child failed");
    data();
}

static void start(void)
{
    start_world();
    if (getenv("OMPI_COMM_WORLD_SIZE") != NULL)
        CHECK(size == atoi(getenv("OMPI_COMM_WORLD_SIZE")), "%d", size);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "data";
    int number = argc > 2 ? atoi(argv[2]) : 0, hosts;

    if (strcmp(what, "refused") == 0)
        return refused();
    if (strcmp(what, "exited") == 0)
        atexit(stay_a_while);
    start();
    if (strcmp(what, "many") == 0)
        many(number);
    else if (strcmp(what, "killed") == 0)
        killed(number);
    else if (strcmp(what, "exited") == 0)
        exited(number);
    else if (strcmp(what, "named") == 0)
        named(number);
    else if (strcmp(what, "passed") == 0)
        passed(number);
    else if (strcmp(what, "groups") == 0)
        groups(number);
    else if (strcmp(what, "groupkilled") == 0)
        killed_in_group(number);
    else if (strcmp(what, "aborted") == 0)
        aborted();
    else if (strcmp(what, "forked") == 0)
        forked();
    else
        data();
    if (strcmp(what, "twice") == 0) {
        OK(tutti_finalize());
        CHECK(tutti_world() == NULL, "a world after the end");
        start();
        data();
    }
    hosts = tutti_host_count(tutti_world());
    OK(tutti_finalize());
    printf("rank %d of %d on %d hosts: %s passed\n", rank, size, hosts, what);
    return 0;
}
