/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations by NCCL over the pretend device. The results of all kinds and maps are compared
 * with an element-wise reference. Several lanes run at once, in a different order on each rank,
 * with two threads per rank.
 */
#include "unit/node/test_nccl_world.h"
#include "long.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    RANKS = NCCL_RANKS,
    CASES = 1024,
    IDLE_US = 20,      /* between polls */
    IDLES = 500000,    /* limit of consecutive idle polls */
    IDLES_AWAKE = 100, /* the first of these polls have no pause */
    BLOCKS = 300,      /* more than NCCL's calls in one group */
    SENTINEL = 99      /* in memory that no rank may write */
};

/* How the elements are cut into blocks. */
typedef enum {
    EVEN,
    ONE_MORE, /* the last block is longer */
    UNEVEN,
    FEW,    /* some blocks are empty */
    TABLE,  /* irregular */
    PLACES, /* places that differ on each rank */
    MAPS
} map_t;

/* How the buffers are passed to an operation. */
typedef enum {
    WHOLE,
    CHUNKS,
    TO_SCRATCH,
    FROM_SCRATCH,
    SHIFTED, /* other blocks of the destination */
    MODES
} way_t;

/* The required result. */
typedef enum {
    FINE,
    NOT_SERVED,
    OTHER_COUNT, /* the last rank has another count */
    OTHER_MEMORY /* the last rank has host memory */
} end_t;

/* One call on all ranks. */
typedef struct {
    tutti__op_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    uint32_t divisor, root, nblk, nparts;
    map_t map;
    way_t mode;
    int in_place, is_late; /* is_late: a stream of the caller writes the source */
    end_t end;
} case_t;

/* The call of one rank. */
typedef struct {
    tutti__node_call_t call;
    size_t table[BLOCKS + 1], begins[BLOCKS];
    size_t extent, trips;
    char *src, *dst, *late; /* device memory */
} own_t;

static case_t cases[CASES];
static uint32_t ncases;
static atomic_int is_over; /* a driver (see below) has found an error */

/* ---- one call: buffers and reference ---- */

static uint32_t all_blocks(const case_t *c)
{
    return c->nblk * c->nparts;
}

static void make_map(const case_t *c, uint32_t r, own_t *own)
{
    tutti__blockmap_t *map = &own->call.map;
    uint32_t blocks = all_blocks(c) * (c->mode == SHIFTED ? 2 : 1);
    static const size_t lengths[] = { 3, 0, 8, 1, 5 };
    int equal = c->kind == TUTTI__NODE_ALLTOALL || c->mode == SHIFTED;

    map->nblocks = blocks;
    map->chunk = 3;
    map->count = c->map == FEW ? blocks / 2 : blocks * 7;
    if (c->map == ONE_MORE)
        map->count++;
    if (c->map == UNEVEN)
        map->count += blocks - 1;
    own->extent = map->count;
    if (c->map < TABLE)
        return;
    for (uint32_t b = 0; b < blocks; b++)
        own->table[b + 1] = own->table[b] + (equal ? 7 : lengths[b % 5]);
    map->table = own->table;
    map->count = own->extent = own->table[blocks];
    if (c->map != PLACES)
        return;
    map->begins = own->begins;
    /* The places go backwards on every second rank. On the other ranks they go forwards and are
       contiguous. */
    own->extent = r;
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t b = c->nblk > 1 ? i : blocks - 1 - i;

        own->begins[b] = own->extent;
        own->extent += own->table[b + 1] - own->table[b] + r % 2;
    }
}

/* Distance of two SCRATCH blocks in elements; all blocks of a trip have it. */
static size_t scratch_step(const own_t *own)
{
    return own->call.map.chunk + 1;
}

static size_t count_of(const own_t *own, size_t trip, uint32_t j)
{
    const tutti__node_call_t *call = &own->call;
    size_t begin, count;

    if (call->whole)
        return tutti__block_count(&call->map, call->sblk + j);
    tutti__block_chunk(&call->map, call->sblk + j, trip, &begin, &count);
    return count;
}

