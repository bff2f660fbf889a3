/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The builder: appends operations to streams and joins them into one schedule.
 *
 * tutti__build_end() checks the language's rules with the checker's function
 * tutti__sched_is_valid(). So builder and checker cannot disagree. The builder itself detects only
 * errors that the finished schedule does not show: numbers that do not fit their fields, and flags
 * for an operation that cannot have flags.
 *
 * Each call may fail for lack of memory, but checks after each call would make algorithms
 * unreadable. So the builder keeps its first error, and all later calls do nothing.
 */
#include "sched/build.h"

#include "base/status.h"
#include "sched/chans.h"
#include "sched/check.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define NO_LOOP UINT32_MAX

typedef struct {
    tutti__op_t *ops;
    uint32_t nops, capacity;
    uint32_t loop;       /* index of the open LOOP, or NO_LOOP */
    uint8_t loop_shift;  /* largest shift in this loop */
    uint32_t loop_marks; /* marks in this loop */
} line_t;

struct tutti__build {
    tutti__sched_t *sched;     /* `ops` is NULL until the end of the build */
    tutti__chan_table_t table; /* finds entries of sched->chans */
    line_t lines[TUTTI__SCHED_STREAMS];
    unsigned stream; /* the current stream */
    uint8_t flags;   /* flags and shift of the next operation */
    uint8_t shift;
    int is_on_host;
    tutti_status_t status;
    char why[TUTTI__ERROR_BYTES / 2];
};

/* Keep an error, if it is the first. */
static void TUTTI__PRINTF(3, 4)
    spoil(tutti__build_t *b, tutti_status_t status, const char *fmt, ...)
{
    va_list args;

    if (b->status != TUTTI_OK)
        return;
    b->status = status;
    va_start(args, fmt);
    vsnprintf(b->why, sizeof(b->why), fmt, args);
    va_end(args);
}

static int is_spoilt(const tutti__build_t *b)
{
    return b == NULL || b->status != TUTTI_OK;
}

static int grow(tutti__build_t *b, line_t *line)
{
    uint32_t more = line->capacity == 0 ? 16 : 2 * line->capacity;
    tutti__op_t *ops;

    if (line->nops < line->capacity)
        return 1;
    if (line->capacity > INT32_MAX / 2) { /* an index must fit END_LOOP's arg */
        spoil(b, TUTTI_ERR_UNSUPPORTED, "too many operations");
        return 0;
    }
    ops = realloc(line->ops, more * sizeof(*ops));
    if (ops == NULL) {
        spoil(b, TUTTI_ERR_NO_MEMORY, "no memory for %u operations", more);
        return 0;
    }
    line->ops = ops;
    line->capacity = more;
    return 1;
}

/* Append an operation of this kind to the current stream, with nparts 1 and all other fields 0.
   Returns NULL after an error. */
static tutti__op_t *append(tutti__build_t *b, tutti__op_kind_t kind)
{
    line_t *line;
    tutti__op_t *op;

    if (is_spoilt(b))
        return NULL;
    line = &b->lines[b->stream];
    if (!grow(b, line))
        return NULL;
    op = &line->ops[line->nops++];
    memset(op, 0, sizeof(*op));
    op->kind = (uint8_t)kind;
    op->nparts = 1;
    return op;
}

static void count_mark(line_t *line)
{
    if (line->loop != NO_LOOP)
        line->loop_marks++;
}

/* Append an operation that can have flags and a shift: any kind except LOOP and END_LOOP. */
static tutti__op_t *append_flagged(tutti__build_t *b, tutti__op_kind_t kind)
{
    tutti__op_t *op = append(b, kind);
    line_t *line;

    if (op == NULL)
        return NULL;
    line = &b->lines[b->stream];
    op->flags = b->flags;
    op->shift = b->shift;
    if (op->flags & TUTTI__MARK)
        count_mark(line);
    if (op->shift > line->loop_shift)
        line->loop_shift = op->shift;
    b->flags = 0;
    b->shift = 0;
    return op;
}

