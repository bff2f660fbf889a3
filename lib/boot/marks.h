/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * While the ranks meet over MPI, marks show which ranks of this machine are in tutti_init, and
 * which of these ranks have died. Marks are in use until the meeting's first exchange is complete.
 *
 * MPI does not report for which ranks it waits, or that such a rank has died. So each rank opens a
 * mark: an abstract Unix socket, whose name contains the launcher's job and the rank. Ranks connect
 * to each other's sockets, and read the peer's process id from the kernel.
 *
 * Rank numbers are the launcher's. A rank in another network namespace is not detected. A rank in
 * another pid namespace is detected, but its death is not detected. One thread at a time uses an
 * object.
 */
#ifndef TUTTI__BOOT_MARKS_H
#define TUTTI__BOOT_MARKS_H

#include <tutti/tutti.h>

typedef struct tutti__marks tutti__marks_t;

/* Call this before MPI_Init and before the first exchange. Returns NULL if the launcher's variables
   do not number the ranks, or a system call has failed. This is no error, but then no rank is
   detected. */
tutti__marks_t *tutti__marks_open(void);
/* Does a meeting number its ranks as the launcher does? rank, size: this rank's number, and the
   number of ranks, in the meeting. Returns 0 if `marks` is NULL. */
int tutti__marks_fit(const tutti__marks_t *marks, uint32_t rank, uint32_t size);
/* Find the ranks that have opened their mark and are alive, this rank included. ret_here: [size of
   the launcher's job], 1 for such a rank. Returns the number of these ranks. */
uint32_t tutti__marks_find(tutti__marks_t *marks, unsigned char *ret_here);
/* Write a text for warnings: "of the 3 ranks that mpirun started on this host, rank 1 has not
   called tutti_init". If the launcher has also started ranks on other hosts, this function cannot
   tell which ranks are missing on this host. In this case the text names the ranks that have called
   tutti_init. Returns 0 if a lower rank of this machine has called tutti_init: that rank warns. */
int tutti__marks_describe(tutti__marks_t *marks, char *ret_text, size_t text_bytes);
/* A check for tutti__net_watch_meeting, so `marks`, a tutti__marks_t, is a void pointer.
   TUTTI_ERR_PEER_LOST: a rank that had opened its mark has died. If no rank has died, this function
   warns of the missing ranks, as waiting.h describes. */
tutti_status_t tutti__marks_still(void *marks);
/* Close this rank's mark. A rank that opens its own mark later cannot detect this rank. So close a
   mark in use only after the first exchange, when all ranks have opened their marks. NULL is
   allowed. */
void tutti__marks_close(tutti__marks_t *marks);

#endif
