/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti_info's report: sections of fields, printed as text or as JSON.
 *
 * A section is an object with fields, or a list of records that have fields. The text shows one
 * line for each field of an object, and one for each record.
 */
#ifndef TUTTI_INFO_H
#define TUTTI_INFO_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

typedef struct info info_t;

/* The forms of the report that show a field. */
typedef enum {
    INFO_BOTH,
    INFO_TEXT,
    INFO_JSON
} info_where_t;

/* Out of memory: the program ends with a message. */
info_t *info_new(void);
void info_free(info_t *info);

/* `key` is the name in JSON; the text has `title` (NULL: the key). */
void info_object(info_t *info, const char *key, const char *title);
void info_list(info_t *info, const char *key, const char *title);
void info_record(info_t *info);

void info_put(info_t *info, info_where_t where, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* As info_put, but a number in JSON. */
void info_number(info_t *info, info_where_t where, const char *key, uint64_t number);

/* 0, or -1 if it cannot be written. */
int info_print_text(const info_t *info, FILE *to);
int info_print_json(const info_t *info, FILE *to);

/* "64K" for 65536; "65537" for 65537. */
const char *info_bytes(uint64_t bytes, char text[24]);
/* "23.5G", rounded. */
const char *info_about(uint64_t bytes, char text[24]);

/* info_machine.c: this host, and the limits of this process. info_machine returns its cores. */
unsigned info_machine(info_t *info, const char *processors);
void info_limits(info_t *info);
void info_kernel(info_t *info);
/* A file's first line without '\n'; "" if it cannot be read. format: of the path. */
const char *info_read(char *text, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* info_modules.c: each module in the folder, opened in a process of its own; and the modules that
   were not built or are missing. */
void info_modules(info_t *info);
/* In the module's process: print a report on the module `file`. Does not return. */
void info_probe(const char *file) __attribute__((noreturn));

#endif
