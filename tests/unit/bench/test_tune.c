/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti_tune --gradients: which winners are in the file, and which are not used. The figures of all
 * measurements are made up.
 */
#include "tune/tune.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The last turns of measurements, in which sets of settings are compared with the defaults. */
typedef struct {
    double file, all; /* their time / the default's */
} last_t;

static last_t last;
static int hosts;

int __wrap_tutti_host_count(const tutti_comm_t *comm);

int __wrap_tutti_host_count(const tutti_comm_t *comm)
{
    (void)comm;
    return hosts;
}

int tune_list_run(const bench_world_t *world, const tune_setting_t *setting,
                  const tune_buffers_t *buffers, size_t bytes)
{
    (void)world;
    (void)setting;
    (void)buffers;
    (void)bytes;
    return -1;
}

int tune_link_has(const char *name)
{
    (void)name;
    return 0;
}

/* The first candidate of each setting wins. */
tune_result_t tune_measure(bench_world_t *world, const tune_setting_t *setting,
                           const tune_effort_t *effort)
{
    tune_result_t result = { .name = setting->name, .in_file = 1, .count = 2 };
    int is_last = strcmp(setting->name, "all settings") == 0;

    (void)world;
    (void)effort;
    result.of[0].ratio.middle = 1;
    for (const char *const *value = setting->values; *value != NULL; value++) {
        tune_figures_t *of = &result.of[result.count++];
        double ratio = value == setting->values ? 0.5 : 2;

        if (is_last)
            ratio = strcmp(*value, "file") == 0 ? last.file : last.all;
        of->value = *value;
        of->ratio = (bench_interval_t){ ratio, ratio, ratio };
        of->wins = ratio < 1;
        if (of->wins && ratio < result.of[result.winner].ratio.middle)
            result.winner = result.count - 1;
    }
    return result;
}

/* The search on one host. nfile, nexported: the numbers of winners in the file, and of other
   winners. */
static void check_search(last_t figures, int nfile, int nexported)
{
    const tune_list_t list = { .bytes = 64 };
    const tune_effort_t effort = { .rounds = 1 };
    tune_search_t search;
    bench_world_t world;
    char *text;

    memset(&search, 0, sizeof(search));
    memset(&world, 0, sizeof(world));
    last = figures;
    hosts = 1;
    tune_search_names(&world, &search);
    tune_search(&world, &list, &effort, &search);
    for (size_t i = 0; i < search.count; i++) {
        nfile -= search.results[i].winner > 0 && search.results[i].in_file;
        nexported -= search.results[i].winner > 0 && !search.results[i].in_file;
    }
    assert_int_equal(nfile, 0);
    assert_int_equal(nexported, 0);
    text = tune_text(&search, "made up");
    assert_int_equal(strstr(text, "\nTUTTI_FUSION_BYTES 64K") != NULL, figures.file < 1);
    free(text);
}

static void test_last_turns(void **state)
{
    (void)state;
    check_search((last_t){ .file = 0.5, .all = 0.4 }, 2, 1);
    check_search((last_t){ .file = 0.5, .all = 0.6 }, 2, 0);
    check_search((last_t){ .file = 0.5, .all = 1.5 }, 2, 0);
    check_search((last_t){ .file = 1.1, .all = 0.8 }, 0, 3);
    check_search((last_t){ .file = 1.1, .all = 1.1 }, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
