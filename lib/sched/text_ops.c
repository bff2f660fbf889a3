/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the operations in a schedule's text. text.c has the grammar.
 */
#include "sched/text.h"

#include "base/compiler.h"

#include <stdlib.h>

typedef struct {
    tutti__at_t at;
    uint32_t n;
} place_t;

/* ---- operands ---- */

static int place(tutti__words_t *w, place_t *ret_place)
{
    unsigned buf = 0;
    uint32_t blk, upto;

    while (buf < TUTTI__BUFS && !tutti__words_take(w, tutti__sched_buf_name(buf)))
        buf++;
    if (buf == TUTTI__BUFS)
        return tutti__words_expected(w, "IN, OUT, SCRATCH or STAGE");
    if (!tutti__words_number(w, "[", &blk))
        return 0;
    *ret_place = (place_t){ { (tutti__buf_t)buf, blk }, 1 };
    if (tutti__words_take(w, ":")) {
        if (!tutti__words_number(w, "", &upto))
            return 0;
        if (upto <= blk)
            return tutti__words_bad(w, 0, "no blocks from %u up to %u", blk, upto);
        ret_place->n = upto - blk;
    }
    return tutti__words_need(w, "]");
}

static int move(tutti__words_t *w, place_t *ret_src, place_t *ret_dst)
{
    if (!place(w, ret_src) || !tutti__words_need(w, "->") || !place(w, ret_dst))
        return 0;
    if (ret_src->n != ret_dst->n)
        return tutti__words_bad(w, 0, "%u blocks to %u", ret_src->n, ret_dst->n);
    return 1;
}

/* "to rank R", "from rank R" */
static int peer(tutti__text_t *in, const char *phrase, uint32_t *ret_rank)
{
    tutti__words_t *w = &in->words;

    if (!tutti__words_number(w, phrase, ret_rank))
        return 0;
    if (*ret_rank >= in->size)
        return tutti__words_bad(w, 0, "there is no rank %u of %u", *ret_rank, in->size);
    if (*ret_rank == in->rank)
        return tutti__words_bad(w, 0, "\"%s %u\", but this is rank %u itself", phrase, *ret_rank,
                                in->rank);
    return 1;
}

/* "from rank R [stream S]:" */
static int sender(tutti__text_t *in, uint32_t *ret_rank, uint32_t *ret_stream)
{
    tutti__words_t *w = &in->words;

    *ret_stream = 0;
    if (!peer(in, "from rank", ret_rank))
        return 0;
    if (tutti__words_take(w, "stream") && !tutti__words_number(w, "", ret_stream))
        return 0;
    if (*ret_stream >= TUTTI__SCHED_STREAMS)
        return tutti__words_bad(w, 0, "there is no stream %u", *ret_stream);
    return tutti__words_need(w, ":");
}

/* Read flags, as in ", finish, mark", at the end of a line. The builder needs them first. */
static int flags(tutti__text_t *in)
{
    tutti__words_t *w = &in->words;
    uint32_t shift;

    while (tutti__words_take(w, ",")) {
        if (tutti__words_take(w, "finish")) {
            tutti__build_finish(in->b);
        } else if (tutti__words_take(w, "left")) {
            tutti__build_left(in->b);
        } else if (tutti__words_take(w, "mark")) {
            tutti__build_mark(in->b);
        } else if (tutti__words_take(w, "shift")) {
            if (!tutti__words_number(w, "", &shift))
                return 0;
            if (shift > UINT8_MAX)
                return tutti__words_bad(w, 0, "a shift by %u, but %u is the most", shift,
                                        UINT8_MAX);
            tutti__build_shift(in->b, shift);
            in->most_shift = TUTTI__MAX(in->most_shift, shift);
        } else {
            return tutti__words_expected(w, "finish, left, mark or shift");
        }
    }
    return tutti__words_end(w);
}

/* ---- operations: the text after their names ---- */

static int send(tutti__text_t *in)
{
    place_t src;
    uint32_t to;

    if (!place(&in->words, &src) || !peer(in, "to rank", &to) || !flags(in))
        return 0;
    tutti__build_send(in->b, to, src.at, src.n);
    return 1;
}

static int recv(tutti__text_t *in)
{
    place_t dst;
    uint32_t from, s;

    if (!sender(in, &from, &s) || !place(&in->words, &dst) || !flags(in))
        return 0;
    tutti__build_recv(in->b, from, s, dst.at, dst.n);
    return 1;
}

static int recv_reduce(tutti__text_t *in)
{
    place_t src, dst;
    uint32_t from, s;

    if (!sender(in, &from, &s) || !move(&in->words, &src, &dst) || !flags(in))
        return 0;
    tutti__build_recv_reduce(in->b, from, s, src.at, dst.at, dst.n);
    return 1;
}

