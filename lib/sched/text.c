/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules read back from text: what print.c writes, or what a person wrote.
 *
 *      # the schedules of ranks 0, 1, ... one after another
 *      pair: rank 0 of 2, blocks 1, scratch 0, blocks per message 1
 *      stream 0
 *          LOOP
 *              SEND IN[0] to rank 1
 *              RECV_REDUCE from rank 1: IN[0] -> OUT[0], finish
 *          END_LOOP
 *
 *      pair: rank 1 of 2, ...
 *
 * A line is one of these; `#` begins a comment, [ ] may be left out, the spaces are free:
 *
 *      NAME: rank R of N, blocks N, scratch N, blocks per message N [, sizes SIZES]
 *          [, stage N from N in N chunks]      in the same line
 *      stream S [, marks per trip N]
 *      [N] SEND PLACE to rank R
 *      [N] RECV from rank R [stream S]: PLACE
 *      [N] RECV_REDUCE from rank R [stream S]: PLACE -> PLACE
 *      [N] COPY PLACE -> PLACE          also REDUCE
 *      [N] WAIT for stream S: mark N
 *      [N] LOOP [with N more trips]     ... END_LOOP
 *      [N] NODE_ALLREDUCE PLACE -> PLACE [in N parts] [of local rank N]      and the other NODE_
 *
 * SIZES is `by number`, `all equal` or `by pair`. A PLACE is BUFFER[block] or BUFFER[from:upto].
 * Operations may end with `, finish` `, left` `, mark` `, shift N`. Their numbers are for people
 * and not looked at; what else follows from the rest (marks per trip, more trips) must be right
 * where it is said.
 *
 * The builder makes the schedules, so there is no second opinion on what they look like.
 */
#include "sched/build.h"

#include "base/compiler.h"
#include "base/status.h"
#include "sched/words.h"

#include <stdlib.h>
#include <string.h>

#define NOT_SAID UINT32_MAX

typedef struct {
    uint32_t stream, line;
} origin_t;

typedef struct {
    tutti__words_t words;
    uint32_t size;
    uint32_t nscheds; /* finished ones */
    tutti__sched_t **scheds;

    /* the schedule in the making */
    tutti__build_t *b; /* NULL: none */
    uint32_t head_line;
    uint32_t said_marks[TUTTI__SCHED_STREAMS], marks_line[TUTTI__SCHED_STREAMS];
    uint32_t said_trips; /* of the latest loop */
    uint32_t most_shift; /* in it */
    uint32_t rank, stream;
    uint32_t loop_line[TUTTI__SCHED_STREAMS]; /* of its open loop; 0: none */
    /* Where its operations stand, in the order of the text. */
    origin_t *origins;
    uint32_t norigins, origins_room;
} reader_t;

typedef struct {
    tutti__at_t at;
    uint32_t n;
} place_t;

/* ---- heads ---- */

static int sizes(reader_t *in)
{
    tutti__words_t *w = &in->words;

    if (tutti__words_take(w, "all")) {
        tutti__build_sizes(in->b, TUTTI__ALL_EQUAL);
        return tutti__words_need(w, "equal");
    }
    if (!tutti__words_need(w, "by"))
        return 0;
    if (tutti__words_take(w, "number"))
        return 1;
    tutti__build_sizes(in->b, TUTTI__BY_PAIR);
    return tutti__words_need(w, "pair");
}

static int stage(reader_t *in)
{
    tutti__words_t *w = &in->words;
    uint32_t first, blocks, trips;

    if (!tutti__words_number(w, "", &blocks) || !tutti__words_number(w, "from", &first) ||
        !tutti__words_number(w, "in", &trips) || !tutti__words_need(w, "chunks"))
        return 0;
    tutti__build_stage(in->b, first, blocks, trips);
    return 1;
}

/* What may be left out, in this order. */
static int extras(reader_t *in)
{
    tutti__words_t *w = &in->words;

    if (!tutti__words_take(w, ","))
        return 1;
    if (tutti__words_take(w, "stage"))
        return stage(in);
    if (!tutti__words_need(w, "sizes") || !sizes(in))
        return 0;
    return !tutti__words_take(w, ",") || (tutti__words_need(w, "stage") && stage(in));
}

/* The line of operation i of the schedule, which has one stream behind the other; the text need
   not. The head's if there is none. */
static uint32_t line_of(const reader_t *in, uint32_t i)
{
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++) {
        for (uint32_t k = 0; k < in->norigins; k++) {
            if (in->origins[k].stream == s && i-- == 0)
                return in->origins[k].line;
        }
    }
    return in->head_line;
}

