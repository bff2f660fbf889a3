/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The set-up of a machine's shared memory: the real machine.c on all ranks, interleaved at random,
 * with one failure at each possible place.
 *
 * Collective steps are modelled: a rank continues when all have come to the same step. So if a rank
 * omits a step, takes another one, or leaves early, the others wait for ever. A step may fail on
 * all ranks or on one rank. Further checks: all ranks end with the same status, ranks without a
 * failure have mapped each other's memory, and no descriptor is left.
 *
 * The test of the test: if a rank has failed and does not report it, the checks detect this.
 */
#include "boot/machine.h"
#include "entries.h"
#include "unit/boot/explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 3

/* The place of the failure. */
typedef enum {
    NOWHERE,
    ARENA,
    DOOR,
    BELL,
   EXCHANGE, /* fails on all ranks */
    SHARE,
    MAP,
    LAYOUT, /* the rank has another layout */
    PLACES
} place_t;

typedef struct {
    uint32_t machine_of[RANKS];
    tutti__topo_t topo[RANKS];
    place_t place;
    uint32_t culprit;
    int silent; /* planted: the failed rank does not report it */
    /* The collective step that each rank is in, counted from 1, and its kind. */
    uint32_t step[RANKS];
    int kind[RANKS];
    tutti_status_t said[RANKS];
    const void *mine[RANKS];
    const int *fds[RANKS];
    tutti_status_t status[RANKS];
    tutti__machine_t *machine[RANKS];
    int is_wrong;
} set_t;

static set_t set;

static uint32_t me(void)
{
    return (uint32_t)ex_me();
}

static int fails(place_t place)
{
    return set.place == place && (set.culprit == me() || place == EXCHANGE);
}

/* ---- collective steps ---- */

typedef enum {
    AGREE = 1,
    GATHER,
    PASS
} kind_t;

static int have_all_come(void *arg)
{
    uint32_t self = *(uint32_t *)arg;

    for (uint32_t r = 0; r < RANKS; r++) {
        if (set.kind[self] == PASS && set.machine_of[r] != set.machine_of[self])
            continue;
        if (set.step[r] < set.step[self])
            return 0;
        set.is_wrong |= set.step[r] == set.step[self] && set.kind[r] != set.kind[self];
    }
    return 1;
}

static void come(kind_t kind)
{
    uint32_t self = me();

    set.kind[self] = (int)kind;
    set.step[self]++;
    ex_await(have_all_come, &self);
}

const tutti__topo_t *__wrap_tutti__boot_topo(const tutti__boot_t *boot);
tutti_status_t __wrap_tutti__boot_agree(tutti__boot_t *boot, tutti_status_t mine);
tutti_status_t __wrap_tutti__boot_allgather(tutti__boot_t *boot, const void *mine, size_t bytes,
                                            void *ret_all);
tutti_status_t __wrap_tutti__boot_share_fds(tutti__boot_t *boot, const int *fds, uint32_t nfds,
                                            int *ret_fds, int *ret_pids);

const tutti__topo_t *__wrap_tutti__boot_topo(const tutti__boot_t *boot)
{
    (void)boot;
    return &set.topo[me()];
}

/* Two modelled steps, so that no rank begins its next step before all ranks have the result of this
   one. */
tutti_status_t __wrap_tutti__boot_agree(tutti__boot_t *boot, tutti_status_t mine)
{
    tutti_status_t worst = TUTTI_OK;

    (void)boot;
    if (set.silent && mine != TUTTI_OK)
        return mine;
    set.said[me()] = mine;
    come(AGREE);
    for (uint32_t r = 0; r < RANKS && worst == TUTTI_OK; r++)
        worst = set.said[r];
    come(AGREE);
    return worst;
}

tutti_status_t __wrap_tutti__boot_allgather(tutti__boot_t *boot, const void *mine, size_t bytes,
                                            void *ret_all)
{
    (void)boot;
    set.mine[me()] = mine;
    come(GATHER);
    for (uint32_t r = 0; r < RANKS; r++)
        memcpy((char *)ret_all + r * bytes, set.mine[r], bytes);
    come(GATHER);
    return fails(EXCHANGE) ? TUTTI_ERR_PEER_LOST : TUTTI_OK;
}

tutti_status_t __wrap_tutti__boot_share_fds(tutti__boot_t *boot, const int *fds, uint32_t nfds,
                                            int *ret_fds, int *ret_pids)
{
    uint32_t n = 0;

    (void)boot;
    set.fds[me()] = fds;
    come(PASS);
    for (uint32_t r = 0; r < RANKS; r++) {
        if (set.machine_of[r] != set.machine_of[me()])
            continue;
        for (uint32_t i = 0; i < nfds; i++)
            ret_fds[n * nfds + i] = fails(SHARE) ? -1 : dup(set.fds[r][i]);
        ret_pids[n++] = getpid();
    }
    come(PASS);
    return fails(SHARE) ? TUTTI_ERR_NO_MEMORY : TUTTI_OK;
}

/* ---- steps of one rank ---- */

