/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct collectives with parts of different lengths. Some parts are empty, they may be at any
 * place, and gaps between them must not change.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/direct/reference.h"

#include <stdlib.h>
#include <string.h>

enum {
    RUBBISH = 0xa5
};

/* ---- parts of a buffer ---- */

typedef enum {
    DENSE, /* displs NULL */
    GAPS,
    TURNED, /* the last rank's part first, with gaps */
    STYLES
} style_t;

typedef struct {
    size_t counts[MOST_RANKS], displs[MOST_RANKS];
    size_t total;  /* elements of all parts */
    size_t extent; /* elements of the buffer */
    style_t style;
} parts_t;

/* The current parameters of the tests. */
typedef struct {
    rank_t *self;
    tutti_dtype_t dtype;
    size_t esize, scale; /* bytes; the largest parts have about 4 * scale elements */
    style_t style;
    int root, in_place;
    int ordered; /* 1: operations that do not commute are served */
    unsigned salt;
} way_t;

/* Elements from rank r to rank s; the same in both directions. */
static size_t count_of(const way_t *w, int r, int s)
{
    return (size_t)(r * s + r + s + (int)w->salt) % 5 * w->scale + (size_t)(r + s) % 2;
}

static void place_parts(const way_t *w, parts_t *p)
{
    int size = w->self->size;
    size_t at = 0;

    p->style = w->style;
    p->total = 0;
    for (int i = 0; i < size; i++) {
        int r = w->style == TURNED ? size - 1 - i : i;

        p->displs[r] = at;
        at += p->counts[r] + (w->style == DENSE ? 0 : 3);
        p->total += p->counts[r];
    }
    p->extent = at;
}

static const size_t *displs_of(const parts_t *p)
{
    return p->style == DENSE ? NULL : p->displs;
}

static char *new_buffer(const way_t *w, size_t elements)
{
    char *buf = malloc(elements * w->esize + 1);

    CHECK(buf != NULL);
    memset(buf, RUBBISH, elements * w->esize + 1);
    return buf;
}

/* Write the data of rank `from`. */
static void put(const way_t *w, char *to, int from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        reference_value(w->dtype, TUTTI_SUM, from, i, w->salt, to + i * w->esize);
}

static void check_data(const way_t *w, const char *got, int from, size_t count)
{
    char element[REFERENCE_MOST_BYTES];

    for (size_t i = 0; i < count; i++) {
        reference_value(w->dtype, TUTTI_SUM, from, i, w->salt, element);
        if (memcmp(got + i * w->esize, element, w->esize) != 0)
            ranks_fail(__FILE__, __LINE__,
                       "type %d, scale %zu, style %d, root %d, in place %d: element %zu of %zu "
                       "from %d is wrong",
                       (int)w->dtype, w->scale, (int)w->style, w->root, w->in_place, i, count,
                       from);
    }
}

/* Everything outside the parts must be unchanged. */
static void check_gaps(const way_t *w, const char *buf, const parts_t *p)
{
    char *covered = calloc(p->extent + 1, 1);

    for (int r = 0; r < w->self->size; r++)
        memset(covered + p->displs[r], 1, p->counts[r]);
    for (size_t i = 0; i <= p->extent; i++)
        for (size_t b = 0; !covered[i] && b < (i < p->extent ? w->esize : 1); b++)
            CHECK_INT((unsigned char)buf[i * w->esize + b], RUBBISH);
    free(covered);
}

/* ---- the collectives ---- */

static void allgatherv(const way_t *w)
{
    rank_t *self = w->self;
    int me = self->rank;
    parts_t p;
    char *recv, *send;

    for (int r = 0; r < self->size; r++)
        p.counts[r] = count_of(w, r, 0);
    place_parts(w, &p);
    recv = new_buffer(w, p.extent);
    send = w->in_place ? recv + p.displs[me] * w->esize : new_buffer(w, p.counts[me]);
    put(w, send, me, p.counts[me]);
    CHECK_OK(tutti_allgatherv(p.counts[me] > 0 ? send : NULL, p.counts[me], recv, p.counts,
                              displs_of(&p), w->dtype, self->comm));
    for (int r = 0; r < self->size; r++)
        check_data(w, recv + p.displs[r] * w->esize, r, p.counts[r]);
    check_gaps(w, recv, &p);
    if (!w->in_place)
        free(send);
    free(recv);
}

static void gatherv(const way_t *w)
{
    rank_t *self = w->self;
    int me = self->rank, is_root = me == w->root;
    size_t mine = count_of(w, me, w->root);
    char *recv = NULL, *send;
    parts_t p;

    for (int r = 0; r < self->size; r++)
        p.counts[r] = count_of(w, r, w->root);
    place_parts(w, &p);
    if (is_root)
        recv = new_buffer(w, p.extent);
    send = is_root && w->in_place ? recv + p.displs[me] * w->esize : new_buffer(w, mine);
    put(w, send, me, mine);
    CHECK_OK(tutti_gatherv(send, mine, recv, is_root ? p.counts : NULL,
                           is_root ? displs_of(&p) : NULL, w->dtype, w->root, self->comm));
    for (int r = 0; is_root && r < self->size; r++)
        check_data(w, recv + p.displs[r] * w->esize, r, p.counts[r]);
    if (is_root)
        check_gaps(w, recv, &p);
    if (!is_root || !w->in_place)
        free(send);
    free(recv);
}

