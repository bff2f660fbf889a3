/* SPDX-License-Identifier: BSD-3-Clause */
/* See async_calls.h. */
#include "multi/requests/async_calls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int task_reduces(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_ALLREDUCE || kind == TUTTI_CALL_REDUCE ||
           kind == TUTTI_CALL_REDUCE_SCATTER || kind == TUTTI_CALL_REDUCE_SCATTERV ||
           kind == TUTTI_CALL_SCAN || kind == TUTTI_CALL_EXSCAN;
}

/* ---- elements ---- */

double task_value(const task_facts_t *facts, int rank, size_t i)
{
    return (double)((rank * 5 + facts->number * 3 + (int)(i % 11)) % 4);
}

typedef struct {
    int64_t a, b;
} affine_t;

static void compose(void *dst, const void *left, const void *right, size_t count,
                    tutti_dtype_t dtype, void *context)
{
    (void)dtype;
    (void)context;
    for (size_t i = 0; i < count; i++) {
        affine_t l, r, d;

        memcpy(&l, (const char *)left + i * sizeof(l), sizeof(l));
        memcpy(&r, (const char *)right + i * sizeof(r), sizeof(r));
        /* The operands are never the gap between fused tensors, because no element is 0. */
        CHECK(l.a != 0 && r.a != 0);
        d.a = l.a * r.a % 1009;
        d.b = (l.b * r.a + r.b) % 1009;
        memcpy((char *)dst + i * sizeof(d), &d, sizeof(d));
    }
}

static tutti_op_t affine;

static void make_affine(void)
{
    CHECK_OK(tutti_op_create(compose, NULL, 0, &affine));
}

tutti_op_t task_affine(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_affine);
    return affine;
}

/* Write one element with the value v. If the type is a pair, its second part is the rank. */
static void put(tutti_dtype_t dtype, char *to, double v, int rank)
{
    float f = (float)v;
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    switch (dtype) {
    case TUTTI_INT8:
    case TUTTI_UINT8:
        *(uint8_t *)to = (uint8_t)v;
        break;
    case TUTTI_INT32:
        memcpy(to, &(int32_t){ (int32_t)v }, 4);
        break;
    case TUTTI_INT64:
        memcpy(to, &(int64_t){ (int64_t)v }, 8);
        break;
    case TUTTI_FLOAT32:
        memcpy(to, &f, 4);
        break;
    case TUTTI_FLOAT64:
        memcpy(to, &v, 8);
        break;
    case TUTTI_BFLOAT16:
        memcpy(to, &(uint16_t){ (uint16_t)(bits >> 16) }, 2);
        break;
    case TUTTI_FLOAT32_INT32:
        memcpy(to, &f, 4);
        memcpy(to + 4, &(int32_t){ rank }, 4);
        break;
    case TUTTI_INT64_INT64:
        memcpy(to, &(affine_t){ (int64_t)v + 1, rank + 3 }, 16);
        break;
    default:
        abort();
    }
}

/* The reduction of element i over ranks first to last, in their order. */
static void fold(const task_facts_t *f, int first, int last, int size, size_t i, char *to)
{
    double acc = 0;
    int best = first;
    affine_t pair = { 1, 0 };

    for (int r = first; r <= last; r++) {
        double v = task_value(f, r, i);

        if (f->prescale != 0)
            v *= f->prescale;
        if (f->op == TUTTI_AVG)
            v *= size;
        if (r == first || (f->op == TUTTI_MINLOC && v < acc)) {
            best = r;
            acc = v;
        } else if (f->op == TUTTI_SUM || f->op == TUTTI_AVG) {
            acc += v;
        } else if (f->op == TUTTI_MAX) {
            acc = v > acc ? v : acc;
        }
        if (f->dtype == TUTTI_INT64_INT64) {
            affine_t mine = { (int64_t)v + 1, r + 3 };

            compose(&pair, &pair, &mine, 1, f->dtype, NULL);
        }
    }
    if (f->op == TUTTI_AVG)
        acc /= last - first + 1;
    if (f->postscale != 0)
        acc *= f->postscale;
    if (f->dtype == TUTTI_INT64_INT64)
        memcpy(to, &pair, sizeof(pair));
    else
        put(f->dtype, to, acc, best);
}

