/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One table describes all options: parsing, defaults, limits and help use it.
 *
 * Rejected: getopt_long. It prints its own errors, once per rank, and does not parse values.
 */
#include "train_options.h"

#include <math.h>
#include <string.h>

#include "train_optimizer.h"
#include "train_schedule.h"
#include "train_value.h"

#define FIELD(name) offsetof(train_options_t, name)

/* COURSE: another value leads to other parameters. An error names the first differing option in the
   table's order, so an option comes before the options whose defaults depend on it. */
enum {
    OTHER = false,
    COURSE = true
};

static const train_option_t table[] = {
    { "--data", TRAIN_KIND_TEXT, OTHER, FIELD(data), "/usr/share/datasets/fashion-mnist", 0, 0,
      "DIR", "folder of the four IDX files, gzipped or not" },
    { "--device", TRAIN_KIND_WORD, OTHER, FIELD(device), "cpu", 0, 0, "cpu|cuda|auto",
      "device: the processor, a GPU per rank, or a GPU if there is one" },
    { "--precision", TRAIN_KIND_WORD, COURSE, FIELD(precision), "fp32", 0, 0, "fp32|bf16|fp16",
      "cuda: type of all numbers but parameters and gradients (float32)" },
    { "--model", TRAIN_KIND_WORD, COURSE, FIELD(model), "mlp", 0, 0, "mlp|cnn",
      "mlp: a perceptron; cnn: convolutions before it" },
    { "--channels", TRAIN_KIND_LIST, COURSE, FIELD(channels), "16,32", 1, 4096, "LIST",
      "cnn: filters of each 3x3 convolution" },
    { "--hidden", TRAIN_KIND_LIST, COURSE, FIELD(hidden), "512,256", 1, 65536, "LIST",
      "widths of the hidden dense layers, or none" },
    { "--schedule", TRAIN_KIND_WORD, COURSE, FIELD(schedule), "cosine", 0, 0,
      "cosine|step|constant", "the learning rate after the warmup" },
    { "--epochs", TRAIN_KIND_COUNT, COURSE, FIELD(epochs), "5", 1, 100000, "N",
      "passes over the training set" },
    { "--batch", TRAIN_KIND_COUNT, COURSE, FIELD(batch), "128", 1, 1 << 24, "N",
      "images that are computed at once, over all ranks" },
    { "--accumulate", TRAIN_KIND_COUNT, COURSE, FIELD(accumulate), "1", 1, 1 << 24, "K",
      "batches per step; ranks exchange gradients once for all K" },
    { "--clip", TRAIN_KIND_REAL, COURSE, FIELD(clip), "0", 0, 1e9, "NORM",
      "largest norm of the gradient of all parameters; 0: no limit" },
    { "--optimizer", TRAIN_KIND_WORD, COURSE, FIELD(optimizer), "sgd", 0, 0, "sgd|adamw|lars|lamb",
      "the optimizer" },
    { "--lr", TRAIN_KIND_REAL, COURSE, FIELD(lr), "0.05", 1e-9, 1e3, "X",
      "learning rate for --reference-batch images per step" },
    { "--reference-batch", TRAIN_KIND_COUNT, COURSE, FIELD(reference_batch), "128", 1, 1 << 24, "N",
      "images per step for which --lr is given" },
    { "--lr-scaling", TRAIN_KIND_WORD, COURSE, FIELD(lr_scaling), "linear", 0, 0, "linear|sqrt",
      "growth of --lr with images per step / --reference-batch" },
    { "--warmup", TRAIN_KIND_REAL, COURSE, FIELD(warmup), "1", 0, 100000, "X",
      "epochs in which the rate rises with steps^2; at most half of all" },
    { "--decay-every", TRAIN_KIND_REAL, COURSE, FIELD(decay_every), "2", 1e-3, 100000, "X",
      "step: epochs with the same rate" },
    { "--decay", TRAIN_KIND_REAL, COURSE, FIELD(decay), "0.1", 0, 1, "X",
      "step: factor of the rate after --decay-every epochs" },
    { "--momentum", TRAIN_KIND_REAL, COURSE, FIELD(momentum), "0.9", 0, 0.9999, "X",
      "sgd, lars: momentum" },
    { "--beta1", TRAIN_KIND_REAL, COURSE, FIELD(beta1), "0.9", 0, 0.9999, "X",
      "adamw, lamb: decay of the gradients' running mean" },
    { "--beta2", TRAIN_KIND_REAL, COURSE, FIELD(beta2), "0.999", 0, 0.999999, "X",
      "adamw, lamb: decay of their squares' running mean" },
    { "--epsilon", TRAIN_KIND_REAL, COURSE, FIELD(epsilon), "1e-08", 1e-30, 1, "X",
      "adamw, lamb: added to the divisor" },
    { "--trust", TRAIN_KIND_REAL, COURSE, FIELD(trust), "0.001", 1e-9, 1e3, "X",
      "lars: length of a step / length of the parameters" },
    { "--weight-decay", TRAIN_KIND_REAL, COURSE, FIELD(weight_decay), "0.0001", 0, 1, "X",
      "weight decay of the optimizer" },
    { "--seed", TRAIN_KIND_COUNT, COURSE, FIELD(seed), "1", 0, 9e18, "N",
      "seed of the first weights and the shuffles" },
    { "--threads", TRAIN_KIND_COUNT, OTHER, FIELD(threads), "1", 1, 1024, "N",
      "threads of each rank for matrix products" },
    { "--steps", TRAIN_KIND_COUNT, OTHER, FIELD(steps), "0", 0, 9e18, "N",
      "stop after step N of the run, resumed or not; 0: after all epochs" },
    { "--checkpoint", TRAIN_KIND_TEXT, OTHER, FIELD(checkpoint), NULL, 0, 0, "FILE",
      "save the run here, for --resume, after each epoch and at the end" },
    { "--resume", TRAIN_KIND_SWITCH, OTHER, FIELD(resume), NULL, 0, 0, "",
      "continue the run of the --checkpoint; see below" },
    { "--overwrite", TRAIN_KIND_SWITCH, OTHER, FIELD(overwrite), NULL, 0, 0, "",
      "replace an existing checkpoint in FILE; see below" },
    { "--progress", TRAIN_KIND_WORD, OTHER, FIELD(progress), "auto", 0, 0, "auto|bar|lines",
      "auto: bar on a terminal, otherwise one line per epoch" },
    { "--plot", TRAIN_KIND_TEXT, OTHER, FIELD(plot), NULL, 0, 0, "FILE",
      "draw loss and accuracy at the end, with gnuplot: .svg or .png" },
    { "--metrics", TRAIN_KIND_TEXT, OTHER, FIELD(metrics), NULL, 0, 0, "FILE",
      "write each epoch's numbers as a line of JSON" },
    { "--log-steps", TRAIN_KIND_TEXT, OTHER, FIELD(log_steps), NULL, 0, 0, "FILE",
      "write each step's number and loss" },
    { "--digest", TRAIN_KIND_SWITCH, OTHER, FIELD(digest), NULL, 0, 0, "",
      "print a digest of each rank's parameters at the end" },
    { "--help", TRAIN_KIND_SWITCH, OTHER, FIELD(help), NULL, 0, 0, "",
      "or -h: print this and end" },
};

