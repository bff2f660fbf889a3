/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --csv: one line per size and contestant. Unknown values are empty.
 */
#include "harness/bench.h"

static void print_conditions(const bench_t *bench, FILE *to)
{
    char text[256];

    fprintf(to, "# Command:");
    for (int i = 0; i < bench->argc; i++)
        fprintf(to, " %s", bench->argv[i]);
    bench_fact_host(text, sizeof(text));
    fprintf(to, "\n# Host: %s; ranks %d; commit %s; seed %llu\n", text, bench->world.size,
            bench_fact_commit(), (unsigned long long)bench->options.seed);
    if (bench->world.device != NULL && bench->program->nccl_is != NULL)
        fprintf(to, "# NCCL: %s\n", bench->program->nccl_is);
}

void bench_csv_head(const bench_t *bench, FILE *to)
{
    print_conditions(bench, to);
    fprintf(to, "program,bytes,contestant,iterations,avg_us,min_us,max_us,median_us,p10_us,p90_us,"
                "p99_us,bus_gbs,limit_us,of_limit,right,same_bits,ratio,ratio_low,ratio_high");
    for (int i = 0; i < bench->options.ntails; i++)
        fprintf(to, ",tail_p%d_us", bench->options.tails[i]);
    fprintf(to, "\n");
}

static void print_answer(FILE *to, int answer)
{
    if (answer < 0)
        fprintf(to, ",");
    else
        fprintf(to, ",%s", answer ? "yes" : "no");
}

void bench_csv_row(const bench_t *bench, const bench_row_t *row, FILE *to)
{
    for (int who = 0; who < bench->count; who++) {
        const bench_figures_t *f = &row->of[who];

        fprintf(to, "%s,%zu,%s,%ld,%.4f,%.4f,%.4f,%.4f,%.4f,%.4f,%.4f,%.4f", bench->program->name,
                row->bytes, f->name, f->iterations, f->avg_us, f->min_us, f->max_us, f->median_us,
                f->p10_us, f->p90_us, f->p99_us, f->bus_gbs);
        if (bench_of_limit(row, who) < 0.0)
            fprintf(to, ",,");
        else
            fprintf(to, ",%.4f,%.4f", row->limit_us, bench_of_limit(row, who));
        print_answer(to, bench->options.validate ? f->right : -1);
        print_answer(to, f->same_bits);
        if (who == 0)
            fprintf(to, ",,,");
        else
            fprintf(to, ",%.4f,%.4f,%.4f", f->ratio.middle, f->ratio.low, f->ratio.high);
        for (int i = 0; i < bench->options.ntails; i++)
            fprintf(to, ",%.4f", f->tails_us[i]);
        fprintf(to, "\n");
    }
    fflush(to);
}
