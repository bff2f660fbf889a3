/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See task.h.
 *
 * The data from one rank to another rank are the elements of reference.h, which repeat after PERIOD
 * elements. PERIOD is prime, so data that are displaced by a chunk, a slot or a part are always
 * detected.
 */
#include "stress/task.h"

#include "base/compiler.h"
#include "base/names.h"
#include "call/call.h"
#include "multi/direct/reference.h"

#include <stdlib.h>
#include <string.h>

enum {
    GUARD = 64, /* bytes around each buffer */
    RUBBISH = 0xa5,
    PERIOD = 1021,
    PART_STEP = 131 /* elements of reference.h between the beginnings of two parts */
};

uint64_t stress_draw(uint64_t *row, uint64_t n)
{
    uint64_t x = *row += 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) % n;
}

/* ---- kinds ---- */

int stress_is_v(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_REDUCE_SCATTERV || kind == TUTTI_CALL_ALLGATHERV ||
           kind == TUTTI_CALL_GATHERV || kind == TUTTI_CALL_SCATTERV ||
           kind == TUTTI_CALL_ALLTOALLV;
}

static int sends_parts(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_REDUCE_SCATTER || kind == TUTTI_CALL_REDUCE_SCATTERV ||
           kind == TUTTI_CALL_SCATTER || kind == TUTTI_CALL_SCATTERV ||
           kind == TUTTI_CALL_ALLTOALL || kind == TUTTI_CALL_ALLTOALLV;
}

static int receives_parts(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_ALLGATHER || kind == TUTTI_CALL_ALLGATHERV ||
           kind == TUTTI_CALL_GATHER || kind == TUTTI_CALL_GATHERV || kind == TUTTI_CALL_ALLTOALL ||
           kind == TUTTI_CALL_ALLTOALLV;
}

int stress_has_parts(tutti_call_kind_t kind)
{
    return sends_parts(kind) || receives_parts(kind);
}

static int gives(const stress_task_t *t)
{
    switch (t->shape.kind) {
    case TUTTI_CALL_BROADCAST:
    case TUTTI_CALL_SCATTER:
    case TUTTI_CALL_SCATTERV:
        return t->me == t->root;
    case TUTTI_CALL_RECV:
    case TUTTI_CALL_BARRIER:
        return 0;
    default:
        return 1;
    }
}

static int gets(const stress_task_t *t)
{
    switch (t->shape.kind) {
    case TUTTI_CALL_REDUCE:
    case TUTTI_CALL_GATHER:
    case TUTTI_CALL_GATHERV:
        return t->me == t->root;
    case TUTTI_CALL_EXSCAN:
        return t->me > 0;
    case TUTTI_CALL_SEND:
    case TUTTI_CALL_BARRIER:
        return 0;
    default:
        return 1;
    }
}

/* A SENDRECV is around a ring. A SEND is between two neighbours: one of them sends, and the kind of
   the other becomes RECV. */
static void find_peers(stress_task_t *t)
{
    uint32_t size = (uint32_t)t->size, me = (uint32_t)t->me;
    uint32_t step = size > 1 ? 1 + t->shape.root % (size - 1) : 0;

    t->root = (int)(t->shape.root % size);
    t->dest = t->source = t->me;
    if (t->shape.kind == TUTTI_CALL_SENDRECV) {
        t->dest = (int)((me + step) % size);
        t->source = (int)((me + size - step) % size);
        t->idle = size == 1;
    } else if (t->shape.kind == TUTTI_CALL_SEND) {
        t->dest = t->source = t->me ^ 1;
        t->idle = t->dest >= t->size;
        if ((t->shape.root ^ me) & 1)
            t->shape.kind = TUTTI_CALL_RECV;
    }
}

/* ---- lengths and buffers ---- */

/* The number of elements from one rank to another rank. In most v forms it depends on only one
   rank, which is then passed twice. */
static size_t length(const stress_task_t *t, int from, int to)
{
    const stress_shape_t *s = &t->shape;
    int low = s->symmetric ? TUTTI__MIN(from, to) : from;
    int high = s->symmetric ? TUTTI__MAX(from, to) : to;
    uint64_t row = (uint64_t)s->number * 64 + (uint64_t)(low * STRESS_MOST_RANKS + high);

    if (!stress_is_v(s->kind) && s->kind != TUTTI_CALL_SENDRECV)
        return s->count;
    switch (stress_draw(&row, 5)) {
    case 0:
        return 0;
    case 1:
        return s->count / 2;
    case 2:
        return stress_draw(&row, s->count + 1);
    default:
        return s->count;
    }
}

