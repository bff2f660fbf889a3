/* SPDX-License-Identifier: BSD-3-Clause */
/* A table of names. Each name has an index: 0, 1, 2, ... in the order of addition. */
#ifndef TUTTI__AGREE_NAME_TABLE_H
#define TUTTI__AGREE_NAME_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t hash;
    size_t at; /* offset in `text` */
    uint32_t bytes;
} tutti__tensor_name_t;

/* A table that is all zero is empty. */
typedef struct {
    tutti__tensor_name_t *name; /* [capacity]; the first n are in use */
    uint32_t n, capacity;
    uint32_t *slot; /* [nslots] 1 + index; 0: empty. Open addressing */
    uint32_t nslots;
    char *text;
    size_t text_bytes, text_capacity;
} tutti__tensor_names_t;

/* The index of a name, or -1. hash: tutti__hash_name of the name. */
int64_t tutti__tensor_names_find(const tutti__tensor_names_t *names, const char *name, size_t bytes,
                                 uint64_t hash);
/* Add a name that the table does not have. Returns its index, or -1 if there is no memory. */
int64_t tutti__tensor_names_add(tutti__tensor_names_t *names, const char *name, size_t bytes,
                                uint64_t hash);
/* The text of a name, not terminated; valid until the next name is added. */
static inline const char *tutti__tensor_names_text(const tutti__tensor_names_t *names, uint32_t i)
{
    return names->text + names->name[i].at;
}
void tutti__tensor_names_clear(tutti__tensor_names_t *names);
void tutti__tensor_names_free(tutti__tensor_names_t *names);

#endif
