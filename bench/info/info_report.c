/* SPDX-License-Identifier: BSD-3-Clause */
/* The report as a list of entries, in the order of their calls, and its two printed forms. */
#include "info/info.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 100 /* of the text */
#define COLUMNS 8 /* most fields of a record */
#define WIDEST 40 /* widest column of a table; longer texts break the alignment */

typedef enum {
    OBJECT,
    LIST,
    RECORD,
    FIELD
} kind_t;

typedef struct {
    kind_t kind;
    info_where_t where;
    int is_number;
    char *key, *value; /* of an OBJECT or LIST: value is the title */
} entry_t;

struct info {
    entry_t *entry;
    size_t count, room;
};

static void *check(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "tutti_info: out of memory\n");
        exit(1);
    }
    return memory;
}

info_t *info_new(void)
{
    return check(calloc(1, sizeof(info_t)));
}

void info_free(info_t *info)
{
    for (size_t i = 0; i < info->count; i++) {
        free(info->entry[i].key);
        free(info->entry[i].value);
    }
    free(info->entry);
    free(info);
}

/* Takes over `value`. */
static entry_t *add(info_t *info, kind_t kind, const char *key, char *value)
{
    if (info->count == info->room) {
        info->room = 2 * info->room + 64;
        info->entry = check(realloc(info->entry, info->room * sizeof(*info->entry)));
    }
    info->entry[info->count] = (entry_t){ kind, INFO_BOTH, 0, check(strdup(key)), value };
    return &info->entry[info->count++];
}

void info_object(info_t *info, const char *key, const char *title)
{
    add(info, OBJECT, key, check(strdup(title != NULL ? title : key)));
}

void info_list(info_t *info, const char *key, const char *title)
{
    add(info, LIST, key, check(strdup(title != NULL ? title : key)));
}

void info_record(info_t *info)
{
    add(info, RECORD, "", NULL);
}

void info_put(info_t *info, info_where_t where, const char *key, const char *format, ...)
{
    char *value = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&value, format, args) < 0)
        value = NULL;
    va_end(args);
    add(info, FIELD, key, check(value))->where = where;
}

void info_number(info_t *info, info_where_t where, const char *key, uint64_t number)
{
    info_put(info, where, key, "%" PRIu64, number);
    info->entry[info->count - 1].is_number = 1;
}

const char *info_bytes(uint64_t bytes, char text[24])
{
    static const char units[] = { '\0', 'K', 'M', 'G', 'T', 'P' };
    size_t unit = 0;

    while (bytes > 0 && bytes % 1024 == 0 && unit + 1 < sizeof(units)) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 24, "%" PRIu64 "%.1s", bytes, &units[unit]);
    return text;
}

const char *info_about(uint64_t bytes, char text[24])
{
    static const char units[] = { 'K', 'M', 'G', 'T', 'P', 'E' };
    double number = (double)bytes / 1024.0;
    size_t unit = 0;

    while (number >= 1000.0 && unit + 1 < sizeof(units)) {
        number /= 1024.0;
        unit++;
    }
    snprintf(text, 24, "%.1f%c", number, units[unit]);
    return text;
}

/* ---- text ---- */