static void scatterv(const way_t *w)
{
    rank_t *self = w->self;
    int me = self->rank, is_root = me == w->root;
    size_t mine = count_of(w, w->root, me);
    char *recv, *send = NULL;
    parts_t p;

    for (int r = 0; r < self->size; r++)
        p.counts[r] = count_of(w, w->root, r);
    place_parts(w, &p);
    if (is_root)
        send = new_buffer(w, p.extent);
    for (int r = 0; is_root && r < self->size; r++)
        put(w, send + p.displs[r] * w->esize, r, p.counts[r]);
    recv = is_root && w->in_place ? send + p.displs[me] * w->esize : new_buffer(w, mine);
    CHECK_OK(tutti_scatterv(send, is_root ? p.counts : NULL, is_root ? displs_of(&p) : NULL, recv,
                            mine, w->dtype, w->root, self->comm));
    check_data(w, recv, me, mine);
    if (is_root)
        check_gaps(w, send, &p);
    if (!is_root || !w->in_place) {
        CHECK_INT((unsigned char)recv[mine * w->esize], RUBBISH);
        free(recv);
    }
    free(send);
}

static void alltoallv(const way_t *w)
{
    rank_t *self = w->self;
    int me = self->rank;
    char *recv, *send;
    way_t other = *w;
    parts_t out, in;

    /* If the call is not in place, the two sides have different layouts. */
    if (!w->in_place)
        other.style = (style_t)((w->style + 1) % STYLES);
    for (int r = 0; r < self->size; r++)
        out.counts[r] = in.counts[r] = count_of(w, me, r);
    place_parts(&other, &out);
    place_parts(w, &in);
    recv = new_buffer(w, in.extent);
    send = w->in_place ? recv : new_buffer(w, out.extent);
    for (int r = 0; r < self->size; r++)
        put(w, send + out.displs[r] * w->esize, me * MOST_RANKS + r, out.counts[r]);
    CHECK_OK(tutti_alltoallv(send, out.counts, displs_of(&out), recv, in.counts, displs_of(&in),
                             w->dtype, self->comm));
    for (int r = 0; r < self->size; r++)
        check_data(w, recv + in.displs[r] * w->esize, r * MOST_RANKS + me, in.counts[r]);
    check_gaps(w, recv, &in);
    if (!w->in_place)
        free(send);
    free(recv);
}

/* Counts that differ between both directions, and ranks without any data. */
static void uneven_alltoallv(const way_t *w)
{
    rank_t *self = w->self;
    int me = self->rank;
    parts_t out, in;
    char *recv, *send;

    for (int r = 0; r < self->size; r++) {
        out.counts[r] = me == 1 ? 0 : (size_t)(3 * me + r) % 4 * w->scale;
        in.counts[r] = r == 1 ? 0 : (size_t)(3 * r + me) % 4 * w->scale;
    }
    place_parts(w, &out);
    place_parts(w, &in);
    recv = new_buffer(w, in.extent);
    send = new_buffer(w, out.extent);
    for (int r = 0; r < self->size; r++)
        put(w, send + out.displs[r] * w->esize, me * MOST_RANKS + r, out.counts[r]);
    CHECK_OK(tutti_alltoallv(out.total > 0 ? send : NULL, out.counts, displs_of(&out),
                             in.total > 0 ? recv : NULL, in.counts, displs_of(&in), w->dtype,
                             self->comm));
    for (int r = 0; r < self->size; r++)
        check_data(w, recv + in.displs[r] * w->esize, r * MOST_RANKS + me, in.counts[r]);
    check_gaps(w, recv, &in);
    free(send);
    free(recv);
}

/* in_place: 0: separate buffers; 1: in place as in NCCL; 2: in place as in MPI. */
static void reduce_scatterv_one(const way_t *w, tutti_op_t op, int in_place)
{
    rank_t *self = w->self;
    int me = self->rank;
    char element[REFERENCE_MOST_BYTES];
    char *send, *recv;
    way_t dense = *w;
    parts_t p;

    for (int r = 0; r < self->size; r++)
        p.counts[r] = count_of(w, r, 0);
    dense.style = DENSE;
    place_parts(&dense, &p);
    send = new_buffer(w, p.total);
    recv = in_place == 0   ? new_buffer(w, p.counts[me])
           : in_place == 1 ? send + p.displs[me] * w->esize
                           : send;
    for (size_t i = 0; i < p.total; i++)
        reference_value(w->dtype, op, me, i, w->salt, send + i * w->esize);
    CHECK_OK(tutti_reduce_scatterv(send, recv, p.counts, w->dtype, op, self->comm));
    for (size_t i = 0; i < p.counts[me]; i++) {
        reference_fold(w->dtype, op, 0, self->size, p.displs[me] + i, w->salt, element);
        CHECK(memcmp(recv + i * w->esize, element, w->esize) == 0);
    }
    if (in_place == 0) {
        CHECK_INT((unsigned char)recv[p.counts[me] * w->esize], RUBBISH);
        free(recv);
    }
    free(send);
}

