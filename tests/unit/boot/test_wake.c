/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * No wake-up is lost. The test runs the real code that sleeps and wakes, in all interleavings with
 * few switches.
 *
 *   Lane 0: ranks publish words and sleep on each other's (machine.c, the node's publish). With
 *     sequentially consistent memory no wake-up is lost. On x86 one can be lost, by design: the
 *     publisher has no fence between its store and its read of `waiters` (machine.h). Only in this
 *     case a bounded sleep has to end by itself. The test checks that this end suffices, and that
 *     with a fence no wake-up would be lost.
 *   Lane 1: the engine's thread and a caller work and sleep (token.h, steps.c, thread.c); a peer
 *     publishes and rings. In this lane no wake-up may be lost, whichever store is delayed. Also if
 *     this rank has submitted nothing, and a message begins a bucket in a lane.
 *
 * The test of the test: with any fence removed, and with other planted bugs, the checks find a rank
 * that sleeps for ever.
 */
#include "boot/machine.h"
#include "long.h"
#include "engine/steps.h"
#include "watch/watch_inside.h"
#include "node/shm/shm.h"
#include "unit/boot/explore.h"

#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define RANKS 3
#define SLEEP_US 2000

typedef struct {
    uint32_t nranks, rounds;
    tutti__status_page_t page[RANKS];
    tutti__status_page_t *doors[RANKS];
    tutti__word_t word[RANKS]; /* each rank's progress */
    tutti__machine_t machine[RANKS];
    tutti__shm_t shm[RANKS];
    uint32_t index[RANKS];
    int doorbell[RANKS];
    void (*publish)(tutti__shm_t *shm, uint32_t lane, tutti__word_t *word, uint32_t value);
    void (*sleep)(const tutti__machine_t *machine, uint32_t peer, tutti__word_t *word,
                  uint32_t value, uint32_t timeout_us);
    /* For lane 1: the engine of rank 0. */
    tutti__engine_t engine;
    tutti__watcher_t watch;
    tutti__conf_shared_t conf;
    tutti__exec_env_t exec;
    void *(*thread)(void *arg);
    tutti__word_t message; /* 1: a message that begins a bucket is in the socket; 2: it was read */
} house_t;

static house_t house;

static void begin(void *arg)
{
    house_t *h = arg;

    memset(h->page, 0, sizeof(h->page));
    memset(h->word, 0, sizeof(h->word));
    for (uint32_t r = 0; r < RANKS; r++) {
        h->doors[r] = &h->page[r];
        h->index[r] = r;
        h->doorbell[r] = (int)r;
        h->machine[r] = (tutti__machine_t){
            .nranks = h->nranks, .me = r, .page = h->doors, .doorbell = h->doorbell
        };
        h->shm[r].machine = &h->machine[r];
        h->shm[r].nlocal = h->nranks;
        h->shm[r].me = r;
        h->shm[r].local_to_machine = h->index;
    }
}

/* ---- lane 0: words ---- */

/* As a direct call does: publish this rank's progress, and wait until all other ranks have come. */
static void rank_main(void *arg)
{
    house_t *h = arg;
    uint32_t me = (uint32_t)ex_me();

    for (uint32_t round = 1; round <= h->rounds; round++) {
        h->publish(&h->shm[me], 0, &h->word[me], round);
        for (uint32_t p = 0; p < h->nranks; p++) {
            uint32_t value;

            while (value = tutti__load_acquire(&h->word[p]), p != me && value < round)
                h->sleep(&h->machine[me], p, &h->word[p], value, SLEEP_US);
        }
    }
}

static void explore_words(uint32_t nranks, uint32_t rounds, const ex_limits_t *limits,
                          ex_result_t *ret_result)
{
    ex_play_t play = { .n = (int)nranks,
                       .begin = begin,
                       .actor = { rank_main, rank_main, rank_main },
                       .arg = &house };

    house.nranks = nranks;
    house.rounds = rounds;
    house.publish = house.publish ? house.publish : tutti__shm_publish;
    house.sleep = house.sleep ? house.sleep : tutti__machine_sleep;
    ex_explore(&play, limits, ret_result);
    house.publish = NULL;
    house.sleep = NULL;
}

