/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL: every kind of call, in place and out of place, with every type and operation that NCCL
 * serves, and values with exact results (multi/direct/reference.h). Also messages, several calls as
 * one, registered buffers, close and abort.
 */
#include "gpu/table.h"
#include "multi/direct/reference.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 20011,
    ROOM = MOST * 8 * GPU_MOST
};

typedef struct {
    gpu_t gpu;
    tutti__nccl_t *nccl;
    char *src, *dst;   /* device memory, ROOM bytes each */
    char *want, *host; /* ROOM */
} ground_t;

static void settle(const ground_t *g)
{
    tutti_status_t status;

    while ((status = g->gpu.ops->nccl_poll(g->nccl)) == TUTTI__AGAIN)
        sched_yield();
    CHECK_OK(status);
}

static void open_nccl(ground_t *g)
{
    rank_t *self = g->gpu.rank;
    tutti__nccl_id_t id;

    if (self->rank == 0)
        CHECK_OK(g->gpu.ops->nccl_id(&id));
    CHECK_OK(tutti_broadcast(&id, sizeof(id), TUTTI_UINT8, 0, self->comm));
    CHECK_OK(g->gpu.ops->nccl_open(&id, (uint32_t)self->rank, (uint32_t)self->size, 0, &g->nccl));
    settle(g);
}

static void queue(const ground_t *g, const tutti__nccl_call_t *calls, size_t ncalls)
{
    CHECK_OK(g->gpu.ops->nccl_call(g->nccl, calls, ncalls, g->gpu.stream));
    settle(g);
}

/* Element i of the call's result on this rank. */
static void expected(const ground_t *g, const tutti__nccl_call_t *c, size_t i, unsigned salt,
                     void *ret)
{
    int rank = g->gpu.rank->rank, size = g->gpu.rank->size;

    switch (c->kind) {
    case TUTTI__NCCL_ALLGATHER:
        reference_value(c->dtype, c->op, (int)(i / c->count), i % c->count, salt, ret);
        break;
    case TUTTI__NCCL_BROADCAST:
        reference_value(c->dtype, c->op, (int)c->root, i, salt, ret);
        break;
    case TUTTI__NCCL_REDUCE_SCATTER:
        reference_fold(c->dtype, c->op, 0, size, (size_t)rank * c->count + i, salt, ret);
        break;
    default:
        reference_fold(c->dtype, c->op, 0, size, i, salt, ret);
    }
}

static void place(ground_t *g, tutti__nccl_call_t *c, int in_place)
{
    size_t block = c->count * tutti_dtype_bytes(c->dtype) * (size_t)g->gpu.rank->rank;

    c->src = g->src;
    c->dst = g->dst;
    if (in_place && c->kind == TUTTI__NCCL_ALLGATHER)
        c->src = g->dst + block;
    else if (in_place && c->kind == TUTTI__NCCL_REDUCE_SCATTER)
        c->dst = g->src + block;
    else if (in_place)
        c->dst = g->src;
}

static void one(ground_t *g, tutti__nccl_call_t c, int in_place)
{
    static unsigned salt;
    size_t size = (size_t)g->gpu.rank->size, width = tutti_dtype_bytes(c.dtype);
    size_t in = c.kind == TUTTI__NCCL_REDUCE_SCATTER ? c.count * size : c.count;
    size_t out = c.kind == TUTTI__NCCL_ALLGATHER ? c.count * size : c.count;
    int has_result = c.kind != TUTTI__NCCL_REDUCE || c.root == (uint32_t)g->gpu.rank->rank;

    salt++;
    place(g, &c, in_place);
    for (size_t i = 0; i < in; i++)
        reference_value(c.dtype, c.op, g->gpu.rank->rank, i, salt, g->host + i * width);
    gpu_copy(&g->gpu, (void *)(uintptr_t)c.src, g->host, in * width);
    queue(g, &c, 1);
    gpu_copy(&g->gpu, g->host, c.dst, out * width);
    for (size_t i = 0; i < out && has_result; i++) {
        expected(g, &c, i, salt, g->want);
        if (memcmp(g->want, g->host + i * width, width) != 0)
            ranks_fail(__FILE__, __LINE__,
                       "kind %d, type %d, operation %d, count %zu, in place %d: element %zu",
                       (int)c.kind, (int)c.dtype, (int)c.op, c.count, in_place, i);
    }
}

