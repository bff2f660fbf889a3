/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The schedule cache: schedules are built once, and proved if requested. Also tests schedules
 * between two ranks.
 */
#include "base/log.h"
#include "coll/cache.h"
#include "unit/base/capture.h"
#include "unit/coll/shapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

static const tutti__sched_t *get(tutti__cache_t *cache, const tutti__want_t *want, int in_place)
{
    const tutti__sched_t *sched = NULL;

    if (tutti__cache_get(cache, want, in_place, &sched) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return sched;
}

/* The same choice gives the same schedule. If requested, the schedules of every choice are
   proved. */
static void test_cache(void **state)
{
    tutti__want_t want = { TUTTI__BROADCAST, 8, 1, 0 };
    tutti__cache_t cache;
    const tutti__sched_t *first;
    shape_t *shape = shape_split(2, (uint32_t[]){ 3, 2 });

    (void)state;
    tutti__cache_init(&cache, &shape->shape, 0, NULL, 0, 2);
    first = get(&cache, &want, 0);
    assert_ptr_equal(get(&cache, &want, 0), first);
    want.bytes = 16;
    assert_ptr_equal(get(&cache, &want, 0), first);
    want.root = 2;
    assert_ptr_not_equal(get(&cache, &want, 0), first);
    want.root = 1;
    assert_ptr_equal(get(&cache, &want, 0), first);
    want.bytes = MIB;
    assert_string_equal(get(&cache, &want, 0)->name, "chain");
    for (int c = 0; c < TUTTI__COLLECTIVES; c++) {
        for (int i = 0; i < 8; i++) {
            want =
                (tutti__want_t){ (tutti__collective_t)c, i % 2 == 0 ? 8 : SIZE_MAX, 3, i / 2 % 2 };
            get(&cache, &want, i / 4);
        }
    }
    tutti__cache_fini(&cache);
    shape_free(shape);
}

static void test_cache_refuses(void **state)
{
    tutti__want_t want = { TUTTI__BROADCAST, 8, 0, 0 };
    const tutti__sched_t *sched = NULL;
    tutti__cache_t cache;
    shape_t *shape = shape_split(2, (uint32_t[]){ 3, 2 });

    (void)state;
    tutti__cache_init(&cache, &shape->shape, 0, "broadcast:node", 0, 0);
    assert_int_equal(tutti__cache_get(&cache, &want, 0, &sched), TUTTI_ERR_UNSUPPORTED);
    assert_null(sched);
    tutti__cache_fini(&cache);
    shape_free(shape);
}

static void log_begin(void)
{
    tutti__log_setup(TUTTI__LOG_INFO, 0);
    capture_begin();
}

/* The lines since log_begin must be these, after "info: ". */
static void log_end(const char *want_text)
{
    char text[4096], told[4096] = "";

    capture_end(text, sizeof(text));
    tutti__log_setup(TUTTI__LOG_WARN, -1);
    for (char *rest, *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *what = strstr(line, "info: ");

        strcat(told, what != NULL ? what + 6 : line);
        strcat(told, "\n");
    }
    assert_string_equal(told, want_text);
}

/* A choice is logged once for each range of sizes, not with each call. */
static void test_told(void **state)
{
    static const char forced[] =
        "allreduce:0-1k:ring,allreduce:1k-4k:direct,allreduce:4k-:ring,scan:chain";
    static const size_t sizes[] = { 8, 2000, 8, 4000, 16, 8000, 2000, 4096, 1 << 20, 8 };
    static const char want_text[] = "allreduce of 8 bytes: ring, TUTTI_ALGORITHM\n"
                                    "allreduce of 2000 bytes: direct, TUTTI_ALGORITHM\n"
                                    "allreduce of 8000 bytes: ring, TUTTI_ALGORITHM\n"
                                    "broadcast of 8 bytes: node, by the table: one host\n";
    shape_t *shape = shape_even(1, 4);
    tutti__cache_t cache;

    (void)state;
    tutti__cache_init(&cache, &shape->shape, 0, forced, 0, 0);
    log_begin();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        tutti__want_t want = { TUTTI__ALLREDUCE, sizes[i], 0, 0 };
        const tutti__sched_t *sched;

        for (int in_place = 0; in_place < 2; in_place++)
            if (tutti__cache_get(&cache, &want, in_place, &sched) != TUTTI_OK)
                break;
    }
    get(&cache, &(tutti__want_t){ TUTTI__BROADCAST, 8, 1, 0 }, 0);
    get(&cache, &(tutti__want_t){ TUTTI__BROADCAST, 8, 2, 0 }, 0);
    log_end(want_text);
    tutti__cache_fini(&cache);
    shape_free(shape);
}

