/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks without boot. See world.h. */
#include "unit/node/world.h"

#include "node/shm/shm.h"
#include "xport/shm/shm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ONESHOT_BYTES 64
#define CHUNK_BYTES 4096

/* The ranks on the host of `rank`, in ascending order. *ret_me: the place of `rank` among them. */
static uint32_t locals(const world_t *w, uint32_t rank, uint32_t *ret_ranks, uint32_t *ret_me)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < w->n; r++) {
        if (w->host_of[r] != w->host_of[rank])
            continue;
        if (r == rank)
            *ret_me = n;
        ret_ranks[n++] = r;
    }
    return n;
}

static size_t node_bytes(const world_t *w, uint32_t rank)
{
    uint32_t ranks[WORLD_RANKS], me;

    return tutti__shm_control_bytes(TUTTI__LANES, locals(w, rank, ranks, &me), 1, ONESHOT_BYTES);
}

static void *take(world_t *w, uint32_t rank, size_t bytes, uint64_t *ret_offset)
{
    void *ptr;

    assert_int_equal(tutti__arena_alloc(w->arena[rank], bytes, &ptr), TUTTI_OK);
    tutti__arena_offset(w->arena[rank], ptr, 1, ret_offset);
    return ptr;
}

void world_open(world_t *w, uint32_t n, const uint32_t *host_of)
{
    uint64_t offset;

    assert_true(n <= WORLD_RANKS);
    memset(w, 0, sizeof(*w));
    w->n = n;
    w->conf.oneshot_bytes = ONESHOT_BYTES;
    w->conf.node_chunk_bytes = CHUNK_BYTES;
    if (host_of != NULL)
        memcpy(w->host_of, host_of, n * sizeof(*host_of));
    for (uint32_t r = 0; r < n; r++) {
        assert_int_equal(tutti__arena_create(&w->arena[r]), TUTTI_OK);
        w->page[r] = take(w, r, sizeof(tutti__status_page_t), &offset);
        w->node_area[r] = take(w, r, node_bytes(w, r), &w->node_offset[r]);
        w->table[r] = take(w, r, tutti__xport_shm_table_bytes(n), &w->table_offset[r]);
        w->rank[r] = r;
        w->index[r] = (int32_t)r;
        w->base[r] = tutti__arena_base(w->arena[r]);
        w->doorbell[r] = -1;
        w->pid[r] = getpid();
    }
    for (uint32_t r = 0; r < n; r++)
        w->machine[r] = (tutti__machine_t){ .nranks = n,
                                            .me = r,
                                            .rank = w->rank,
                                            .index_of = w->index,
                                            .arena = w->arena[r],
                                            .base = w->base,
                                            .pid = w->pid,
                                            .doorbell = w->doorbell,
                                            .page = w->page };
}

void world_close(world_t *w)
{
    for (uint32_t r = 0; r < w->n; r++)
        tutti__arena_destroy(w->arena[r]);
}

void world_wipe(world_t *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        memset(w->node_area[r], 0, node_bytes(w, r));
        memset(w->table[r], 0, tutti__xport_shm_table_bytes(w->n));
    }
}

tutti__node_t *world_node(world_t *w, uint32_t rank)
{
    uint32_t ranks[WORLD_RANKS], me = 0, nlocal = locals(w, rank, ranks, &me);
    uint32_t group_of[WORLD_RANKS];
    uint64_t offset[WORLD_RANKS];
    tutti__node_t *node;

    for (uint32_t i = 0; i < nlocal; i++) {
        offset[i] = w->node_offset[ranks[i]];
        group_of[i] = w->group_of[ranks[i]];
    }
    assert_int_equal(tutti__shm_attach(&w->machine[rank], TUTTI__LANES, nlocal, me, ranks, offset,
                                       group_of, &w->conf, &node),
                     TUTTI_OK);
    return node;
}

tutti__xport_t *world_xport(world_t *w, uint32_t rank, size_t slot_bytes, uint32_t credits)
{
    tutti__xport_t *xport;

    assert_int_equal(
        tutti__xport_shm_attach(&w->machine[rank], w->table_offset, slot_bytes, credits, &xport),
        TUTTI_OK);
    return xport;
}
