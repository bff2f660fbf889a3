/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table in docs/algorithms.md agrees with the table in lib/coll/table.c: a row for each
 * algorithm, in the same order, with the same name, radix, order of operands and association.
 */
#include "coll/coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    COLLECTIVE,
    ALGORITHM,
    RANKS,
    ORDERED,
    FIXED,
    COST,
    SOURCE,
    CELLS
};

/* Cut a row "| a | b | ... |" into cells, in place. Returns 0 if the line is not such a row. */
static int cut_row(char *line, char *cells[CELLS])
{
    char *at = line;

    for (int i = 0; i < CELLS; i++) {
        char *end;

        if (strncmp(at, "| ", 2) != 0)
            return 0;
        end = strstr(at + 2, " |");
        if (end == NULL)
            return 0;
        cells[i] = at + 2;
        at = end + 1;
        *end = '\0';
    }
    return strcmp(at, "|\n") == 0;
}

static int reduces(tutti__collective_t collective)
{
    return collective == TUTTI__ALLREDUCE || collective == TUTTI__ROOT_REDUCE ||
           collective == TUTTI__REDUCE_SCATTER || collective == TUTTI__SCAN ||
           collective == TUTTI__EXSCAN;
}

static void same(const tutti__algorithm_t *a, char *const cells[CELLS])
{
    char name[64];

    assert_string_equal(cells[COLLECTIVE], tutti__collective_name(a->collective));
    snprintf(name, sizeof(name), a->radix > 0 ? "%s(%u)" : "%s", a->name, a->radix);
    assert_string_equal(cells[ALGORITHM], name);
    if (reduces(a->collective)) {
        assert_string_equal(cells[ORDERED], a->ordered ? "yes" : "no");
        assert_string_equal(cells[FIXED], a->fixed_association ? "yes" : "no");
    } else {
        assert_string_equal(cells[ORDERED], "-");
        assert_string_equal(cells[FIXED], "-");
    }
    assert_true((strstr(cells[RANKS], "one host") != NULL) == (strcmp(a->name, "node") == 0));
    assert_true(cells[COST][0] != '\0' && cells[SOURCE][0] != '\0');
}

static FILE *open_page(void)
{
    const char *srcdir = getenv("srcdir");
    char path[4096];

    snprintf(path, sizeof(path), "%s/docs/algorithms.md", srcdir != NULL ? srcdir : ".");
    return fopen(path, "r");
}

static void test_page(void **state)
{
    const tutti__algorithm_t *a = tutti__algorithms;
    FILE *file = open_page();
    int is_inside = 0;
    char line[1024];

    (void)state;
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        char *cells[CELLS];

        if (strncmp(line, "## ", 3) == 0)
            is_inside = strcmp(line, "## Algorithms\n") == 0;
        if (!is_inside || !cut_row(line, cells) || strcmp(cells[COLLECTIVE], "collective") == 0)
            continue;
        if (a->name == NULL)
            fail_msg("there is no %s:%s", cells[COLLECTIVE], cells[ALGORITHM]);
        same(a++, cells);
    }
    fclose(file);
    if (a->name != NULL)
        fail_msg("%s:%s is missing", tutti__collective_name(a->collective), a->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