static void reduce_scatterv(const way_t *w)
{
    for (int in_place = 0; in_place < 3; in_place++) {
        for (int o = 1; o <= REFERENCE_OPS; o++)
            if (reference_serves(w->dtype, (tutti_op_t)o))
                reduce_scatterv_one(w, (tutti_op_t)o, in_place);
        if (w->dtype == TUTTI_UINT64 && w->ordered)
            reduce_scatterv_one(w, reference_user_op(REFERENCE_AFFINE), in_place);
    }
}

static void every_v(way_t *w)
{
    for (int style = 0; style < STYLES; style++) {
        for (w->in_place = 0; w->in_place < 2; w->in_place++) {
            w->style = (style_t)style;
            w->salt++;
            allgatherv(w);
            alltoallv(w);
            for (w->root = 0; w->root < w->self->size; w->root++) {
                gatherv(w);
                scatterv(w);
            }
        }
        uneven_alltoallv(w);
    }
}

static void vectors(rank_t *self)
{
    way_t w = { .self = self, .ordered = 1 };

    for (int t = 1; t <= REFERENCE_TYPES; t++) {
        w.dtype = (tutti_dtype_t)t;
        w.esize = tutti_dtype_bytes(w.dtype);
        w.scale = 3;
        every_v(&w);
        reduce_scatterv(&w);
    }
    /* Several chunks for some ranks, and none for others. */
    w.dtype = TUTTI_UINT64;
    w.esize = 8;
    w.scale = CHUNK_BYTES / 8 + 5;
    every_v(&w);
    reduce_scatterv(&w);
    /* All parts are empty. */
    w.scale = 0;
    for (int r = 0; r < 2; r++) {
        size_t none[MOST_RANKS] = { 0 };

        CHECK_OK(tutti_allgatherv(NULL, 0, NULL, none, NULL, TUTTI_INT8, self->comm));
        CHECK_OK(tutti_gatherv(NULL, 0, NULL, none, none, TUTTI_INT8, 0, self->comm));
        CHECK_OK(tutti_scatterv(NULL, none, NULL, NULL, 0, TUTTI_INT8, 0, self->comm));
        CHECK_OK(tutti_alltoallv(NULL, none, NULL, NULL, none, none, TUTTI_INT8, self->comm));
        CHECK_OK(tutti_reduce_scatterv(NULL, NULL, none, TUTTI_INT8, TUTTI_SUM, self->comm));
    }
    CHECK_OK(tutti_barrier(self->comm));
}

/* The collectives with parts of different lengths that an algorithm serves. */
static void forced_vectors(rank_t *self)
{
    const forced_t *forced = self->arg;
    way_t w = {
        .self = self, .dtype = TUTTI_UINT64, .esize = 8, .scale = 3, .ordered = forced->ordered
    };

    switch (forced->algorithm->collective) {
    case TUTTI__REDUCE_SCATTER:
    case TUTTI__ALLGATHERV:
    case TUTTI__GATHERV:
    case TUTTI__SCATTERV:
    case TUTTI__ALLTOALLV:
        every_v(&w);
        w.scale = CHUNK_BYTES / 8 + 5;
        every_v(&w);
        reduce_scatterv(&w);
        break;
    default:
        break;
    }
}

int main(void)
{
    static const int sizes[] = { 1, 2, 3, 5, 4, 7, 8 };
    static const char *const hosts[] = { "abc", "aabb", "ab", "aaabb", "abab" };
    int failures = 0, threads = !ranks_can_fork();
    int whole = test_is_long("4 to 8 ranks of one host, and three of five placings on hosts");

    reference_create_ops();
    for (size_t i = 0; i < (whole ? COUNT_OF(sizes) : 3) && !(threads && sizes[i] > 3); i++) {
        job_t job = {
            .size = sizes[i], .fn = vectors, .threads = threads, .settings = small_pieces
        };

        RUN_JOB(failures, &job);
    }
    for (size_t i = 0; i < (whole ? COUNT_OF(hosts) : 2) && !(threads && i > 1); i++) {
        job_t job = { .size = (int)strlen(hosts[i]),
                      .hosts = hosts[i],
                      .fn = vectors,
                      .threads = threads,
                      .settings = small_pieces };

        RUN_JOB(failures, &job);
    }
    failures += run_each_algorithm(forced_vectors, 3, NULL, threads);
    if (whole && !threads)
        failures += run_each_algorithm(forced_vectors, 8, NULL, threads);
    return failures != 0;
}
