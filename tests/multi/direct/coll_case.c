/* SPDX-License-Identifier: BSD-3-Clause */
/* See coll_case.h. */
#include "multi/direct/coll_case.h"

#include "multi/direct/reference.h"

#include <stdlib.h>
#include <string.h>

enum {
    GUARD = 64, /* bytes around each buffer that must not change */
    RUBBISH = 0xa5
};

const tutti_call_kind_t case_kinds[CASE_KINDS] = { TUTTI_CALL_ALLREDUCE, TUTTI_CALL_REDUCE,
                                                   TUTTI_CALL_BROADCAST, TUTTI_CALL_REDUCE_SCATTER,
                                                   TUTTI_CALL_ALLGATHER, TUTTI_CALL_GATHER,
                                                   TUTTI_CALL_SCATTER,   TUTTI_CALL_ALLTOALL,
                                                   TUTTI_CALL_SCAN,      TUTTI_CALL_EXSCAN };

void small_pieces(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.chunk_bytes = CHUNK_BYTES;
    conf->shared.node_chunk_bytes = 8192;
    conf->shared.oneshot_bytes = 1024;
    conf->shared.l3_bytes = 20000;
}

void small_one_piece(tutti__conf_t *conf, int rank)
{
    small_pieces(conf, rank);
    conf->shared.credits = 1;
}

void small_uncompared(tutti__conf_t *conf, int rank)
{
    small_pieces(conf, rank);
    conf->shared.compare = 0;
}

int run_job_with(rank_fn_t fn, int size, const char *hosts, int threads,
                 void (*settings)(tutti__conf_t *conf, int rank))
{
    job_t job = {
        .size = size, .hosts = hosts, .fn = fn, .threads = threads, .settings = settings
    };
    int failures = 0;

    RUN_JOB(failures, &job);
    return failures;
}

int run_small(rank_fn_t fn, int size, const char *hosts, int threads)
{
    return run_job_with(fn, size, hosts, threads, small_pieces);
}

int case_is_rooted(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_REDUCE || kind == TUTTI_CALL_BROADCAST || kind == TUTTI_CALL_GATHER ||
           kind == TUTTI_CALL_SCATTER;
}

int case_reduces(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_ALLREDUCE || kind == TUTTI_CALL_REDUCE ||
           kind == TUTTI_CALL_REDUCE_SCATTER || kind == TUTTI_CALL_SCAN ||
           kind == TUTTI_CALL_EXSCAN;
}

/* ---- memory ---- */

void area_open(area_t *area, rank_t *self, size_t bytes)
{
    void *own, *shared;

    *area = (area_t){ .self = self, .bytes = bytes, .salt = 1 };
    CHECK_INT(posix_memalign(&own, 64, 2 * bytes + 64), 0);
    area->own = own;
    CHECK_OK(tutti_mem_alloc(self->comm, 2 * bytes + 64, &shared));
    area->shared = shared;
}

void area_close(area_t *area)
{
    CHECK_OK(tutti_barrier(area->self->comm));
    CHECK_OK(tutti_mem_free(area->self->comm, area->shared));
    free(area->own);
}

static char *area_base(const area_t *area, memory_t memory, int second)
{
    int shared = memory == SHARED || (memory == SOME_SHARED && (area->self->rank + second) % 2);
    size_t shift = shared ? 16 * (size_t)(area->self->rank % 3) : memory == DEVICE ? 0 : 1;

    if (area->offsets != NULL)
        shift = area->offsets[second];
    return (shared ? area->shared : area->own) + (second ? area->bytes : 0) + shift;
}

/* ---- the calls ---- */

/* Make the call on device memory, with the contents of area->own at the same places. */
static tutti_status_t call_on_device(const area_t *area, const case_t *c, const void *s, void *r)
{
    char *send = s == NULL ? NULL : area->device + ((const char *)s - area->own);
    char *recv = r == NULL ? NULL : area->device + ((char *)r - area->own);
    tutti_status_t status;

    area->write(area->device, area->own, 2 * area->bytes);
    status = case_call(c, send, recv, area->self->comm);
    area->read(area->own, area->device, 2 * area->bytes);
    return status;
}

