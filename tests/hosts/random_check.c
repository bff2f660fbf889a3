/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random direct calls between hosts. Each rank of random_check.sh runs this program. All ranks draw
 * the same calls. In half of these, some ranks make another call. Then all ranks must get
 * TUTTI_ERR_MISMATCH, and no buffer may be written. Otherwise the result must be right, and no
 * other memory may be written. Sizes are on both sides of the largest size whose data are sent with
 * the comparison of calls. Like an application the program uses only the library's headers.
 *
 * usage: random_check CALLS [SEED]
 */
#include "checks.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_RANKS = 8,
    MOST = 5000,
    ROOM = MOST * MOST_RANKS
};

typedef struct {
    tutti_call_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    int root, in_place;
    size_t count;
} what_t;

static tutti_comm_t *world;
static int32_t s[ROOM], r[ROOM];
static uint64_t state;
static unsigned call_number;

/* ---- drawing ---- */

/* xorshift64*; Vigna, ACM TOMS 42(4), 2016. */
static unsigned draw(unsigned below)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (unsigned)((state * 0x2545f4914f6cdd1du) >> 33) % below;
}

static what_t draw_call(void)
{
    static const tutti_call_kind_t kinds[] = {
        TUTTI_CALL_ALLREDUCE, TUTTI_CALL_REDUCE, TUTTI_CALL_BROADCAST, TUTTI_CALL_REDUCE_SCATTER,
        TUTTI_CALL_ALLGATHER, TUTTI_CALL_GATHER, TUTTI_CALL_SCATTER,   TUTTI_CALL_ALLTOALL,
        TUTTI_CALL_BARRIER,   TUTTI_CALL_SCAN,
    };
    static const size_t counts[] = { 0, 1, 2, 5, 64, 500, 2000, 4092, 4096, MOST };
    what_t w = { .kind = kinds[draw(10)], .dtype = TUTTI_INT32, .op = TUTTI_SUM };

    w.count = w.kind == TUTTI_CALL_BARRIER ? 0 : counts[draw(10)];
    w.op = reduces(w.kind) && draw(2) ? TUTTI_MAX : TUTTI_SUM;
    w.root = is_rooted(w.kind) ? (int)draw((unsigned)size) : 0;
    w.in_place = w.kind == TUTTI_CALL_ALLREDUCE && draw(2);
    return w;
}

static int is_same(const what_t *a, const what_t *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->count == b->count;
}

/* Draw a call that differs: any other call, or the same call with one changed argument. */
static what_t draw_other(const what_t *w)
{
    what_t other;

    do {
        other = draw_call();
        if (draw(2) && w->kind != TUTTI_CALL_BARRIER) {
            other = *w;
            other.count = draw(3) ? w->count : w->count + 1;
            other.dtype = draw(3) ? w->dtype : TUTTI_FLOAT32;
            other.op = reduces(w->kind) && draw(2) ? TUTTI_MIN : w->op;
            other.root = is_rooted(w->kind) ? (int)draw((unsigned)size) : w->root;
        }
    } while (is_same(&other, w) || other.count > MOST);
    return other;
}

/* ---- calls ---- */

static int32_t value(int of, size_t i)
{
    return (int32_t)((call_number * 7u + (unsigned)of * 131u + (unsigned)i * 3u) % 1009u);
}

static tutti_status_t make(const what_t *w)
{
    const int32_t *in = w->in_place ? r : s;

    switch (w->kind) {
    case TUTTI_CALL_ALLREDUCE:
        return tutti_allreduce(in, r, w->count, w->dtype, w->op, world);
    case TUTTI_CALL_REDUCE:
        return tutti_reduce(s, r, w->count, w->dtype, w->op, w->root, world);
    case TUTTI_CALL_BROADCAST:
        return tutti_broadcast(r, w->count, w->dtype, w->root, world);
    case TUTTI_CALL_REDUCE_SCATTER:
        return tutti_reduce_scatter(s, r, w->count, w->dtype, w->op, world);
    case TUTTI_CALL_ALLGATHER:
        return tutti_allgather(s, r, w->count, w->dtype, world);
    case TUTTI_CALL_GATHER:
        return tutti_gather(s, r, w->count, w->dtype, w->root, world);
    case TUTTI_CALL_SCATTER:
        return tutti_scatter(s, r, w->count, w->dtype, w->root, world);
    case TUTTI_CALL_ALLTOALL:
        return tutti_alltoall(s, r, w->count, w->dtype, world);
    case TUTTI_CALL_SCAN:
        return tutti_scan(s, r, w->count, w->dtype, w->op, world);
    default:
        return tutti_barrier(world);
    }
}

