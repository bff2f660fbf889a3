/* SPDX-License-Identifier: BSD-3-Clause */
/* Direct calls: each runs on the caller's thread until it is done, one at a time on a
   communicator. */
#ifndef TUTTI__API_BLOCKING_H
#define TUTTI__API_BLOCKING_H

#include "call/call.h"

/* Check a call's arguments and make it. Blocks. */
tutti_status_t tutti__comm_call(tutti_comm_t *comm, tutti__call_t *call);

/* Like tutti__comm_call, for a call in a CUDA stream (call->has_stream). */
tutti_status_t tutti__comm_call_in_stream(tutti_comm_t *comm, tutti__call_t *call);

static inline tutti_status_t tutti__comm_make(tutti_comm_t *comm, tutti__call_t call)
{
    return tutti__comm_call(comm, &call);
}

#endif
