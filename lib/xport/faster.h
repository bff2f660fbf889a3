/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice between UCX and MPI where both are open. See faster.c. */
#ifndef TUTTI__XPORT_FASTER_H
#define TUTTI__XPORT_FASTER_H

#include "boot/boot.h"
#include "xport/xport.h"

/*
 * Decide which of two transports between all ranks of boot carries the messages between hosts.
 * Equal on all ranks. Collective. The caller closes one or both. `mpi` must not be used afterwards,
 * because a message may still be in flight.
 *
 * Not OK: the meeting has failed. A transport that does not work is no failure.
 */
tutti_status_t tutti__xport_faster(tutti__boot_t *boot, tutti__xport_t *ucx, tutti__xport_t *mpi,
                                   int *ret_takes_ucx);

/* trips: the round trips over each that were measured; the shortest of each, in nanoseconds. */
int tutti__faster_takes_ucx(uint32_t trips, uint64_t ucx_ns, uint64_t mpi_ns);

#endif
