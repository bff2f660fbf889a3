/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered buffers of the pretended NCCL: correct calls with them, and planted misuse. The misuse
 * must be reported; if it affects a call, it must be reported on all ranks. The real NCCL may hang
 * on such misuse, or corrupt data.
 */
#include "pretend_job.h"

#include <string.h>

#define BLOCK ((size_t)PLANT_COUNT * 4)

typedef struct {
    plant_t p;
    char *memory; /* from nccl_alloc: two blocks for each rank, and two more */
    size_t bytes;
    tutti__nccl_reg_t *reg;
    int failed; /* 1: the communicator has failed, so it must be aborted */
} ground_t;

static void begin(ground_t *g, rank_t *self)
{
    void *memory;

    plant_begin(&g->p, self);
    g->failed = 0;
    g->bytes = BLOCK * (2 * (size_t)self->size + 2);
    CHECK_OK(g->p.gpu.ops->nccl_alloc(g->bytes, &memory));
    g->memory = memory;
    CHECK_OK(g->p.gpu.ops->nccl_register(g->p.gpu.nccl, memory, g->bytes, &g->reg));
    CHECK_OK(tutti_barrier(self->comm));
}

static void end(ground_t *g)
{
    /* A peer may still be using the NCCL communicator. */
    CHECK_OK(tutti_barrier(g->p.gpu.rank->comm));
    if (g->failed) {
        g->p.gpu.ops->nccl_abort(g->p.gpu.nccl);
        g->p.gpu.nccl = NULL;
    }
    if (g->p.gpu.nccl != NULL && g->reg != NULL)
        g->p.gpu.ops->nccl_deregister(g->p.gpu.nccl, g->reg);
    plant_end(&g->p);
    g->p.gpu.ops->nccl_free(g->memory);
}

static unsigned complaints(const ground_t *g)
{
    return pretend_counts(g->p.gpu.rank->rank, PRETEND_MISREGISTERED);
}

static tutti__nccl_call_t call_of(const ground_t *g, tutti__nccl_kind_t kind, char *src, char *dst)
{
    tutti__nccl_call_t call = plant_allreduce(&g->p);

    call.kind = kind;
    call.src = src;
    call.dst = dst;
    return call;
}

/* Calls out of place, in place, at another offset, and on the same memory with another
   communicator. */
static void good(rank_t *self)
{
    size_t own = BLOCK * (size_t)self->rank;
    tutti__nccl_call_t calls[6];
    unsigned before;
    ground_t g;

    begin(&g, self);
    calls[0] = call_of(&g, TUTTI__NCCL_ALLREDUCE, g.memory, g.memory + BLOCK);
    calls[1] = call_of(&g, TUTTI__NCCL_ALLGATHER, g.memory + BLOCK + own, g.memory + BLOCK);
    calls[2] = call_of(&g, TUTTI__NCCL_REDUCE_SCATTER, g.memory, g.memory + own);
    calls[3] = call_of(&g, TUTTI__NCCL_BROADCAST, self->rank == 0 ? g.memory : NULL, g.memory);
    calls[4] = call_of(&g, TUTTI__NCCL_REDUCE, g.memory, self->rank == 0 ? g.memory : NULL);
    calls[5] = call_of(&g, TUTTI__NCCL_ALLREDUCE, g.p.buf, g.p.buf);
    before = pretend_counts(self->rank, PRETEND_REGISTERED);
    CHECK_OK(gpu_call(&g.p.gpu, calls, 6));
    CHECK_INT(pretend_counts(self->rank, PRETEND_REGISTERED) - before, 5);
    CHECK_OK(tutti_barrier(self->comm));
    g.p.gpu.ops->nccl_deregister(g.p.gpu.nccl, g.reg);
    CHECK_OK(gpu_call(&g.p.gpu, calls, 6));
    CHECK_INT(pretend_counts(self->rank, PRETEND_REGISTERED) - before, 5);
    g.reg = NULL;
    CHECK_INT(complaints(&g), 0);
    end(&g);
}

/* The last rank uses other buffers. */
static void differ(ground_t *g, tutti__nccl_call_t call, const char *words)
{
    g->failed = 1;
    if (plant_launch(&g->p, &call))
        gpu_expect_event(&g->p.gpu, words);
    gpu_expect(&g->p.gpu, g->p.gpu.nccl, words);
    end(g);
}

static int is_last(const rank_t *self)
{
    return self->rank == self->size - 1;
}

