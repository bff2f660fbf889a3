/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the promised form of schedules, because the checker proves only their results.
 */
#include "coll/coll.h"
#include "unit/coll/shapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_unknown_sub(void **state)
{
    static const char *const names[] = { "hierarchical", "three_level" };
    tutti__coll_args_t args = { .sub = "binomial" };
    shape_t *shape = shape_split(2, (uint32_t[]){ 3, 2 });

    (void)state;
    for (int i = 0; i < 2; i++) {
        const tutti__algorithm_t *a = tutti__algorithm_find(TUTTI__ALLREDUCE, names[i]);
        tutti__sched_t *sched = NULL;

        assert_int_equal(a->build(&shape->shape, &args, &sched), TUTTI_ERR_INVALID_ARGUMENT);
        assert_null(sched);
    }
    shape_free(shape);
}

/* With one host, or one rank on each host, hierarchical is another algorithm. */
static void test_hierarchical_degenerates(void **state)
{
    static const tutti__op_kind_t first[] = { TUTTI__LOOP, TUTTI__NODE_ALLREDUCE };
    shape_t *shapes[] = { shape_even(4, 1), shape_even(1, 4) };
    const tutti__algorithm_t *a = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical");
    tutti__coll_args_t args = { .rank = 2 };

    (void)state;
    for (int i = 0; i < 2; i++) {
        tutti__sched_t *sched = NULL;

        assert_int_equal(a->build(&shapes[i]->shape, &args, &sched), TUTTI_OK);
        assert_int_equal(sched->nstreams, 1);
        assert_int_equal(sched->ops[0].kind, first[i]);
        tutti__sched_free(sched);
        shape_free(shapes[i]);
    }
}

/* Double tree: a rank is an inner node of at most one tree, and both trees are shallow. */
static void test_double_tree_is_fair(void **state)
{
    const tutti__algorithm_t *a = tutti__algorithm_find(TUTTI__ALLREDUCE, "double_tree");

    (void)state;
    for (uint32_t n = 2; n <= 130; n++) {
        shape_t *shape = shape_even(1, n);
        set_t set = { .algorithm = a, .shape = shape };

        set_build(&set);
        for (uint32_t r = 0; r < n; r++) {
            const tutti__sched_t *sched = set.scheds[r];
            int inner = 0;

            for (uint32_t tree = 0; tree < 2; tree++) {
                int receives = 0;

                for (uint32_t i = sched->first[tree]; i < sched->first[tree + 1]; i++)
                    receives += sched->ops[i].kind == TUTTI__RECV_REDUCE;
                inner += receives > 0;
                assert_true(receives <= 2);
            }
            assert_true(inner <= 1);
        }
        set_free(&set);
        shape_free(shape);
    }
}

/* The next operation from *i on that is visible to other ranks; NULL: none. */
static const tutti__op_t *next_seen(const tutti__sched_t *sched, uint32_t *i)
{
    while (*i < sched->nops &&
           (sched->ops[*i].kind == TUTTI__COPY || sched->ops[*i].kind == TUTTI__REDUCE))
        ++*i;
    return *i < sched->nops ? &sched->ops[(*i)++] : NULL;
}

static int same_outside(const tutti__sched_t *a, const tutti__sched_t *b)
{
    uint32_t i = 0, k = 0;

    if (a->nchans != b->nchans || a->nstreams != b->nstreams ||
        memcmp(a->chans, b->chans, a->nchans * sizeof(*a->chans)) != 0)
        return 0;
    for (;;) {
        const tutti__op_t *x = next_seen(a, &i), *y = next_seen(b, &k);

        if (x == NULL || y == NULL)
            return x == y;
        if (x->kind == TUTTI__END_LOOP && y->kind == TUTTI__END_LOOP)
            continue;
        if (x->kind != y->kind || x->chan != y->chan || x->nblk != y->nblk ||
            x->nparts != y->nparts || x->shift != y->shift || x->sblk != y->sblk ||
            x->arg != y->arg)
            return 0;
    }
}

/* Some ranks may make a call in place, and other ranks may make it out of place. So being in place
   must not change anything that is visible to other ranks. */
static void test_in_place_is_local(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 20; n++) {
        shape_t *shapes[] = { shape_even(1, n), shape_random(n, n) };

        for (int s = 0; s < 2; s++) {
            for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
                set_t apart = { .algorithm = a, .shape = shapes[s], .root = n / 2 };
                set_t in_place = apart;

                if (a->refuses != NULL && a->refuses(&shapes[s]->shape) != NULL)
                    continue;
                in_place.in_place = 1;
                set_build(&apart);
                set_build(&in_place);
                for (uint32_t r = 0; r < n; r++) {
                    if (!same_outside(apart.scheds[r], in_place.scheds[r]))
                        fail_msg("%s:%s of %u ranks sends something else in place",
                                 tutti__collective_name(a->collective), a->name, n);
                }
                set_free(&apart);
                set_free(&in_place);
            }
            shape_free(shapes[s]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_sub),
        cmocka_unit_test(test_hierarchical_degenerates),
        cmocka_unit_test(test_double_tree_is_fair),
        cmocka_unit_test(test_in_place_is_local),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
