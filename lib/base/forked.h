/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A forked child must not use its parent's objects: shared memory, sockets, the engine.
 *
 * Each object stores the fork generation in which it was made. fork() increments the generation in
 * the child, so the child detects the parent's objects. A child that calls tutti_init makes objects
 * of its own generation.
 */
#ifndef TUTTI__BASE_FORKED_H
#define TUTTI__BASE_FORKED_H

#include "base/compiler.h"

#include <tutti/tutti.h>

#include <stdatomic.h>

/* The number of forks between the first process that called this function (this process or an
   ancestor) and this process. */
unsigned tutti__fork_generation(void);

/* Report that an object belongs to another generation. Returns TUTTI_ERR_SHUTDOWN. */
tutti_status_t tutti__fork_refuse(void);

/* Used by tutti__fork_check only. */
extern atomic_uint tutti__generation;

/* TUTTI_OK, or TUTTI_ERR_SHUTDOWN for an object of another generation. */
static inline tutti_status_t tutti__fork_check(unsigned generation)
{
    if (TUTTI__LIKELY(generation == atomic_load_explicit(&tutti__generation, memory_order_relaxed)))
        return TUTTI_OK;
    return tutti__fork_refuse();
}

#endif
