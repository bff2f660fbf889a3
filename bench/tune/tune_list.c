/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The user's own list of gradients: a tensor per line, in the order in which a step submits them.
 *
 *      # a comment
 *      4096                     float32
 *      layer1/weight 65536
 *      layer1/bias 256 bfloat16
 *
 * Rank 0 reads the file, so that it need not be on all hosts.
 */
#include "tune/tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_WORDS = 3,
    PLACE_BYTES = 64 /* each tensor begins on a cache line */
};

#define MOST_COUNT ((uint64_t)1 << 40)

typedef struct {
    const char *name;
    tutti_dtype_t dtype;
    size_t bytes;
} type_t;

static const type_t types[] = {
    { "float32", TUTTI_FLOAT32, 4 }, { "float64", TUTTI_FLOAT64, 8 },
    { "float16", TUTTI_FLOAT16, 2 }, { "bfloat16", TUTTI_BFLOAT16, 2 },
    { "int8", TUTTI_INT8, 1 },       { "uint8", TUTTI_UINT8, 1 },
    { "int32", TUTTI_INT32, 4 },     { "int64", TUTTI_INT64, 8 },
};

static const type_t *find_type(const char *name)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

/* Digits only. */
static int is_count(const char *word, uint64_t *ret_count)
{
    uint64_t count = 0;

    for (const char *at = word; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || count > MOST_COUNT)
            return 0;
        count = 10 * count + (uint64_t)(*at - '0');
    }
    *ret_count = count;
    return word[0] != '\0' && count > 0 && count <= MOST_COUNT;
}

/* Split the line into words, in place. Returns their number; MOST_WORDS + 1: there are more. */
static size_t split(char *line, char **ret_words)
{
    size_t n = 0;

    line[strcspn(line, "#\r\n")] = '\0';
    for (char *word = strtok(line, " \t"); word != NULL && n <= MOST_WORDS;
         word = strtok(NULL, " \t"))
        ret_words[n++] = word;
    return n;
}

/* Reads one line. 0, or -1 and the reason. */
static int take_words(char **words, size_t n, unsigned line, tune_tensor_t *ret_tensor, char *why,
                      size_t room)
{
    uint64_t count;
    int is_named = n == 3 || (n == 2 && !(is_count(words[0], &count) && find_type(words[1])));
    const char *its_count = words[is_named];
    const type_t *type = &types[0];

    if (n > MOST_WORDS) {
        snprintf(why, room, "more than name, count and type");
        return -1;
    }
    if (!is_count(its_count, &count)) {
        snprintf(why, room, "%.60s is no count: want a number of elements from 1 to 2^40",
                 its_count);
        return -1;
    }
    if (n > (size_t)is_named + 1)
        type = find_type(words[is_named + 1]);
    if (type == NULL) {
        snprintf(why, room, "%.60s is no type: want float32, float64, float16, bfloat16 or an int",
                 words[is_named + 1]);
        return -1;
    }
    if (is_named && strlen(words[0]) >= sizeof(ret_tensor->name)) {
        snprintf(why, room, "%.60s...: the name is longer than %zu bytes", words[0],
                 sizeof(ret_tensor->name) - 1);
        return -1;
    }
    *ret_tensor =
        (tune_tensor_t){ .count = count, .dtype = type->dtype, .element_bytes = type->bytes };
    if (is_named)
        snprintf(ret_tensor->name, sizeof(ret_tensor->name), "%s", words[0]);
    else
        snprintf(ret_tensor->name, sizeof(ret_tensor->name), "line %u", line);
    return 0;
}

static int add(tune_list_t *list, const tune_tensor_t *tensor, char *why, size_t room)
{
    tune_tensor_t *all;

    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->all[i].name, tensor->name) == 0) {
            snprintf(why, room, "%.60s stands in an earlier line already", tensor->name);
            return -1;
        }
    }
    if (list->n == TUNE_LIST_MOST) {
        snprintf(why, room, "more than %d gradients", TUNE_LIST_MOST);
        return -1;
    }
    all = realloc(list->all, (list->n + 1) * sizeof(*all));
    if (all == NULL) {
        snprintf(why, room, "%s", strerror(ENOMEM));
        return -1;
    }
    list->all = all;
    all[list->n++] = *tensor;
    return 0;
}

