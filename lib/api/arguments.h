/* SPDX-License-Identifier: BSD-3-Clause */
/* Argument checks, the same for direct and asynchronous calls. Any thread. */
#ifndef TUTTI__API_ARGUMENTS_H
#define TUTTI__API_ARGUMENTS_H

#include "api/comm.h"
#include "call/call.h"

/*
 * Check a call. Root and peers may be any int, cast. Sets call->on_device: see device.h.
 *
 * counts_later  for allgatherv and alltoallv: recvcounts may be NULL; then the receiving side is
 *               not checked
 *
 * INVALID_ARGUMENT or UNSUPPORTED, naming argument and value; NO_MEMORY for sorting many parts.
 */
tutti_status_t tutti__call_check(const tutti__comm_t *comm, tutti__call_t *call, int counts_later);

/* Check only counts, displacements and buffers of a call that tutti__call_check has accepted. */
tutti_status_t tutti__call_check_buffers(const tutti__call_t *call, uint32_t rank, uint32_t size,
                                         int counts_later);

#endif
