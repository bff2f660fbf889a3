/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading dumps of lib/record/dump.c: one JSON object a line, whose keys and order that file
 * defines. So a key can be searched as text: quotes inside a string are escaped.
 */
#include "report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The value behind a key, or NULL. */
static const char *find(const char *line, const char *key)
{
    size_t length = strlen(key);

    for (const char *at = line; (at = strstr(at, key)) != NULL; at++)
        if (at - line >= 2 && at[-1] == '"' && (at[-2] == ',' || at[-2] == '{') &&
            strncmp(at + length, "\":", 2) == 0)
            return at + length + 2;
    return NULL;
}

static int64_t number(const char *line, const char *key, int64_t missing)
{
    const char *at = find(line, key);

    return at != NULL ? strtoll(at, NULL, 10) : missing;
}

/* Copy a text without its escapes; "" if the key is missing. */
static void text(const char *line, const char *key, char *to, size_t room)
{
    const char *at = find(line, key);
    size_t n = 0;

    if (at != NULL && *at == '"')
        for (at++; *at != '"' && *at != '\0' && n + 1 < room; at++) {
            if (*at == '\\' && at[1] != '\0')
                at++;
            to[n++] = *at;
        }
    to[n] = '\0';
}

static int is_kind(const char *line, const char *what)
{
    size_t length = strlen(what);

    return strncmp(line, "{\"what\":\"", 9) == 0 && strncmp(line + 9, what, length) == 0 &&
           line[9 + length] == '"';
}

/* One more entry of an array, zeroed. */
static void *more(void *array, size_t *n, size_t bytes)
{
    char *larger = realloc(array, (*n + 1) * bytes);

    if (larger == NULL) {
        fprintf(stderr, "tutti_report: no memory\n");
        exit(1);
    }
    memset(larger + *n * bytes, 0, bytes);
    (*n)++;
    return larger;
}

/* ---- lines ---- */

static void read_comm(const char *line, int64_t now_ns, part_t *part)
{
    text(line, "comm", part->kind, sizeof(part->kind));
    text(line, "id", part->id, sizeof(part->id));
    text(line, "host", part->host, sizeof(part->host));
    text(line, "text", part->text, sizeof(part->text));
    part->first = number(line, "first", 0);
    part->ordinal = number(line, "ordinal", 0);
    part->rank = number(line, "rank", 0);
    part->size = number(line, "size", 0);
    part->world_rank = number(line, "world_rank", 0);
    part->offset_ns = number(line, "offset_ns", 0);
    part->status = number(line, "status", 0);
    part->lost = number(line, "lost", 0);
    part->now_ns = now_ns + part->offset_ns;
}

static int64_t since(const char *line, const part_t *part)
{
    return number(line, "since_ns", 0) + part->offset_ns;
}

static void read_tensor(const char *line, part_t *part)
{
    tensor_t *tensor;
    char state[16];

    part->tensors = more(part->tensors, &part->ntensors, sizeof(*part->tensors));
    tensor = &part->tensors[part->ntensors - 1];
    text(line, "name", tensor->name, sizeof(tensor->name));
    text(line, "hash", tensor->hash, sizeof(tensor->hash));
    text(line, "call", tensor->call, sizeof(tensor->call));
    text(line, "dtype", tensor->dtype, sizeof(tensor->dtype));
    text(line, "op", tensor->op, sizeof(tensor->op));
    text(line, "state", state, sizeof(state));
    tensor->is_agreed = strcmp(state, "submitted") != 0;
    tensor->since_ns = since(line, part);
    tensor->count = number(line, "count", 0);
    tensor->bucket = number(line, "bucket", -1);
}

static void read_lane(const char *line, part_t *part)
{
    lane_t *lane;

    part->lanes = more(part->lanes, &part->nlanes, sizeof(*part->lanes));
    lane = &part->lanes[part->nlanes - 1];
    text(line, "name", lane->name, sizeof(lane->name));
    text(line, "doing", lane->doing, sizeof(lane->doing));
    lane->since_ns = find(line, "since_ns") != NULL ? since(line, part) : 0;
    lane->bucket = number(line, "bucket", -1);
    lane->tensors = number(line, "tensors", 0);
    lane->peer = number(line, "peer", NO_RANK);
    lane->step = number(line, "step", 0);
    lane->of = number(line, "of", 0);
    lane->received = number(line, "received", -1);
    lane->sent = number(line, "sent", -1);
    lane->messages = number(line, "messages", 0);
    lane->bytes = number(line, "bytes", 0);
}

