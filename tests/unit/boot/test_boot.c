/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening: the values that all ranks agree on, the shape of the tree, and the common error text.
 */
#include "crowd.h"

#include "base/status.h"
#include "boot/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 8 };
static char long_path[TUTTI__CONF_PATH];

/* The lowest rank on rank r's pretended host. */
static uint32_t leader_of(const crowd_rank_t *me, uint32_t r)
{
    return me->hosts > 1 ? r % me->hosts : 0;
}

static void check_tree(const crowd_rank_t *me, const tutti__boot_t *boot)
{
    uint32_t leader = leader_of(me, me->rank), link = 0;

    if (me->rank == 0) {
        CHECK_EQUAL(tutti__side_parent(boot), -1);
    } else {
        uint32_t parent = leader == me->rank ? 0 : leader;

        CHECK_EQUAL(tutti__side_parent(boot), 0);
        CHECK_EQUAL(tutti__side_rank(boot, 0), parent);
        CHECK_EQUAL(tutti__side_is_local(boot, 0), leader != me->rank);
        link = 1;
    }
    /* Children: local ones first, then the leaders of other hosts. */
    for (uint32_t r = 1; r < me->size && leader == me->rank; r++) {
        if (r == me->rank || leader_of(me, r) != me->rank)
            continue;
        CHECK_EQUAL(tutti__side_rank(boot, link), r);
        CHECK_EQUAL(tutti__side_is_local(boot, link++), 1);
    }
    for (uint32_t r = 1; r < me->size && me->rank == 0; r++) {
        if (leader_of(me, r) != r)
            continue;
        CHECK_EQUAL(tutti__side_rank(boot, link), r);
        CHECK_EQUAL(tutti__side_is_local(boot, link++), 0);
    }
    CHECK_EQUAL(tutti__side_links(boot), link);
}

static void open_and_look(const crowd_rank_t *me)
{
    uint32_t mine = 100 + me->rank, all[CROWD_MAX];
    const tutti__topo_t *topo;
    tutti__boot_t *boot;
    tutti__conf_t conf;
    tutti__meet_t meet;

    crowd_conf(me, &conf);
    conf.shared.fusion_bytes = 4096 + me->rank;
    if (me->rank == 0)
        strcpy(conf.shared.dump, long_path);
    else
        strcpy(conf.shared.trace, "/not/rank/0's");
    crowd_meet(me, &meet);
    CHECK_EQUAL(tutti__boot_open(&meet, &conf, &boot), TUTTI_OK);
    CHECK_EQUAL(conf.shared.fusion_bytes, 4096); /* rank 0's value */
    CHECK_EQUAL(strcmp(conf.shared.dump, long_path), 0);
    CHECK_EQUAL(strcmp(conf.shared.trace, ""), 0);
    topo = tutti__boot_topo(boot);
    CHECK_EQUAL(topo->rank, me->rank);
    CHECK_EQUAL(topo->size, me->size);
    CHECK_EQUAL(topo->machine_ranks, me->size);
    check_tree(me, boot);
    CHECK_EQUAL(tutti__boot_allgather(boot, &mine, sizeof(mine), all), TUTTI_OK);
    for (uint32_t r = 0; r < me->size; r++)
        CHECK_EQUAL(all[r], 100 + r);
    CHECK_EQUAL(tutti__boot_agree(boot, TUTTI_OK), TUTTI_OK);
    tutti__boot_close(boot);
}

static void test_open(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(long_path) - 1; i++)
        long_path[i] = (char)('a' + i % 23);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        for (uint32_t hosts = 1; hosts <= 3 && hosts <= sizes[i]; hosts++) {
            crowd_fork(sizes[i], hosts, open_and_look, NULL);
            crowd_threads(sizes[i], hosts, open_and_look, NULL);
        }
    }
}

/* Ranks 1 and 3 fail: all ranks get rank 1's status and text. */
static void disagree(const crowd_rank_t *me)
{
    tutti__boot_t *boot = crowd_open(me);
    tutti_status_t mine = TUTTI_OK;

    if (me->rank == 1)
        mine = tutti__fail(TUTTI_ERR_NO_MEMORY, "no room for the piano");
    if (me->rank == 3)
        mine = tutti__fail(TUTTI_ERR_SYSTEM, "no chairs");
    CHECK_EQUAL(tutti__boot_agree(boot, mine), TUTTI_ERR_NO_MEMORY);
    CHECK_ERROR("rank 1: no room for the piano");
    CHECK_EQUAL(tutti__boot_agree(boot, TUTTI_OK), TUTTI_OK);
    tutti__boot_close(boot);
}

static void test_agree(void **state)
{
    (void)state;
    crowd_fork(4, 2, disagree, NULL);
    crowd_threads(4, 1, disagree, NULL);
}

/* A meeting that changes rank 2's first block. */
typedef struct {
    tutti__meet_t meet;
    size_t offset;
    uint32_t add;
} forged_t;

static tutti_status_t forge(void *ctx, const void *mine, size_t bytes, void *ret_all,
                            uint64_t timeout_ms)
{
    forged_t *forged = ctx;
    tutti_status_t status;
    char *copy = malloc(bytes);
    uint32_t word;

    memcpy(copy, mine, bytes);
    memcpy(&word, copy + forged->offset, sizeof(word));
    word += forged->add;
    memcpy(copy + forged->offset, &word, sizeof(word));
    status = forged->meet.allgather(forged->meet.ctx, copy, bytes, ret_all, timeout_ms);
    free(copy);
    return status;
}

