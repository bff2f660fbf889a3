/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --json: all measurements, and their circumstances. README.md lists the members.
 */
#include "harness/device.h"

#include <errno.h>
#include <string.h>

#ifdef HAVE_JANSSON

#include <jansson.h>

static json_t *command(const bench_t *bench)
{
    json_t *words = json_array();

    for (int i = 0; i < bench->argc; i++)
        json_array_append_new(words, json_string(bench->argv[i]));
    return words;
}

static json_t *variables(void)
{
    json_t *all = json_object();
    const char *variable;

    for (size_t i = 0; (variable = bench_fact_variable(i)) != NULL; i++) {
        size_t length = strcspn(variable, "=");
        char name[256];

        snprintf(name, sizeof(name), "%.*s", (int)length, variable);
        json_object_set_new(all, name, json_string(variable + length + 1));
    }
    return all;
}

static json_t *conditions(const bench_t *bench)
{
    char host[256];
    char cpu[256];
    char kernel[256];
    char mpi[256];
    char tutti[32];

    bench_fact_host(host, sizeof(host));
    bench_fact_cpu(cpu, sizeof(cpu));
    bench_fact_kernel(kernel, sizeof(kernel));
    snprintf(tutti, sizeof(tutti), "%d.%d.%d", TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR,
             TUTTI_VERSION_PATCH);
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "command", command(bench),
                     "commit", bench_fact_commit(), "host", host, "cpu", cpu, "kernel", kernel,
                     "tutti", tutti, "mpi", bench_mpi_version(mpi, sizeof(mpi)), "device",
                     bench->world.device != NULL ? bench->world.device->versions : "none",
                     "environment", variables());
}

/* How the run was measured. --compare needs equal values in both runs, except for `barrier`. */
static json_t *setting(const bench_t *bench)
{
    const bench_options_t *options = &bench->options;
    char buffers[192];

    bench_buffers_describe(bench, buffers, sizeof(buffers));
    return json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:b, s:I, s:I}", "program",
                     bench->program->name, "ranks", bench->world.size, "hosts",
                     tutti_host_count(bench->world.comm), "type", options->type->name, "buffers",
                     buffers, "barrier", bench->world.barrier_tutti ? "tutti" : "mpi",
                     "back_to_back", options->back_to_back, "skew_us", (json_int_t)options->skew_us,
                     "load", (json_int_t)options->load);
}

static json_t *answer(int value)
{
    return value < 0 ? json_null() : json_boolean(value);
}

static json_t *contestant(const bench_t *bench, const bench_row_t *row, int who)
{
    const bench_figures_t *f = &row->of[who];
    json_t *rounds = json_array();
    json_t *all;

    for (int64_t i = 0; i < bench->options.rounds; i++)
        json_array_append_new(rounds, json_real(f->round_us[i]));
    all = json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "name",
                    f->name, "iterations", (json_int_t)f->iterations, "avg_us", f->avg_us, "min_us",
                    f->min_us, "max_us", f->max_us, "median_us", f->median_us, "p10_us", f->p10_us,
                    "p90_us", f->p90_us, "p99_us", f->p99_us, "bus_gbs", f->bus_gbs, "right",
                    answer(bench->options.validate ? f->right : -1), "same_bits",
                    answer(f->same_bits), "round_medians_us", rounds);
    if (who > 0)
        json_object_set_new(all, "ratio",
                            json_pack("{s:f, s:f, s:f}", "median", f->ratio.middle, "low",
                                      f->ratio.low, "high", f->ratio.high));
    for (int i = 0; i < bench->options.ntails; i++) {
        char name[32];

        snprintf(name, sizeof(name), "tail_p%d_us", bench->options.tails[i]);
        json_object_set_new(all, name, json_real(f->tails_us[i]));
    }
    return all;
}

static json_t *result(const bench_t *bench, const bench_row_t *row)
{
    json_t *contestants = json_array();
    json_t *limit = row->limit_us < 0.0 ? json_null() : json_real(row->limit_us);

    for (int who = 0; who < bench->count; who++)
        json_array_append_new(contestants, contestant(bench, row, who));
    return json_pack("{s:I, s:f, s:o, s:o}", "bytes", (json_int_t)row->bytes, "copy_us",
                     row->copy_us, "limit_us", limit, "contestants", contestants);
}

int bench_json_write(const bench_t *bench, const bench_row_t *rows, size_t count)
{
    const char *path = bench->options.json;
    size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(9);
    json_t *results = json_array();
    json_t *all;
    int failed;

    for (size_t i = 0; i < count; i++)
        json_array_append_new(results, result(bench, &rows[i]));
    all = json_pack("{s:i, s:o, s:o, s:I, s:I, s:f, s:o}", "format", 1, "conditions",
                    conditions(bench), "setting", setting(bench), "rounds",
                    (json_int_t)bench->options.rounds, "seed", (json_int_t)bench->options.seed,
                    "line_us", bench->line_us, "results", results);
    errno = all != NULL ? 0 : ENOMEM;
    if (all == NULL)
        failed = 1;
    else if (strcmp(path, "-") == 0)
        failed = json_dumpf(all, stdout, flags) != 0 || printf("\n") < 0 || fflush(stdout) != 0;
    else
        failed = json_dump_file(all, path, flags) != 0;
    if (failed)
        bench_cannot(bench, "--json", path);
    json_decref(all);
    return failed ? -1 : 0;
}

#else

int bench_json_write(const bench_t *bench, const bench_row_t *rows, size_t count)
{
    (void)bench;
    (void)rows;
    (void)count;
    return -1; /* not reached: bench.c refuses the flag */
}

#endif
