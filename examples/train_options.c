/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One table says all about the options: parsing, defaults, limits and help come from it.
 *
 * Rejected: getopt_long. It prints by itself, once per rank, and leaves the numbers to atoi, which
 * reads "12x" as 12.
 */
#include "train_options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
    KIND_COUNT,  /* whole number from `low` to `high`: int64_t */
    KIND_REAL,   /* any number from `low` to `high`: double */
    KIND_WORD,   /* one of the words in `metavar`, separated by |: its index as int64_t */
    KIND_LAYERS, /* train_hidden_t */
    KIND_TEXT,   /* const char * */
    KIND_SWITCH, /* takes no value: bool */
} kind_t;

typedef struct {
    const char *name;
    kind_t kind;
    size_t offset;             /* of the field in train_options_t */
    const char *default_value; /* NULL: none */
    double low, high;
    const char *metavar;
    const char *help;
} option_t;

#define FIELD(name) offsetof(train_options_t, name)

static const option_t table[] = {
    { "--data", KIND_TEXT, FIELD(data), "/usr/share/datasets/fashion-mnist", 0, 0, "DIR",
      "where the four IDX files are, gzipped or not" },
    { "--hidden", KIND_LAYERS, FIELD(hidden), "512,256", 1, 65536, "LIST",
      "widths of the hidden layers, such as 512,256; or none" },
    { "--epochs", KIND_COUNT, FIELD(epochs), "5", 1, 100000, "N",
      "how often to go through the training set" },
    { "--batch", KIND_COUNT, FIELD(batch), "128", 1, 1 << 24, "N",
      "images per step, over all ranks" },
    { "--lr", KIND_REAL, FIELD(lr), "0.05", 1e-9, 1e3, "X",
      "learning rate for --reference-batch images per step" },
    { "--reference-batch", KIND_COUNT, FIELD(reference_batch), "128", 1, 1 << 24, "N",
      "what --lr is meant for; the rate is --lr times batch / this" },
    { "--warmup", KIND_REAL, FIELD(warmup), "1", 0, 100000, "X",
      "epochs in which the learning rate rises; at most half of all" },
    { "--schedule", KIND_WORD, FIELD(schedule), "cosine", 0, 0, "cosine|constant",
      "the learning rate after the warmup" },
    { "--momentum", KIND_REAL, FIELD(momentum), "0.9", 0, 0.9999, "X", "of the optimizer" },
    { "--weight-decay", KIND_REAL, FIELD(weight_decay), "0.0001", 0, 1, "X", "of the optimizer" },
    { "--seed", KIND_COUNT, FIELD(seed), "1", 0, 9e18, "N",
      "first weights and shuffles follow from it" },
    { "--threads", KIND_COUNT, FIELD(threads), "1", 1, 1024, "N",
      "threads of each rank for matrix products" },
    { "--steps", KIND_COUNT, FIELD(steps), "0", 0, 9e18, "N",
      "stop after so many steps; 0: go through all epochs" },
    { "--progress", KIND_WORD, FIELD(progress), "auto", 0, 0, "auto|bar|lines",
      "auto: a bar on a terminal, else one line per epoch" },
    { "--metrics", KIND_TEXT, FIELD(metrics), NULL, 0, 0, "FILE",
      "write each epoch's numbers as a line of JSON" },
    { "--log-steps", KIND_TEXT, FIELD(log_steps), NULL, 0, 0, "FILE",
      "write each step's number and loss" },
    { "--digest", KIND_SWITCH, FIELD(digest), NULL, 0, 0, "",
      "print a digest of each rank's parameters at the end" },
    { "--help", KIND_SWITCH, FIELD(help), NULL, 0, 0, "", "print this and end" },
};

#define OPTION_COUNT (sizeof(table) / sizeof(table[0]))

static bool fail_range(const option_t *option, const char *value, train_error_t *error)
{
    return train_fail(error, "%s %s: must be from %.10g to %.10g", option->name, value, option->low,
                      option->high);
}

static bool parse_count(const option_t *option, const char *value, int64_t *ret_count,
                        train_error_t *error)
{
    char *end;

    errno = 0;
    const long long count = strtoll(value, &end, 10);
    if (strchr("-0123456789", value[0]) == NULL || end == value || *end != '\0')
        return train_fail(error, "%s %s: not a whole number", option->name, value);
    if (errno == ERANGE || (double)count < option->low || (double)count > option->high)
        return fail_range(option, value, error);
    *ret_count = count;
    return true;
}

static bool parse_real(const option_t *option, const char *value, double *ret_real,
                       train_error_t *error)
{
    char *end;
    const double real = strtod(value, &end);

    /* strtod also takes spaces, "nan" and "inf" */
    if (strchr("-.0123456789", value[0]) == NULL || end == value || *end != '\0' || !isfinite(real))
        return train_fail(error, "%s %s: not a finite number", option->name, value);
    if (real < option->low || real > option->high)
        return fail_range(option, value, error);
    *ret_real = real;
    return true;
}

