/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Determines when a thread warns while it waits for ranks, before the meeting is complete.
 *
 * Each wait has a tutti__waiting_t, and the waiting thread calls tutti__waiting_now from time to
 * time. A warning is due after the interval, TUTTI_STALL_WARNING, and again after each further
 * interval. The text depends on the wait: rank 0 names the ranks that have not connected (gate.c);
 * another rank can only report that it has not reached rank 0. Waits inside MPI_Init: see
 * starting.c. Waits after the meeting: see engine/stalls.h.
 */
#ifndef TUTTI__BOOT_WAITING_H
#define TUTTI__BOOT_WAITING_H

#include <stdint.h>

/* Initialise it with zeros. The wait begins with the first call of tutti__waiting_now. */
typedef struct {
    uint64_t begin_ns;
    uint64_t due; /* of the next warning, a time of tutti__now_ns(); UINT64_MAX: never */
} tutti__waiting_t;

/* Set the interval of this thread's waits. 0: no warnings. A new thread has the interval 0. */
void tutti__waiting_every(uint64_t ms);
/* Returns 1 if a warning is due, and otherwise 0. The caller logs the warning. ret_waited_s:
   duration of the wait until now; set only if the result is 1. */
int tutti__waiting_now(tutti__waiting_t *waiting, double *ret_waited_s);

#endif
