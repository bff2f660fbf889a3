/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti_report --trace: one file of parts that processes left behind when they were killed. */
#include "report/report.h"

#include "record/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    tutti__trace_head_t head;
    tutti__trace_entry_t *entries;
    uint64_t n;
} part_file_t;

static const tutti__trace_entry_t *at(void *owner, uint64_t i)
{
    const part_file_t *part = owner;

    return &part->entries[i];
}

/* Read a part; 0: an error was printed. */
static int read_part(const char *path, part_file_t *part)
{
    FILE *file = fopen(path, "rb");
    char page[TUTTI__TRACE_HEAD_BYTES];
    uint64_t room = 0;
    size_t n;

    *part = (part_file_t){ .n = 0 };
    if (file == NULL) {
        fprintf(stderr, "tutti_report: %s: %s\n", path, strerror(errno));
        return 0;
    }
    if (fread(page, 1, sizeof(page), file) == sizeof(page))
        memcpy(&part->head, page, sizeof(part->head));
    part->head.host[sizeof(part->head.host) - 1] = '\0';
    if (part->head.magic != TUTTI__TRACE_MAGIC) {
        fprintf(stderr, "tutti_report: %s is no part of a trace of this machine's kind\n", path);
        fclose(file);
        return 0;
    }
    do {
        if (part->n == room) {
            room = room > 0 ? 2 * room : TUTTI__TRACE_CHUNK;
            part->entries = realloc((void *)part->entries, room * sizeof(*part->entries));
            if (part->entries == NULL) {
                fprintf(stderr, "tutti_report: no memory\n");
                exit(1);
            }
        }
        n = fread((void *)(part->entries + part->n), sizeof(*part->entries), room - part->n, file);
        part->n += n;
    } while (n > 0);
    fclose(file);
    return 1;
}

int join_parts(const char *path, char **parts, int nparts)
{
    FILE *out = fopen(path, "w");
    uint64_t nlines = 0;
    int ok = out != NULL, failed;

    if (ok)
        fputs("{\"traceEvents\":[\n", out);
    for (int i = 0; i < nparts && out != NULL; i++) {
        uint64_t before = nlines;
        part_file_t part;

        if (read_part(parts[i], &part)) {
            nlines = tutti__trace_json(out, &part.head, at, &part, part.n, nlines);
            if (nlines == before)
                fprintf(stderr, "tutti_report: no memory\n");
        }
        if (nlines == before)
            ok = 0;
        free((void *)part.entries);
    }
    if (out != NULL) {
        fputs("\n]}\n", out);
        failed = ferror(out);
        if (fclose(out) != 0 || failed) {
            fprintf(stderr, "tutti_report: %s: cannot be written\n", path);
            ok = 0;
        }
    } else {
        fprintf(stderr, "tutti_report: %s: %s\n", path, strerror(errno));
    }
    return ok;
}
