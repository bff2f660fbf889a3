/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communicator: owns one of everything, and lets direct calls run.
 */
#ifndef TUTTI__API_COMM_H
#define TUTTI__API_COMM_H

#include "base/forked.h"
#include "base/handles.h"
#include "base/lock.h"
#include "boot/module.h"
#include "coll/files.h"
#include "engine/call.h"
#include "engine/engine.h"
#include "engine/staged.h"

/* A direct call that is a single node operation, kept ready to be made once more; see again.c. */
typedef struct {
    int is_kept;
    tutti__call_t call;             /* whose buffers do not count */
    size_t send_bytes, recv_bytes;  /* of its buffers; 0: it has none */
    int in_place;                   /* they are the same */
    uintptr_t src_shift, dst_shift; /* from the buffers to what the operation counts from */
    tutti__reducer_t reducer;
    tutti__node_call_t node;
    char nothing[16]; /* for a barrier's operation */
} tutti__again_t;

/* What a direct message has to do with one peer, as its sender or its receiver; see pairs.c. */
typedef struct {
    uint32_t type, count[2]; /* count: 64 bits */
} tutti__head_t;

typedef enum {
    TUTTI__SIDE_DONE, /* or there is none */
    TUTTI__SIDE_HEADS,
    TUTTI__SIDE_DATA,
    TUTTI__SIDE_WRONG
} tutti__partner_stage_t;

typedef struct {
    tutti__partner_stage_t stage;
    uint32_t peer;
    tutti__head_t mine, its;
    tutti__exec_call_t data;
    tutti__run_t run;
} tutti__partner_t;

typedef struct tutti__comm tutti__comm_t;

struct tutti__comm {
    tutti_comm_t *handle; /* the program's handle */
    tutti__conf_t conf;
    const tutti__mpi_module_t *module; /* or NULL */
    tutti__meet_t meet;                /* of all its ranks; a part's is over */
    tutti__boot_t *boot;
    const tutti__topo_t *topo;
    tutti__shape_t shape;
    tutti__files_t *files; /* that TUTTI_ALGORITHM names; NULL: none */
    tutti__machine_t *machine;
    tutti__node_t *node;
    tutti__xport_t *shm, *mpi;   /* mpi: NULL if all ranks are on this host, or there is none */
    tutti__xport_t **xport;      /* [size] which of the two reaches each rank */
    tutti__exec_device_t device; /* ops NULL: there is none */
    /* Of this rank alone: other ranks have no device, so there is none, but device memory is an
       error and not read. lacks_device: one of them, in the world. */
    const tutti__device_ops_t *lone_device;
    uint32_t lacks_device;
    tutti__exec_env_t exec;
    tutti__engine_t *engine;
    int spin;            /* processors enough to spin */
    unsigned generation; /* see base/forked.h */

    /* Direct calls, one at a time. */
    atomic_int busy;
    const tutti__call_t *call; /* in progress, if busy; NULL: a call of the library's own */
    tutti__run_t run;
    tutti__partner_t side[2]; /* as sender, as receiver */
    tutti__again_t again;
    tutti__cache_t cache, device_cache; /* device_cache: only with a device */
    tutti__staged_t staged;
    tutti__call_room_t room;
    uint64_t *counts; /* see counts.c */
    size_t counts_bytes;
    uint32_t groupings; /* calls that make groups, so far; the same number on all ranks */

    /* A world and its parts, which tutti_comm_split and tutti_comm_create make of it and of each
       other. A part uses nothing of where it came from, but the world's MPI. */
    tutti__comm_t *world; /* itself, if this is a world */
    uint32_t *world_rank; /* [size] ranks in the world; NULL: the same */
    tutti__mutex_t parts_lock;
    tutti__comm_t *parts;     /* under parts_lock: a world's groups, latest first */
    tutti__comm_t *next_part; /* under the world's parts_lock */
};

/*
 * Make a communicator of all ranks that meet. Collective. Takes over `meet`.
 *
 * module  the MPI module that `meet` came from, or NULL. For tests: several communicators may live
 *         in one process, each rank a thread.
 */
tutti_status_t tutti__comm_open(const tutti__meet_t *meet, const tutti__mpi_module_t *module,
                                const tutti__conf_t *conf, tutti__comm_t **ret_comm);
/*
 * The same for a part of the ranks of `parent`, whose settings it takes over.
 *
 * world_rank  [meet->size]; taken over: freed with the communicator, or when this fails
 *
 * Not in the world's list yet.
 */
tutti_status_t tutti__comm_open_part(const tutti__meet_t *meet, const tutti__comm_t *parent,
                                     uint32_t *world_rank, tutti__comm_t **ret_comm);
/* Local. NULL and half-built ones are fine. A world's parts are closed before it. */
void tutti__comm_close(tutti__comm_t *comm);

/* files.c: read and prove what TUTTI_ALGORITHM names, for comm->shape. Collective; of set-up. */
tutti_status_t tutti__comm_take_files(tutti__comm_t *comm);

/* parts.c: a part takes its place in its world's list. */
void tutti__parts_add(tutti__comm_t *comm);
/* Close all parts of a world. */
void tutti__parts_close(tutti__comm_t *world);

/* Run a direct call that was checked; count at least 1. Blocks. */
tutti_status_t tutti__comm_direct(tutti__comm_t *comm, tutti__collective_t collective,
                                  tutti__exec_call_t *call, uint32_t root);

/* The program's communicators. */
extern tutti__handles_t tutti__comms;

/* Report why a handle leads to no communicator. */
tutti_status_t tutti__comm_wrong(const tutti_comm_t *handle);

/* 1: the handle leads to this communicator, whichever process made it. */
static inline int tutti__comm_peek(const tutti_comm_t *handle, const tutti__comm_t **ret_comm)
{
    void *found;

    if (TUTTI__UNLIKELY(!tutti__handle_find(&tutti__comms, handle, &found)))
        return 0;
    *ret_comm = found;
    return 1;
}

/* The communicator that a handle leads to. TUTTI_ERR_SHUTDOWN in a forked child, for a communicator
   of its parent. On failure *ret_comm is NULL if no communicator was found. */
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
