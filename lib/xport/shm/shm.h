/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels over shared memory between ranks of one machine. */
#ifndef TUTTI__XPORT_SHM_SHM_H
#define TUTTI__XPORT_SHM_SHM_H

#include "boot/machine.h"
#include "xport/xport.h"

/* Collective over all ranks of boot. slot_bytes, credits: for each channel. If there are several
   hosts, the slots may be longer than slot_bytes: see tutti__xport_long in xport.h. */
tutti_status_t tutti__xport_shm_open(tutti__boot_t *boot, const tutti__machine_t *machine,
                                     size_t slot_bytes, uint32_t credits,
                                     tutti__xport_t **ret_xport);

/* For tests: use existing arenas. offset[i]: the offset of the channel table in the arena of the
   machine's rank i. A table has tutti__xport_shm_table_bytes() bytes, all 0. */
size_t tutti__xport_shm_table_bytes(uint32_t nranks);
tutti_status_t tutti__xport_shm_attach(const tutti__machine_t *machine, const uint64_t *offset,
                                       size_t slot_bytes, uint32_t credits,
                                       tutti__xport_t **ret_xport);

#endif