tutti_status_t case_call(const case_t *c, const void *s, void *r, tutti_comm_t *comm)
{
    switch (c->kind) {
    case TUTTI_CALL_ALLREDUCE:
        return tutti_allreduce(s, r, c->count, c->dtype, c->op, comm);
    case TUTTI_CALL_REDUCE:
        return tutti_reduce(s, r, c->count, c->dtype, c->op, c->root, comm);
    case TUTTI_CALL_REDUCE_SCATTER:
        return tutti_reduce_scatter(s, r, c->count, c->dtype, c->op, comm);
    case TUTTI_CALL_SCAN:
        return tutti_scan(s, r, c->count, c->dtype, c->op, comm);
    case TUTTI_CALL_EXSCAN:
        return tutti_exscan(s, r, c->count, c->dtype, c->op, comm);
    case TUTTI_CALL_ALLGATHER:
        return tutti_allgather(s, r, c->count, c->dtype, comm);
    case TUTTI_CALL_GATHER:
        return tutti_gather(s, r, c->count, c->dtype, c->root, comm);
    case TUTTI_CALL_SCATTER:
        return tutti_scatter(s, r, c->count, c->dtype, c->root, comm);
    case TUTTI_CALL_ALLTOALL:
        return tutti_alltoall(s, r, c->count, c->dtype, comm);
    default:
        return tutti_broadcast(r, c->count, c->dtype, c->root, comm);
    }
}

/* ---- expectations ---- */

/* A rank's buffers, in elements. */
typedef struct {
    size_t send, recv;
    size_t own; /* in place: offset of the smaller buffer in the larger */
    int gets;   /* 1: recvbuf is written */
    int gives;  /* 1: sendbuf is read */
} shape_t;

static shape_t shape_of(const case_t *c, int rank, int size)
{
    size_t n = c->count, all = n * (size_t)size, own = n * (size_t)rank;
    int root = rank == c->root;

    switch (c->kind) {
    case TUTTI_CALL_REDUCE:
        return (shape_t){ n, n, 0, root, 1 };
    case TUTTI_CALL_REDUCE_SCATTER:
        return (shape_t){ all, n, own, 1, 1 };
    case TUTTI_CALL_EXSCAN:
        return (shape_t){ n, n, 0, rank > 0, 1 };
    case TUTTI_CALL_ALLGATHER:
        return (shape_t){ n, all, own, 1, 1 };
    case TUTTI_CALL_GATHER:
        return (shape_t){ n, all, own, root, 1 };
    case TUTTI_CALL_SCATTER:
        return (shape_t){ all, n, own, 1, root };
    case TUTTI_CALL_ALLTOALL:
        return (shape_t){ all, all, 0, 1, 1 };
    default:
        return (shape_t){ n, n, 0, 1, 1 };
    }
}

/* Element j of the data that this rank must have received. */
static void expected(const case_t *c, const rank_t *self, size_t j, unsigned salt, char *element)
{
    size_t n = c->count, own = n * (size_t)self->rank;

    switch (c->kind) {
    case TUTTI_CALL_REDUCE_SCATTER:
        reference_fold(c->dtype, c->op, 0, self->size, own + j, salt, element);
        break;
    case TUTTI_CALL_SCAN:
        reference_fold(c->dtype, c->op, 0, self->rank + 1, j, salt, element);
        break;
    case TUTTI_CALL_EXSCAN:
        reference_fold(c->dtype, c->op, 0, self->rank, j, salt, element);
        break;
    case TUTTI_CALL_ALLGATHER:
    case TUTTI_CALL_GATHER:
        reference_value(c->dtype, c->op, (int)(j / n), j % n, salt, element);
        break;
    case TUTTI_CALL_SCATTER:
        reference_value(c->dtype, c->op, c->root, own + j, salt, element);
        break;
    case TUTTI_CALL_ALLTOALL:
        reference_value(c->dtype, c->op, (int)(j / n), own + j % n, salt, element);
        break;
    case TUTTI_CALL_BROADCAST:
        reference_value(c->dtype, c->op, c->root, j, salt, element);
        break;
    default:
        reference_fold(c->dtype, c->op, 0, self->size, j, salt, element);
        break;
    }
}

/* ---- filling and comparing ---- */

/* Are two elements equal? Comparisons of constant sizes are not calls of memcmp. */
static int is_same(const char *a, const char *b, size_t bytes)
{
    switch (bytes) {
    case 1:
        return *a == *b;
    case 2:
        return memcmp(a, b, 2) == 0;
    case 4:
        return memcmp(a, b, 4) == 0;
    case 8:
        return memcmp(a, b, 8) == 0;
    default:
        return memcmp(a, b, bytes) == 0;
    }
}

