/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker finds planted bugs.
 *
 * Each kind of bug is planted into real schedules, at every applicable operation of every rank, one
 * bug at a time. For some number of credits and trips the checker must report an error. A change
 * can be harmless (two sends to different ranks swapped, a receive at the end of a trip moved to
 * the next one): if the checker reports no error, the schedules are executed with numbers, and the
 * results must be correct. After a change marks and loops are recomputed, so that a bug is not
 * found by a number in the schedule's head.
 */
#include "unit/coll/interpret.h"
#include "unit/coll/plant.h"

#include "long.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- kinds of bugs: plant one at operation i; 0 if the bug does not apply there ---- */

static int drop(tutti__sched_t *sched, uint32_t i)
{
    if (op_is_loop(&sched->ops[i]))
        return 0;
    sched_remove(sched, i);
    return 1;
}

static int duplicate(tutti__sched_t *sched, uint32_t i)
{
    if (!op_has_channel(&sched->ops[i]) && !op_is_node(&sched->ops[i]))
        return 0;
    sched_insert(sched, sched_stream_of(sched, i), i, sched->ops[i]);
    return 1;
}

static int swap(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *a = &sched->ops[i], *b = a + 1, c;

    if (i + 1 == sched->nops || sched_stream_of(sched, i) != sched_stream_of(sched, i + 1) ||
        op_is_loop(a) || op_is_loop(b))
        return 0;
    c = *a;
    *a = *b;
    *b = c;
    return 1;
}

static int wrong_peer(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (!op_has_channel(op))
        return 0;
    for (uint32_t n = 1; n < sched->nchans; n++) {
        uint32_t chan = (op->chan + n) % sched->nchans;

        if (sched->chans[chan].is_recv == sched->chans[op->chan].is_recv) {
            op->chan = (uint16_t)chan;
            return 1;
        }
    }
    return 0;
}

/* The whole channel leads to a rank that does not receive from it. */
static int stray_channel(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (!op_has_channel(op) || sched->size < 3)
        return 0;
    do
        sched->chans[op->chan].peer = (sched->chans[op->chan].peer + 1) % sched->size;
    while (sched->chans[op->chan].peer == sched->rank);
    return 1;
}

static int wrong_end(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (!op_has_channel(op))
        return 0;
    for (uint32_t chan = 0; chan < sched->nchans; chan++) {
        if (sched->chans[chan].is_recv != sched->chans[op->chan].is_recv) {
            op->chan = (uint16_t)chan;
            return 1;
        }
    }
    return 0;
}

static int wrong_source_block(tutti__sched_t *sched, uint32_t i)
{
    if (!op_reads(&sched->ops[i]) || sched->nblocks == 1 || sched->ops[i].sbuf == TUTTI__SCRATCH)
        return 0;
    sched->ops[i].sblk = (sched->ops[i].sblk + 1) % sched->nblocks;
    return 1;
}

static int wrong_target_block(tutti__sched_t *sched, uint32_t i)
{
    if (!op_writes(&sched->ops[i]) || sched->nblocks == 1 || sched->ops[i].dbuf == TUTTI__SCRATCH)
        return 0;
    sched->ops[i].dblk = (sched->ops[i].dblk + 1) % sched->nblocks;
    return 1;
}

static int wrong_block(tutti__sched_t *sched, uint32_t i)
{
    return wrong_source_block(sched, i) & wrong_target_block(sched, i);
}

static int block_out_of_bounds(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (!op_reads(op) && !op_writes(op))
        return 0;
    if (op_reads(op))
        op->sblk = UINT32_MAX;
    else
        op->dblk = sched->nblocks;
    return 1;
}

static int too_long(tutti__sched_t *sched, uint32_t i)
{
    if (!op_reads(&sched->ops[i]) && !op_writes(&sched->ops[i]))
        return 0;
    sched->ops[i].nblk++;
    return 1;
}

static int no_finish(tutti__sched_t *sched, uint32_t i)
{
    if (!(sched->ops[i].flags & TUTTI__FINISH))
        return 0;
    sched->ops[i].flags &= (uint8_t)~TUTTI__FINISH;
    return 1;
}

