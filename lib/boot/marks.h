/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Marks: detect which ranks of this machine are in tutti_init while the ranks meet over MPI, and
 * which of them have died. Marks are in use until the first exchange is complete.
 *
 * MPI does not report the ranks for which it waits, or the death of such a rank. So each rank opens
 * a mark: an abstract Unix socket, whose name contains the launcher's job and the rank. Ranks
 * connect to each other's sockets, and read the peer's process id from the kernel.
 *
 * Rank numbers are the launcher's. A rank in another network namespace is not detected. A rank in
 * another pid namespace is detected, but its death is not detected. One thread at a time may use an
 * object.
 */
#ifndef TUTTI__BOOT_MARKS_H
#define TUTTI__BOOT_MARKS_H

#include <tutti/tutti.h>

typedef struct tutti__marks tutti__marks_t;

/* Call this before MPI_Init and before the first exchange. NULL: the launcher's variables do not
   name the ranks, or a system call has failed. This is not an error: no rank is detected. */
tutti__marks_t *tutti__marks_open(void);
/* Does a meeting number its ranks as the launcher does? rank, size: this rank and the number of
   ranks in the meeting. 0 if `marks` is NULL. */
int tutti__marks_fit(const tutti__marks_t *marks, uint32_t rank, uint32_t size);
/* Find the ranks that have opened their mark and are alive, this rank included. ret_here: [size of
   the launcher's job], 1 for such a rank. Returns their number. */
uint32_t tutti__marks_find(tutti__marks_t *marks, unsigned char *ret_here);
/* A text for warnings: "of the 3 ranks that mpirun started on this host, rank 1 has not called
   tutti_init". If the launcher has also started ranks on other hosts, this function cannot tell
   which ranks are missing on this host. In this case the text names the ranks that have called
   tutti_init. Returns 0 if a lower rank of this machine has called tutti_init, because that rank
   warns. */
int tutti__marks_describe(tutti__marks_t *marks, char *ret_text, size_t text_bytes);
/* TUTTI_ERR_PEER_LOST: a rank that had opened its mark has died. If no rank has died, this function
   warns of the missing ranks, as waiting.h describes. It is a check for tutti__net_watch_meeting,
   so `marks`, a tutti__marks_t, is a void pointer. */
tutti_status_t tutti__marks_still(void *marks);
/* Close the mark. A rank that opens its own mark later cannot detect this rank. So if marks are in
   use, close them only after the first exchange: by then all ranks have opened their marks. marks
   may be NULL. */
void tutti__marks_close(tutti__marks_t *marks);

#endif