static int whole; /* 0: the quick form */

static void expect_none_lost(const char *what, const ex_result_t *result)
{
    if (result->deadlocks > 0 || result->timed_out > 0 || result->runs < 100)
        fail_msg("%s: of %llu runs %llu hang, %llu need a sleep that ends by itself", what,
                 (unsigned long long)result->runs, (unsigned long long)result->deadlocks,
                 (unsigned long long)result->timed_out);
    print_message("%s: %llu runs\n", what, (unsigned long long)result->runs);
}

static void test_words_in_order(void **state)
{
    static const ex_limits_t three = { .switches = 2 };
    ex_limits_t all = { .switches = whole ? 4 : 3 };
    ex_limits_t some = { .switches = 1000, .random = whole ? 100000 : 1000 };
    ex_result_t result;

    (void)state;
    explore_words(2, 2, &all, &result);
    expect_none_lost("two ranks", &result);
    explore_words(3, 1, &three, &result);
    expect_none_lost("three ranks", &result);
    explore_words(3, 3, &some, &result);
    expect_none_lost("at random", &result);
}

/* With delayed stores a run may hang unless a bounded sleep ends by itself. With this end, each run
   completes. */
static void test_words_late(void **state)
{
    static const ex_limits_t endless = { .switches = 3, .delays = 2, .first = 1 };
    ex_limits_t bounded = { .switches = whole ? 3 : 2, .delays = whole ? 2 : 1, .timeouts = 1 };
    ex_result_t result;

    (void)state;
    explore_words(2, 2, &bounded, &result);
    assert_int_equal(result.deadlocks, 0);
    assert_true(result.timed_out > 0);
    assert_int_equal(result.timed_out, result.excused);
    print_message("%llu of %llu runs need a sleep that ends\n",
                  (unsigned long long)result.timed_out, (unsigned long long)result.runs);
    explore_words(2, 2, &endless, &result);
    assert_true(result.deadlocks > 0);
}

/* The function publish with a fence, which the real one does not have. */
static void publish_fenced(tutti__shm_t *shm, uint32_t lane, tutti__word_t *word, uint32_t value)
{
    (void)lane;
    tutti__store_release(word, value);
    tutti__fence();
    tutti__machine_written(shm->machine, word);
}

static void test_words_fenced(void **state)
{
    ex_limits_t late = { .switches = whole ? 3 : 2, .delays = whole ? 2 : 1 };
    ex_result_t result;

    (void)state;
    house.publish = publish_fenced;
    explore_words(2, 2, &late, &result);
    expect_none_lost("fenced", &result);
}

static void publish_backwards(tutti__shm_t *shm, uint32_t lane, tutti__word_t *word, uint32_t value)
{
    (void)lane;
    tutti__machine_written(shm->machine, word);
    tutti__store_release(word, value);
}