static int copy(tutti__text_t *in)
{
    place_t src, dst;

    if (!move(&in->words, &src, &dst) || !flags(in))
        return 0;
    tutti__build_copy(in->b, src.at, dst.at, dst.n);
    return 1;
}

static int reduce(tutti__text_t *in)
{
    place_t src, dst;

    if (!move(&in->words, &src, &dst) || !flags(in))
        return 0;
    tutti__build_reduce(in->b, src.at, dst.at, dst.n);
    return 1;
}

static int wait(tutti__text_t *in)
{
    tutti__words_t *w = &in->words;
    uint32_t s, mark;

    if (!tutti__words_number(w, "for stream", &s) || !tutti__words_number(w, ": mark", &mark))
        return 0;
    if (mark > INT32_MAX)
        return tutti__words_bad(w, 0, "there is no mark %u", mark);
    if (s >= TUTTI__SCHED_STREAMS)
        return tutti__words_bad(w, 0, "there is no stream %u", s);
    if (!flags(in))
        return 0;
    tutti__build_wait(in->b, s, (int32_t)mark);
    return 1;
}

static int loop(tutti__text_t *in)
{
    tutti__words_t *w = &in->words;

    in->said_trips = TUTTI__TEXT_NOT_SAID;
    in->most_shift = 0;
    if (tutti__words_take(w, "with") &&
        (!tutti__words_number(w, "", &in->said_trips) || !tutti__words_need(w, "more trips")))
        return 0;
    if (!tutti__words_end(w))
        return 0;
    if (in->loop_line[in->stream] > 0)
        return tutti__words_bad(w, 0, "loops do not nest, and that of line %u has not ended",
                                in->loop_line[in->stream]);
    in->loop_line[in->stream] = w->line;
    tutti__build_loop(in->b);
    return 1;
}

static int end_loop(tutti__text_t *in)
{
    if (!tutti__words_end(&in->words))
        return 0;
    if (in->said_trips != TUTTI__TEXT_NOT_SAID && in->said_trips != in->most_shift)
        return tutti__words_bad(&in->words, 0,
                                "the loop has %u more trips, but the largest shift in it is %u",
                                in->said_trips, in->most_shift);
    if (in->loop_line[in->stream] == 0)
        return tutti__words_bad(&in->words, 0, "END_LOOP without a LOOP");
    in->loop_line[in->stream] = 0;
    tutti__build_end_loop(in->b);
    return 1;
}

static int node(tutti__text_t *in, tutti__op_kind_t kind)
{
    tutti__words_t *w = &in->words;
    uint32_t nparts = 1, root = 0;
    place_t src, dst;

    if (!move(w, &src, &dst))
        return 0;
    if (tutti__words_take(w, "in") &&
        (!tutti__words_number(w, "", &nparts) || !tutti__words_need(w, "parts")))
        return 0;
    if (tutti__sched_has_root(kind) && !tutti__words_number(w, "of local rank", &root))
        return 0;
    if (nparts == 0 || src.n % nparts != 0 || root > INT32_MAX)
        return tutti__words_bad(w, 0, "%u blocks in %u parts, local rank %u: that makes no sense",
                                src.n, nparts, root);
    if (!flags(in))
        return 0;
    tutti__build_node(in->b, kind, src.at, dst.at, src.n / nparts, nparts, (int32_t)root);
    return 1;
}

static int note_origin(tutti__text_t *in)
{
    if (in->norigins == in->origins_capacity) {
        uint32_t more = 2 * in->origins_capacity + 16;
        tutti__text_origin_t *origins = realloc(in->origins, more * sizeof(*origins));

        if (origins == NULL) {
            in->words.status = TUTTI_ERR_NO_MEMORY;
            return 0;
        }
        in->origins = origins;
        in->origins_capacity = more;
    }
    in->origins[in->norigins++] = (tutti__text_origin_t){ in->stream, in->words.line };
    return 1;
}

int tutti__text_operation(tutti__text_t *in)
{
    static int (*const reads[])(tutti__text_t * in) = {
        [TUTTI__SEND] = send, [TUTTI__RECV] = recv,         [TUTTI__RECV_REDUCE] = recv_reduce,
        [TUTTI__COPY] = copy, [TUTTI__REDUCE] = reduce,     [TUTTI__WAIT] = wait,
        [TUTTI__LOOP] = loop, [TUTTI__END_LOOP] = end_loop,
    };
    uint32_t ignored;

    if (tutti__words_at_number(&in->words) && !tutti__words_number(&in->words, "", &ignored))
        return 0;
    if (!note_origin(in))
        return 0;
    for (unsigned kind = TUTTI__SEND; kind < TUTTI__NODE_MEET; kind++) {
        if (!tutti__words_take(&in->words, tutti__sched_kind_name(kind)))
            continue;
        return kind < sizeof(reads) / sizeof(*reads) ? reads[kind](in)
                                                     : node(in, (tutti__op_kind_t)kind);
    }
    return tutti__words_expected(&in->words, "an operation");
}
