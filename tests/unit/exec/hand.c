/* SPDX-License-Identifier: BSD-3-Clause */
/* Hand-written allreduces. See hand.h. */
#include "unit/exec/hand.h"

#include "sched/build.h"

static const tutti__at_t in = { TUTTI__IN, 0 };
static const tutti__at_t out = { TUTTI__OUT, 0 };
static const tutti__at_t stage = { TUTTI__STAGE, 0 };
static const tutti__at_t scratch = { TUTTI__SCRATCH, 0 };

static tutti__at_t at(tutti__at_t place, uint32_t blk)
{
    place.blk += blk;
    return place;
}

/*
 * All data are sent to rank 0, and the result is sent back, in messages of one to four blocks. The
 * result is cut into other messages than the data.
 */
static tutti_status_t blocks(uint32_t rank, uint32_t n, tutti__sched_t **ret_sched)
{
    tutti__build_t *b = tutti__build_begin("blocks", rank, n, 6, 0, 4);

    tutti__build_loop(b);
    if (rank != 0) {
        tutti__build_send(b, 0, at(in, 0), 4);
        tutti__build_send(b, 0, at(in, 4), 2);
        tutti__build_recv(b, 0, 0, at(out, 0), 1);
        tutti__build_recv(b, 0, 0, at(out, 1), 2);
        tutti__build_recv(b, 0, 0, at(out, 3), 3);
    }
    for (uint32_t r = 1; rank == 0 && r < n; r++) {
        tutti__at_t have = r == 1 ? in : out;

        if (r == n - 1)
            tutti__build_finish(b);
        tutti__build_recv_reduce(b, r, 0, at(have, 0), at(out, 0), 4);
        if (r == n - 1)
            tutti__build_finish(b);
        tutti__build_recv_reduce(b, r, 0, at(have, 4), at(out, 4), 2);
    }
    for (uint32_t r = 1; rank == 0 && r < n; r++) {
        tutti__build_send(b, r, at(out, 0), 1);
        tutti__build_send(b, r, at(out, 1), 2);
        tutti__build_send(b, r, at(out, 3), 3);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}

/*
 * A chain to the last rank and back, in four streams: stream 1 receives into SCRATCH, stream 0
 * adds, stream 2 sends to the next rank, and stream 3 sends the result back. Stream 1 must not
 * overwrite a chunk that stream 0 has not read. So stream 1 waits until stream 0 has added the
 * chunk before.
 */
static void chain_receive(tutti__build_t *b, uint32_t rank)
{
    tutti__build_stream(b, 1);
    tutti__build_loop(b);
    tutti__build_shift(b, 1);
    tutti__build_wait(b, 0, 1);
    tutti__build_mark(b);
    tutti__build_recv(b, rank - 1, 2, scratch, 2);
    tutti__build_end_loop(b);
}

static void chain_add(tutti__build_t *b, uint32_t rank, int is_last)
{
    tutti__build_stream(b, 0);
    tutti__build_loop(b);
    tutti__build_copy(b, in, out, 2);
    if (rank > 0) {
        tutti__build_wait(b, 1, 1);
        if (is_last)
            tutti__build_finish(b);
        tutti__build_reduce(b, scratch, out, 2);
    }
    tutti__build_mark_last(b);
    tutti__build_end_loop(b);
}

static void chain_send(tutti__build_t *b, uint32_t rank)
{
    tutti__build_stream(b, 2);
    tutti__build_loop(b);
    tutti__build_wait(b, 0, 1);
    tutti__build_mark(b);
    tutti__build_send(b, rank + 1, out, 2);
    tutti__build_end_loop(b);
}

static void chain_return(tutti__build_t *b, uint32_t rank, int is_last)
{
    tutti__build_stream(b, 3);
    tutti__build_loop(b);
    tutti__build_wait(b, is_last ? 0 : 2, 1);
    if (!is_last)
        tutti__build_recv(b, rank + 1, 3, out, 2);
    if (rank > 0)
        tutti__build_send(b, rank - 1, out, 2);
    tutti__build_end_loop(b);
}

static tutti_status_t chain(uint32_t rank, uint32_t n, tutti__sched_t **ret_sched)
{
    tutti__build_t *b = tutti__build_begin("chain", rank, n, 2, 2, 2);
    int is_last = rank == n - 1;

    chain_add(b, rank, is_last);
    if (rank > 0)
        chain_receive(b, rank);
    if (!is_last)
        chain_send(b, rank);
    chain_return(b, rank, is_last);
    return tutti__build_end(b, ret_sched);
}

/* The chain as a pipeline in one stream: each rank works on up to 2 n chunks at a time. */
static tutti_status_t stairs(uint32_t rank, uint32_t n, tutti__sched_t **ret_sched)
{
    tutti__build_t *b = tutti__build_begin("stairs", rank, n, 1, 0, 1);
    unsigned back = 2 * (n - 1 - rank);

    tutti__build_loop(b);
    if (rank > 0) {
        if (rank == n - 1)
            tutti__build_finish(b);
        tutti__build_recv_reduce(b, rank - 1, 0, in, out, 1);
    }
    if (rank < n - 1) {
        tutti__build_shift(b, 1);
        tutti__build_send(b, rank + 1, rank > 0 ? out : in, 1);
        tutti__build_shift(b, back + 1);
        tutti__build_recv(b, rank + 1, 0, out, 1);
    }
    if (rank > 0) {
        tutti__build_shift(b, back + 2);
        tutti__build_send(b, rank - 1, out, 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}

/*
 * Two ranks. Before the loops there is a copy of all data, for which the other stream waits. Then
 * each rank sends from STAGE, which is OUT itself here. The other stream overwrites this block with
 * the result as soon as the SEND is done.
 */
static tutti_status_t staged(uint32_t rank, uint32_t n, tutti__sched_t **ret_sched)
{
    tutti__build_t *b = tutti__build_begin("staged", rank, n, 3, 0, 1);

    tutti__build_stream(b, 0);
    tutti__build_mark(b);
    tutti__build_copy(b, in, stage, 3);
    tutti__build_loop(b);
    for (uint32_t blk = 0; blk < 3; blk++) {
        tutti__build_wait(b, 1, (int32_t)blk + 1);
        tutti__build_finish(b);
        tutti__build_recv_reduce(b, 1 - rank, 1, at(in, blk), at(out, blk), 1);
    }
    tutti__build_end_loop(b);

    tutti__build_stream(b, 1);
    tutti__build_wait(b, 0, 1);
    tutti__build_loop(b);
    for (uint32_t blk = 0; blk < 3; blk++) {
        tutti__build_mark(b);
        tutti__build_send(b, 1 - rank, at(stage, blk), 1);
    }
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}

/*
 * Two ranks. A message is received one trip late, and added one trip later, just before the next
 * one overwrites it. There are two more trips than chunks; they have nothing to wait for. Both
 * ranks send two chunks before they receive one, so two credits are needed.
 */
static tutti_status_t late(uint32_t rank, uint32_t n, tutti__sched_t **ret_sched)
{
    tutti__build_t *b = tutti__build_begin("late", rank, n, 2, 4, 2);

    tutti__build_stream(b, 0);
    tutti__build_loop(b);
    tutti__build_shift(b, 2);
    tutti__build_copy(b, in, out, 2);
    tutti__build_shift(b, 2);
    tutti__build_finish(b);
    tutti__build_reduce(b, at(scratch, 2), out, 2);
    tutti__build_wait(b, 1, 1);
    tutti__build_shift(b, 1);
    tutti__build_recv(b, 1 - rank, 1, at(scratch, 2), 2);
    tutti__build_end_loop(b);

    tutti__build_stream(b, 1);
    tutti__build_loop(b);
    tutti__build_mark(b);
    tutti__build_send(b, 1 - rank, in, 2);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}

/* In a loop the other ranks send their data to rank 0. A REDUCE outside loops finishes the sum. In
   another loop rank 0 sends the sum to the other ranks. */
static tutti_status_t loops(uint32_t rank, uint32_t n, tutti__sched_t **ret_sched)
{
    tutti__build_t *b = tutti__build_begin("loops", rank, n, 2, 0, 2);

    tutti__build_loop(b);
    if (rank != 0)
        tutti__build_send(b, 0, in, 2);
    if (rank == 0)
        tutti__build_recv(b, 1, 0, out, 2);
    for (uint32_t r = 2; rank == 0 && r < n; r++)
        tutti__build_recv_reduce(b, r, 0, out, out, 2);
    tutti__build_end_loop(b);
    if (rank == 0) {
        tutti__build_finish(b);
        tutti__build_reduce(b, in, out, 2);
    }
    tutti__build_loop(b);
    if (rank != 0)
        tutti__build_recv(b, 0, 0, out, 2);
    for (uint32_t r = 1; rank == 0 && r < n; r++)
        tutti__build_send(b, r, out, 2);
    tutti__build_end_loop(b);
    return tutti__build_end(b, ret_sched);
}

const hand_t hand_made[] = {
    { "blocks", 2, 8, 1, blocks }, { "chain", 2, 8, 1, chain }, { "stairs", 2, 8, 1, stairs },
    { "staged", 2, 2, 1, staged }, { "late", 2, 2, 2, late },   { "loops", 2, 8, 1, loops },
    { NULL, 0, 0, 0, NULL },
};
