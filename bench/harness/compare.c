/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --compare: is this run slower than an old run?
 *
 * If both runs have a peer in common, the quotient of the peer's time and Tutti's time is compared,
 * because it depends less on the machine's load than a time. Otherwise Tutti's medians are
 * compared.
 *
 * The slowdown is a quotient of two medians over rounds. Its 95 % interval comes from bootstrap
 * resampling of both runs' rounds. A size is slower if its whole interval is above the threshold.
 */
#include "harness/bench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_JANSSON

#include <jansson.h>

static json_t *load(const char *path, char *text, size_t bytes)
{
    FILE *from = fopen(path, "r");
    json_error_t error;
    json_t *all;

    if (from == NULL) {
        snprintf(text, bytes, "--compare %s: %s", path, strerror(errno));
        return NULL;
    }
    all = json_loadf(from, 0, &error);
    if (all == NULL)
        snprintf(text, bytes, "--compare %s: line %d: %s", path, error.line, error.text);
    fclose(from);
    return all;
}

/* Does a member of "setting" differ? The message shows both values as JSON. */
static int differs(json_t *setting, const char *name, json_t *mine, const char *path, char *text,
                   size_t bytes)
{
    json_t *old = json_object_get(setting, name);
    int same = old != NULL && json_equal(old, mine);

    if (!same) {
        char *was = json_dumps(old != NULL ? old : json_null(), JSON_ENCODE_ANY);
        char *is = json_dumps(mine, JSON_ENCODE_ANY);

        snprintf(text, bytes, "--compare %s: %s was %s and is %s", path, name,
                 was != NULL ? was : "?", is != NULL ? is : "?");
        free(was);
        free(is);
    }
    json_decref(mine);
    return !same;
}

static int other_setting(const bench_t *bench, json_t *setting, char *text, size_t bytes)
{
    const bench_options_t *options = &bench->options;
    const char *path = options->compare;
    char buffers[192];

    bench_buffers_describe(bench, buffers, sizeof(buffers));
    return differs(setting, "program", json_string(bench->program->name), path, text, bytes) ||
           differs(setting, "ranks", json_integer(bench->world.size), path, text, bytes) ||
           differs(setting, "hosts", json_integer(tutti_host_count(bench->world.comm)), path, text,
                   bytes) ||
           differs(setting, "type", json_string(options->type->name), path, text, bytes) ||
           differs(setting, "buffers", json_string(buffers), path, text, bytes) ||
           differs(setting, "back_to_back", json_boolean(options->back_to_back), path, text,
                   bytes) ||
           differs(setting, "skew_us", json_integer(options->skew_us), path, text, bytes) ||
           differs(setting, "load", json_integer(options->load), path, text, bytes);
}

/* The round medians of a contestant at a size, freed by the caller; NULL: none. */
static double *old_rounds(json_t *all, size_t bytes, const char *name, size_t *ret_count)
{
    json_t *row;
    json_t *figures;
    size_t i;
    size_t j;

    json_array_foreach(json_object_get(all, "results"), i, row)
    {
        if (json_integer_value(json_object_get(row, "bytes")) != (json_int_t)bytes)
            continue;
        json_array_foreach(json_object_get(row, "contestants"), j, figures)
        {
            const char *called = json_string_value(json_object_get(figures, "name"));
            json_t *rounds = json_object_get(figures, "round_medians_us");
            double *values;

            *ret_count = json_array_size(rounds);
            if (called == NULL || strcmp(called, name) != 0 || *ret_count == 0)
                continue;
            values = bench_allocate(*ret_count, sizeof(*values));
            for (size_t k = 0; k < *ret_count; k++)
                values[k] = json_number_value(json_array_get(rounds, k));
            return values;
        }
    }
    return NULL;
}

static int no_common_size(const bench_t *bench, json_t *all, char *text, size_t bytes)
{
    size_t size;

    for (size_t i = 0; bench_size(bench, i, &size); i++) {
        size_t count;
        double *rounds = old_rounds(all, size, bench->names[0], &count);
        int found = rounds != NULL;

        free(rounds);
        if (found)
            return 0;
    }
    snprintf(text, bytes, "--compare %s: no size in common", bench->options.compare);
    return 1;
}

const char *bench_compare_missing(const bench_t *bench, char *text, size_t bytes)
{
    json_t *all = load(bench->options.compare, text, bytes);
    int wrong = all == NULL;

    if (!wrong && json_integer_value(json_object_get(all, "format")) != 1) {
        snprintf(text, bytes, "--compare %s: not written by --json of these programs",
                 bench->options.compare);
        wrong = 1;
    }
    wrong = wrong || other_setting(bench, json_object_get(all, "setting"), text, bytes) ||
            no_common_size(bench, all, text, bytes);
    json_decref(all);
    return wrong ? text : NULL;
}

