/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares a checkpoint with a run, and describes the first difference by the options that the user
 * has typed.
 *
 * The lines of two runs are compared in the order of the table of options, where an option comes
 * before the options whose defaults depend on it. If the option of the first different line was
 * typed for neither run, its value depends on a property that has no line:
 *
 *     --precision   on the device: only a GPU has this line
 *     --warmup      on --epochs: it is at most half of them
 *
 * In all other cases, an option that was not typed for this run was typed for the other run.
 */
#include "train_about.h"

#include <stdio.h>
#include <string.h>

/* One line: "--batch 128", "ranks 2". */
typedef struct {
    const char *text; /* NULL: there is no such line */
    size_t bytes;     /* without the newline */
    size_t name;      /* bytes up to the value */
} line_t;

void train_about_write(const train_options_t *options, int ranks, uint32_t checksum, char *ret_text)
{
    train_options_describe(options, ret_text);
    const size_t used = strlen(ret_text);
    snprintf(ret_text + used, TRAIN_ABOUT_BYTES - used, "ranks %d\ndata %08x\n", ranks, checksum);
}

/* Take the next line from the text. Its text is NULL at the end. */
static line_t next_line(const char **text, const char *end)
{
    line_t line = { 0 };

    if (*text == end)
        return line;
    const char *newline = memchr(*text, '\n', (size_t)(end - *text));
    line.text = *text;
    line.bytes = (size_t)((newline != NULL ? newline : end) - *text);
    const char *space = memchr(line.text, ' ', line.bytes);
    line.name = space != NULL ? (size_t)(space - line.text) : line.bytes;
    *text = newline != NULL ? newline + 1 : end;
    return line;
}

/* The line with the same name as `like`. */
static line_t find_line(const char *text, const char *end, const line_t *like)
{
    line_t line;

    do {
        line = next_line(&text, end);
    } while (line.text != NULL &&
             (line.name != like->name || memcmp(line.text, like->text, like->name) != 0));
    return line;
}

static const char *value(const line_t *line)
{
    return line->text + line->name + 1;
}

/* The length of a line's value, as the precision of "%.*s". The line must have a value. */
static int value_bytes(const line_t *line)
{
    return (int)(line->bytes - line->name - 1);
}

static bool is_one(const line_t *line)
{
    return value_bytes(line) == 1 && *value(line) == '1';
}

/* If the line is a property of the run (ranks, data), report the difference. False: the line is
   another one, or has no value. */
static bool fail_property(const char *name, const line_t *theirs, const line_t *ours,
                          train_error_t *ret_reason)
{
    if (theirs->name >= theirs->bytes || ours->name >= ours->bytes)
        return false;
    if (strcmp(name, "ranks") == 0)
        train_fail(ret_reason, "made by %.*s rank%s, but this run has %.*s", value_bytes(theirs),
                   value(theirs), is_one(theirs) ? "" : "s", value_bytes(ours), value(ours));
    else if (strcmp(name, "data") == 0)
        train_fail(ret_reason, "made with other data: their checksum is %.*s, this run's is %.*s",
                   value_bytes(theirs), value(theirs), value_bytes(ours), value(ours));
    else
        return false;
    return true;
}

/* Report a difference. Either line may be missing. Always returns false. */
static bool fail(const line_t *theirs, const line_t *ours, const train_options_t *options,
                 train_error_t *ret_reason)
{
    const line_t *line = theirs->text != NULL ? theirs : ours;
    char name[32];

    snprintf(name, sizeof(name), "%.*s", (int)line->name, line->text);
    if (strcmp(name, "--precision") == 0 && (theirs->text == NULL || ours->text == NULL))
        return train_fail(ret_reason, "made on %s, but this run computes on %s",
                          theirs->text != NULL ? "a GPU" : "the processor",
                          ours->text != NULL ? "a GPU" : "the processor");
    if (theirs->text == NULL || ours->text == NULL)
        return train_fail(ret_reason, "made %s '%.*s'", theirs->text != NULL ? "with" : "without",
                          (int)line->bytes, line->text);

    if (fail_property(name, theirs, ours, ret_reason))
        return false;

    const bool is_option = name[0] == '-', given = train_options_given(options, name);
    if (is_option && !given && strcmp(name, "--warmup") == 0)
        return train_fail(
            ret_reason, "made with '%.*s', but this run has '%.*s': at most half of all epochs",
            (int)theirs->bytes - 2, theirs->text + 2, (int)ours->bytes - 2, ours->text + 2);
    const char *hint =
        strcmp(name, "--epochs") == 0
            ? ": a cosine ends with the epochs; step and constant can be trained longer"
            : "";
    if (is_option && !given)
        return train_fail(ret_reason, "made with '%.*s', which this run was not given%s",
                          (int)theirs->bytes, theirs->text, hint);
    return train_fail(ret_reason, "made with '%.*s', but this run has '%.*s'%s", (int)theirs->bytes,
                      theirs->text, (int)ours->bytes, ours->text, hint);
}

bool train_about_fits(const char *theirs, size_t bytes, const char *ours,
                      const train_options_t *options, train_error_t *ret_reason)
{
    const char *their_end = theirs + bytes, *our_end = ours + strlen(ours);
    const char *next = theirs;

    for (line_t line = next_line(&next, their_end); line.text != NULL;
         line = next_line(&next, their_end)) {
        const line_t same = find_line(ours, our_end, &line);

        if (same.text == NULL || same.bytes != line.bytes ||
            memcmp(same.text, line.text, line.bytes) != 0)
            return fail(&line, &same, options, ret_reason);
    }
    next = ours;
    for (line_t line = next_line(&next, our_end); line.text != NULL;
         line = next_line(&next, our_end)) {
        const line_t same = find_line(theirs, their_end, &line);

        if (same.text == NULL)
            return fail(&same, &line, options, ret_reason);
    }
    return true;
}
