/* SPDX-License-Identifier: BSD-3-Clause */
/* The difference between the clocks of this rank's host and of rank 0's host. See clocks.c. */
#ifndef TUTTI__API_CLOCKS_H
#define TUTTI__API_CLOCKS_H

#include "boot/boot.h"

/* Find the time that must be added to a time of this host, to get the time of rank 0's host:
   *ret_offset_ns, 0 on rank 0's host. Collective, during set-up. */
tutti_status_t tutti__clocks_compare(tutti__boot_t *boot, int64_t *ret_offset_ns);

#endif