static int is_text(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((unsigned char)line[i] < ' ' && strchr("\t\r\n", line[i]) == NULL) || line[i] == '\0')
            return 0;
    return 1;
}

static int take_line(char *text, size_t bytes, unsigned line, tune_list_t *list, char *why,
                     size_t room)
{
    char *words[MOST_WORDS + 1];
    tune_tensor_t tensor;
    size_t n;

    if (!is_text(text, bytes)) {
        snprintf(why, room, "not a text file");
        return -1;
    }
    n = split(text, words);
    if (n == 0)
        return 0;
    return take_words(words, n, line, &tensor, why, room) == 0 ? add(list, &tensor, why, room) : -1;
}

/* Read the file. 0, or -1 and a message on stderr. */
static int read_list(const char *path, tune_list_t *list)
{
    FILE *file = fopen(path, "r");
    char *text = NULL, why[200];
    size_t room = 0;
    ssize_t bytes;
    unsigned line = 0;
    int failed = 0;

    if (file == NULL) {
        fprintf(stderr, "tutti_tune: %s: %s\n", path, strerror(errno));
        return -1;
    }
    while (!failed && (bytes = getline(&text, &room, file)) >= 0) {
        failed = take_line(text, (size_t)bytes, ++line, list, why, sizeof(why)) != 0;
        if (failed)
            fprintf(stderr, "tutti_tune: %s: line %u: %s\n", path, line, why);
    }
    if (!failed && (ferror(file) || list->n == 0)) {
        fprintf(stderr, "tutti_tune: %s: %s\n", path,
                ferror(file) ? strerror(errno) : "no gradient in it");
        failed = 1;
    }
    free(text);
    fclose(file);
    return failed ? -1 : 0;
}

int tune_list_read(const bench_world_t *world, const char *path, tune_list_t *ret_list)
{
    tune_list_t list = { 0 };
    int failed = world->rank == 0 && read_list(path, &list) != 0;

    if (bench_same(world, (uint64_t)failed)) {
        free(list.all);
        return -1;
    }
    list.n = bench_same(world, list.n);
    if (world->rank != 0)
        list.all = bench_allocate(list.n, sizeof(*list.all));
    if (tutti_broadcast(list.all, list.n * sizeof(*list.all), TUTTI_UINT8, 0, world->comm) !=
        TUTTI_OK)
        bench_die(world, "sharing the list");
    list.requests = bench_allocate(list.n, sizeof(tutti_request_t *));
    for (size_t i = 0; i < list.n; i++) {
        list.all[i].offset = list.bytes;
        list.bytes += (list.all[i].count * list.all[i].element_bytes + PLACE_BYTES - 1) /
                      PLACE_BYTES * PLACE_BYTES;
    }
    *ret_list = list;
    return 0;
}

void tune_list_free(tune_list_t *list)
{
    free(list->all);
    free(list->requests);
    *list = (tune_list_t){ 0 };
}

int tune_list_run(const bench_world_t *world, const tune_setting_t *setting,
                  const tune_buffers_t *buffers, size_t bytes)
{
    const tune_list_t *list = setting->list;

    (void)bytes;
    for (size_t i = 0; i < list->n; i++) {
        const tune_tensor_t *tensor = &list->all[i];
        void *data = (char *)buffers->send + tensor->offset;
        tutti_status_t status =
            tutti_allreduce_async(tensor->name, data, data, tensor->count, tensor->dtype, TUTTI_SUM,
                                  world->comm, NULL, &list->requests[i]);

        if (bench_check(world, status, tensor->name) != 0)
            return -1;
    }
    return bench_check(world, tutti_wait_all(list->requests, list->n, -1), "tutti_wait_all");
}