tutti_status_t __wrap_tutti__arena_create_among(uint32_t nranks, tutti__arena_t **ret_arena);
tutti_status_t __wrap_tutti__arena_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr);
tutti_status_t __wrap_tutti__arena_map(int fd, size_t span, int pid, char *base, char **ret_base);
int __wrap_eventfd(unsigned count, int flags);
tutti_status_t __real_tutti__arena_create_among(uint32_t nranks, tutti__arena_t **ret_arena);
tutti_status_t __real_tutti__arena_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr);
tutti_status_t __real_tutti__arena_map(int fd, size_t span, int pid, char *base, char **ret_base);
int __real_eventfd(unsigned count, int flags);

tutti_status_t __wrap_tutti__arena_create_among(uint32_t nranks, tutti__arena_t **ret_arena)
{
    weak_point();
    return fails(ARENA) ? TUTTI_ERR_NO_MEMORY : __real_tutti__arena_create_among(nranks, ret_arena);
}

tutti_status_t __wrap_tutti__arena_alloc(tutti__arena_t *arena, size_t bytes, void **ret_ptr)
{
    return fails(DOOR) ? TUTTI_ERR_NO_MEMORY : __real_tutti__arena_alloc(arena, bytes, ret_ptr);
}

int __wrap_eventfd(unsigned count, int flags)
{
    return fails(BELL) ? -1 : __real_eventfd(count, flags);
}

tutti_status_t __wrap_tutti__arena_map(int fd, size_t span, int pid, char *base, char **ret_base)
{
    tutti_status_t status;

    weak_point();
    if (fails(MAP))
        return TUTTI_ERR_NO_MEMORY;
    status = __real_tutti__arena_map(fd, span, pid, base, ret_base);
    if (status == TUTTI_OK && fails(LAYOUT))
        ((tutti__status_page_t *)*ret_base)->layout++;
    return status;
}

/* ---- runs ---- */

static void begin(void *arg)
{
    (void)arg;
    for (uint32_t r = 0; r < RANKS; r++) {
        tutti__topo_t *topo = &set.topo[r];

        topo->size = RANKS;
        topo->rank = r;
        topo->machine_of = set.machine_of;
        topo->machine_ranks = 0;
        for (uint32_t p = 0; p < RANKS; p++)
            topo->machine_ranks += set.machine_of[p] == set.machine_of[r];
        set.step[r] = 0;
        set.machine[r] = NULL;
    }
}

static void open_machine(void *arg)
{
    (void)arg;
    set.status[me()] = tutti__machine_open(NULL, &set.machine[me()]);
}

/* All ranks have the same status, and each has mapped the status pages of its peers. */
static int is_right(const void *arg)
{
    int right = !set.is_wrong;

    (void)arg;
    for (uint32_t r = 0; r < RANKS; r++) {
        const tutti__machine_t *m = set.machine[r];

        right &= set.status[r] == set.status[0];
        right &= (set.status[r] == TUTTI_OK) == (set.place == NOWHERE);
        right &= (m != NULL) == (set.status[r] == TUTTI_OK);
        for (uint32_t i = 0; m != NULL && i < m->nranks; i++)
            right &= m->page[i] == set.machine[m->rank[i]]->page[set.machine[m->rank[i]]->me];
    }
    for (uint32_t r = 0; r < RANKS; r++)
        tutti__machine_close(set.machine[r]);
    return right;
}

static void explore(const uint32_t *machine_of, place_t place, uint32_t culprit,
                    ex_result_t *ret_result)
{
    static const ex_limits_t limits = { .switches = 1000, .random = 300 };
    static const ex_play_t play = { .n = RANKS,
                                    .begin = begin,
                                    .actor = { open_machine, open_machine, open_machine },
                                    .is_right = is_right };

    memcpy(set.machine_of, machine_of, sizeof(set.machine_of));
    set.place = place;
    set.culprit = culprit;
    set.is_wrong = 0;
    ex_explore(&play, &limits, ret_result);
}

/* Ranks that hang never free their memory. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:tutti__machine_open";
}

static const uint32_t one_machine[RANKS] = { 0, 0, 0 }, two_machines[RANKS] = { 0, 1, 0 };

static void check(const uint32_t *machine_of)
{
    int before = open_files();

    for (int place = NOWHERE; place < PLACES; place++) {
        for (uint32_t culprit = 0; culprit < RANKS; culprit++) {
            ex_result_t result;

            /* A rank alone on its machine maps no other memory. */
            if (place >= MAP && machine_of[culprit] == 1)
                continue;
            explore(machine_of, (place_t)place, culprit, &result);
            if (result.deadlocks > 0 || result.wrong > 0)
                fail_msg("rank %u, place %d: of %llu runs %llu hang, %llu are wrong", culprit,
                         place, (unsigned long long)result.runs,
                         (unsigned long long)result.deadlocks, (unsigned long long)result.wrong);
        }
    }
    assert_int_equal(open_files(), before);
}

static void test_one_machine(void **state)
{
    (void)state;
    check(one_machine);
}

static void test_two_machines(void **state)
{
    (void)state;
    check(two_machines);
}

static void test_silent(void **state)
{
    ex_result_t result;

    (void)state;
    set.silent = 1;
    explore(one_machine, BELL, 1, &result);
    set.silent = 0;
    assert_int_equal(result.deadlocks, result.runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_machine),
        cmocka_unit_test(test_two_machines),
        cmocka_unit_test(test_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
