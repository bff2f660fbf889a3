/* SPDX-License-Identifier: BSD-3-Clause */
/* Making and ending communicators; who am I. */
#include "api/comm.h"

#include "base/forked.h"
#include "base/log.h"
#include "base/status.h"
#include "node/shm/shm.h"
#include "xport/shm/shm.h"

#include <stdlib.h>
#include <string.h>

tutti_status_t tutti__comm_check(const tutti_comm_t *comm)
{
    if (TUTTI__UNLIKELY(comm == NULL))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "comm is NULL: was tutti_init called, or tutti_finalize?");
    return tutti__fork_check(comm->generation);
}

/* ---- opening ---- */

static void take_shape(tutti_comm_t *comm)
{
    const tutti__topo_t *topo = comm->topo;

    comm->shape = (tutti__shape_t){
        .size = topo->size,
        .nhosts = topo->nhosts,
        .host_of = topo->host_of,
        .local_of = topo->local_of,
        .host_first = topo->host_first,
        .by_host = topo->by_host,
        .min_local = topo->min_local,
    };
}

/* Which transport reaches a rank: shared memory inside a host; between hosts MPI if it is there. */
static tutti_status_t route(const tutti_comm_t *comm, uint32_t rank, tutti__xport_t **ret_xport)
{
    const char *wish = comm->conf.shared.xport;
    int same_host = comm->topo->host_of[rank] == comm->topo->host_of[comm->topo->rank];
    int same_machine = comm->machine->index_of[rank] >= 0;

    if (!same_host && strcmp(wish, "shm") != 0 && comm->mpi != NULL)
        *ret_xport = comm->mpi;
    else if (same_host || (same_machine && strcmp(wish, "mpi") != 0))
        *ret_xport = comm->shm;
    else
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "rank %u is on another host and %s", rank,
                           strcmp(wish, "shm") == 0 ? "TUTTI_XPORT is shm"
                                                    : "there is no MPI to reach it by");
    return TUTTI_OK;
}

static tutti_status_t open_xports(tutti_comm_t *comm, const tutti__meet_t *meet,
                                  const tutti__mpi_module_t *module)
{
    const tutti__conf_shared_t *conf = &comm->conf.shared;
    uint32_t size = comm->topo->size;
    tutti_status_t status = TUTTI_OK;

    comm->xport = calloc(size, sizeof(*comm->xport));
    if (comm->xport == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "routes to %u ranks", size);
    if (status == TUTTI_OK && module != NULL && comm->topo->nhosts > 1)
        status = module->xport_open(meet, conf->chunk_bytes, (uint32_t)conf->credits, &comm->mpi);
    for (uint32_t r = 0; status == TUTTI_OK && r < size; r++)
        if (r != comm->topo->rank)
            status = route(comm, r, &comm->xport[r]);
    return tutti__boot_agree(comm->boot, status);
}

/* What TUTTI_ALGORITHM forces must be able to serve: better now than in the first call. */
static tutti_status_t check_algorithms(const tutti_comm_t *comm, tutti__association_t association)
{
    const char *text = comm->conf.shared.algorithm;
    tutti_status_t status = tutti__algorithm_check_override(text, &comm->shape);

    for (int c = 0; c < TUTTI__COLLECTIVES && status == TUTTI_OK; c++) {
        const tutti__algorithm_t *algorithm;
        const char *sub;

        status = tutti__algorithm_choose((tutti__collective_t)c, &comm->shape, SIZE_MAX, text,
                                         association, &algorithm, &sub);
    }
    return status;
}

/* Everything above the transports. */
static tutti_status_t open_engine(tutti_comm_t *comm)
{
    tutti__engine_env_t env = { comm->boot, comm->machine, &comm->exec, &comm->shape,
                                &comm->conf.shared };
    tutti__association_t association =
        comm->conf.shared.strict ? TUTTI__STRICT_ASSOCIATION : TUTTI__ANY_ASSOCIATION;
    tutti_status_t status;

    comm->exec = (tutti__exec_env_t){ comm->topo->rank, comm->topo->size, comm->xport, comm->node,
                                      comm->conf.shared.chunk_bytes };
    tutti__run_init(&comm->run, &comm->exec, 0);
    tutti__cache_init(&comm->cache, &comm->shape, comm->topo->rank, comm->conf.shared.algorithm,
                      association);
    status = check_algorithms(comm, association);
    status = tutti__boot_agree(comm->boot, status);
    if (status != TUTTI_OK)
        return status;
    return tutti__engine_open(&env, &comm->engine);
}

