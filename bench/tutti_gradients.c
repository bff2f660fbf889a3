/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time to reduce all gradients of a real network by name, in the order of the backward pass. The
 * peers, in the same run, are written with MPI: an allreduce for each gradient, a fusion buffer
 * packed by hand, or a thread with a cycle, as in Horovod; on a device, with NCCL. README.md,
 * "Gradients".
 */
#include "harness/allreduce.h"
#include "harness/device.h"
#include "gradients/gradients.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    bench_t bench;
    bench_program_t program; /* its name is the model's name for --csv */
    gradients_options_t options;
    bench_row_t rows[GRADIENTS_MODELS];
    size_t nrows;
    FILE *csv; /* rank 0 */
    int table; /* rank 0 */
} main_t;

static void print_list(const gradients_options_t *options, const bench_type_t *type,
                       const char *model)
{
    gradients_t gradients =
        gradients_make(model, type->bytes, options->scale, (bench_align_t){ .bytes = 1 });

    printf("# %s: %zu gradients, %zu elements, %zu bytes\n", model, gradients.n, gradients.count,
           gradients.count * type->bytes);
    printf("%-12s%12s  %s\n", "# Ready", "Elements", "Name");
    for (size_t i = 0; i < gradients.n; i++)
        printf("%-12.6f%12zu  %s\n", gradients.all[i].ready, gradients.all[i].count,
               gradients.all[i].name);
    gradients_free(&gradients);
}

/* The model of --model, or all models in turn; NULL at the end. */
static const char *next_model(const gradients_options_t *options, size_t index)
{
    if (options->model == NULL)
        return gradients_model(index);
    return index == 0 ? options->model : NULL;
}

/* --help, --list and invalid flags: only rank 0 prints. */
static int answer_only(const main_t *run, const char *name)
{
    const bench_options_t *common = &run->bench.options;
    const char *model;

    if (!common->help && !run->options.list && common->error[0] == '\0')
        return 0;
    if (!bench_speaks())
        return 1;
    if (common->error[0] != '\0')
        fprintf(stderr, "%s: %s\n", name, common->error);
    else if (common->help)
        gradients_usage(name);
    for (size_t i = 0; common->error[0] == '\0' && !common->help &&
                       (model = next_model(&run->options, i)) != NULL;
         i++)
        print_list(&run->options, common->type, model);
    return 1;
}

static void choose_contestants(main_t *run)
{
    for (int i = 0; gradients_contestants[i].name != NULL; i++) {
        if (gradients_chosen(&run->options, &run->bench.options, i))
            bench_add(&run->bench, &gradients_contestants[i], 0, 0);
    }
}

static void print_settings(const main_t *run)
{
    const gradients_options_t *options = &run->options;
    const bench_options_t *common = &run->bench.options;
    char text[256];

    bench_buffers_describe(&run->bench, text, sizeof(text));
    printf("# Type %s; buffers %s; backward %llu ms; fusion %llu bytes; scale 1/%llu; rounds %lld, "
           "seed %llu\n",
           common->type->name, text, (unsigned long long)options->backward_ms,
           (unsigned long long)options->fusion_bytes, (unsigned long long)options->scale,
           (long long)common->rounds, (unsigned long long)common->seed);
    printf("# Order %s; %s; cycle %g ms%s; warm %llu\n", options->random ? "random" : "of the list",
           options->average ? "average" : "sum", (double)options->cycle_ns * 1e-6,
           options->spin ? ", spinning" : "", (unsigned long long)options->warm);
}

