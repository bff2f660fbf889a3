/* SPDX-License-Identifier: BSD-3-Clause */
/* This host as tutti_info shows it: hardware, limits, features of the kernel. */
#include "info/info.h"

#include "api/info.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define CPUS "/sys/devices/system/cpu"

/* From Linux 5.3 and 5.11 on; the numbers are the same on all architectures. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

const char *info_read(char *text, size_t room, const char *format, ...)
{
    char path[512];
    va_list args;
    FILE *from;

    va_start(args, format);
    vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    text[0] = '\0';
    from = fopen(path, "re");
    if (from == NULL)
        return text;
    if (fgets(text, (int)room, from) == NULL)
        text[0] = '\0';
    fclose(from);
    text[strcspn(text, "\n")] = '\0';
    return text;
}

/* The value of a line such as "model name : AMD EPYC" in /proc/cpuinfo, or "Seccomp: 0" in
   /proc/self/status; "" if there is no such line. */
static const char *find_line(const char *path, const char *name, char *text, size_t room)
{
    FILE *from = fopen(path, "re");
    char line[512];

    text[0] = '\0';
    while (from != NULL && text[0] == '\0' && fgets(line, sizeof(line), from) != NULL) {
        const char *colon = strchr(line, ':');

        if (colon == NULL || strncmp(line, name, strlen(name)) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, room, "%s", colon + 1 + strspn(colon + 1, " \t"));
    }
    if (from != NULL)
        fclose(from);
    return text;
}

/* ---- hardware ---- */

/* The number of different cores, and of different packages, of the online processors. */
static void count_cores(unsigned *ret_cores, unsigned *ret_packages)
{
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    struct {
        int package, core;
    } *seen = calloc((size_t)cpus, sizeof(*seen));

    *ret_cores = *ret_packages = 0;
    for (long cpu = 0; cpu < cpus && seen != NULL; cpu++) {
        char core[32], package[32];
        int is_new_core = 1, is_new_package = 1;

        info_read(core, sizeof(core), CPUS "/cpu%ld/topology/core_id", cpu);
        info_read(package, sizeof(package), CPUS "/cpu%ld/topology/physical_package_id", cpu);
        if (core[0] == '\0')
            continue;
        for (unsigned i = 0; i < *ret_cores; i++) {
            is_new_package &= seen[i].package != atoi(package);
            is_new_core &= seen[i].package != atoi(package) || seen[i].core != atoi(core);
        }
        if (is_new_core) {
            seen[*ret_cores].package = atoi(package);
            seen[(*ret_cores)++].core = atoi(core);
        }
        *ret_packages += (unsigned)is_new_package;
    }
    free(seen);
}

/* The first processor's caches, in the kernel's notation: "L1d 32K". */
static void put_caches(info_t *info)
{
    char all[256] = "", level[16], type[32], size[32], shared[128];
    size_t used = 0;

    for (int i = 0; i < 8; i++) {
        info_read(level, sizeof(level), CPUS "/cpu0/cache/index%d/level", i);
        info_read(type, sizeof(type), CPUS "/cpu0/cache/index%d/type", i);
        info_read(size, sizeof(size), CPUS "/cpu0/cache/index%d/size", i);
        info_read(shared, sizeof(shared), CPUS "/cpu0/cache/index%d/shared_cpu_list", i);
        if (size[0] == '\0' || strcmp(type, "Instruction") == 0 || used >= sizeof(all))
            continue;
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%sL%s %s (processors %s)",
                                 used > 0 ? ", " : "", level, size, shared);
    }
    info_put(info, INFO_BOTH, "caches", "%s", used > 0 ? all : "unknown");
}

