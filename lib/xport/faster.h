/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice between UCX and MPI where both are open. See faster.c. */
#ifndef TUTTI__XPORT_FASTER_H
#define TUTTI__XPORT_FASTER_H

#include "boot/boot.h"
#include "xport/xport.h"

/*
 * Decide which of two transports between all ranks of boot carries the messages between hosts. All
 * ranks get the same answer. Collective. The caller closes one transport or both. It must not use
 * `mpi` after this, because a message may still be in flight.
 *
 * An error: the meeting has failed. A transport that does not work is no error.
 */
tutti_status_t tutti__xport_faster(tutti__boot_t *boot, tutti__xport_t *ucx, tutti__xport_t *mpi,
                                   int *ret_takes_ucx);

/* The decision by figures. trips: round trips measured over each transport; *_ns: the shortest. */
int tutti__faster_takes_ucx(uint32_t trips, uint64_t ucx_ns, uint64_t mpi_ns);

#endif
