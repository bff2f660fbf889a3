/* SPDX-License-Identifier: BSD-3-Clause */
/* See name_table.h. */
#include "agree/name_table.h"

#include "base/compiler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The slot of a name, or the empty slot into which the name must be put. */
static uint32_t *place(const tutti__tensor_names_t *names, const char *name, size_t bytes,
                       uint64_t hash)
{
    uint32_t at = (uint32_t)hash & (names->nslots - 1);

    for (;; at = (at + 1) & (names->nslots - 1)) {
        const tutti__tensor_name_t *known;

        if (names->slot[at] == 0)
            return &names->slot[at];
        known = &names->name[names->slot[at] - 1];
        if (known->hash == hash && known->bytes == bytes &&
            memcmp(names->text + known->at, name, bytes) == 0)
            return &names->slot[at];
    }
}

int64_t tutti__tensor_names_find(const tutti__tensor_names_t *names, const char *name, size_t bytes,
                                 uint64_t hash)
{
    return names->n == 0 ? -1 : (int64_t)*place(names, name, bytes, hash) - 1;
}

/* Make space for one more name. Returns 0 if there is no memory. */
static int grow_names(tutti__tensor_names_t *names)
{
    uint32_t capacity = names->capacity ? 2 * names->capacity : 64;
    tutti__tensor_name_t *name;

    if (names->n < names->capacity)
        return 1;
    name = realloc(names->name, capacity * sizeof(*name));
    if (name == NULL)
        return 0;
    names->name = name;
    names->capacity = capacity;
    return 1;
}

static int grow_text(tutti__tensor_names_t *names, size_t bytes)
{
    size_t capacity = TUTTI__MAX(2 * names->text_capacity, names->text_bytes + bytes + 4096);
    char *text;

    if (names->text_bytes + bytes <= names->text_capacity)
        return 1;
    text = realloc(names->text, capacity);
    if (text == NULL)
        return 0;
    names->text = text;
    names->text_capacity = capacity;
    return 1;
}

/* Keep half of the slots empty, also with one more name. Returns 0 if there is no memory. */
static int grow_slots(tutti__tensor_names_t *names)
{
    uint32_t nslots = names->nslots ? 2 * names->nslots : 128, *slot;

    if (2 * (names->n + 1) <= names->nslots)
        return 1;
    slot = calloc(nslots, sizeof(*slot));
    if (slot == NULL)
        return 0;
    free(names->slot);
    names->slot = slot;
    names->nslots = nslots;
    for (uint32_t i = 0; i < names->n; i++)
        *place(names, tutti__tensor_names_text(names, i), names->name[i].bytes,
               names->name[i].hash) = i + 1;
    return 1;
}

int64_t tutti__tensor_names_add(tutti__tensor_names_t *names, const char *name, size_t bytes,
                                uint64_t hash)
{
    if (!grow_names(names) || !grow_text(names, bytes) || !grow_slots(names))
        return -1;
    assert(tutti__tensor_names_find(names, name, bytes, hash) < 0);
    *place(names, name, bytes, hash) = names->n + 1;
    names->name[names->n] = (tutti__tensor_name_t){ hash, names->text_bytes, (uint32_t)bytes };
    memcpy(names->text + names->text_bytes, name, bytes);
    names->text_bytes += bytes;
    return names->n++;
}

void tutti__tensor_names_clear(tutti__tensor_names_t *names)
{
    if (names->n > 0)
        memset(names->slot, 0, names->nslots * sizeof(*names->slot));
    names->n = 0;
    names->text_bytes = 0;
}

void tutti__tensor_names_free(tutti__tensor_names_t *names)
{
    free(names->name);
    free(names->slot);
    free(names->text);
    *names = (tutti__tensor_names_t){ 0 };
}
