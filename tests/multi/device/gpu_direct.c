/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends device memory between hosts over a real MPI or UCX. A preloaded library makes this MPI or
 * UCX accept device memory. mpi_gpu_direct.sh, mpi_gpu_direct_ends.sh and ucx_gpu_direct.sh start
 * this program with pretended hosts.
 *
 *      gpu_direct works direct|staged     sums are correct; messages came from device memory, or
 *                                         none did
 *                 ... N                   how often all lanes are busy at once; default: twice; 0:
 *                                         also fewer sizes and fewer calls
 *      gpu_direct dies                    rank 1 dies during a call: the others get an error, and
 *                                         memory that the transport may still write is not freed
 *      gpu_direct left                    the same over MPI, if the thread that gets the error may
 *                                         not call MPI: the messages are left to the end
 */
#include <tutti/tutti.h>

#include "pretend/pretend.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 20000 /* elements */
#define LIMIT_MS 120000
#define PERIOD 101 /* the values repeat after so many elements */

typedef const tutti__device_ops_t *device_fn_t(void);
typedef void read_fn_t(void *dst, const void *device_src, size_t bytes);
typedef void write_fn_t(void *device_dst, const void *src, size_t bytes);
typedef void forbid_fn_t(int forbidden);
typedef unsigned counts_fn_t(int device, pretend_count_t what);
typedef void direct_counts_fn_t(unsigned *ret_sent, unsigned *ret_received);
typedef unsigned write_abandoned_fn_t(void);
typedef unsigned receiving_fn_t(void);
typedef unsigned waits_fn_t(void);

static const tutti__device_ops_t *ops;
static read_fn_t *read_device;
static write_fn_t *write_device;
static forbid_fn_t *forbid_alloc;
static counts_fn_t *counts;
static int rank, size, device;
static tutti_comm_t *comm; /* for the calls */
static char *in, *out;     /* device memory */

#define MUST(holds)                                                                                \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "rank %d, line %d: %s: %s\n", rank, __LINE__, #holds,                  \
                    tutti_last_error());                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void *find(void *handle, const char *name)
{
    void *found = dlsym(handle, name);

    MUST(found != NULL);
    return found;
}

static void open_device(void)
{
    char path[4200];
    void *handle, *memory;

    snprintf(path, sizeof(path), "%s/pretend.so", getenv("TUTTI_MODULE_DIR"));
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    MUST(handle != NULL);
    ops = ((device_fn_t *)find(handle, "pretend_device"))();
    read_device = (read_fn_t *)find(handle, "pretend_read");
    write_device = (write_fn_t *)find(handle, "pretend_write");
    forbid_alloc = (forbid_fn_t *)find(handle, "pretend_forbid_alloc");
    counts = (counts_fn_t *)find(handle, "pretend_counts");
    device = tutti_local_rank(tutti_world());
    MUST(ops->use(device) == TUTTI_OK);
    MUST(ops->alloc(MOST * sizeof(float), &memory) == TUTTI_OK);
    in = memory;
    MUST(ops->alloc(MOST * sizeof(float), &memory) == TUTTI_OK);
    out = memory;
}

/* ---- calls ---- */

static float value(int r, size_t i)
{
    return (float)((i * 7 + (size_t)r * 13) % PERIOD);
}

static void put(char *at, size_t count)
{
    static float data[MOST];

    for (size_t i = 0; i < count; i++)
        data[i] = value(rank, i);
    write_device(at, data, count * sizeof(float));
}

static float result(size_t i, tutti_op_t op)
{
    float want = value(0, i);

    for (int r = 1; r < size; r++)
        want = op == TUTTI_MAX && want > value(r, i) ? want
               : op == TUTTI_MAX                     ? value(r, i)
                                                     : want + value(r, i);
    return op == TUTTI_AVG ? want * (1.0f / (float)size) : want;
}

static void look(const char *at, size_t count, tutti_op_t op)
{
    static float data[MOST];
    float want[PERIOD];

    for (size_t i = 0; i < PERIOD; i++)
        want[i] = result(i, op);
    read_device(data, at, count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        if (data[i] != want[i % PERIOD])
            fprintf(stderr, "element %zu of %zu is %g, not %g\n", i, count, (double)data[i],
                    (double)want[i % PERIOD]);
        MUST(data[i] == want[i % PERIOD]);
    }
}

static void one(size_t count, tutti_op_t op, int in_place)
{
    char *to = in_place ? in : out;

    put(in, count);
    MUST(tutti_allreduce(in, to, count, TUTTI_FLOAT32, op, comm) == TUTTI_OK);
    look(to, count, op);
}

