/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The builder, with which algorithms (coll/) write schedules.
 *
 * Most functions append to the current stream. The builder keeps the first error (no memory, too
 * many blocks) until tutti__build_end() returns it, so algorithms need not check each call. The
 * builder collects channel ends and marks. A builder belongs to one thread.
 */
#ifndef TUTTI__SCHED_BUILD_H
#define TUTTI__SCHED_BUILD_H

#include "sched/sched.h"

typedef struct tutti__build tutti__build_t;

/* A place: block `blk` of a buffer. An operation works on this block and, if it has several blocks,
   on the following ones. */
typedef struct {
    tutti__buf_t buf;
    uint32_t blk;
} tutti__at_t;

/* Begin a schedule. `name` must live as long as the schedule. Returns NULL if there is no memory;
   the functions below accept NULL. */
tutti__build_t *tutti__build_begin(const char *name, uint32_t rank, uint32_t size, uint32_t nblocks,
                                   uint32_t scratch_blocks, uint32_t max_nblk);

/* The schedule's `sizes`, see sched.h. Without this call: BY_NUMBER. */
void tutti__build_sizes(tutti__build_t *b, tutti__sizes_t sizes);

/* Make STAGE separate memory: see stage_* in sched.h. Without this call STAGE is OUT. */
void tutti__build_stage(tutti__build_t *b, uint32_t first, uint32_t blocks, uint32_t trips);
/* Require host memory for IN and OUT on this rank, for schedules in which the operations of some
   ranks would suit device memory, but those of other ranks do not. */
void tutti__build_on_host(tutti__build_t *b);

/* Set the scope of the schedule's node operation to ALL, see sched.h. */
void tutti__build_scope_all(tutti__build_t *b);

/* Append the following operations to stream s (0 to 3). */
void tutti__build_stream(tutti__build_t *b, unsigned s);

/* Set a flag or the shift of the next operation only. Several of these calls can be combined. */
void tutti__build_mark(tutti__build_t *b);
void tutti__build_finish(tutti__build_t *b);
void tutti__build_left(tutti__build_t *b);
void tutti__build_shift(tutti__build_t *b, unsigned shift);
/* Mark the latest operation of the current stream. */
void tutti__build_mark_last(tutti__build_t *b);

void tutti__build_loop(tutti__build_t *b);
void tutti__build_end_loop(tutti__build_t *b);
void tutti__build_send(tutti__build_t *b, uint32_t peer, tutti__at_t src, uint32_t nblk);
/* from_stream: the stream in which the peer sends the message. */
void tutti__build_recv(tutti__build_t *b, uint32_t peer, unsigned from_stream, tutti__at_t dst,
                       uint32_t nblk);
void tutti__build_recv_reduce(tutti__build_t *b, uint32_t peer, unsigned from_stream,
                              tutti__at_t src, tutti__at_t dst, uint32_t nblk);
void tutti__build_copy(tutti__build_t *b, tutti__at_t src, tutti__at_t dst, uint32_t nblk);
void tutti__build_reduce(tutti__build_t *b, tutti__at_t src, tutti__at_t dst, uint32_t nblk);
void tutti__build_wait(tutti__build_t *b, unsigned stream, int32_t marks);
void tutti__build_node(tutti__build_t *b, tutti__op_kind_t kind, tutti__at_t src, tutti__at_t dst,
                       uint32_t nblk, uint32_t nparts, int32_t root);

/*
 * Return the schedule, and free the builder in every case. Errors: TUTTI_ERR_
 *   NO_MEMORY
 *   UNSUPPORTED  a number does not fit: too many channels, parts, operations
 *   INTERNAL     the calls break a rule of the language (sched.h): a bug in the algorithm
 */
tutti_status_t tutti__build_end(tutti__build_t *b, tutti__sched_t **ret_sched);

#endif
