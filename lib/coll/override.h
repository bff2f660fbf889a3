/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TUTTI_ALGORITHM, parsed for select.c: the forced algorithms, and for which sizes each is forced.
 */
#ifndef TUTTI__COLL_OVERRIDE_H
#define TUTTI__COLL_OVERRIDE_H

#include "coll/coll.h"

#define TUTTI__OVERRIDE_ITEMS 64
#define TUTTI__FILE_PATH 1024 /* with the final 0 */

/* One item of the text, for calls of from <= bytes < to. `to` SIZE_MAX: no upper end. */
typedef struct {
    tutti__collective_t collective;
    size_t from, to;
    tutti__choice_t choice; /* sub NULL, radix 0: not given; algorithm NULL: a file */
    const char *path;       /* of the file: a part of the text, without a final 0; NULL: none */
    size_t path_bytes;
} tutti__override_item_t;

typedef struct {
    uint32_t n;
    tutti__override_item_t items[TUTTI__OVERRIDE_ITEMS];
} tutti__override_t;

/*
 * Parse the text (NULL: an empty one). TUTTI_ERR_INVALID_ARGUMENT: it is malformed, has an unknown
 * name, or has two algorithms for one size; the error text is one line and names the place.
 */
tutti_status_t tutti__override_parse(const char *text, tutti__override_t *ret_override);

/* Does an item name the collective, whatever its range of sizes? */
int tutti__override_names(const tutti__override_t *override, tutti__collective_t collective);

/* The item for a call; NULL: none. */
const tutti__override_item_t *tutti__override_find(const tutti__override_t *override,
                                                   tutti__collective_t collective, size_t bytes);

#endif
