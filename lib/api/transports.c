/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transports of a communicator: shared memory inside a host, and one transport between hosts.
 *
 *      TUTTI_TRANSPORT   the ranks met over MPI                  the ranks met without MPI
 *      auto              the faster one of UCX and MPI: see      shared memory if there is one
 *                        xport/faster.c; on one machine MPI       machine, otherwise UCX
 *      ucx, mpi, shm     the named transport                     the named one; mpi is an error
 *
 * A group takes its world's transport between hosts.
 */
#include "api/comm_state.h"

#include "base/log.h"
#include "base/status.h"
#include "xport/faster.h"
#include "xport/ucx/open_ucx.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* For error texts: how a user gets UCX. */
#define GET_UCX "install libtutti0-ucx on each host (that is tutti/ucx.so, with libucx0)"

static tutti_status_t cannot_reach(const tutti__comm_t *comm, uint32_t rank)
{
    const char *why = "the ranks were started without MPI: start them with mpirun";

    if (tutti__comm_is_connected(comm->world))
        why = "communicators from tutti_comm_connect do not use MPI: use tutti_init";
    if (strcmp(comm->conf.shared.transport, "shm") == 0)
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "rank %u is on another machine, and TUTTI_TRANSPORT is shm: without this "
            "setting, MPI or UCX is used between machines",
            rank);
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "rank %u is on another host, TUTTI_TRANSPORT is mpi, and %s; or unset "
                       "TUTTI_TRANSPORT, and " GET_UCX,
                       rank, why);
}

/* The transport to a rank: shared memory inside a host; between hosts UCX or MPI, if it is open. */
static tutti_status_t route(const tutti__comm_t *comm, uint32_t rank, tutti__xport_t **ret_xport)
{
    const char *wish = comm->conf.shared.transport;
    int same_host = comm->topo->host_of[rank] == comm->topo->host_of[comm->topo->rank];
    int same_machine = comm->machine->index_of[rank] >= 0;

    if (!same_host && strcmp(wish, "shm") != 0 && comm->mpi != NULL)
        *ret_xport = comm->mpi;
    else if (same_host || (same_machine && strcmp(wish, "mpi") != 0))
        *ret_xport = comm->shm;
    else
        return cannot_reach(comm, rank);
    return TUTTI_OK;
}

/* The ranks of a group exchange these data before they open a transport over the world's MPI. */
typedef struct {
    uint32_t world_rank, number;
} part_facts_t;

/* The longest message over MPI. */
static size_t mpi_bytes(const tutti__comm_t *comm)
{
    return tutti__xport_long(comm->conf.shared.chunk_bytes, comm->topo->size,
                             TUTTI__XPORT_LONGER_MPI);
}

/* Open a group's transport over the world's MPI. Every rank takes part in every collective step,
   even if the rank has failed. */