/* A rule of the language is broken: say which, without what everyone knows here. */
static int rule_broken(reader_t *in, uint32_t rank)
{
    char head[TUTTI__ERROR_BYTES], why[TUTTI__ERROR_BYTES];
    int n = snprintf(head, sizeof(head), "schedule %s of rank %u: ", in->words.name, rank);
    uint32_t s, op, line = in->head_line;

    snprintf(why, sizeof(why), "%s", tutti_last_error());
    if (n < 0 || strncmp(why, head, (size_t)n) != 0)
        n = 0;
    if (sscanf(why + n, "stream %u, operation %u (", &s, &op) == 2)
        line = line_of(in, op);
    return tutti__words_bad(&in->words, line, "rank %u: %s", rank, why + n);
}

static int note_origin(reader_t *in)
{
    if (in->norigins == in->origins_room) {
        uint32_t more = 2 * in->origins_room + 16;
        origin_t *origins = realloc(in->origins, more * sizeof(*origins));

        if (origins == NULL) {
            in->words.status = TUTTI_ERR_NO_MEMORY;
            return 0;
        }
        in->origins = origins;
        in->origins_room = more;
    }
    in->origins[in->norigins++] = (origin_t){ in->stream, in->words.line };
    return 1;
}

/* Finish the schedule in the making, if there is one. */
static int finish(reader_t *in)
{
    tutti__sched_t *sched = NULL;
    tutti_status_t status;

    if (in->b == NULL)
        return 1;
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++) {
        if (in->loop_line[s] > 0)
            return tutti__words_bad(&in->words, in->loop_line[s], "rank %u: this LOOP has no end",
                                    in->rank);
    }
    status = tutti__build_end(in->b, &sched);
    in->b = NULL;
    if (status == TUTTI_ERR_NO_MEMORY) {
        in->words.status = status;
        return 0;
    }
    if (status != TUTTI_OK)
        return rule_broken(in, in->nscheds);
    in->scheds[in->nscheds++] = sched;
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++) {
        if (in->said_marks[s] != NOT_SAID && in->said_marks[s] != sched->marks[s])
            return tutti__words_bad(&in->words, in->marks_line[s],
                                    "stream %u has %u marks in a trip, not %u", s, sched->marks[s],
                                    in->said_marks[s]);
    }
    return 1;
}

static int head(reader_t *in)
{
    tutti__words_t *w = &in->words;
    uint32_t rank, size, nblocks, scratch, message;

    if (!finish(in) || !tutti__words_number(w, "rank", &rank) ||
        !tutti__words_number(w, "of", &size) || !tutti__words_number(w, ", blocks", &nblocks) ||
        !tutti__words_number(w, ", scratch", &scratch) ||
        !tutti__words_number(w, ", blocks per message", &message))
        return 0;
    if (size != in->size)
        return tutti__words_bad(w, 0, "%u ranks, but there are %u", size, in->size);
    if (rank != in->nscheds || rank >= size)
        return tutti__words_bad(w, 0, "rank %u, where rank %u of %u is expected", rank, in->nscheds,
                                in->size);
    in->head_line = w->line;
    in->rank = rank;
    in->stream = 0;
    in->norigins = 0;
    memset(in->loop_line, 0, sizeof(in->loop_line));
    in->said_trips = NOT_SAID;
    memset(in->said_marks, 0xff, sizeof(in->said_marks));
    in->b = tutti__build_begin(w->name, rank, size, nblocks, scratch, message);
    if (in->b == NULL) {
        w->status = TUTTI_ERR_NO_MEMORY;
        return 0;
    }
    return extras(in) && tutti__words_end(w);
}

static int stream(reader_t *in)
{
    tutti__words_t *w = &in->words;
    uint32_t s;

    if (!tutti__words_number(w, "", &s))
        return 0;
    if (s >= TUTTI__SCHED_STREAMS)
        return tutti__words_bad(w, 0, "there is no stream %u", s);
    tutti__build_stream(in->b, s);
    in->stream = s;
    in->said_trips = NOT_SAID;
    in->marks_line[s] = w->line;
    if (tutti__words_take(w, ",") && !tutti__words_number(w, "marks per trip", &in->said_marks[s]))
        return 0;
    return tutti__words_end(w);
}

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
static int peer(reader_t *in, const char *phrase, uint32_t *ret_rank)
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
static int sender(reader_t *in, uint32_t *ret_rank, uint32_t *ret_stream)
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

/* ", finish, mark" at the end of the line. The builder wants them before the operation. */
static int flags(reader_t *in)
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

/* ---- operations: what comes behind their names ---- */

static int send(reader_t *in)
{
    place_t src;
    uint32_t to;

    if (!place(&in->words, &src) || !peer(in, "to rank", &to) || !flags(in))
        return 0;
    tutti__build_send(in->b, to, src.at, src.n);
    return 1;
}

static int recv(reader_t *in)
{
    place_t dst;
    uint32_t from, s;

    if (!sender(in, &from, &s) || !place(&in->words, &dst) || !flags(in))
        return 0;
    tutti__build_recv(in->b, from, s, dst.at, dst.n);
    return 1;
}