static void close_forged(void *ctx)
{
    forged_t *forged = ctx;

    forged->meet.close(forged->meet.ctx);
}

/* Offsets of a hello's first fields; they are the same in all versions. */
enum {
    AT_MAGIC = 0,
    AT_LAYOUT = 8,
    AT_VERSION = 12
};

static void forge_hello(const crowd_rank_t *me, size_t offset, const char *text)
{
    tutti__boot_t *boot;
    tutti__conf_t conf;
    forged_t forged;
    tutti__meet_t meet;

    crowd_conf(me, &conf);
    crowd_meet(me, &forged.meet);
    meet = forged.meet;
    if (me->rank == 2) {
        forged.offset = offset;
        forged.add = 0x10000;
        meet.ctx = &forged;
        meet.allgather = forge;
        meet.close = close_forged;
    }
    CHECK_EQUAL(tutti__boot_open(&meet, &conf, &boot), TUTTI_ERR_ABI);
    CHECK_ERROR(text);
}

static void other_version(const crowd_rank_t *me)
{
    char text[64];

    snprintf(text, sizeof(text), "rank 2 runs Tutti %u.%d.%d", TUTTI_VERSION_MAJOR + 1,
             TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
    forge_hello(me, AT_VERSION, text);
}

static void other_layout(const crowd_rank_t *me)
{
    char text[64];

    snprintf(text, sizeof(text), "(layout %d), rank 0 runs", TUTTI__BOOT_LAYOUT + 0x10000);
    forge_hello(me, AT_LAYOUT, text);
}

static void other_program(const crowd_rank_t *me)
{
    forge_hello(me, AT_MAGIC, "rank 2 runs something that is no Tutti");
}

static void test_version(void **state)
{
    (void)state;
    crowd_fork(3, 0, other_version, NULL);
    crowd_threads(3, 0, other_version, NULL);
    crowd_threads(3, 0, other_layout, NULL);
    crowd_threads(3, 0, other_program, NULL);
}

/* Rank 0 is told to use an interface that does not exist. */
static void no_interface(const crowd_rank_t *me)
{
    tutti__boot_t *boot;
    tutti__conf_t conf;
    tutti__meet_t meet;

    crowd_conf(me, &conf);
    if (me->rank == 0)
        strcpy(conf.interface, "nosuch0");
    crowd_meet(me, &meet);
    CHECK_EQUAL(tutti__boot_open(&meet, &conf, &boot), TUTTI_ERR_UNSUPPORTED);
    CHECK_ERROR("rank 0: TUTTI_INTERFACE=nosuch0");
}

static void named_interface(const crowd_rank_t *me)
{
    tutti__boot_t *boot;
    tutti__conf_t conf;
    tutti__meet_t meet;

    crowd_conf(me, &conf);
    strcpy(conf.interface, "lo");
    crowd_meet(me, &meet);
    CHECK_EQUAL(tutti__boot_open(&meet, &conf, &boot), TUTTI_OK);
    tutti__boot_close(boot);
}

static void test_interface(void **state)
{
    (void)state;
    crowd_threads(4, 2, no_interface, NULL);
    crowd_fork(4, 2, named_interface, NULL);
}

/* Rank 2 meets and leaves at once. */
static void leave_early(const crowd_rank_t *me)
{
    tutti__boot_t *boot;
    tutti__conf_t conf;
    tutti__meet_t meet;

    crowd_conf(me, &conf);
    crowd_meet(me, &meet);
    if (me->rank == 2) {
        meet.close(meet.ctx);
        return;
    }
    CHECK_EQUAL(tutti__boot_open(&meet, &conf, &boot), TUTTI_ERR_PEER_LOST);
    CHECK_ERROR("rank 2");
}

static void test_leave_early(void **state)
{
    (void)state;
    crowd_fork(4, 1, leave_early, NULL);
    crowd_threads(4, 2, leave_early, NULL);
}

/* No descriptor stays open, whether opening succeeded or failed. */
static void open_often(const crowd_rank_t *me)
{
    int before = open_files();

    for (int i = 0; i < 3; i++) {
        crowd_rank_t again = *me;

        snprintf(again.name, sizeof(again.name), "%.40s-%d", me->name, i);
        tutti__boot_close(crowd_open(&again));
    }
    CHECK_EQUAL(open_files(), before);
    no_interface(me);
    CHECK_EQUAL(open_files(), before);
}

static void test_no_leak(void **state)
{
    int before = open_files();

    (void)state;
    crowd_fork(4, 2, open_often, NULL);
    crowd_threads(5, 2, open_and_look, NULL);
    crowd_threads(3, 0, other_version, NULL);
    assert_int_equal(open_files(), before);
    tutti__boot_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),        cmocka_unit_test(test_agree),
        cmocka_unit_test(test_version),     cmocka_unit_test(test_interface),
        cmocka_unit_test(test_leave_early), cmocka_unit_test(test_no_leak),
    };

    return cmocka_run_group_tests_name("boot/boot", tests, NULL, NULL);
}
