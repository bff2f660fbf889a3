/* SPDX-License-Identifier: BSD-3-Clause */
/* The text for Prometheus has decimal points, also if the program's locale has commas. */
#include "stats/stats_inside.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Make a locale with decimal commas, and set it. 0: its sources are not installed. */
static int set_commas(char *folder)
{
    char command[200];

    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof(command),
             "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1 && test -d %s/de_DE.UTF-8",
             folder, folder);
    if (system(command) != 0)
        return 0;
    assert_int_equal(setenv("LOCPATH", folder, 1), 0);
    return setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
}

static void remove_folder(const char *folder)
{
    char command[100];

    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_points(void **state)
{
    char folder[] = "/tmp/tutti-locale-XXXXXX", half[8];
    tutti__stats_text_t text = { 0 };
    tutti__stats_t *stats;

    (void)state;
    if (!set_commas(folder)) {
        remove_folder(folder);
        print_message("no locale with decimal commas can be made\n");
        skip();
    }
    stats = calloc(1, sizeof(*stats));
    assert_non_null(stats);
    tutti__mutex_init(&stats->phases.lock, TUTTI__LOCK_STATS);
    stats->is_timed = 1;
    tutti__stats_put(&stats->direct_ns, 12345);
    tutti__stats_metrics(stats, &text);
    assert_false(text.failed);
    assert_non_null(strstr(text.at, "le=\"1.28e-07\""));
    assert_non_null(strstr(text.at, "tutti_call_seconds_sum{"));
    assert_null(strstr(text.at, "0,0"));
    /* The program keeps its locale. */
    snprintf(half, sizeof(half), "%.1f", 0.5);
    assert_string_equal(half, "0,5");
    free(text.at);
    tutti__mutex_destroy(&stats->phases.lock);
    free(stats);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_points) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
