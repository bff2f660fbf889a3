/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rules of the schedule language that a single rank's schedule can break.
 *
 * After this check, the checker's run (check_run.c) and the executor may index blocks, channels and
 * loops without further checks. The run checks the rules that involve other ranks (messages that
 * fit, deadlocks, the result).
 */
#include "base/compiler.h"
#include "sched/chans.h"
#include "sched/check.h"

#include <stdarg.h>
#include <string.h>

#define MOVES_FLAGS (TUTTI__MARK | TUTTI__FINISH)
#define REDUCES_FLAGS (MOVES_FLAGS | TUTTI__LEFT)

#define NAME_BITS 16384 /* enough for the ends of 2048 peers: 4 streams, 2 directions */

typedef struct {
    const tutti__sched_t *sched;
    char *why;
    size_t why_bytes;
    uint32_t s;              /* the stream */
    uint32_t i;              /* the operation's index */
    const tutti__op_t *loop; /* the open loop, or NULL */
    uint32_t loop_shift;     /* largest shift in this loop */
    uint32_t loop_marks;
    uint32_t stream_marks; /* marks in the stream's only loop with marks */
} look_t;

/* The properties of a kind of operation; flags: the flags that it may have. */
typedef struct {
    uint8_t reads, writes, channel, node;
    uint8_t flags;
} trait_t;

static const trait_t traits[] = {
    [TUTTI__SEND] = { 1, 0, 1, 0, TUTTI__MARK },
    [TUTTI__RECV] = { 0, 1, 1, 0, TUTTI__MARK },
    [TUTTI__RECV_REDUCE] = { 1, 1, 1, 0, REDUCES_FLAGS },
    [TUTTI__COPY] = { 1, 1, 0, 0, MOVES_FLAGS },
    [TUTTI__REDUCE] = { 1, 1, 0, 0, REDUCES_FLAGS },
    [TUTTI__WAIT] = { 0, 0, 0, 0, 0 },
    [TUTTI__LOOP] = { 0, 0, 0, 0, 0 },
    [TUTTI__END_LOOP] = { 0, 0, 0, 0, 0 },
    [TUTTI__NODE_ALLREDUCE] = { 1, 1, 0, 1, MOVES_FLAGS },
    [TUTTI__NODE_REDUCE_SCATTER] = { 1, 1, 0, 1, MOVES_FLAGS },
    [TUTTI__NODE_ALLGATHER] = { 1, 1, 0, 1, TUTTI__MARK },
    [TUTTI__NODE_BCAST] = { 1, 1, 0, 1, TUTTI__MARK },
    [TUTTI__NODE_REDUCE] = { 1, 1, 0, 1, MOVES_FLAGS },
    [TUTTI__NODE_ALLTOALL] = { 1, 1, 0, 1, TUTTI__MARK },
};

/* Report the place and the error; returns 0, for `return bad(...)`. */
static int TUTTI__PRINTF(2, 3) bad(const look_t *look, const char *fmt, ...)
{
    char text[160], what[160];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    tutti__sched_op_text(look->sched, &look->sched->ops[look->i], text, sizeof(text));
    snprintf(look->why, look->why_bytes, "stream %u, operation %u (%s): %s", look->s, look->i, text,
             what);
    return 0;
}

static int blocks_valid(const look_t *look, unsigned buf, uint32_t blk)
{
    const tutti__sched_t *sched = look->sched;
    const tutti__op_t *op = &sched->ops[look->i];
    uint64_t end = (uint64_t)blk + (uint64_t)op->nblk * op->nparts;
    uint32_t limit = buf == TUTTI__SCRATCH ? sched->scratch_blocks : sched->nblocks;

    if (buf >= TUTTI__BUFS)
        return bad(look, "there is no buffer %u", buf);
    if (end > limit)
        return bad(look, "%s has %u blocks only", tutti__sched_buf_name(buf), limit);
    if (buf == TUTTI__SCRATCH && look->loop == NULL)
        return bad(look, "SCRATCH has one chunk, and is allowed in loops only");
    if (buf == TUTTI__STAGE && sched->stage_trips > 0 &&
        (blk < sched->stage_first || end > (uint64_t)sched->stage_first + sched->stage_blocks))
        return bad(look, "STAGE has blocks %u to %u only", sched->stage_first,
                   sched->stage_first + sched->stage_blocks - 1);
    if (buf == TUTTI__STAGE && sched->stage_trips > 0 && look->loop == NULL)
        return bad(look, "STAGE has some chunks, and is allowed in loops only");
    return 1;
}

