/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mutation test of the checker: random bugs, one operation each, in every algorithm.
 *
 * The interpreter (interpret.h) decides, without the checker, whether a bug changes the result of
 * the call. For each kind of bug, the checker must detect at least 99 in 100 of the bugs that
 * change the result. The checker may detect other bugs as well: the checker proves for all orders
 * and lengths, but the interpreter tries only a few of them. So a detected bug that changes nothing
 * in the interpreter proves nothing.
 *
 * Some bugs change the result only without credits. The checker must detect all of these bugs.
 *
 * First the test shows that the interpreter finds no error in the unchanged schedules. The
 * interpreter computes the required results from the collectives' definitions.
 */
#include "unit/coll/interpret.h"
#include "unit/coll/plant.h"

#include "base/compiler.h"
#include "coll/algorithms.h"
#include "long.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef TUTTI__SANITIZED
#define MUTANTS 10
#else
#define MUTANTS 40 /* of each set of schedules */
#endif

/* Credits and trips. */
static const uint32_t runs[][2] = { { 1, 1 }, { 1, 3 }, { 2, 5 }, { 0, 1 }, { 0, 3 } };
#define RUNS (sizeof(runs) / sizeof(*runs))
#define CREDIT_RUNS 3            /* the first ones: with credits */
static unsigned hidden, exposed; /* bugs with an effect only without credits; detected ones */

static uint32_t seed = 20240607;

static uint32_t below(uint32_t n)
{
    return random_next(&seed) % n;
}

static int is_caught(const set_t *set, size_t first)
{
    char why[400];

    for (size_t i = first; i < RUNS; i++) {
        if (set_check(set, runs[i][0], runs[i][1], why, sizeof(why)) != TUTTI_OK)
            return 1;
    }
    return 0;
}

/* ---- bugs: plant one at operation i; 0 if the bug does not apply there ---- */

static int drop(tutti__sched_t *sched, uint32_t i)
{
    sched_remove(sched, i);
    return 1;
}

static int duplicate(tutti__sched_t *sched, uint32_t i)
{
    sched_insert(sched, sched_stream_of(sched, i), i, sched->ops[i]);
    return 1;
}

static int swap(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t op = sched->ops[i];

    if (i + 1 == sched->nops || sched_stream_of(sched, i) != sched_stream_of(sched, i + 1) ||
        op_is_loop(&sched->ops[i + 1]))
        return 0;
    sched->ops[i] = sched->ops[i + 1];
    sched->ops[i + 1] = op;
    return 1;
}

static int wrong_channel(tutti__sched_t *sched, uint32_t i)
{
    uint32_t chan = below(sched->nchans + 1) % TUTTI__MAX(sched->nchans, 1u);

    if (!op_has_channel(&sched->ops[i]) || chan == sched->ops[i].chan)
        return 0;
    sched->ops[i].chan = (uint16_t)chan;
    return 1;
}

/* The whole channel leads to another rank. */
static int wrong_peer(tutti__sched_t *sched, uint32_t i)
{
    uint32_t peer = below(sched->size);

    if (!op_has_channel(&sched->ops[i]) || peer == sched->rank ||
        peer == sched->chans[sched->ops[i].chan].peer)
        return 0;
    sched->chans[sched->ops[i].chan].peer = peer;
    return 1;
}

static uint32_t other_block(const tutti__sched_t *sched, unsigned buf, uint32_t blk)
{
    uint32_t n = buf == TUTTI__SCRATCH ? sched->scratch_blocks : sched->nblocks;

    return n > 1 ? (blk + 1 + below(n - 1)) % n : blk;
}

static int wrong_source_block(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];
    uint32_t before = op->sblk;

    if (op_reads(op))
        op->sblk = other_block(sched, op->sbuf, op->sblk);
    return op->sblk != before;
}

static int wrong_target_block(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];
    uint32_t before = op->dblk;

    if (op_writes(op))
        op->dblk = other_block(sched, op->dbuf, op->dblk);
    return op->dblk != before;
}

static int wrong_source_buffer(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (!op_reads(op))
        return 0;
    op->sbuf = (uint8_t)((op->sbuf + 1 + below(TUTTI__BUFS - 1)) % TUTTI__BUFS);
    return 1;
}

static int wrong_target_buffer(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (!op_writes(op))
        return 0;
    op->dbuf = (uint8_t)((op->dbuf + 1 + below(TUTTI__BUFS - 1)) % TUTTI__BUFS);
    return 1;
}