/* The position in its buffer of the first element of block j in a trip. */
static size_t place_of(const case_t *c, const own_t *own, int is_dst, size_t trip, uint32_t j)
{
    const tutti__node_call_t *call = &own->call;
    size_t step = is_dst ? call->dst_step : call->src_step;

    if (step != 0)
        return (trip * all_blocks(c) + j) * step;
    return tutti__block_begin(&call->map, (is_dst ? call->dblk : call->sblk) + j) +
           (call->whole ? 0 : trip * call->map.chunk);
}

/* Every buffer is large enough for both kinds of places. */
static size_t room_of(const case_t *c, const own_t *own)
{
    return own->extent + own->trips * all_blocks(c) * scratch_step(own);
}

static int64_t initial(uint32_t r, size_t at)
{
    return (int64_t)((r * 7 + at * 3) % 13 + 1) - (at % 4 == 0 ? 8 : 0);
}

static void set(tutti_dtype_t dtype, void *to, int64_t value)
{
    switch (dtype) {
    case TUTTI_FLOAT32:
        *(float *)to = (float)value;
        break;
    case TUTTI_FLOAT64:
        *(double *)to = (double)value;
        break;
    case TUTTI_INT16:
        *(int16_t *)to = (int16_t)value;
        break;
    default:
        *(int32_t *)to = (int32_t)value;
    }
}

/* rank -1: SENTINEL values. */
static char *make_values(const case_t *c, size_t room, int64_t rank)
{
    size_t esize = tutti_dtype_bytes(c->dtype);
    char *values = malloc(room * esize);

    for (size_t i = 0; i < room; i++)
        set(c->dtype, values + i * esize, rank < 0 ? SENTINEL : initial((uint32_t)rank, i));
    return values;
}

static void fill(const case_t *c, char *buffer, size_t room, int64_t rank)
{
    char *values = make_values(c, room, rank);

    pretend_write(buffer, values, room * tutti_dtype_bytes(c->dtype));
    free(values);
}

/* Place a buffer at one of the two ends of the lane's memory, so that accesses beyond this end are
   detected. */
static char *place_buffer(const case_t *c, uint32_t r, uint32_t lane, uint32_t which, size_t room)
{
    size_t bytes = room * tutti_dtype_bytes(c->dtype);

    return nccl_job.buffer[r][lane][which] +
           ((c - cases) / 2 % 2 == 0 ? 0 : NCCL_BUFFER_BYTES - bytes);
}

static void make_own(const case_t *c, uint32_t r, uint32_t lane, own_t *own)
{
    size_t room;

    memset(own, 0, sizeof(*own));
    make_map(c, r, own);
    own->call.kind = c->kind;
    own->call.dtype = c->dtype;
    own->call.op = c->op;
    own->call.tag = TUTTI__TAG_ALLREDUCE;
    own->call.divisor = c->divisor;
    own->call.root = c->root;
    own->call.whole = c->mode == WHOLE || c->mode == SHIFTED;
    own->call.nblk = c->nblk;
    own->call.nparts = c->nparts;
    own->call.dblk = c->mode == SHIFTED ? all_blocks(c) : 0;
    own->call.src_step = c->mode == FROM_SCRATCH ? scratch_step(own) : 0;
    own->call.dst_step = c->mode == TO_SCRATCH ? scratch_step(own) : 0;
    own->trips = own->call.whole ? 1 : tutti__blockmap_trips(&own->call.map);
    room = room_of(c, own);
    own->src = place_buffer(c, r, lane, 0, room);
    own->dst = c->in_place ? own->src : place_buffer(c, r, lane, 1, room);
    own->late = place_buffer(c, r, lane, 2, room);
    fill(c, own->late, room, r);
    if (!c->in_place)
        fill(c, own->dst, room, -1);
    fill(c, own->src, room, c->is_late ? -1 : (int64_t)r);
}