/* Several calls at once, which are fused; and_direct: make a direct call at the same time. */
static void several(size_t count, int and_direct)
{
    tutti_request_t *request[5];
    char name[16];

    put(in, 5 * count);
    for (size_t i = 0; i < 5; i++) {
        char *at = in + i * count * sizeof(float);

        snprintf(name, sizeof(name), "tensor %zu", i);
        MUST(tutti_allreduce_async(name, at, at, count, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL,
                                   &request[i]) == TUTTI_OK);
    }
    if (and_direct) {
        put(out, MOST);
        MUST(tutti_allreduce(out, out, MOST, TUTTI_FLOAT32, TUTTI_SUM, comm) == TUTTI_OK);
        look(out, MOST, TUTTI_SUM);
    }
    for (size_t i = 0; i < 5; i++)
        MUST(tutti_wait(request[i], -1) == TUTTI_OK);
    look(in, 5 * count, TUTTI_SUM);
}

/* Eight tensors; if they are not fused, all lanes are busy. */
static void crowd(void)
{
    enum {
        TENSORS = 8,
        COUNT = MOST / TENSORS
    };
    tutti_request_t *request[TENSORS];
    char name[16];

    put(in, MOST);
    for (size_t k = 0; k < TENSORS; k++) {
        size_t i = rank % 2 ? TENSORS - 1 - k : k;
        char *at = in + i * COUNT * sizeof(float);

        snprintf(name, sizeof(name), "tensor %zu", i);
        MUST(tutti_allreduce_async(name, at, at, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL,
                                   &request[i]) == TUTTI_OK);
    }
    for (size_t i = 0; i < TENSORS; i++)
        MUST(tutti_wait(request[i], -1) == TUTTI_OK);
    look(in, MOST, TUTTI_SUM);
}

/* The number of messages of device memory on all ranks; 0 without the shim. */
static unsigned all_messages(void)
{
    direct_counts_fn_t *shim = (direct_counts_fn_t *)dlsym(RTLD_DEFAULT, "gpu_direct_counts");
    uint32_t total;
    unsigned sent = 0, received = 0;

    if (shim != NULL)
        shim(&sent, &received);
    total = sent + received;
    MUST(tutti_allreduce(&total, &total, 1, TUTTI_UINT32, TUTTI_SUM, comm) == TUTTI_OK);
    return total;
}

/* A group has its own transport, slots and STAGE. */
static void work_in_part(int is_gpu_direct)
{
    unsigned before = all_messages();
    int world_rank = rank;

    MUST(tutti_comm_split(tutti_world(), 0, -rank, &comm) == TUTTI_OK);
    rank = tutti_rank(comm);
    one(MOST, TUTTI_SUM, 0);
    several(3000, 0);
    MUST((all_messages() > before) == is_gpu_direct);
    MUST(tutti_comm_free(comm) == TUTTI_OK);
    comm = tutti_world();
    rank = world_rank;
}

/* How often MPI has waited for NCCL's work on this rank. */
static unsigned waits(void)
{
    waits_fn_t *shim = (waits_fn_t *)dlsym(RTLD_DEFAULT, "gpu_direct_waits");

    return shim != NULL ? shim() : 0;
}

static int work(int is_gpu_direct, int crowds)
{
    static const size_t some[] = { 1, 2, 63, 1000, 4097, MOST };
    unsigned messages;
    size_t first = crowds > 0 ? 0 : 4;
    int calls = crowds > 0 ? 10 : 3;

    MUST(tutti_barrier(comm) == TUTTI_OK);
    forbid_alloc(1);
    one(777, TUTTI_MAX, 0); /* MAX: a device does not reduce it */
    MUST(all_messages() == 0);
    for (size_t i = first; i < sizeof(some) / sizeof(*some); i++) {
        one(some[i], TUTTI_SUM, 0);
        one(some[i], TUTTI_SUM, 1);
        one(some[i], TUTTI_MAX, 1);
        if ((size & (size - 1)) == 0)
            one(some[i], TUTTI_AVG, 0);
    }
    messages = all_messages();
    MUST((messages > 0) == is_gpu_direct);
    for (int i = 0; i < calls; i++)
        several(i % 2 ? 100 : i % 4 ? 4000 : 3000, i % 4 == 2);
    for (int i = 0; i < crowds; i++)
        crowd();
    MUST((all_messages() > messages) == is_gpu_direct);
    MUST(tutti_barrier(comm) == TUTTI_OK);
    forbid_alloc(0);
    work_in_part(is_gpu_direct);
    MUST(counts(device, PRETEND_FORBIDDEN) == 0);
    MUST(counts(device, PRETEND_SYNCS_IN_NCCL) == 0);
    MUST(counts(device, PRETEND_BLOCKING_COPIES) == 0);
    MUST(tutti_finalize() == TUTTI_OK);
    printf("rank %d: %u messages, %u waits\n", rank, messages, waits());
    return 0;
}

