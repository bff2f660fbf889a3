/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This process's metadata: the machine, and the processors that this process may use.
 *
 * The thread that calls tutti_init calls tutti__topo_detect once. The mask of processors is this
 * thread's mask. The library's own threads inherit the mask. The boot id distinguishes cloned
 * machines with the same hostname. The hostname distinguishes containers of one machine, which have
 * separate networks.
 *
 * Tried: hwloc_topology_load and hwloc_get_cpubind. They return the same mask as the kernel. The
 * kernel takes 2 us. hwloc takes 2.2 ms with all objects filtered out and the x86 backend off;
 * otherwise 8 to 15 ms, or more with many processors or plugins of GPU libraries.
 */
#include "topo/topo.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* No kernel supports more processors. */
#define MOST_CPUS (1 << 16)

static void read_boot_id(char *text, size_t capacity)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, capacity - 1);

    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

static void name_machine(char *text, size_t capacity)
{
    char boot_id[40], hostname[65] = "";

    read_boot_id(boot_id, sizeof(boot_id));
    gethostname(hostname, sizeof(hostname) - 1);
    snprintf(text, capacity, "%s/%s", hostname, boot_id);
}

/* Read the calling thread's mask. The kernel refuses a set that is smaller than the kernel's. */
static tutti_status_t read_mask(hwloc_bitmap_t mask)
{
    for (int cpus = CPU_SETSIZE; cpus <= MOST_CPUS; cpus *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        cpu_set_t *set = CPU_ALLOC(cpus);
        int rc;

        if (set == NULL)
            break;
        CPU_ZERO_S(bytes, set);
        rc = sched_getaffinity(0, bytes, set);
        for (int cpu = 0; rc == 0 && cpu < cpus; cpu++)
            if (CPU_ISSET_S((size_t)cpu, bytes, set))
                hwloc_bitmap_set(mask, (unsigned)cpu);
        CPU_FREE(set);
        if (rc == 0)
            return TUTTI_OK;
        if (errno != EINVAL)
            break;
    }
    return tutti__fail_errno("cannot tell which processors this process may use");
}

/* Write the mask as a list. If the list is too long, write a hexadecimal number; if the number is
   too long, write the range from the lowest to the highest processor. */
static void write_mask(hwloc_const_bitmap_t mask, char *text, size_t capacity)
{
    if (hwloc_bitmap_list_snprintf(text, capacity, mask) < (int)capacity)
        return;
    if (hwloc_bitmap_taskset_snprintf(text, capacity, mask) < (int)capacity)
        return;
    snprintf(text, capacity, "%d-%d", hwloc_bitmap_first(mask), hwloc_bitmap_last(mask));
}

tutti_status_t tutti__topo_detect(const char *host_id, tutti__topo_facts_t *ret_facts)
{
    tutti__topo_facts_t facts;
    hwloc_bitmap_t mask;
    tutti_status_t status;

    memset(&facts, 0, sizeof(facts));
    if (strlen(host_id) >= sizeof(facts.host_id))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_HOST_ID is longer than %zu bytes",
                           sizeof(facts.host_id) - 1);
    name_machine(facts.machine_id, sizeof(facts.machine_id));
    strcpy(facts.host_id, host_id[0] == '\0' ? facts.machine_id : host_id);
    facts.pid = (int32_t)getpid();

    mask = hwloc_bitmap_alloc();
    if (mask == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory for a mask of processors");
    status = read_mask(mask);
    if (status == TUTTI_OK) {
        write_mask(mask, facts.cpus, sizeof(facts.cpus));
        tutti__topo_locate("/sys", &facts);
        *ret_facts = facts;
    }
    hwloc_bitmap_free(mask);
    return status;
}