/* Rank r's element e of block j in a trip, before the call. */
static void source(const case_t *c, const own_t *own, uint32_t r, size_t trip, uint32_t j, size_t e,
                   void *to)
{
    own_t peer = { .call = own->call };

    make_map(c, r, &peer);
    set(c->dtype, to, initial(r, place_of(c, &peer, 0, trip, j) + e));
}

/* The value that rank `me` must have at this place. Returns 0 if the rank receives nothing
   there. */
static int expected(const case_t *c, const own_t *own, uint32_t me, size_t trip, uint32_t j,
                    size_t e, void *to)
{
    double value[RANKS];
    const void *srcs[RANKS];
    tutti__reducer_t reducer;

    if ((c->kind == TUTTI__NODE_REDUCE && me != c->root) ||
        (c->kind == TUTTI__NODE_REDUCE_SCATTER && j / c->nblk != me))
        return 0;
    if (c->kind == TUTTI__NODE_BCAST) {
        source(c, own, c->root, trip, j, e, to);
    } else if (c->kind == TUTTI__NODE_ALLGATHER) {
        source(c, own, j / c->nblk, trip, j, e, to);
    } else if (c->kind == TUTTI__NODE_ALLTOALL) {
        source(c, own, j / c->nblk, trip, me * c->nblk + j % c->nblk, e, to);
    } else {
        for (uint32_t r = 0; r < nccl_job.n; r++) {
            source(c, own, r, trip, j, e, &value[r]);
            srcs[r] = &value[r];
        }
        tutti__reducer_find(c->dtype, c->op, &reducer);
        tutti__reduce(&reducer, to, srcs, nccl_job.n, 1, c->divisor);
    }
    return 1;
}

/* Checks that all required elements are correct, and that no other elements have changed. Returns
   NULL, or the error. */
static const char *judge(const case_t *c, own_t *own, uint32_t me)
{
    size_t esize = tutti_dtype_bytes(c->dtype), room = room_of(c, own);
    char *want = make_values(c, room, c->in_place ? (int64_t)me : -1);
    char *got = malloc(room * esize);
    static _Thread_local char text[256];
    const char *wrong = NULL;

    pretend_read(got, own->dst, room * esize);
    for (size_t trip = 0; c->end == FINE && trip < own->trips; trip++) {
        for (uint32_t j = 0; j < all_blocks(c); j++) {
            size_t at = place_of(c, own, 1, trip, j);

            for (size_t e = 0; e < count_of(own, trip, j); e++)
                expected(c, own, me, trip, j, e, want + (at + e) * esize);
        }
    }
    for (size_t i = 0; i < room && wrong == NULL; i++) {
        if (memcmp(want + i * esize, got + i * esize, esize) == 0)
            continue;
        snprintf(text, sizeof(text), "wrong element %zu of %zu, rank %u", i, room, me);
        wrong = text;
    }
    free(got);
    free(want);
    return wrong;
}

/* ---- all cases ---- */

static void add(case_t c)
{
    assert_true(ncases < CASES);
    assert_true(c.nblk * c.nparts * (c.mode == SHIFTED ? 2 : 1) <= BLOCKS);
    cases[ncases++] = c;
}

static int is_parted(tutti__op_kind_t kind)
{
    return kind == TUTTI__NODE_REDUCE_SCATTER || kind == TUTTI__NODE_ALLGATHER ||
           kind == TUTTI__NODE_ALLTOALL;
}

/* Add cases of one kind of operation, with one number of blocks and parts. */
static void add_kind(uint32_t n, tutti__op_kind_t kind, uint32_t nblk, uint32_t nparts)
{
    for (int map = EVEN; map < MAPS; map++) {
        for (int mode = WHOLE; mode < MODES; mode++) {
            for (int in_place = 0; in_place < 2; in_place++) {
                int steps = mode == TO_SCRATCH || mode == FROM_SCRATCH;
                case_t c = { .kind = kind,
                             .dtype = ncases % 2 ? TUTTI_INT32 : TUTTI_FLOAT32,
                             .op = ncases % 5 == 0 ? TUTTI_MAX : TUTTI_SUM,
                             .root = ncases % n,
                             .nblk = nblk,
                             .nparts = nparts,
                             .map = (map_t)map,
                             .mode = (way_t)mode,
                             .in_place = in_place,
                             .is_late = ncases % 3 == 0 };

                if ((in_place && (steps || mode == SHIFTED)) || (mode == SHIFTED && map != EVEN))
                    continue;
                if (kind == TUTTI__NODE_ALLTOALL && map != EVEN && map < TABLE)
                    continue;
                add(c);
            }
        }
    }
}