/* BY_PAIR: is the operation allowed? It may only move blocks of IN to their places in OUT. */
static int pairs_valid(const look_t *look, const trait_t *trait)
{
    const tutti__op_t *op = &look->sched->ops[look->i];

    if (op->kind != TUTTI__SEND && op->kind != TUTTI__RECV && op->kind != TUTTI__COPY)
        return bad(look, "blocks with sizes by pair can be sent, received and copied only");
    if (op->nblk != 1)
        return bad(look, "blocks with sizes by pair go one at a time");
    if ((trait->reads && op->sbuf != TUTTI__IN) || (trait->writes && op->dbuf != TUTTI__OUT))
        return bad(look, "blocks with sizes by pair go from IN to OUT");
    return 1;
}

static int operands_valid(const look_t *look, const trait_t *trait)
{
    const tutti__sched_t *sched = look->sched;
    const tutti__op_t *op = &sched->ops[look->i];
    uint64_t n = (uint64_t)op->nblk * op->nparts;

    if (op->nblk == 0 || op->nparts == 0)
        return bad(look, "no blocks");
    if (trait->reads && !blocks_valid(look, op->sbuf, op->sblk))
        return 0;
    if (trait->writes && !blocks_valid(look, op->dbuf, op->dblk))
        return 0;
    if (trait->writes && op->dbuf == TUTTI__IN)
        return bad(look, "IN is not to be written");
    if (sched->sizes == TUTTI__BY_PAIR && !pairs_valid(look, trait))
        return 0;
    if (!trait->reads || !trait->writes)
        return 1;
    if (sched->sizes == TUTTI__BY_NUMBER && op->sblk != op->dblk &&
        op->sblk % sched->nblocks != op->dblk % sched->nblocks)
        return bad(look, "source and destination may have different sizes");
    if (op->sbuf == op->dbuf && op->sblk != op->dblk && op->sblk < op->dblk + n &&
        op->dblk < op->sblk + n)
        return bad(look, "source and destination overlap");
    return 1;
}

static int channel_valid(const look_t *look)
{
    const tutti__sched_t *sched = look->sched;
    const tutti__op_t *op = &sched->ops[look->i];
    const tutti__sched_chan_t *chan;

    if (op->chan >= sched->nchans)
        return bad(look, "there is no channel %u", op->chan);
    chan = &sched->chans[op->chan];
    if (look->loop == NULL)
        return bad(look, "channels are allowed in loops only");
    if (chan->is_recv != (op->kind != TUTTI__SEND))
        return bad(look, "the wrong end of a channel");
    if (!chan->is_recv && chan->stream != look->s)
        return bad(look, "a channel of stream %u", chan->stream);
    if (op->nblk > sched->max_nblk)
        return bad(look, "a message has %u blocks at most", sched->max_nblk);
    return 1;
}

/* May a node operation use these blocks? A block of SCRATCH has the length of the map's block with
   the same number modulo nblocks. So a range of SCRATCH must not cross a multiple of nblocks. */
static int fits_map(const look_t *look, unsigned buf, uint32_t blk, uint64_t blocks)
{
    uint32_t nblocks = look->sched->nblocks;

    return buf != TUTTI__SCRATCH || blk % nblocks + blocks <= nblocks;
}

