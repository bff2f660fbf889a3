/* SPDX-License-Identifier: BSD-3-Clause */
/* See grown.h. */
#include "base/grown.h"

#include "base/status.h"

#include <string.h>

/* A `size` field above this limit is uninitialised memory. */
#define MOST 4096

static int is_known(const tutti__grown_t *grown, size_t size)
{
    for (size_t i = 0; i < grown->nsizes; i++)
        if (size == grown->sizes[i])
            return 1;
    return 0;
}

tutti_status_t tutti__grown_read(const tutti__grown_t *grown, const void *structure, void *to)
{
    size_t today = grown->sizes[grown->nsizes - 1], size;
    const unsigned char *bytes = structure;

    memcpy(&size, structure, sizeof(size));
    if (size < grown->sizes[0])
        return tutti__fail(TUTTI_ERR_ABI,
                           "%s->size is %zu, but the first version had %zu; initialise it with %s",
                           grown->what, size, grown->sizes[0], grown->init);
    if (size > MOST || (size < today && !is_known(grown, size)))
        return tutti__fail(TUTTI_ERR_ABI,
                           "%s->size is %zu, which no version had; initialise it with %s",
                           grown->what, size, grown->init);
    for (size_t i = today; i < size; i++)
        if (bytes[i] != 0)
            return tutti__fail(TUTTI_ERR_ABI,
                               "%s->size is %zu, and a field beyond the %zu bytes that this "
                               "version of the library, %x, knows is not 0",
                               grown->what, size, today, tutti_version());
    memset(to, 0, today);
    memcpy(to, structure, TUTTI__MIN(size, today));
    return TUTTI_OK;
}
