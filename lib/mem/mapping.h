/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings of arenas, own and peers', with the number of their users.
 *
 * Ranks that are threads of one process use the owner's mapping, so it stays until the last of them
 * lets go. Any thread.
 */
#ifndef TUTTI__MEM_MAPPING_H
#define TUTTI__MEM_MAPPING_H

#include "base/compiler.h"

#include <tutti/tutti.h>

/* The usual huge page; elsewhere it is only an alignment. */
#define TUTTI__HUGE_BYTES ((uint64_t)2 << 20)

/* What lies from here on in a span of so many bytes may have huge pages. What is in front stays on
   small ones, though khugepaged looks for pages that it could join. */
static inline uint64_t tutti__mapping_huge_from(uint64_t span)
{
    return TUTTI__ROUND_UP(span / 64, TUTTI__HUGE_BYTES);
}

/* Map a span of a file, far beyond its end if need be, at a multiple of TUTTI__HUGE_BYTES; one
   user. */
tutti_status_t tutti__mapping_open(int fd, size_t span, char **ret_base);

/* One user more of a mapping of this process that begins at `base`; 0 if there is none. */
int tutti__mapping_join(const char *base);

/* One user less; the last one unmaps. In a forked child, which has inherited the books but not the
   mappings, it does nothing. */
void tutti__mapping_leave(const char *base);

/* Bytes of addresses of all mappings of this process. */
uint64_t tutti__mapping_total(void);

#endif