static tutti_status_t open_mpi_part(tutti__comm_t *comm)
{
    const tutti__conf_shared_t *conf = &comm->conf.shared;
    const tutti__meet_t *meet = &comm->world->meet;
    uint32_t size = comm->topo->size, rank = comm->topo->rank;
    uint32_t *tables = malloc(2 * (size_t)size * sizeof(*tables));
    part_facts_t mine = { comm->world_rank[rank], 0 }, *all = calloc(size, sizeof(*all));
    tutti__part_t part;
    tutti_status_t status;

    if (tables == NULL || all == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "routes to %u ranks", size);
    else
        status = comm->module->take_number(meet, &mine.number);
    status = tutti__boot_agree(comm->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(comm->boot, &mine, sizeof(mine), all);
    for (uint32_t r = 0; status == TUTTI_OK && r < size; r++) {
        tables[r] = all[r].world_rank;
        tables[size + r] = all[r].number;
    }
    part = (tutti__part_t){ rank, size, tables, tables == NULL ? NULL : tables + size };
    if (status == TUTTI_OK)
        status = comm->module->xport_open_part(meet, &part, mpi_bytes(comm),
                                               (uint32_t)conf->credits, &comm->mpi);
    free(all);
    free(tables);
    return status;
}

static int has_machines(const tutti__comm_t *comm)
{
    int machines = 0;

    for (uint32_t r = 0; r < comm->topo->size; r++)
        machines |= comm->machine->index_of[r] < 0;
    return machines;
}

static int is_auto(const tutti__comm_t *comm)
{
    return strcmp(comm->conf.shared.transport, "auto") == 0;
}

/* Must UCX connect the hosts? Yes, if TUTTI_TRANSPORT is ucx, if no other transport can connect
   them, or if the world uses UCX. All ranks get the same result. */
static int needs_ucx(const tutti__comm_t *comm)
{
    const tutti__xport_t *worlds = comm->world->mpi;

    if (comm->topo->nhosts == 1)
        return 0;
    if (!is_auto(comm))
        return strcmp(comm->conf.shared.transport, "ucx") == 0;
    if (comm->module == NULL)
        return has_machines(comm);
    return comm->world != comm && worlds != NULL && strcmp(worlds->ops->name, "ucx") == 0;
}

static tutti_status_t open_ucx(tutti__comm_t *comm)
{
    tutti_status_t status = tutti__xport_ucx_open(comm->boot, &comm->conf, &comm->mpi);

    if (status != TUTTI_ERR_UNSUPPORTED)
        return status;
    if (tutti__comm_is_connected(comm->world))
        return tutti__fail(status,
                           "the ranks are on several hosts, and communicators from "
                           "tutti_comm_connect use UCX between hosts: " GET_UCX ". ucx.so: %.240s",
                           tutti_last_error());
    return tutti__fail(
        status, "the ranks are on several hosts, and %s: " GET_UCX ", or %s. ucx.so: %.240s",
        comm->module == NULL ? "were started without MPI" : "TUTTI_TRANSPORT is ucx",
        comm->module == NULL ? "start the ranks with mpirun" : "unset TUTTI_TRANSPORT, for MPI",
        tutti_last_error());
}

static tutti_status_t open_mpi(tutti__comm_t *comm, tutti__xport_t **ret_xport)
{
    const tutti__conf_shared_t *conf = &comm->conf.shared;

    return comm->module->xport_open(&comm->meet, mpi_bytes(comm), (uint32_t)conf->credits,
                                    ret_xport);
}

/* Can only MPI, and not UCX, send this rank's device memory? */
static int only_mpi_takes_device(const tutti__comm_t *comm, tutti__xport_t *ucx,
                                 tutti__xport_t *mpi)
{
    const tutti__device_ops_t *device;
    const char *versions;

    /* A device that cannot be opened is reported when the communicator's device is opened. */
    return comm->conf.shared.gpu_direct &&
           tutti__module_device(&comm->conf, &device, &versions) == TUTTI_OK && device != NULL &&
           mpi->ops->take_device(mpi, device->name) == TUTTI_OK &&
           ucx->ops->take_device(ucx, device->name) != TUTTI_OK;
}

/* Must the ranks choose MPI, because only MPI can send a rank's device memory? Collective. */
static tutti_status_t ask_devices(tutti__comm_t *comm, tutti__xport_t *ucx, tutti__xport_t *mpi,
                                  int *ret_takes_mpi)
{
    uint32_t size = comm->topo->size;
    unsigned char mine = (unsigned char)only_mpi_takes_device(comm, ucx, mpi), *all = malloc(size);
    tutti_status_t status = TUTTI_OK;

    if (all == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "devices of %u ranks", size);
    status = tutti__boot_agree(comm->boot, status);
    if (status == TUTTI_OK)
        status = tutti__boot_allgather(comm->boot, &mine, sizeof(mine), all);
    if (status == TUTTI_OK)
        *ret_takes_mpi = memchr(all, 1, size) != NULL;
    free(all);
    return status;
}

/* Choose between UCX and `mpi`, which is open. *ret_ucx: UCX's transport if UCX is chosen; NULL if
   MPI is chosen, or UCX cannot be opened. `mpi` is used for the choice only. */
static tutti_status_t choose_ucx(tutti__comm_t *comm, tutti__xport_t *mpi, tutti__xport_t **ret_ucx)
{
    tutti__xport_t *ucx = NULL;
    int takes_mpi = 0, takes_ucx = 0;
    tutti_status_t status = tutti__xport_ucx_try(comm->boot, &comm->conf, &ucx);

    *ret_ucx = NULL;
    if (status != TUTTI_OK)
        return status;
    if (ucx == NULL) {
        if (comm->topo->rank == 0)
            TUTTI__LOG(TUTTI__LOG_INFO, "transport auto: mpi, because ucx cannot be used: %s",
                       tutti_last_error());
        return TUTTI_OK;
    }
    status = ask_devices(comm, ucx, mpi, &takes_mpi);
    if (status == TUTTI_OK && takes_mpi && comm->topo->rank == 0)
        TUTTI__LOG(TUTTI__LOG_INFO, "transport auto: mpi, because only mpi takes device memory");
    if (status == TUTTI_OK && !takes_mpi)
        status = tutti__xport_faster(comm->boot, ucx, mpi, &takes_ucx);
    if (status == TUTTI_OK && takes_ucx)
        *ret_ucx = ucx;
    else
        ucx->ops->close(ucx);
    return status;
}

/* Open the faster one of UCX and MPI. A message of the measurement may still be in flight over MPI.
   So the measured transport is closed, and if MPI is chosen, a new transport is opened. */
static tutti_status_t open_faster(tutti__comm_t *comm)
{
    tutti__xport_t *mpi = NULL;
    tutti_status_t status = tutti__boot_agree(comm->boot, open_mpi(comm, &mpi));

    if (status == TUTTI_OK)
        status = choose_ucx(comm, mpi, &comm->mpi);
    if (mpi != NULL)
        mpi->ops->close(mpi);
    if (status != TUTTI_OK || comm->mpi != NULL)
        return status;
    return open_mpi(comm, &comm->mpi);
}

static tutti_status_t open_far(tutti__comm_t *comm)
{
    if (strcmp(comm->conf.shared.transport, "shm") == 0)
        return TUTTI_OK;
    if (needs_ucx(comm))
        return open_ucx(comm);
    if (comm->module == NULL || comm->topo->nhosts == 1)
        return TUTTI_OK;
    if (comm->world != comm)
        return open_mpi_part(comm);
    return is_auto(comm) && has_machines(comm) ? open_faster(comm) : open_mpi(comm, &comm->mpi);
}

tutti_status_t tutti__comm_open_xports(tutti__comm_t *comm)
{
    uint32_t size = comm->topo->size;
    tutti_status_t status = open_far(comm);

    assert(comm->xport == NULL && comm->shm != NULL);
    comm->xport = calloc(size, sizeof(*comm->xport));
    if (status == TUTTI_OK && comm->xport == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "routes to %u ranks", size);
    for (uint32_t r = 0; status == TUTTI_OK && r < size; r++)
        if (r != comm->topo->rank)
            status = route(comm, r, &comm->xport[r]);
    status = tutti__boot_agree(comm->boot, status);
    if (status == TUTTI_OK && comm->topo->nhosts > 1 && tutti__comm_is_world(comm))
        TUTTI__LOG(TUTTI__LOG_INFO, "messages between hosts: %s",
                   comm->mpi != NULL ? comm->mpi->ops->name : "shm");
    return status;
}