static void lay_parts(const stress_task_t *t, int receiving, stress_parts_t *ret_parts)
{
    tutti_call_kind_t kind = t->shape.kind;
    size_t at = 0, gap = stress_is_v(kind) && kind != TUTTI_CALL_REDUCE_SCATTERV ? t->gap : 0;
    int many = receiving ? receives_parts(kind) : sends_parts(kind);

    for (int r = 0; r < (many ? t->size : 1); r++) {
        int peer = many ? r : receiving ? t->source : t->dest, me = t->me;

        if (kind != TUTTI_CALL_ALLTOALLV && kind != TUTTI_CALL_SENDRECV)
            me = peer; /* one length for each rank */
        at += many ? gap : 0;
        ret_parts->counts[r] = receiving ? length(t, peer, me) : length(t, me, peer);
        ret_parts->displs[r] = at;
        at += ret_parts->counts[r];
    }
    ret_parts->extent = at;
    ret_parts->many = many;
}

static int may_be_in_place(const stress_task_t *t)
{
    switch (t->shape.kind) {
    case TUTTI_CALL_SENDRECV:
        return 0;
    case TUTTI_CALL_ALLTOALLV:
        return t->shape.symmetric;
    default:
        return gives(t) && gets(t);
    }
}

/* Make a buffer in one of the arenas or in private memory; aligned, or at any address. */
static void make_region(stress_task_t *t, int which, int slot, uint64_t *row)
{
    stress_region_t *r = &t->region[which];
    size_t most = slot == 0 ? STRESS_DIRECT_BYTES : STRESS_ASYNC_BYTES, at = 0;
    uint64_t place = stress_draw(row, 3); /* the world's arena, the group's, or none */

    if (t->shape.memory == 1)
        place = 2;
    else if (t->shape.memory == 0)
        place = (uint64_t)t->shape.group;
    r->bytes = t->parts[which].extent * t->esize + 2 * GUARD;
    CHECK(r->bytes <= most + STRESS_SLACK_BYTES / 2);
    r->want = malloc(r->bytes);
    if (place == 2) {
        r->own = malloc(r->bytes + 64);
        r->base = r->own + (stress_draw(row, 2) ? stress_draw(row, 64) : 0);
    } else {
        at = (size_t)(2 * slot + which) * STRESS_SLACK_BYTES + (size_t)which * most;
        at += slot == 0 ? 0 : 2 * (size_t)STRESS_DIRECT_BYTES;
        at += slot == 0 ? 0 : 2 * (size_t)(slot - 1) * STRESS_ASYNC_BYTES;
        at += stress_draw(row, STRESS_SLACK_BYTES / 2 / 64) * 64;
        at += stress_draw(row, 2) ? stress_draw(row, 64) : 0;
        CHECK(at + r->bytes <= STRESS_ARENA_BYTES);
        r->base = t->rank->arena[place] + at;
    }
    CHECK(r->want != NULL && r->base != NULL);
    memset(r->base, RUBBISH, r->bytes);
}

/* ---- data ---- */

/* Write `count` elements from number `first` on, reduced over the ranks [from, end). */
static void put(const stress_task_t *t, int from, int end, size_t first, size_t count, char *to)
{
    const stress_shape_t *s = &t->shape;
    size_t done = TUTTI__MIN(count, PERIOD), n;

    for (size_t i = 0; i < done; i++)
        reference_fold(s->dtype, s->op, from, end, (first + i) % PERIOD, s->number,
                       to + i * t->esize);
    for (; done < count; done += n) {
        n = TUTTI__MIN(done, count - done);
        memcpy(to + done * t->esize, to, n * t->esize);
    }
}

/* Write the data that this rank sends. */
static void put_sent(const stress_task_t *t, char *to)
{
    const stress_parts_t *p = &t->parts[0];

    for (int r = 0; r < (p->many ? t->size : 1); r++)
        put(t, t->me, t->me + 1, (size_t)r * PART_STEP, p->counts[r], to + p->displs[r] * t->esize);
}

/* Write the data that this rank must receive. */
static void put_received(const stress_task_t *t, char *to)
{
    const stress_parts_t *p = &t->parts[1];
    tutti_call_kind_t kind = t->shape.kind;
    size_t first = t->parts[0].many ? (size_t)t->me * PART_STEP : 0;
    int end = kind == TUTTI_CALL_SCAN ? t->me + 1 : kind == TUTTI_CALL_EXSCAN ? t->me : t->size;
    int single = kind == TUTTI_CALL_RECV || kind == TUTTI_CALL_SENDRECV ? t->source : t->root;

    if (tutti__call_reduces(kind)) {
        put(t, 0, end, first, p->counts[0], to);
        return;
    }
    for (int r = 0; r < (p->many ? t->size : 1); r++) {
        int from = p->many ? r : single;

        put(t, from, from + 1, first, p->counts[r], to + p->displs[r] * t->esize);
    }
}

/* ---- a call ---- */