/* Print words; continuation lines begin at `indent`. at: the current column. */
static void print_wrapped(FILE *to, const char *text, int indent, int at)
{
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");

        if (at > indent && at + 1 + length > WIDTH) {
            fprintf(to, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            fputc(' ', to);
            at++;
        }
        fprintf(to, "%.*s", length, text);
        at += length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', to);
}

/* The entry after the last entry of the section that begins at `first`. */
static size_t section_end(const info_t *info, size_t first)
{
    size_t i = first + 1;

    while (i < info->count && info->entry[i].kind >= RECORD)
        i++;
    return i;
}

static int is_shown(const entry_t *entry, info_where_t where)
{
    return entry->kind == FIELD && (entry->where == INFO_BOTH || entry->where == where);
}

static void print_object(const info_t *info, size_t from, size_t end, FILE *to)
{
    int width = 0;

    for (size_t i = from; i < end; i++)
        if (is_shown(&info->entry[i], INFO_TEXT) && (int)strlen(info->entry[i].key) > width)
            width = (int)strlen(info->entry[i].key);
    for (size_t i = from; i < end; i++) {
        if (!is_shown(&info->entry[i], INFO_TEXT))
            continue;
        fprintf(to, "  %-*s  ", width, info->entry[i].key);
        print_wrapped(to, info->entry[i].value, width + 4, width + 4);
    }
}

/* The fields of the record that begins at `from`. Returns their number; *ret_next: the next
   record. */
static int record_fields(const info_t *info, size_t from, size_t end,
                         const char *ret_field[COLUMNS], size_t *ret_next)
{
    size_t i = from + 1;
    int n = 0;

    for (; i < end && info->entry[i].kind != RECORD; i++)
        if (is_shown(&info->entry[i], INFO_TEXT) && n < COLUMNS)
            ret_field[n++] = info->entry[i].value;
    *ret_next = i;
    return n;
}

static void print_record(const char *const *field, int n, const int *width, FILE *to)
{
    int at = 2;

    while (n > 1 && field[n - 1][0] == '\0')
        n--;
    fputs("  ", to);
    for (int k = 0; k < n - 1; k++) {
        int used = fprintf(to, "%-*s  ", width[k], field[k]);

        at += used;
    }
    print_wrapped(to, n > 0 ? field[n - 1] : "", at, at);
}

static void print_list(const info_t *info, size_t from, size_t end, FILE *to)
{
    const char *field[COLUMNS];
    int width[COLUMNS] = { 0 };
    size_t next;

    for (size_t i = from; i < end; i = next) {
        int n = record_fields(info, i, end, field, &next);

        for (int k = 0; k < n; k++)
            if ((int)strlen(field[k]) > width[k] && strlen(field[k]) <= WIDEST)
                width[k] = (int)strlen(field[k]);
    }
    for (size_t i = from; i < end; i = next) {
        int n = record_fields(info, i, end, field, &next);

        print_record(field, n, width, to);
    }
    if (from == end)
        fputs("  none\n", to);
}

int info_print_text(const info_t *info, FILE *to)
{
    for (size_t i = 0, end; i < info->count; i = end) {
        end = section_end(info, i);
        fprintf(to, "%s%s\n", i > 0 ? "\n" : "", info->entry[i].value);
        if (info->entry[i].kind == OBJECT)
            print_object(info, i + 1, end, to);
        else
            print_list(info, i + 1, end, to);
    }
    return fflush(to) == 0 && !ferror(to) ? 0 : -1;
}

/* ---- JSON ---- */

/* The length of the UTF-8 sequence at `text`; 0: invalid. */
static int utf8_length(const unsigned char *text)
{
    int n = text[0] >= 0xc2 && text[0] < 0xe0 ? 2 : (text[0] & 0xf0) == 0xe0 ? 3 : 4;

    if (text[0] < 0x80)
        return 1;
    if (text[0] < 0xc2 || text[0] > 0xf4 || (text[0] == 0xe0 && text[1] < 0xa0) ||
        (text[0] == 0xed && text[1] > 0x9f) || (text[0] == 0xf0 && text[1] < 0x90) ||
        (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    for (int i = 1; i < n; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

/* A byte that is not valid UTF-8 becomes "?": environment variables may have such bytes. */
static void print_string(const char *text, FILE *to)
{
    const unsigned char *at = (const unsigned char *)text;

    fputc('"', to);
    while (*at != '\0') {
        int n = utf8_length(at);

        if (*at == '"' || *at == '\\')
            fprintf(to, "\\%c", *at);
        else if (*at < 0x20)
            fprintf(to, "\\u%04x", *at);
        else if (n == 0)
            fputc('?', to);
        else
            fwrite(at, 1, (size_t)n, to);
        at += n == 0 ? 1 : n;
    }
    fputc('"', to);
}

static void print_fields(const info_t *info, size_t from, size_t end, const char *indent, FILE *to)
{
    int n = 0;

    fputc('{', to);
    for (size_t i = from; i < end && info->entry[i].kind == FIELD; i++) {
        const entry_t *entry = &info->entry[i];

        if (!is_shown(entry, INFO_JSON))
            continue;
        fprintf(to, "%s%s", n++ > 0 ? "," : "", indent);
        print_string(entry->key, to);
        fputs(": ", to);
        if (entry->is_number)
            fputs(entry->value, to);
        else
            print_string(entry->value, to);
    }
    fputc('}', to);
}

int info_print_json(const info_t *info, FILE *to)
{
    fputc('{', to);
    for (size_t i = 0, end; i < info->count; i = end) {
        int n = 0;

        end = section_end(info, i);
        fputs(i > 0 ? ",\n " : "\n ", to);
        print_string(info->entry[i].key, to);
        fputs(": ", to);
        if (info->entry[i].kind == OBJECT) {
            print_fields(info, i + 1, end, "\n  ", to);
            continue;
        }
        fputc('[', to);
        for (size_t k = i + 1; k < end; k++) {
            if (info->entry[k].kind != RECORD)
                continue;
            fputs(n++ > 0 ? ",\n  " : "\n  ", to);
            print_fields(info, k + 1, end, " ", to);
        }
        fputc(']', to);
    }
    fputs("\n}\n", to);
    return fflush(to) == 0 && !ferror(to) ? 0 : -1;
}
