/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The constant part of a communicator, for checks and information calls: nothing here changes from
 * the end of opening to the beginning of closing. comm_state.h has the rest.
 */
#ifndef TUTTI__API_COMM_H
#define TUTTI__API_COMM_H

#include "base/forked.h"
#include "base/handles.h"
#include "boot/module.h"
#include "call/device_setup.h"
#include "coll/files.h"
#include "engine/engine.h"

typedef struct tutti__comm tutti__comm_t;

/* The name of a communicator from tutti_comm_connect in messages. */
#define TUTTI__COMM_PREFIX 40 /* most bytes of the store's prefix in the name */
typedef struct {
    char text[TUTTI__COMM_PREFIX + 24]; /* "communicator 'PREFIX'"; "" for other communicators */
} tutti__comm_name_t;

struct tutti__comm {
    tutti_comm_t *handle;  /* the program's handle */
    unsigned generation;   /* see base/forked.h */
    tutti__watch_t *watch; /* closed by the engine */
    tutti__engine_t *engine;
    tutti__conf_t conf;
    const tutti__mpi_module_t *module; /* or NULL */
    tutti__meet_t meet;                /* of all ranks; in a group, valid only during opening */
    tutti__boot_t *boot;
    const tutti__topo_t *topo;
    tutti__shape_t shape;
    int has_auto_pieces; /* TUTTI_CHUNK_BYTES was auto; conf.shared.chunk_bytes has the length that
                            was chosen */
    tutti__files_t *files; /* schedule files named by TUTTI_ALGORITHM; NULL: none */
    tutti__machine_t *machine;
    tutti__node_t *node;
    tutti__xport_t *shm, *mpi;   /* mpi: between hosts, MPI or UCX; NULL: shm for all ranks */
    tutti__xport_t **xport;      /* [size] the transport to each rank: shm or mpi */
    tutti__exec_device_t device; /* ops NULL: no device */
    tutti__lone_device_t lone;
    tutti__exec_env_t exec;
    tutti__stats_t *stats; /* NULL: there was no memory for statistics */

    /* A world and its groups. tutti_comm_split and tutti_comm_create make groups of the world and
       of other groups. A group shares the world's MPI and device; its transports, engine and
       watch are its own. A communicator from tutti_comm_connect is a world as well, with a name and
       without MPI. */
    tutti__comm_t *world;    /* itself, if this is a world */
    tutti__comm_name_t name; /* of a connected communicator; "" in its groups */
    uint32_t *world_rank;    /* [size] the ranks' numbers in the world; NULL: this is a world */
};

/* The program's communicators. */
extern tutti__handles_t tutti__comms;

/* Is `comm` from tutti_comm_connect? */
static inline int tutti__comm_is_connected(const tutti__comm_t *comm)
{
    return comm->name.text[0] != '\0';
}

/* Is `comm` the communicator of tutti_init? */
static inline int tutti__comm_is_world(const tutti__comm_t *comm)
{
    return comm->world == comm && !tutti__comm_is_connected(comm);
}

/* Report why a handle is not a communicator. */
tutti_status_t tutti__comm_wrong(const tutti_comm_t *handle);

/* Returns 1 if the handle has a communicator: *ret_comm is this communicator, which a parent
   process may have made. Otherwise returns 0. */
static inline int tutti__comm_peek(const tutti_comm_t *handle, const tutti__comm_t **ret_comm)
{
    const tutti__slot_t *slot = tutti__handle_find(&tutti__comms, handle);

    if (slot == NULL)
        return 0;
    *ret_comm = tutti__handle_object(slot);
    return 1;
}

/* Find the communicator of a handle. Returns TUTTI_ERR_SHUTDOWN in a forked child, if a parent
   process has made the communicator; *ret_comm is set. After other errors, *ret_comm is NULL. */
static inline tutti_status_t tutti__comm_of(const tutti_comm_t *handle, tutti__comm_t **ret_comm)
{
    const tutti__slot_t *slot = tutti__handle_find(&tutti__comms, handle);

    if (slot == NULL) {
        *ret_comm = NULL;
        return tutti__comm_wrong(handle);
    }
    *ret_comm = tutti__handle_object(slot);
    return tutti__fork_check((*ret_comm)->generation);
}

/* shape.c: set comm->shape and conf.shared.chunk_bytes. Collective. */
tutti_status_t tutti__comm_take_shape(tutti__comm_t *comm);

/* blocking.c: run an internal direct call of the library; exec->count is at least 1. Blocks. */
tutti_status_t tutti__comm_direct(tutti__comm_t *comm, tutti__collective_t collective,
                                  const tutti__exec_call_t *exec, uint32_t root);

#endif
