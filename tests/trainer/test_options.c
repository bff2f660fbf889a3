/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trainer's command line: values reach their fields. badinput.sh tests the options that are
 * refused.
 */
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train_base.h"
#include "train_optimizer.h"
#include "train_options.h"
#include "train_schedule.h"

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
    assert_int_equal(options.hidden.items[0], 512);
    assert_int_equal(options.hidden.items[1], 256);
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
    assert_int_equal(options.hidden.items[2], 65536);
    assert_int_equal(options.seed, INT64_C(9000000000000000000));
    assert_true(options.digest);
    assert_int_equal(options.progress, TRAIN_PROGRESS_LINES);
    assert_int_equal(options.schedule, TRAIN_SCHEDULE_CONSTANT);
    assert_string_equal(options.data, "--help"); /* a value that looks like an option */
    assert_false(options.help);
    assert_string_equal(options.metrics, "a=b");

    assert_int_equal(parse(ARGUMENTS("--hidden", "none")).hidden.count, 0);
    assert_int_equal(parse(ARGUMENTS("--batch", "1", "--batch", "2")).batch, 2);
}

/* Defaults follow the model and the optimizer, in any order of options; given values are kept. */
static void adapts_defaults(void **state)
{
    train_options_t options = parse(ARGUMENTS("--model=cnn", "--optimizer", "lamb"));

    (void)state;
    assert_int_equal(options.model, TRAIN_MODEL_CNN);
    assert_int_equal(options.hidden.count, 1);
    assert_int_equal(options.hidden.items[0], 128);
    assert_int_equal(options.optimizer, TRAIN_OPTIMIZER_LAMB);
    assert_float_equal(options.lr, 0.005, 0.0);
    assert_float_equal(options.epsilon, 1e-6, 0.0);
    assert_float_equal(options.weight_decay, 0.01, 0.0);
    assert_int_equal(options.lr_scaling, TRAIN_SCALING_SQRT);

    options = parse(ARGUMENTS("--lr=0.05", "--optimizer=adamw", "--hidden=512,256", "--model=cnn",
                              "--lr-scaling=linear"));
    assert_float_equal(options.lr, 0.05, 0.0);
    assert_int_equal(options.hidden.count, 2);
    assert_int_equal(options.lr_scaling, TRAIN_SCALING_LINEAR);
    assert_float_equal(options.epsilon, 1e-8, 0.0);
}

static void limits_the_warmup(void **state)
{
    (void)state;
    assert_float_equal(parse(ARGUMENTS("--epochs=8", "--warmup=3")).warmup, 3.0, 0.0);
    assert_float_equal(parse(ARGUMENTS("--epochs=3", "--warmup=3")).warmup, 1.5, 0.0);
}

/* The text that describes the options is a command line itself. If it is parsed, the result has the
   same text. */
static void describes_what_matters(void **state)
{
    const train_options_t options = parse(ARGUMENTS(
        "--lr=0.1", "--warmup=0.3333333333333333", "--hidden=7,8", "--channels=3", "--model=cnn",
        "--schedule=step", "--optimizer=lamb", "--epsilon=1e-7", "--seed=9"));
    char text[TRAIN_TEXT_BYTES], again[TRAIN_TEXT_BYTES], arguments[TRAIN_TEXT_BYTES];
    char *argv[100] = { "example_train" };
    size_t argc = 1;

    (void)state;
    train_options_describe(&options, text);
    assert_non_null(strstr(text, "--lr 0.1\n"));
    assert_non_null(strstr(text, "--hidden 7,8\n"));
    assert_non_null(strstr(text, "--model cnn\n"));
    assert_non_null(strstr(text, "--epsilon 1e-07\n"));
    assert_null(strstr(text, "--epochs"));
    assert_null(strstr(text, "--threads"));
    assert_null(strstr(text, "--data"));
    assert_null(strstr(text, "--trust")); /* an option of another optimizer */

    strcpy(arguments, text);
    for (char *next = strtok(arguments, " \n"); next != NULL; next = strtok(NULL, " \n"))
        argv[argc++] = next;
    const train_options_t same = parse(argv, argc);
    train_options_describe(&same, again);
    assert_string_equal(text, again);

    /* the precision is listed only with a GPU, so checkpoints made before GPU support stay valid */
    assert_null(strstr(text, "--precision"));
    const train_options_t gpu = parse(ARGUMENTS("--device=cuda", "--precision=bf16"));
    train_options_describe(&gpu, text);
    assert_non_null(strstr(text, "--precision bf16\n"));

    /* a cosine schedule ends with the epochs */
    const train_options_t cosine = parse(ARGUMENTS("--epochs=17"));
    train_options_describe(&cosine, text);
    assert_non_null(strstr(text, "--epochs 17\n"));
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
                           "-x",
                           "-h=1",
                           "",
                           "--",
                           "--lr=-1",
                           "--momentum=1e400",
                           "--resume",
                           "--overwrite",
                           "--checkpoint=",
                           "--plot=",
                           "--model=cn",
                           "--optimizer=adam",
                           "--channels=0",
                           "--accumulate=0",
                           "--clip=-1",
                           "--beta2=1",
                           "--trust=0",
                           "--decay=2",
                           "--lr-scaling=cubic",
                           "--channels=16,32",
                           "--decay=0.1",
                           "--decay-every=2",
                           "--beta1=0.9",
                           "--beta2=0.999",
                           "--epsilon=1e-8",
                           "--trust=0.001" };

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