static void add_averages(uint32_t n)
{
    static const tutti__op_kind_t kinds[] = { TUTTI__NODE_ALLREDUCE, TUTTI__NODE_REDUCE,
                                              TUTTI__NODE_REDUCE_SCATTER };
    static const tutti_dtype_t dtypes[] = { TUTTI_INT32, TUTTI_FLOAT32, TUTTI_FLOAT64 };

    for (uint32_t i = 0; i < 27; i++)
        add((case_t){ .kind = kinds[i % 3],
                      .dtype = dtypes[i / 3 % 3],
                      .op = TUTTI_AVG,
                      .divisor = i / 9 == 0 ? 0 : n + i / 9 - 1,
                      .root = n - 1,
                      .nblk = 1,
                      .nparts = kinds[i % 3] == TUTTI__NODE_REDUCE_SCATTER ? n : 1,
                      .map = UNEVEN });
}

static void add_odd(uint32_t n, end_t end)
{
    add((case_t){ .kind = TUTTI__NODE_ALLREDUCE,
                  .dtype = end == NOT_SERVED ? TUTTI_INT16 : TUTTI_FLOAT32,
                  .op = TUTTI_SUM,
                  .nblk = 1,
                  .nparts = 1,
                  .end = n > 1 || end == NOT_SERVED ? end : FINE });
}

/* Add cases of a type that NCCL does not have. */
static void add_moves(uint32_t n)
{
    for (int kind = TUTTI__NODE_ALLREDUCE; kind <= TUTTI__NODE_ALLTOALL; kind++)
        if (kind == TUTTI__NODE_BCAST || kind == TUTTI__NODE_ALLGATHER ||
            kind == TUTTI__NODE_ALLTOALL)
            add((case_t){ .kind = (tutti__op_kind_t)kind,
                          .dtype = TUTTI_INT16,
                          .op = TUTTI_SUM,
                          .root = n - 1,
                          .nblk = 1,
                          .nparts = is_parted((tutti__op_kind_t)kind) ? n : 1 });
}

static void add_all(uint32_t n)
{
    ncases = 0;
    for (int kind = TUTTI__NODE_ALLREDUCE; kind <= TUTTI__NODE_ALLTOALL; kind++) {
        uint32_t nparts = is_parted((tutti__op_kind_t)kind) ? n : 1;

        add_odd(n, (end_t)(NOT_SERVED + kind % 3));
        add_kind(n, (tutti__op_kind_t)kind, 1, nparts);
        add_odd(n, (end_t)(NOT_SERVED + (kind + 1) % 3));
        add_kind(n, (tutti__op_kind_t)kind, 3, nparts);
        if (nparts > 1 && kind != TUTTI__NODE_ALLTOALL)
            add_kind(n, (tutti__op_kind_t)kind, 2, nparts - 1);
    }
    add_averages(n);
    add_moves(n);
    for (int map = EVEN; map < MAPS; map++) {
        add((case_t){ .kind = TUTTI__NODE_ALLREDUCE,
                      .dtype = TUTTI_FLOAT32,
                      .op = TUTTI_SUM,
                      .nblk = BLOCKS,
                      .nparts = 1,
                      .map = (map_t)map });
        add((case_t){ .kind = TUTTI__NODE_ALLGATHER,
                      .dtype = TUTTI_FLOAT32,
                      .op = TUTTI_SUM,
                      .nblk = BLOCKS / n,
                      .nparts = n,
                      .map = (map_t)map });
    }
}

