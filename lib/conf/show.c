/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The settings as text, with the source of each value, for tutti_info.
 *
 * The tuned file is the file that tutti_init would use: its name contains the launcher's number of
 * local ranks.
 */
#include "conf/conf_inside.h"

#include <string.h>

static const char *tuned_value(const tutti__tuned_t *tuned, const char *name)
{
    for (size_t i = 0; i < tuned->count; i++)
        if (strcmp(tuned->entry[i].name, name) == 0)
            return tuned->entry[i].value;
    return NULL;
}

/* The settings that tutti_init would use, and the log line about the tuned file. */
static void read_all(tutti__conf_t *ret_conf, tutti__conf_note_t *ret_note)
{
    tutti__conf_row_t row;
    const char *text;

    tutti__conf_defaults(ret_conf);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; tutti__conf_row(i, &row); i++) {
            text = tutti__conf_row_text(i);
            if (text != NULL)
                tutti__conf_row_put(ret_conf, i, text);
        }
        if (pass == 0)
            tutti__conf_use_tuned(ret_conf, ret_note);
    }
}

void tutti__conf_show(void (*setting)(void *arg, const tutti__conf_shown_t *shown),
                      void (*unknown)(void *arg, const char *name, const char *guess), void *arg,
                      tutti__conf_t *ret_conf, char *ret_tuned, size_t capacity)
{
    tutti__conf_note_t note;
    tutti__conf_row_t row;
    const char *guess;
    char **at = NULL;
    char name[64];

    read_all(ret_conf, &note);
    for (size_t i = 0; tutti__conf_row(i, &row); i++) {
        const char *text = tutti__conf_row_text(i), *tuned = tuned_value(&note.used, row.name);
        tutti__conf_shown_t shown = { row.name, row.standard, "default", NULL };
        tutti__conf_t scratch;

        if (text != NULL) {
            shown.value = row.is_secret ? "(hidden)" : text;
            shown.from = "environment";
            if (!tutti__conf_row_put(&scratch, i, text))
                shown.wrong = row.allowed;
        } else if (tuned != NULL) {
            shown.value = tuned;
            shown.from = "tuned file";
        }
        setting(arg, &shown);
    }
    while (tutti__conf_next_unknown(&at, name, &guess))
        unknown(arg, name, guess);
    snprintf(ret_tuned, capacity, "%s", note.text);
}
