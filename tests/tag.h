/* SPDX-License-Identifier: BSD-3-Clause */
/* A number for the names at which ranks meet. See tag(). */
#ifndef TUTTI_TESTS_TAG_H
#define TUTTI_TESTS_TAG_H

#include <limits.h>
#include <stdlib.h>
#include <sys/random.h>

/* Drawn by the first call; its children have it, too. No process id: containers may have the same
   ones and share a network, to which abstract sockets belong. */
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