/* The index of the channel end with this name. If there is no such end, make it. */
static uint16_t find_chan(tutti__build_t *b, uint32_t peer, unsigned stream, int is_recv)
{
    tutti__sched_chan_t name = { peer, (uint8_t)stream, (uint8_t)is_recv };
    uint16_t index = 0;
    tutti_status_t status;

    if (stream > UINT8_MAX) {
        spoil(b, TUTTI_ERR_INTERNAL, "there is no stream %u", stream);
        return 0;
    }
    status = tutti__chan_table_find(&b->table, b->sched, name, &index);
    if (status != TUTTI_OK)
        spoil(b, status, "no space for more than %u channel ends", b->sched->nchans);
    return index;
}

tutti__build_t *tutti__build_begin(const char *name, uint32_t rank, uint32_t size, uint32_t nblocks,
                                   uint32_t scratch_blocks, uint32_t max_nblk)
{
    tutti__build_t *b = calloc(1, sizeof(*b));
    tutti__sched_t *sched = calloc(1, sizeof(*sched));

    if (b == NULL || sched == NULL) {
        free(sched);
        free(b);
        return NULL;
    }
    sched->name = name;
    sched->rank = rank;
    sched->size = size;
    sched->nblocks = nblocks;
    sched->scratch_blocks = scratch_blocks;
    sched->max_nblk = max_nblk;
    b->sched = sched;
    for (int s = 0; s < TUTTI__SCHED_STREAMS; s++)
        b->lines[s].loop = NO_LOOP;
    return b;
}

void tutti__build_sizes(tutti__build_t *b, tutti__sizes_t sizes)
{
    if (!is_spoilt(b))
        b->sched->sizes = sizes;
}

void tutti__build_stage(tutti__build_t *b, uint32_t first, uint32_t blocks, uint32_t trips)
{
    if (is_spoilt(b))
        return;
    b->sched->stage_first = first;
    b->sched->stage_blocks = blocks;
    b->sched->stage_trips = trips;
}

void tutti__build_on_host(tutti__build_t *b)
{
    if (!is_spoilt(b))
        b->is_on_host = 1;
}

void tutti__build_scope_all(tutti__build_t *b)
{
    if (!is_spoilt(b))
        b->sched->scope = TUTTI__SCOPE_ALL;
}

void tutti__build_stream(tutti__build_t *b, unsigned s)
{
    if (is_spoilt(b))
        return;
    if (s < TUTTI__SCHED_STREAMS)
        b->stream = s;
    else
        spoil(b, TUTTI_ERR_INTERNAL, "there is no stream %u", s);
}

void tutti__build_mark(tutti__build_t *b)
{
    if (!is_spoilt(b))
        b->flags |= TUTTI__MARK;
}

void tutti__build_finish(tutti__build_t *b)
{
    if (!is_spoilt(b))
        b->flags |= TUTTI__FINISH;
}

void tutti__build_left(tutti__build_t *b)
{
    if (!is_spoilt(b))
        b->flags |= TUTTI__LEFT;
}

void tutti__build_shift(tutti__build_t *b, unsigned shift)
{
    if (is_spoilt(b))
        return;
    if (b->shift + shift <= UINT8_MAX)
        b->shift = (uint8_t)(b->shift + shift);
    else
        spoil(b, TUTTI_ERR_UNSUPPORTED, "a shift by %u", b->shift + shift);
}

void tutti__build_mark_last(tutti__build_t *b)
{
    line_t *line;

    if (is_spoilt(b))
        return;
    line = &b->lines[b->stream];
    if (line->nops == 0) {
        spoil(b, TUTTI_ERR_INTERNAL, "stream %u has no operation to mark", b->stream);
        return;
    }
    if (!(line->ops[line->nops - 1].flags & TUTTI__MARK))
        count_mark(line);
    line->ops[line->nops - 1].flags |= TUTTI__MARK;
}