static void one_is_not(rank_t *self)
{
    ground_t g;
    char *at;

    begin(&g, self);
    at = is_last(self) ? g.p.buf : g.memory;
    differ(&g, call_of(&g, TUTTI__NCCL_ALLREDUCE, at, at), "registered and other buffers");
}

static void half_is_not(rank_t *self)
{
    ground_t g;

    begin(&g, self);
    differ(&g, call_of(&g, TUTTI__NCCL_ALLREDUCE, g.memory, g.p.buf),
           "registered and other buffers");
}

static void other_offset(rank_t *self)
{
    ground_t g;
    char *at;

    begin(&g, self);
    at = is_last(self) ? g.memory + 4 : g.memory;
    differ(&g, call_of(&g, TUTTI__NCCL_ALLREDUCE, at, at), "at different places");
}

/* The last rank uses the same offset in a second buffer. */
static void other_buffer(rank_t *self)
{
    tutti__nccl_reg_t *reg;
    void *second;
    ground_t g;
    char *at;

    begin(&g, self);
    CHECK_OK(g.p.gpu.ops->nccl_alloc(BLOCK, &second));
    CHECK_OK(g.p.gpu.ops->nccl_register(g.p.gpu.nccl, second, BLOCK, &reg));
    at = is_last(self) ? second : g.memory;
    differ(&g, call_of(&g, TUTTI__NCCL_ALLREDUCE, at, at), "at different places");
    CHECK_INT(complaints(&g), 0);
    g.p.gpu.ops->nccl_free(second);
}

static void other_message(rank_t *self)
{
    tutti__nccl_call_t call;
    ground_t g;

    begin(&g, self);
    call = self->rank == 0 ? call_of(&g, TUTTI__NCCL_SEND, g.memory, NULL)
                           : call_of(&g, TUTTI__NCCL_RECV, NULL, g.p.buf);
    call.root = self->rank == 0;
    g.failed = 1;
    if (self->rank < 2 && plant_launch(&g.p, &call))
        gpu_expect_event(&g.p.gpu, "or registered memory");
    gpu_expect(&g.p.gpu, g.p.gpu.nccl, "or registered memory");
    end(&g);
}

static void in_use(rank_t *self)
{
    tutti__nccl_call_t call;
    ground_t g;

    begin(&g, self);
    call = call_of(&g, TUTTI__NCCL_ALLREDUCE, g.memory, g.memory);
    g.failed = 1;
    if (self->rank == 0) {
        CHECK(plant_launch(&g.p, &call));
        g.p.gpu.ops->nccl_deregister(g.p.gpu.nccl, g.reg);
        g.reg = NULL;
        CHECK_INT(complaints(&g), 1);
    }
    gpu_expect(&g.p.gpu, g.p.gpu.nccl, "nccl_deregister while it is in use");
    end(&g);
}

static void closed(rank_t *self)
{
    ground_t g;

    begin(&g, self);
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0) {
        g.p.gpu.ops->nccl_close(g.p.gpu.nccl);
        CHECK_INT(complaints(&g), 1);
    } else {
        g.p.gpu.ops->nccl_abort(g.p.gpu.nccl);
        CHECK_INT(self->rank < 2 ? complaints(&g) : 0, 0);
    }
    g.p.gpu.nccl = NULL;
    end(&g);
}

static void refused(rank_t *self)
{
    ground_t g;

    begin(&g, self);
    CHECK_STATUS(g.p.gpu.ops->nccl_register(g.p.gpu.nccl, g.memory, g.bytes + 1, &g.reg),
                 TUTTI_ERR_TRANSPORT);
    CHECK(strstr(tutti_last_error(), "not of one nccl_alloc") != NULL);
    CHECK_STATUS(g.p.gpu.ops->nccl_register(g.p.gpu.nccl, g.p.buf, BLOCK, &g.reg),
                 TUTTI_ERR_TRANSPORT);
    g.failed = 1;
    end(&g);
}

int main(void)
{
    static const rank_fn_t plants[] = { one_is_not,    other_offset, other_buffer,
                                        other_message, in_use,       closed };
    int failures = run_pretend_jobs(good, 1);

    failures += run_pretend_jobs(half_is_not, 1);
    failures += run_pretend_jobs(refused, 1);
    for (size_t i = 0; i < sizeof(plants) / sizeof(*plants); i++) {
        int before = failures;

        failures += run_pretend_jobs(plants[i], 2);
        if (failures > before)
            fprintf(stderr, "FAILED: plant number %zu of the list\n", i);
    }
    return failures != 0;
}
