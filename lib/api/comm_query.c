/* SPDX-License-Identifier: BSD-3-Clause */
/* Questions about a communicator: its state, its ranks and hosts. */
#include "api/comm.h"

#include "base/status.h"

#include <stdio.h>

tutti_status_t tutti_comm_state(const tutti_comm_t *handle, tutti_status_t *ret_state,
                                char *ret_text, size_t text_bytes)
{
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);
    const char *text;

    if (status != TUTTI_OK)
        return status;
    if (ret_state == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "ret_state is NULL");
    *ret_state = tutti__watch_state(comm->watch, &text);
    if (ret_text != NULL && text_bytes > 0)
        snprintf(ret_text, text_bytes, "%s", text);
    return TUTTI_OK;
}

/* Returns NULL if the handle is not a communicator's. */
static const tutti__topo_t *topo_of(const tutti_comm_t *handle)
{
    const tutti__comm_t *comm;

    return tutti__comm_peek(handle, &comm) ? comm->topo : NULL;
}

int tutti_rank(const tutti_comm_t *handle)
{
    const tutti__topo_t *topo = topo_of(handle);

    return topo != NULL ? (int)topo->rank : -1;
}

int tutti_size(const tutti_comm_t *handle)
{
    const tutti__topo_t *topo = topo_of(handle);

    return topo != NULL ? (int)topo->size : -1;
}

int tutti_local_rank(const tutti_comm_t *handle)
{
    const tutti__topo_t *topo = topo_of(handle);

    return topo != NULL ? (int)topo->local_of[topo->rank] : -1;
}

int tutti_local_size(const tutti_comm_t *handle)
{
    const tutti__topo_t *topo = topo_of(handle);
    const uint32_t *first = topo != NULL ? &topo->host_first[topo->host_of[topo->rank]] : NULL;

    return topo != NULL ? (int)(first[1] - first[0]) : -1;
}

int tutti_host_rank(const tutti_comm_t *handle)
{
    const tutti__topo_t *topo = topo_of(handle);

    return topo != NULL ? (int)topo->host_of[topo->rank] : -1;
}

int tutti_host_count(const tutti_comm_t *handle)
{
    const tutti__topo_t *topo = topo_of(handle);

    return topo != NULL ? (int)topo->nhosts : -1;
}