/* ---- shapes ---- */

/* Elements from rank `from` to rank `to` in v forms; some parts are empty. */
static size_t part(const task_facts_t *f, int from, int to)
{
    size_t n = f->count + (size_t)(from * 3 + to * 5 + f->number) % 4;

    return (from + 2 * to + f->number) % 5 == 0 ? 0 : n;
}

/* Elements of a rank's part, in v forms that send to one rank or from one rank. */
static size_t part_of(const task_facts_t *f, int rank)
{
    return part(f, rank, 0);
}

static size_t esize_of(const task_t *t)
{
    return tutti_dtype_bytes(t->facts.dtype);
}

static char *element(const task_t *t, char *buffer, size_t i)
{
    return buffer + i * esize_of(t);
}

/* Place parts one after another, or with gaps; returns the total number of elements. */
static size_t lay_out(const task_t *t, const size_t *counts, size_t *displs)
{
    size_t total = 0;

    for (int r = 0; r < t->size; r++) {
        displs[r] = total + (t->facts.displs ? 2 : 0);
        total = displs[r] + counts[r];
    }
    return total;
}

static void need(task_t *t, size_t send, size_t recv)
{
    t->send_bytes = send * esize_of(t);
    t->recv_bytes = recv * esize_of(t);
    t->send = calloc(t->send_bytes + 16, 1);
    t->sent = calloc(t->send_bytes + 16, 1);
    t->recv = calloc(t->recv_bytes + 16, 1);
    t->want = calloc(t->recv_bytes + 16, 1);
    CHECK(t->send && t->sent && t->recv && t->want);
    memset(t->want, 0x5a, t->recv_bytes);
    t->call.sendbuf = t->send;
    t->call.recvbuf = t->recv;
}

/* From element `at` on, sendbuf has the rank's elements from `first` on. */
static void give(task_t *t, size_t at, size_t first, size_t n)
{
    double scale = t->facts.op == TUTTI_AVG ? t->size : 1;

    for (size_t i = 0; i < n; i++)
        put(t->facts.dtype, element(t, t->send, at + i),
            task_value(&t->facts, t->rank, first + i) * scale, t->rank);
}

/* From element `at` on, recvbuf must get elements of `rank` from `first` on. */
static void get(task_t *t, size_t at, int rank, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(t->facts.dtype, element(t, t->want, at + i), task_value(&t->facts, rank, first + i),
            rank);
}

static void get_fold(task_t *t, size_t first, size_t n, int last)
{
    for (size_t i = 0; i < n; i++)
        fold(&t->facts, 0, last, t->size, first + i, element(t, t->want, i));
}

/* ---- kinds ---- */

static void make_reduction(task_t *t)
{
    const task_facts_t *f = &t->facts;
    size_t n = f->count, first = 0;
    int last = f->kind == TUTTI_CALL_SCAN     ? t->rank
               : f->kind == TUTTI_CALL_EXSCAN ? t->rank - 1
                                              : t->size - 1;

    t->call.count = n;
    if (f->kind == TUTTI_CALL_REDUCE_SCATTER) {
        need(t, n * (size_t)t->size, n);
        first = n * (size_t)t->rank;
        give(t, 0, 0, n * (size_t)t->size);
    } else if (f->kind == TUTTI_CALL_REDUCE_SCATTERV) {
        size_t total = 0;

        for (int r = 0; r < t->size; r++) {
            t->arrays[r] = part_of(f, r);
            first += r < t->rank ? t->arrays[r] : 0;
            total += t->arrays[r];
        }
        n = t->arrays[t->rank];
        t->call.recvcounts = t->arrays;
        t->call.count = 0;
        need(t, total, n);
        give(t, 0, 0, total);
    } else {
        need(t, n, n);
        give(t, 0, 0, n);
    }
    if (f->kind != TUTTI_CALL_REDUCE || t->rank == f->root)
        get_fold(t, first, n, last);
    if (last < 0)
        memset(t->want, 0x5a, t->recv_bytes);
}