static void sleep_in_secret(const tutti__machine_t *machine, uint32_t peer, tutti__word_t *word,
                            uint32_t value, uint32_t timeout_us)
{
    (void)machine;
    (void)peer;
    (void)timeout_us;
    syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void sleep_at_own_door(const tutti__machine_t *machine, uint32_t peer, tutti__word_t *word,
                              uint32_t value, uint32_t timeout_us)
{
    (void)peer;
    tutti__machine_sleep(machine, machine->me, word, value, timeout_us);
}

static void sleep_on_news(const tutti__machine_t *machine, uint32_t peer, tutti__word_t *word,
                          uint32_t value, uint32_t timeout_us)
{
    value = tutti__load_acquire(word);
    tutti__machine_sleep(machine, peer, word, value, timeout_us);
}

/* There is only one round, because a second round would wake ranks that were not woken in the
   first. */
static void test_words_planted(void **state)
{
    static const ex_limits_t plain = { .switches = 3, .first = 1 };
    static const ex_limits_t blind = { .switches = 3, .first = 1, .futex_blind = 1 };
    ex_result_t result;

    (void)state;
    explore_words(2, 1, &plain, &result);
    assert_int_equal(result.deadlocks, 0);
    explore_words(2, 1, &blind, &result);
    assert_true(result.deadlocks > 0);
    house.publish = publish_backwards;
    explore_words(2, 1, &plain, &result);
    assert_true(result.deadlocks > 0);
    house.sleep = sleep_in_secret;
    explore_words(2, 1, &plain, &result);
    assert_true(result.deadlocks > 0);
    house.sleep = sleep_at_own_door;
    explore_words(2, 1, &plain, &result);
    assert_true(result.deadlocks > 0);
    house.sleep = sleep_on_news;
    explore_words(2, 1, &plain, &result);
    assert_true(result.deadlocks > 0);
}

/* ---- lane 1: doorbells ---- */

/* In this test, a step of the engine only reads the peer's word. */
int __wrap_tutti__links_poll(tutti__watch_t *watch, int side);
int __wrap_tutti__agreed_step(tutti__agreement_t *a);
int __wrap_tutti__lanes_step(tutti__lanes_t *lanes, tutti__who_t who, int *ret_left);
void __wrap_tutti__links_flush(tutti__watch_t *watch);
void __wrap_tutti__stalls_check(tutti__stalls_t *stalls);

int __wrap_tutti__links_poll(tutti__watch_t *watch, int side)
{
    (void)watch;
    if (!side || tutti__load_acquire(&house.message) != 1)
        return 0;
    tutti__store_release(&house.message, 2);
    tutti__owned(&house.engine)->lanes.in_flight = 1;
    return 1;
}

int __wrap_tutti__agreed_step(tutti__agreement_t *a)
{
    (void)a;
    return 0;
}

int __wrap_tutti__lanes_step(tutti__lanes_t *lanes, tutti__who_t who, int *ret_left)
{
    uint32_t round = tutti__load_acquire(&house.word[1]);

    (void)who;
    *ret_left = 0;
    if (round == house.word[0] || (house.message > 0 && lanes->in_flight == 0))
        return 0;
    house.word[0] = round;
    if (round < house.rounds)
        return 1;
    lanes->in_flight = 0;
    atomic_store(&house.engine.pending.ended, atomic_load(&house.engine.pending.submitted));
    return 1;
}

/* Other ranks may run between the last poll and the release of the token. */
void __wrap_tutti__links_flush(tutti__watch_t *watch)
{
    (void)watch;
    weak_point();
}

void __wrap_tutti__stalls_check(tutti__stalls_t *stalls)
{
    (void)stalls;
}

int weak_thread(pthread_t *ret_thread, void *(*fn)(void *), void *arg)
{
    (void)arg;
    *ret_thread = pthread_self();
    house.thread = fn;
    return 0;
}

static void begin_engine(void *arg)
{
    house_t *h = arg;

    begin(h);
    h->message = 0;
    memset(&h->engine, 0, sizeof(h->engine));
    h->engine.env.machine = &h->machine[0];
    h->engine.env.conf = &h->conf;
    h->engine.env.exec = &h->exec;
    memset(&h->watch, 0, sizeof(h->watch));
    h->engine.env.watch = &h->watch.base;
    h->engine.size = 2;
    h->engine.has_thread = 1;
    h->engine.epfd = h->doorbell[0];
}

static void thread_main(void *arg)
{
    house_t *h = arg;

    h->thread(&h->engine);
}

static int is_idle(void *arg)
{
    tutti__engine_t *e = arg;

    return e->pending.submitted == e->pending.ended;
}

/* A caller submits, and finally stops the thread. */
static void caller_main(void *arg)
{
    house_t *h = arg;
    tutti__engine_t *e = &h->engine;

    atomic_store(&e->pending.submitted, 1);
    tutti__engine_kick(e, TUTTI__STEP_BRIEF);
    ex_await(is_idle, e);
    atomic_store(&e->stop, 1);
    tutti__engine_ring_self(e);
}

static void peer_main(void *arg)
{
    house_t *h = arg;

    for (uint32_t round = 1; round <= h->rounds; round++)
        tutti__shm_publish(&h->shm[1], 1, &h->word[1], round);
}

static int is_bucket_done(void *arg)
{
    house_t *h = arg;

    return h->message == 2 && h->word[0] == h->rounds;
}

/* A caller that has submitted nothing takes a step, and finally stops the thread. */
static void idle_caller_main(void *arg)
{
    house_t *h = arg;

    tutti__engine_kick(&h->engine, TUTTI__STEP_BRIEF);
    ex_await(is_bucket_done, h);
    atomic_store(&h->engine.stop, 1);
    tutti__engine_ring_self(&h->engine);
}

/* A peer sends a message, which wakes the thread, and then publishes. */
static void sending_peer_main(void *arg)
{
    house_t *h = arg;

    tutti__store_release(&h->message, 1);
    tutti__machine_ring_always(&h->machine[1], 0);
    peer_main(h);
}

enum {
    THREAD,
    CALLER,
    PEER
};

static void explore_engine(ex_play_t *play, uint32_t rounds, const ex_limits_t *limits,
                           ex_result_t *ret_result)
{
    play->n = 3;
    play->begin = begin_engine;
    play->arg = &house;
    house.nranks = 2;
    house.rounds = rounds;
    begin_engine(&house);
    assert_int_equal(tutti__thread_start(&house.engine), TUTTI_OK);
    ex_explore(play, limits, ret_result);
}

static void explore_bells(uint32_t rounds, const ex_limits_t *limits, ex_result_t *ret_result)
{
    ex_play_t play = { .actor = { thread_main, caller_main, peer_main } };

    explore_engine(&play, rounds, limits, ret_result);
}

static void test_bucket_of_peers(void **state)
{
    ex_play_t play = { .actor = { thread_main, idle_caller_main, sending_peer_main } };
    ex_limits_t limits = { .switches = whole ? 3 : 2 };
    ex_result_t result;

    (void)state;
    explore_engine(&play, 1, &limits, &result);
    expect_none_lost("a bucket of peers", &result);
}

static void test_bells(void **state)
{
    ex_limits_t all = { .switches = whole ? 2 : 1, .delays = whole ? 2 : 1 };
    ex_limits_t some = { .switches = 1000, .delays = 1000, .random = whole ? 100000 : 1000 };
    ex_result_t result;

    (void)state;
    explore_bells(1, &all, &result);
    expect_none_lost("one round", &result);
    explore_bells(2, &all, &result);
    expect_none_lost("two rounds", &result);
    explore_bells(3, &some, &result);
    expect_none_lost("at random", &result);
}

static void test_bells_planted(void **state)
{
    static const ex_limits_t planted[] = {
        { .switches = 1, .delays = 1, .first = 1, .no_fence = 1 << PEER },
        { .switches = 1, .delays = 1, .first = 1, .no_fence = 1 << THREAD | 1 << CALLER },
        { .switches = 1, .first = 1, .bells_forgotten = 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(planted) / sizeof(planted[0]); i++) {
        ex_result_t result;

        explore_bells(1, &planted[i], &result);
        if (result.deadlocks == 0)
            fail_msg("mistake %zu is not found in %llu runs", i, (unsigned long long)result.runs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_in_order),  cmocka_unit_test(test_words_late),
        cmocka_unit_test(test_words_fenced),    cmocka_unit_test(test_words_planted),
        cmocka_unit_test(test_bells),           cmocka_unit_test(test_bells_planted),
        cmocka_unit_test(test_bucket_of_peers),
    };

    whole = test_is_long("99 of 100 random interleavings, and each search's last switch or delay");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
