/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening the transport over UCX, which a module provides. */
#ifndef TUTTI__XPORT_OPEN_UCX_H
#define TUTTI__XPORT_OPEN_UCX_H

#include "boot/boot.h"
#include "xport/xport.h"

/*
 * Open the UCX module, and a transport between all ranks of boot. Collective; fails on all ranks or
 * on none. TUTTI_ERR_UNSUPPORTED, with the reason: a rank cannot load the module or UCX.
 */
tutti_status_t tutti__xport_ucx_open(tutti__boot_t *boot, const tutti__conf_t *conf,
                                     tutti__xport_t **ret_xport);

/* The same, for a world in which MPI can replace UCX. If a rank cannot use UCX, the function
   returns TUTTI_OK, *ret_xport is NULL on all ranks, and the thread's last error has the reason.
   The function returns an error only if the ranks could not exchange data. */
tutti_status_t tutti__xport_ucx_try(tutti__boot_t *boot, const tutti__conf_t *conf,
                                    tutti__xport_t **ret_xport);

#endif
