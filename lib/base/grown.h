/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Structures that callers pass, and that grow from version to version of the library. Any thread.
 *
 * The first field, `size`, is the structure's sizeof in the header that the program was built with.
 * A version adds fields at the end only, and 0 is the default of each new field. So every size of a
 * released header is accepted. A longer structure comes from a later header; it is accepted if its
 * unknown fields are 0.
 *
 * To add a field: append the new size to the list in the file that reads the structure, and assert
 * the field's offset in tests/abi/layout.c.
 */
#ifndef TUTTI__BASE_GROWN_H
#define TUTTI__BASE_GROWN_H

#include "base/compiler.h"

#include <tutti/tutti.h>

typedef struct {
    const char *what;    /* for messages: "options" */
    const char *init;    /* the initialiser that sets the size: "TUTTI_OPTIONS_INIT" */
    const size_t *sizes; /* [nsizes] ascending: of version 0, ..., of this version */
    size_t nsizes;
} tutti__grown_t;

/* sizes: an array of size_t. For each element there is a TUTTI__GROWN_VERSION. */
#define TUTTI__GROWN(what, init, sizes)                                                            \
    {                                                                                              \
        what, init, sizes, sizeof(sizes) / sizeof(sizes[0])                                        \
    }

/* Assert that the structure was `bytes` long when `field` was its last field. */
#define TUTTI__GROWN_VERSION(type, field, bytes)                                                   \
    _Static_assert(TUTTI__END_OF(type, field) == (bytes) && sizeof(type) >= (bytes),               \
                   #type " has lost a field, or " #field " has moved")

/* Assert that the structure of this version of the library is `bytes` long. */
#define TUTTI__GROWN_TODAY(type, bytes)                                                            \
    _Static_assert(sizeof(type) == (bytes), #type " has grown: add its new size to the list")

/*
 * Copy a caller's structure, of any version, to `to`, which has this version's size. Fields that
 * the caller's structure does not have become 0.
 *
 * Returns TUTTI_ERR_ABI, and leaves `to` unchanged, if no version has the structure's size. But a
 * structure that is longer than this version's is accepted if all additional bytes are 0.
 */
tutti_status_t tutti__grown_read(const tutti__grown_t *grown, const void *structure, void *to);

#endif
