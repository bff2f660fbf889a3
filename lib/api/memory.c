/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for zero-copy collectives: ranges of this rank's arena, which all local ranks map. */
#include "api/comm.h"

#include "base/status.h"
#include "mem/blocks.h"

tutti_status_t tutti_mem_alloc(tutti_comm_t *handle, size_t bytes, void **ret_ptr)
{
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm), mine = TUTTI_OK;
    tutti__exec_call_t call;
    int32_t worst;
    void *ptr = NULL;

    if (status != TUTTI_OK)
        return status;
    if (ret_ptr == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "ret_ptr is NULL");
    if (bytes > 0)
        mine = tutti__arena_alloc(comm->machine->arena, bytes, &ptr);
    /* If one rank gets no memory, the call fails on all ranks. */
    worst = (int32_t)mine;
    call = (tutti__exec_call_t){ .in = &worst,
                                 .out = &worst,
                                 .count = 1,
                                 .dtype = TUTTI_INT32,
                                 .op = TUTTI_MAX,
                                 .tag = TUTTI__TAG_MEM_ALLOC };
    status = tutti__comm_direct(comm, TUTTI__ALLREDUCE, &call, 0);
    if (status == TUTTI_OK && worst != TUTTI_OK)
        status = mine != TUTTI_OK ? mine
                                  : tutti__fail((tutti_status_t)worst, "another rank could not "
                                                                       "allocate its part");
    if (status != TUTTI_OK) {
        tutti__arena_free(comm->machine->arena, ptr);
        return status;
    }
    *ret_ptr = ptr;
    return TUTTI_OK;
}

tutti_status_t tutti_mem_free(tutti_comm_t *handle, void *ptr)
{
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);
    const char *other;

    if (status != TUTTI_OK)
        return status;
    other = tutti__block_freed_by(ptr);
    if (other != NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "%p is not from tutti_mem_alloc: %s frees it", ptr, other);
    return tutti__arena_free(comm->machine->arena, ptr);
}

tutti_status_t tutti_mem_alloc_local(tutti_comm_t *handle, size_t bytes, void **ret_ptr)
{
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);

    if (status != TUTTI_OK)
        return status;
    if (ret_ptr == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "ret_ptr is NULL");
    return tutti__block_alloc(comm->machine->arena, bytes, ret_ptr);
}

tutti_status_t tutti_mem_free_local(void *ptr)
{
    return tutti__block_free(ptr);
}

/* Is this memory on a device, or pinned? */
static int is_known(const tutti__comm_t *comm, const void *ptr)
{
    const tutti__device_ops_t *ops = comm->device.ops != NULL ? comm->device.ops : comm->lone.ops;

    return ops != NULL && ops->where(ptr).kind != TUTTI__MEM_HOST;
}

tutti_status_t tutti_mem_register(tutti_comm_t *handle, void *ptr, size_t bytes)
{
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);

    if (status != TUTTI_OK)
        return status;
    if (ptr == NULL && bytes > 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "ptr is NULL");
    if (bytes > 0 && is_known(comm, ptr))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "the memory at %p is a device's, or pinned", ptr);
    return tutti__block_register(comm->machine->arena, ptr, bytes);
}

tutti_status_t tutti_mem_unregister(void *ptr)
{
    return ptr == NULL ? TUTTI_OK : tutti__block_unregister(ptr);
}
