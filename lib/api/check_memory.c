/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds out whether a call's buffers are in host memory or on a device. Errors name the buffer and
   its memory. See arguments.h. */
#include "api/arguments.h"

#include "base/status.h"
#include "call/call_sides.h"

#include <assert.h>
#include <stdio.h>

static void describe(tutti__where_t where, char *text, size_t bytes)
{
    if (where.kind == TUTTI__MEM_DEVICE)
        snprintf(text, bytes, "memory of device %d", where.device);
    else
        snprintf(text, bytes, "host memory");
}

static tutti_status_t wrong(const tutti__comm_t *comm, const tutti__side_t *side,
                            tutti__where_t where, const tutti__side_t *other,
                            tutti__where_t other_where)
{
    char a[48], b[48];

    describe(where, a, sizeof(a));
    if (other == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "%s is %s, but this communicator uses device %d on rank %u", side->name,
                           a, comm->device.device, comm->topo->rank);
    describe(other_where, b, sizeof(b));
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "%s is %s, but %s is %s: both must be in one kind of memory", side->name, a,
                       other->name, b);
}

static tutti_status_t lacks(const tutti__comm_t *comm, const tutti__side_t *side,
                            tutti__where_t where)
{
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "%s is memory of device %d, but rank %u%s has no device, so calls take host "
                       "memory only",
                       side->name, where.device, comm->lone.lacks,
                       comm->world == comm                     ? ""
                       : tutti__comm_is_connected(comm->world) ? " of the connected communicator"
                                                               : " of the world");
}

/* Is the buffer aligned for a device? Devices can read only aligned numbers. Pairs of a value and
   an index are moved as bytes. */
static int is_aligned(const tutti__call_t *call, const void *ptr)
{
    return call->dtype > TUTTI_FLOAT64 || (uintptr_t)ptr % tutti_dtype_bytes(call->dtype) == 0;
}

tutti_status_t tutti__device_check(const tutti__comm_t *comm, const tutti__call_t *call,
                                   int receives, int *ret_on_device)
{
    uint32_t rank = comm->topo->rank, size = comm->topo->size;
    tutti__side_t side[2] = { { 0 }, { 0 } };
    const tutti__device_ops_t *ops = comm->device.ops != NULL ? comm->device.ops : comm->lone.ops;
    tutti__where_t where[2];
    int last = -1;

    assert(ops != NULL);
    *ret_on_device = 0;
    tutti__call_sends(call, rank, size, &side[0]);
    if (receives)
        tutti__call_receives(call, rank, size, &side[1]);
    for (int i = 0; i < 2; i++) {
        tutti__side_measure(&side[i], size);
        if (side[i].count == 0)
            continue;
        where[i] = ops->where(side[i].ptr);
        if (where[i].kind == TUTTI__MEM_DEVICE && comm->device.ops == NULL)
            return lacks(comm, &side[i], where[i]);
        if (where[i].kind == TUTTI__MEM_DEVICE && where[i].device != comm->device.device)
            return wrong(comm, &side[i], where[i], NULL, where[i]);
        if (where[i].kind == TUTTI__MEM_DEVICE && !is_aligned(call, side[i].ptr))
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s is on a device, but not at a multiple of its element's size",
                               side[i].name);
        if (last >= 0 && (where[i].kind == TUTTI__MEM_DEVICE) != *ret_on_device)
            return wrong(comm, &side[last], where[last], &side[i], where[i]);
        *ret_on_device = where[i].kind == TUTTI__MEM_DEVICE;
        last = i;
    }
    return TUTTI_OK;
}

tutti_status_t tutti__device_check_stream(const tutti__comm_t *comm, const tutti__call_t *call,
                                          tutti__dstream_t *stream)
{
    tutti__side_t side[2] = { { 0 }, { 0 } };
    int before, captures;

    if (comm->device.ops == NULL)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "this communicator has no device and no streams: see TUTTI_DEVICE");
    if (call->kind == TUTTI_CALL_BARRIER)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "a barrier cannot be made in a stream, because it moves no data");
    before = tutti__device_enter(&comm->device);
    captures = comm->device.ops->stream_captures(stream);
    tutti__device_leave(&comm->device, before);
    if (captures)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "the stream is being captured into a graph: calls between ranks cannot "
                           "be replayed");
    tutti__call_sends(call, comm->topo->rank, comm->topo->size, &side[0]);
    tutti__call_receives(call, comm->topo->rank, comm->topo->size, &side[1]);
    for (int i = 0; i < 2 && !call->on_device; i++) {
        if (side[i].count == SIZE_MAX) /* recvcounts is NULL: the counts are not known yet */
            continue;
        tutti__side_measure(&side[i], comm->topo->size);
        if (side[i].count > 0)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s is host memory, but calls in a stream are for device memory",
                               side[i].name);
    }
    return TUTTI_OK;
}
