/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice between UCX and MPI where both are open. See faster.c. */
#ifndef TUTTI__XPORT_FASTER_H
#define TUTTI__XPORT_FASTER_H

#include "boot/boot.h"
#include "xport/xport.h"

/*
 * Decide which of two transports between all ranks of boot carries the messages between hosts. All
 * ranks get the same answer. Collective. After this call, the caller must only close `mpi`, because
 * a message of the measurement may still be in flight: to use MPI, open a new transport.
 *
 * Returns an error only if the ranks cannot exchange data over `boot`, not if a transport fails.
 */
tutti_status_t tutti__xport_faster(tutti__boot_t *boot, tutti__xport_t *ucx, tutti__xport_t *mpi,
                                   int *ret_takes_ucx);

/* Decide by figures. trips: round trips over each transport; *_ns: the shortest round trip. */
int tutti__faster_takes_ucx(uint32_t trips, uint64_t ucx_ns, uint64_t mpi_ns);

#endif