static int more_finish(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if ((op->kind != TUTTI__RECV_REDUCE && op->kind != TUTTI__COPY &&
         op->kind != TUTTI__NODE_REDUCE_SCATTER && op->kind != TUTTI__NODE_ALLREDUCE &&
         op->kind != TUTTI__NODE_REDUCE) ||
        (op->flags & TUTTI__FINISH) || op->dbuf == TUTTI__SCRATCH)
        return 0;
    op->flags |= TUTTI__FINISH;
    return 1;
}

static int finish_a_send(tutti__sched_t *sched, uint32_t i)
{
    if (sched->ops[i].kind != TUTTI__SEND && sched->ops[i].kind != TUTTI__NODE_BCAST &&
        sched->ops[i].kind != TUTTI__NODE_ALLTOALL)
        return 0;
    sched->ops[i].flags |= TUTTI__FINISH;
    return 1;
}

/* Reads the input again, or a result that does not exist. */
static int wrong_source_buffer(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (!op_reads(op) || op->sbuf == TUTTI__SCRATCH)
        return 0;
    op->sbuf = op->sbuf == TUTTI__IN ? TUTTI__OUT : TUTTI__IN;
    return 1;
}

static int write_input(tutti__sched_t *sched, uint32_t i)
{
    if (!op_writes(&sched->ops[i]))
        return 0;
    sched->ops[i].dbuf = TUTTI__IN;
    return 1;
}

static int write_stage(tutti__sched_t *sched, uint32_t i)
{
    if (!op_writes(&sched->ops[i]) || sched->ops[i].dbuf != TUTTI__OUT)
        return 0;
    sched->ops[i].dbuf = TUTTI__STAGE;
    return 1;
}

static int reduce_not(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (op->kind != TUTTI__RECV_REDUCE)
        return 0;
    op->kind = TUTTI__RECV;
    op->flags &= TUTTI__MARK;
    return 1;
}

static int reduce_twice(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (op->kind != TUTTI__RECV || op->dbuf == TUTTI__SCRATCH)
        return 0;
    op->kind = TUTTI__RECV_REDUCE;
    op->sbuf = op->dbuf;
    op->sblk = op->dblk;
    return 1;
}

static int no_mark(tutti__sched_t *sched, uint32_t i)
{
    if (!(sched->ops[i].flags & TUTTI__MARK))
        return 0;
    sched->ops[i].flags &= (uint8_t)~TUTTI__MARK;
    return 1;
}

/* The operation before this one makes the mark, which is too early. */
static int early_mark(tutti__sched_t *sched, uint32_t i)
{
    if (i == 0 || !(sched->ops[i].flags & TUTTI__MARK) || !op_has_channel(&sched->ops[i - 1]))
        return 0;
    sched->ops[i].flags &= (uint8_t)~TUTTI__MARK;
    sched->ops[i - 1].flags |= TUTTI__MARK;
    return 1;
}

static int more_wait(tutti__sched_t *sched, uint32_t i)
{
    if (sched->ops[i].kind != TUTTI__WAIT)
        return 0;
    sched->ops[i].arg++;
    return 1;
}

static int wait_for_nobody(tutti__sched_t *sched, uint32_t i)
{
    if (sched->ops[i].kind != TUTTI__WAIT)
        return 0;
    sched->ops[i].stream = 3;
    return 1;
}

static int wait_for_itself(tutti__sched_t *sched, uint32_t i)
{
    if (sched->ops[i].kind != TUTTI__WAIT)
        return 0;
    sched->ops[i].stream = (uint8_t)sched_stream_of(sched, i);
    return 1;
}

static int wait_too_short(tutti__sched_t *sched, uint32_t i)
{
    if (sched->ops[i].kind != TUTTI__WAIT)
        return 0;
    sched->ops[i].shift++;
    return 1;
}

/* Another shift in a pipeline. */
static int other_shift(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (sched->nstreams == 1 || (!op_is_node(op) && !op_has_channel(op)))
        return 0;
    op->shift = op->shift == 0 ? 1 : 0;
    return 1;
}