/* ---- running them ---- */

typedef struct {
    uint32_t rank, first_lane, end_lane, random;
    char wrong[512];
} driver_t;

/* A lane's progress through its cases, which are every LANES-th case. */
typedef struct {
    uint32_t at;
    int is_running;
    size_t trip;
    own_t own;
} track_t;

static uint32_t draw(driver_t *d)
{
    d->random ^= d->random << 13;
    d->random ^= d->random >> 17;
    d->random ^= d->random << 5;
    return d->random;
}

/* The caller's own stream writes the source. */
static void write_late(driver_t *d, uint32_t lane, const case_t *c, own_t *own)
{
    const tutti__device_ops_t *ops = watched_device();
    tutti__dstream_t *stream = nccl_job.stream[d->rank][lane];
    tutti_status_t status = ops->use((int)d->rank);

    if (status == TUTTI_OK)
        status =
            ops->copy(own->src, own->late, room_of(c, own) * tutti_dtype_bytes(c->dtype), stream);
    if (status == TUTTI_OK)
        status = ops->record(nccl_job.event[d->rank][lane], stream);
    if (status != TUTTI_OK)
        snprintf(d->wrong, sizeof(d->wrong), "writing late: %.400s", tutti_last_error());
    tutti__nccl_node_ready(nccl_job.node[d->rank], lane, nccl_job.event[d->rank][lane]);
}

/* Does the call of this rank differ from that of the other ranks? */
static int is_odd(const driver_t *d, const case_t *c, end_t end)
{
    return c->end == end && d->rank + 1 == nccl_job.n;
}

static tutti__node_t *node_of(const driver_t *d, const case_t *c)
{
    return is_odd(d, c, OTHER_MEMORY) ? nccl_job.host[d->rank] : nccl_job.node[d->rank];
}

static void start(driver_t *d, uint32_t lane, track_t *t)
{
    const case_t *c = &cases[t->at];
    tutti__node_call_t *call = &t->own.call;
    size_t esize = tutti_dtype_bytes(c->dtype);

    if (t->trip == 0) {
        make_own(c, d->rank, lane, &t->own);
        if (c->is_late)
            write_late(d, lane, c, &t->own);
        if (is_odd(d, c, OTHER_COUNT))
            call->map.count++;
        if (is_odd(d, c, OTHER_MEMORY))
            call->kind = TUTTI__NODE_MEET;
    }
    call->trip = t->trip;
    call->src = t->own.src + t->trip * all_blocks(c) * call->src_step * esize;
    call->dst = t->own.dst + t->trip * all_blocks(c) * call->dst_step * esize;
    if (c->kind == TUTTI__NODE_REDUCE && d->rank != c->root)
        call->dst = NULL;
    node_of(d, c)->ops->start(node_of(d, c), lane, call);
    t->is_running = 1;
}

static void go_on(driver_t *d, uint32_t lane, track_t *t)
{
    static const tutti_status_t ends[] = { TUTTI_OK, TUTTI_ERR_UNSUPPORTED, TUTTI_ERR_MISMATCH,
                                           TUTTI_ERR_MISMATCH };
    const case_t *c = &cases[t->at];
    tutti__hint_t hint;
    tutti_status_t status = node_of(d, c)->ops->step(node_of(d, c), lane, &hint);
    const char *wrong = NULL;

    if (status == TUTTI__AGAIN)
        return;
    t->is_running = 0;
    if (status != ends[c->end])
        wrong = status == TUTTI_OK ? "no error" : tutti_last_error();
    else if (status == TUTTI_OK && ++t->trip < t->own.trips)
        return;
    else
        wrong = judge(c, &t->own, d->rank);
    if (wrong != NULL)
        snprintf(d->wrong, sizeof(d->wrong),
                 "%.200s: %s, map %d, mode %d, in place %d, %u parts of %u, %u ranks, divisor %u",
                 wrong, tutti__sched_kind_name(c->kind), c->map, c->mode, c->in_place, c->nparts,
                 c->nblk, nccl_job.n, c->divisor);
    t->trip = 0;
    t->at += TUTTI__DEVICE_LANES;
}

