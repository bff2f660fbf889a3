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

/* The size of a huge page on most systems. On other systems this value is only an alignment. */
#define TUTTI__HUGE_BYTES ((uint64_t)2 << 20)

/* The offset from which a span of this many bytes may use huge pages. The part before the offset
   keeps small pages, even if khugepaged would join them. */
static inline uint64_t tutti__mapping_huge_from(uint64_t span)
{
    return TUTTI__ROUND_UP(span / 64, TUTTI__HUGE_BYTES);
}

/* Map `span` bytes of a file, even far beyond the file's end, at a multiple of TUTTI__HUGE_BYTES.
   The caller is the mapping's first user. */
tutti_status_t tutti__mapping_open(int fd, size_t span, char **ret_base);

/* Add a user to this process's mapping that begins at `base`. Returns 0 if there is none. */
int tutti__mapping_join(const char *base);

/* Remove a user. After the last user has left, unmap. A forked child must not call this for its
   parent's mapping. The child has no such mapping, and may have another mapping at `base`. */
void tutti__mapping_leave(const char *base);

/* Total length of all mappings of this process. */
uint64_t tutti__mapping_total(void);

/* The lock of the list of mappings, and of the list in blocks.c. fork() takes the lock. A thread
   that holds the lock must not call the functions above. */
void tutti__mapping_lock(void);
void tutti__mapping_unlock(void);

#endif
