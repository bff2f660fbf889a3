/* SPDX-License-Identifier: BSD-3-Clause */
/* The clock of this rank's host and that of rank 0's host. See clocks.c. */
#ifndef TUTTI__API_CLOCKS_H
#define TUTTI__API_CLOCKS_H

#include "boot/boot.h"

/* Collective, during set-up. *ret_offset_ns: to be added to a time of this host; 0 on rank 0's
   host. */
tutti_status_t tutti__clocks_compare(tutti__boot_t *boot, int64_t *ret_offset_ns);

#endif
