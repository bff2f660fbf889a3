/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table on stdout: first OSU's columns in OSU's format, then further columns.
 */
#include "harness/device.h"

#include <string.h>
#include <unistd.h>

int bench_is_long(const bench_t *bench)
{
    const bench_options_t *options = &bench->options;

    return bench->count > 1 || options->stats || options->csv != NULL || options->json != NULL ||
           options->plot != NULL || options->compare != NULL;
}

static int has_sizes(const bench_t *bench)
{
    return bench->program->collective->recv != BENCH_NOTHING;
}

static int shows_extra(const bench_t *bench, int who)
{
    const char *flag = bench->contestants[who]->flag;

    return flag != NULL && strcmp(flag, "async") == 0;
}

static void print_conditions(const bench_t *bench)
{
    const bench_options_t *options = &bench->options;
    char text[256];
    char mpi[256];

    printf("# Command:");
    for (int i = 0; i < bench->argc; i++)
        printf(" %s", bench->argv[i]);
    bench_fact_host(text, sizeof(text));
    printf("\n# Host: %s, %ld processors; MPI: %s\n", text, sysconf(_SC_NPROCESSORS_ONLN),
           bench_mpi_version(mpi, sizeof(mpi)));
    bench_fact_cpu(text, sizeof(text));
    printf("# Processor: %s; commit %s\n", text, bench_fact_commit());
    if (bench->world.device != NULL)
        printf("# Device: %s\n", bench->world.device->versions);
    if (bench->world.device != NULL && bench->program->nccl_is != NULL)
        printf("# NCCL: %s\n", bench->program->nccl_is);
    bench_buffers_describe(bench, text, sizeof(text));
    printf("# Buffers %s; barrier %s%s; skew %lld us, load %lld; rounds %lld, seed %llu\n", text,
           bench->world.barrier_tutti ? "tutti" : "mpi",
           options->back_to_back ? ", between blocks only" : "", (long long)options->skew_us,
           (long long)options->load, (long long)options->rounds, (unsigned long long)options->seed);
}

/* Width of a column with this heading, at least `least`. */
static int width(int least, const char *heading)
{
    int length = (int)strlen(heading) + 2;

    return length > least ? length : least;
}

/* The headings of a peer's first two columns. */
static void name_columns(const bench_t *bench, int who, char *median, char *ratio, size_t bytes)
{
    snprintf(median, bytes, "%s Med(us)", bench->names[who]);
    snprintf(ratio, bytes, "%s/%s", bench->names[who], bench->names[bench->against[who]]);
}

static void print_long_head(const bench_t *bench)
{
    char median[160], ratio[160];

    printf("%14s%12s%12s%12s", "Median(us)", "P10(us)", "P90(us)", "P99(us)");
    if (has_sizes(bench))
        printf("%14s", "Bus BW(GB/s)");
    printf("%12s%10s", "Limit(us)", "Of Limit");
    if (bench->options.validate)
        printf("%11s", "Same Bits");
    for (int who = 1; who < bench->count; who++) {
        name_columns(bench, who, median, ratio, sizeof(median));
        printf("%*s%*s%12s%12s", width(17, median), median, width(14, ratio), ratio, "95% Low",
               "95% High");
        if (shows_extra(bench, who))
            printf("%12s", "Extra(us)");
    }
}

void bench_table_head(const bench_t *bench)
{
    const bench_options_t *options = &bench->options;

    printf("\n# Tutti %s Latency Test v%d.%d.%d\n", bench->program->title, TUTTI_VERSION_MAJOR,
           TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
    if (has_sizes(bench))
        printf("# Datatype: %s.\n",
               options->type->mpi_name != NULL ? options->type->mpi_name : options->type->name);
    printf("# Ranks: %d on %d host(s)\n", bench->world.size, tutti_host_count(bench->world.comm));
    if (bench_is_long(bench))
        print_conditions(bench);
    if (has_sizes(bench))
        printf("%-10s%20s", "# Size", "Avg Latency(us)");
    else
        printf("# Avg Latency(us)");
    if (options->full)
        printf("%20s%20s%12s", "Min Latency(us)", "Max Latency(us)", "Iterations");
    if (options->validate)
        printf("%20s", "Validation");
    for (int i = 0; i < options->ntails; i++) {
        char heading[32];

        snprintf(heading, sizeof(heading), "P%d Tail Lat(us)", options->tails[i]);
        printf("%20s", heading);
    }
    if (bench_is_long(bench))
        print_long_head(bench);
    printf("\n");
    fflush(stdout);
}

static const char *yes_or_no(int answer)
{
    if (answer < 0)
        return "-";
    return answer ? "Yes" : "No";
}

static void print_long(const bench_t *bench, const bench_row_t *row)
{
    const bench_figures_t *ours = &row->of[0];
    char median[160], ratio[160];

    printf(" %13.3f %11.3f %11.3f %11.3f", ours->median_us, ours->p10_us, ours->p90_us,
           ours->p99_us);
    if (has_sizes(bench))
        printf(" %13.3f", ours->bus_gbs);
    if (bench_of_limit(row, 0) < 0.0)
        printf("%12s%10s", "-", "-");
    else
        printf(" %11.3f %9.3f", row->limit_us, bench_of_limit(row, 0));
    if (bench->options.validate)
        printf("%11s", yes_or_no(ours->same_bits));
    for (int who = 1; who < bench->count; who++) {
        const bench_figures_t *theirs = &row->of[who];

        name_columns(bench, who, median, ratio, sizeof(median));
        printf("%*.3f%*.3f %11.3f %11.3f", width(17, median), theirs->median_us, width(14, ratio),
               theirs->ratio.middle, theirs->ratio.low, theirs->ratio.high);
        if (shows_extra(bench, who))
            printf(" %11.3f", theirs->extra_us);
    }
}

void bench_table_row(const bench_t *bench, const bench_row_t *row)
{
    const bench_options_t *options = &bench->options;
    const bench_figures_t *ours = &row->of[0];

    if (has_sizes(bench))
        printf("%-10zu%20.2f", row->bytes, ours->avg_us);
    else
        printf("%17.2f", ours->avg_us);
    if (options->full)
        printf("%20.2f%20.2f%12ld", ours->min_us, ours->max_us, ours->iterations);
    if (options->validate)
        printf("%20s", ours->right ? "Pass" : "Fail");
    for (int i = 0; i < options->ntails; i++)
        printf("%20.2f", ours->tails_us[i]);
    if (bench_is_long(bench))
        print_long(bench, row);
    printf("\n");
    fflush(stdout);
}
