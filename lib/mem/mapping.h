/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mappings of this rank's and its peers' arenas, with the number of users of each.
 *
 * Ranks that are threads of one process all use the owner's mapping, so a mapping stays until its
 * last user leaves. Any thread.
 */
#ifndef TUTTI__MEM_MAPPING_H
#define TUTTI__MEM_MAPPING_H

#include "base/compiler.h"

#include <tutti/tutti.h>

/* The size of a huge page on most systems. On other systems it is only an alignment. */
#define TUTTI__HUGE_BYTES ((uint64_t)2 << 20)

/* The offset from which a span of this many bytes may use huge pages. The part before the offset
   keeps small pages, even if khugepaged would join them. */
static inline uint64_t tutti__mapping_huge_from(uint64_t span)
{
    return TUTTI__ROUND_UP(span / 64, TUTTI__HUGE_BYTES);
}

/* Map a span of a file, even far beyond its end, at a multiple of TUTTI__HUGE_BYTES. The caller is
   the mapping's first user. */
tutti_status_t tutti__mapping_open(int fd, size_t span, char **ret_base);

/* Add a user to the mapping of this process that begins at `base`; 0 if there is none. */
int tutti__mapping_join(const char *base);

/* Remove a user. If it was the last user, unmap. A forked child must not call this for its parent's
   mapping. The child does not have this mapping, and may have one of its own at `base`. */
void tutti__mapping_leave(const char *base);

/* Total length of all mappings of this process. */
uint64_t tutti__mapping_total(void);

/* The lock of the list of mappings. blocks.c uses it for its own list as well. fork() holds it. A
   thread that holds it must not call the functions above. */
void tutti__mapping_lock(void);
void tutti__mapping_unlock(void);

#endif