static int node_valid(const look_t *look)
{
    const tutti__op_t *op = &look->sched->ops[look->i];
    int is_one = op->kind == TUTTI__NODE_ALLREDUCE || tutti__sched_has_root(op->kind);
    uint64_t blocks = (uint64_t)op->nblk * op->nparts;

    if (look->s != 0)
        return bad(look, "node operations are allowed in stream 0 only");
    if (op->nparts != 1 && is_one)
        return bad(look, "cannot have parts");
    /* These operations cut all their blocks together into shares, so blocks must be contiguous. */
    if (op->nblk != 1 && is_one &&
        (look->loop != NULL || op->sbuf == TUTTI__SCRATCH || op->dbuf == TUTTI__SCRATCH))
        return bad(look, "works on one block in a loop");
    if (!fits_map(look, op->sbuf, op->sblk, blocks) || !fits_map(look, op->dbuf, op->dblk, blocks))
        return bad(look, "has more blocks of SCRATCH than the call has blocks");
    if (op->arg < 0 || (op->arg > 0 && !tutti__sched_has_root(op->kind)))
        return bad(look, "there is no local rank %d", op->arg);
    if (op->kind == TUTTI__NODE_ALLTOALL && look->sched->sizes != TUTTI__ALL_EQUAL)
        return bad(look, "source and destination may have different sizes");
    return 1;
}

static int wait_valid(const look_t *look)
{
    const tutti__op_t *op = &look->sched->ops[look->i];

    if (op->stream >= look->sched->nstreams || op->stream == look->s)
        return bad(look, "cannot wait for stream %u", op->stream);
    if (op->arg < 1)
        return bad(look, "marks are counted from 1");
    return 1;
}

static int loop_begin_valid(look_t *look)
{
    const tutti__op_t *op = &look->sched->ops[look->i];

    if (look->loop != NULL)
        return bad(look, "loops do not nest");
    look->loop = op;
    look->loop_shift = 0;
    look->loop_marks = 0;
    return 1;
}

static int loop_end_valid(look_t *look)
{
    const tutti__op_t *op = &look->sched->ops[look->i];

    if (look->loop == NULL || op->arg != (int32_t)(look->loop - look->sched->ops))
        return bad(look, "not the end of the open loop");
    if (look->loop->arg != (int32_t)look->loop_shift)
        return bad(look, "its loop has %d more trips, but the largest shift is %u", look->loop->arg,
                   look->loop_shift);
    if (look->loop_marks > 0 && look->stream_marks > 0)
        return bad(look, "a second loop with marks");
    look->stream_marks += look->loop_marks;
    look->loop = NULL;
    return 1;
}

static int op_valid(look_t *look)
{
    const tutti__op_t *op = &look->sched->ops[look->i];
    const trait_t *trait;

    if (op->kind < TUTTI__SEND || op->kind >= TUTTI__NODE_MEET)
        return bad(look, "there is no kind %u", op->kind);
    trait = &traits[op->kind];
    if (op->flags & ~trait->flags)
        return bad(look, "cannot have flags %#x", op->flags);
    if (op->shift != 0 && look->loop == NULL)
        return bad(look, "a shift outside of a loop");
    if (op->shift != 0 && (op->kind == TUTTI__LOOP || op->kind == TUTTI__END_LOOP))
        return bad(look, "a loop cannot be shifted");
    look->loop_shift = TUTTI__MAX(look->loop_shift, op->shift);
    if ((op->flags & TUTTI__MARK) && look->loop != NULL)
        look->loop_marks++;
    if ((trait->reads || trait->writes) && !operands_valid(look, trait))
        return 0;
    if (!trait->node && op->nparts != 1)
        return bad(look, "only node operations have parts");
    if (trait->channel && !channel_valid(look))
        return 0;
    if (trait->node && !node_valid(look))
        return 0;
    switch (op->kind) {
    case TUTTI__WAIT:
        return wait_valid(look);
    case TUTTI__LOOP:
        return loop_begin_valid(look);
    case TUTTI__END_LOOP:
        return loop_end_valid(look);
    default:
        return 1;
    }
}

static int stream_valid(look_t *look)
{
    const tutti__sched_t *sched = look->sched;

    look->loop = NULL;
    look->stream_marks = 0;
    for (look->i = sched->first[look->s]; look->i < sched->first[look->s + 1]; look->i++) {
        if (!op_valid(look))
            return 0;
    }
    if (look->loop != NULL) {
        snprintf(look->why, look->why_bytes, "stream %u ends inside a loop", look->s);
        return 0;
    }
    if (look->stream_marks != sched->marks[look->s]) {
        snprintf(look->why, look->why_bytes, "stream %u has %u marks in a trip, but says %u",
                 look->s, look->stream_marks, sched->marks[look->s]);
        return 0;
    }
    return 1;
}