void tutti__build_loop(tutti__build_t *b)
{
    line_t *line;

    if (append(b, TUTTI__LOOP) == NULL)
        return;
    line = &b->lines[b->stream];
    if (line->loop != NO_LOOP || b->flags != 0 || b->shift != 0)
        spoil(b, TUTTI_ERR_INTERNAL, "a loop in a loop, or flags before a loop");
    line->loop = line->nops - 1;
    line->loop_shift = 0;
    line->loop_marks = 0;
}

void tutti__build_end_loop(tutti__build_t *b)
{
    tutti__op_t *op = append(b, TUTTI__END_LOOP);
    line_t *line;

    if (op == NULL)
        return;
    line = &b->lines[b->stream];
    if (line->loop == NO_LOOP || b->flags != 0 || b->shift != 0) {
        spoil(b, TUTTI_ERR_INTERNAL, "END_LOOP without a LOOP, or flags before END_LOOP");
        return;
    }
    op->arg = (int32_t)line->loop; /* index in the stream; join() adds the stream's first index */
    line->ops[line->loop].arg = line->loop_shift;
    if (line->loop_marks > 0)
        b->sched->marks[b->stream] = line->loop_marks;
    line->loop = NO_LOOP;
}

void tutti__build_send(tutti__build_t *b, uint32_t peer, tutti__at_t src, uint32_t nblk)
{
    tutti__op_t *op = append_flagged(b, TUTTI__SEND);

    if (op == NULL)
        return;
    op->chan = find_chan(b, peer, b->stream, 0);
    op->sbuf = (uint8_t)src.buf;
    op->sblk = src.blk;
    op->nblk = nblk;
}

void tutti__build_recv(tutti__build_t *b, uint32_t peer, unsigned from_stream, tutti__at_t dst,
                       uint32_t nblk)
{
    tutti__op_t *op = append_flagged(b, TUTTI__RECV);

    if (op == NULL)
        return;
    op->chan = find_chan(b, peer, from_stream, 1);
    op->dbuf = (uint8_t)dst.buf;
    op->dblk = dst.blk;
    op->nblk = nblk;
}

static tutti__op_t *append_move(tutti__build_t *b, tutti__op_kind_t kind, tutti__at_t src,
                                tutti__at_t dst, uint32_t nblk)
{
    tutti__op_t *op = append_flagged(b, kind);

    if (op == NULL)
        return NULL;
    op->sbuf = (uint8_t)src.buf;
    op->sblk = src.blk;
    op->dbuf = (uint8_t)dst.buf;
    op->dblk = dst.blk;
    op->nblk = nblk;
    return op;
}

void tutti__build_recv_reduce(tutti__build_t *b, uint32_t peer, unsigned from_stream,
                              tutti__at_t src, tutti__at_t dst, uint32_t nblk)
{
    tutti__op_t *op = append_move(b, TUTTI__RECV_REDUCE, src, dst, nblk);

    if (op != NULL)
        op->chan = find_chan(b, peer, from_stream, 1);
}

void tutti__build_copy(tutti__build_t *b, tutti__at_t src, tutti__at_t dst, uint32_t nblk)
{
    append_move(b, TUTTI__COPY, src, dst, nblk);
}

void tutti__build_reduce(tutti__build_t *b, tutti__at_t src, tutti__at_t dst, uint32_t nblk)
{
    append_move(b, TUTTI__REDUCE, src, dst, nblk);
}

void tutti__build_wait(tutti__build_t *b, unsigned stream, int32_t marks)
{
    tutti__op_t *op = append_flagged(b, TUTTI__WAIT);

    if (op == NULL)
        return;
    if (stream >= TUTTI__SCHED_STREAMS)
        spoil(b, TUTTI_ERR_INTERNAL, "there is no stream %u to wait for", stream);
    op->stream = (uint8_t)stream;
    op->arg = marks;
}

