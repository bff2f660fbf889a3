/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measuring loop and the table.
 *
 * For each size, R rounds; in each round every contestant has one block of iterations, in an order
 * drawn anew that is the same on all ranks. So drift of the machine hits all alike, and a ratio can
 * be formed in each round, whose spread says how far it can be trusted.
 *
 *      round 1:  [Tutti block] [MPI block]      round 2:  [MPI block] [Tutti block]   ...
 *
 * An iteration is timed from before the call until after it; then comes a barrier, not timed. Each
 * rank keeps its samples; when a size is done, the slowest rank's time is taken for each iteration.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_CONTESTANTS = 3,
    SMALL_BYTES = 8192 /* OSU's: fewer iterations above */
};

typedef struct {
    const bench_program_t *program;
    bench_options_t options;
    bench_world_t world;
    const bench_contestant_t *contestants[MAX_CONTESTANTS]; /* [0] is Tutti */
    int count;
    void *sendbuf, *recvbuf; /* equal: in place */
    uint64_t random;
} bench_t;

/* What one contestant did at one size: microseconds, [rounds x block]. */
typedef struct {
    double *own;     /* this rank's */
    double *slowest; /* over all ranks; own at first */
    int ok;          /* results were right, on all ranks */
} samples_t;

typedef struct {
    size_t bytes;
    long block; /* iterations */
    long skip;  /* before each block */
    samples_t samples[MAX_CONTESTANTS];
} round_trip_t;

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* xorshift64: equal on all ranks, since the seed is. */
static uint64_t draw(bench_t *bench, uint64_t below)
{
    bench->random ^= bench->random << 13;
    bench->random ^= bench->random >> 7;
    bench->random ^= bench->random << 17;
    return bench->random % below;
}

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    if (memory == NULL) {
        fprintf(stderr, "out of memory: %zu times %zu bytes\n", count, bytes);
        exit(1);
    }
    return memory;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The value that the share `at` of a sorted list lies below. */
static double quantile(const double *sorted, long count, double at)
{
    double place = at * (double)(count - 1);
    long low = (long)place;
    long high = low + 1 < count ? low + 1 : low;

    return sorted[low] + (sorted[high] - sorted[low]) * (place - (double)low);
}

static double median(const double *values, long count)
{
    double *sorted = allocate((size_t)count, sizeof(double));
    double middle;

    memcpy(sorted, values, (size_t)count * sizeof(double));
    qsort(sorted, (size_t)count, sizeof(double), compare);
    middle = quantile(sorted, count, 0.5);
    free(sorted);
    return middle;
}