unsigned info_machine(info_t *info, const char *processors)
{
    char text[256], nodes[128];
    unsigned cores, packages;

    info_object(info, "machine", NULL);
    gethostname(text, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    info_put(info, INFO_BOTH, "host", "%s", text);
    find_line("/proc/cpuinfo", "model name", text, sizeof(text));
    info_put(info, INFO_BOTH, "processor", "%s", text[0] != '\0' ? text : "unknown");
    count_cores(&cores, &packages);
    info_number(info, INFO_BOTH, "processors_online", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    info_number(info, INFO_BOTH, "cores", cores);
    info_number(info, INFO_BOTH, "packages", packages);
    info_read(nodes, sizeof(nodes), "/sys/devices/system/node/online");
    info_put(info, INFO_BOTH, "NUMA_nodes", "%s", nodes[0] != '\0' ? nodes : "unknown");
    put_caches(info);
    info_put(info, INFO_BOTH, "may_use", "processors %s", processors);
    return cores > 0 ? cores : (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
}

/* ---- limits ---- */

static void put_limit(info_t *info, const char *key, int which, int in_bytes)
{
    struct rlimit limit;
    char soft[24], hard[24];

    if (getrlimit(which, &limit) != 0)
        return;
    if (in_bytes) {
        info_bytes(limit.rlim_cur, soft);
        info_bytes(limit.rlim_max, hard);
    } else {
        snprintf(soft, sizeof(soft), "%llu", (unsigned long long)limit.rlim_cur);
        snprintf(hard, sizeof(hard), "%llu", (unsigned long long)limit.rlim_max);
    }
    info_put(info, INFO_BOTH, key, "%s, at most %s",
             limit.rlim_cur == RLIM_INFINITY ? "unlimited" : soft,
             limit.rlim_max == RLIM_INFINITY ? "unlimited" : hard);
}

static void put_file(info_t *info, const char *key, const char *path)
{
    char text[128];

    info_read(text, sizeof(text), "%s", path);
    info_put(info, INFO_BOTH, key, "%s", text[0] != '\0' ? text : "unknown");
}

static void put_memory(void *arg, const tutti__info_item_t *item)
{
    char text[24];

    if (strcmp(item->name, "memory") == 0)
        info_put(arg, INFO_BOTH, "memory_left", "%s, limited by %s",
                 info_about(strtoull(item->value, NULL, 10), text), item->note);
}

/* The limits of this process's cgroup, version 2 or 1, as a container sees it. */
static void put_cgroup(info_t *info)
{
    unsigned long long bytes;
    char text[64];

    info_read(text, sizeof(text), "/sys/fs/cgroup/memory.max");
    if (text[0] == '\0')
        info_read(text, sizeof(text), "/sys/fs/cgroup/memory/memory.limit_in_bytes");
    if (sscanf(text, "%llu", &bytes) == 1 && bytes < UINT64_MAX / 4)
        info_about(bytes, text);
    else if (text[0] != '\0')
        snprintf(text, sizeof(text), "unlimited");
    info_put(info, INFO_BOTH, "cgroup_memory", "%s", text[0] != '\0' ? text : "unknown");
}

void info_limits(info_t *info)
{
    char text[64], total[24], left[24];
    struct statvfs shm;

    info_object(info, "limits", NULL);
    info_put(
        info, INFO_BOTH, "memory", "%s",
        info_about((uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), total));
    tutti__info(TUTTI__INFO_PLACE, NULL, put_memory, info);
    put_cgroup(info);
    if (statvfs("/dev/shm", &shm) == 0)
        info_put(info, INFO_BOTH, "/dev/shm", "%s, %s free",
                 info_about((uint64_t)shm.f_blocks * shm.f_frsize, total),
                 info_about((uint64_t)shm.f_bavail * shm.f_frsize, left));
    else
        info_put(info, INFO_BOTH, "/dev/shm", "%s", strerror(errno));
    put_limit(info, "locked_memory", RLIMIT_MEMLOCK, 1);
    put_limit(info, "address_space", RLIMIT_AS, 1);
    put_limit(info, "file_size", RLIMIT_FSIZE, 1);
    put_limit(info, "open_files", RLIMIT_NOFILE, 0);
    put_limit(info, "processes", RLIMIT_NPROC, 0);
    put_file(info, "overcommit_memory", "/proc/sys/vm/overcommit_memory");
    put_file(info, "huge_pages", "/sys/kernel/mm/transparent_hugepage/enabled");
    put_file(info, "shared_huge_pages", "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    find_line("/proc/meminfo", "HugePages_Total", text, sizeof(text));
    info_put(info, INFO_BOTH, "reserved_huge_pages", "%s", text);
}

/* ---- kernel ---- */

static void put_call(info_t *info, const char *key, long result)
{
    info_put(info, INFO_BOTH, key, "%s", result >= 0 ? "yes" : strerror(errno));
}

void info_kernel(info_t *info)
{
    static const char *const modes[] = { "none", "strict", "filter" };
    const struct timespec now = { 0, 0 };
    char text[64];
    struct utsname name;
    long result;

    info_object(info, "kernel", NULL);
    if (uname(&name) == 0)
        info_put(info, INFO_BOTH, "release", "%s %s %s", name.sysname, name.release, name.machine);
    result = memfd_create("tutti_info", MFD_CLOEXEC);
    put_call(info, "memfd_create", result);
    if (result >= 0)
        close((int)result);
    result = syscall(SYS_pidfd_open, getpid(), 0);
    put_call(info, "pidfd_open", result);
    if (result >= 0)
        close((int)result);
    /* A bad descriptor: a kernel that has the call returns EBADF or EINVAL. */
    result = syscall(SYS_epoll_pwait2, -1, NULL, 0, &now, NULL, 0);
    put_call(info, "epoll_pwait2", result < 0 && (errno == EBADF || errno == EINVAL) ? 0 : result);
    find_line("/proc/self/status", "Seccomp:", text, sizeof(text));
    info_put(info, INFO_BOTH, "seccomp", "%s",
             text[0] >= '0' && text[0] <= '2' ? modes[text[0] - '0'] : "unknown");
}