static int wrong_count(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (op->nblk == 0)
        return 0;
    op->nblk += op->nblk > 1 && below(2) ? UINT32_MAX : 1;
    return 1;
}

static int flip(tutti__sched_t *sched, uint32_t i, unsigned flag)
{
    sched->ops[i].flags ^= (uint8_t)flag;
    return 1;
}

static int other_finish(tutti__sched_t *sched, uint32_t i)
{
    uint8_t kind = sched->ops[i].kind;

    return (kind == TUTTI__RECV_REDUCE || kind == TUTTI__REDUCE || kind == TUTTI__COPY ||
            kind == TUTTI__NODE_ALLREDUCE || kind == TUTTI__NODE_REDUCE_SCATTER ||
            kind == TUTTI__NODE_REDUCE) &&
           flip(sched, i, TUTTI__FINISH);
}

static int lost_finish(tutti__sched_t *sched, uint32_t i)
{
    return (sched->ops[i].flags & TUTTI__FINISH) && flip(sched, i, TUTTI__FINISH);
}

static int other_side(tutti__sched_t *sched, uint32_t i)
{
    uint8_t kind = sched->ops[i].kind;

    return (kind == TUTTI__RECV_REDUCE || kind == TUTTI__REDUCE) && flip(sched, i, TUTTI__LEFT);
}

static int lost_mark(tutti__sched_t *sched, uint32_t i)
{
    return (sched->ops[i].flags & TUTTI__MARK) && flip(sched, i, TUTTI__MARK);
}

static int other_shift(tutti__sched_t *sched, uint32_t i)
{
    sched->ops[i].shift = sched->ops[i].shift == 0 ? 1 : 0;
    return 1;
}

static int other_kind(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (op->kind == TUTTI__RECV_REDUCE) {
        op->kind = TUTTI__RECV;
        op->flags &= TUTTI__MARK;
    } else if (op->kind == TUTTI__REDUCE || op->kind == TUTTI__COPY) {
        op->kind = op->kind == TUTTI__COPY ? TUTTI__REDUCE : TUTTI__COPY;
        op->flags &= TUTTI__MARK | TUTTI__FINISH;
    } else {
        return 0;
    }
    return 1;
}

typedef struct {
    const char *name;
    int (*plant)(tutti__sched_t *sched, uint32_t i);
    unsigned planted, changing, caught; /* caught: detected bugs that change the result */
} bug_t;

static bug_t bugs[] = {
    { "drop", drop, 0, 0, 0 },
    { "duplicate", duplicate, 0, 0, 0 },
    { "swap", swap, 0, 0, 0 },
    { "wrong channel", wrong_channel, 0, 0, 0 },
    { "wrong peer", wrong_peer, 0, 0, 0 },
    { "wrong source block", wrong_source_block, 0, 0, 0 },
    { "wrong target block", wrong_target_block, 0, 0, 0 },
    { "wrong source buffer", wrong_source_buffer, 0, 0, 0 },
    { "wrong target buffer", wrong_target_buffer, 0, 0, 0 },
    { "wrong count", wrong_count, 0, 0, 0 },
    { "other finish", other_finish, 0, 0, 0 },
    { "lost finish", lost_finish, 0, 0, 0 },
    { "late finish", sched_finish_late, 0, 0, 0 },
    { "other side", other_side, 0, 0, 0 },
    { "lost mark", lost_mark, 0, 0, 0 },
    { "other shift", other_shift, 0, 0, 0 },
    { "other kind", other_kind, 0, 0, 0 },
};
#define BUGS (sizeof(bugs) / sizeof(*bugs))

/* ---- the test ---- */

static void judge(set_t *set, bug_t *bug, uint32_t rank, uint32_t i, const tutti__op_t *op)
{
    const char *wrong = interpret_all(set, runs, CREDIT_RUNS);
    int is_hidden = wrong == NULL;
    char text[160];

    bug->planted++;
    if (is_hidden)
        wrong = interpret_all(set, runs + CREDIT_RUNS, RUNS - CREDIT_RUNS);
    if (wrong == NULL)
        return;
    bug->changing++;
    hidden += (unsigned)is_hidden;
    if (is_caught(set, is_hidden ? CREDIT_RUNS : 0)) {
        bug->caught++;
        exposed += (unsigned)is_hidden;
        return;
    }
    print_error("not caught, %s: %s %s%s%s on %s, radix %u, streams %u, root %u, in place %d: rank "
                "%u operation "
                "%u (%s): %s\n",
                bug->name, tutti__collective_name(set->algorithm->collective), set->algorithm->name,
                set->sub != NULL ? "/" : "", set->sub != NULL ? set->sub : "", set->shape->name,
                set->radix, set->streams, set->root, set->in_place, rank, i,
                tutti__sched_op_text(set->scheds[rank], op, text, sizeof(text)), wrong);
}