#define OPTION_COUNT (sizeof(table) / sizeof(table[0]))

/* Defaults that differ from the table's if another option has a certain word. */
static const struct {
    const char *name;
    size_t offset; /* of the other option's field */
    int64_t word;
    const char *word_text;
    const char *value;
} special_defaults[] = {
    { "--hidden", FIELD(model), TRAIN_MODEL_CNN, "cnn", "128" },
    { "--lr", FIELD(optimizer), TRAIN_OPTIMIZER_ADAMW, "adamw", "0.001" },
    { "--lr", FIELD(optimizer), TRAIN_OPTIMIZER_LARS, "lars", "2" },
    { "--lr", FIELD(optimizer), TRAIN_OPTIMIZER_LAMB, "lamb", "0.005" },
    { "--lr-scaling", FIELD(optimizer), TRAIN_OPTIMIZER_ADAMW, "adamw", "sqrt" },
    { "--lr-scaling", FIELD(optimizer), TRAIN_OPTIMIZER_LAMB, "lamb", "sqrt" },
    { "--epsilon", FIELD(optimizer), TRAIN_OPTIMIZER_LAMB, "lamb", "1e-06" },
    { "--weight-decay", FIELD(optimizer), TRAIN_OPTIMIZER_ADAMW, "adamw", "0.01" },
    { "--weight-decay", FIELD(optimizer), TRAIN_OPTIMIZER_LAMB, "lamb", "0.01" },
};

#define SPECIAL_COUNT (sizeof(special_defaults) / sizeof(special_defaults[0]))

/* Options that are valid only if another option has one of these words. */
static const struct {
    const char *name;
    const char *other;
    const char *words;
} needs[] = {
    { "--precision", "--device", "cuda|auto" },  { "--channels", "--model", "cnn" },
    { "--decay-every", "--schedule", "step" },   { "--decay", "--schedule", "step" },
    { "--momentum", "--optimizer", "sgd|lars" }, { "--beta1", "--optimizer", "adamw|lamb" },
    { "--beta2", "--optimizer", "adamw|lamb" },  { "--epsilon", "--optimizer", "adamw|lamb" },
    { "--trust", "--optimizer", "lars" },
};

