/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Places computed from metadata of invented machines. Also tests the metadata of this machine.
 */
#include "topo/topo.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void set(tutti__topo_facts_t *facts, const char *machine, const char *host, const char *cpus)
{
    memset(facts, 0, sizeof(*facts));
    strcpy(facts->machine_id, machine);
    strcpy(facts->host_id, host);
    strcpy(facts->cpus, cpus);
}

static tutti__topo_t *make(const tutti__topo_facts_t *facts, uint32_t size, uint32_t rank)
{
    tutti__topo_t *topo;

    assert_int_equal(tutti__topo_make(facts, size, rank, &topo), TUTTI_OK);
    assert_int_equal(topo->size, size);
    assert_int_equal(topo->rank, rank);
    return topo;
}

/* Conditions that hold for any metadata. */
static void check_lists(const tutti__topo_t *topo)
{
    uint32_t min_local = topo->size;

    assert_int_equal(topo->host_first[0], 0);
    assert_int_equal(topo->host_first[topo->nhosts], topo->size);
    for (uint32_t host = 0; host < topo->nhosts; host++) {
        uint32_t begin = topo->host_first[host], end = topo->host_first[host + 1];

        assert_true(begin < end);
        min_local = end - begin < min_local ? end - begin : min_local;
        for (uint32_t i = begin; i < end; i++) {
            uint32_t rank = topo->by_host[i];

            assert_int_equal(topo->host_of[rank], host);
            assert_int_equal(topo->local_of[rank], i - begin);
            assert_true(i == begin || topo->by_host[i - 1] < rank);
        }
        /* Hosts are numbered by their lowest ranks. */
        assert_true(host == 0 || topo->by_host[topo->host_first[host - 1]] < topo->by_host[begin]);
    }
    assert_int_equal(topo->min_local, min_local);
}

static void test_one_rank(void **state)
{
    tutti__topo_facts_t facts;
    tutti__topo_t *topo;

    (void)state;
    set(&facts, "m", "m", "5");
    topo = make(&facts, 1, 0);
    check_lists(topo);
    assert_int_equal(topo->nhosts, 1);
    assert_int_equal(topo->nmachines, 1);
    assert_int_equal(topo->min_local, 1);
    assert_int_equal(topo->machine_ranks, 1);
    assert_int_equal(topo->machine_cpus, 1);
    assert_false(topo->oversubscribed);
    tutti__topo_free(topo);
    tutti__topo_free(NULL);
}

/* Ranks are dealt in turn to three hosts, the last of which has fewer ranks. */
static void test_round_robin(void **state)
{
    static const char *const names[] = { "zebra", "lion", "ant" };
    static const uint32_t hosts[] = { 0, 1, 2, 0, 1, 0, 1 }, locals[] = { 0, 0, 0, 1, 1, 2, 2 };
    static const uint32_t by_host[] = { 0, 3, 5, 1, 4, 6, 2 };
    tutti__topo_facts_t facts[7];
    tutti__topo_t *topo;

    (void)state;
    for (int i = 0; i < 7; i++)
        set(&facts[i], names[hosts[i]], names[hosts[i]], "0-3");
    topo = make(facts, 7, 4);
    check_lists(topo);
    assert_int_equal(topo->nhosts, 3);
    assert_int_equal(topo->nmachines, 3);
    assert_int_equal(topo->min_local, 1);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(topo->host_of[i], hosts[i]);
        assert_int_equal(topo->machine_of[i], hosts[i]);
        assert_int_equal(topo->local_of[i], locals[i]);
        assert_int_equal(topo->by_host[i], by_host[i]);
    }
    assert_int_equal(topo->machine_ranks, 3);
    assert_int_equal(topo->machine_cpus, 4);
    tutti__topo_free(topo);
}

/* TUTTI_HOST_ID makes two hosts on each of two machines. The same name on both machines means two
   hosts. */
static void test_named_hosts(void **state)
{
    static const char *const hosts[] = { "b", "a", "a", "b", "a", "b" };
    static const char *const machines[] = { "x", "x", "y", "y", "x", "x" };
    static const uint32_t host_of[] = { 0, 1, 2, 3, 1, 0 }, machine_of[] = { 0, 0, 1, 1, 0, 0 };
    tutti__topo_facts_t facts[6];
    tutti__topo_t *topo;

    (void)state;
    for (int i = 0; i < 6; i++)
        set(&facts[i], machines[i], hosts[i], "0,1");
    topo = make(facts, 6, 5);
    check_lists(topo);
    assert_int_equal(topo->nhosts, 4);
    assert_int_equal(topo->nmachines, 2);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(topo->host_of[i], host_of[i]);
        assert_int_equal(topo->machine_of[i], machine_of[i]);
    }
    /* The ranks of all hosts of the machine count. */
    assert_int_equal(topo->machine_ranks, 4);
    assert_int_equal(topo->machine_cpus, 2);
    assert_true(topo->oversubscribed);
    tutti__topo_free(topo);
}