tutti_status_t tutti__comm_open(const tutti__meet_t *meet, const tutti__mpi_module_t *module,
                                const tutti__conf_t *conf, tutti_comm_t **ret_comm)
{
    tutti_comm_t *comm = calloc(1, sizeof(*comm));
    tutti_status_t status;

    if (comm == NULL) {
        meet->close(meet->ctx);
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "communicator");
    }
    comm->generation = tutti__fork_generation();
    comm->conf = *conf;
    comm->module = module;
    status = tutti__boot_open(meet, &comm->conf, &comm->boot);
    if (status != TUTTI_OK)
        goto close_comm;
    comm->topo = tutti__boot_topo(comm->boot);
    comm->spin = !comm->topo->oversubscribed;
    take_shape(comm);
    status = tutti__machine_open(comm->boot, &comm->machine);
    if (status == TUTTI_OK)
        status = tutti__shm_open(comm->boot, comm->machine, &comm->conf.shared, &comm->node);
    if (status == TUTTI_OK)
        status = tutti__xport_shm_open(comm->boot, comm->machine, comm->conf.shared.chunk_bytes,
                                       (uint32_t)comm->conf.shared.credits, &comm->shm);
    if (status == TUTTI_OK)
        status = open_xports(comm, meet, module);
    if (status == TUTTI_OK)
        status = open_engine(comm);
    if (status != TUTTI_OK)
        goto close_comm;
    TUTTI__LOG(TUTTI__LOG_INFO, "rank %u of %u, host %u of %u, %s", comm->topo->rank,
               comm->topo->size, comm->topo->host_of[comm->topo->rank], comm->topo->nhosts,
               comm->spin ? "spins while it waits" : "more ranks than processors: yields");
    *ret_comm = comm;
    return TUTTI_OK;

close_comm:
    tutti__comm_close(comm);
    return status;
}

void tutti__comm_close(tutti_comm_t *comm)
{
    tutti_status_t status;

    if (comm == NULL)
        return;
    /* Finalizing MPI would wait for ranks that are gone. One that has only left is not. */
    status = comm->engine != NULL ? tutti__engine_alive(comm->engine) : TUTTI_OK;
    if (comm->module != NULL && status != TUTTI_OK && status != TUTTI_ERR_SHUTDOWN)
        comm->module->give_up();
    tutti__engine_close(comm->engine);
    tutti__run_fini(&comm->run);
    tutti__cache_fini(&comm->cache);
    if (comm->mpi != NULL)
        comm->mpi->ops->close(comm->mpi);
    if (comm->shm != NULL)
        comm->shm->ops->close(comm->shm);
    if (comm->node != NULL)
        comm->node->ops->close(comm->node);
    tutti__machine_close(comm->machine);
    free(comm->xport);
    tutti__boot_close(comm->boot);
    free(comm);
}

/* ---- who am I ---- */

int tutti_rank(const tutti_comm_t *comm)
{
    return comm == NULL ? -1 : (int)comm->topo->rank;
}

int tutti_size(const tutti_comm_t *comm)
{
    return comm == NULL ? -1 : (int)comm->topo->size;
}

int tutti_local_rank(const tutti_comm_t *comm)
{
    return comm == NULL ? -1 : (int)comm->topo->local_of[comm->topo->rank];
}

int tutti_local_size(const tutti_comm_t *comm)
{
    uint32_t host;

    if (comm == NULL)
        return -1;
    host = comm->topo->host_of[comm->topo->rank];
    return (int)(comm->topo->host_first[host + 1] - comm->topo->host_first[host]);
}

int tutti_host_rank(const tutti_comm_t *comm)
{
    return comm == NULL ? -1 : (int)comm->topo->host_of[comm->topo->rank];
}

int tutti_host_count(const tutti_comm_t *comm)
{
    return comm == NULL ? -1 : (int)comm->topo->nhosts;
}
