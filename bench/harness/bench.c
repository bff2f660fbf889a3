/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program's main: flags, ranks, the sweep over sizes, the output.
 */
#include "harness/device.h"
#include "harness/peers.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    bench_t bench;
    bench_row_t *rows; /* rank 0: the measurements so far */
    size_t nrows;
    FILE *csv;
    int table, draws;
} run_t;

static void print_version(const bench_program_t *program)
{
    printf("# Tutti %s Latency Test v%d.%d.%d\n", program->title, TUTTI_VERSION_MAJOR,
           TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
}

/* --help, --version and invalid flags: only rank 0 prints. */
static int answer_only(const bench_t *bench, const char *name)
{
    const bench_options_t *options = &bench->options;

    if (!options->help && !options->version && options->error[0] == '\0')
        return 0;
    if (!bench_speaks())
        return 1;
    if (options->error[0] != '\0')
        fprintf(stderr, "%s: %s\n", name, options->error);
    else if (options->help)
        bench_usage(name, bench->program);
    else
        print_version(bench->program);
    return 1;
}

static uint64_t least_bytes(const bench_options_t *options)
{
    size_t element = options->type->bytes;

    return options->min_bytes > element ? options->min_bytes : element;
}

/* Refuse options that leave no size, or that this build does not support. */
static void settle_options(bench_t *bench)
{
    bench_options_t *options = &bench->options;
    uint64_t most =
        options->max_bytes < options->memory_bytes ? options->max_bytes : options->memory_bytes;

    if (options->seed == 0)
        options->seed = bench_now_ns() | 1;
    if (options->error[0] != '\0')
        return;
    if (least_bytes(options) > most)
        bench_complain(options, "-m: no size from %llu to %llu bytes",
                       (unsigned long long)least_bytes(options), (unsigned long long)most);
#ifndef HAVE_JANSSON
    if (options->json != NULL)
        bench_complain(options, "--json: built without jansson");
    if (options->compare != NULL)
        bench_complain(options, "--compare: built without jansson");
#endif
}

void bench_add(bench_t *bench, const bench_contestant_t *contestant, int align, int against)
{
    const bench_align_t *place = &bench->options.aligns[align];
    char *name = bench->names[bench->count];
    size_t room = sizeof(bench->names[0]);

    if (align == 0)
        snprintf(name, room, "%s", contestant->name);
    else if (place->offset == 0)
        snprintf(name, room, "%s@%llu", contestant->name, (unsigned long long)place->bytes);
    else
        snprintf(name, room, "%s@%llu+%llu", contestant->name, (unsigned long long)place->bytes,
                 (unsigned long long)place->offset);
    bench->contestants[bench->count] = contestant;
    bench->align[bench->count] = align;
    bench->against[bench->count++] = against;
}

/* A ratio compares a contestant with Tutti. A peer is compared with Tutti at the peer's own place
   of --align. Tutti at a further place is compared with Tutti at the first place. */
static void choose_contestants(bench_t *bench)
{
    const bench_contestant_t *all = bench->program->contestants;
    const bench_options_t *options = &bench->options;

    for (int align = 0; align < options->naligns; align++)
        bench_add(bench, &all[0], align, 0);
    for (int i = 0; i < options->npeers; i++)
        for (int align = 0; align < options->naligns; align++)
            bench_add(bench, &all[options->peers[i]], align, align);
}

static int has_peer(const bench_t *bench, const char *flag)
{
    for (int i = 1; i < bench->count; i++) {
        const char *its = bench->contestants[i]->flag;

        if (its != NULL && strcmp(its, flag) == 0)
            return 1;
    }
    return 0;
}

static int wants_mpi(const bench_t *bench)
{
    return has_peer(bench, "mpi") || has_peer(bench, "naive") || has_peer(bench, "ucc");
}

/* Does MPI not support device memory? Only a running MPI can report this. */
static int mpi_cannot(const bench_t *bench)
{
    if (bench->world.device == NULL || !has_peer(bench, "mpi") ||
        bench_mpi_takes(bench->options.device))
        return 0;
    fprintf(stderr,
            "%s: --peer mpi: this MPI does not report that it takes %s memory; leave it out\n",
            bench->program->name, bench->options.device);
    return 1;
}

/* Open, test and read files, on rank 0 only. 0: failed. */
static int open_files(run_t *run)
{
    const bench_t *bench = &run->bench;
    const bench_options_t *options = &bench->options;
    char text[400];

    if (!bench_can_write(bench, "--json", options->json) ||
        !bench_can_write(bench, "--plot", options->plot))
        return 0;
    if (options->compare != NULL && bench_compare_missing(bench, text, sizeof(text)) != NULL) {
        fprintf(stderr, "%s: %s\n", bench->program->name, text);
        return 0;
    }
    if (!bench_csv_open(bench, &run->csv))
        return 0;
    run->draws = bench_plot_begin(bench);
    run->table = run->csv != stdout && (options->json == NULL || strcmp(options->json, "-") != 0);
    return 1;
}

/* Open the files and print the heads, on rank 0. Returns 0 on all ranks if rank 0 has failed. */
static int begin_output(run_t *run)
{
    int can = 1;

    if (run->bench.world.rank == 0)
        can = !mpi_cannot(&run->bench) && open_files(run);
    if (!bench_same(&run->bench.world, (uint64_t)can))
        return 0;
    if (run->table)
        bench_table_head(&run->bench);
    if (run->csv != NULL)
        bench_csv_head(&run->bench, run->csv);
    return 1;
}

static void put_row(run_t *run, bench_row_t row)
{
    if (run->bench.world.rank != 0)
        return;
    if (run->table)
        bench_table_row(&run->bench, &row);
    if (run->csv != NULL)
        bench_csv_row(&run->bench, &row, run->csv);
    run->rows = realloc(run->rows, (run->nrows + 1) * sizeof(*run->rows));
    if (run->rows == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    run->rows[run->nrows++] = row;
}

/* On rank 0, after MPI has ended, because this function starts gnuplot. */
static int end_output(run_t *run)
{
    int ok = bench_csv_close(&run->bench, run->csv);

    if (run->draws && run->nrows > 0)
        ok = bench_plot_write(&run->bench, run->rows, run->nrows) == 0 && ok;
    for (size_t i = 0; i < run->nrows; i++)
        bench_row_free(&run->bench, &run->rows[i]);
    free(run->rows);
    return ok;
}

/* On rank 0, before MPI has ended, because this function needs MPI's version. */
static int judge(const run_t *run)
{
    const bench_options_t *options = &run->bench.options;
    int ok = 1;

    /* Compare first, because --json may replace the old file. */
    if (options->compare != NULL)
        ok = bench_compare(&run->bench, run->rows, run->nrows) == 0;
    if (options->json != NULL)
        ok = bench_json_write(&run->bench, run->rows, run->nrows) == 0 && ok;
    return ok;
}

static int measure_size(run_t *run, size_t bytes)
{
    bench_trip_t trip = bench_trip_open(&run->bench, bytes);
    int ok = 1;

    bench_measure(&run->bench, &trip);
    put_row(run, bench_row_make(&run->bench, &trip));
    for (int who = 0; who < run->bench.count; who++)
        ok = ok && trip.samples[who].right;
    bench_trip_close(&run->bench, &trip);
    if (!ok && run->bench.world.rank == 0)
        fprintf(stderr, "DATA VALIDATION ERROR on message size %zu.\n", bytes);
    return ok;
}

/* The sizes are the smallest one times 1, 2, 4 and so on, each rounded down to whole elements. */
int bench_size(const bench_t *bench, size_t index, size_t *ret_bytes)
{
    const bench_options_t *options = &bench->options;
    uint64_t least = least_bytes(options);

    *ret_bytes = 0;
    if (bench->program->collective->recv == BENCH_NOTHING)
        return index == 0;
    if (index >= 64 || least > options->max_bytes >> index)
        return 0;
    *ret_bytes = (size_t)(least << index) / options->type->bytes * options->type->bytes;
    return 1;
}

static int sweep(run_t *run)
{
    size_t bytes;
    int ok = 1;

    for (size_t i = 0; ok && bench_size(&run->bench, i, &bytes); i++)
        ok = measure_size(run, bytes);
    return ok;
}

static void open_bench(bench_t *bench)
{
    bench_options_t *options = &bench->options;

    bench_world_open(options, wants_mpi(bench), &bench->world);
    if (has_peer(bench, "nccl"))
        bench_nccl_open(&bench->world);
    options->seed = bench_same(&bench->world, options->seed);
    bench->random = options->seed;
    if (options->max_bytes > options->memory_bytes) {
        if (bench->world.rank == 0)
            fprintf(stderr, "Warning! Limiting max message size to: %llu\n",
                    (unsigned long long)options->memory_bytes);
        options->max_bytes = options->memory_bytes;
    }
    bench_buffers_open(bench);
    bench_load_start(&bench->world, options->load);
    bench->line_us = bench_is_long(bench) ? bench_line_us(bench) : -1.0;
}

int bench_main(int argc, char **argv, const bench_program_t *program)
{
    run_t run = { .bench = { .program = program, .argc = argc, .argv = argv } };
    bench_t *bench = &run.bench;
    double failed;
    int ok;

    bench_parse(argc, argv, program, &bench->options);
    settle_options(bench);
    if (answer_only(bench, argv[0]))
        return bench->options.error[0] != '\0' ? 2 : 0;
    choose_contestants(bench);
    open_bench(bench);
    ok = begin_output(&run) && sweep(&run);
    bench_load_stop();
    if (bench->world.rank == 0 && run.nrows > 0)
        ok = judge(&run) && ok;
    failed = !ok;
    bench_sum(&bench->world, &failed, 1);
    bench_buffers_close(bench);
    bench_world_close(&bench->world);
    if (bench->world.rank == 0 && !end_output(&run))
        failed = 1.0;
    return failed != 0.0;
}
