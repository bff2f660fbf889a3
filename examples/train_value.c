/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Strict parsing of values: the whole text must be a valid value in range.
 *
 * Rejected: atoi and strtod alone, which read "12x" as 12 and accept spaces, "nan" and "inf".
 */
#include "train_value.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool fail_range(const train_option_t *option, const char *value, train_error_t *error)
{
    return train_fail(error, "%s %s: must be from %.10g to %.10g", option->name, value, option->low,
                      option->high);
}

static bool parse_count(const train_option_t *option, const char *value, int64_t *ret_count,
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

static bool parse_real(const train_option_t *option, const char *value, double *ret_real,
                       train_error_t *error)
{
    char *end;
    const double real = strtod(value, &end);

    if (strchr("-.0123456789", value[0]) == NULL || end == value || *end != '\0' || !isfinite(real))
        return train_fail(error, "%s %s: not a finite number", option->name, value);
    if (real < option->low || real > option->high)
        return fail_range(option, value, error);
    *ret_real = real;
    return true;
}

static bool parse_word(const train_option_t *option, const char *value, int64_t *ret_index,
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

static bool parse_list(const train_option_t *option, const char *value, train_list_t *ret_list,
                       train_error_t *error)
{
    train_list_t list = { 0 };
    const char *next = value;

    while (strcmp(value, "none") != 0) {
        char *end;

        errno = 0;
        const long long item = strtoll(next, &end, 10);
        if (strchr("-0123456789", *next) == NULL || end == next || (*end != ',' && *end != '\0'))
            return train_fail(error, "%s %s: must be whole numbers and commas, or none",
                              option->name, value);
        if (errno == ERANGE || (double)item < option->low || (double)item > option->high)
            return fail_range(option, value, error);
        if (list.count == TRAIN_MAX_LIST)
            return train_fail(error, "%s %s: more than %d numbers", option->name, value,
                              TRAIN_MAX_LIST);
        list.items[list.count++] = (size_t)item;
        if (*end == '\0')
            break;
        next = end + 1;
    }
    *ret_list = list;
    return true;
}

bool train_value_parse(const train_option_t *option, const char *text, void *ret_field,
                       train_error_t *error)
{
    switch (option->kind) {
    case TRAIN_KIND_COUNT:
        return parse_count(option, text, ret_field, error);
    case TRAIN_KIND_REAL:
        return parse_real(option, text, ret_field, error);
    case TRAIN_KIND_WORD:
        return parse_word(option, text, ret_field, error);
    case TRAIN_KIND_LIST:
        return parse_list(option, text, ret_field, error);
    case TRAIN_KIND_TEXT:
        if (text[0] == '\0')
            return train_fail(error, "%s: is empty", option->name);
        *(const char **)ret_field = text;
        return true;
    case TRAIN_KIND_SWITCH:
        break;
    }
    *(bool *)ret_field = true;
    return true;
}

/* The shortest decimal number that parses to the same double. */
static void format_real(double real, char *ret_text, size_t bytes)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(ret_text, bytes, "%.*g", digits, real);
        if (strtod(ret_text, NULL) == real)
            break;
    }
}

static void format_word(const char *words, int64_t index, char *ret_text, size_t bytes)
{
    for (; index > 0; index--)
        words += strcspn(words, "|") + 1;
    snprintf(ret_text, bytes, "%.*s", (int)strcspn(words, "|"), words);
}

static void format_list(const train_list_t *list, char *ret_text, size_t bytes)
{
    size_t used = 0;

    snprintf(ret_text, bytes, "none");
    for (size_t i = 0; i < list->count && used < bytes; i++)
        used +=
            (size_t)snprintf(ret_text + used, bytes - used, i > 0 ? ",%zu" : "%zu", list->items[i]);
}

void train_value_format(const train_option_t *option, const void *field, char *ret_text,
                        size_t bytes)
{
    switch (option->kind) {
    case TRAIN_KIND_COUNT:
        snprintf(ret_text, bytes, "%lld", (long long)*(const int64_t *)field);
        break;
    case TRAIN_KIND_REAL:
        format_real(*(const double *)field, ret_text, bytes);
        break;
    case TRAIN_KIND_WORD:
        format_word(option->metavar, *(const int64_t *)field, ret_text, bytes);
        break;
    case TRAIN_KIND_LIST:
        format_list(field, ret_text, bytes);
        break;
    case TRAIN_KIND_TEXT:
        snprintf(ret_text, bytes, "%s", *(const char *const *)field);
        break;
    case TRAIN_KIND_SWITCH:
        snprintf(ret_text, bytes, "%s", *(const bool *)field ? "yes" : "no");
        break;
    }
}