static void write_call(stress_task_t *t, char *send, char *recv)
{
    tutti_call_kind_t kind = t->shape.kind;
    stress_parts_t *s = &t->parts[0], *r = &t->parts[1];

    t->call = (tutti_call_t)TUTTI_CALL_INIT;
    t->call.kind = kind;
    t->call.dtype = t->shape.dtype;
    t->call.op = t->shape.op;
    t->call.name = t->name;
    t->call.root = kind == TUTTI_CALL_RECV ? t->source : t->root;
    if (kind == TUTTI_CALL_SEND || kind == TUTTI_CALL_SENDRECV)
        t->call.root = t->dest;
    t->call.source = t->source;
    t->call.sendbuf = send;
    t->call.recvbuf = recv;
    t->call.count = s->many ? r->counts[0] : s->counts[0];
    if (s->many && r->many)
        t->call.count = t->shape.count;
    t->call.recvcount = r->counts[0];
    if (!stress_is_v(kind))
        return;
    if (kind == TUTTI_CALL_REDUCE_SCATTERV) {
        t->call.recvcounts = s->counts;
        return;
    }
    t->call.sendcounts = s->many ? s->counts : NULL;
    t->call.senddispls = s->many && t->gap > 0 ? s->displs : NULL;
    t->call.recvcounts = r->many ? r->counts : NULL;
    t->call.recvdispls = r->many && t->gap > 0 ? r->displs : NULL;
}

/* Make one buffer for both directions: the smaller one is this rank's own part of the larger
   one. */
static void share_region(stress_task_t *t, int slot, uint64_t *row, char **send, char **recv)
{
    const stress_parts_t *s = &t->parts[0], *r = &t->parts[1];
    int larger = r->many && !s->many;

    make_region(t, larger, slot, row);
    *send = *recv = t->region[larger].base + GUARD;
    if (larger)
        *send += r->displs[t->me] * t->esize;
    else if (s->many && !r->many)
        *recv += s->displs[t->me] * t->esize;
    /* As in MPI, only a reduce_scatter may be in place in this way. */
    if (tutti__call_reduces(t->shape.kind) && s->many && stress_draw(row, 2))
        *recv = *send;
}

void stress_prepare(stress_task_t *t, const stress_rank_t *rank, const stress_shape_t *shape,
                    int slot, uint64_t *row)
{
    char *send = NULL, *recv = NULL, *at;

    *t = (stress_task_t){ .shape = *shape, .rank = rank, .comm = rank->comm[shape->group] };
    snprintf(t->name, sizeof(t->name), "task %d", slot);
    t->me = tutti_rank(t->comm);
    t->size = tutti_size(t->comm);
    t->esize = tutti_dtype_bytes(shape->dtype);
    t->gap = stress_draw(row, 3);
    find_peers(t);
    if (t->idle)
        return;
    lay_parts(t, 0, &t->parts[0]);
    lay_parts(t, 1, &t->parts[1]);
    t->in_place =
        may_be_in_place(t) && (stress_draw(row, 3) == 0 || shape->kind == TUTTI_CALL_BROADCAST);
    if (t->in_place) {
        share_region(t, slot, row, &send, &recv);
    } else {
        if (gives(t))
            make_region(t, 0, slot, row);
        if (gets(t))
            make_region(t, 1, slot, row);
        send = gives(t) ? t->region[0].base + GUARD : NULL;
        recv = gets(t) ? t->region[1].base + GUARD : NULL;
    }
    if (gives(t))
        put_sent(t, send);
    for (int i = 0; i < 2; i++) {
        stress_region_t *r = &t->region[i];

        if (r->bytes == 0)
            continue;
        memcpy(r->want, r->base, r->bytes);
        at = recv != NULL ? r->want + (recv - r->base) : NULL;
        if (gets(t) && (i == 1 || t->in_place))
            put_received(t, at);
    }
    write_call(t, send, recv);
    tutti__store_release(&rank->entered[rank->world->rank], shape->number);
}

static void fail(const stress_task_t *t, const char *what)
{
    const stress_shape_t *s = &t->shape;

    ranks_fail(__FILE__, __LINE__,
               "seed %llu, call %u (%s%s of %s, %s, count %zu, root or peer %d, rank %d of %d%s%s, "
               "memory %d): %s\nrepeat with: %s",
               (unsigned long long)t->rank->seed, s->number, t->request != NULL ? "async " : "",
               tutti__call_name(s->kind), tutti__dtype_name(s->dtype), tutti__op_name(s->op),
               s->count, t->call.root, t->me, t->size, s->group ? " of a group" : "",
               t->in_place ? ", in place" : "", s->memory, what, t->rank->repeat);
}

static void check_status(const stress_task_t *t, tutti_status_t status)
{
    char what[512];

    if (status == TUTTI_OK)
        return;
    snprintf(what, sizeof(what), "%s (%s)", tutti_strerror(status), tutti_last_error());
    fail(t, what);
}

