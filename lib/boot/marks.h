/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Marks: the ranks of one machine that have come to a meeting over MPI, before the first exchange.
 *
 * MPI reports neither the ranks it waits for, nor the death of one of them. So each rank has
 * an abstract Unix socket, named after the launcher's job and the rank. Ranks learn each other's
 * process ids from the kernel, by connecting.
 *
 * Ranks are the launcher's. A rank in another network namespace is not detected, and the death of a
 * rank in another pid namespace is not. A mark belongs to one thread at a time.
 */
#ifndef TUTTI__BOOT_MARKS_H
#define TUTTI__BOOT_MARKS_H

#include <tutti/tutti.h>

typedef struct tutti__marks tutti__marks_t;

/* Before MPI_Init and before the first exchange. NULL: the launcher's variables do not name the
   ranks, or a system call has failed; then no rank is detected, which is no error. */
tutti__marks_t *tutti__marks_open(void);
/* For a meeting of `size` ranks: are its ranks the launcher's? */
int tutti__marks_fit(const tutti__marks_t *marks, uint32_t rank, uint32_t size);
/* The ranks that have come and live, with this rank. ret_here: [size of the launcher's job].
   Returns how many they are. */
uint32_t tutti__marks_find(tutti__marks_t *marks, unsigned char *ret_here);
/* TUTTI_ERR_PEER_LOST: a rank that had come has died. marks: a tutti__marks_t; a check for
   tutti__net_watch_meeting. */
tutti_status_t tutti__marks_still(void *marks);
/* Not before all ranks of the machine have begun the first exchange. NULL does nothing. */
void tutti__marks_close(tutti__marks_t *marks);

#endif
