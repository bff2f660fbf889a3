/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings of arenas, this rank's and peers', with the number of their users.
 *
 * Ranks that are threads of one process use the owner's mapping, so it stays until its last user
 * leaves. Any thread.
 */
#ifndef TUTTI__MEM_MAPPING_H
#define TUTTI__MEM_MAPPING_H

#include "base/compiler.h"

#include <tutti/tutti.h>

/* The usual huge page; on other systems only an alignment. */
#define TUTTI__HUGE_BYTES ((uint64_t)2 << 20)

/* In a span of this many bytes, huge pages may be used from this offset on. The part before it
   stays on small pages, although khugepaged looks for pages that it could join. */
static inline uint64_t tutti__mapping_huge_from(uint64_t span)
{
    return TUTTI__ROUND_UP(span / 64, TUTTI__HUGE_BYTES);
}

/* Map a span of a file, even far beyond its end, at a multiple of TUTTI__HUGE_BYTES; one user. */
tutti_status_t tutti__mapping_open(int fd, size_t span, char **ret_base);

/* Add a user to the mapping of this process that begins at `base`; 0 if there is none. */
int tutti__mapping_join(const char *base);

/* Remove a user; the last one unmaps. No effect in a forked child, which has inherited the list but
   not the mappings. */
void tutti__mapping_leave(const char *base);

/* Total length of all mappings of this process. */
uint64_t tutti__mapping_total(void);

#endif