/* Make and judge one mutant. Returns 0 if the random choice was not applicable. */
static int mutate(set_t *set)
{
    uint32_t rank = below(set->shape->shape.size), i;
    tutti__sched_t *right = set->scheds[rank];
    bug_t *bug = &bugs[below(BUGS)];
    int planted;

    if (right->nops == 0)
        return 0;
    i = below(right->nops);
    if (op_is_loop(&right->ops[i]))
        return 0;
    set->scheds[rank] = sched_clone(right);
    planted = bug->plant(set->scheds[rank], i);
    if (planted) {
        sched_settle(set->scheds[rank]);
        judge(set, bug, rank, i, &right->ops[i]);
    }
    tutti__sched_free(set->scheds[rank]);
    set->scheds[rank] = right;
    return planted;
}

static void mutate_set(set_t *set)
{
    const char *wrong;
    unsigned planted = 0;

    set_build(set);
    wrong = interpret_all(set, runs, RUNS);
    if (wrong != NULL)
        fail_msg("%s %s%s%s on %s, radix %u, streams %u, root %u, in place %d, as it is: %s",
                 tutti__collective_name(set->algorithm->collective), set->algorithm->name,
                 set->sub != NULL ? "/" : "", set->sub != NULL ? set->sub : "", set->shape->name,
                 set->radix, set->streams, set->root, set->in_place, wrong);
    for (unsigned tries = 0; planted < MUTANTS && tries < 20 * MUTANTS; tries++)
        planted += (unsigned)mutate(set);
    set_free(set);
}

static void mutate_all_on(shape_t *shape)
{
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        set_t set = { .algorithm = a, .shape = shape };

        if (a->refuses != NULL && a->refuses(&shape->shape) != NULL)
            continue;
        for (int k = 0; k == 0 || (a->subs != NULL && a->subs[k] != NULL); k++) {
            set.sub = a->subs != NULL ? a->subs[k] : NULL;
            for (set.in_place = 0; set.in_place < 2; set.in_place++) {
                set.root = below(shape->shape.size);
                set.radix = a->radix != 0 && below(2) ? 2 + below(3) : 0;
                set.streams = below(tutti__coll_most_streams(a) + 1);
                mutate_set(&set);
            }
        }
    }
    shape_free(shape);
}

static void test_mutants(void **state)
{
    int whole = test_is_long("half of the placements");
    unsigned planted = 0, changing = 0, caught = 0;
    int is_blind = 0;

    (void)state;
    mutate_all_on(shape_even(1, 4));
    mutate_all_on(shape_even(3, 1));
    mutate_all_on(shape_even(2, 2));
    mutate_all_on(shape_grouped(shape_split(2, (uint32_t[]){ 5, 3 }), 2));
    if (whole) {
        mutate_all_on(shape_even(1, 2));
        mutate_all_on(shape_even(5, 1));
        mutate_all_on(shape_even(8, 1));
        mutate_all_on(shape_split(3, (uint32_t[]){ 3, 2, 2 }));
        mutate_all_on(shape_random(6, 5));
    }
    for (size_t i = 0; i < BUGS; i++) {
        print_message("%-20s %5u planted, %5u change the result, %5u of them caught\n",
                      bugs[i].name, bugs[i].planted, bugs[i].changing, bugs[i].caught);
        planted += bugs[i].planted;
        changing += bugs[i].changing;
        caught += bugs[i].caught;
        is_blind |= (uint64_t)bugs[i].caught * 100 < (uint64_t)bugs[i].changing * 99;
    }
    print_message("%-20s %5u planted, %5u change the result, %5u of them caught\n", "all", planted,
                  changing, caught);
    print_message("%u need zero credits, %u of them caught\n", hidden, exposed);
    assert_true(changing > planted / 4);
    assert_true(hidden > 0);
    assert_int_equal(exposed, hidden);
    assert_false(is_blind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutants),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
