/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A forked child must not use what it shares with its parent: shared memory, sockets, the engine.
 *
 * Objects remember the generation they were made in; in a child it has grown, so they are seen to
 * be the parent's. A child that starts afresh (tutti_init) is a generation of its own.
 */
#ifndef TUTTI__BASE_FORKED_H
#define TUTTI__BASE_FORKED_H

#include "base/compiler.h"

#include <tutti/tutti.h>

#include <stdatomic.h>

/* The number of forks between the first call of this, in an ancestor, and this process. */
unsigned tutti__fork_generation(void);

/* Report that the object belongs to another generation: TUTTI_ERR_SHUTDOWN. */
tutti_status_t tutti__fork_refuse(void);

/* For tutti__fork_check alone. */
extern atomic_uint tutti__generation;

/* TUTTI_OK, or TUTTI_ERR_SHUTDOWN for an object of another generation. */
static inline tutti_status_t tutti__fork_check(unsigned generation)
{
    if (TUTTI__LIKELY(generation == atomic_load_explicit(&tutti__generation, memory_order_relaxed)))
        return TUTTI_OK;
    return tutti__fork_refuse();
}

#endif
