/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trainer's command line: values arrive where they belong; badinput.sh has what is refused.
 */
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train_base.h"
#include "train_options.h"

#define ARGUMENTS(...)                                                                             \
    (char *[]){ "example_train", __VA_ARGS__ },                                                    \
        sizeof((char *[]){ "", __VA_ARGS__ }) / sizeof(char *)

static train_options_t parse(char **argv, size_t argc)
{
    train_error_t error = { "" };
    train_options_t options;

    if (!train_options_parse((int)argc, argv, &options, &error))
        fail_msg("%s", error.text);
    return options;
}

static void has_defaults(void **state)
{
    char *argv[] = { "example_train" };
    const train_options_t options = parse(argv, 1);

    (void)state;
    assert_string_equal(options.data, "/usr/share/datasets/fashion-mnist");
    assert_int_equal(options.hidden.count, 2);
    assert_int_equal(options.hidden.widths[0], 512);
    assert_int_equal(options.hidden.widths[1], 256);
    assert_int_equal(options.batch, 128);
    assert_int_equal(options.threads, 1);
    assert_float_equal(options.momentum, 0.9, 0.0);
    assert_int_equal(options.schedule, TRAIN_SCHEDULE_COSINE);
    assert_int_equal(options.progress, TRAIN_PROGRESS_AUTO);
    assert_null(options.metrics);
    assert_false(options.digest);
    assert_false(options.help);
}

static void reads_values(void **state)
{
    const train_options_t options =
        parse(ARGUMENTS("--batch=64", "--lr", ".5", "--hidden", "7,1,65536", "--seed",
                        "9000000000000000000", "--digest", "--progress=lines", "--schedule",
                        "constant", "--data", "--help", "--metrics=a=b"));

    (void)state;
    assert_int_equal(options.batch, 64);
    assert_float_equal(options.lr, 0.5, 0.0);
    assert_int_equal(options.hidden.count, 3);
    assert_int_equal(options.hidden.widths[2], 65536);
    assert_int_equal(options.seed, INT64_C(9000000000000000000));
    assert_true(options.digest);
    assert_int_equal(options.progress, TRAIN_PROGRESS_LINES);
    assert_int_equal(options.schedule, TRAIN_SCHEDULE_CONSTANT);
    assert_string_equal(options.data, "--help"); /* a value, whatever it looks like */
    assert_false(options.help);
    assert_string_equal(options.metrics, "a=b");

    assert_int_equal(parse(ARGUMENTS("--hidden", "none")).hidden.count, 0);
    assert_int_equal(parse(ARGUMENTS("--batch", "1", "--batch", "2")).batch, 2);
}

static void leaves_nothing_on_failure(void **state)
{
    static char *bad[] = { "--batch",
                           "--batch=",
                           "--batch=0x10",
                           "--lr=1e999",
                           "--lr=",
                           "--hidden=",
                           "--hidden=8,",
                           "--hidden=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
                           "--progress=",
                           "--progress=ba",
                           "--progress=bars",
                           "--seed=-1",
                           "--help=1",
                           "-h",
                           "",
                           "--",
                           "--lr=-1",
                           "--momentum=1e400" };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char *argv[] = { "example_train", "--epochs", "9", bad[i] };
        train_error_t error = { "" };
        train_options_t options;

        if (train_options_parse(4, argv, &options, &error))
            fail_msg("%s is taken", bad[i]);
        assert_true(error.text[0] != '\0');
        assert_int_equal(options.epochs, 0);
    }
}

static void fingerprints_what_matters(void **state)
{
    const train_options_t options = parse(ARGUMENTS("--seed", "3"));
    const train_options_t same = parse(ARGUMENTS("--seed", "3", "--data", "elsewhere"));
    const train_options_t other = parse(ARGUMENTS("--seed", "4"));

    (void)state;
    assert_true(train_options_fingerprint(&options) == train_options_fingerprint(&same));
    assert_true(train_options_fingerprint(&options) != train_options_fingerprint(&other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_defaults),
        cmocka_unit_test(reads_values),
        cmocka_unit_test(leaves_nothing_on_failure),
        cmocka_unit_test(fingerprints_what_matters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
