/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests: ranks without boot. The machines are hand-made, over real arenas of one process, and
 * the hosts are pretended. The rooms over shared memory (node, xport/shm) are attached to them.
 *
 * Out of memory fails the running cmocka test.
 */
#ifndef TESTS_UNIT_NODE_WORLD_H
#define TESTS_UNIT_NODE_WORLD_H

#include "boot/machine.h"
#include "conf/conf.h"
#include "node/node.h"
#include "xport/xport.h"

#define WORLD_RANKS 8

typedef struct {
    uint32_t n;
    tutti__conf_shared_t conf; /* oneshot_bytes, node_chunk_bytes */
    tutti__arena_t *arena[WORLD_RANKS];
    tutti__machine_t machine[WORLD_RANKS];
    uint32_t host_of[WORLD_RANKS];
    uint32_t group_of[WORLD_RANKS]; /* within its host; set after world_open; default: one group */

    /* fields that machines, nodes and transports point to or begin with */
    uint32_t rank[WORLD_RANKS];
    int32_t index[WORLD_RANKS];
    char *base[WORLD_RANKS];
    int pid[WORLD_RANKS]; /* this process's id */
    tutti__status_page_t *page[WORLD_RANKS];
    int doorbell[WORLD_RANKS];
    uint64_t node_offset[WORLD_RANKS], table_offset[WORLD_RANKS];
    void *node_area[WORLD_RANKS], *table[WORLD_RANKS];
} world_t;

/* host_of: NULL puts all n ranks on one host. Slots have the smallest size, so that little data
   needs many chunks. */
void world_open(world_t *w, uint32_t n, const uint32_t *host_of);
void world_close(world_t *w);

/* Reset all words that ranks share, for a new attach. */
void world_wipe(world_t *w);

/* Open one rank's node or transport. The caller closes it with its own close(). */
tutti__node_t *world_node(world_t *w, uint32_t rank);
tutti__xport_t *world_xport(world_t *w, uint32_t rank, size_t slot_bytes, uint32_t credits);

#endif
