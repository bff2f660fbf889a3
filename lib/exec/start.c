/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor before its first operation: memory, and the places of the call's blocks. ends.c has
 * the channels.
 *
 * A small call on one host takes 150 ns in total. So a call reuses the last call's channels if it
 * needs the same channels, and the last call's blocks if their number and size are the same. Tables
 * of block lengths belong to the caller and are read in each call.
 */
#include "exec/exec_inside.h"

#include "base/compiler.h"
#include "base/status.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void tutti__run_init(tutti__run_t *run, const tutti__exec_env_t *env, uint32_t lane)
{
    memset(run, 0, sizeof(*run));
    run->env = env;
    run->lane = lane;
    run->sending = TUTTI__NO_SEND;
}

void tutti__run_fini(tutti__run_t *run)
{
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++)
        free(run->stream[s].gather);
    free(run->packed);
    free(run->scratch);
    free(run->blocks);
    free(run->ends);
}

/* ---- blocks ---- */

/* Cut equal shares as tutti__block_border does, but without a division for each share. Returns the
   bytes of the largest share. */
static size_t put_shares(tutti__block_t *block, size_t count, uint32_t n, size_t esize)
{
    size_t whole = count / n * esize, rest = count % n, carry = 0, begin = 0;

    for (uint32_t b = 0; b < n; b++) {
        carry += rest;
        block[b] = (tutti__block_t){ begin, whole };
        if (carry >= n) {
            carry -= n;
            block[b].bytes += esize;
        }
        begin += block[b].bytes;
    }
    return rest == 0 ? whole : whole + esize;
}

static size_t put_table(tutti__block_t *block, const size_t *table, const size_t *begins,
                        uint32_t n, size_t esize)
{
    size_t largest = 0;

    for (uint32_t b = 0; b < n; b++) {
        block[b].begin = (begins != NULL ? begins[b] : table[b]) * esize;
        block[b].bytes = (table[b + 1] - table[b]) * esize;
        largest = TUTTI__MAX(largest, block[b].bytes);
    }
    return largest;
}

static size_t put_blocks(tutti__block_t *block, const size_t *table, const size_t *begins,
                         size_t count, uint32_t n, size_t esize)
{
    return table != NULL ? put_table(block, table, begins, n, esize)
                         : put_shares(block, count, n, esize);
}

/* Each SCRATCH block has memory for one chunk. Block i has the length of the map's block i %
   nblocks. */
static void put_scratch(tutti__block_t *scratch, const tutti__block_t *out,
                        const tutti__sched_t *sched, size_t chunk)
{
    for (uint32_t i = 0, b = 0; i < sched->scratch_blocks; i++) {
        scratch[i] = (tutti__block_t){ i * chunk, out[b].bytes };
        b = b + 1 == sched->nblocks ? 0 : b + 1;
    }
}

static int is_chunks_only(const tutti__block_t *block, uint32_t n, size_t chunk)
{
    for (uint32_t b = 0; b < n; b++)
        if (block[b].bytes != chunk)
            return 0;
    return 1;
}

/* Allocate the tables of the blocks of IN and OUT (may be the same table), STAGE and SCRATCH. */
static tutti_status_t get_blocks(tutti__run_t *run, const tutti__sched_t *sched)
{
    size_t need = (size_t)sched->nblocks * 3 + sched->scratch_blocks;
    tutti__block_t *blocks;

    if (run->blocks_capacity >= need)
        return TUTTI_OK;
    blocks = realloc(run->blocks, need * sizeof(*blocks));
    if (blocks == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "table of %zu blocks", need);
    run->blocks = blocks;
    run->blocks_capacity = need;
    return TUTTI_OK;
}

/* The longest message that every channel can carry: see xport.h. Computed at the first call of a
   lane, because the transports are open then. */