static bool parse_word(const option_t *option, const char *value, int64_t *ret_index,
                       train_error_t *error)
{
    const char *word = option->metavar;

    for (int64_t i = 0;; i++) {
        const size_t length = strcspn(word, "|");

        if (strlen(value) == length && strncmp(value, word, length) == 0) {
            *ret_index = i;
            return true;
        }
        if (word[length] == '\0')
            return train_fail(error, "%s %s: must be %s", option->name, value, option->metavar);
        word += length + 1;
    }
}

static bool parse_layers(const option_t *option, const char *value, train_hidden_t *ret_hidden,
                         train_error_t *error)
{
    train_hidden_t hidden = { 0 };
    const char *next = value;

    while (strcmp(value, "none") != 0) {
        char *end;

        errno = 0;
        const long long width = strtoll(next, &end, 10);
        if (strchr("-0123456789", *next) == NULL || end == next || (*end != ',' && *end != '\0'))
            return train_fail(error, "%s %s: must be whole numbers and commas, or none",
                              option->name, value);
        if (errno == ERANGE || (double)width < option->low || (double)width > option->high)
            return fail_range(option, value, error);
        if (hidden.count == TRAIN_MAX_HIDDEN)
            return train_fail(error, "%s %s: more than %d layers", option->name, value,
                              TRAIN_MAX_HIDDEN);
        hidden.widths[hidden.count++] = (size_t)width;
        if (*end == '\0')
            break;
        next = end + 1;
    }
    *ret_hidden = hidden;
    return true;
}

static bool parse_value(const option_t *option, const char *value, train_options_t *options,
                        train_error_t *error)
{
    void *field = (char *)options + option->offset;

    switch (option->kind) {
    case KIND_COUNT:
        return parse_count(option, value, field, error);
    case KIND_REAL:
        return parse_real(option, value, field, error);
    case KIND_WORD:
        return parse_word(option, value, field, error);
    case KIND_LAYERS:
        return parse_layers(option, value, field, error);
    case KIND_TEXT:
        if (value[0] == '\0')
            return train_fail(error, "%s: is empty", option->name);
        *(const char **)field = value;
        return true;
    case KIND_SWITCH:
        break;
    }
    *(bool *)field = true;
    return true;
}

/* The row of an argument; its name ends at '=' or at the argument's end. */
static const option_t *find(const char *argument, train_error_t *error)
{
    const size_t length = strcspn(argument, "=");

    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (strlen(table[i].name) == length && strncmp(table[i].name, argument, length) == 0)
            return &table[i];
    train_fail(error, "%s %s; --help shows what there is",
               argument[0] == '-' ? "unknown option" : "unexpected argument", argument);
    return NULL;
}

bool train_options_parse(int argc, char **argv, train_options_t *ret_options, train_error_t *error)
{
    train_options_t options = { 0 };

    *ret_options = options;
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (table[i].default_value != NULL &&
            !parse_value(&table[i], table[i].default_value, &options, error))
            return false;

    for (int i = 1; i < argc; i++) {
        const option_t *option = find(argv[i], error);
        const char *value = strchr(argv[i], '=');

        if (option == NULL)
            return false;
        if (option->kind == KIND_SWITCH && value != NULL)
            return train_fail(error, "%s takes no value", option->name);
        if (value != NULL)
            value++;
        else if (option->kind != KIND_SWITCH && i + 1 < argc)
            value = argv[++i];
        else if (option->kind != KIND_SWITCH)
            return train_fail(error, "%s needs a value", option->name);
        if (!parse_value(option, value, &options, error))
            return false;
    }
    *ret_options = options;
    return true;
}

void train_options_print_help(FILE *out)
{
    fprintf(out,
            "usage: mpirun -np N example_train [OPTION...]\n\n"
            "Trains a multi-layer perceptron on Fashion-MNIST, data-parallel over N ranks.\n\n");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const option_t *option = &table[i];
        char left[64];

        snprintf(left, sizeof(left), "%s %s", option->name, option->metavar);
        fprintf(out, "  %-26s %s", left, option->help);
        if (option->default_value != NULL)
            fprintf(out, " [%s]", option->default_value);
        fputc('\n', out);
    }
    fprintf(out,
            "\n\"waiting\" is the share of the steps' time that ranks spend in tutti_wait, that "
            "is,\nfor communication that did not finish during the backward pass; the mean "
            "of all ranks.\n");
}

uint64_t train_options_fingerprint(const train_options_t *options)
{
    /* texts are paths, which may differ from host to host */
    static const size_t bytes[] = {
        [KIND_COUNT] = sizeof(int64_t), [KIND_REAL] = sizeof(double),
        [KIND_WORD] = sizeof(int64_t),  [KIND_LAYERS] = sizeof(train_hidden_t),
        [KIND_SWITCH] = sizeof(bool),   [KIND_TEXT] = 0,
    };
    uint64_t sum = TRAIN_HASH_START;

    for (size_t i = 0; i < OPTION_COUNT; i++)
        sum = train_hash(sum, (const char *)options + table[i].offset, bytes[table[i].kind]);
    return sum;
}