static void print_head(const main_t *run)
{
    const bench_t *bench = &run->bench;
    char text[256];
    char mpi[256];

    printf("\n# Tutti Gradients Test v%d.%d.%d\n# Command:", TUTTI_VERSION_MAJOR,
           TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
    for (int i = 0; i < bench->argc; i++)
        printf(" %s", bench->argv[i]);
    bench_fact_host(text, sizeof(text));
    printf("\n# Ranks: %d on %d host(s)\n", bench->world.size, tutti_host_count(bench->world.comm));
    printf("# Host: %s, %ld processors; MPI: %s\n", text, sysconf(_SC_NPROCESSORS_ONLN),
           bench_mpi_version(mpi, sizeof(mpi)));
    bench_fact_cpu(text, sizeof(text));
    printf("# Processor: %s; commit %s\n", text, bench_fact_commit());
    if (bench->world.device != NULL)
        printf("# Device: %s\n", bench->world.device->versions);
    print_settings(run);
    printf("%-12s%9s%14s  %-16s%13s%12s%12s%14s%12s%10s%10s%12s%11s\n", "# Model", "Tensors",
           "Bytes", "Contestant", "Median(ms)", "P10(ms)", "P90(ms)", "Bus BW(GB/s)", "Its/Tutti",
           "95% Low", "95% High", "Validation", "Same Bits");
    fflush(stdout);
}

/* Only rank 0 opens files. */
static int begin_output(main_t *run)
{
    const bench_options_t *common = &run->bench.options;
    int can = 1;

    if (run->bench.world.rank == 0)
        can = bench_can_write(&run->bench, "--json", common->json) &&
              bench_csv_open(&run->bench, &run->csv);
    if (!bench_same(&run->bench.world, (uint64_t)can))
        return 0;
    run->table = run->bench.world.rank == 0 && run->csv != stdout &&
                 (common->json == NULL || strcmp(common->json, "-") != 0);
    if (run->table)
        print_head(run);
    if (run->csv != NULL)
        bench_csv_head(&run->bench, run->csv);
    return 1;
}

static const char *answer(int value, const char *yes, const char *no)
{
    if (value < 0)
        return "-";
    return value ? yes : no;
}

static void print_contestant(const main_t *run, const bench_row_t *row, int who)
{
    const bench_figures_t *f = &row->of[who];

    printf("%-16s %12.3f %11.3f %11.3f %13.3f", f->name, f->median_us * 1e-3, f->p10_us * 1e-3,
           f->p90_us * 1e-3, f->bus_gbs);
    if (who == 0)
        printf("%12s%10s%10s", "-", "-", "-");
    else
        printf(" %11.3f %9.3f %9.3f", f->ratio.middle, f->ratio.low, f->ratio.high);
    printf("%12s%11s\n", answer(run->bench.options.validate ? f->right : -1, "Pass", "Fail"),
           answer(f->same_bits, "Yes", "No"));
}

static int is_tutti(const main_t *run, int who)
{
    return gradients_way(run->bench.contestants[who])->is_tutti;
}

static void print_row(const main_t *run, const char *model, const bench_row_t *row)
{
    const bench_t *bench = &run->bench;
    gradients_t gradients = gradients_make(model, bench->options.type->bytes, run->options.scale,
                                           bench->options.aligns[0]);
    int best = 0;

    for (int who = 0; who < bench->count; who++) {
        printf("%-12s%9zu%14zu  ", model, gradients.n, row->bytes);
        print_contestant(run, row, who);
        if (!is_tutti(run, who) && (best == 0 || row->of[who].median_us < row->of[best].median_us))
            best = who;
    }
    if (best > 0 && bench->world.size > 1) /* one rank alone exchanges nothing */
        printf("# %s: Tutti takes %.3f (%.3f to %.3f) of the time of %s, its better peer\n", model,
               1.0 / row->of[best].ratio.middle, 1.0 / row->of[best].ratio.high,
               1.0 / row->of[best].ratio.low, row->of[best].name);
    fflush(stdout);
    gradients_free(&gradients);
}

/* Is there a contestant in this run that uses MPI or, on a device, NCCL? */
static int has_peer(const main_t *run)
{
    for (int who = 0; who < run->bench.count; who++) {
        if (!is_tutti(run, who))
            return 1;
    }
    return 0;
}

/* 0: results are wrong. Only Tutti must give the same bits in every order of submission. */
static int measure_model(main_t *run, const char *model)
{
    bench_row_t *row = &run->rows[run->nrows++];
    int ok = 1;

    *row = gradients_measure(&run->bench, &run->options, model);
    for (int who = 0; who < run->bench.count; who++)
        ok = ok && row->of[who].right && (row->of[who].same_bits != 0 || !is_tutti(run, who));
    if (run->table)
        print_row(run, model, row);
    if (run->csv != NULL) {
        run->program.name = model;
        bench_csv_row(&run->bench, row, run->csv);
        run->program.name = "tutti_gradients";
    }
    if (!ok && run->bench.world.rank == 0)
        fprintf(stderr, "DATA VALIDATION ERROR in %s.\n", model);
    return ok;
}

static int measure_all(main_t *run)
{
    const char *model;
    int ok = 1;

    for (size_t i = 0; ok && (model = next_model(&run->options, i)) != NULL; i++)
        ok = measure_model(run, model);
    return ok;
}

/* On rank 0, before MPI has ended, because this function needs MPI's version. */
static int end_output(main_t *run)
{
    int ok = 1;

    if (run->bench.options.json != NULL && run->nrows > 0)
        ok = bench_json_write(&run->bench, run->rows, run->nrows) == 0;
    ok = bench_csv_close(&run->bench, run->csv) && ok;
    for (size_t i = 0; i < run->nrows; i++)
        bench_row_free(&run->bench, &run->rows[i]);
    return ok;
}

int main(int argc, char **argv)
{
    static main_t run = {
        .program = { .name = "tutti_gradients",
                     .title = "Gradients",
                     .collective = &bench_allreduce },
    };
    bench_t *bench = &run.bench;
    double failed;
    int ok;

    *bench = (bench_t){ .program = &run.program, .line_us = -1.0, .argc = argc, .argv = argv };
    gradients_parse(argc, argv, &run.options, &bench->options);
    if (answer_only(&run, argv[0]))
        return bench->options.error[0] != '\0' ? 2 : 0;
    choose_contestants(&run);
    /* On a device the peers use NCCL, not MPI. */
    bench_world_open(&bench->options, has_peer(&run) && bench->options.device == NULL,
                     &bench->world);
    if (bench->world.device != NULL && has_peer(&run))
        bench_nccl_open(&bench->world);
    if (bench->options.seed == 0)
        bench->options.seed = bench_now_ns() | 1;
    bench->options.seed = bench_same(&bench->world, bench->options.seed);
    bench->random = bench->options.seed;
    ok = begin_output(&run) && measure_all(&run);
    if (bench->world.rank == 0)
        ok = end_output(&run) && ok;
    failed = !ok;
    bench_sum(&bench->world, &failed, 1);
    bench_world_close(&bench->world);
    return failed != 0.0;
}