#define NEED_COUNT (sizeof(needs) / sizeof(needs[0]))

/* The row of the option that an argument names. The name ends at '=', or with the argument. NULL:
   there is no such option. */
static const train_option_t *find(const char *argument)
{
    const size_t length = strcspn(argument, "=");

    if (strcmp(argument, "-h") == 0)
        return find("--help");
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (strlen(table[i].name) == length && strncmp(table[i].name, argument, length) == 0)
            return &table[i];
    return NULL;
}

/* The option that begins like the argument and is longer (--epoch) or shorter (--batch-size). NULL:
   there is none. */
static const train_option_t *nearest(const char *argument)
{
    const size_t length = strcspn(argument, "=");
    const train_option_t *found = NULL;
    size_t most = 2; /* more than the "--" must be alike */

    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const size_t own = strlen(table[i].name), common = own < length ? own : length;

        if (common > most && strncmp(argument, table[i].name, common) == 0) {
            most = common;
            found = &table[i];
        }
    }
    return found;
}

/* The error for an argument that is no option. */
static bool refuse(const char *argument, train_error_t *error)
{
    const train_option_t *guess = nearest(argument);

    if (guess != NULL)
        return train_fail(error, "unknown option %s; did you mean %s? --help shows all options",
                          argument, guess->name);
    return train_fail(error, "%s %s; --help shows all options",
                      argument[0] == '-' ? "unknown option" : "unexpected argument", argument);
}

/* Is `word` one of "one|two"? */
static bool is_one_of(const char *word, const char *words)
{
    const size_t length = strlen(word);

    for (;; words++) {
        const size_t here = strcspn(words, "|");

        if (here == length && strncmp(word, words, length) == 0)
            return true;
        words += here;
        if (*words == '\0')
            return false;
    }
}

/* The index in `needs` of a need of this option that is not met; NEED_COUNT: none. */
static size_t missing_need(const train_option_t *option, const train_options_t *options)
{
    char word[32];

    for (size_t i = 0; i < NEED_COUNT; i++) {
        if (strcmp(needs[i].name, option->name) != 0)
            continue;
        train_options_value(options, needs[i].other, word, sizeof(word));
        if (!is_one_of(word, needs[i].words))
            return i;
    }
    return NEED_COUNT;
}

static bool parse_field(const train_option_t *option, const char *value, train_options_t *options,
                        train_error_t *error)
{
    return train_value_parse(option, value, (char *)options + option->offset, error);
}

static bool parse_arguments(int argc, char **argv, train_options_t *options, train_error_t *error)
{
    for (int i = 1; i < argc; i++) {
        const train_option_t *option = find(argv[i]);
        const char *value = strchr(argv[i], '=');

        if (option == NULL)
            return refuse(argv[i], error);
        if (option->kind == TRAIN_KIND_SWITCH && value != NULL)
            return train_fail(error, "%s takes no value", option->name);
        if (value != NULL)
            value++;
        else if (option->kind != TRAIN_KIND_SWITCH && i + 1 < argc)
            value = argv[++i];
        else if (option->kind != TRAIN_KIND_SWITCH)
            return train_fail(error, "%s needs a value", option->name);
        if (!parse_field(option, value, options, error))
            return false;
        options->given |= UINT64_C(1) << (option - table);
    }
    return true;
}

static bool is_given(const train_options_t *options, const train_option_t *option)
{
    return (options->given >> (option - table) & 1) != 0;
}

static bool check_needs(const train_options_t *options, train_error_t *error)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const size_t need =
            is_given(options, &table[i]) ? missing_need(&table[i], options) : NEED_COUNT;

        if (need < NEED_COUNT)
            return train_fail(error, "%s needs %s %s", table[i].name, needs[need].other,
                              needs[need].words);
    }
    if ((options->resume || options->overwrite) && options->checkpoint == NULL)
        return train_fail(error, "--%s needs --checkpoint FILE",
                          options->resume ? "resume" : "overwrite");
    if (options->resume && options->overwrite)
        return train_fail(error, "--resume and --overwrite exclude each other");
    return true;
}

bool train_options_parse(int argc, char **argv, train_options_t *ret_options, train_error_t *error)
{
    train_options_t options = { 0 };

    _Static_assert(OPTION_COUNT <= 64, "a bit of `given` for each option");
    *ret_options = options;
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (table[i].default_value != NULL &&
            !parse_field(&table[i], table[i].default_value, &options, error))
            return false;
    if (!parse_arguments(argc, argv, &options, error))
        return false;

    for (size_t i = 0; i < SPECIAL_COUNT; i++) {
        const train_option_t *option = find(special_defaults[i].name);
        const int64_t *word = (void *)((char *)&options + special_defaults[i].offset);

        if (!is_given(&options, option) && *word == special_defaults[i].word &&
            !parse_field(option, special_defaults[i].value, &options, error))
            return false;
    }
    if (!check_needs(&options, error))
        return false;
    options.warmup = fmin(options.warmup, 0.5 * (double)options.epochs);
    *ret_options = options;
    return true;
}