static double mean(const double *values, long count)
{
    double sum = 0.0;

    for (long i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

static bench_call_t make_call(const bench_t *bench, size_t bytes)
{
    return (bench_call_t){
        .sendbuf = bench->sendbuf,
        .recvbuf = bench->recvbuf,
        .count = bytes / bench->options.type->bytes,
        .type = bench->options.type,
        .world = &bench->world,
    };
}

static void run(const bench_t *bench, int who, const bench_call_t *call)
{
    if (bench->contestants[who]->run(call) == 0)
        return;
    fprintf(stderr, "rank %d: %s failed with %zu bytes\n", bench->world.rank,
            bench->contestants[who]->name, call->count * call->type->bytes);
    bench_stop(&bench->world);
}

/* One call that nobody times, into a buffer of rubbish; every element is looked at. */
static void validate(const bench_t *bench, int who, const bench_call_t *call, samples_t *samples)
{
    size_t wrong;

    memset(call->recvbuf, 0xa5, call->count * call->type->bytes);
    bench->program->fill(call);
    bench_barrier(&bench->world);
    run(bench, who, call);
    wrong = bench->program->count_wrong(call);
    if (wrong > 0)
        fprintf(stderr, "rank %d: %s: %zu of %zu elements are wrong\n", bench->world.rank,
                bench->contestants[who]->name, wrong, call->count);
    if (bench_sum(&bench->world, (double)wrong) > 0.0)
        samples->ok = 0;
}

static void validate_all(const bench_t *bench, round_trip_t *trip, const bench_call_t *call)
{
    for (int who = 0; who < bench->count && bench->options.validate; who++)
        validate(bench, who, call, &trip->samples[who]);
}

/* In place, a sum would grow with each iteration until it is infinite; zeros stay zeros. */
static void fill_for_timing(const bench_t *bench, const bench_call_t *call)
{
    if (call->sendbuf == call->recvbuf)
        memset(call->recvbuf, 0, call->count * call->type->bytes);
    else
        bench->program->fill(call);
}

static void warm_up(const bench_t *bench, int who, const bench_call_t *call, long iterations)
{
    for (long i = 0; i < iterations; i++) {
        run(bench, who, call);
        bench_barrier(&bench->world);
    }
}

/* Calls without a barrier between them: the clock is read once for the whole block, since reading
   it takes a good part of a small call. Each iteration counts as the block's mean. */
static void time_stream(const bench_t *bench, int who, const bench_call_t *call, long iterations,
                        double *ret_us)
{
    uint64_t start = now_ns();
    double mean_us;

    for (long i = 0; i < iterations; i++)
        run(bench, who, call);
    mean_us = (double)(now_ns() - start) * 1e-3 / (double)iterations;
    for (long i = 0; i < iterations; i++)
        ret_us[i] = mean_us;
}

static void time_block(const bench_t *bench, int who, const bench_call_t *call, long skip,
                       long iterations, double *ret_us)
{
    bench_barrier(&bench->world);
    warm_up(bench, who, call, skip);
    if (bench->options.back_to_back) {
        time_stream(bench, who, call, iterations, ret_us);
        return;
    }
    for (long i = 0; i < iterations; i++) {
        uint64_t start = now_ns();

        run(bench, who, call);
        ret_us[i] = (double)(now_ns() - start) * 1e-3;
        bench_barrier(&bench->world);
    }
}

static void shuffle(bench_t *bench, int *order)
{
    for (int i = 0; i < bench->count; i++)
        order[i] = i;
    for (int i = bench->count - 1; i > 0; i--) {
        int j = (int)draw(bench, (uint64_t)i + 1);
        int kept = order[i];

        order[i] = order[j];
        order[j] = kept;
    }
}

/* Everything about one size. */
static void measure(bench_t *bench, round_trip_t *trip)
{
    bench_call_t call = make_call(bench, trip->bytes);
    long total = bench->options.rounds * trip->block;
    int order[MAX_CONTESTANTS];

    validate_all(bench, trip, &call);
    fill_for_timing(bench, &call);
    for (int who = 0; who < bench->count; who++)
        warm_up(bench, who, &call, trip->skip);
    for (long round = 0; round < bench->options.rounds; round++) {
        shuffle(bench, order);
        for (int i = 0; i < bench->count; i++)
            time_block(bench, order[i], &call, 1 + trip->skip / bench->options.rounds, trip->block,
                       trip->samples[order[i]].own + round * trip->block);
    }
    validate_all(bench, trip, &call);
    for (int who = 0; who < bench->count; who++) {
        samples_t *samples = &trip->samples[who];

        memcpy(samples->slowest, samples->own, (size_t)total * sizeof(double));
        bench_max(&bench->world, samples->slowest, (size_t)total);
    }
}

/* --- the table --- */

static int is_long(const bench_t *bench)
{
    return bench->count > 1 || bench->options.stats;
}

static void print_command(int argc, char **argv)
{
    printf("# Command:");
    for (int i = 0; i < argc; i++)
        printf(" %s", argv[i]);
    printf("\n");
}

static void print_conditions(const bench_t *bench, int argc, char **argv)
{
    const bench_options_t *options = &bench->options;
    char host[256] = "";
    char mpi[256];

    gethostname(host, sizeof(host) - 1);
    print_command(argc, argv);
    printf("# Host: %s, %ld processors; ranks %d on %d host(s); MPI: %s\n", host,
           sysconf(_SC_NPROCESSORS_ONLN), bench->world.size, tutti_host_count(bench->world.comm),
           bench_mpi_version(mpi, sizeof(mpi)));
    printf("# Buffers %s, %s; barrier %s%s; rounds %ld, seed %llu\n",
           options->shared ? "shared" : "private", options->in_place ? "in place" : "out of place",
           bench->world.barrier_tutti ? "tutti" : "mpi",
           options->back_to_back ? ", between blocks only" : "", options->rounds,
           (unsigned long long)options->seed);
}

static void print_head(const bench_t *bench, int argc, char **argv)
{
    const bench_options_t *options = &bench->options;
    char heading[64];

    printf("\n# Tutti %s Latency Test v%d.%d.%d\n", bench->program->title, TUTTI_VERSION_MAJOR,
           TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
    printf("# Datatype: %s.\n",
           options->type->mpi_name != NULL ? options->type->mpi_name : options->type->name);
    if (is_long(bench))
        print_conditions(bench, argc, argv);
    printf("%-10s%20s", "# Size", "Avg Latency(us)");
    if (options->full)
        printf("%20s%20s%12s", "Min Latency(us)", "Max Latency(us)", "Iterations");
    if (options->validate)
        printf("%20s", "Validation");
    if (is_long(bench))
        printf("%14s%14s", "Median(us)", "Bus BW(GB/s)");
    for (int who = 1; who < bench->count; who++) {
        const char *name = bench->contestants[who]->name;

        snprintf(heading, sizeof(heading), "%s Med(us)", name);
        printf("%16s", heading);
        snprintf(heading, sizeof(heading), "%s/Tutti", name);
        printf("%13s%9s%9s", heading, "P10", "P90");
        if (bench->contestants[who] == bench->program->async)
            printf("%12s", "Extra(us)");
    }
    printf("\n");
    fflush(stdout);
}

/*
 * Another contestant's median, and how it compares: quotient and difference are formed in each
 * round, and the middle of those is printed, with the spread of the quotients. Tried: the quotient
 * of the medians over all rounds; with a drift in mid-run it was 0.91 for two that are the same.
 */
static void print_other(const bench_t *bench, const round_trip_t *trip, int who)
{
    const double *ours = trip->samples[0].slowest;
    const double *theirs = trip->samples[who].slowest;
    long block = trip->block;
    long rounds = bench->options.rounds;
    double *ratios = allocate((size_t)rounds, sizeof(double));
    double *extras = allocate((size_t)rounds, sizeof(double));

    for (long i = 0; i < rounds; i++) {
        double our_us = median(ours + i * block, block);
        double their_us = median(theirs + i * block, block);

        ratios[i] = their_us / our_us;
        extras[i] = their_us - our_us;
    }
    qsort(ratios, (size_t)rounds, sizeof(double), compare);
    printf("%16.3f%13.3f%9.3f%9.3f", median(theirs, rounds * block), quantile(ratios, rounds, 0.5),
           quantile(ratios, rounds, 0.1), quantile(ratios, rounds, 0.9));
    if (bench->contestants[who] == bench->program->async)
        printf("%12.3f", median(extras, rounds));
    free(extras);
    free(ratios);
}

/* OSU's three are of the ranks' own averages; ours, behind them, of the slowest rank's times. */
static void report(const bench_t *bench, const round_trip_t *trip)
{
    const bench_world_t *world = &bench->world;
    const bench_options_t *options = &bench->options;
    long total = options->rounds * trip->block;
    double own_us = mean(trip->samples[0].own, total);
    double avg_us = bench_sum(world, own_us) / world->size;
    double ends[2] = { -own_us, own_us };
    double tutti_us = median(trip->samples[0].slowest, total);

    bench_max(world, ends, 2);
    if (world->rank != 0)
        return;
    printf("%-10zu%20.2f", trip->bytes, avg_us);
    if (options->full)
        printf("%20.2f%20.2f%12lu", -ends[0], ends[1], (unsigned long)total);
    if (options->validate)
        printf("%20s", trip->samples[0].ok ? "Pass" : "Fail");
    if (is_long(bench))
        printf("%14.3f%14.3f", tutti_us,
               bench->program->bus_factor(world->size) * (double)trip->bytes / tutti_us * 1e-3);
    for (int who = 1; who < bench->count; who++)
        print_other(bench, trip, who);
    printf("\n");
    fflush(stdout);
}

/* --- the program --- */

static void open_buffers(bench_t *bench)
{
    size_t bytes = bench->options.max_bytes;
    void **both[2] = { &bench->recvbuf, &bench->sendbuf };

    for (int i = 0; i < (bench->options.in_place ? 1 : 2); i++) {
        if (bench->options.shared) {
            if (tutti_mem_alloc(bench->world.comm, bytes, both[i]) != TUTTI_OK)
                bench_die(&bench->world, "tutti_mem_alloc");
        } else if (posix_memalign(both[i], 4096, bytes) != 0) {
            fprintf(stderr, "rank %d: no memory for %zu bytes\n", bench->world.rank, bytes);
            bench_stop(&bench->world);
        }
        memset(*both[i], 0, bytes);
    }
    if (bench->options.in_place)
        bench->sendbuf = bench->recvbuf;
}

static void close_buffers(bench_t *bench)
{
    void *both[2] = { bench->recvbuf, bench->sendbuf };

    for (int i = 0; i < (bench->options.in_place ? 1 : 2); i++) {
        if (bench->options.shared)
            tutti_mem_free(bench->world.comm, both[i]);
        else
            free(both[i]);
    }
}

static round_trip_t open_trip(const bench_t *bench, size_t bytes)
{
    const bench_options_t *options = &bench->options;
    long iterations = bytes <= SMALL_BYTES ? 1000 : 100;
    long skip = bytes <= SMALL_BYTES ? 100 : 10;
    round_trip_t trip = { .bytes = bytes };

    if (options->iterations >= 0)
        iterations = options->iterations;
    trip.skip = options->skip >= 0 ? options->skip : skip;
    trip.block = (iterations + options->rounds - 1) / options->rounds;
    for (int who = 0; who < bench->count; who++) {
        size_t total = (size_t)(options->rounds * trip.block);

        trip.samples[who].own = allocate(total, sizeof(double));
        trip.samples[who].slowest = allocate(total, sizeof(double));
        trip.samples[who].ok = 1;
    }
    return trip;
}

/* Frees it; were all results right? */
static int close_trip(const bench_t *bench, round_trip_t *trip)
{
    int ok = 1;

    for (int who = 0; who < bench->count; who++) {
        free(trip->samples[who].own);
        free(trip->samples[who].slowest);
        ok = ok && trip->samples[who].ok;
    }
    return ok;
}

/* Doubles the size from the least to the largest. A size is cut to whole elements. */
static int sweep(bench_t *bench)
{
    size_t element = bench->options.type->bytes;
    size_t first = bench->options.min_bytes;
    int ok = 1;

    for (size_t bytes = first > element ? first : element; bytes <= bench->options.max_bytes && ok;
         bytes *= 2) {
        round_trip_t trip = open_trip(bench, bytes / element * element);

        measure(bench, &trip);
        report(bench, &trip);
        ok = close_trip(bench, &trip);
        if (!ok && bench->world.rank == 0)
            fprintf(stderr, "DATA VALIDATION ERROR on message size %zu.\n", trip.bytes);
    }
    return ok;
}

static void choose_contestants(bench_t *bench)
{
    bench->contestants[bench->count++] = bench->program->tutti;
    if (bench->options.async)
        bench->contestants[bench->count++] = bench->program->async;
    if (bench->options.peer_mpi)
        bench->contestants[bench->count++] = bench->program->mpi;
}

static void settle_options(bench_t *bench)
{
    bench_options_t *options = &bench->options;

    if (options->error[0] == '\0' && options->peer_mpi && bench->program->mpi == NULL)
        snprintf(options->error, sizeof(options->error), "--peer mpi: built without MPI");
    if (options->error[0] == '\0' && options->async && bench->program->async == NULL)
        snprintf(options->error, sizeof(options->error), "--async: there is no such call");
    if (options->seed == 0)
        options->seed = now_ns() | 1;
}

/* --help, --version, and flags that make no sense: rank 0 speaks, if ranks there are. */
static int answer_only(const bench_t *bench, const char *name)
{
    const bench_options_t *options = &bench->options;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    if (!options->help && !options->version && options->error[0] == '\0')
        return 0;
    if (rank == NULL)
        rank = getenv("PMI_RANK");
    if (rank != NULL && strcmp(rank, "0") != 0)
        return 1;
    if (options->error[0] != '\0')
        fprintf(stderr, "%s: %s\n", name, options->error);
    else if (options->help)
        bench_usage(name, bench->program);
    else
        printf("# Tutti %s Latency Test v%d.%d.%d\n", bench->program->title, TUTTI_VERSION_MAJOR,
               TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
    return 1;
}

int bench_main(int argc, char **argv, const bench_program_t *program)
{
    bench_t bench = { .program = program };
    bench_options_t *options = &bench.options;
    int ok;

    bench_parse(argc, argv, options);
    settle_options(&bench);
    if (answer_only(&bench, argv[0]))
        return options->error[0] != '\0';
    bench_world_open(options, &bench.world);
    choose_contestants(&bench);
    options->seed = bench_same(&bench.world, options->seed);
    bench.random = options->seed;
    if (options->max_bytes > options->memory_bytes) {
        if (bench.world.rank == 0)
            fprintf(stderr, "Warning! Limiting max message size to: %zu\n", options->memory_bytes);
        options->max_bytes = options->memory_bytes;
    }
    open_buffers(&bench);
    if (bench.world.rank == 0)
        print_head(&bench, argc, argv);
    ok = sweep(&bench);
    bench_barrier(&bench.world);
    close_buffers(&bench);
    bench_world_close(&bench.world);
    return !ok;
}
