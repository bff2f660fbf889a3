/* SPDX-License-Identifier: BSD-3-Clause */
/* p ranks of one host in one thread. See exec_world.h. */
#include "schedules/exec_world.h"

#include "node/shm/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void die(const char *what)
{
    fprintf(stderr, "tutti_exec: %s: %s\n", what, tutti_last_error());
    exit(1);
}

void *need(void *memory)
{
    if (memory == NULL)
        die("no memory");
    return memory;
}

/* ---- "null", a transport that completes at once ---- */

struct tutti__chan {
    int unused;
};

/* The data of all received messages; at least as long as any message. */
char *null_message;

static tutti_status_t null_open(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    static tutti__chan_t only;

    (void)xport;
    (void)key;
    *ret_chan = &only;
    return TUTTI_OK;
}

static tutti_status_t null_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                uint32_t signature, int *ret_pending, tutti__hint_t *hint)
{
    (void)chan;
    (void)data;
    (void)bytes;
    (void)signature;
    (void)hint;
    *ret_pending = 0;
    return TUTTI_OK;
}

static tutti_status_t null_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                                const void **ret_data, tutti__hint_t *hint)
{
    (void)chan;
    (void)bytes;
    (void)signature;
    (void)hint;
    *ret_data = null_message;
    return TUTTI_OK;
}

static void null_release(tutti__chan_t *chan)
{
    (void)chan;
}

static void null_cancel(tutti__xport_t *xport, uint32_t lane)
{
    (void)xport;
    (void)lane;
}

static const tutti__xport_ops_t null_ops = { .name = "null",
                                             .open_send = null_open,
                                             .open_recv = null_open,
                                             .send = null_send,
                                             .view = null_view,
                                             .release = null_release,
                                             .cancel = null_cancel };

/* ---- p ranks of one host ---- */

void host_open(host_t *host, uint32_t n)
{
    host->numbers = need(calloc(3 * (size_t)n + 2, sizeof(uint32_t)));
    host->shape = (tutti__shape_t){ .size = n,
                                    .nhosts = 1,
                                    .host_of = host->numbers,
                                    .local_of = host->numbers + n,
                                    .by_host = host->numbers + n,
                                    .host_first = host->numbers + 2 * (size_t)n,
                                    .min_local = n };
    for (uint32_t r = 0; r < n; r++)
        host->numbers[n + r] = r;
    host->numbers[2 * (size_t)n + 1] = n;
}

void host_close(host_t *host)
{
    free(host->numbers);
}

/* Zeroed memory in the arena. */
static void *take(world_t *w, size_t bytes, const char *what, uint64_t *ret_offset)
{
    void *ptr;

    if (tutti__arena_alloc(w->arena, bytes, &ptr) != TUTTI_OK)
        die(what);
    tutti__arena_offset(w->arena, ptr, 1, ret_offset);
    return ptr;
}

/* Open each rank's node. rank: [n], rank[i] is i. */
static void open_nodes(world_t *w, const uint32_t *rank)
{
    uint64_t *offset = need(calloc(w->n, sizeof(*offset)));
    tutti__conf_t conf;

    tutti__conf_defaults(&conf);
    for (uint32_t r = 0; r < w->n; r++)
        take(w, tutti__shm_control_bytes(TUTTI__LANES, w->n, 0, conf.shared.oneshot_bytes), "node",
             &offset[r]);
    for (uint32_t r = 0; r < w->n; r++)
        if (tutti__shm_attach(&w->machine[r], TUTTI__LANES, w->n, r, rank, offset, NULL,
                              &conf.shared, &w->node[r]) != TUTTI_OK)
            die("node");
    free(offset);
}