static void read_direct(const char *line, part_t *part)
{
    part->is_direct = 1;
    text(line, "call", part->direct_call, sizeof(part->direct_call));
    text(line, "dtype", part->direct_dtype, sizeof(part->direct_dtype));
    part->direct_since_ns = since(line, part);
    part->direct_count = number(line, "count", 0);
    part->direct_peer = number(line, "peer", NO_RANK);
}

static void read_event(const char *line, part_t *part)
{
    char kind[16];

    text(line, "kind", kind, sizeof(kind));
    if (strcmp(kind, "end") == 0)
        return;
    strcpy(part->last_kind, kind);
    text(line, "name", part->last_name, sizeof(part->last_name));
    part->last_ns = number(line, "time_ns", 0) + part->offset_ns;
}

/* ---- files ---- */

static void free_part(part_t *part)
{
    free(part->tensors);
    free(part->lanes);
}

static void drop_parts(dumps_t *dumps, size_t from)
{
    while (dumps->nparts > from)
        free_part(&dumps->parts[--dumps->nparts]);
}

void free_dumps(dumps_t *dumps)
{
    drop_parts(dumps, 0);
    free(dumps->parts);
}

/* What is known while a file is read. */
typedef struct {
    dumps_t *dumps;
    size_t from;      /* the first part of this file's dump */
    int64_t now_ns;   /* 0: no dump has begun */
    int64_t left_out; /* communicators of the process that the dump does not have */
    int is_failure;   /* the dump of a failure is kept, and the rest of the file ignored */
    int is_whole;
} reading_t;

static void read_line(const char *line, reading_t *reading)
{
    dumps_t *dumps = reading->dumps;
    part_t *part = dumps->nparts > reading->from ? &dumps->parts[dumps->nparts - 1] : NULL;
    char reason[16];

    if (is_kind(line, "dump")) {
        drop_parts(dumps, reading->from);
        text(line, "reason", reason, sizeof(reason));
        reading->is_failure = strcmp(reason, "failure") == 0;
        reading->now_ns = number(line, "time_ns", 0);
        reading->left_out = number(line, "left_out", 0);
        reading->is_whole = 0;
    } else if (reading->now_ns == 0) {
        return;
    } else if (is_kind(line, "comm")) {
        dumps->parts = more(dumps->parts, &dumps->nparts, sizeof(*dumps->parts));
        read_comm(line, reading->now_ns, &dumps->parts[dumps->nparts - 1]);
    } else if (is_kind(line, "end")) {
        reading->is_whole = 1;
    } else if (part == NULL) {
        return;
    } else if (is_kind(line, "tensor")) {
        read_tensor(line, part);
    } else if (is_kind(line, "lane")) {
        read_lane(line, part);
    } else if (is_kind(line, "direct")) {
        read_direct(line, part);
    } else if (is_kind(line, "wait")) {
        part->waits++;
    } else if (is_kind(line, "event")) {
        read_event(line, part);
    }
}

int read_dump(const char *path, dumps_t *dumps)
{
    reading_t reading = { .dumps = dumps, .from = dumps->nparts };
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;

    if (file == NULL) {
        fprintf(stderr, "tutti_report: %s: %s\n", path, strerror(errno));
        return 0;
    }
    while (getline(&line, &room, file) >= 0 && !(reading.is_failure && reading.is_whole))
        read_line(line, &reading);
    free(line);
    fclose(file);
    if (reading.now_ns == 0) {
        fprintf(stderr, "tutti_report: %s is no dump of Tutti's flight recorder\n", path);
        return 0;
    }
    if (!reading.is_whole)
        fprintf(stderr, "tutti_report: %s is cut off; what it has is used\n", path);
    if (reading.left_out > 0)
        fprintf(stderr,
                "tutti_report: %s lacks %" PRId64 " communicators of its process, which had "
                "too many\n",
                path, reading.left_out);
    return 1;
}