void tutti__build_node(tutti__build_t *b, tutti__op_kind_t kind, tutti__at_t src, tutti__at_t dst,
                       uint32_t nblk, uint32_t nparts, int32_t root)
{
    tutti__op_t *op = append_move(b, kind, src, dst, nblk);

    if (op == NULL)
        return;
    if (nparts > UINT16_MAX)
        spoil(b, TUTTI_ERR_UNSUPPORTED, "%u parts of a node operation", nparts);
    op->nparts = (uint16_t)nparts;
    if (tutti__sched_has_root(kind))
        op->arg = root;
}

/* Only stream 0 has operations: use its array as the array of the schedule. */
static void take_only_line(tutti__build_t *b)
{
    tutti__sched_t *sched = b->sched;
    line_t *line = &b->lines[0];
    tutti__op_t *ops = realloc(line->ops, line->nops * sizeof(*ops));

    if (line->loop != NO_LOOP)
        spoil(b, TUTTI_ERR_INTERNAL, "stream 0 ends inside a loop");
    sched->ops = ops != NULL ? ops : line->ops; /* if shrinking fails, keep the longer array */
    line->ops = NULL;
    sched->nops = line->nops;
    sched->nstreams = 1;
    for (uint32_t s = 1; s <= TUTTI__SCHED_STREAMS; s++)
        sched->first[s] = sched->nops;
}

/* Put all streams one after another into one array. */
static void join(tutti__build_t *b)
{
    tutti__sched_t *sched = b->sched;
    uint64_t nops = 0;

    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++)
        nops += b->lines[s].nops;
    if (nops > INT32_MAX) {
        spoil(b, TUTTI_ERR_UNSUPPORTED, "too many operations");
        return;
    }
    if (nops > 0 && nops == b->lines[0].nops) { /* only stream 0 has operations */
        take_only_line(b);
        return;
    }
    sched->ops = calloc(nops + 1, sizeof(*sched->ops)); /* + 1, so that the size is never 0 */
    if (sched->ops == NULL) {
        spoil(b, TUTTI_ERR_NO_MEMORY, "no memory for %u operations", (unsigned)nops);
        return;
    }
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++) {
        const line_t *line = &b->lines[s];
        tutti__op_t *ops = sched->ops + sched->nops;

        if (line->loop != NO_LOOP)
            spoil(b, TUTTI_ERR_INTERNAL, "stream %u ends inside a loop", s);
        if (line->nops > 0)
            memcpy(ops, line->ops, line->nops * sizeof(*ops));
        for (uint32_t i = 0; i < line->nops; i++) {
            if (ops[i].kind == TUTTI__END_LOOP)
                ops[i].arg += (int32_t)sched->nops;
        }
        sched->first[s] = sched->nops;
        sched->nops += line->nops;
        if (line->nops > 0)
            sched->nstreams = s + 1;
    }
    sched->first[TUTTI__SCHED_STREAMS] = sched->nops;
}

tutti_status_t tutti__build_end(tutti__build_t *b, tutti__sched_t **ret_sched)
{
    tutti_status_t status;

    if (b == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory to build a schedule");

    if (b->flags != 0 || b->shift != 0)
        spoil(b, TUTTI_ERR_INTERNAL, "flags without an operation");
    if (b->status == TUTTI_OK)
        join(b);
    if (b->status == TUTTI_OK && !tutti__chans_sort(b->sched))
        spoil(b, TUTTI_ERR_NO_MEMORY, "no memory for %u channel ends", b->sched->nchans);
    if (b->status == TUTTI_OK && !tutti__sched_is_valid(b->sched, b->why, sizeof(b->why)))
        b->status = TUTTI_ERR_INTERNAL;

    status = b->status;
    if (status == TUTTI_OK) {
        b->sched->on_device = !b->is_on_host && tutti__sched_suits_device(b->sched);
        *ret_sched = b->sched;
        b->sched = NULL;
    } else {
        tutti__fail(status, "schedule %s of rank %u: %s", b->sched->name, b->sched->rank, b->why);
    }
    for (int s = 0; s < TUTTI__SCHED_STREAMS; s++)
        free(b->lines[s].ops);
    tutti__chan_table_clear(&b->table);
    tutti__sched_free(b->sched);
    free(b);
    return status;
}
