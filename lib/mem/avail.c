/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Available memory, from /proc/meminfo and the control groups' files.
 *
 * Every control group, from this process's own group up to the root, may have a limit, so all
 * limits are read. Groups without files are skipped, because in a container the path in
 * /proc/self/cgroup may be the host's path. Reading all files takes about 50 us.
 */
#include "mem/avail.h"

#include "base/compiler.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The files with the numbers of one version of control groups. */
typedef struct {
    const char *mount, *limit, *usage;
    const char *reclaimable; /* name in memory.stat: the part of `usage` that can be reclaimed */
} cgroup_version_t;

static const cgroup_version_t version_1 = { "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                            "memory.usage_in_bytes", "total_inactive_file" };
static const cgroup_version_t version_2 = { "/sys/fs/cgroup", "memory.max", "memory.current",
                                            "inactive_file" };

/* Read the number in the line "name number" or "name: number" of a file. If name is NULL, the whole
   file is one number. Returns 0 if there is no number. */
static int read_number(const char *path, const char *name, uint64_t *ret_number)
{
    size_t length = name == NULL ? 0 : strlen(name);
    FILE *file = fopen(path, "re");
    char line[256];
    int found = 0;

    if (file == NULL)
        return 0;
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        const char *at = line + length;

        if (length > 0 && (strncmp(line, name, length) != 0 || strchr(": ", *at) == NULL))
            continue;
        found = sscanf(at + (*at == ':'), "%" SCNu64, ret_number) == 1;
    }
    fclose(file);
    return found;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t of_machine(const char *root)
{
    uint64_t available, swap = 0;
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (!read_number(path, "MemAvailable", &available))
        return UINT64_MAX;
    read_number(path, "SwapFree", &swap);
    return (available + swap) * 1024;
}

/* The memory that the group at `folder` has left. UINT64_MAX: its limit is "max", not a number. */
static uint64_t of_group(const cgroup_version_t *version, const char *folder)
{
    uint64_t limit, usage, reclaimable = 0;
    char path[PATH_MAX + 64];

    snprintf(path, sizeof(path), "%s/%s", folder, version->limit);
    if (!read_number(path, NULL, &limit))
        return UINT64_MAX;
    snprintf(path, sizeof(path), "%s/%s", folder, version->usage);
    if (!read_number(path, NULL, &usage))
        return UINT64_MAX;
    snprintf(path, sizeof(path), "%s/memory.stat", folder);
    read_number(path, version->reclaimable, &reclaimable);
    return minus(limit, minus(usage, reclaimable));
}

/* The least memory left in the group at `path` and in all groups above it. */
static uint64_t of_groups(const char *root, const cgroup_version_t *version, const char *path)
{
    uint64_t least = UINT64_MAX;
    char folder[PATH_MAX];
    size_t mount;

    mount = (size_t)snprintf(folder, sizeof(folder), "%s%s", root, version->mount);
    if (mount + strlen(path) >= sizeof(folder))
        return least;
    strcpy(folder + mount, path);
    for (;;) {
        uint64_t left = of_group(version, folder);
        char *slash;

        least = TUTTI__MIN(least, left);
        slash = strrchr(folder + mount, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

/* Is the name in a list whose entries are separated by commas? */
static int is_listed(const char *list, const char *name)
{
    size_t bytes = strlen(name);

    while (strncmp(list, name, bytes) != 0 || (list[bytes] != ',' && list[bytes] != '\0')) {
        list = strchr(list, ',');
        if (list == NULL)
            return 0;
        list++;
    }
    return 1;
}

/* Lines of /proc/self/cgroup: "0::PATH" is version 2; "4:memory:PATH" and "4:hugetlb,memory:PATH"
   are version 1. */
static uint64_t of_my_groups(const char *root)
{
    uint64_t least = UINT64_MAX;
    char line[PATH_MAX];
    FILE *file;

    snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
    file = fopen(line, "re");
    if (file == NULL)
        return least;
    while (fgets(line, sizeof(line), file) != NULL) {
        const cgroup_version_t *version = strncmp(line, "0::", 3) == 0 ? &version_2 : &version_1;
        char *names = strchr(line, ':'), *path = names == NULL ? NULL : strchr(names + 1, ':');
        uint64_t left;

        if (path == NULL)
            continue;
        *path++ = '\0';
        if (version == &version_1 && !is_listed(names + 1, "memory"))
            continue;
        path[strcspn(path, "\n")] = '\0';
        left = of_groups(root, version, path);
        least = TUTTI__MIN(least, left);
    }
    fclose(file);
    return least;
}

uint64_t tutti__mem_available(const char *root, const char **ret_who)
{
    uint64_t machine = of_machine(root), groups = of_my_groups(root);

    *ret_who = groups < machine ? "its control group" : "this machine";
    return TUTTI__MIN(machine, groups);
}
