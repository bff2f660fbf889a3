/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Available memory, read from invented machines below a temporary folder.
 */
#include "mem/avail.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMINFO "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable:     500 kB\nSwapFree: 100 kB\n"

static char root[PATH_MAX];

static int make_root(void **state)
{
    const char *tmp = P_tmpdir;

    (void)state;
    snprintf(root, sizeof(root), "%s/tutti_avail_XXXXXX", tmp);
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    char command[PATH_MAX + 16];

    (void)state;
    snprintf(command, sizeof(command), "rm -r '%s'", root);
    return system(command);
}

/* Write root/path, and make its folders. */
static void put(const char *path, const char *text)
{
    char full[2 * PATH_MAX];
    FILE *file;

    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void expect(uint64_t bytes, const char *who)
{
    const char *seen;

    assert_int_equal(tutti__mem_available(root, &seen), bytes);
    assert_string_equal(seen, who);
}

static void test_nothing_known(void **state)
{
    (void)state;
    expect(UINT64_MAX, "this machine");
}

static void test_machine_alone(void **state)
{
    (void)state;
    put("proc/meminfo", MEMINFO);
    expect(600 * 1024, "this machine");
    put("proc/self/cgroup", "0::/\n");
    expect(600 * 1024, "this machine");
}

static void test_groups_version_2(void **state)
{
    (void)state;
    put("proc/meminfo", MEMINFO);
    put("proc/self/cgroup", "0::/job/step\n");
    put("sys/fs/cgroup/job/step/memory.max", "max\n");
    put("sys/fs/cgroup/job/step/memory.current", "1000\n");
    expect(600 * 1024, "this machine");

    /* The limit of a parent group applies as well. Memory that is easily freed does not count as
       used. */
    put("sys/fs/cgroup/job/memory.max", "300000\n");
    put("sys/fs/cgroup/job/memory.current", "100000\n");
    expect(200000, "its control group");
    put("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file_x 7\ninactive_file 50000\n");
    expect(250000, "its control group");

    /* If a group uses more than its limit, 0 is available, not a large number. */
    put("sys/fs/cgroup/job/memory.current", "900000\n");
    expect(0, "its control group");
}

static void test_groups_version_1_in_a_container(void **state)
{
    (void)state;
    put("proc/meminfo", MEMINFO);
    /* In a container, the path is that of the host, but only the root of the mount exists. */
    put("proc/self/cgroup", "9:cpu,memory_x:/docker/x\n0::/nothing\n");
    expect(600 * 1024, "this machine");
    put("proc/self/cgroup", "9:cpu,cpuacct:/docker/x\n8:memory:/docker/x\n0::/nothing\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "200000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "150000\n");
    put("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 10000\n");
    expect(60000, "its control group");
    /* The controller may share its mount with others. */
    put("proc/self/cgroup", "8:hugetlb,memory:/docker/x\n");
    expect(60000, "its control group");
}

static void test_this_machine(void **state)
{
    const char *who;

    (void)state;
    assert_true(tutti__mem_available("", &who) > 1 << 20);
}

#define on_own_root(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_own_root(test_nothing_known),     on_own_root(test_machine_alone),
        on_own_root(test_groups_version_2),  on_own_root(test_groups_version_1_in_a_container),
        cmocka_unit_test(test_this_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
