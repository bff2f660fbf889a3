/* SPDX-License-Identifier: BSD-3-Clause */
/* See forked.h. */
#include "base/forked.h"

#include "base/status.h"

#include <pthread.h>

atomic_uint tutti__generation;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    atomic_fetch_add(&tutti__generation, 1);
}

static void register_handler(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

unsigned tutti__fork_generation(void)
{
    pthread_once(&once, register_handler);
    return atomic_load(&tutti__generation);
}

tutti_status_t tutti__fork_refuse(void)
{
    return tutti__fail(TUTTI_ERR_SHUTDOWN, "a forked child cannot use Tutti objects of its parent; "
                                           "tutti_finalize forgets them");
}
