/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conversion of an option's value between text and a field.
 */
#ifndef TRAIN_VALUE_H
#define TRAIN_VALUE_H

#include <stdbool.h>
#include <stddef.h>

#include "train_base.h"

typedef enum {
    TRAIN_KIND_COUNT,  /* whole number from `low` to `high`: int64_t */
    TRAIN_KIND_REAL,   /* any number from `low` to `high`: double */
    TRAIN_KIND_WORD,   /* one of the words in `metavar`, separated by |: index, int64_t */
    TRAIN_KIND_LIST,   /* whole numbers and commas, or the word "none": train_list_t */
    TRAIN_KIND_TEXT,   /* const char * */
    TRAIN_KIND_SWITCH, /* takes no value: bool */
} train_kind_t;

/* A row of the table of options. */
typedef struct {
    const char *name;
    train_kind_t kind;
    bool course;               /* another value leads to other parameters */
    size_t offset;             /* of the field, in the structure of all options */
    const char *default_value; /* NULL: none */
    double low, high;
    const char *metavar;
    const char *help;
} train_option_t;

/* Parse a value into the option's field. The error names the option. */
bool train_value_parse(const train_option_t *option, const char *text, void *ret_field,
                       train_error_t *error);

/* Write a field's value as it would be typed; cut if longer than `bytes`. */
void train_value_format(const train_option_t *option, const void *field, char *ret_text,
                        size_t bytes);

#endif
