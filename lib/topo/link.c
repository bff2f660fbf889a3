/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The link of this host to other hosts, as the kernel reports it:
 *
 *      class/infiniband/CARD/ports/N/rate   "100 Gb/sec (4X EDR)"
 *      class/net/NAME/speed                 Mbit/s; if unknown, reading fails or gives -1
 *
 * A card for RDMA is preferred to a network interface, because UCX also prefers the card. If there
 * are several cards or interfaces, the fastest one is used. Interfaces without a `device`, such as
 * bridges and veth pairs, are used only if no other interface has a known speed.
 */
#include "topo/topo.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH 512

/* The number at the beginning of a file; 0: the file cannot be read, does not begin with a number,
   or the number is negative. */
static double number_in(const char *path)
{
    FILE *file = fopen(path, "re");
    long whole = 0, tenths = 0;
    int n;

    if (file == NULL)
        return 0;
    /* %lf would use the decimal point of the program's locale. */
    n = fscanf(file, "%10ld.%1ld", &whole, &tenths);
    fclose(file);
    return n < 1 || whole < 0 ? 0 : (double)whole + (n < 2 ? 0 : (double)tenths / 10);
}

/* Call `look` for each entry of a folder, with the entry's path. */
static void each(const char *folder, void (*look)(const char *path, void *arg), void *arg)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char path[PATH];

    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "lo") != 0 &&
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) < PATH)
            look(path, arg);
    closedir(dir);
}

static void look_at_port(const char *path, void *arg)
{
    char rate[PATH + 8];
    double *gbps = arg, found;

    snprintf(rate, sizeof(rate), "%s/rate", path);
    found = number_in(rate);
    if (found > *gbps)
        *gbps = found;
}

static void look_at_card(const char *path, void *arg)
{
    char ports[PATH];

    if (snprintf(ports, sizeof(ports), "%s/ports", path) < PATH)
        each(ports, look_at_port, arg);
}

typedef struct {
    double real, virtual; /* Mbit/s; 0: none */
} speeds_t;

static void look_at_interface(const char *path, void *arg)
{
    speeds_t *speeds = arg;
    char file[PATH + 8];
    double mbps, *kind;

    snprintf(file, sizeof(file), "%s/device", path);
    kind = access(file, F_OK) == 0 ? &speeds->real : &speeds->virtual;
    snprintf(file, sizeof(file), "%s/speed", path);
    mbps = number_in(file);
    if (mbps > *kind)
        *kind = mbps;
}

static uint32_t whole(double mbps)
{
    return mbps < 1e9 ? (uint32_t)mbps : 1000000000u;
}

void tutti__topo_find_link(const char *sysfs, const char *interface, tutti__topo_facts_t *facts)
{
    speeds_t speeds = { 0, 0 };
    char path[PATH];
    double gbps = 0;

    facts->link_mbps = 0;
    facts->link_is_rdma = 0;
    if (interface[0] != '\0' &&
        snprintf(path, sizeof(path), "%s/class/net/%s/speed", sysfs, interface) < PATH)
        facts->link_mbps = whole(number_in(path));
    if (facts->link_mbps > 0)
        return;
    if (snprintf(path, sizeof(path), "%s/class/infiniband", sysfs) < PATH)
        each(path, look_at_card, &gbps);
    if (gbps > 0) {
        facts->link_mbps = whole(gbps * 1000);
        facts->link_is_rdma = 1;
        return;
    }
    if (snprintf(path, sizeof(path), "%s/class/net", sysfs) < PATH)
        each(path, look_at_interface, &speeds);
    facts->link_mbps = whole(speeds.real > 0 ? speeds.real : speeds.virtual);
}