void train_options_print_help(FILE *out)
{
    fprintf(out, "usage: mpirun -np N example_train [OPTION...]\n\n"
                 "Trains a small network on Fashion-MNIST, data-parallel over N ranks.\n\n");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const train_option_t *option = &table[i];
        char left[64];

        snprintf(left, sizeof(left), "%s %s", option->name, option->metavar);
        fprintf(out, "  %-31s %s", left, option->help);
        if (option->default_value != NULL)
            fprintf(out, " [%s", option->default_value);
        for (size_t j = 0; j < SPECIAL_COUNT; j++)
            if (strcmp(special_defaults[j].name, option->name) == 0)
                fprintf(out, ", %s %s", special_defaults[j].word_text, special_defaults[j].value);
        fputs(option->default_value != NULL ? "]\n" : "\n", out);
    }
    fprintf(out,
            "\n\"waiting\" is the share of the steps' time that a rank spends in tutti_wait, for "
            "communication\nthat did not finish during the backward pass; the mean of all "
            "ranks.\n\n"
            "--resume needs the data, the number of ranks and the options of the checkpoint. "
            "Only --steps,\n--threads, and options about files and output may differ. To train "
            "longer, --epochs may be\ngreater with --schedule step or constant, if that does not "
            "change --warmup, which is at most\nhalf of --epochs. With --schedule cosine, the "
            "rate depends on --epochs.\n\n"
            "If the checkpoint has all the steps that --steps and --epochs ask for, the resumed "
            "run says so,\ntrains nothing, prints the accuracy, and ends with status 0.\n\n"
            "If FILE of --checkpoint is a checkpoint, the run needs --resume or --overwrite. A "
            "FILE with\nother content is never overwritten.\n\n"
            "--device cuda uses the GPU with the rank's number on its host, modulo the number "
            "of GPUs.\nWith fp16 the loss is multiplied by a scale, 65536 at first. If the "
            "gradients of a step\noverflow, the step is skipped, and the scale is halved, except "
            "after the first overflow. After\n1000 steps without overflow the scale is doubled.\n");
}

void train_options_value(const train_options_t *options, const char *name, char *ret_text,
                         size_t bytes)
{
    const train_option_t *option = find(name);

    train_value_format(option, (const char *)options + option->offset, ret_text, bytes);
}

bool train_options_given(const train_options_t *options, const char *name)
{
    const train_option_t *option = find(name);

    return option != NULL && is_given(options, option);
}

void train_options_describe(const train_options_t *options, char *ret_text)
{
    const bool epochs_count = options->schedule == TRAIN_SCHEDULE_COSINE;
    size_t used = 0;

    ret_text[0] = '\0';
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char value[8 * TRAIN_MAX_LIST];

        if (!table[i].course || (table[i].offset == FIELD(epochs) && !epochs_count) ||
            missing_need(&table[i], options) < NEED_COUNT)
            continue;
        train_value_format(&table[i], (const char *)options + table[i].offset, value,
                           sizeof(value));
        used += (size_t)snprintf(ret_text + used, TRAIN_TEXT_BYTES - used, "%s %s\n", table[i].name,
                                 value);
    }
}

void train_options_describe_shared(const train_options_t *options, char *ret_text)
{
    static const char *const numbers[] = { "--epochs", "--steps" };
    const struct {
        const char *name;
        bool is_on;
    } switches[] = {
        { "--checkpoint", options->checkpoint != NULL }, /* the path may differ */
        { "--resume", options->resume },
        { "--digest", options->digest },
    };
    char device[32];
    size_t used;

    /* The first line that differs is printed. Other lines depend on the device, and with --device
       auto it may be the device alone that differs. */
    train_options_value(options, "--device", device, sizeof(device));
    used = (size_t)snprintf(ret_text, TRAIN_SHARED_BYTES, "--device %s\n", device);
    train_options_describe(options, ret_text + used);
    used += strlen(ret_text + used);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        char value[32];

        train_options_value(options, numbers[i], value, sizeof(value));
        used += (size_t)snprintf(ret_text + used, TRAIN_SHARED_BYTES - used, "%s %s\n", numbers[i],
                                 value);
    }
    for (size_t i = 0; i < sizeof(switches) / sizeof(*switches); i++)
        used += (size_t)snprintf(ret_text + used, TRAIN_SHARED_BYTES - used, "%s %s\n",
                                 switches[i].is_on ? "with" : "without", switches[i].name);
}
