/* SPDX-License-Identifier: BSD-3-Clause */
/* Direct calls beside the engine: waiting for an operation, and its failure. */
#ifndef TUTTI__ENGINE_RUN_H
#define TUTTI__ENGINE_RUN_H

#include "call/operation.h"
#include "engine/engine.h"

/* The environment in which a communicator's direct calls wait. The last two fields change with each
   call. */
typedef struct {
    tutti__watch_t *watch;
    tutti__boot_t *boot;
    const tutti__machine_t *machine;
    uint32_t rank, size;
    int spins;                 /* each rank has a processor */
    const char *where;         /* for messages: "a group", or a connected communicator's name;
                                  NULL: the world */
    const tutti__call_t *call; /* the call in progress; NULL: an internal call of the library */
    unsigned cached_tag;       /* the tag of a call that repeats the last one */
} tutti__run_env_t;

/* Continue an operation of lane 0 to its end, after a step that returned AGAIN with `hint`. If
   `node` is not NULL, step the node operation in lane 0 instead of `op`. */
tutti_status_t tutti__run_await(tutti__engine_t *engine, const tutti__run_env_t *env,
                                tutti__operation_t *op, tutti__node_t *node,
                                const tutti__hint_t *hint);

/* End the communicator after an error of the operation, unless all ranks find this error
   (op->is_common). Returns the status that the direct call must return: `status`, or if the
   communicator has ended, the status of its end. */
tutti_status_t tutti__run_fail(tutti__engine_t *engine, const tutti__run_env_t *env,
                               tutti__operation_t *op, tutti_status_t status);

/* After tutti__watch_fail: wait for a short time for a report of the cause, until the communicator
   has ended. steps 1: also step the engine; otherwise its thread reads the sockets. */
void tutti__run_await_report(tutti__engine_t *engine, tutti__watch_t *watch, int steps);

/* The last error's text has rank numbers of this communicator. If this is not the world, add the
   communicator's name to the text. */
void tutti__run_name_group(const tutti__run_env_t *env, tutti_status_t status);

#endif