/* The value of r[i] before the call. */
static int32_t before(const what_t *w, size_t i)
{
    int is_input = w->in_place || (w->kind == TUTTI_CALL_BROADCAST && rank == w->root);

    return is_input ? value(rank, i) : -7;
}

static int32_t reduced(const what_t *w, size_t i, int last)
{
    int32_t result = value(0, i);

    for (int q = 1; q <= last; q++) {
        int32_t v = value(q, i);

        result = w->op == TUTTI_SUM ? result + v : v > result ? v : result;
    }
    return result;
}

/* The elements of r that the call writes, and their values. */
static size_t written(const what_t *w)
{
    int everywhere = w->kind == TUTTI_CALL_ALLGATHER || w->kind == TUTTI_CALL_ALLTOALL;

    if ((w->kind == TUTTI_CALL_REDUCE || w->kind == TUTTI_CALL_GATHER) && rank != w->root)
        return 0;
    return everywhere || w->kind == TUTTI_CALL_GATHER ? w->count * (size_t)size : w->count;
}

static int32_t wanted(const what_t *w, size_t i)
{
    size_t own = w->count * (size_t)rank + i;

    switch (w->kind) {
    case TUTTI_CALL_BROADCAST:
        return value(w->root, i);
    case TUTTI_CALL_REDUCE_SCATTER:
        return reduced(w, own, size - 1);
    case TUTTI_CALL_ALLGATHER:
    case TUTTI_CALL_GATHER:
        return value((int)(i / w->count), i % w->count);
    case TUTTI_CALL_SCATTER:
        return value(w->root, own);
    case TUTTI_CALL_ALLTOALL:
        return value((int)(i / w->count), w->count * (size_t)rank + i % w->count);
    case TUTTI_CALL_SCAN:
        return reduced(w, i, rank);
    default:
        return reduced(w, i, size - 1);
    }
}

static void one_call(void)
{
    what_t all = draw_call(), other = draw_other(&all), *w = &all;
    size_t room = (size_t)(MOST * size);
    unsigned odd = draw(2) ? 1 + draw((1u << size) - 2) : 0; /* a bit for each odd rank */
    tutti_status_t status;

    if (odd >> rank & 1)
        w = &other;
    for (size_t i = 0; i < room; i++) {
        s[i] = value(rank, i);
        r[i] = before(w, i);
    }
    status = make(w);
    CHECK(status == (odd ? TUTTI_ERR_MISMATCH : TUTTI_OK),
          "kinds %d and %d, counts %zu and %zu, odd %x: %s (%s)", (int)all.kind, (int)other.kind,
          all.count, other.count, odd, tutti_strerror(status),
          status == TUTTI_OK ? "" : tutti_last_error());
    for (size_t i = 0; i < room; i++) {
        int32_t v = !odd && i < written(w) ? wanted(w, i) : before(w, i);

        CHECK(r[i] == v, "kind %d, count %zu, odd %x: element %zu is %d, wanted %d", (int)w->kind,
              w->count, odd, i, (int)r[i], (int)v);
    }
}

int main(int argc, char **argv)
{
    unsigned calls = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;

    start_world();
    world = tutti_world();
    CHECK(calls > 0 && size > 1 && size <= MOST_RANKS, "usage: random_check CALLS [SEED]");
    state = 88172645463325252u + (argc > 2 ? strtoul(argv[2], NULL, 10) : 0);
    for (call_number = 1; call_number <= calls; call_number++) {
        snprintf(now_at, sizeof(now_at), ", call %u", call_number);
        one_call();
    }
    OK(tutti_finalize());
    printf("rank %d of %d: %u random calls passed\n", rank, size, calls);
    return 0;
}
