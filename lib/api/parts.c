/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of a world's groups, which are called its parts here. A group ends by tutti_comm_free,
 * or at the world's end. Several threads may add and free groups at the same time.
 */
#include "api/connected.h"

#include "base/status.h"

#include <assert.h>

void tutti__parts_add(tutti__comm_t *comm)
{
    tutti__comm_state_t *world = tutti__comm_state(comm->world), *part = tutti__comm_state(comm);

    assert(part != world && comm->handle != NULL && part->next_part == NULL);
    tutti__mutex_lock(&world->parts_lock);
    part->next_part = world->parts;
    world->parts = part;
    tutti__mutex_unlock(&world->parts_lock);
}

/* Take `part` out of its world's list, or the first group if `part` is NULL. Returns NULL if the
   list does not have this group. */
static tutti__comm_state_t *take(tutti__comm_state_t *world, const tutti__comm_state_t *part)
{
    tutti__comm_state_t **at = &world->parts, *taken;

    tutti__mutex_lock(&world->parts_lock);
    while (*at != NULL && part != NULL && *at != part)
        at = &(*at)->next_part;
    taken = *at;
    assert(taken == NULL || part == NULL || taken == part);
    if (taken != NULL)
        *at = taken->next_part;
    tutti__mutex_unlock(&world->parts_lock);
    return taken;
}

tutti_status_t tutti_comm_free(tutti_comm_t *handle)
{
    tutti_status_t status;
    tutti__comm_t *comm;

    if (handle == NULL)
        return TUTTI_OK;
    status = tutti__comm_of(handle, &comm);
    if (status != TUTTI_OK)
        return status;
    if (tutti__engine_in_callback())
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "a callback must not call tutti_comm_free");
    if (tutti__comm_is_connected(comm)) {
        tutti__connect_free(comm);
        return TUTTI_OK;
    }
    if (comm->world == comm)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "the world is ended by tutti_finalize, not by tutti_comm_free");
    /* If the group is not in the list, another thread closes it. */
    if (take(tutti__comm_state(comm->world), tutti__comm_state(comm)) != NULL)
        tutti__comm_close(comm);
    return TUTTI_OK;
}

void tutti__parts_stop(tutti__comm_t *world)
{
    tutti__comm_state_t *part;

    tutti__mutex_lock(&tutti__comm_state(world)->parts_lock);
    for (part = tutti__comm_state(world)->parts; part != NULL; part = part->next_part) {
        tutti__handle_end(&tutti__comms, part->comm.handle);
        part->comm.handle = NULL;
    }
    tutti__mutex_unlock(&tutti__comm_state(world)->parts_lock);
    for (part = tutti__comm_state(world)->parts; part != NULL; part = part->next_part)
        tutti__comm_stop(&part->comm);
}

void tutti__parts_close(tutti__comm_t *world)
{
    tutti__comm_state_t *part;

    while ((part = take(tutti__comm_state(world), NULL)) != NULL)
        tutti__comm_close(&part->comm);
}
