/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who sits where.
 *
 * Each rank detects its facts (tutti__topo_detect); boot/ exchanges them; the rest computes, and
 * can be tested for machines nobody has. A "host" is what algorithms see (TUTTI_HOST_ID can make
 * several of one machine, never one of several); a "machine" is what can really share memory.
 */
#ifndef TUTTI__TOPO_TOPO_H
#define TUTTI__TOPO_TOPO_H

#include <tutti/tutti.h>

#define TUTTI__TOPO_TEXT 128

/* More ranks than this are not one group: a rank that waits for so many lines waits too long. */
#define TUTTI__TOPO_GROUP 16

/* What processors share, the narrowest first. */
enum {
    TUTTI__PLACE_L3,
    TUTTI__PLACE_NODE, /* NUMA */
    TUTTI__PLACE_PACKAGE,
    TUTTI__PLACES
};

/* One rank's facts. Plain data, sent between ranks as bytes. */
typedef struct {
    char host_id[TUTTI__TOPO_TEXT];    /* boot id + hostname, or TUTTI_HOST_ID */
    char machine_id[TUTTI__TOPO_TEXT]; /* boot id + hostname: who can share memory */
    char cpus[4 * TUTTI__TOPO_TEXT];   /* PUs this rank may run on: "0-3,8", or "0x10f" */
    int32_t place[TUTTI__PLACES];      /* the lowest PU of the one that has all of `cpus`, or -1 */
    int32_t pid;
    uint64_t l3_bytes;                 /* of the first PU's cache, or 0 */
} tutti__topo_facts_t;

/* All ranks' places, from the facts. All arrays are indexed as said and belong to the topo. */
typedef struct {
    uint32_t size, rank;
    uint32_t nhosts, nmachines;
    uint32_t *host_of;      /* [size]; hosts are numbered by their lowest ranks */
    uint32_t *local_of;     /* [size] rank within its host */
    uint32_t *host_first;   /* [nhosts + 1] into by_host */
    uint32_t *by_host;      /* [size] ranks host by host, ascending within each */
    uint32_t *machine_of;   /* [size] */
    uint32_t *group_of;     /* [size] within its host, see groups.c; numbered by lowest ranks */
    uint32_t min_local;     /* the smallest number of ranks on a host */
    uint32_t machine_ranks; /* ranks on my machine */
    uint32_t machine_cpus;  /* PUs in the union of their masks */
    uint64_t l3_bytes;      /* of my L3 cache; 0: not known */
    uint32_t l3_ranks;      /* ranks of my machine at home there, me too; all, if I am nowhere */
    int oversubscribed;     /* more ranks on my machine than PUs in that union */
} tutti__topo_t;

/* Fill in this process's facts. host_id: from TUTTI_HOST_ID, "" for the machine's own. */
tutti_status_t tutti__topo_detect(const char *host_id, tutti__topo_facts_t *ret_facts);

/* Fill in `place` and `l3_bytes`, from `cpus` and what a machine says of itself below `sysfs`
   ("/sys"). */
void tutti__topo_locate(const char *sysfs, tutti__topo_facts_t *facts);

tutti_status_t tutti__topo_make(const tutti__topo_facts_t *facts, uint32_t size, uint32_t rank,
                                tutti__topo_t **ret_topo);
void tutti__topo_free(tutti__topo_t *topo);

/* groups.c: part of tutti__topo_make; hosts are known. */
tutti_status_t tutti__topo_find_groups(tutti__topo_t *topo, const tutti__topo_facts_t *facts);

#endif
