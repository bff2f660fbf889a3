/* SPDX-License-Identifier: BSD-3-Clause */
/* The speed of the link to other hosts, read from a tree of files like /sys. */
#include "topo/topo.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/tutti-link-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void found(const char *interface, uint32_t mbps, uint32_t is_rdma)
{
    tutti__topo_facts_t facts = { .link_mbps = 1, .link_is_rdma = 1 };

    tutti__topo_find_link(root, interface, &facts);
    assert_int_equal(facts.link_mbps, mbps);
    assert_int_equal(facts.link_is_rdma, is_rdma);
}

static void test_interfaces(void **state)
{
    (void)state;
    found("", 0, 0); /* nothing at all */
    put("class/net/lo/speed", "400000\n");
    found("", 0, 0);
    put("class/net/br0/speed", "10000\n");
    found("", 10000, 0);
    put("class/net/eth0/speed", "1000\n");
    put("class/net/eth0/device/x", "");
    found("", 1000, 0); /* a card has precedence over a bridge */
    put("class/net/eth1/speed", "2500\n");
    put("class/net/eth1/device/x", "");
    put("class/net/eth2/speed", "-1\n");
    put("class/net/eth2/device/x", "");
    put("class/net/eth3/speed", "no number");
    found("", 2500, 0);
    found("eth0", 1000, 0);
    found("eth2", 2500, 0); /* the speed of eth2 is not known */
    found("../../../etc/passwd", 2500, 0);
}

static void test_rdma(void **state)
{
    (void)state;
    put("class/net/eth0/speed", "1000\n");
    put("class/net/eth0/device/x", "");
    put("class/infiniband/mlx5_1/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
    found("", 2500, 1);
    put("class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
    found("", 100000, 1);
    found("eth0", 1000, 0); /* the user has named it */
}

static tutti__topo_facts_t facts_of(const char *host, uint32_t mbps, uint32_t is_rdma)
{
    tutti__topo_facts_t facts = { .cpus = "0", .link_mbps = mbps, .link_is_rdma = is_rdma };

    snprintf(facts.host_id, sizeof(facts.host_id), "%s/boot", host);
    snprintf(facts.machine_id, sizeof(facts.machine_id), "%s/boot", host);
    return facts;
}

/* The slowest known link counts. RDMA counts only if all hosts have it. */
static void test_joined(void **state)
{
    tutti__topo_facts_t facts[] = { facts_of("a", 100000, 1), facts_of("b", 0, 1),
                                    facts_of("c", 25000, 1) };
    tutti__topo_t *topo;

    (void)state;
    assert_int_equal(tutti__topo_make(facts, 3, 0, &topo), TUTTI_OK);
    assert_int_equal(topo->link_mbps, 25000);
    assert_true(topo->link_is_rdma);
    tutti__topo_free(topo);
    facts[1].link_is_rdma = 0;
    facts[0].link_mbps = facts[2].link_mbps = 0;
    assert_int_equal(tutti__topo_make(facts, 3, 2, &topo), TUTTI_OK);
    assert_int_equal(topo->link_mbps, 0);
    assert_false(topo->link_is_rdma);
    tutti__topo_free(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_interfaces, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_rdma, make_root, remove_root),
        cmocka_unit_test(test_joined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
