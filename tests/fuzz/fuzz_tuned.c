/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: the parser of tuned files.
 *
 * Parsed values must be inside the limits, and must be the same after they are written and read
 * again. An error text must not be empty, and must fit into its buffer, whose size the first byte
 * selects.
 */
#include "fuzz.h"

#include "conf/tuned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void demand(int truth)
{
    if (!truth)
        abort();
}

static void demand_word(const char *word)
{
    size_t length = strnlen(word, TUTTI__TUNED_WORD);

    demand(length > 0 && length < TUTTI__TUNED_WORD);
    for (size_t i = 0; i < length; i++)
        demand(word[i] > ' ' && word[i] < 0x7f && word[i] != '#');
}

static void demand_same(const tutti__tuned_t *tuned)
{
    static char text[TUTTI__TUNED_BYTES];
    size_t used = (size_t)sprintf(text, "tutti_tuned %d\n", TUTTI__TUNED_VERSION);
    tutti__tuned_t again;
    char why[200];

    for (size_t i = 0; i < tuned->count; i++)
        used +=
            (size_t)sprintf(text + used, "%s %s\n", tuned->entry[i].name, tuned->entry[i].value);
    demand(tutti__tuned_parse(text, used, &again, why, sizeof(why)));
    demand(again.count == tuned->count);
    for (size_t i = 0; i < tuned->count; i++) {
        demand(strcmp(again.entry[i].name, tuned->entry[i].name) == 0);
        demand(strcmp(again.entry[i].value, tuned->entry[i].value) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tutti__tuned_t tuned;
    size_t room;
    char *why;

    if (bytes == 0)
        return 0;
    room = 1 + (size_t)data[0];
    why = malloc(room);
    demand(why != NULL);
    memset(why, 'x', room);
    if (tutti__tuned_parse((const char *)data + 1, bytes - 1, &tuned, why, room)) {
        demand(tuned.count <= TUTTI__TUNED_MOST);
        for (size_t i = 0; i < tuned.count; i++) {
            demand_word(tuned.entry[i].name);
            demand_word(tuned.entry[i].value);
            demand(tuned.entry[i].line >= 1 && tuned.entry[i].line <= bytes);
        }
        demand_same(&tuned);
    } else {
        demand(memchr(why, '\0', room) != NULL);
        demand(room == 1 || why[0] == 'l');
    }
    free(why);
    return 0;
}

/* Write one setting more than a file may have. */
static size_t put_many(uint8_t *ret_data, size_t room)
{
    size_t used = (size_t)snprintf((char *)ret_data, room, "xtutti_tuned 1\n");

    for (int i = 0; i <= TUTTI__TUNED_MOST && used < room; i++)
        used += (size_t)snprintf((char *)ret_data + used, room - used, "A%d 1\n", i);
    return used < room ? used : 0;
}

size_t fuzz_seed(unsigned n, uint8_t *ret_data, size_t room)
{
    static const char *const seeds[] = {
        "\x80tutti_tuned 1\nTUTTI_ONESHOT_BYTES 48K\nTUTTI_NODE_CHUNK_BYTES 512K # 0.9\n",
        "\x01# a comment\n\n  tutti_tuned\t1\r\nA 1\nB 2\nA 1\n",
        "\xfftutti_tuned 2\nA 1 # next\n",
        "\x20tutti_tuned 1\nabcdefghijklmnopqrstuvwxyzabcde abcdefghijklmnopqrstuvwxyzabcde\n",
        "\x20tutti_tuned 1\nabcdefghijklmnopqrstuvwxyzabcdef 1\n",
    };
    const unsigned texts = sizeof(seeds) / sizeof(*seeds);
    size_t bytes;

    if (n >= texts)
        return n == texts ? put_many(ret_data, room) : 0;
    bytes = strlen(seeds[n]);
    if (bytes > room)
        return 0;
    memcpy(ret_data, seeds[n], bytes);
    return bytes;
}