/* Run the kinds `first` to `last` of the list. Its first three kinds are the reductions. */
static void some_kinds(ground_t *g, size_t first, size_t last, tutti__nccl_call_t call)
{
    static const tutti__nccl_kind_t kinds[] = { TUTTI__NCCL_ALLREDUCE, TUTTI__NCCL_REDUCE_SCATTER,
                                                TUTTI__NCCL_REDUCE, TUTTI__NCCL_ALLGATHER,
                                                TUTTI__NCCL_BROADCAST };

    call.root = (uint32_t)(call.count % (size_t)g->gpu.rank->size);
    for (size_t k = first; k <= last; k++)
        for (int in_place = 0; in_place < 2; in_place++) {
            call.kind = kinds[k];
            one(g, call, in_place);
        }
}

static void all_kinds(ground_t *g, tutti_dtype_t dtype, tutti_op_t op, size_t count)
{
    tutti__nccl_call_t call = { .dtype = dtype, .op = op, .count = count };

    some_kinds(g, 0, op == TUTTI_SUM ? 4 : 2, call);
}

/* Data can be moved with all types, also with types that NCCL lacks or does not reduce. */
static void moves(ground_t *g)
{
    for (int t = 1; t <= REFERENCE_TYPES; t++) {
        tutti__nccl_call_t call = { .dtype = (tutti_dtype_t)t, .op = TUTTI_SUM, .count = 37 };

        if (!reference_serves(call.dtype, call.op))
            call.op = TUTTI_MINLOC;
        some_kinds(g, 3, 4, call);
    }
}

/* In one call, each rank sends a word to the next rank of a ring, and another word to itself. */
static void messages(ground_t *g)
{
    uint32_t rank = (uint32_t)g->gpu.rank->rank, size = (uint32_t)g->gpu.rank->size;
    uint32_t next = (rank + 1) % size, before = (rank + size - 1) % size;
    int32_t words[4] = { (int32_t)rank + 10, (int32_t)rank + 20, 0, 0 };
    tutti__nccl_call_t calls[4] = {
        { TUTTI__NCCL_SEND, g->src, NULL, 1, TUTTI_INT32, TUTTI_SUM, next },
        { TUTTI__NCCL_RECV, NULL, g->dst, 1, TUTTI_INT32, TUTTI_SUM, before },
        { TUTTI__NCCL_SEND, g->src + 4, NULL, 1, TUTTI_INT32, TUTTI_SUM, rank },
        { TUTTI__NCCL_RECV, NULL, g->dst + 4, 1, TUTTI_INT32, TUTTI_SUM, rank },
    };

    gpu_copy(&g->gpu, g->src, words, 16);
    queue(g, calls, size > 1 ? 4 : 2);
    gpu_copy(&g->gpu, words, g->dst, 16);
    CHECK_INT(words[0], (int)before + 10);
    if (size > 1)
        CHECK_INT(words[1], (int)rank + 20);
}

/* Three calls that run as one. */
static void together(ground_t *g)
{
    int32_t words[3] = { 1, 10, 100 };
    tutti__nccl_call_t calls[3];

    for (int i = 0; i < 3; i++)
        calls[i] = (tutti__nccl_call_t){
            TUTTI__NCCL_ALLREDUCE, g->src + 4 * i, g->dst + 4 * i, 1, TUTTI_INT32, TUTTI_SUM, 0
        };
    gpu_copy(&g->gpu, g->src, words, sizeof(words));
    queue(g, calls, 3);
    gpu_copy(&g->gpu, words, g->dst, sizeof(words));
    for (int i = 0, one = 1; i < 3; i++, one *= 10)
        CHECK_INT(words[i], one * g->gpu.rank->size);
}

static void results(ground_t *g)
{
    int served = 0, size = g->gpu.rank->size;

    for (int t = 1; t <= REFERENCE_TYPES; t++)
        for (int o = TUTTI_SUM; o <= TUTTI_PROD; o++) {
            tutti_dtype_t dtype = (tutti_dtype_t)t;
            tutti_op_t op = (tutti_op_t)o;

            /* NCCL averages integers with its own rounding, and multiplies floats by 1/size. */
            if (!reference_serves(dtype, op) || !g->gpu.ops->nccl_serves(dtype, op) ||
                (op == TUTTI_AVG && (dtype < TUTTI_FLOAT16 || (size & (size - 1)) != 0)))
                continue;
            served++;
            all_kinds(g, dtype, op, 37);
        }
    CHECK(served >= 20);
    CHECK(g->gpu.ops->nccl_serves(TUTTI_FLOAT32, TUTTI_SUM));
    CHECK(!g->gpu.ops->nccl_serves(TUTTI_FLOAT32, TUTTI_BXOR));
    CHECK(!g->gpu.ops->nccl_serves(TUTTI_INT16, TUTTI_SUM));
    all_kinds(g, TUTTI_FLOAT32, TUTTI_SUM, 0);
    all_kinds(g, TUTTI_FLOAT32, TUTTI_SUM, 1);
    all_kinds(g, TUTTI_FLOAT32, TUTTI_SUM, MOST);
    all_kinds(g, TUTTI_FLOAT64, TUTTI_MAX, MOST);
    moves(g);
    messages(g);
    together(g);
}