/* The file by which a rank reports that it receives into device memory. */
static void posted_name(int of, char *ret_name, size_t bytes)
{
    const char *nccl = getenv("TUTTI_TEST_PRETEND");

    MUST(nccl != NULL);
    snprintf(ret_name, bytes, "%s.posted%d", nccl, of);
}

static void say_posted(void)
{
    char name[4096];
    int file;

    posted_name(rank, name, sizeof(name));
    file = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    MUST(file >= 0);
    close(file);
}

/* Rank 1: die when all others have posted. */
static void die_after_others(void)
{
    char name[4096];

    for (int r = 0; r < size; r++) {
        if (r == rank)
            continue;
        posted_name(r, name, sizeof(name));
        for (int i = 0; i < LIMIT_MS && access(name, F_OK) != 0; i++)
            usleep(1000);
        MUST(access(name, F_OK) == 0);
    }
    kill(getpid(), SIGKILL);
}

/* Is a receive into device memory in flight on this rank? */
static int receives(void)
{
    return ((receiving_fn_t *)find(RTLD_DEFAULT, "gpu_direct_receiving"))() > 0;
}

/* In a thread, during a call that rank 1 does not make. */
static void *watch_posted(void *arg)
{
    for (int i = 0; i < LIMIT_MS && !receives(); i++)
        usleep(1000);
    say_posted();
    return arg;
}

static int die(void)
{
    write_abandoned_fn_t *late =
        (write_abandoned_fn_t *)find(RTLD_DEFAULT, "gpu_direct_write_abandoned");
    pthread_t watcher;

    for (int i = 0; i < 4; i++)
        one(MOST, TUTTI_SUM, 0);
    MUST(all_messages() > 0);
    if (rank == 1)
        die_after_others();
    MUST(pthread_create(&watcher, NULL, watch_posted, NULL) == 0);
    MUST(tutti_allreduce(in, out, MOST, TUTTI_FLOAT32, TUTTI_SUM, comm) == TUTTI_ERR_PEER_LOST);
    MUST(pthread_join(watcher, NULL) == 0);
    tutti_finalize();
    printf("rank %d: %u late\n", rank, late());
    fflush(stdout);
    _exit(0); /* MPI_Finalize would wait for the dead rank */
}

/* An application that uses MPI from one thread at a time. */
static void begin_serialized(void)
{
    typedef int init_fn_t(int *argc, char ***argv, int required, int *ret_provided);
    enum {
        SERIALIZED = 2
    }; /* Open MPI's MPI_THREAD_SERIALIZED */
    int provided;

    MUST(((init_fn_t *)find(RTLD_DEFAULT, "MPI_Init_thread"))(NULL, NULL, SERIALIZED, &provided) ==
         0);
    MUST(provided == SERIALIZED);
}

static int be_left(void)
{
    write_abandoned_fn_t *late =
        (write_abandoned_fn_t *)find(RTLD_DEFAULT, "gpu_direct_write_abandoned");
    tutti_request_t *request;
    int done = 0;

    one(MOST, TUTTI_SUM, 0);
    MUST(all_messages() > 0);
    MUST(tutti_allreduce_async("x", in, out, MOST, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL,
                               &request) == TUTTI_OK);
    /* The call begins, and makes no further progress, because rank 1 does nothing. */
    for (int i = 0; rank != 1 && i < LIMIT_MS && (i < 200 || !receives()); i++) {
        MUST(tutti_test(request, &done) == TUTTI_OK && !done);
        usleep(1000);
    }
    if (rank == 1)
        die_after_others();
    say_posted();
    usleep(1500000); /* Tutti's thread is told of the death */
    MUST(tutti_wait(request, -1) == TUTTI_ERR_PEER_LOST);
    tutti_finalize();
    printf("rank %d: %u late\n", rank, late());
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "left") == 0)
        begin_serialized();
    if (argc < 2 || tutti_init(NULL) != TUTTI_OK) {
        fprintf(stderr, "%s\n", tutti_last_error());
        return 1;
    }
    comm = tutti_world();
    rank = tutti_rank(comm);
    size = tutti_size(comm);
    open_device();
    if (strcmp(argv[1], "left") == 0)
        return be_left();
    if (strcmp(argv[1], "dies") == 0)
        return die();
    return work(argc > 2 && strcmp(argv[2], "direct") == 0, argc > 3 ? atoi(argv[3]) : 2);
}