/* The compared values of a size, one for each round. `by` NULL: Tutti's times. Otherwise: the
   peer's time divided by Tutti's, so a larger value means that Tutti is faster. */
typedef struct {
    const char *by; /* the peer, or NULL: medians */
    double *old, *now;
    size_t nold, nnow;
} pair_t;

static void divide(double *values, const double *by, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = by[i] > 0.0 ? values[i] / by[i] : 0.0;
}

/* Does this contestant call Tutti in another way? A change of Tutti changes its times as well. */
static int is_tutti(const bench_contestant_t *contestant)
{
    return strcmp(contestant->flag, "async") == 0 || strcmp(contestant->flag, "direct") == 0 ||
           strcmp(contestant->flag, "ordered") == 0;
}

/* Find the values of both runs: the quotients with the first peer that both runs have and that is
   not Tutti. If there is no such peer, the values are Tutti's times. 0: the old file does not have
   this size. */
static int find_pair(const bench_t *bench, json_t *all, const bench_row_t *row, pair_t *ret_pair)
{
    size_t rounds = (size_t)bench->options.rounds;
    size_t count;
    double *ours = old_rounds(all, row->bytes, row->of[0].name, &count);
    double *now = bench_allocate(rounds, sizeof(*now));

    *ret_pair = (pair_t){ .old = ours, .now = now, .nold = count, .nnow = rounds };
    memcpy(now, row->of[0].round_us, rounds * sizeof(*now));
    for (int who = 1; who < bench->count && ours != NULL; who++) {
        size_t theirs_count;
        double *theirs;

        if (is_tutti(bench->contestants[who]))
            continue;
        theirs = old_rounds(all, row->bytes, row->of[who].name, &theirs_count);
        if (theirs == NULL || theirs_count != count) {
            free(theirs);
            continue;
        }
        divide(theirs, ours, count);
        free(ours);
        memcpy(now, row->of[who].round_us, rounds * sizeof(*now));
        divide(now, row->of[0].round_us, rounds);
        ret_pair->old = theirs;
        ret_pair->by = row->of[who].name;
        break;
    }
    return ret_pair->old != NULL;
}

/* Prints a line if the size is slower. */
static int judge(const bench_t *bench, const bench_row_t *row, const pair_t *pair)
{
    double threshold =
        1.0 + (bench->options.fail_above < 0.0 ? 5.0 : bench->options.fail_above) / 100.0;
    double old = bench_median(pair->old, pair->nold);
    double now = bench_median(pair->now, pair->nnow);
    bench_interval_t slower;
    char what[256];

    if (pair->by != NULL)
        slower = bench_bootstrap_quotient(pair->old, pair->nold, pair->now, pair->nnow);
    else
        slower = bench_bootstrap_quotient(pair->now, pair->nnow, pair->old, pair->nold);
    if (!(slower.low > threshold))
        return 0;
    if (pair->by != NULL)
        snprintf(what, sizeof(what), "%s/%s", pair->by, bench->names[0]);
    else
        snprintf(what, sizeof(what), "Median(us)");
    fprintf(stderr, "%-10zu%16s%14.3f%14.3f%11.1f%%%9.1f%%%9.1f%%\n", row->bytes, what, old, now,
            100.0 * (slower.middle - 1.0), 100.0 * (slower.low - 1.0), 100.0 * (slower.high - 1.0));
    return 1;
}

int bench_compare(const bench_t *bench, const bench_row_t *rows, size_t count)
{
    const char *path = bench->options.compare;
    char text[300];
    json_t *all = load(path, text, sizeof(text));
    int compared = 0;
    int slower = 0;

    if (all == NULL) {
        fprintf(stderr, "%s: %s\n", bench->program->name, text);
        return -1;
    }
    fprintf(stderr, "# Slower than %s by more than %g%%:\n%-10s%16s%14s%14s%12s%10s%10s\n", path,
            bench->options.fail_above < 0.0 ? 5.0 : bench->options.fail_above, "# Size", "Of",
            "Old", "New", "Slower", "95% Low", "95% High");
    for (size_t i = 0; i < count; i++) {
        pair_t pair;

        if (find_pair(bench, all, &rows[i], &pair)) {
            compared++;
            slower += judge(bench, &rows[i], &pair);
        }
        free(pair.old);
        free(pair.now);
    }
    json_decref(all);
    fprintf(stderr, "# %d of %d compared, %zu measured\n", slower, compared, count);
    if (compared > 0)
        return slower;
    fprintf(stderr, "%s: --compare %s: no size in common\n", bench->program->name, path);
    return -1;
}

#else

const char *bench_compare_missing(const bench_t *bench, char *text, size_t bytes)
{
    (void)bench;
    snprintf(text, bytes, "--compare: built without jansson");
    return text;
}

int bench_compare(const bench_t *bench, const bench_row_t *rows, size_t count)
{
    (void)bench;
    (void)rows;
    (void)count;
    return -1;
}

#endif
