/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of a world's parts, and their end: tutti_comm_free, or the world's end. Several threads
 * may add, free and walk through parts at the same time (help.c).
 */
#include "api/comm.h"

#include "base/status.h"

void tutti__parts_add(tutti__comm_t *comm)
{
    tutti__comm_t *world = comm->world;

    tutti__mutex_lock(&world->parts_lock);
    comm->next_part = world->parts;
    world->parts = comm;
    tutti__mutex_unlock(&world->parts_lock);
}

tutti_status_t tutti_comm_free(tutti_comm_t *handle)
{
    tutti_status_t status;
    tutti__comm_t *comm, **at;

    if (handle == NULL)
        return TUTTI_OK;
    status = tutti__comm_of(handle, &comm);
    if (status != TUTTI_OK)
        return status;
    if (tutti__engine_in_callback())
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "a callback must not call tutti_comm_free");
    if (comm->world == comm)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "the world is ended by tutti_finalize, not by tutti_comm_free");
    tutti__mutex_lock(&comm->world->parts_lock);
    at = &comm->world->parts;
    while (*at != NULL && *at != comm)
        at = &(*at)->next_part;
    if (*at != NULL)
        *at = comm->next_part;
    tutti__mutex_unlock(&comm->world->parts_lock);
    tutti__comm_close(comm);
    return TUTTI_OK;
}

static tutti__comm_t *take_part(tutti__comm_t *world)
{
    tutti__comm_t *part;

    tutti__mutex_lock(&world->parts_lock);
    part = world->parts;
    if (part != NULL)
        world->parts = part->next_part;
    tutti__mutex_unlock(&world->parts_lock);
    return part;
}

void tutti__parts_close(tutti__comm_t *world)
{
    tutti__comm_t *part;

    while ((part = take_part(world)) != NULL)
        tutti__comm_close(part);
}
