/* SPDX-License-Identifier: BSD-3-Clause */
/* What the operations of one user share: the direct calls of a communicator, or its engine. */
#ifndef TUTTI__CALL_ENV_H
#define TUTTI__CALL_ENV_H

#include "coll/cache.h"
#include "conf/conf.h"
#include "exec/exec.h"
#include "watch/watch.h"

/* All of it outlives the operations. */
typedef struct {
    const tutti__exec_env_t *exec;
    const tutti__shape_t *shape;
    const tutti__conf_shared_t *conf;
    tutti__watch_t *watch;
    tutti__boot_t *boot; /* for the names of ranks */
    tutti__cache_t *cache, *device_cache;
    int is_agreed; /* 1: all ranks have agreed on each call; 0: the operation compares the calls */
    int is_bucket; /* 1: of the engine, so a rank that is idle after a departure takes part in no
                      further one */
} tutti__call_env_t;

#endif
