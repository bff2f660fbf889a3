/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tutti_exec: p ranks of one host, all in this thread, over the null transport, which moves no
 * data, or over shared memory. Node operations run over shared memory only. Errors end the program.
 */
#ifndef BENCH_EXEC_WORLD_H
#define BENCH_EXEC_WORLD_H

#include "coll/coll.h"
#include "exec/exec.h"
#include "xport/shm/shm.h"

typedef struct {
    size_t elements;   /* float32, of each block */
    size_t slot_bytes; /* of a channel */
    uint32_t credits;
} world_options_t;

/* The source of the schedules. */
typedef struct {
    const tutti__algorithm_t *algorithm; /* NULL: from a file */
    const char *sub;                     /* NULL, or one of the algorithm's subs */
    uint32_t radix;                      /* 0: the algorithm's default */
    tutti__sched_t **scheds;             /* [ranks] of a file, owned by the caller; or NULL */
    uint32_t ranks;                      /* of a file */
} source_t;

typedef struct {
    tutti__shape_t shape;
    uint32_t *numbers; /* the memory of the shape's tables */
} host_t;

/* All ranks, in one arena: each with its doorbells, tables and channels. */
typedef struct {
    tutti__arena_t *arena; /* NULL: over null */
    tutti__machine_t *machine;
    tutti__xport_t **xport; /* [n] each rank's */
    tutti__node_t **node;   /* [n] over null: NULLs */
    tutti__xport_t ***table;
    tutti__exec_env_t *env;
    tutti__run_t *run;
    tutti__sched_t **sched;
    int is_built; /* 1: this world frees the schedules */
    tutti__exec_call_t *call;
    float *memory;
    uint32_t n;
} world_t;

/* The data of all messages received over the null transport: set by the caller, at least as long as
   any message. */
extern char *null_message;

__attribute__((noreturn)) void die(const char *what);
/* Returns `memory`; ends the program if it is NULL. */
void *need(void *memory);

void host_open(host_t *host, uint32_t n);
void host_close(host_t *host);

/* Afterwards the schedules exist, and no run has started. */
void world_open(world_t *w, const source_t *source, const host_t *host, int is_shm,
                const world_options_t *options);
void world_close(world_t *w);

#endif