static void test_masks(void **state)
{
    static const struct {
        const char *first, *second;
        uint32_t cpus;
        int oversubscribed;
    } cases[] = { { "0", "1", 2, 0 },
                  { "0", "0", 1, 1 },
                  { "0-3", "2-5", 6, 0 },
                  { "0,2,4", "1", 4, 0 },
                  { "0x3", "2", 3, 0 },
                  { "0xf0000000", "0x1", 5, 0 },
                  { "", "", 1, 1 },
                  { "junk", "7", 1, 1 },
                  { "1000-1999", "0", 1001, 0 },
                  { "0x1,0x00000000", "", 1, 1 } };
    tutti__topo_facts_t facts[3];

    (void)state;
    set(&facts[2], "another", "another", "0-99");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tutti__topo_t *topo;

        set(&facts[0], "m", "m", cases[i].first);
        set(&facts[1], "m", "m", cases[i].second);
        topo = make(facts, 3, 1);
        assert_int_equal(topo->machine_ranks, 2);
        assert_int_equal(topo->machine_cpus, cases[i].cpus);
        assert_int_equal(topo->oversubscribed, cases[i].oversubscribed);
        tutti__topo_free(topo);
    }
}

/* Metadata are bytes from other processes, so their texts may lack the terminating 0. */
static void test_texts_without_end(void **state)
{
    tutti__topo_facts_t facts[2];
    tutti__topo_t *topo;

    (void)state;
    memset(facts, '1', sizeof(facts));
    facts[1].host_id[TUTTI__TOPO_TEXT - 1] = '2';
    topo = make(facts, 2, 0);
    check_lists(topo);
    assert_int_equal(topo->nhosts, 2);
    assert_int_equal(topo->nmachines, 1);
    tutti__topo_free(topo);
}

/* 4096 hosts of 16 ranks, in a random order. */
static void test_large_job(void **state)
{
    uint32_t size = 1 << 16;
    tutti__topo_facts_t *facts = calloc(size, sizeof(*facts));
    tutti__topo_t *topo;

    (void)state;
    for (uint32_t i = 0; i < size; i++) {
        char name[16];

        snprintf(name, sizeof(name), "n%u", i * 40503u % size / 16);
        set(&facts[i], name, name, "0-15");
    }
    topo = make(facts, size, 4711);
    check_lists(topo);
    assert_int_equal(topo->nhosts, size / 16);
    assert_int_equal(topo->nmachines, size / 16);
    assert_int_equal(topo->min_local, 16);
    assert_int_equal(topo->machine_ranks, 16);
    assert_false(topo->oversubscribed);
    tutti__topo_free(topo);
    free(facts);
}

static void test_detect(void **state)
{
    tutti__topo_facts_t facts, again, named;
    cpu_set_t mask, saved;
    int cpu = 0;
    char list[16];

    (void)state;
    assert_int_equal(tutti__topo_detect("", &facts), TUTTI_OK);
    assert_int_equal(tutti__topo_detect("", &again), TUTTI_OK);
    assert_memory_equal(&facts, &again, sizeof(facts));
    assert_int_equal(facts.pid, getpid());
    assert_string_equal(facts.host_id, facts.machine_id);
    assert_non_null(strchr(facts.machine_id, '/'));

    assert_int_equal(tutti__topo_detect("left", &named), TUTTI_OK);
    assert_string_equal(named.host_id, "left");
    assert_string_equal(named.machine_id, facts.machine_id);

    /* Bind this process to one processor. */
    assert_int_equal(sched_getaffinity(0, sizeof(saved), &saved), 0);
    while (!CPU_ISSET(cpu, &saved))
        cpu++;
    CPU_ZERO(&mask);
    CPU_SET(cpu, &mask);
    assert_int_equal(sched_setaffinity(0, sizeof(mask), &mask), 0);
    assert_int_equal(tutti__topo_detect("", &facts), TUTTI_OK);
    snprintf(list, sizeof(list), "%d", cpu);
    assert_string_equal(facts.cpus, list);
    assert_int_equal(sched_setaffinity(0, sizeof(saved), &saved), 0);
}

static void test_long_host_id(void **state)
{
    char text[TUTTI__TOPO_TEXT + 1];
    tutti__topo_facts_t facts;

    (void)state;
    memset(text, 'h', sizeof(text));
    text[TUTTI__TOPO_TEXT] = '\0';
    assert_int_equal(tutti__topo_detect(text, &facts), TUTTI_ERR_INVALID_ARGUMENT);
    text[TUTTI__TOPO_TEXT - 1] = '\0';
    assert_int_equal(tutti__topo_detect(text, &facts), TUTTI_OK);
    assert_string_equal(facts.host_id, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_round_robin),
        cmocka_unit_test(test_named_hosts),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_texts_without_end),
        cmocka_unit_test(test_large_job),
        cmocka_unit_test(test_detect),
        cmocka_unit_test(test_long_host_id),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