/* The places of sendbuf and recvbuf in this rank's memory. */
typedef struct {
    shape_t shape;
    char *send, *recv;
    size_t esize;
    int in_place;
} layout_t;

static layout_t lay_out(const area_t *area, const case_t *c)
{
    const rank_t *self = area->self;
    size_t esize = tutti_dtype_bytes(c->dtype);
    layout_t l = { .shape = shape_of(c, self->rank, self->size), .esize = esize };
    size_t most = TUTTI__MAX(l.shape.send, l.shape.recv) * esize;

    CHECK(most + 2 * GUARD + 64 <= area->bytes);
    l.in_place = c->kind == TUTTI_CALL_BROADCAST || c->place == IN_PLACE ||
                 c->place == IN_PLACE_MPI || (c->place == MIXED && self->rank % 2);
    /* If a rank does not use one of the two buffers, the call cannot be in place there. */
    if (c->kind != TUTTI_CALL_EXSCAN && (!l.shape.gets || !l.shape.gives))
        l.in_place = 0;
    l.send = area_base(area, c->memory, 0) + GUARD;
    l.recv = area_base(area, c->memory, 1) + GUARD;
    if (!l.in_place)
        return l;
    if (l.shape.send >= l.shape.recv) {
        /* As in MPI, only a reduce_scatter may have both buffers at the same address. */
        l.recv =
            l.send +
            (c->place == IN_PLACE_MPI && c->kind != TUTTI_CALL_SCATTER ? 0 : l.shape.own * esize);
    } else {
        l.send = l.recv + l.shape.own * esize;
    }
    return l;
}

static void fill(const area_t *area, const case_t *c, const layout_t *l)
{
    memset(l->send - GUARD, RUBBISH, l->shape.send * l->esize + 2 * GUARD);
    memset(l->recv - GUARD, RUBBISH, l->shape.recv * l->esize + 2 * GUARD);
    if (!l->shape.gives || (c->kind == TUTTI_CALL_BROADCAST && area->self->rank != c->root))
        return;
    for (size_t j = 0; j < l->shape.send; j++)
        reference_value(c->dtype, c->op, area->self->rank, j, area->salt, l->send + j * l->esize);
}

#define SAY(c, what, j)                                                                            \
    ranks_fail(__FILE__, __LINE__,                                                                 \
               "kind %d, type %d, op %d, count %zu, root %d, place %d, memory %d: %s %zu",         \
               (int)(c)->kind, (int)(c)->dtype, (int)(c)->op, (c)->count, (c)->root,               \
               (int)(c)->place, (int)(c)->memory, what, j)

static void check_rubbish(const case_t *c, const char *from, size_t bytes, const char *what)
{
    /* If the first byte is right, and each byte equals the next one, all are right. */
    if (bytes > 0 && (unsigned char)*from == RUBBISH && memcmp(from, from + 1, bytes - 1) == 0)
        return;
    for (size_t j = 0; j < bytes; j++)
        if ((unsigned char)from[j] != RUBBISH)
            SAY(c, what, j);
}

/* The sent data must be unchanged, except for the part into which data were received. */
static void check_sent(const area_t *area, const case_t *c, const layout_t *l, int went_well)
{
    char element[REFERENCE_MOST_BYTES];

    for (size_t j = 0; j < l->shape.send; j++) {
        const char *at = l->send + j * l->esize;

        if (went_well && l->shape.gets && at >= l->recv && at < l->recv + l->shape.recv * l->esize)
            continue;
        reference_value(c->dtype, c->op, area->self->rank, j, area->salt, element);
        if (!is_same(at, element, l->esize))
            SAY(c, "sendbuf has changed at", j);
    }
}

static void check_received(const area_t *area, const case_t *c, const layout_t *l)
{
    char element[REFERENCE_MOST_BYTES];

    for (size_t j = 0; j < l->shape.recv; j++) {
        expected(c, area->self, j, area->salt, element);
        if (!is_same(l->recv + j * l->esize, element, l->esize))
            SAY(c, "wrong element", j);
    }
}

