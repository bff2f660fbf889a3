/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The search for the settings of the user's own gradients.
 *
 * Each setting is tuned with the winners of the settings before it. At the end there is one more
 * comparison with the defaults. It has two candidates. One has all winners. The other one has only
 * the winners that the tuned file can hold, because later jobs read this file, but do not have the
 * environment variables of the other winners. Winners that lose this comparison are not used.
 *
 * An algorithm is a candidate only if it adds the contributions to an element in the same order at
 * every place of the element: otherwise the bits of a result would depend on the buckets.
 */
#include "tune/tune.h"

#include <stdlib.h>
#include <string.h>

/* Where a row is tried. */
enum {
    ONE_HOST = 1,
    HOSTS = 2
};

typedef struct {
    tune_setting_t setting;
    int where;   /* jobs in which it is tried */
    int in_file; /* a part of `where`: jobs that use a tuned file with this setting */
} row_t;

/* clang-format off */
static const row_t rows[] = {
    { { .name = "TUTTI_FUSION_BYTES",
        .values = { "64K", "256K", "512K", "1M", "2M", "4M", "16M", "64M", NULL } },
      ONE_HOST | HOSTS, ONE_HOST },
    { { .name = "TUTTI_NODE_CHUNK_BYTES",
        .values = { "64K", "128K", "512K", "1M", "2M", NULL } },
      ONE_HOST, ONE_HOST },
    { { .name = "TUTTI_CHUNK_BYTES",
        .values = { "16K", "32K", "128K", "256K", NULL } },
      HOSTS, HOSTS },
    { { .name = "TUTTI_ALGORITHM",
        .values = { "allreduce:recursive_doubling", "allreduce:halving_doubling",
                    "allreduce:three_level/halving_doubling", NULL } },
      ONE_HOST, 0 },
    { { .name = "TUTTI_ALGORITHM",
        .values = { "allreduce:hierarchical/recursive_doubling",
                    "allreduce:hierarchical/halving_doubling", "allreduce:halving_doubling",
                    NULL } },
      HOSTS, 0 },
};
/* clang-format on */

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const char of_file[] = "file", of_all[] = "all";

void tune_search_clear(void)
{
    for (size_t i = 0; i < ROWS; i++)
        unsetenv(rows[i].setting.name);
}

/* For the last turns: set each result's variable to the winner's value, or to the default. */
static void set_winners(const tune_setting_t *setting, const char *value)
{
    const tune_search_t *search = setting->search;

    for (size_t i = 0; i < search->count; i++) {
        const tune_result_t *result = &search->results[i];

        unsetenv(result->name);
        if (value != NULL && result->winner > 0 && (value == of_all || result->in_file))
            setenv(result->name, result->of[result->winner].value, 1);
    }
}

/* The winners together, against the defaults. If all winners together are not better, the defaults
   are used. If the winners that the file can hold are better only together with the other winners,
   they are not put into the file. */
static void confirm(bench_world_t *world, const tune_list_t *list, const tune_effort_t *effort,
                    tune_search_t *search)
{
    tune_setting_t last = { .name = "all settings", .set = set_winners, .search = search };
    tune_effort_t its_effort = *effort;
    int nfile = 0, nall = 0, n = 0;

    for (size_t i = 0; i < search->count; i++) {
        nall += search->results[i].winner > 0;
        nfile += search->results[i].winner > 0 && search->results[i].in_file;
    }
    if (nall == 0)
        return;
    if (nfile > 0)
        last.values[n++] = of_file;
    if (nall > nfile)
        last.values[n++] = of_all;
    tune_use_list(&last, list);
    if (effort->spoil_end)
        its_effort.spoil = -1;
    search->last = tune_measure(world, &last, &its_effort);
    search->has_last = 1;
    for (size_t i = 0; i < search->count; i++) {
        const char *won = search->last.of[search->last.winner].value;
        tune_result_t *result = &search->results[i];

        if (won == NULL || (won == of_file && !result->in_file))
            result->winner = 0;
        if (won == of_all && !search->last.of[2].wins && result->winner > 0)
            result->in_file = 0;
    }
}

void tune_use_list(tune_setting_t *setting, const tune_list_t *list)
{
    setting->list = list;
    setting->sizes[0] = list->bytes;
    setting->run = tune_list_run;
    setting->in_place = 1;
    setting->warm = TUNE_WARM;
}

static int where(const bench_world_t *world)
{
    return tutti_host_count(world->comm) == 1 ? ONE_HOST : HOSTS;
}

void tune_search_names(const bench_world_t *world, tune_search_t *search)
{
    int here = where(world);

    for (size_t i = 0; i < ROWS; i++) {
        if ((rows[i].where & here) == 0)
            continue;
        search->results[search->count++] =
            (tune_result_t){ .name = rows[i].setting.name,
                             .in_file = (rows[i].in_file & here) != 0,
                             .stays = rows[i].in_file != 0 && (rows[i].in_file & here) == 0 };
    }
}

void tune_search(bench_world_t *world, const tune_list_t *list, const tune_effort_t *effort,
                 tune_search_t *search)
{
    int here = where(world);

    for (size_t i = 0, k = 0; i < ROWS; i++) {
        tune_setting_t setting = rows[i].setting;
        int in_file = search->results[k].in_file;

        if ((rows[i].where & here) == 0)
            continue;
        if (effort->quick)
            setting.values[2] = NULL;
        tune_use_list(&setting, list);
        search->results[k] = tune_measure(world, &setting, effort);
        search->results[k].in_file = in_file;
        if (search->print != NULL)
            search->print(&setting, &search->results[k], search->verbose_ranks);
        k++;
    }
    confirm(world, list, effort, search);
}
