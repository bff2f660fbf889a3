/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors inside the library.
 *
 * The function that detects an error calls tutti__fail() once, with the exact cause and the peer;
 * all its callers only return the status. The text becomes the thread's last error
 * (tutti_last_error).
 */
#ifndef TUTTI__BASE_STATUS_H
#define TUTTI__BASE_STATUS_H

#include "base/compiler.h"

#include <tutti/tutti.h>

/* A step could make no progress; call the step again later. Never returned to the program. */
#define TUTTI__AGAIN ((tutti_status_t)0x7ffffff0)

/* Longest text of one error, its end included. */
#define TUTTI__ERROR_BYTES 512

/* Set the thread's last error and return `status`. */
tutti_status_t tutti__fail(tutti_status_t status, const char *fmt, ...) TUTTI__PRINTF(2, 3);

/* The same for a failed system call: appends errno's text. ENOMEM, ENOSPC, EMFILE and ENFILE become
   TUTTI_ERR_NO_MEMORY, all other numbers TUTTI_ERR_SYSTEM. */
tutti_status_t tutti__fail_errno(const char *fmt, ...) TUTTI__PRINTF(1, 2);

#endif
