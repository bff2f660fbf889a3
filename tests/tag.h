/* SPDX-License-Identifier: BSD-3-Clause */
/* A number that makes the names of a test's meetings unique. See tag(). */
#ifndef TUTTI_TESTS_TAG_H
#define TUTTI_TESTS_TAG_H

#include <limits.h>
#include <stdlib.h>
#include <sys/random.h>

/* A random number, drawn by a process's first call and inherited by its children. A process id is
   not unique: containers that share a network may have equal process ids, and the names of abstract
   sockets belong to the network. */
static inline int tag(void)
{
    static int drawn;

    while (drawn == 0) {
        if (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn))
            abort();
        drawn &= INT_MAX;
    }
    return drawn;
}

#endif
