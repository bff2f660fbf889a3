/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TUTTI_ALGORITHM as select.c sees it: which algorithm is forced for which sizes.
 */
#ifndef TUTTI__COLL_OVERRIDE_H
#define TUTTI__COLL_OVERRIDE_H

#include "coll/coll.h"

#define TUTTI__OVERRIDE_ITEMS 64
#define TUTTI__FILE_PATH 1024 /* with its end */

/* One item of the text: from <= bytes < to; SIZE_MAX as `to` means: and all above. */
typedef struct {
    tutti__collective_t collective;
    size_t from, to;
    tutti__choice_t choice; /* sub NULL, radix 0: what was not said; algorithm NULL: a file */
    const char *path;       /* of the file, in the text; not ended; NULL: none */
    size_t path_bytes;
} tutti__override_item_t;

typedef struct {
    uint32_t n;
    tutti__override_item_t items[TUTTI__OVERRIDE_ITEMS];
} tutti__override_t;

/*
 * Read the text (NULL: an empty one). TUTTI_ERR_INVALID_ARGUMENT for what is not of the form, names
 * nothing that exists, or says two things about one size; in one line that names the place.
 */
tutti_status_t tutti__override_parse(const char *text, tutti__override_t *ret_override);

/* What is said about a call; NULL: nothing. */
const tutti__override_item_t *tutti__override_find(const tutti__override_t *override,
                                                   tutti__collective_t collective, size_t bytes);

#endif
