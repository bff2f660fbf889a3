/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hosts, machines and processors of the ranks.
 *
 * Each rank detects its metadata (tutti__topo_detect), and boot/ exchanges the metadata. All other
 * data are computed from the metadata, so tests can use invented machines. Algorithms use "hosts".
 * TUTTI_HOST_ID can split a machine into several hosts, but a host never spans several machines.
 * Only the ranks of a "machine" can share memory.
 */
#ifndef TUTTI__TOPO_TOPO_H
#define TUTTI__TOPO_TOPO_H

#include "base/constants.h"

#include <tutti/tutti.h>

#define TUTTI__TOPO_TEXT 128

/* Kinds of places that processors share, the smallest first. */
enum {
    TUTTI__PLACE_L3,
    TUTTI__PLACE_NODE, /* NUMA */
    TUTTI__PLACE_PACKAGE,
    TUTTI__PLACES
};

/* One rank's metadata. Plain data, sent between ranks as bytes. PU: a logical processor. */
typedef struct {
    char host_id[TUTTI__TOPO_TEXT];    /* TUTTI_HOST_ID; not set: machine_id */
    char machine_id[TUTTI__TOPO_TEXT]; /* "hostname/boot id": equal if ranks can share memory */
    char cpus[4 * TUTTI__TOPO_TEXT];   /* PUs this rank may run on: "0-3,8", or "0x10f" */
    int32_t place[TUTTI__PLACES];      /* lowest PU of the place that contains all of `cpus`; -1:
                                          there is no such place */
    int32_t pid;
    uint64_t l3_bytes;     /* size of the first PU's L3 cache, or 0 */
    uint32_t link_mbps;    /* speed of the network card, in Mbit/s; 0: unknown */
    uint32_t link_is_rdma; /* 1: the card is for RDMA */
} tutti__topo_facts_t;

/* All ranks' places, computed from the metadata. The arrays belong to the topo. */
typedef struct {
    uint32_t size, rank;
    uint32_t nhosts, nmachines;
    char (*host_name)[TUTTI__TOPO_TEXT]; /* [nhosts] hostname, or TUTTI_HOST_ID; for messages */
    uint32_t *host_of;                   /* [size]; hosts are in the order of their lowest ranks */
    uint32_t *local_of;                  /* [size] rank within its host */
    uint32_t *host_first;                /* [nhosts + 1] index in by_host of a host's first rank */
    uint32_t *by_host;                   /* [size] ranks host by host, ascending within each host */
    uint32_t *machine_of;                /* [size] */
    uint32_t *group_of;     /* [size] group within the host, see core_groups.c; groups are in the
                               order of their lowest ranks */
    uint32_t min_local;     /* the smallest number of ranks on a host */
    uint32_t machine_ranks; /* ranks on this machine */
    uint32_t machine_cpus;  /* PUs in the union of these ranks' masks */
    uint64_t l3_bytes;      /* size of this rank's L3 cache; 0: unknown */
    uint32_t l3_ranks;      /* ranks with the same L3, this one included; if this rank has no L3:
                               all ranks of the machine */
    int oversubscribed;     /* more ranks on this machine than machine_cpus */
    uint32_t link_mbps;     /* speed of the slowest link whose speed is known; 0: none is known */
    int link_is_rdma;       /* 1: the cards of all ranks are for RDMA */
} tutti__topo_t;

/* Fill in this process's metadata. host_id: TUTTI_HOST_ID; "": not set. */
tutti_status_t tutti__topo_detect(const char *host_id, tutti__topo_facts_t *ret_facts);

/* link.c: fill in link_mbps and link_is_rdma. interface: TUTTI_INTERFACE. If the speed of this
   interface is known, link_mbps is this speed, and link_is_rdma is 0. */
void tutti__topo_find_link(const char *sysfs, const char *interface, tutti__topo_facts_t *facts);

/* Fill in `place` and `l3_bytes`, from `cpus` and the files below `sysfs` ("/sys"). */
void tutti__topo_locate(const char *sysfs, tutti__topo_facts_t *facts);

tutti_status_t tutti__topo_make(const tutti__topo_facts_t *facts, uint32_t size, uint32_t rank,
                                tutti__topo_t **ret_topo);
void tutti__topo_free(tutti__topo_t *topo);

/* core_groups.c: a part of tutti__topo_make. Call it when the lists of hosts are complete. */
tutti_status_t tutti__topo_find_groups(tutti__topo_t *topo, const tutti__topo_facts_t *facts);

#endif
