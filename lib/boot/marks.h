/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Marks: detect which ranks of this machine are in tutti_init while the ranks meet over MPI, and
 * which of them have died. In use until the first exchange is complete.
 *
 * MPI reports neither the ranks for which it waits, nor the death of such a rank. So each rank
 * opens a mark: an abstract Unix socket, whose name contains the launcher's job and the rank. Ranks
 * connect to each other's sockets, and read the peer's process id from the kernel.
 *
 * Rank numbers are the launcher's. A rank in another network namespace is not detected. A rank in
 * another pid namespace is detected, but its death is not. One thread at a time may use an object.
 */
#ifndef TUTTI__BOOT_MARKS_H
#define TUTTI__BOOT_MARKS_H

#include <tutti/tutti.h>

typedef struct tutti__marks tutti__marks_t;

/* Call this before MPI_Init and before the first exchange. NULL: the launcher's variables do not
   name the ranks, or a system call has failed. This is no error: no rank is detected then. */
tutti__marks_t *tutti__marks_open(void);
/* Does a meeting number its ranks as the launcher does? rank, size: this rank's in the meeting. A
   NULL `marks` gives 0. */
int tutti__marks_fit(const tutti__marks_t *marks, uint32_t rank, uint32_t size);
/* Find the ranks that have opened their mark and are alive, this rank included. ret_here: [size of
   the launcher's job], 1 for such a rank. Returns their number. */
uint32_t tutti__marks_find(tutti__marks_t *marks, unsigned char *ret_here);
/* For warnings: which ranks have not called tutti_init: "of the 3 ranks that mpirun started on this
   host, rank 1 has not called tutti_init". If the launcher has ranks on other hosts as well, it is
   not known which ranks are on this host: the text names the ranks that have called it. 0: a lower
   rank of this machine has called tutti_init, and warns. */
int tutti__marks_describe(tutti__marks_t *marks, char *ret_text, size_t text_bytes);
/* TUTTI_ERR_PEER_LOST: a rank that had opened its mark has died. If all live, this function also
   warns of the missing ranks, as waiting.h describes. A check for tutti__net_watch_meeting, so
   `marks`, a tutti__marks_t, is a void pointer. */
tutti_status_t tutti__marks_still(void *marks);
/* Close the mark. A rank that opens its own mark later cannot detect this rank. So if the marks are
   in use, they are closed only after the first exchange: by then all ranks have opened theirs. NULL
   does nothing. */
void tutti__marks_close(tutti__marks_t *marks);

#endif
