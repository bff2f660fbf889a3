/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The schedule files that TUTTI_ALGORITHM names. See coll/files.h.
 *
 * As with all shared settings, rank 0's files are used: rank 0 reads them once, when the world is
 * made, and sends their texts. A group takes the texts of its world, because the files may have
 * changed, and proves the schedules for its own ranks. A communicator from tutti_comm_connect is a
 * world here: its rank 0 reads the files.
 */
#include "api/comm_state.h"

#include "base/status.h"
#include "node/shm/shm.h"

static tutti_status_t take(tutti__comm_t *comm, uint32_t i)
{
    tutti__file_t *file = &comm->files->file[i];
    const uint32_t credits = (uint32_t)comm->conf.shared.credits;
    int is_group = comm->world != comm;
    tutti_status_t status = TUTTI_OK;

    if (!is_group)
        status = tutti__boot_read_file(comm->boot, tutti__file_path(file), &file->text);
    if (status != TUTTI_OK)
        return status;
    status = tutti__file_take(file, is_group ? comm->world->files->file[i].text : file->text,
                              &comm->shape, comm->topo->rank, !tutti__comm_is_world(comm), credits);
    if (file->sched != NULL)
        tutti__shm_hold_blocks(comm->node, file->sched->nblocks);
    return tutti__boot_agree(comm->boot, status);
}

tutti_status_t tutti__comm_take_files(tutti__comm_t *comm)
{
    tutti_status_t status = tutti__files_list(comm->conf.shared.algorithm, &comm->files);

    status = tutti__boot_agree(comm->boot, status);
    for (uint32_t i = 0; comm->files != NULL && i < comm->files->n && status == TUTTI_OK; i++)
        status = take(comm, i);
    if (status == TUTTI_OK)
        comm->shape.files = comm->files;
    return status;
}
