/* SPDX-License-Identifier: BSD-3-Clause */
/* The mappings that the kernel reports for this process: /proc/self/maps. */
#ifndef TUTTI__MEM_ANONYMOUS_H
#define TUTTI__MEM_ANONYMOUS_H

#include <tutti/tutti.h>

/* TUTTI_OK if [ptr, ptr + bytes) consists of whole pages of private anonymous memory, with
   permission to read and write, but not to execute. The heap (brk), the main stack and this
   thread's stack are excluded. Otherwise TUTTI_ERR_UNSUPPORTED, with the reason as error text. */
tutti_status_t tutti__mem_check_anonymous(const void *ptr, size_t bytes);

#endif
