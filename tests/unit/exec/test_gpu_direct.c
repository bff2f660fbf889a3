/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU-direct messages: the allreduces of test_device.c over a transport that accepts device memory,
 * with the same results and bits; host calls between them; and a cancelled call.
 */
#define main main_of_test_device
int main_of_test_device(void);
#include "test_device.c"
#undef main

/* Messages between hosts are GPU-direct; a chunk takes several. */
static const devteam_options_t direct = { .slot_bytes = 512,
                                          .chunk_bytes = 2048,
                                          .stage_bytes = 16384,
                                          .credits = 2,
                                          .buffer_bytes = 65536,
                                          .gpu_direct_bytes = 256,
                                          .gpu_direct_slots = 10 };

static void test_gpu_direct(void **state)
{
    devteam_options_t long_messages = direct;

    (void)state;
    shape_all(shape_of(0), &direct, devteam_turns);
    shape_all(shape_of(2), &direct, devteam_threads);
    shape_all(shape_of(5), &direct, devteam_turns);
    long_messages.gpu_direct_bytes = 2048;
    shape_all(shape_of(4), &long_messages, devteam_turns);
}

/* Values of any floating point type from 1 to 2, or integers. */
static void fill_bits(devteam_t *team, tutti_dtype_t dtype)
{
    size_t esize = tutti_dtype_bytes(dtype);
    uint32_t seed = 1;

    devteam_settle(team);
    for (uint32_t r = 0; r < team->world.n; r++) {
        for (size_t i = 0; i < team->options.buffer_bytes; i++)
            team->pinned[r][i] = (char)random_next(&seed);
        for (size_t i = esize; i <= team->options.buffer_bytes && dtype >= TUTTI_FLOAT16;
             i += esize) {
            team->pinned[r][i - 1] = 0x3f;
            team->pinned[r][i - 2] |= (char)0xf0;
        }
    }
}

/* The same bits as through the host, for all types that a device can sum. */
static void test_gpu_direct_bits(void **state)
{
    static const tutti_dtype_t types[] = { TUTTI_INT8,    TUTTI_UINT8,   TUTTI_INT32,
                                           TUTTI_UINT64,  TUTTI_FLOAT16, TUTTI_BFLOAT16,
                                           TUTTI_FLOAT32, TUTTI_FLOAT64 };
    static char staged[8][16000], have[16000];
    static devteam_t team;
    set_t set = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical"),
                  .on_device = 1 };

    (void)state;
    for (size_t i = 0; i < 6; i += whole ? 1 : 5) {
        set.shape = shape_of(i);
        set.sub = set.algorithm->subs[i % 3];
        set_build(&set);
        devteam_open(&team, (shape_t *)(uintptr_t)set.shape, &direct);
        for (size_t t = 0; t < 2 * sizeof(types) / sizeof(*types); t++) {
            tutti_dtype_t dtype = types[t / 2];
            size_t count = 16000 / tutti_dtype_bytes(dtype);

            for (int is_gpu_direct = 0; is_gpu_direct < 2; is_gpu_direct++) {
                for (uint32_t r = 0; r < team.world.n; r++)
                    team.device[r].gpu_direct_bytes = is_gpu_direct ? direct.gpu_direct_bytes : 0;
                fill_bits(&team, dtype);
                devteam_set(&team, set.scheds, count, dtype, t % 2 ? TUTTI_AVG : TUTTI_SUM, 0);
                devteam_turns(&team);
                assert_int_equal(far_messages() > 0, is_gpu_direct && team.status[0] == TUTTI_OK &&
                                                         set.shape->shape.nhosts > 1);
                for (uint32_t r = 0; r < team.world.n; r++) {
                    assert_int_equal(team.status[r], team.status[0]);
                    pretend_read(is_gpu_direct ? have : staged[r], team.out[r], 16000);
                    if (is_gpu_direct)
                        assert_memory_equal(have, staged[r], 16000);
                    if (team.status[r] != TUTTI_OK)
                        tutti__run_cancel(&team.run[r]);
                }
            }
        }
        set_free(&set);
        devteam_close(&team);
    }
}

static void test_gpu_direct_host_between(void **state)
{
    (void)state;
    host_between(&direct);
}

/* Step a call of two ranks with one chunk until the only unfinished work is that rank 0's device
   adds a message. Returns 0 if the call has ended before that. */
static int run_to_sum(devteam_t *team, const set_t *set)
{
    const tutti__run_t *run = &team->run[0];
    unsigned open = 3;

    devteam_set(team, set->scheds, 512, TUTTI_INT32, TUTTI_SUM, 0);
    devteam_settle(team);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(pretend_device()->use(r), TUTTI_OK);
        assert_int_equal(tutti__run_start(&team->run[r], set->scheds[r], &team->call[r]), TUTTI_OK);
    }
    for (int r = 0; open != 0; r = !r) {
        tutti__hint_t hint;
        tutti_status_t status = TUTTI_OK;

        assert_int_equal(pretend_device()->use(r), TUTTI_OK);
        if (open >> r & 1)
            status = tutti__run_step(&team->run[r], &hint);
        if (status != TUTTI__AGAIN)
            open &= ~(1u << r);
        if (r == 0 && status == TUTTI__AGAIN && run->stream[1].started && !run->stream[2].started &&
            !run->stream[3].started &&
            run->sched->ops[run->stream[1].pc].kind == TUTTI__RECV_REDUCE &&
            pretend_device()->query(team->device[0].lane[2].copied[1]) == TUTTI__AGAIN)
            return 1;
    }
    return 0;
}

/* Cancel a call while the device adds a message. When the run is over, the addition has ended. */
static void test_gpu_direct_cancel(void **state)
{
    static devteam_t team;
    shape_t *shape = shape_even(2, 1);
    set_t set = { .algorithm = tutti__algorithm_find(TUTTI__ALLREDUCE, "hierarchical"),
                  .sub = "recursive_doubling",
                  .shape = shape,
                  .on_device = 1 };
    int tries = 0;

    (void)state;
    set_build(&set);
    devteam_open(&team, shape, &direct);
    fill(&team, 16384, TUTTI_INT32);
    pretend_delays(1, 20000);
    while (!run_to_sum(&team, &set)) /* this thread was not scheduled in time */
        assert_true(++tries < 20);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(pretend_device()->use(r), TUTTI_OK);
        tutti__run_cancel(&team.run[r]);
        for (int s = 0; s < TUTTI__SCHED_STREAMS; s++)
            assert_int_equal(pretend_device()->query(team.device[r].lane[2].copied[s]), TUTTI_OK);
    }
    set_free(&set);
    devteam_close(&team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpu_direct),
        cmocka_unit_test(test_gpu_direct_bits),
        cmocka_unit_test(test_gpu_direct_host_between),
        cmocka_unit_test(test_gpu_direct_cancel),
    };

    whole = test_is_long(LEFT_OUT ", and most shapes for types");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
