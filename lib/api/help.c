/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A waiting direct call does the work of asynchronous calls that the engine's thread may not do.
 *
 * Below MPI_THREAD_MULTIPLE the engine's thread does not call MPI, so messages between hosts make
 * progress only when the application's thread steps them. Suppose that this thread waits in a
 * direct call on device memory, whose launch is ordered behind that of an asynchronous call of this
 * or another communicator. Then it would wait for its own work (node/nccl/nccl.h: every rank
 * continues to step all lanes).
 *
 * A thread that waits for a request does the same for the other communicators. Otherwise two ranks
 * that wait for requests of two communicators, in different orders, would wait for each other.
 */
#include "api/direct.h"

static int is_barred(tutti__xport_t *xport)
{
    return xport != NULL && !xport->ops->may_progress(xport, 1);
}

void tutti__comm_help(tutti__comm_t *comm)
{
    tutti__comm_t *world = comm->world;

    /* The world's hosts count: a launch of a part on one host may be ordered behind the world's. */
    if (world->shape.nhosts == 1 || (!is_barred(world->mpi) && !is_barred(world->shm)))
        return;
    tutti__engine_help(world->engine);
    /* The holder of the lock adds or removes a part, and waits for no rank while it does so. */
    if (!tutti__mutex_trylock(&world->parts_lock))
        return;
    for (tutti__comm_t *part = world->parts; part != NULL; part = part->next_part)
        tutti__engine_help(part->engine);
    tutti__mutex_unlock(&world->parts_lock);
}

void tutti__comm_help_others(void *comm)
{
    tutti__comm_help(comm);
}