static void shm_open(world_t *w, const world_options_t *options)
{
    uint64_t *offset = need(calloc(w->n, sizeof(*offset))), unused;
    uint32_t *rank = need(calloc(w->n, sizeof(*rank)));
    char **base = need(calloc(w->n, sizeof(*base)));
    int *doorbell = need(calloc(w->n, sizeof(*doorbell)));
    tutti__status_page_t **door = need(calloc(w->n, sizeof(*door)));

    w->machine = need(calloc(w->n, sizeof(*w->machine)));
    if (tutti__arena_create(&w->arena) != TUTTI_OK)
        die("arena");
    for (uint32_t r = 0; r < w->n; r++) {
        rank[r] = r;
        base[r] = tutti__arena_base(w->arena);
        doorbell[r] = -1;
        door[r] = take(w, sizeof(tutti__status_page_t), "door", &unused);
        take(w, tutti__xport_shm_table_bytes(w->n), "table", &offset[r]);
    }
    for (uint32_t r = 0; r < w->n; r++) {
        w->machine[r] = (tutti__machine_t){ .nranks = w->n,
                                            .me = r,
                                            .rank = rank,
                                            .index_of = (int32_t *)rank,
                                            .arena = w->arena,
                                            .base = base,
                                            .doorbell = doorbell,
                                            .page = door };
        if (tutti__xport_shm_attach(&w->machine[r], offset, options->slot_bytes, options->credits,
                                    &w->xport[r]) != TUTTI_OK)
            die("transport");
    }
    free(offset);
    open_nodes(w, rank);
}

static void shm_close(world_t *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        w->node[r]->ops->close(w->node[r]);
        w->xport[r]->ops->close(w->xport[r]);
    }
    free(w->machine[0].doorbell);
    free(w->machine[0].rank);
    free(w->machine[0].base);
    free(w->machine[0].page);
    free(w->machine);
    tutti__arena_destroy(w->arena);
}

static void fill_calls(world_t *w, const world_options_t *options)
{
    size_t count = w->sched[0]->nblocks * options->elements;

    w->memory = need(calloc(count * 2 * w->n, sizeof(float)));
    for (uint32_t r = 0; r < w->n; r++)
        w->call[r] = (tutti__exec_call_t){ .in = w->memory + count * 2 * r,
                                           .out = w->memory + count * (2 * r + 1),
                                           .count = count,
                                           .in_count = count,
                                           .dtype = TUTTI_FLOAT32,
                                           .op = TUTTI_SUM,
                                           .signature = 1 };
}

static void take_schedules(world_t *w, const source_t *source, const host_t *host)
{
    w->is_built = source->scheds == NULL;
    for (uint32_t r = 0; r < w->n; r++) {
        tutti__coll_args_t args = { .rank = r, .sub = source->sub, .radix = source->radix };

        if (!w->is_built)
            w->sched[r] = source->scheds[r];
        else if (source->algorithm->build(&host->shape, &args, &w->sched[r]) != TUTTI_OK)
            die(source->algorithm->name);
    }
}

void world_open(world_t *w, const source_t *source, const host_t *host, int is_shm,
                const world_options_t *options)
{
    static tutti__xport_t null = { .ops = &null_ops };

    memset(w, 0, sizeof(*w));
    w->n = host->shape.size;
    w->xport = need(calloc(w->n, sizeof(*w->xport)));
    w->node = need(calloc(w->n, sizeof(*w->node)));
    w->table = need(calloc(w->n, sizeof(*w->table)));
    w->env = need(calloc(w->n, sizeof(*w->env)));
    w->run = need(calloc(w->n, sizeof(*w->run)));
    w->sched = need(calloc(w->n, sizeof(*w->sched)));
    w->call = need(calloc(w->n, sizeof(*w->call)));
    if (is_shm)
        shm_open(w, options);
    for (uint32_t r = 0; r < w->n; r++) {
        w->table[r] = need(calloc(w->n, sizeof(*w->table[r])));
        for (uint32_t s = 0; s < w->n; s++)
            w->table[r][s] = is_shm ? w->xport[r] : &null;
        w->env[r] = (tutti__exec_env_t){ .rank = r,
                                         .size = w->n,
                                         .xport = w->table[r],
                                         .node = w->node[r],
                                         .slot_bytes = options->slot_bytes };
        tutti__run_init(&w->run[r], &w->env[r], 0);
    }
    take_schedules(w, source, host);
    fill_calls(w, options);
}

void world_close(world_t *w)
{
    for (uint32_t r = 0; r < w->n; r++) {
        tutti__run_fini(&w->run[r]);
        if (w->is_built)
            tutti__sched_free(w->sched[r]);
        free(w->table[r]);
    }
    if (w->arena != NULL)
        shm_close(w);
    free(w->xport);
    free(w->node);
    free(w->table);
    free(w->env);
    free(w->run);
    free(w->sched);
    free(w->call);
    free(w->memory);
}