static void make_equal(task_t *t)
{
    const task_facts_t *f = &t->facts;
    size_t n = f->count, size = (size_t)t->size;
    int root = t->rank == f->root;

    t->call.count = n;
    switch (f->kind) {
    case TUTTI_CALL_BROADCAST:
        need(t, 0, n);
        get(t, 0, f->root, 0, n);
        break;
    case TUTTI_CALL_ALLGATHER:
    case TUTTI_CALL_GATHER:
        need(t, n, n * size);
        give(t, 0, 0, n);
        for (int s = 0; (root || f->kind == TUTTI_CALL_ALLGATHER) && s < t->size; s++)
            get(t, n * (size_t)s, s, 0, n);
        break;
    case TUTTI_CALL_SCATTER:
        need(t, n * size, n);
        give(t, 0, 0, n * size);
        get(t, 0, f->root, n * (size_t)t->rank, n);
        break;
    default: /* ALLTOALL */
        need(t, n * size, n * size);
        give(t, 0, 0, n * size);
        for (int s = 0; s < t->size; s++)
            get(t, n * (size_t)s, s, n * (size_t)t->rank, n);
        break;
    }
}

static void make_gatherv(task_t *t)
{
    const task_facts_t *f = &t->facts;
    int receives = f->kind == TUTTI_CALL_ALLGATHERV || t->rank == f->root;
    size_t *counts = t->arrays, *displs = t->arrays + t->size, total;

    for (int r = 0; r < t->size; r++)
        counts[r] = part_of(f, r);
    total = lay_out(t, counts, displs);
    need(t, counts[t->rank], total);
    give(t, 0, 0, counts[t->rank]);
    for (int r = 0; receives && r < t->size; r++)
        get(t, displs[r], r, 0, counts[r]);
    t->call.count = counts[t->rank];
    t->call.recvcounts = f->later ? NULL : counts;
    t->call.recvdispls = f->displs && !f->later ? displs : NULL;
    if (f->later)
        t->call.recvbuf = NULL;
}

static void make_scatterv(task_t *t)
{
    const task_facts_t *f = &t->facts;
    size_t *counts = t->arrays, *displs = t->arrays + t->size, total;

    for (int r = 0; r < t->size; r++)
        counts[r] = part_of(f, r);
    total = lay_out(t, counts, displs);
    need(t, total, counts[t->rank]);
    give(t, 0, 0, total);
    get(t, 0, f->root, displs[t->rank], counts[t->rank]);
    t->call.count = counts[t->rank];
    t->call.sendcounts = counts;
    t->call.senddispls = f->displs ? displs : NULL;
}

static void make_alltoallv(task_t *t)
{
    const task_facts_t *f = &t->facts;
    size_t *sends = t->arrays, *places = sends + t->size;
    size_t *recvs = places + t->size, *displs = recvs + t->size, send, recv;

    for (int r = 0; r < t->size; r++) {
        sends[r] = part(f, t->rank, r);
        recvs[r] = part(f, r, t->rank);
    }
    send = lay_out(t, sends, places);
    recv = lay_out(t, recvs, displs);
    need(t, send, recv);
    for (int r = 0; r < t->size; r++)
        give(t, places[r], (size_t)r * 7, sends[r]);
    for (int r = 0; r < t->size; r++)
        get(t, displs[r], r, (size_t)t->rank * 7, recvs[r]);
    t->call.sendcounts = sends;
    t->call.senddispls = f->displs ? places : NULL;
    t->call.recvcounts = f->later ? NULL : recvs;
    t->call.recvdispls = f->displs && !f->later ? displs : NULL;
    if (f->later)
        t->call.recvbuf = NULL;
}