static int recv_reduce(reader_t *in)
{
    place_t src, dst;
    uint32_t from, s;

    if (!sender(in, &from, &s) || !move(&in->words, &src, &dst) || !flags(in))
        return 0;
    tutti__build_recv_reduce(in->b, from, s, src.at, dst.at, dst.n);
    return 1;
}

static int copy(reader_t *in)
{
    place_t src, dst;

    if (!move(&in->words, &src, &dst) || !flags(in))
        return 0;
    tutti__build_copy(in->b, src.at, dst.at, dst.n);
    return 1;
}

static int reduce(reader_t *in)
{
    place_t src, dst;

    if (!move(&in->words, &src, &dst) || !flags(in))
        return 0;
    tutti__build_reduce(in->b, src.at, dst.at, dst.n);
    return 1;
}

static int wait(reader_t *in)
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

static int loop(reader_t *in)
{
    tutti__words_t *w = &in->words;

    in->said_trips = NOT_SAID;
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

static int end_loop(reader_t *in)
{
    if (!tutti__words_end(&in->words))
        return 0;
    if (in->said_trips != NOT_SAID && in->said_trips != in->most_shift)
        return tutti__words_bad(&in->words, 0,
                                "the loop has %u more trips, but the largest shift in it is %u",
                                in->said_trips, in->most_shift);
    if (in->loop_line[in->stream] == 0)
        return tutti__words_bad(&in->words, 0, "the end of no loop");
    in->loop_line[in->stream] = 0;
    tutti__build_end_loop(in->b);
    return 1;
}

static int node(reader_t *in, tutti__op_kind_t kind)
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

static int operation(reader_t *in)
{
    static int (*const reads[])(reader_t * in) = {
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

/* ---- the whole ---- */

/* What is for device memory on some ranks only is for none. */
static void agree_on_device(const reader_t *in)
{
    int on_device = 1;

    for (uint32_t r = 0; r < in->size; r++)
        on_device &= in->scheds[r]->on_device;
    for (uint32_t r = 0; r < in->size; r++) {
        in->scheds[r]->on_device = on_device;
        in->scheds[r]->is_read = 1;
    }
}

static int read_text(reader_t *in)
{
    tutti__words_t *w = &in->words;
    int ok = 1;

    while (ok && tutti__words_line(w)) {
        if (tutti__words_at_end(w))
            continue;
        if (tutti__words_skip_name(w, "rank"))
            ok = head(in);
        else if (in->b == NULL)
            ok = tutti__words_expected(w, "NAME: rank 0 of N, ...");
        else
            ok = tutti__words_take(w, "stream") ? stream(in) : operation(in);
    }
    if (!ok || !finish(in))
        return 0;
    if (in->nscheds < in->size)
        return tutti__words_bad(w, 0, "the text ends, but rank %u of %u is missing", in->nscheds,
                                in->size);
    agree_on_device(in);
    return 1;
}

tutti_status_t tutti__sched_parse(const char *text, const char *name, uint32_t size,
                                  tutti__sched_t **ret_sched)
{
    reader_t in = { .words = { .name = name, .next = text }, .size = size };
    tutti__sched_t *unused = NULL;

    in.scheds = calloc((size_t)size + 1, sizeof(*in.scheds));
    if (in.scheds == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory to read schedules");
    if (read_text(&in)) {
        memcpy(ret_sched, in.scheds, size * sizeof(*in.scheds));
    } else {
        for (uint32_t r = 0; r < in.nscheds; r++)
            tutti__sched_free(in.scheds[r]);
    }
    free(in.scheds);
    free(in.origins);
    if (in.b != NULL && tutti__build_end(in.b, &unused) == TUTTI_OK)
        tutti__sched_free(unused);
    if (in.words.status == TUTTI_ERR_NO_MEMORY)
        return tutti__fail(in.words.status, "no memory to read schedules");
    if (in.words.status != TUTTI_OK)
        return tutti__fail(in.words.status, "%s", in.words.why);
    return TUTTI_OK;
}

tutti_status_t tutti__sched_text_ranks(const char *text, const char *name, uint32_t *ret_size)
{
    tutti__words_t w = { .name = name, .next = text };
    uint32_t rank, size;

    while (tutti__words_line(&w)) {
        if (tutti__words_at_end(&w))
            continue;
        if (!tutti__words_skip_name(&w, "rank")) {
            tutti__words_expected(&w, "NAME: rank 0 of N, ...");
            break;
        }
        if (tutti__words_number(&w, "rank", &rank) && tutti__words_number(&w, "of", &size)) {
            *ret_size = size;
            return TUTTI_OK;
        }
        break;
    }
    if (w.status == TUTTI_OK)
        tutti__words_bad(&w, 0, "there is no schedule in this text");
    return tutti__fail(w.status, "%s", w.why);
}