/* Start and step this thread's lanes, in an order that differs from that of other threads. */
static void *drive(void *arg)
{
    driver_t *d = arg;
    track_t track[TUTTI__DEVICE_LANES];
    uint32_t nlanes = d->end_lane - d->first_lane, idle = 0;
    int left = 1;

    memset(track, 0, sizeof(track));
    for (uint32_t i = d->first_lane; i < d->end_lane; i++)
        track[i].at = i;
    while (left && d->wrong[0] == '\0' && !atomic_load(&is_over) && idle < IDLES) {
        uint32_t lane = d->first_lane + draw(d) % nlanes;
        track_t *t = &track[lane];

        idle++;
        if (t->at < ncases) {
            if (!t->is_running)
                start(d, lane, t);
            else
                go_on(d, lane, t);
            idle = t->is_running ? idle : 0;
        }
        if (idle > IDLES_AWAKE)
            usleep(IDLE_US);
        else if (draw(d) % 8 == 0)
            sched_yield();
        left = 0;
        for (uint32_t i = d->first_lane; i < d->end_lane; i++)
            left |= track[i].at < ncases;
    }
    if (left && d->wrong[0] == '\0' && !atomic_load(&is_over))
        snprintf(d->wrong, sizeof(d->wrong), "rank %u gave up", d->rank);
    if (left)
        atomic_store(&is_over, 1);
    return NULL;
}

/* Lane 0 has a separate thread on each rank, as direct calls have. */
static void run_cases(uint32_t n, uint32_t seed)
{
    driver_t driver[2 * RANKS];
    pthread_t thread[2 * RANKS];
    char wrong[512] = "";

    atomic_store(&is_over, 0);
    nccl_begin(n, seed);
    for (uint32_t i = 0; i < 2 * n; i++) {
        driver[i] = (driver_t){ .rank = i / 2,
                                .first_lane = i % 2,
                                .end_lane = i % 2 ? TUTTI__DEVICE_LANES : 1,
                                .random = (seed * 64 + i) * 2654435761u + 1 };
        assert_int_equal(pthread_create(&thread[i], NULL, drive, &driver[i]), 0);
    }
    for (uint32_t i = 0; i < 2 * n; i++) {
        pthread_join(thread[i], NULL);
        if (driver[i].wrong[0] != '\0' && wrong[0] == '\0')
            memcpy(wrong, driver[i].wrong, sizeof(wrong));
    }
    if (wrong[0] != '\0')
        fail_msg("%s", wrong);
    nccl_finish();
    for (uint32_t r = 0; r < n; r++)
        assert_int_equal(watched_aborts(r), 0);
}

static int whole; /* 0: the quick form */

#ifdef TUTTI__SANITIZED /* each size takes ten times as long */
#define QUICK_FIRST 2
#else
#define QUICK_FIRST 0
#endif

static void test_all_kinds(void **state)
{
    static const uint32_t sizes[] = { 1, 2, 3, 5 };

    (void)state;
    for (uint32_t i = whole ? 0 : QUICK_FIRST; i < (whole ? 4 : 3); i++) {
        add_all(sizes[i]);
        run_cases(sizes[i], i);
        /* Equal parts use NCCL's own calls. */
        assert_true(watched_calls(TUTTI__NCCL_REDUCE_SCATTER) > 0);
        assert_true(watched_calls(TUTTI__NCCL_ALLGATHER) > 0);
    }
}

static void test_orders(void **state)
{
    (void)state;
    add_all(3);
    ncases = 100;
    for (uint32_t seed = 10; seed < (whole ? 30 : 11); seed++)
        run_cases(3, seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_orders),
    };

    whole = test_is_long("5 ranks, with sanitizers 1 and 2 ranks, and 19 of 20 random orders");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
