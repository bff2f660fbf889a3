/* SPDX-License-Identifier: BSD-3-Clause */
/* A whole communicator: its constant part (comm.h), the state of direct calls, and its groups. */
#ifndef TUTTI__API_COMM_STATE_H
#define TUTTI__API_COMM_STATE_H

#include "api/comm.h"
#include "base/lock.h"
#include "call/cached.h"
#include "engine/run.h"

typedef struct tutti__comm_state tutti__comm_state_t;

struct tutti__comm_state {
    tutti__comm_t comm;

    /* The state of direct calls: at most one at a time. */
    atomic_int busy;
    atomic_int in_stream; /* a thread is in a direct call that is made as a request: see cuda.c */
    tutti__call_env_t calls;
    tutti__run_env_t running;
    tutti__operation_t op;
    tutti__pairs_t pairs;
    tutti__cached_t cached;
    /* Set during opening. 1: calls are timed; the cached form of a call (call/cached.h) is kept in
       `timed`, and `cached` stays empty. So a call that fits `cached` need not read this flag. */
    int is_timed;
    tutti__cached_t timed;
    tutti__stats_entry_t *counted;      /* of the last call; untimed cached calls do not set it */
    tutti__stats_entry_t uncounted;     /* without statistics, `counted` points here; never read */
    tutti__cache_t cache, device_cache; /* device_cache: only with a device */
    int is_stopped;                     /* the engine has stopped, so no callback of it runs */
    atomic_int is_taken;                /* a connected communicator: a thread is freeing it */
    uint32_t groupings;                 /* number of splits and creates; equal on all ranks */
    /* 1: closing this communicator stops the trace. Set for a world that is open, or that has
       started the trace. */
    int ends_trace;

    tutti__mutex_t parts_lock;
    tutti__comm_state_t *parts;     /* under parts_lock: a world's groups, newest first */
    tutti__comm_state_t *next_part; /* under the world's parts_lock */
};

static inline tutti__comm_state_t *tutti__comm_state(tutti__comm_t *comm)
{
    return (tutti__comm_state_t *)(void *)comm;
}

/*
 * Make a communicator of all ranks of `meet`, and take over `meet`. Collective.
 *
 * module  the MPI module of `meet`, or NULL
 *
 * A process may have several communicators. In tests, each rank may be a thread.
 */
tutti_status_t tutti__comm_open(const tutti__meet_t *meet, const tutti__mpi_module_t *module,
                                const tutti__conf_t *conf, tutti__comm_t **ret_comm);
/* Like tutti__comm_open, for tutti_comm_connect. */
tutti_status_t tutti__comm_open_connected(const tutti__meet_t *meet, const tutti__conf_t *conf,
                                          const tutti__comm_name_t *name, tutti__comm_t **ret_comm);
/*
 * Like tutti__comm_open, for a part of the ranks of `parent`, with the parent's settings.
 *
 * world_rank  [meet->size]; taken over: freed with the communicator, or if this call fails
 *
 * The caller adds the group to the world's list.
 */
tutti_status_t tutti__comm_open_part(const tutti__meet_t *meet, const tutti__comm_t *parent,
                                     uint32_t *world_rank, tutti__comm_t **ret_comm);
/* Close a communicator; `comm` may be NULL or half open. A world first closes its groups. Local. */
void tutti__comm_close(tutti__comm_t *comm);
/* The beginning of tutti__comm_close: stop the engine, so that no further callback runs. Local. */
void tutti__comm_stop(tutti__comm_t *comm);

/* transports.c: open the transports to all ranks. Collective. */
tutti_status_t tutti__comm_open_xports(tutti__comm_t *comm);

/* comm_files.c: read the files that TUTTI_ALGORITHM names, and prove their schedules for
   comm->shape. Collective; during set-up only. */
tutti_status_t tutti__comm_take_files(tutti__comm_t *comm);

/* parts.c: add a group to its world's list. */
void tutti__parts_add(tutti__comm_t *comm);
/* End the handles of a world's groups, and stop the groups. */
void tutti__parts_stop(tutti__comm_t *world);
/* Close all groups of a world. The world and its groups must be stopped already. */
void tutti__parts_close(tutti__comm_t *world);

#endif
