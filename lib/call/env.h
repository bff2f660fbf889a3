/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment that several operations share. A communicator has one environment for its direct
   calls, and one for each kind of its engine's lanes (agreed, ordered, planned). */
#ifndef TUTTI__CALL_ENV_H
#define TUTTI__CALL_ENV_H

#include "coll/cache.h"
#include "conf/conf.h"
#include "exec/exec.h"
#include "watch/watch.h"

/* All objects here outlive the operations. */
typedef struct {
    const tutti__exec_env_t *exec;
    const tutti__shape_t *shape;
    const tutti__conf_shared_t *conf;
    tutti__watch_t *watch;
    tutti__boot_t *boot; /* for the names of ranks */
    tutti__cache_t *cache, *device_cache;
    int is_agreed; /* 1: all ranks have agreed on each call; 0: the operation compares the calls */
    int is_bucket; /* 1: the operations are agreed or planned buckets. After another
                      rank has left, a rank that is idle takes part in no further bucket */
} tutti__call_env_t;

#endif