/* Between hosts the log has the expected time, even if the algorithm is forced. */
static void test_expected(void **state)
{
    shape_t *shape = shape_even(4, 1);
    tutti__cache_t cache;

    (void)state;
    shape->shape.link =
        (tutti__cost_link_t){ .alpha_ns = 20000, .beta_ps = 8000, .slot_bytes = 65536 };
    tutti__cache_init(&cache, &shape->shape, 0, "alltoall:pairwise,gatherv:direct", 0, 0);
    log_begin();
    get(&cache, &(tutti__want_t){ TUTTI__GATHER, 65536, 0, 0 }, 0);
    get(&cache, &(tutti__want_t){ TUTTI__ALLTOALL, 65536, 0, 0 }, 0);
    get(&cache, &(tutti__want_t){ TUTTI__GATHERV, 0, 0, 0 }, 0);
    log_end("gather of 65536 bytes: direct, by cost, expected 427.0 us\n"
            "alltoall of 65536 bytes: pairwise, TUTTI_ALGORITHM, expected 468.2 us\n"
            "gatherv: direct, TUTTI_ALGORITHM\n");
    tutti__cache_fini(&cache);
    shape_free(shape);
}

static void test_sendrecv(void **state)
{
    const uint32_t nobody = UINT32_MAX;
    const tutti__sched_t *both = NULL, *again = NULL, *sched = NULL;
    tutti__cache_t cache;
    shape_t *shape = shape_even(16, 8);

    (void)state;
    tutti__cache_init(&cache, &shape->shape, 5, NULL, 0, 0);
    assert_int_equal(tutti__cache_sendrecv(&cache, 7, 9, &both), TUTTI_OK);
    assert_int_equal(both->nstreams, 2);
    assert_int_equal(both->sizes, TUTTI__BY_PAIR);
    assert_int_equal(both->nchans, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(both->chans[i].stream, 0);
    assert_int_equal(tutti__cache_sendrecv(&cache, 7, nobody, &sched), TUTTI_OK);
    assert_int_equal(sched->nstreams, 1);
    assert_int_equal(sched->ops[1].kind, TUTTI__SEND);
    assert_int_equal(tutti__cache_sendrecv(&cache, nobody, 9, &sched), TUTTI_OK);
    assert_int_equal(sched->nstreams, 1);
    assert_int_equal(sched->ops[1].kind, TUTTI__RECV);
    assert_int_equal(sched->chans[0].peer, 9);
    assert_int_equal(tutti__cache_sendrecv(&cache, nobody, nobody, &sched), TUTTI_OK);
    assert_int_equal(sched->nops, 0);
    assert_int_equal(tutti__cache_sendrecv(&cache, 5, 5, &sched), TUTTI_OK);
    assert_int_equal(sched->ops[0].kind, TUTTI__COPY);
    assert_int_equal(tutti__cache_sendrecv(&cache, 5, 6, &sched), TUTTI_ERR_INVALID_ARGUMENT);
    for (uint32_t dest = 0; dest < 128; dest++) {
        if (dest != 5)
            assert_int_equal(tutti__cache_sendrecv(&cache, dest, (dest + 7) % 5, &sched), TUTTI_OK);
    }
    assert_int_equal(tutti__cache_sendrecv(&cache, 7, 9, &again), TUTTI_OK);
    assert_ptr_equal(again, both);
    tutti__cache_fini(&cache);
    shape_free(shape);
}

/* One stream sends, and the other one receives. sends: the channel's stream that sends. */
static void is_heads(const tutti__sched_t *sched, uint32_t peer, uint32_t sends)
{
    assert_int_equal(sched->nstreams, 2);
    assert_int_equal(sched->nchans, 2);
    for (uint32_t i = 0; i < sched->nops; i++) {
        const tutti__op_t *op = &sched->ops[i];

        if (op->kind != TUTTI__SEND && op->kind != TUTTI__RECV)
            continue;
        assert_int_equal(sched->chans[op->chan].peer, peer);
        assert_int_equal(sched->chans[op->chan].stream, op->kind == TUTTI__SEND ? sends : !sends);
    }
}

static void test_heads(void **state)
{
    const uint32_t nobody = UINT32_MAX;
    const tutti__sched_t *heads = NULL, *sched = NULL;
    tutti__cache_t cache;
    shape_t *shape = shape_even(16, 8);

    (void)state;
    tutti__cache_init(&cache, &shape->shape, 5, NULL, 0, 0);
    assert_int_equal(tutti__cache_heads(&cache, 7, nobody, &heads), TUTTI_OK);
    is_heads(heads, 7, 0);
    assert_int_equal(tutti__cache_heads(&cache, nobody, 7, &sched), TUTTI_OK);
    is_heads(sched, 7, 1);
    assert_int_equal(tutti__cache_heads(&cache, 5, nobody, &sched), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti__cache_heads(&cache, 7, 9, &sched), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti__cache_sendrecv(&cache, 7, nobody, &sched), TUTTI_OK);
    assert_ptr_not_equal(sched, heads);
    assert_int_equal(tutti__cache_heads(&cache, 7, nobody, &sched), TUTTI_OK);
    assert_ptr_equal(sched, heads);
    tutti__cache_fini(&cache);
    shape_free(shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache),    cmocka_unit_test(test_cache_refuses),
        cmocka_unit_test(test_told),     cmocka_unit_test(test_expected),
        cmocka_unit_test(test_sendrecv), cmocka_unit_test(test_heads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
