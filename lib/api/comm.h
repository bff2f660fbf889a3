/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communicator: owns one of everything, and lets direct calls run.
 */
#ifndef TUTTI__API_COMM_H
#define TUTTI__API_COMM_H

#include "boot/module.h"
#include "engine/engine.h"

struct tutti_comm {
    tutti__conf_t conf;
    const tutti__mpi_module_t *module; /* or NULL */
    tutti__boot_t *boot;
    const tutti__topo_t *topo;
    tutti__shape_t shape;
    tutti__machine_t *machine;
    tutti__node_t *node;
    tutti__xport_t *shm, *mpi; /* mpi: NULL if all ranks are on this host, or there is none */
    tutti__xport_t **xport;    /* [size] which of the two reaches each rank */
    tutti__exec_env_t exec;
    tutti__engine_t *engine;
    int spin;            /* processors enough to spin */
    unsigned generation; /* see base/forked.h */

    /* Direct calls, one at a time. */
    atomic_int busy;
    tutti__run_t run;
    tutti__cache_t cache;
};

/*
 * Make a communicator of all ranks that meet. Collective. Takes over `meet`.
 *
 * module  the MPI module that `meet` came from, or NULL. For tests: several communicators may live
 *         in one process, each rank a thread.
 */
tutti_status_t tutti__comm_open(const tutti__meet_t *meet, const tutti__mpi_module_t *module,
                                const tutti__conf_t *conf, tutti_comm_t **ret_comm);
/* Local. NULL and half-built ones are fine. */
void tutti__comm_close(tutti_comm_t *comm);

/* Is a call on `count` elements in order? Buffers may be NULL if count is 0. */
tutti_status_t tutti__comm_check_call(const tutti_comm_t *comm, const void *a, const void *b,
                                      size_t count, tutti_dtype_t dtype, tutti_op_t op);

/* Run a direct call that was checked; count at least 1. Blocks. */
tutti_status_t tutti__comm_direct(tutti_comm_t *comm, tutti__collective_t collective,
                                  tutti__exec_call_t *call, uint32_t root);

/* Is `comm` usable in this process? A forked child's is not. */
tutti_status_t tutti__comm_check(const tutti_comm_t *comm);

#endif