static size_t find_slot_bytes(const tutti__exec_env_t *env)
{
    size_t bytes = SIZE_MAX;

    for (uint32_t r = 0; r < env->size && env->xport != NULL; r++)
        if (r != env->rank && env->xport[r] != NULL && env->xport[r]->most_bytes > 0)
            bytes = TUTTI__MIN(bytes, env->xport[r]->most_bytes);
    return bytes == SIZE_MAX ? env->slot_bytes : bytes;
}

size_t tutti__run_slot_bytes(tutti__run_t *run)
{
    if (run->slot_bytes == 0)
        run->slot_bytes = find_slot_bytes(run->env);
    return run->slot_bytes;
}

/* Compute the places of the blocks, the length of a chunk, and the number of chunks. */
static tutti_status_t lay_out(tutti__run_t *run, const tutti__sched_t *sched,
                              const tutti__exec_call_t *call, size_t esize)
{
    size_t slot_bytes = run->gpu_direct ? run->device->gpu_direct_bytes : run->slot_bytes;
    size_t largest, message = slot_bytes / (sched->max_nblk * esize) * esize;
    size_t chunk = message;
    int is_pair = sched->sizes == TUTTI__BY_PAIR;
    tutti__block_t *out, *in, *scratch;
    tutti_status_t status;

    if (chunk == 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "messages of %u blocks do not fit %zu bytes",
                           sched->max_nblk, run->slot_bytes);
    status = get_blocks(run, sched);
    if (status != TUTTI_OK)
        return status;
    out = run->blocks;
    in = is_pair ? out + sched->nblocks : out;
    scratch = out + 3 * (size_t)sched->nblocks;
    largest = put_blocks(out, call->table, call->begins, call->count, sched->nblocks, esize);
    if (is_pair) {
        size_t longest =
            put_blocks(in, call->in_table, call->in_begins, call->in_count, sched->nblocks, esize);

        /* The length of a chunk must be equal on all ranks, but only this rank has these sizes. So
           `largest` does not limit the chunk. */
        largest = TUTTI__MAX(largest, longest);
    } else {
        /* Chunks of at most the largest block save memory: each scratch block takes a chunk. */
        chunk = TUTTI__MIN(chunk, TUTTI__MAX(largest, esize));
    }
    assert(sched->sizes != TUTTI__ALL_EQUAL || is_chunks_only(out, sched->nblocks, largest));
    run->chunk = run->message = chunk;
    run->eshift = (unsigned)__builtin_ctzl(esize);
    run->place[TUTTI__IN] = (tutti__place_t){ NULL, in, SIZE_MAX, 0 };
    run->place[TUTTI__OUT] = (tutti__place_t){ NULL, out, SIZE_MAX, 0 };
    run->place[TUTTI__STAGE] = (tutti__place_t){ NULL, out, SIZE_MAX, 0 };
    run->place[TUTTI__SCRATCH] = (tutti__place_t){ NULL, scratch, 0, 0 };
    if (run->device != NULL)
        status = tutti__run_lay_out_device(run, sched, largest, message,
                                           out + 2 * (size_t)sched->nblocks);
    if (status != TUTTI_OK)
        return status;
    put_scratch(scratch, out, sched, run->chunk);
    run->trips = tutti__divide_up(largest, run->chunk);
    if (run->trips == 1) {
        run->place[TUTTI__OUT].joint = call->begins == NULL;
        run->place[TUTTI__IN].joint = (is_pair ? call->in_begins : call->begins) == NULL;
    }
    if (run->trips == 1 && run->device == NULL) {
        run->place[TUTTI__STAGE].joint = call->begins == NULL;
        run->place[TUTTI__SCRATCH].joint =
            is_chunks_only(scratch, sched->scratch_blocks, run->chunk);
    }
    return TUTTI_OK;
}