static int head_valid(const tutti__sched_t *sched, char *why, size_t why_bytes)
{
    int ok = sched->rank < sched->size && sched->nblocks > 0 && sched->max_nblk > 0 &&
             sched->sizes <= TUTTI__BY_PAIR && sched->nstreams <= TUTTI__SCHED_STREAMS &&
             sched->first[0] == 0 && sched->first[TUTTI__SCHED_STREAMS] == sched->nops &&
             sched->nops <= INT32_MAX;

    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++) {
        ok = ok && sched->first[s] <= sched->first[s + 1];
        ok = ok && (s < sched->nstreams || sched->first[s] == sched->nops);
    }
    if (!ok) {
        snprintf(why, why_bytes,
                 "rank %u of %u, %u blocks, %u per message, %u streams: that makes no sense",
                 sched->rank, sched->size, sched->nblocks, sched->max_nblk, sched->nstreams);
    }
    return ok;
}

/* Does an end before end i have the same name? */
static int is_twice(const tutti__sched_t *sched, uint32_t i, char *why, size_t why_bytes)
{
    for (uint32_t k = 0; k < i; k++) {
        if (tutti__chan_key(sched->chans[k]) != tutti__chan_key(sched->chans[i]))
            continue;
        snprintf(why, why_bytes, "channels %u and %u are the same", k, i);
        return 1;
    }
    return 0;
}

/* Each name has a bit in `met`, which is set when the name occurs. Several names may share a bit:
   if a name's bit is set already, a search decides whether the name occurs twice. */
static int chans_valid(const tutti__sched_t *sched, char *why, size_t why_bytes)
{
    uint64_t met[NAME_BITS / 64] = { 0 };

    for (uint32_t i = 0; i < sched->nchans; i++) {
        const tutti__sched_chan_t *chan = &sched->chans[i];
        uint32_t bit = tutti__chan_key(*chan) % NAME_BITS;

        if (chan->peer >= sched->size || chan->peer == sched->rank ||
            chan->stream >= TUTTI__SCHED_STREAMS || chan->is_recv > 1) {
            snprintf(why, why_bytes, "channel %u: no peer %u, or no stream %u of it", i, chan->peer,
                     chan->stream);
            return 0;
        }
        if ((met[bit / 64] >> bit % 64 & 1) && is_twice(sched, i, why, why_bytes))
            return 0;
        met[bit / 64] |= (uint64_t)1 << bit % 64;
    }
    return 1;
}

/* stage_trips is a power of two, so that a mask can replace the remainder of a division. */
static int stage_valid(const tutti__sched_t *sched, char *why, size_t why_bytes)
{
    uint32_t trips = sched->stage_trips;
    int is_none = trips == 0 && sched->stage_first == 0 && sched->stage_blocks == 0;
    uint64_t end = (uint64_t)sched->stage_first + sched->stage_blocks;

    if (is_none || (trips > 0 && (trips & (trips - 1)) == 0 && sched->stage_blocks > 0 &&
                    end <= sched->nblocks))
        return 1;
    snprintf(why, why_bytes, "%u chunks of STAGE blocks %u to %llu: that makes no sense", trips,
             sched->stage_first, (unsigned long long)end);
    return 0;
}

static int scope_valid(const tutti__sched_t *sched, char *why, size_t why_bytes)
{
    if (sched->scope == TUTTI__SCOPE_HOST ||
        (sched->nops == 1 && sched->ops[0].kind >= TUTTI__NODE_ALLREDUCE))
        return 1;
    snprintf(why, why_bytes, "has scope all, so one node operation, but has %u operations",
             sched->nops);
    return 0;
}

int tutti__sched_is_valid(const tutti__sched_t *sched, char *why, size_t why_bytes)
{
    look_t look = { .sched = sched, .why = why, .why_bytes = why_bytes };

    if (!head_valid(sched, why, why_bytes) || !stage_valid(sched, why, why_bytes) ||
        !chans_valid(sched, why, why_bytes) || !scope_valid(sched, why, why_bytes))
        return 0;
    for (look.s = 0; look.s < sched->nstreams; look.s++) {
        if (!stream_valid(&look))
            return 0;
    }
    return 1;
}
