/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The star: a meeting (tutti__meet_t) that rank 0 serves, over stream sockets of any kind.
 *
 * Rank 0 admits all ranks through a strict gate (see gate.h) at a listening socket. The callers of
 * these functions pass the socket's address to the other ranks. After that, an allgather is one
 * message from each rank to rank 0, and one answer to each rank. If a rank cannot connect, or dies,
 * all other ranks receive the number of this rank.
 *
 * Deadlines are those of the whole set-up, see tutti__meet_t.
 */
#ifndef TUTTI__BOOT_STAR_H
#define TUTTI__BOOT_STAR_H

#include "boot/boot.h"
#include "boot/gate.h"

/*
 * Rank 0: wait until all ranks have connected.
 *
 * gate  rank 0's; strict
 * name  the meeting's name, see tutti__meet_t
 * door  the listening socket; this function closes it, even on an error
 */
tutti_status_t tutti__star_host(const tutti__gate_t *gate, const char *name, int door,
                                uint64_t deadline, tutti__meet_t *ret_meet);

/* Other ranks: wait until all ranks have connected. fd: the connection to rank 0, after a
   successful knock; the star closes fd, even on an error. until: tutti__star_patience(deadline), as
   computed when the meeting began. */
tutti_status_t tutti__star_join(const tutti__gate_t *gate, const char *name, int fd,
                                uint64_t deadline, uint64_t until, tutti__meet_t *ret_meet);

/* Returns the deadline of a rank other than 0 for rank 0's answer: a little later than `deadline`.
   Rank 0 gives up before the earliest of these deadlines, and sends the reason: see
   tutti__gate_decide_by. */
uint64_t tutti__star_patience(uint64_t deadline);

#endif
