/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communicator: owns one object of each lower room, and the state of direct calls.
 */
#ifndef TUTTI__API_COMM_H
#define TUTTI__API_COMM_H

#include "base/forked.h"
#include "base/handles.h"
#include "base/lock.h"
#include "boot/module.h"
#include "coll/files.h"
#include "call/cached.h"
#include "engine/run.h"

typedef struct tutti__comm tutti__comm_t;

struct tutti__comm {
    tutti_comm_t *handle; /* the program's handle */
    tutti__conf_t conf;
    const tutti__mpi_module_t *module; /* or NULL */
    tutti__meet_t meet;                /* of all its ranks; in a part, only while it is opened */
    tutti__boot_t *boot;
    const tutti__topo_t *topo;
    tutti__shape_t shape;
    tutti__files_t *files; /* schedule files named by TUTTI_ALGORITHM; NULL: none */
    tutti__machine_t *machine;
    tutti__node_t *node;
    tutti__xport_t *shm, *mpi;   /* mpi: between hosts, MPI or UCX; NULL: shm is for all ranks */
    tutti__xport_t **xport;      /* [size] the transport to each rank: shm or mpi */
    tutti__exec_device_t device; /* ops NULL: no device */
    /* This rank's device, if some ranks of the world have none: then the communicator has no
       device, and lone_device only detects device memory, which is an error. lacks_device: a rank
       without a device, in the world. */
    const tutti__device_ops_t *lone_device;
    uint32_t lacks_device;
    tutti__exec_env_t exec;
    tutti__watch_t *watch; /* the engine closes it */
    tutti__engine_t *engine;
    unsigned generation; /* see base/forked.h */

    /* Direct calls, one at a time. */
    atomic_int busy;
    tutti__call_env_t calls;
    tutti__run_env_t running;
    tutti__operation_t op;
    tutti__pairs_t pairs;
    tutti__cached_t cached;
    tutti__cache_t cache, device_cache; /* device_cache: only with a device */
    uint32_t groupings;                 /* splits and creates so far; equal on all ranks */

    /* A world and its parts. tutti_comm_split and tutti_comm_create make parts of the world and of
       other parts. A part shares only the world's MPI. */
    tutti__comm_t *world; /* itself, if this is a world */
    uint32_t *world_rank; /* [size] ranks in the world; NULL: the same */
    tutti__mutex_t parts_lock;
    tutti__comm_t *parts;     /* under parts_lock: a world's parts, newest first */
    tutti__comm_t *next_part; /* under the world's parts_lock */
};

/*
 * Make a communicator of all ranks of `meet`. Collective. Takes over `meet`.
 *
 * module  the MPI module of `meet`, or NULL. For tests: a process may have several communicators,
 *         each rank a thread.
 */
tutti_status_t tutti__comm_open(const tutti__meet_t *meet, const tutti__mpi_module_t *module,
                                const tutti__conf_t *conf, tutti__comm_t **ret_comm);
/*
 * The same for a part of the ranks of `parent`, with the parent's settings.
 *
 * world_rank  [meet->size]; taken over: freed with the communicator, or if this call fails
 *
 * The caller adds the part to the world's list.
 */
tutti_status_t tutti__comm_open_part(const tutti__meet_t *meet, const tutti__comm_t *parent,
                                     uint32_t *world_rank, tutti__comm_t **ret_comm);
/* Local. Takes NULL and half-open communicators. The caller closes a world's parts first. */
void tutti__comm_close(tutti__comm_t *comm);

/* files.c: read the files that TUTTI_ALGORITHM names, and prove their schedules for comm->shape.
   Collective; during set-up only. */
tutti_status_t tutti__comm_take_files(tutti__comm_t *comm);

/* parts.c: add a part to its world's list. */
void tutti__parts_add(tutti__comm_t *comm);
/* Close all parts of a world. */
void tutti__parts_close(tutti__comm_t *world);

/* Run a direct call that was checked; count at least 1. Blocks. */
tutti_status_t tutti__comm_direct(tutti__comm_t *comm, tutti__collective_t collective,
                                  const tutti__exec_call_t *exec, uint32_t root);

/* The program's communicators. */
extern tutti__handles_t tutti__comms;

/* Report why a handle is not a communicator. */
tutti_status_t tutti__comm_wrong(const tutti_comm_t *handle);

/* 1: *ret_comm is the handle's communicator; a parent process may have made it. */
static inline int tutti__comm_peek(const tutti_comm_t *handle, const tutti__comm_t **ret_comm)
{
    void *found;

    if (TUTTI__UNLIKELY(!tutti__handle_find(&tutti__comms, handle, &found)))
        return 0;
    *ret_comm = found;
    return 1;
}

/* The communicator of a handle. TUTTI_ERR_SHUTDOWN in a forked child, for a communicator of its
   parent. On failure, *ret_comm is NULL if no communicator was found. */
static inline tutti_status_t tutti__comm_of(const tutti_comm_t *handle, tutti__comm_t **ret_comm)
{
    void *found;

    if (TUTTI__UNLIKELY(!tutti__handle_find(&tutti__comms, handle, &found))) {
        *ret_comm = NULL;
        return tutti__comm_wrong(handle);
    }
    *ret_comm = found;
    return tutti__fork_check((*ret_comm)->generation);
}

#endif
