/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Places and groups of ranks on recorded machines.
 *
 * A machine is a text in tests/machines: after an empty line, one line for each cache, node and
 * package with its processors. `l2` and `l3` are the largest caches of their processors; `siblings`
 * is a package under the name that old kernels use. Each machine becomes a tree of files like /sys.
 */
#include "topo/topo.h"

#include <ftw.h>
#include <hwloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MOST_RANKS = 256
};

/* ---- a machine as files ---- */

static char root[] = "/tmp/tutti-machine-XXXXXX";

static void make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

__attribute__((format(printf, 2, 3))) static void put(const char *text, const char *fmt, ...)
{
    char path[256];
    int n = snprintf(path, sizeof(path), "%s/devices/system/", root);
    va_list args;
    FILE *file;

    va_start(args, fmt);
    vsnprintf(path + n, sizeof(path) - (size_t)n, fmt, args);
    va_end(args);
    file = fopen(path, "w");
    if (file == NULL) {
        make_parents(path);
        file = fopen(path, "w");
    }
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
}

/* Make the folder with the caches of a processor on this line: two caches of the first level, and
   one of each further level. */
static void put_caches(int number, int last, const char *cpus)
{
    put("1", "cpu/caches%d/index0/level", number);
    put("1", "cpu/caches%d/index1/level", number);
    put("2", "cpu/caches%d/index2/level", number);
    put("512K", "cpu/caches%d/index2/size", number);
    if (last == 3) {
        put("3", "cpu/caches%d/index3/level", number);
        put("32768K", "cpu/caches%d/index3/size", number);
    }
    put(cpus, "cpu/caches%d/index%d/shared_cpu_list", number, last);
}

/* All processors of a line share their files. */
static void put_links(const char *cpus, const char *name, const char *folder, int number)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    char to[64], link[128];
    unsigned cpu;

    assert_int_equal(hwloc_bitmap_list_sscanf(set, cpus), 0);
    snprintf(to, sizeof(to), "../%s%d", folder, number);
    hwloc_bitmap_foreach_begin(cpu, set)
        snprintf(link, sizeof(link), "%s/devices/system/cpu/cpu%u", root, cpu);
    mkdir(link, 0700);
    snprintf(link, sizeof(link), "%s/devices/system/cpu/cpu%u/%s", root, cpu, name);
    assert_int_equal(symlink(to, link), 0);
    hwloc_bitmap_foreach_end();
    hwloc_bitmap_free(set);
}

/* The `number`th line of a machine; collects the existing nodes. */
static void put_line(int number, const char *word, const char *cpus, hwloc_bitmap_t nodes)
{
    int which;

    if (sscanf(word, "node%d", &which) == 1) {
        hwloc_bitmap_set(nodes, (unsigned)which);
        put(cpus, "node/node%d/cpulist", which);
    } else if (sscanf(word, "l%d", &which) == 1) {
        put_caches(number, which, cpus);
        put_links(cpus, "cache", "caches", number);
    } else {
        put(cpus, "cpu/topology%d/%s", number,
            strcmp(word, "siblings") == 0 ? "core_siblings_list" : "package_cpus_list");
        put_links(cpus, "topology", "topology", number);
    }
}

static void unpack(const char *machine)
{
    const char *top = getenv("srcdir");
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    char line[512], path[512], word[16], cpus[256];
    int in_head = 1, number = 0;
    FILE *file;

    strcpy(root, "/tmp/tutti-machine-XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof(path), "%s/tests/machines/%s.txt", top != NULL ? top : ".", machine);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        cpus[0] = '\0';
        if (!in_head && sscanf(line, "%15s %255s", word, cpus) >= 1)
            put_line(number++, word, cpus, nodes);
        in_head &= line[0] != '\n';
    }
    fclose(file);
    hwloc_bitmap_list_snprintf(line, sizeof(line), nodes);
    put(line, "node/online");
    hwloc_bitmap_free(nodes);
}