static int wrong_parts(tutti__sched_t *sched, uint32_t i)
{
    if (!op_is_node(&sched->ops[i]) || sched->ops[i].nparts < 2)
        return 0;
    sched->ops[i].nparts--;
    return 1;
}

static int other_node_op(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t *op = &sched->ops[i];

    if (!op_is_node(op))
        return 0;
    op->kind =
        op->kind == TUTTI__NODE_ALLGATHER ? TUTTI__NODE_REDUCE_SCATTER : TUTTI__NODE_ALLGATHER;
    op->flags &= TUTTI__MARK;
    return 1;
}

static int other_root(tutti__sched_t *sched, uint32_t i)
{
    if (!tutti__sched_has_root(sched->ops[i].kind))
        return 0;
    sched->ops[i].arg++;
    return 1;
}

/* A separate stream executes the operation, at any time. */
static int other_stream(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t op = sched->ops[i], loop = { .kind = TUTTI__LOOP, .nparts = 1 };
    uint32_t s = sched->nstreams;

    if (op_is_loop(&op) || op.kind == TUTTI__WAIT || s == TUTTI__SCHED_STREAMS)
        return 0;
    sched_remove(sched, i);
    sched->ops = realloc(sched->ops, (sched->nops + 3) * sizeof(*sched->ops));
    assert_non_null(sched->ops);
    sched_insert(sched, s, sched->nops, loop);
    op.shift = 0;
    sched_insert(sched, s, sched->nops, op);
    loop.kind = TUTTI__END_LOOP;
    sched_insert(sched, s, sched->nops, loop);
    if (op.kind == TUTTI__SEND)
        sched->chans[op.chan].stream = (uint8_t)s;
    sched->nstreams++;
    return 1;
}

static int outside_loop(tutti__sched_t *sched, uint32_t i)
{
    tutti__op_t op = sched->ops[i];
    uint32_t s = sched_stream_of(sched, i);

    if (!op_has_channel(&op))
        return 0;
    sched_remove(sched, i);
    sched_insert(sched, s, sched->first[s + 1], op);
    return 1;
}

static int no_such_kind(tutti__sched_t *sched, uint32_t i)
{
    sched->ops[i].kind = TUTTI__NODE_MEET;
    return 1;
}

/* ---- planting ---- */

typedef struct {
    const char *name;
    int (*plant)(tutti__sched_t *sched, uint32_t i);
    unsigned planted, harmless, survived;
    char why[160]; /* the checker's first text */
} bug_t;

/* Credits and trips. */
static const uint32_t runs[][2] = { { 1, 1 }, { 1, 3 }, { 2, 5 }, { 0, 3 } };
#define RUNS (sizeof(runs) / sizeof(*runs))

static int is_caught(const set_t *set, bug_t *bug)
{
    char why[1200];

    for (size_t i = 0; i < RUNS; i++) {
        if (set_check(set, runs[i][0], runs[i][1], why, sizeof(why)) == TUTTI_OK)
            continue;
        if (bug->why[0] == '\0')
            snprintf(bug->why, sizeof(bug->why), "%.159s", why);
        return 1;
    }
    return 0;
}

/* Judge a bug planted at operation i of rank r. `op`: the operation before the change. */
static void judge(const set_t *set, bug_t *bug, uint32_t r, uint32_t i, const tutti__op_t *op)
{
    const char *wrong;
    char text[160];

    bug->planted++;
    if (is_caught(set, bug))
        return;
    wrong = interpret_all(set, runs, RUNS);
    if (wrong == NULL) {
        bug->harmless++;
        return;
    }
    bug->survived++;
    print_error("%s survived: %s %s on %s, in place %d, rank %u operation %u: %s: %s\n", bug->name,
                tutti__collective_name(set->algorithm->collective), set->algorithm->name,
                set->shape->name, set->in_place, r, i,
                tutti__sched_op_text(set->scheds[r], op, text, sizeof(text)), wrong);
}