void case_run(area_t *area, const case_t *c, tutti_status_t wanted)
{
    layout_t l = lay_out(area, c);
    const void *send;
    void *recv;
    const char *send_end = l.send + l.shape.send * l.esize;
    const char *recv_end = l.recv + l.shape.recv * l.esize;
    tutti_status_t status;

    area->salt++;
    fill(area, c, &l);
    /* The pointer to an unused buffer may have any value. */
    send = l.shape.gives || area->salt % 2 ? l.send : NULL;
    recv = l.shape.gets || area->salt % 2 ? l.recv : NULL;
    status = c->memory == DEVICE ? call_on_device(area, c, send, recv)
                                 : case_call(c, send, recv, area->self->comm);
    if (status != wanted)
        SAY(c, status == TUTTI_OK ? "it went well" : tutti_last_error(), (size_t)status);
    if (l.shape.gives && c->kind != TUTTI_CALL_BROADCAST)
        check_sent(area, c, &l, wanted == TUTTI_OK);
    if (wanted == TUTTI_OK && l.shape.gets)
        check_received(area, c, &l);
    else if (!l.in_place || (c->kind == TUTTI_CALL_BROADCAST && area->self->rank != c->root))
        check_rubbish(c, l.recv, l.shape.recv * l.esize, "recvbuf has changed at");
    if (l.in_place)
        return;
    check_rubbish(c, l.send - GUARD, GUARD, "before sendbuf");
    check_rubbish(c, send_end, GUARD, "after sendbuf");
    check_rubbish(c, l.recv - GUARD, GUARD, "before recvbuf");
    check_rubbish(c, recv_end, GUARD, "after recvbuf");
}

/* ---- after an error ---- */

void case_works(rank_t *self)
{
    int size = self->size, sum = 0;
    int all[MOST_RANKS], got[MOST_RANKS], one = self->rank + 1;

    for (int r = 0; r < size; r++) {
        all[r] = 100 * self->rank + r;
        sum += r + 1;
    }
    CHECK_OK(tutti_allreduce(&one, &one, 1, TUTTI_INT32, TUTTI_SUM, self->comm));
    CHECK_INT(one, sum);
    CHECK_OK(tutti_alltoall(all, got, 1, TUTTI_INT32, self->comm));
    for (int r = 0; r < size; r++)
        CHECK_INT(got[r], 100 * r + self->rank);
}

/* ---- places, memories, roots and sizes ---- */

void case_ways(area_t *area, tutti_call_kind_t kind, tutti_dtype_t dtype, tutti_op_t op,
               size_t count)
{
    for (int place = 0; place < PLACES; place++) {
        for (int memory = 0; memory < MEMORIES; memory++) {
            int roots = case_is_rooted(kind) ? area->self->size : 1;

            for (int root = 0; root < roots; root++) {
                case_t c = { kind, dtype, op, count, root, (place_t)place, (memory_t)memory };

                case_run(area, &c, TUTTI_OK);
            }
        }
    }
}

size_t case_several_chunks(const rank_t *self, size_t esize)
{
    return 2 * CHUNK_BYTES / esize + 11 + (size_t)self->size;
}

void case_in_all_ways(area_t *area, tutti_call_kind_t kind)
{
    case_ways(area, kind, TUTTI_FLOAT32, TUTTI_SUM, 3);
    case_ways(area, kind, TUTTI_UINT8, TUTTI_BXOR, 257);
    case_ways(area, kind, TUTTI_INT16, TUTTI_MAX, case_several_chunks(area->self, 2));
    /* Elements of a size that does not divide a chunk evenly. */
    case_ways(area, kind, TUTTI_FLOAT64_INT64, TUTTI_MINLOC, case_several_chunks(area->self, 16));
}

void case_all_ways(rank_t *self)
{
    area_t area;

    area_open(&area, self, AREA_BYTES);
    for (size_t k = 0; k < CASE_KINDS; k++)
        case_in_all_ways(&area, case_kinds[k]);
    area_close(&area);
}

void case_turn(area_t *area, tutti_call_kind_t kind, tutti_dtype_t dtype, tutti_op_t op,
               size_t count, unsigned turn)
{
    case_t c = { kind,
                 dtype,
                 op,
                 count,
                 (int)(turn % (unsigned)area->self->size),
                 (place_t)(turn % PLACES),
                 (memory_t)(turn % MEMORIES) };

    case_run(area, &c, TUTTI_OK);
}

void case_is_dead(rank_t *self, tutti_status_t status)
{
    CHECK(status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_PEER_LOST);
    CHECK_STATUS(tutti_barrier(self->comm), status);
}