/* An option that belongs to another choice is refused. The error names the choice that the option
   needs. */
static void knows_what_options_need(void **state)
{
    static const char *const cases[][3] = {
        { "--model=mlp", "--channels=3", "--channels needs --model cnn" },
        { "--schedule=cosine", "--decay=0.5", "--decay needs --schedule step" },
        { "--schedule=constant", "--decay-every=1", "--decay-every needs --schedule step" },
        { "--optimizer=adamw", "--momentum=0.9", "--momentum needs --optimizer sgd|lars" },
        { "--optimizer=sgd", "--beta1=0.9", "--beta1 needs --optimizer adamw|lamb" },
        { "--optimizer=lars", "--beta2=0.9", "--beta2 needs --optimizer adamw|lamb" },
        { "--optimizer=lars", "--epsilon=0.1", "--epsilon needs --optimizer adamw|lamb" },
        { "--optimizer=lamb", "--trust=0.1", "--trust needs --optimizer lars" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *argv[] = { "example_train", (char *)cases[i][1], (char *)cases[i][0] };
        train_error_t error = { "" };
        train_options_t options;

        assert_false(train_options_parse(3, argv, &options, &error));
        assert_string_equal(error.text, cases[i][2]);
    }
    assert_float_equal(parse(ARGUMENTS("--momentum=0.5", "--optimizer=lars")).momentum, 0.5, 0.0);
    assert_float_equal(parse(ARGUMENTS("--optimizer=lamb", "--beta2=0.5")).beta2, 0.5, 0.0);
    assert_float_equal(parse(ARGUMENTS("--schedule=step", "--decay=0.5")).decay, 0.5, 0.0);
    assert_true(parse(ARGUMENTS("-h")).help);
}

/* The error for an unknown option names the option that begins with the same letters. */
static void suggests_options(void **state)
{
    static const char *const cases[][2] = {
        { "--epoch", "unknown option --epoch; did you mean --epochs? --help shows all options" },
        { "--batch-size=8",
          "unknown option --batch-size=8; did you mean --batch? --help shows all options" },
        { "--lr-scale", "unknown option --lr-scale; did you mean --lr? --help shows all options" },
        { "--lr-s", "unknown option --lr-s; did you mean --lr-scaling? --help shows all options" },
        { "--bach", "unknown option --bach; --help shows all options" },
        { "--", "unknown option --; --help shows all options" },
        { "-e", "unknown option -e; --help shows all options" },
        { "epochs", "unexpected argument epochs; --help shows all options" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *argv[] = { "example_train", (char *)cases[i][0] };
        train_error_t error = { "" };
        train_options_t options;

        assert_false(train_options_parse(2, argv, &options, &error));
        assert_string_equal(error.text, cases[i][1]);
    }
}

/* Does the text have this line? */
static bool has_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);

    return at != NULL && (at == text || at[-1] == '\n') && at[strlen(line)] == '\n';
}

static void shares_what_matters(void **state)
{
    const train_options_t options = parse(ARGUMENTS("--seed", "3"));
    const train_options_t same = parse(ARGUMENTS("--seed", "3", "--data", "elsewhere"));
    const train_options_t saves =
        parse(ARGUMENTS("--seed", "3", "--checkpoint", "file", "--steps", "9"));
    char text[3][TRAIN_SHARED_BYTES];

    (void)state;
    train_options_describe_shared(&options, text[0]);
    train_options_describe_shared(&same, text[1]);
    train_options_describe_shared(&saves, text[2]);
    assert_string_equal(text[0], text[1]);
    assert_true(has_line(text[0], "--seed 3"));
    assert_int_equal(strncmp(text[0], "--device cpu\n", 13), 0); /* the first difference, if any */
    assert_true(has_line(text[0], "without --checkpoint"));

    /* not relevant for the parameters, but for the comparison between ranks */
    assert_true(has_line(text[2], "with --checkpoint"));
    assert_true(has_line(text[2], "--steps 9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_defaults),
        cmocka_unit_test(reads_values),
        cmocka_unit_test(adapts_defaults),
        cmocka_unit_test(limits_the_warmup),
        cmocka_unit_test(describes_what_matters),
        cmocka_unit_test(leaves_nothing_on_failure),
        cmocka_unit_test(knows_what_options_need),
        cmocka_unit_test(suggests_options),
        cmocka_unit_test(shares_what_matters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