static void bugs_in(const set_t *set, bug_t *bug)
{
    for (uint32_t r = 0; r < set->shape->shape.size; r++) {
        tutti__sched_t *right = set->scheds[r];

        for (uint32_t i = 0; i < right->nops; i++) {
            set->scheds[r] = sched_clone(right);
            if (bug->plant(set->scheds[r], i)) {
                sched_settle(set->scheds[r]);
                judge(set, bug, r, i, &right->ops[i]);
            }
            tutti__sched_free(set->scheds[r]);
            set->scheds[r] = right;
        }
    }
}

static void bugs_on(shape_t *shape, bug_t *bug)
{
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        set_t set = { .algorithm = a, .shape = shape, .root = shape->shape.size - 1 };

        if (a->refuses != NULL && a->refuses(&shape->shape) != NULL)
            continue;
        for (int k = 0; k == 0 || (a->subs != NULL && a->subs[k] != NULL); k++) {
            set.sub = a->subs != NULL ? a->subs[k] : NULL;
            for (set.in_place = 0; set.in_place < 2; set.in_place++) {
                set_build(&set);
                bugs_in(&set, bug);
                set_free(&set);
            }
        }
    }
    shape_free(shape);
}

static void test_planted_bugs(void **state)
{
    bug_t bugs[] = {
        { .name = "drop", .plant = drop },
        { .name = "duplicate", .plant = duplicate },
        { .name = "swap", .plant = swap },
        { .name = "wrong_peer", .plant = wrong_peer },
        { .name = "stray_channel", .plant = stray_channel },
        { .name = "wrong_end", .plant = wrong_end },
        { .name = "wrong_source_block", .plant = wrong_source_block },
        { .name = "wrong_target_block", .plant = wrong_target_block },
        { .name = "wrong_block", .plant = wrong_block },
        { .name = "block_out_of_bounds", .plant = block_out_of_bounds },
        { .name = "too_long", .plant = too_long },
        { .name = "no_finish", .plant = no_finish },
        { .name = "more_finish", .plant = more_finish },
        { .name = "finish_late", .plant = sched_finish_late },
        { .name = "finish_a_send", .plant = finish_a_send },
        { .name = "wrong_source_buffer", .plant = wrong_source_buffer },
        { .name = "write_input", .plant = write_input },
        { .name = "write_stage", .plant = write_stage },
        { .name = "reduce_not", .plant = reduce_not },
        { .name = "reduce_twice", .plant = reduce_twice },
        { .name = "no_mark", .plant = no_mark },
        { .name = "early_mark", .plant = early_mark },
        { .name = "more_wait", .plant = more_wait },
        { .name = "wait_for_nobody", .plant = wait_for_nobody },
        { .name = "wait_for_itself", .plant = wait_for_itself },
        { .name = "wait_too_short", .plant = wait_too_short },
        { .name = "other_shift", .plant = other_shift },
        { .name = "wrong_parts", .plant = wrong_parts },
        { .name = "other_node_op", .plant = other_node_op },
        { .name = "other_root", .plant = other_root },
        { .name = "other_stream", .plant = other_stream },
        { .name = "outside_loop", .plant = outside_loop },
        { .name = "no_such_kind", .plant = no_such_kind },
    };
    int whole = test_is_long("5 ranks");
    unsigned survived = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(bugs) / sizeof(bugs[0]); i++) {
        bugs_on(shape_even(1, 3), &bugs[i]);
        bugs_on(shape_even(2, 2), &bugs[i]);
        if (whole) {
            bugs_on(shape_even(5, 1), &bugs[i]);
            bugs_on(shape_split(2, (uint32_t[]){ 3, 2 }), &bugs[i]);
        }
        print_message("%-20s %5u planted, %4u harmless, %u survived: %s\n", bugs[i].name,
                      bugs[i].planted, bugs[i].harmless, bugs[i].survived, bugs[i].why);
        assert_true(bugs[i].planted > bugs[i].harmless);
        survived += bugs[i].survived;
    }
    assert_int_equal(survived, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted_bugs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
