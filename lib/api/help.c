/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A direct call that waits does asynchronous calls' work, where the engine's thread may not.
 *
 * Below MPI_THREAD_MULTIPLE that thread leaves messages between hosts alone, so what is in flight
 * moves only when the application's thread steps it. If that thread is in a direct call on device
 * memory, which has its turn behind an asynchronous one, of this communicator or another one, it
 * would wait for itself (node/nccl/nccl.h: every rank goes on stepping all lanes).
 *
 * Who waits for a request does the same for the other communicators: else two ranks that wait for
 * two communicators' requests, one for this first, one for that, would wait for each other.
 */
#include "api/direct.h"

static int is_barred(tutti__xport_t *xport)
{
    return xport != NULL && !xport->ops->may_progress(xport, 1);
}

void tutti__comm_help(tutti__comm_t *comm)
{
    tutti__comm_t *world = comm->world;

    /* A part may be one host's, and its turn behind one of the world's all the same. */
    if (world->shape.nhosts == 1 || (!is_barred(world->mpi) && !is_barred(world->shm)))
        return;
    tutti__engine_help(world->engine);
    /* Whoever has the lock makes or frees a part, which waits for nobody here. */
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
