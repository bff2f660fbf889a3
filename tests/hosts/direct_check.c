/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct calls that mismatch, between hosts. Each rank of direct_check.sh runs this program. For
 * each kind of mismatch, one rank after another makes the call that differs. All ranks must get
 * TUTTI_ERR_MISMATCH, no buffer may be written, and the next call must work. This is tested in the
 * world and in groups. Like an application the program uses only the library's headers.
 *
 * usage: direct_check [N]    every N-th mismatch; by default all
 */
#include "checks.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_RANKS = 8,
    COUNT = 5,
    ROOM = (COUNT + 1) * MOST_RANKS
};

/* A call of any kind. The parts of v forms have `count` elements each. */
typedef struct {
    tutti_call_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    int root;
    size_t count;
} what_t;

static int every = 1, found;
static tutti_comm_t *comm;
static int32_t s[ROOM], r[ROOM];

static tutti_status_t make_v(const what_t *w)
{
    size_t parts[MOST_RANKS];

    for (int q = 0; q < size; q++)
        parts[q] = w->count;
    switch (w->kind) {
    case TUTTI_CALL_REDUCE_SCATTERV:
        return tutti_reduce_scatterv(s, r, parts, w->dtype, w->op, comm);
    case TUTTI_CALL_ALLGATHERV:
        return tutti_allgatherv(s, w->count, r, parts, NULL, w->dtype, comm);
    case TUTTI_CALL_GATHERV:
        return tutti_gatherv(s, w->count, r, parts, NULL, w->dtype, w->root, comm);
    case TUTTI_CALL_SCATTERV:
        return tutti_scatterv(s, parts, NULL, r, w->count, w->dtype, w->root, comm);
    default:
        return tutti_alltoallv(s, parts, NULL, r, parts, NULL, w->dtype, comm);
    }
}

static tutti_status_t make(const what_t *w)
{
    switch (w->kind) {
    case TUTTI_CALL_ALLREDUCE:
        return tutti_allreduce(s, r, w->count, w->dtype, w->op, comm);
    case TUTTI_CALL_REDUCE:
        return tutti_reduce(s, r, w->count, w->dtype, w->op, w->root, comm);
    case TUTTI_CALL_BROADCAST:
        return tutti_broadcast(r, w->count, w->dtype, w->root, comm);
    case TUTTI_CALL_REDUCE_SCATTER:
        return tutti_reduce_scatter(s, r, w->count, w->dtype, w->op, comm);
    case TUTTI_CALL_ALLGATHER:
        return tutti_allgather(s, r, w->count, w->dtype, comm);
    case TUTTI_CALL_GATHER:
        return tutti_gather(s, r, w->count, w->dtype, w->root, comm);
    case TUTTI_CALL_SCATTER:
        return tutti_scatter(s, r, w->count, w->dtype, w->root, comm);
    case TUTTI_CALL_ALLTOALL:
        return tutti_alltoall(s, r, w->count, w->dtype, comm);
    case TUTTI_CALL_SCAN:
        return tutti_scan(s, r, w->count, w->dtype, w->op, comm);
    case TUTTI_CALL_EXSCAN:
        return tutti_exscan(s, r, w->count, w->dtype, w->op, comm);
    case TUTTI_CALL_BARRIER:
        return tutti_barrier(comm);
    default:
        return make_v(w);
    }
}

/* ---- one mismatch ---- */

static void works(void)
{
    int32_t mine[2] = { rank + 1, -rank }, sum[2];

    OK(tutti_allreduce(mine, sum, 2, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK(sum[0] == size * (size + 1) / 2, "%d", (int)sum[0]);
    CHECK(sum[1] == -size * (size - 1) / 2, "%d", (int)sum[1]);
}

/* Check that the text names the odd rank. If the odd rank is rank 0, the text names another rank as
   well. */
static void names(int odd)
{
    char name[32];

    snprintf(name, sizeof(name), "rank %d", odd);
    CHECK(strstr(tutti_last_error(), name) != NULL, "no %s in: %s", name, tutti_last_error());
}

static void differs(const what_t *good, const what_t *bad, int odd)
{
    const what_t *w = rank == odd ? bad : good;
    tutti_status_t status;

    if (found++ % every != 0)
        return;
    for (int i = 0; i < ROOM; i++) {
        s[i] = i;
        r[i] = -7;
    }
    status = make(w);
    CHECK(status == TUTTI_ERR_MISMATCH, "kinds %d and %d: %s (%s)", (int)good->kind, (int)bad->kind,
          tutti_strerror(status), status == TUTTI_OK ? "" : tutti_last_error());
    names(odd);
    for (int i = 0; i < ROOM; i++)
        CHECK(r[i] == -7 && s[i] == i, "kinds %d and %d: element %d was written", (int)good->kind,
              (int)bad->kind, i);
    works();
}

/* ---- all mismatches ---- */

static void mismatches_of(tutti_call_kind_t kind, int odd)
{
    const what_t good = { kind, TUTTI_INT32, TUTTI_SUM, 0, COUNT };
    what_t bad = good;

    for (int k = TUTTI_CALL_ALLREDUCE; k <= TUTTI_CALL_BARRIER; k++) {
        bad.kind = (tutti_call_kind_t)k;
        if (bad.kind != kind)
            differs(&good, &bad, odd);
    }
    if (kind == TUTTI_CALL_BARRIER)
        return;
    bad = good;
    bad.count++;
    differs(&good, &bad, odd);
    /* Both types have the same size, so only the type distinguishes the calls. */
    bad = good;
    bad.dtype = TUTTI_FLOAT32;
    differs(&good, &bad, odd);
    bad = good;
    bad.op = TUTTI_MAX;
    if (reduces(kind))
        differs(&good, &bad, odd);
    bad = good;
    bad.root = size - 1;
    if (is_rooted(kind))
        differs(&good, &bad, odd);
}

static void mismatches(tutti_comm_t *in)
{
    comm = in;
    rank = tutti_rank(comm);
    size = tutti_size(comm);
    CHECK(size <= MOST_RANKS, "too many ranks");
    for (int odd = 0; odd < size && size > 1; odd++)
        for (int k = TUTTI_CALL_ALLREDUCE; k <= TUTTI_CALL_BARRIER; k++)
            mismatches_of((tutti_call_kind_t)k, odd);
    works();
}

int main(int argc, char **argv)
{
    tutti_comm_t *world, *part;

    if (argc > 1)
        every = atoi(argv[1]);
    OK(tutti_init(NULL));
    world = tutti_world();
    mismatches(world);
    OK(tutti_comm_split(world, tutti_rank(world) % 2, -tutti_rank(world), &part));
    mismatches(part);
    OK(tutti_comm_free(part));
    comm = world;
    rank = tutti_rank(world);
    size = tutti_size(world);
    works();
    printf("rank %d of %d on %d hosts: direct_check passed\n", rank, size, tutti_host_count(world));
    OK(tutti_finalize());
    return 0;
}