static tutti_status_t call_by_kind(const tutti_call_t *c, tutti_comm_t *comm)
{
    const void *s = c->sendbuf;
    void *r = c->recvbuf;
    size_t n = c->count;

    switch (c->kind) {
    case TUTTI_CALL_ALLREDUCE:
        return tutti_allreduce(s, r, n, c->dtype, c->op, comm);
    case TUTTI_CALL_REDUCE:
        return tutti_reduce(s, r, n, c->dtype, c->op, c->root, comm);
    case TUTTI_CALL_BROADCAST:
        return tutti_broadcast(r, n, c->dtype, c->root, comm);
    case TUTTI_CALL_REDUCE_SCATTER:
        return tutti_reduce_scatter(s, r, n, c->dtype, c->op, comm);
    case TUTTI_CALL_REDUCE_SCATTERV:
        return tutti_reduce_scatterv(s, r, c->recvcounts, c->dtype, c->op, comm);
    case TUTTI_CALL_ALLGATHER:
        return tutti_allgather(s, r, n, c->dtype, comm);
    case TUTTI_CALL_ALLGATHERV:
        return tutti_allgatherv(s, n, r, c->recvcounts, c->recvdispls, c->dtype, comm);
    case TUTTI_CALL_GATHER:
        return tutti_gather(s, r, n, c->dtype, c->root, comm);
    case TUTTI_CALL_GATHERV:
        return tutti_gatherv(s, n, r, c->recvcounts, c->recvdispls, c->dtype, c->root, comm);
    case TUTTI_CALL_SCATTER:
        return tutti_scatter(s, r, n, c->dtype, c->root, comm);
    case TUTTI_CALL_SCATTERV:
        return tutti_scatterv(s, c->sendcounts, c->senddispls, r, n, c->dtype, c->root, comm);
    case TUTTI_CALL_ALLTOALL:
        return tutti_alltoall(s, r, n, c->dtype, comm);
    case TUTTI_CALL_ALLTOALLV:
        return tutti_alltoallv(s, c->sendcounts, c->senddispls, r, c->recvcounts, c->recvdispls,
                               c->dtype, comm);
    case TUTTI_CALL_SCAN:
        return tutti_scan(s, r, n, c->dtype, c->op, comm);
    case TUTTI_CALL_EXSCAN:
        return tutti_exscan(s, r, n, c->dtype, c->op, comm);
    case TUTTI_CALL_SEND:
        return tutti_send(s, n, c->dtype, c->root, comm);
    case TUTTI_CALL_RECV:
        return tutti_recv(r, n, c->dtype, c->root, comm);
    case TUTTI_CALL_SENDRECV:
        return tutti_sendrecv(s, n, c->root, r, c->recvcount, c->source, c->dtype, comm);
    default:
        return tutti_barrier(comm);
    }
}

void stress_direct(stress_task_t *t)
{
    if (!t->idle)
        check_status(t, call_by_kind(&t->call, t->comm));
}

void stress_start(stress_task_t *t)
{
    if (!t->idle)
        check_status(t, tutti_submit(&t->call, 1, t->comm, &t->request));
}

/* ---- checks ---- */

static void check_region(const stress_task_t *t, int which)
{
    const stress_region_t *r = &t->region[which];
    char what[256];
    size_t j = 0;

    if (r->bytes == 0 || memcmp(r->base, r->want, r->bytes) == 0)
        return;
    while (r->base[j] == r->want[j])
        j++;
    snprintf(what, sizeof(what), "byte %lld of %zu in %s is 0x%02x, wanted 0x%02x: element %lld",
             (long long)j - GUARD, r->bytes - 2 * GUARD, which ? "recvbuf" : "sendbuf",
             (unsigned char)r->base[j], (unsigned char)r->want[j],
             ((long long)j - GUARD) / (long long)t->esize);
    fail(t, what);
}

/* After a barrier: have all ranks entered it? Ranks of a group have the same parity. */
static void check_entered(const stress_task_t *t)
{
    const rank_t *world = t->rank->world;

    for (int r = 0; r < world->size; r++)
        if (t->shape.group == 0 || (r ^ world->rank) % 2 == 0)
            if (tutti__load_acquire(&t->rank->entered[r]) < t->shape.number)
                fail(t, "a rank had not come yet");
}

void stress_finish(stress_task_t *t)
{
    if (t->request != NULL)
        check_status(t, tutti_wait(t->request, -1));
    if (t->shape.kind == TUTTI_CALL_BARRIER)
        check_entered(t);
    for (int i = 0; i < 2; i++) {
        check_region(t, i);
        free(t->region[i].own);
        free(t->region[i].want);
    }
    *t = (stress_task_t){ .idle = 1 };
}
