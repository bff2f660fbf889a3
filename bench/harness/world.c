/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of a bench program.
 *
 * If MPI is available, the harness itself (barriers, gathering of samples) uses MPI and not Tutti.
 * So if a barrier's effect on the caches favours one contestant, it favours the peer.
 */
#include "harness/device.h"
#include "harness/peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t bench_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void say(const bench_world_t *world, const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", world->rank, what, tutti_last_error());
}

#ifdef HAVE_MPI

static const int mpi_levels[] = { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                                  MPI_THREAD_MULTIPLE };

/* Has mpirun, mpiexec or srun started this process? */
static int launched(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (getenv(names[i]) != NULL)
            return 1;
    }
    return 0;
}

static void open_mpi(const bench_options_t *options, int wanted, bench_world_t *world)
{
    int got;

    if (!launched() && !wanted)
        return;
    MPI_Init_thread(NULL, NULL, mpi_levels[options->mpi_level], &got);
    MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world->size);
    world->has_mpi = 1;
}

const char *bench_mpi_version(char *text, size_t bytes)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;

    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    snprintf(text, bytes, "%s", version);
    return text;
}

#else

static void open_mpi(const bench_options_t *options, int wanted, bench_world_t *world)
{
    (void)options;
    (void)wanted;
    (void)world;
}

const char *bench_mpi_version(char *text, size_t bytes)
{
    snprintf(text, bytes, "none");
    return text;
}

#endif

void bench_world_open(const bench_options_t *options, int wants_mpi, bench_world_t *ret_world)
{
    tutti_options_t tutti_options = TUTTI_OPTIONS_INIT;
    tutti_status_t status;

    *ret_world = (bench_world_t){ .size = 1 };
    open_mpi(options, wants_mpi, ret_world);
    if (options->barrier_mpi && !ret_world->has_mpi) {
        if (bench_speaks())
            fprintf(stderr, "%s: --barrier mpi: MPI does not run\n", program_invocation_short_name);
        exit(2);
    }
#ifdef HAVE_MPI
    MPI_Comm comm = MPI_COMM_WORLD;

    if (ret_world->has_mpi)
        tutti_options.mpi_comm = &comm;
#endif
    if (options->device != NULL)
        bench_device_ask(ret_world, options->device);
    status = tutti_init(&tutti_options);
    if (status != TUTTI_OK)
        bench_die(ret_world, "tutti_init");
    ret_world->comm = tutti_world();
    ret_world->rank = tutti_rank(ret_world->comm);
    ret_world->size = tutti_size(ret_world->comm);
    ret_world->barrier_tutti = options->barrier_tutti || !ret_world->has_mpi;
    if (options->device != NULL)
        bench_device_open(ret_world, options->device);
}

void bench_world_close(bench_world_t *world)
{
    bench_device_close(world);
    tutti_finalize();
#ifdef HAVE_UCC
    bench_ucc_close();
#endif
#ifdef HAVE_MPI
    if (world->has_mpi)
        MPI_Finalize();
#endif
    world->comm = NULL;
}

/* Without MPI, tutti_abort ends the ranks that wait for this rank. */
void bench_stop(const bench_world_t *world)
{
#ifdef HAVE_MPI
    if (world->has_mpi)
        MPI_Abort(MPI_COMM_WORLD, 1);
#endif
    if (world->comm != NULL)
        tutti_abort(world->comm, "the benchmark failed");
    exit(1);
}

void bench_die(const bench_world_t *world, const char *what)
{
    say(world, what);
    bench_stop(world);
}

int bench_check(const bench_world_t *world, tutti_status_t status, const char *what)
{
    if (status == TUTTI_OK)
        return 0;
    say(world, what);
    return -1;
}

int bench_check_wait(const bench_world_t *world, tutti_status_t status, tutti_request_t *request,
                     const char *what)
{
    if (status == TUTTI_OK)
        status = tutti_wait(request, -1);
    return bench_check(world, status, what);
}

void bench_barrier(const bench_world_t *world)
{
#ifdef HAVE_MPI
    if (!world->barrier_tutti) {
        MPI_Barrier(MPI_COMM_WORLD);
        return;
    }
#endif
    if (tutti_barrier(world->comm) != TUTTI_OK)
        bench_die(world, "tutti_barrier");
}

/* The harness's own reductions, in place. */
static void reduce(const bench_world_t *world, double *values, size_t count, tutti_op_t op)
{
    size_t piece = (size_t)1 << 20;

    for (size_t done = 0; done < count; done += piece) {
        size_t now = count - done < piece ? count - done : piece;

#ifdef HAVE_MPI
        if (world->has_mpi) {
            MPI_Allreduce(MPI_IN_PLACE, values + done, (int)now, MPI_DOUBLE,
                          op == TUTTI_MAX ? MPI_MAX : MPI_SUM, MPI_COMM_WORLD);
            continue;
        }
#endif
        if (tutti_allreduce(values + done, values + done, now, TUTTI_FLOAT64, op, world->comm) !=
            TUTTI_OK)
            bench_die(world, "gathering the samples");
    }
}

void bench_max(const bench_world_t *world, double *values, size_t count)
{
    reduce(world, values, count, TUTTI_MAX);
}

void bench_sum(const bench_world_t *world, double *values, size_t count)
{
    reduce(world, values, count, TUTTI_SUM);
}

/* In two halves, since a double holds 53 bits of an integer. */
uint64_t bench_same(const bench_world_t *world, uint64_t value)
{
    double halves[2] = { 0.0, 0.0 };

    if (world->rank == 0) {
        halves[0] = (double)(value & 0xffffffffu);
        halves[1] = (double)(value >> 32);
    }
    bench_sum(world, halves, 2);
    return ((uint64_t)halves[1] << 32) | (uint64_t)halves[0];
}

int bench_agree(const bench_world_t *world, uint64_t value)
{
    double differs = value != bench_same(world, value);

    bench_sum(world, &differs, 1);
    return differs == 0.0;
}
