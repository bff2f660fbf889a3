/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The L3 cache, NUMA node and package of a rank, from the kernel's files below /sys.
 *
 * A rank has a place of a kind if one of the kernel's lists has all processors of the rank's mask.
 * L3 and package come from the files of one processor of the mask. A place's number is its lowest
 * processor, so ranks that read the lists independently use equal numbers. A place is -1 if the
 * kernel has no data. Many ARM processors have no L3 in these files, and a sandbox has no data.
 *
 * Each tutti_init reads about ten small files once, in 0.1 ms. hwloc takes 2 to 15 ms (detect.c).
 */
#include "topo/topo.h"

#include "base/compiler.h"

#include <fcntl.h>
#include <hwloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LIST_BYTES = 4096, /* the kernel's files are not longer */
    PATH_BYTES = 1024,
    MOST_CACHES = 16 /* caches of one processor */
};

/* Read the file that fmt names into text[LIST_BYTES]. Returns 0 if the file cannot be read. */
TUTTI__PRINTF(2, 3) static int read_text(char *text, const char *fmt, ...)
{
    char path[PATH_BYTES];
    va_list args;
    ssize_t n;
    int fd;

    va_start(args, fmt);
    n = vsnprintf(path, sizeof(path), fmt, args);
    va_end(args);
    fd = n < (ssize_t)sizeof(path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    n = read(fd, text, LIST_BYTES - 1);
    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return n > 0;
}

/* The lowest processor of the list, if the list includes the mask; otherwise -1. */
static int32_t lowest_of(const char *list, hwloc_const_bitmap_t mask, hwloc_bitmap_t scratch)
{
    if (hwloc_bitmap_list_sscanf(scratch, list) != 0 || !hwloc_bitmap_isincluded(mask, scratch))
        return -1;
    return hwloc_bitmap_first(scratch);
}

/* Read a text such as "32768K" as bytes. The kernel uses no other unit. */
static uint64_t read_kib(const char *text)
{
    return strtoull(text, NULL, 10) * 1024;
}

static int32_t find_l3(const char *sysfs, hwloc_const_bitmap_t mask, hwloc_bitmap_t scratch,
                       uint64_t *ret_bytes)
{
    int cpu = hwloc_bitmap_first(mask);
    char text[LIST_BYTES];

    for (int i = 0; i < MOST_CACHES; i++) {
        if (!read_text(text, "%s/devices/system/cpu/cpu%d/cache/index%d/level", sysfs, cpu, i))
            break;
        if (strcmp(text, "3") != 0)
            continue;
        if (read_text(text, "%s/devices/system/cpu/cpu%d/cache/index%d/size", sysfs, cpu, i))
            *ret_bytes = read_kib(text);
        if (read_text(text, "%s/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", sysfs, cpu,
                      i))
            return lowest_of(text, mask, scratch);
    }
    return -1;
}

/* The NUMA node that has all processors of the mask. Numbers of nodes may have gaps. */
static int32_t find_node(const char *sysfs, hwloc_const_bitmap_t mask, hwloc_bitmap_t scratch)
{
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    char text[LIST_BYTES];
    int32_t found = -1;

    if (nodes != NULL && read_text(text, "%s/devices/system/node/online", sysfs) &&
        hwloc_bitmap_list_sscanf(nodes, text) == 0 && hwloc_bitmap_last(nodes) >= 0) {
        for (int node = hwloc_bitmap_first(nodes); found < 0 && node >= 0;
             node = hwloc_bitmap_next(nodes, node))
            if (read_text(text, "%s/devices/system/node/node%d/cpulist", sysfs, node))
                found = lowest_of(text, mask, scratch);
    }
    hwloc_bitmap_free(nodes);
    return found;
}

static int32_t find_package(const char *sysfs, hwloc_const_bitmap_t mask, hwloc_bitmap_t scratch)
{
    int cpu = hwloc_bitmap_first(mask);
    char text[LIST_BYTES];

    /* Before Linux 5.3, only the second of these files exists. */
    if (read_text(text, "%s/devices/system/cpu/cpu%d/topology/package_cpus_list", sysfs, cpu) ||
        read_text(text, "%s/devices/system/cpu/cpu%d/topology/core_siblings_list", sysfs, cpu))
        return lowest_of(text, mask, scratch);
    return -1;
}

void tutti__topo_locate(const char *sysfs, tutti__topo_facts_t *facts)
{
    hwloc_bitmap_t mask = hwloc_bitmap_alloc(), scratch = hwloc_bitmap_alloc();
    int rc = -1;

    for (int i = 0; i < TUTTI__PLACES; i++)
        facts->place[i] = -1;
    facts->l3_bytes = 0;
    if (mask != NULL && scratch != NULL)
        rc = strncmp(facts->cpus, "0x", 2) == 0 ? hwloc_bitmap_taskset_sscanf(mask, facts->cpus)
                                                : hwloc_bitmap_list_sscanf(mask, facts->cpus);
    if (rc == 0 && hwloc_bitmap_weight(mask) > 0) {
        facts->place[TUTTI__PLACE_L3] = find_l3(sysfs, mask, scratch, &facts->l3_bytes);
        facts->place[TUTTI__PLACE_NODE] = find_node(sysfs, mask, scratch);
        facts->place[TUTTI__PLACE_PACKAGE] = find_package(sysfs, mask, scratch);
    }
    hwloc_bitmap_free(mask);
    hwloc_bitmap_free(scratch);
}
