/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules as text, for users and for messages.
 *
 *     RECV_REDUCE from rank 3: IN[2] -> OUT[2], finish
 *
 * OUT[2:5] are blocks 2 to 4. These words may follow the operands:
 *
 *     shift 1   the operation works on the chunk of the previous trip
 *     mark      it makes a mark for WAIT
 *     finish    AVG divides here
 *     left      the message or source is the left operand
 *
 * text.c has the grammar.
 */
#include "sched/sched.h"

#include "base/compiler.h"

#include <stdarg.h>

const char *tutti__sched_kind_name(unsigned kind)
{
    static const char *const names[] = {
        [TUTTI__SEND] = "SEND",
        [TUTTI__RECV] = "RECV",
        [TUTTI__RECV_REDUCE] = "RECV_REDUCE",
        [TUTTI__COPY] = "COPY",
        [TUTTI__REDUCE] = "REDUCE",
        [TUTTI__WAIT] = "WAIT",
        [TUTTI__LOOP] = "LOOP",
        [TUTTI__END_LOOP] = "END_LOOP",
        [TUTTI__NODE_ALLREDUCE] = "NODE_ALLREDUCE",
        [TUTTI__NODE_REDUCE_SCATTER] = "NODE_REDUCE_SCATTER",
        [TUTTI__NODE_ALLGATHER] = "NODE_ALLGATHER",
        [TUTTI__NODE_BCAST] = "NODE_BCAST",
        [TUTTI__NODE_REDUCE] = "NODE_REDUCE",
        [TUTTI__NODE_ALLTOALL] = "NODE_ALLTOALL",
    };

    if (kind < sizeof(names) / sizeof(names[0]) && names[kind] != NULL)
        return names[kind];
    return "?";
}

const char *tutti__sched_buf_name(unsigned buf)
{
    static const char *const names[] = { "IN", "OUT", "SCRATCH", "STAGE" };

    return buf < TUTTI__BUFS ? names[buf] : "?";
}

/* A text buffer; text beyond its end is cut off. */
typedef struct {
    char *text;
    size_t bytes, used;
} paper_t;

static void TUTTI__PRINTF(2, 3) put(paper_t *paper, const char *fmt, ...)
{
    va_list args;
    int n;

    if (paper->used >= paper->bytes)
        return;
    va_start(args, fmt);
    n = vsnprintf(paper->text + paper->used, paper->bytes - paper->used, fmt, args);
    va_end(args);
    if (n > 0)
        paper->used += (size_t)n;
}

static void put_blocks(paper_t *paper, unsigned buf, uint32_t blk, uint64_t n)
{
    if (n == 1)
        put(paper, "%s[%u]", tutti__sched_buf_name(buf), blk);
    else
        put(paper, "%s[%u:%llu]", tutti__sched_buf_name(buf), blk,
            (unsigned long long)blk + (unsigned long long)n);
}

static void put_move(paper_t *paper, const tutti__op_t *op)
{
    uint64_t n = (uint64_t)op->nblk * op->nparts;

    put_blocks(paper, op->sbuf, op->sblk, n);
    put(paper, " -> ");
    put_blocks(paper, op->dbuf, op->dblk, n);
    if (op->nparts != 1)
        put(paper, " in %u parts", op->nparts);
}

static void put_channel(paper_t *paper, const tutti__sched_t *sched, const tutti__op_t *op)
{
    const tutti__sched_chan_t *chan;

    if (op->chan >= sched->nchans) {
        put(paper, "channel %u", op->chan);
        return;
    }
    chan = &sched->chans[op->chan];
    put(paper, "%s rank %u", chan->is_recv ? "from" : "to", chan->peer);
    if (chan->is_recv && chan->stream != 0)
        put(paper, " stream %u", chan->stream);
}

static void put_operands(paper_t *paper, const tutti__sched_t *sched, const tutti__op_t *op)
{
    switch (op->kind) {
    case TUTTI__SEND:
        put_blocks(paper, op->sbuf, op->sblk, op->nblk);
        put(paper, " ");
        put_channel(paper, sched, op);
        break;
    case TUTTI__RECV:
        put_channel(paper, sched, op);
        put(paper, ": ");
        put_blocks(paper, op->dbuf, op->dblk, op->nblk);
        break;
    case TUTTI__RECV_REDUCE:
        put_channel(paper, sched, op);
        put(paper, ": ");
        put_move(paper, op);
        break;
    case TUTTI__WAIT:
        put(paper, "for stream %u: mark %d", op->stream, op->arg);
        break;
    case TUTTI__NODE_BCAST:
    case TUTTI__NODE_REDUCE:
        put_move(paper, op);
        put(paper, " of local rank %d", op->arg);
        break;
    default:
        put_move(paper, op);
        break;
    }
}

const char *tutti__sched_op_text(const tutti__sched_t *sched, const tutti__op_t *op, char *buffer,
                                 size_t bytes)
{
    paper_t paper = { buffer, bytes, 0 };

    put(&paper, "%s", tutti__sched_kind_name(op->kind));
    if (op->kind == TUTTI__LOOP) {
        if (op->arg != 0)
            put(&paper, " with %d more trips", op->arg);
    } else if (op->kind != TUTTI__END_LOOP) {
        put(&paper, " ");
        put_operands(&paper, sched, op);
    }
    if (op->flags & TUTTI__LEFT)
        put(&paper, ", left");
    if (op->flags & TUTTI__FINISH)
        put(&paper, ", finish");
    if (op->flags & TUTTI__MARK)
        put(&paper, ", mark");
    if (op->shift != 0)
        put(&paper, ", shift %u", op->shift);
    return buffer;
}

/* Print a name with `_` for `:` (ends a name), `#` (begins a comment) and control characters. */
static void print_name(const char *name, FILE *file)
{
    for (; *name != '\0'; name++)
        fputc(*name == ':' || *name == '#' || (unsigned char)*name < ' ' ? '_' : *name, file);
}

void tutti__sched_print(const tutti__sched_t *sched, FILE *file)
{
    static const char *const sizes[] = { "", ", sizes all equal", ", sizes by pair" };
    char text[160];

    print_name(sched->name, file);
    fprintf(file, ": rank %u of %u, blocks %u, scratch %u, blocks per message %u%s", sched->rank,
            sched->size, sched->nblocks, sched->scratch_blocks, sched->max_nblk,
            sched->sizes <= TUTTI__BY_PAIR ? sizes[sched->sizes] : "");
    if (sched->stage_trips > 0)
        fprintf(file, ", stage %u from %u in %u chunks", sched->stage_blocks, sched->stage_first,
                sched->stage_trips);
    fprintf(file, "%s\n", sched->scope == TUTTI__SCOPE_ALL ? ", scope all" : "");
    for (uint32_t s = 0; s < sched->nstreams; s++) {
        int depth = 0;

        fprintf(file, "stream %u, marks per trip %u\n", s, sched->marks[s]);
        for (uint32_t i = sched->first[s]; i < sched->first[s + 1]; i++) {
            const tutti__op_t *op = &sched->ops[i];

            if (op->kind == TUTTI__END_LOOP && depth > 0)
                depth--;
            tutti__sched_op_text(sched, op, text, sizeof(text));
            fprintf(file, "%6u  %*s%s\n", i, 4 * depth, "", text);
            if (op->kind == TUTTI__LOOP)
                depth++;
        }
    }
}