/* Call lay_out, unless the last call's layout can be reused. */
static tutti_status_t find_layout(tutti__run_t *run, const tutti__sched_t *sched,
                                  const tutti__exec_call_t *call)
{
    size_t esize = tutti_dtype_bytes(call->dtype);
    tutti__layout_t *last = &run->layout;
    int is_even = call->table == NULL && sched->sizes != TUTTI__BY_PAIR;
    tutti_status_t status;

    assert(esize > 0 && (esize & (esize - 1)) == 0);
    assert(call->count > 0 || !is_even);
    if (is_even && last->count == call->count && last->esize == esize &&
        last->nblocks == sched->nblocks && last->scratch_blocks == sched->scratch_blocks &&
        last->max_nblk == sched->max_nblk)
        return TUTTI_OK;
    last->count = 0;
    status = lay_out(run, sched, call, esize);
    if (status == TUTTI_OK && is_even)
        *last = (tutti__layout_t){ call->count, esize, sched->nblocks, sched->scratch_blocks,
                                   sched->max_nblk };
    return status;
}

/* ---- memory ---- */

/* Allocate memory for one packed message of each end. */
static tutti_status_t get_packed(tutti__run_t *run, size_t bytes)
{
    if (run->packed_bytes >= bytes)
        return TUTTI_OK;
    free(run->packed);
    run->packed = malloc(bytes);
    run->packed_bytes = run->packed == NULL ? 0 : bytes;
    if (run->packed == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes for messages", bytes);
    return TUTTI_OK;
}

static tutti_status_t get_memory(tutti__run_t *run, const tutti__sched_t *sched)
{
    size_t scratch = sched->scratch_blocks * run->chunk;

    if (run->scratch_bytes < scratch) {
        free(run->scratch);
        /* Clear the memory: a barrier sends memory that it has never written. */
        run->scratch = calloc(1, scratch);
        run->scratch_bytes = run->scratch == NULL ? 0 : scratch;
        if (run->scratch == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes of scratch", scratch);
    }
    for (uint32_t s = 0; sched->max_nblk > 1 && s < sched->nstreams; s++) {
        if (run->stream[s].gather == NULL)
            run->stream[s].gather = malloc(run->slot_bytes);
        if (run->stream[s].gather == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes to gather", run->slot_bytes);
    }
    if (run->wire != 0)
        return get_packed(run, sched->nchans * run->slot_bytes);
    return TUTTI_OK;
}

/* ---- begin and give up ---- */

/* Fill in the fields that are equal for all node operations of a call. */
static void prepare_node(tutti__run_t *run, const tutti__sched_t *sched,
                         const tutti__exec_call_t *call)
{
    tutti__node_call_t *node = &run->node_call;

    node->dtype = call->dtype;
    node->op = call->op;
    node->reducer = &run->reducer;
    node->tag = call->tag;
    node->map.count = call->count;
    node->map.nblocks = sched->nblocks;
    node->map.chunk = run->chunk >> run->eshift;
    node->map.table = call->table;
    node->map.begins = call->begins;
}

static void start_meeting(tutti__run_t *run)
{
    tutti__node_call_t *meet = &run->node_call;

    meet->kind = TUTTI__NODE_MEET;
    meet->root = run->root;
    meet->divisor = 0;
    /* With BY_PAIR, counts may differ between ranks, so the meeting must not compare them. */
    if (run->sched->sizes == TUTTI__BY_PAIR)
        meet->map.count = 0;
    run->env->node->ops->start(run->env->node, run->lane, meet);
    run->meeting = 1;
}

static void start_streams(tutti__run_t *run)
{
    const tutti__sched_t *sched = run->sched;

    for (uint32_t s = 0; s < sched->nstreams; s++) {
        tutti__stream_t *st = &run->stream[s];

        st->pc = sched->first[s];
        st->end = sched->first[s + 1];
        st->loop = TUTTI__NO_LOOP;
        st->trip = 0;
        st->trips = 1;
        st->chunk = SIZE_MAX;
        st->marks = 0;
        st->started = 0;
    }
}

tutti_status_t tutti__run_start(tutti__run_t *run, const tutti__sched_t *sched,
                                const tutti__exec_call_t *call)
{
    tutti_status_t status;

    /* A call without a reduction may have a type and operation for which there is no reducer. */
    if (!tutti__reducer_find(call->dtype, call->op, &run->reducer))
        run->reducer.fold = NULL;
    if (TUTTI__UNLIKELY(run->slot_bytes == 0))
        (void)tutti__run_slot_bytes(run);
    run->divisor = call->op == TUTTI_AVG ? run->env->size : 0;
    run->signature = call->signature;
    run->root = call->root;
    run->device = NULL;
    run->gpu_direct = 0;
    run->frame = call->frame;
    run->wire = call->wire;
    if (TUTTI__UNLIKELY(call->on_device)) {
        run->device = run->env->device;
        run->untouched = 1;
        run->layout.count = 0; /* host calls and device calls need different layouts */
        status = tutti__run_choose_gpu_direct(run, sched, call, &run->gpu_direct);
        if (status != TUTTI_OK)
            return status;
    }
    assert(run->wire == 0 || (run->device == NULL && call->dtype == TUTTI_FLOAT32));
    run->detours = run->gpu_direct != 0 || run->frame != NULL || run->wire != 0;
    status = find_layout(run, sched, call);
    if (status == TUTTI_OK)
        status = get_memory(run, sched);
    if (status == TUTTI_OK)
        status = tutti__run_open_ends(run, sched);
    if (status != TUTTI_OK)
        return status;
    run->place[TUTTI__IN].base = (char *)(uintptr_t)call->in;
    run->place[TUTTI__OUT].base = call->out;
    run->place[TUTTI__STAGE].base = call->out;
    run->place[TUTTI__SCRATCH].base = run->scratch;
    prepare_node(run, sched, call);
    run->node_call.queued = 0;
    run->sched = sched;
    run->meeting = 0;
    start_streams(run);
    if (TUTTI__UNLIKELY(call->on_device))
        tutti__run_start_device(run, call);
    if (call->meet) {
        start_meeting(run);
        return TUTTI_OK;
    }
    /* After an error some receives may be posted, so run->sched stays set, for
       tutti__run_cancel. */
    return run->expects && !tutti__run_untouched(run) ? tutti__run_expect(run) : TUTTI_OK;
}

/* Cancel the lane once in each transport, not once for each peer: over UCX each cancel waits for
   messages that have arrived in part. */
static void cancel_lane(const tutti__run_t *run)
{
    tutti__xport_t *const *xport = run->env->xport;
    const tutti__xport_t *done[2] = { NULL, NULL }; /* inside the host, and between hosts */

    for (uint32_t r = 0; r < run->env->size; r++) {
        if (r == run->env->rank || xport[r] == done[0] || xport[r] == done[1])
            continue;
        xport[r]->ops->cancel(xport[r], run->lane);
        done[done[0] != NULL] = xport[r];
    }
}

void tutti__run_cancel(tutti__run_t *run)
{
    if (run->device != NULL && run->sched != NULL)
        tutti__run_end_copies(run);
    if (!tutti__run_untouched(run))
        cancel_lane(run);
    tutti__run_forget_sends(run);
    run->sched = NULL;
}

int tutti__run_as_one(const tutti__run_t *run, const tutti__sched_t *sched,
                      tutti__node_call_t *ret_call, tutti__reducer_t *ret_reducer)
{
    int is_looped = sched->nops == 3 && sched->ops[0].kind == TUTTI__LOOP && run->trips == 1;

    if (run->device != NULL || (sched->nops != 1 && !is_looped) ||
        sched->ops[is_looped].kind < TUTTI__NODE_ALLREDUCE)
        return 0;
    *ret_reducer = run->reducer;
    *ret_call = run->node_call;
    ret_call->reducer = ret_reducer;
    return 1;
}

int tutti__run_forbidden(const tutti__exec_env_t *env, const tutti__sched_t *sched, int is_engine)
{
    for (uint32_t i = 0; i < sched->nchans; i++) {
        tutti__xport_t *x = env->xport[sched->chans[i].peer];

        if (!x->ops->may_progress(x, is_engine))
            return 1;
    }
    return 0;
}
