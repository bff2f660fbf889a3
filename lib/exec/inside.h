/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of this room share. */
#ifndef TUTTI__EXEC_INSIDE_H
#define TUTTI__EXEC_INSIDE_H

#include "exec/exec.h"

#include "base/compiler.h"

#define TUTTI__NO_LOOP UINT32_MAX

typedef struct {
    char *ptr;
    size_t bytes;
} tutti__span_t;

/* Chunk of one block, as the present trip of a stream sees it. */
static inline tutti__span_t tutti__run_chunk(const tutti__run_t *run, const tutti__stream_t *st,
                                             const tutti__op_t *op, unsigned buf, uint32_t blk)
{
    const tutti__place_t *place = &run->place[buf];
    const tutti__block_t *block = &place->block[blk];
    size_t skip = (st->trip - op->shift) * st->chunk;

    if (skip >= block->bytes)
        return (tutti__span_t){ place->base, 0 };
    return (tutti__span_t){ place->base + block->begin + (skip & place->mask),
                            TUTTI__MIN(block->bytes - skip, st->chunk) };
}

/* Tell each receiving end how many messages this run brings. Not before the ranks have met. */
tutti_status_t tutti__run_expect(tutti__run_t *run);

/* ---- on_device.c: what calls on device memory have of their own ---- */

#define TUTTI__LEAST_CHUNK ((size_t)64) /* bytes; a power of two */

static inline int tutti__run_is_users(unsigned buf)
{
    return buf == TUTTI__IN || buf == TUTTI__OUT;
}

/*
 * STAGE's blocks, and chunks that are powers of two; all ranks know the same.
 *
 * message  bytes of a block that fit a slot
 * largest  bytes of the longest block
 * stage    [nblocks], to be filled in
 */
tutti_status_t tutti__run_lay_out_device(tutti__run_t *run, const tutti__sched_t *sched,
                                         size_t largest, size_t message, tutti__block_t *stage);
/* How each stream's chunks are cut; and who goes on before the host's ranks have met. */
void tutti__run_start_device(tutti__run_t *run, const tutti__exec_call_t *call);
/* They have met: the other streams begin, and messages will come. */
tutti_status_t tutti__run_live(tutti__run_t *run);
/* WAIT, between streams that may cut chunks differently. */
tutti_status_t tutti__run_wait(const tutti__run_t *run, const tutti__stream_t *st,
                               const tutti__op_t *op);
/* COPY, by the device, from or to its memory. */
tutti_status_t tutti__run_copy(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op);
/* Wait for copies that were queued: TUTTI__QUIET_NS at most. */
void tutti__run_end_copies(const tutti__run_t *run);

/* ---- direct.c: messages from and to device memory ---- */

/* For run->direct. The call is on device memory; the same on all ranks but for the number. */
tutti_status_t tutti__run_choose_direct(const tutti__run_t *run, const tutti__sched_t *sched,
                                        const tutti__exec_call_t *call, uint32_t *ret_credits);
/* The name of a channel's end, which has slots if it receives. */
void tutti__run_direct_key(tutti__run_t *run, const tutti__sched_chan_t *chan,
                           tutti__chan_key_t *key);
/* SEND to REDUCE, of a run that is direct. */
tutti_status_t tutti__run_direct(tutti__run_t *run, tutti__stream_t *st, const tutti__op_t *op,
                                 tutti__stuck_t *stuck);

#endif
