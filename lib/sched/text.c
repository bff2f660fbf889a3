/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads schedules from text: the output of print.c, or text that a user wrote.
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
 * A line has one of these forms. `#` begins a comment. Parts in [ ] are optional, except in a
 * PLACE. The number of spaces does not matter.
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
 * SIZES is `by number`, `all equal` or `by pair`. A PLACE is BUFFER[block] or
 * BUFFER[from:upto]. Operations may end with `, finish` `, left` `, mark` `, shift N`. Leading
 * numbers are for users, and are ignored. Redundant values (marks per trip, more trips) must be
 * correct if they are present.
 *
 * text_ops.c reads the operations. The builder makes the schedules, as for built-in algorithms.
 */
#include "sched/text.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* ---- heads ---- */

static int sizes(tutti__text_t *in)
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

static int stage(tutti__text_t *in)
{
    tutti__words_t *w = &in->words;
    uint32_t first, blocks, trips;

    if (!tutti__words_number(w, "", &blocks) || !tutti__words_number(w, "from", &first) ||
        !tutti__words_number(w, "in", &trips) || !tutti__words_need(w, "chunks"))
        return 0;
    tutti__build_stage(in->b, first, blocks, trips);
    return 1;
}

/* Read the optional parts of a head, in the order sizes, stage. */
static int extras(tutti__text_t *in)
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

/* The line of the schedule's operation i, or of the head if there is no such operation. In the
   schedule, streams follow one another; in the text they may be mixed. */
static uint32_t line_of(const tutti__text_t *in, uint32_t i)
{
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++) {
        for (uint32_t k = 0; k < in->norigins; k++) {
            if (in->origins[k].stream == s && i-- == 0)
                return in->origins[k].line;
        }
    }
    return in->head_line;
}

/* Report a broken rule with its line. Leave out the begin of the builder's error text, which has
   the schedule's name and rank. */
static int rule_broken(tutti__text_t *in, uint32_t rank)
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

/* Finish the schedule under construction, if there is one. */
static int finish(tutti__text_t *in)
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
        if (in->said_marks[s] != TUTTI__TEXT_NOT_SAID && in->said_marks[s] != sched->marks[s])
            return tutti__words_bad(&in->words, in->marks_line[s],
                                    "stream %u has %u marks in a trip, not %u", s, sched->marks[s],
                                    in->said_marks[s]);
    }
    return 1;
}

static int head(tutti__text_t *in)
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
    in->said_trips = TUTTI__TEXT_NOT_SAID;
    memset(in->said_marks, 0xff, sizeof(in->said_marks));
    in->b = tutti__build_begin(w->name, rank, size, nblocks, scratch, message);
    if (in->b == NULL) {
        w->status = TUTTI_ERR_NO_MEMORY;
        return 0;
    }
    return extras(in) && tutti__words_end(w);
}

static int stream(tutti__text_t *in)
{
    tutti__words_t *w = &in->words;
    uint32_t s;

    if (!tutti__words_number(w, "", &s))
        return 0;
    if (s >= TUTTI__SCHED_STREAMS)
        return tutti__words_bad(w, 0, "there is no stream %u", s);
    tutti__build_stream(in->b, s);
    in->stream = s;
    in->said_trips = TUTTI__TEXT_NOT_SAID;
    in->marks_line[s] = w->line;
    if (tutti__words_take(w, ",") && !tutti__words_number(w, "marks per trip", &in->said_marks[s]))
        return 0;
    return tutti__words_end(w);
}

/* ---- the whole text ---- */

/* If one rank's schedule does not suit device memory, clear on_device on all ranks. */
static void agree_on_device(const tutti__text_t *in)
{
    int on_device = 1;

    for (uint32_t r = 0; r < in->size; r++)
        on_device &= in->scheds[r]->on_device;
    for (uint32_t r = 0; r < in->size; r++) {
        in->scheds[r]->on_device = on_device;
        in->scheds[r]->is_read = 1;
    }
}

static int read_text(tutti__text_t *in)
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
            ok = tutti__words_take(w, "stream") ? stream(in) : tutti__text_operation(in);
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
    tutti__text_t in = { .words = { .name = name, .next = text }, .size = size };
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