/* Rings of all ranks, and pairs of neighbours. */
static void make_message(task_t *t)
{
    const task_facts_t *f = &t->facts;
    size_t n = f->count;
    int next = (t->rank + 1) % t->size, before = (t->rank + t->size - 1) % t->size;

    need(t, n, n);
    t->call.count = n;
    if (t->size == 1) {
        t->idle = 1;
    } else if (f->kind == TUTTI_CALL_SENDRECV) {
        t->call.root = next;
        t->call.source = before;
        t->call.recvcount = n;
        give(t, 0, 0, n);
        get(t, 0, before, 0, n);
    } else if (t->rank % 2 == 0) {
        t->call.kind = TUTTI_CALL_SEND;
        t->call.root = t->rank + 1;
        t->idle = t->rank == t->size - 1;
        give(t, 0, 0, n);
    } else {
        t->call.kind = TUTTI_CALL_RECV;
        t->call.root = t->rank - 1;
        get(t, 0, t->rank - 1, 0, n);
    }
}

static void make_by_kind(task_t *t)
{
    switch (t->facts.kind) {
    case TUTTI_CALL_BARRIER:
        need(t, 0, 0);
        t->call.sendbuf = t->call.recvbuf = NULL;
        break;
    case TUTTI_CALL_BROADCAST:
    case TUTTI_CALL_ALLGATHER:
    case TUTTI_CALL_GATHER:
    case TUTTI_CALL_SCATTER:
    case TUTTI_CALL_ALLTOALL:
        make_equal(t);
        break;
    case TUTTI_CALL_ALLGATHERV:
    case TUTTI_CALL_GATHERV:
        make_gatherv(t);
        break;
    case TUTTI_CALL_SCATTERV:
        make_scatterv(t);
        break;
    case TUTTI_CALL_ALLTOALLV:
        make_alltoallv(t);
        break;
    case TUTTI_CALL_SEND:
    case TUTTI_CALL_RECV:
    case TUTTI_CALL_SENDRECV:
        make_message(t);
        break;
    default:
        make_reduction(t);
        break;
    }
}

task_t *task_make(const rank_t *self, const task_facts_t *facts)
{
    task_t *t = calloc(1, sizeof(*t));

    CHECK(t != NULL);
    t->facts = *facts;
    t->rank = self->rank;
    t->size = self->size;
    t->arrays = calloc(4 * (size_t)self->size, sizeof(*t->arrays));
    CHECK(t->arrays != NULL);
    snprintf(t->name, sizeof(t->name), "task %d", facts->number);
    t->options = (tutti_async_options_t)TUTTI_ASYNC_OPTIONS_INIT;
    t->options.prescale = facts->prescale;
    t->options.postscale = facts->postscale;
    t->call = (tutti_call_t)TUTTI_CALL_INIT;
    t->call.kind = facts->kind;
    t->call.dtype = facts->dtype;
    t->call.op = facts->op;
    t->call.root = facts->root;
    t->call.name = t->name;
    t->call.options = &t->options;
    make_by_kind(t);
    memcpy(t->sent, t->send, t->send_bytes);
    if (facts->in_place)
        t->call.sendbuf = t->recv;
    task_reset(t);
    return t;
}

void task_free(task_t *task)
{
    free(task->send);
    free(task->sent);
    free(task->recv);
    free(task->want);
    free(task->arrays);
    free(task);
}

void task_reset(task_t *t)
{
    memset(t->recv, 0x5a, t->recv_bytes);
    if (t->facts.in_place)
        memcpy(t->recv, t->sent, t->send_bytes);
    if (t->facts.kind == TUTTI_CALL_BROADCAST && t->rank == t->facts.root)
        memcpy(t->recv, t->want, t->recv_bytes);
}