static int drop_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void drop(void)
{
    assert_int_equal(nftw(root, drop_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- places ---- */

static tutti__topo_facts_t located(const char *cpus)
{
    tutti__topo_facts_t facts = { .machine_id = "m", .host_id = "h" };

    strcpy(facts.cpus, cpus);
    tutti__topo_locate(root, &facts);
    return facts;
}

static void expect_places(const char *cpus, int l3, int node, int package)
{
    tutti__topo_facts_t f = located(cpus);

    if (f.place[TUTTI__PLACE_L3] != l3 || f.place[TUTTI__PLACE_NODE] != node ||
        f.place[TUTTI__PLACE_PACKAGE] != package)
        fail_msg("processors %s: L3 %d, node %d, package %d", cpus, f.place[TUTTI__PLACE_L3],
                 f.place[TUTTI__PLACE_NODE], f.place[TUTTI__PLACE_PACKAGE]);
}

static void test_places(void **state)
{
    (void)state;
    unpack("epyc");
    expect_places("0", 0, 0, 0);
    expect_places("70,198", 64, 64, 64);
    expect_places("8-15,136-143", 8, 0, 0);
    expect_places("7-8", -1, 0, 0);
    expect_places("0xff000000000000000000000000000000", 120, 64, 64);
    expect_places("63-64", -1, -1, -1);
    expect_places("0-255", -1, -1, -1);
    expect_places("256", -1, -1, -1);
    drop();
    unpack("xeon");
    expect_places("17", 0, 16, 0);
    expect_places("15-16", 0, -1, 0);
    expect_places("96-127", 32, -1, 32);
    drop();
    unpack("laptop");
    expect_places("0-7", 0, 0, 0);
    expect_places("5", 0, 0, 0);
    expect_places("", -1, -1, -1);
    expect_places("junk", -1, -1, -1);
    drop();
    unpack("altra");
    expect_places("159", -1, 80, 80);
    expect_places("79-80", -1, -1, -1);
    drop();
    unpack("container");
    expect_places("2-3", 0, 0, 0);
    expect_places("6-11", 6, 6, 0);
    expect_places("0-3,6-11", -1, -1, 0);
    expect_places("4", -1, -1, -1);
    drop();
    /* The recorded machine does not have these files any more. */
    expect_places("0", -1, -1, -1);
}

/* The size of the L3 cache is that of the rank's first processor. The places of its other
   processors have no effect. */
static void test_cache_size(void **state)
{
    (void)state;
    unpack("epyc");
    assert_int_equal(located("70,198").l3_bytes, 32 << 20);
    assert_int_equal(located("0-255").l3_bytes, 32 << 20);
    assert_int_equal(located("256").l3_bytes, 0);
    drop();
    unpack("altra");
    assert_int_equal(located("159").l3_bytes, 0);
    drop();
    assert_int_equal(located("0").l3_bytes, 0);
}

/* The ranks that share an L3 cache: the ranks on this machine with the same cache. If the rank's
   processors have several L3 caches: all ranks on this machine. */
static void test_cache_ranks(void **state)
{
    enum {
        SEATS = 6
    };
    static const char *cpus[SEATS] = { "0", "128-130", "8", "7-8", "64", "1" };
    static const uint32_t sharing[SEATS] = { 2, 2, 1, 5, 1, 1 };
    tutti__topo_facts_t facts[SEATS];

    (void)state;
    unpack("epyc");
    for (uint32_t i = 0; i < SEATS; i++)
        facts[i] = located(cpus[i]);
    drop();
    strcpy(facts[5].machine_id, "other");
    for (uint32_t i = 0; i < SEATS; i++) {
        tutti__topo_t *topo;

        assert_int_equal(tutti__topo_make(facts, SEATS, i, &topo), TUTTI_OK);
        assert_int_equal(topo->l3_ranks, sharing[i]);
        assert_int_equal(topo->l3_bytes, 32 << 20);
        tutti__topo_free(topo);
    }
}

/* ---- groups ---- */

/* Rank i has `width` processors from (i % cycle) * step + (i / cycle) * width; width 0: all. */
typedef struct {
    const char *machine;
    uint32_t ranks, cycle, step, width;
    uint32_t groups; /* required number of groups */
    uint32_t begins; /* ranks before the second group; 0: they alternate */
} seating_t;

static void make_facts(const seating_t *s, tutti__topo_facts_t *facts)
{
    for (uint32_t i = 0; i < s->ranks; i++) {
        uint32_t first = i % s->cycle * s->step + i / s->cycle * s->width;
        char cpus[32];

        snprintf(cpus, sizeof(cpus), "%u-%u", s->width > 0 ? first : 0,
                 s->width > 0 ? first + s->width - 1 : 255);
        facts[i] = located(cpus);
    }
}

static void expect_groups(const seating_t *s)
{
    static tutti__topo_facts_t facts[MOST_RANKS];
    uint32_t size[MOST_RANKS] = { 0 }, groups = 0;
    tutti__topo_t *topo;

    make_facts(s, facts);
    assert_int_equal(tutti__topo_make(facts, s->ranks, 0, &topo), TUTTI_OK);
    for (uint32_t i = 0; i < s->ranks; i++) {
        uint32_t g = topo->group_of[i];

        /* Groups are numbered by their lowest ranks. */
        assert_true(g <= groups);
        groups += g == groups;
        size[g]++;
        assert_true(size[g] <= TUTTI__TOPO_GROUP);
        if (s->begins == 0 && g != i % s->groups)
            fail_msg("%s, %u ranks: rank %u is in group %u", s->machine, s->ranks, i, g);
    }
    if (groups != s->groups || (s->begins > 0 && size[0] != s->begins))
        fail_msg("%s, %u ranks: %u groups, the first has %u", s->machine, s->ranks, groups,
                 size[0]);
    tutti__topo_free(topo);
}

static void test_groups(void **state)
{
    static const seating_t cases[] = {
        { "epyc", 128, 128, 1, 1, 16, 8 }, /* each rank has a core */
        { "epyc", 64, 16, 8, 1, 16, 0 },   /* L3 caches alternate */
        { "epyc", 16, 16, 8, 8, 2, 8 },    /* each rank has an L3: by node */
        { "epyc", 2, 2, 64, 64, 1, 2 },    /* a node each */
        { "epyc", 8, 2, 64, 16, 2, 0 },    /* each rank has two L3: by node */
        { "epyc", 9, 1, 0, 1, 2, 8 },      /* one rank beside a full group */
        { "epyc", 16, 16, 1, 0, 1, 16 },   /* not bound */
        { "epyc", 17, 17, 1, 0, 2, 8 },    /* not bound, too many ranks: cut */
        { "epyc", 100, 100, 1, 0, 7, 14 },
        { "xeon", 64, 64, 1, 1, 4, 16 }, /* an L3 of 32 is cut along nodes */
        { "xeon", 64, 4, 16, 1, 4, 0 },  /* in any order of ranks */
        { "xeon", 4, 4, 16, 16, 2, 2 },  /* each rank has a node, two per L3 */
        { "xeon", 2, 2, 32, 32, 1, 2 },
        { "laptop", 8, 8, 1, 1, 1, 8 },
        { "laptop", 24, 8, 1, 0, 2, 12 }, /* too many ranks for a group */
        { "altra", 32, 32, 5, 5, 2, 16 }, /* no L3: by node */
        { "altra", 160, 160, 1, 1, 10, 16 },
        { "container", 4, 2, 6, 1, 2, 0 },
        { "container", 4, 4, 1, 0, 1, 4 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (i == 0 || strcmp(cases[i].machine, cases[i - 1].machine) != 0)
            unpack(cases[i].machine);
        expect_groups(&cases[i]);
        if (i + 1 == sizeof(cases) / sizeof(cases[0]) ||
            strcmp(cases[i].machine, cases[i + 1].machine) != 0)
            drop();
    }
}

/* Some ranks are bound and some are not; each host has its own groups. */
static void test_mixed(void **state)
{
    static const char *const cpus[] = { "0", "8", "0-11", "1", "9", "0-11", "2", "3" };
    static const char *const hosts[] = { "a", "a", "a", "a", "a", "a", "b", "b" };
    static const uint32_t wanted[] = { 0, 1, 2, 0, 1, 2, 0, 0 };
    tutti__topo_facts_t facts[8];
    tutti__topo_t *topo;

    (void)state;
    unpack("container");
    for (int i = 0; i < 8; i++) {
        facts[i] = located(cpus[i]);
        strcpy(facts[i].host_id, hosts[i]);
    }
    drop();
    assert_int_equal(tutti__topo_make(facts, 8, 7, &topo), TUTTI_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(topo->group_of[i], wanted[i]);
    tutti__topo_free(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),      cmocka_unit_test(test_cache_size),
        cmocka_unit_test(test_cache_ranks), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_mixed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