/* Returns 0 if NCCL cannot register, because it is older than 2.19, or registration is disabled. */
static int make_registered(const ground_t *g, void **ret_memory, tutti__nccl_reg_t **ret_reg)
{
    tutti_status_t status = g->gpu.ops->nccl_alloc(ROOM, ret_memory);

    if (status == TUTTI_ERR_UNSUPPORTED)
        return 0;
    CHECK_OK(status);
    CHECK_INT(g->gpu.ops->where(*ret_memory).kind, TUTTI__MEM_DEVICE);
    status = g->gpu.ops->nccl_register(g->nccl, *ret_memory, ROOM, ret_reg);
    if (status == TUTTI_ERR_UNSUPPORTED)
        g->gpu.ops->nccl_free(*ret_memory);
    else
        CHECK_OK(status);
    return status == TUTTI_OK;
}

/* The same calls on registered buffers, then on these buffers after the deregistration. */
static void with_registered(const ground_t *plain)
{
    tutti__nccl_reg_t *reg[2];
    void *memory[2];
    ground_t g = *plain;

    if (!make_registered(&g, &memory[0], &reg[0]))
        return;
    CHECK(make_registered(&g, &memory[1], &reg[1]));
    g.src = memory[0];
    g.dst = memory[1];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tutti_barrier(g.gpu.rank->comm));
        all_kinds(&g, TUTTI_FLOAT32, TUTTI_SUM, 37);
        all_kinds(&g, TUTTI_FLOAT32, TUTTI_SUM, MOST);
        all_kinds(&g, TUTTI_FLOAT64, TUTTI_MAX, MOST);
        messages(&g);
        together(&g);
        CHECK_OK(tutti_barrier(g.gpu.rank->comm));
        for (int k = 0; k < 2 && i == 0; k++)
            g.gpu.ops->nccl_deregister(g.nccl, reg[k]);
    }
    g.gpu.ops->nccl_free(memory[0]);
    g.gpu.ops->nccl_free(memory[1]);
}

/* A buffer is still registered when the communicator is aborted. */
static void abort_registered(const ground_t *g)
{
    tutti__nccl_call_t call = { TUTTI__NCCL_ALLREDUCE, g->src,    g->dst, MOST,
                                TUTTI_FLOAT32,         TUTTI_SUM, 0 };
    tutti__nccl_reg_t *reg;
    void *memory = NULL;

    if (make_registered(g, &memory, &reg))
        call.src = call.dst = memory;
    else
        memory = NULL;
    CHECK_OK(tutti_barrier(g->gpu.rank->comm));
    queue(g, &call, 1);
    CHECK_OK(tutti_barrier(g->gpu.rank->comm));
    g->gpu.ops->nccl_abort(g->nccl);
    CHECK_OK(tutti_barrier(g->gpu.rank->comm));
    g->gpu.ops->nccl_free(memory);
}

void table_nccl(rank_t *self)
{
    ground_t g;

    gpu_begin(&g.gpu, self);
    g.src = gpu_alloc(&g.gpu, ROOM);
    g.dst = gpu_alloc(&g.gpu, ROOM);
    g.host = malloc(ROOM);
    g.want = malloc(REFERENCE_MOST_BYTES);
    open_nccl(&g);
    results(&g);
    with_registered(&g);
    CHECK_OK(tutti_barrier(self->comm));
    g.gpu.ops->nccl_close(g.nccl);
    /* Open another communicator, which is aborted during a call; then open one more. */
    open_nccl(&g);
    abort_registered(&g);
    open_nccl(&g);
    together(&g);
    CHECK_OK(tutti_barrier(self->comm));
    g.gpu.ops->nccl_close(g.nccl);
    free(g.host);
    free(g.want);
    g.gpu.ops->free(g.src);
    g.gpu.ops->free(g.dst);
    gpu_end(&g.gpu);
}
