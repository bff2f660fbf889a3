/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cuts a node operation into NCCL's calls. This is only arithmetic, with the same result on all
 * ranks.
 *
 * NCCL needs parts that are equal and contiguous. The parts of a block map seldom have these
 * properties, so:
 *
 *   allreduce, reduce, broadcast
 *      One call for each run of contiguous blocks.
 *   reduce_scatter, allgather
 *      If all parts follow each other and have equal lengths: NCCL's call of that name. The last
 *        part may be longer (count / parts has the remainder 1). Then a reduce or broadcast for the
 *        rest of that part follows. In all other cases: a reduce or broadcast for each run of each
 *        part, in one group of NCCL's calls. Such a group sends as many bytes over each link as
 *        NCCL's call of that name, and is one launch.
 *   alltoall
 *      Sends and receives, piece by piece. A rank that works in place first copies a piece for each
 *        peer to the stage, because a receive overwrites the piece during the send. A rank has not
 *        been told whether other ranks work in place, so all alltoalls are cut in the same way.
 *
 * All ranks must make the same calls of NCCL. The places of a table's blocks may differ between
 * ranks, so these blocks are not joined to runs. Groups end after a fixed number of calls.
 *
 * Averages. If NCCL's own average divides by the same number, it is used: it takes one pass, and
 * narrow floats do not overflow. Otherwise NCCL computes a sum, and a division follows on the
 * stream. Averages of integers are always a sum and a division, because versions of NCCL round
 * integer averages differently.
 */
#include "node/nccl/nccl.h"

#include <assert.h>
#include <string.h>

/* Contiguous elements: their offset in the call's src and dst, and their number. */
typedef struct {
    size_t src, dst, count;
} run_t;

/* The operation's block j. */
static run_t find_block(const tutti__node_call_t *call, uint32_t j)
{
    const tutti__blockmap_t *map = &call->map;
    uint32_t blk = call->sblk + j;
    run_t run;

    if (call->whole) {
        run.src = tutti__block_begin(map, blk);
        run.count = tutti__block_count(map, blk);
    } else {
        tutti__block_chunk(map, blk, call->trip, &run.src, &run.count);
    }
    run.dst = run.src;
    if (call->dst_step != 0)
        run.dst = j * call->dst_step;
    else if (call->dblk != call->sblk)
        run.dst += tutti__block_begin(map, call->dblk + j) - tutti__block_begin(map, blk);
    if (call->src_step != 0)
        run.src = j * call->src_step;
    return run;
}

/* The run that begins at block *next, without block `end` and later blocks. *next is set to the
   block after the run. */
static run_t find_run(const tutti__node_call_t *call, uint32_t *next, uint32_t end)
{
    run_t run = find_block(call, (*next)++);

    while (*next < end && call->map.table == NULL) {
        run_t more = find_block(call, *next);

        if (run.count != 0 && more.count != 0 &&
            (more.src != run.src + run.count || more.dst != run.dst + run.count))
            break;
        if (run.count == 0)
            run = more;
        else
            run.count += more.count;
        ++*next;
    }
    return run;
}

/* An address in a buffer; NULL if this rank does not have the buffer. */
static char *place(const tutti__nccl_cut_t *cut, const void *base, size_t at)
{
    return base == NULL ? NULL : (char *)base + at * cut->esize;
}

/* Make one call of NCCL for a run. If only the root has a buffer, other ranks pass NULL. */
static tutti__nccl_call_t make_call(const tutti__nccl_node_t *self, const tutti__nccl_cut_t *cut,
                                    tutti__nccl_kind_t kind, uint32_t root, const run_t *run)
{
    tutti__nccl_call_t call = { .kind = kind,
                                .src = place(cut, cut->call->src, run->src),
                                .dst = place(cut, cut->call->dst, run->dst),
                                .count = run->count * cut->scale,
                                .dtype = cut->dtype,
                                .op = cut->op,
                                .root = root };

    if (kind == TUTTI__NCCL_BROADCAST && root != self->me)
        call.src = NULL;
    if (kind == TUTTI__NCCL_REDUCE && root != self->me)
        call.dst = NULL;
    return call;
}

/* ---- types and operations that are served ---- */

static int reduces(const tutti__node_call_t *call)
{
    return call->kind == TUTTI__NODE_ALLREDUCE || call->kind == TUTTI__NODE_REDUCE ||
           call->kind == TUTTI__NODE_REDUCE_SCATTER;
}

/* Does the device's `sum` serve this type? */
static int is_summed(tutti_dtype_t dtype)
{
    return dtype >= TUTTI_INT8 && dtype <= TUTTI_FLOAT64;
}

void tutti__nccl_ask(const tutti__device_ops_t *ops, tutti__nccl_serves_t *ret_serves)
{
    memset(ret_serves, 0, sizeof(*ret_serves));
    for (unsigned op = TUTTI_SUM; op <= TUTTI_PROD; op++)
        for (unsigned dtype = 0; dtype < 32; dtype++)
            if (ops->nccl_serves((tutti_dtype_t)dtype, (tutti_op_t)op))
                ret_serves->dtypes[op] |= (uint32_t)1 << dtype;
}

void tutti__nccl_agree(tutti__nccl_serves_t *serves, const tutti__nccl_serves_t *others)
{
    for (unsigned op = TUTTI_SUM; op <= TUTTI_PROD; op++)
        serves->dtypes[op] &= others->dtypes[op];
}

/* Does NCCL serve this type and operation on all ranks? */
static int has(const tutti__nccl_node_t *self, tutti_dtype_t dtype, tutti_op_t op)
{
    return (unsigned)dtype < 32 && (unsigned)op <= TUTTI_PROD &&
           (self->serves.dtypes[op] >> dtype & 1) != 0;
}

const tutti__nccl_serves_t *tutti__nccl_node_serves_what(const tutti__node_t *node)
{
    return &((const tutti__nccl_node_t *)node)->serves;
}

int tutti__nccl_node_serves(const tutti__node_t *node, int is_reduction, tutti_dtype_t dtype,
                            tutti_op_t op, uint32_t divisor)
{
    const tutti__node_call_t call = { .kind = is_reduction ? TUTTI__NODE_ALLREDUCE
                                                           : TUTTI__NODE_ALLGATHER,
                                      .dtype = dtype,
                                      .op = op,
                                      .divisor = divisor };
    tutti__nccl_cut_t cut;

    return tutti__nccl_cut_begin((const tutti__nccl_node_t *)node, &call, &cut);
}

int tutti__nccl_cut_begin(const tutti__nccl_node_t *self, const tutti__node_call_t *call,
                          tutti__nccl_cut_t *ret_cut)
{
    tutti__nccl_cut_t cut = { .call = call, .esize = tutti_dtype_bytes(call->dtype) };
    int sums = call->op == TUTTI_SUM || call->op == TUTTI_AVG;

    cut.dtype = TUTTI_UINT8;
    cut.op = TUTTI_SUM;
    cut.scale = cut.esize;
    if (reduces(call)) {
        cut.dtype = call->dtype;
        cut.op = sums ? TUTTI_SUM : call->op;
        cut.scale = 1;
        cut.divisor = sums ? call->divisor : 0;
        if (cut.divisor == self->nlocal && tutti__reduce_scales(call->dtype) &&
            has(self, call->dtype, TUTTI_AVG)) {
            cut.op = TUTTI_AVG;
            cut.divisor = 0;
        }
    }
    if (!has(self, cut.dtype, cut.op) || (cut.divisor != 0 && !is_summed(cut.dtype)))
        return 0;
    *ret_cut = cut;
    return 1;
}

/* ---- equal parts ---- */

static int is_parted(const tutti__node_call_t *call)
{
    return call->kind == TUTTI__NODE_REDUCE_SCATTER || call->kind == TUTTI__NODE_ALLGATHER;
}

/* NCCL's kind of call for a run whose result or source belongs to one rank. */
static tutti__nccl_kind_t rooted_kind(const tutti__node_call_t *call)
{
    return reduces(call) ? TUTTI__NCCL_REDUCE : TUTTI__NCCL_BROADCAST;
}

/* Is part i a single run? All ranks get the same answer. */
static int find_part(const tutti__node_call_t *call, uint32_t i, run_t *ret_run)
{
    uint32_t next = i * call->nblk, end = next + call->nblk;

    *ret_run = find_run(call, &next, end);
    return next == end;
}

/* Make a call for all parts, and one for the rest of the last part. 0: the parts are not equal. */
static uint32_t cut_equal(const tutti__nccl_node_t *self, const tutti__nccl_cut_t *cut)
{
    const tutti__node_call_t *call = cut->call;
    int gathers = call->kind == TUTTI__NODE_ALLGATHER;
    run_t first, mine = { 0 }, part = { 0 };
    size_t count;

    if (call->map.table != NULL || call->nparts != self->nlocal || !find_part(call, 0, &first))
        return 0;
    count = first.count;
    for (uint32_t i = 0; i < call->nparts; i++) {
        if (!find_part(call, i, &part) || part.count < count || count == 0)
            return 0;
        if (gathers ? part.dst != first.dst + i * count : part.src != first.src + i * count)
            return 0;
        if (i == self->me)
            mine = part;
    }
    mine.count = count;
    if (gathers)
        mine.dst = first.dst;
    else
        mine.src = first.src;
    self->calls[0] = make_call(
        self, cut, gathers ? TUTTI__NCCL_ALLGATHER : TUTTI__NCCL_REDUCE_SCATTER, 0, &mine);
    if (part.count == count)
        return 1;
    part.src += count;
    part.dst += count;
    part.count -= count;
    self->calls[1] = make_call(self, cut, rooted_kind(call), call->nparts - 1, &part);
    return 2;
}

/* ---- run by run ---- */

/* Make the call for a run. `at`: the run's first block. */
static tutti__nccl_call_t run_call(const tutti__nccl_node_t *self, const tutti__nccl_cut_t *cut,
                                   uint32_t at, const run_t *run)
{
    const tutti__node_call_t *call = cut->call;

    if (call->kind == TUTTI__NODE_ALLREDUCE)
        return make_call(self, cut, TUTTI__NCCL_ALLREDUCE, 0, run);
    return make_call(self, cut, rooted_kind(call), is_parted(call) ? at / call->nblk : call->root,
                     run);
}

static uint32_t cut_runs(tutti__nccl_node_t *self, tutti__nccl_cut_t *cut)
{
    const tutti__node_call_t *call = cut->call;
    uint32_t end = call->nblk * call->nparts, n = 0;

    while (cut->next < end && n < self->most_calls) {
        uint32_t at = cut->next;
        uint32_t stop = is_parted(call) ? (at / call->nblk + 1) * call->nblk : end;
        run_t run = find_run(call, &cut->next, stop);

        if (run.count > 0)
            self->calls[n++] = run_call(self, cut, at, &run);
    }
    return n;
}

/* ---- alltoall ---- */

/* Add a copy of bytes, which is queued before the calls. */
static void add_piece(tutti__nccl_node_t *self, const void *src, void *dst, size_t bytes)
{
    self->pieces[self->npieces++] = (tutti__piece_t){ src, dst, bytes };
}

/* Exchange a piece with each peer. `at`: the run's first block, as an index in each part. */
static void exchange(tutti__nccl_node_t *self, const tutti__nccl_cut_t *cut, uint32_t at,
                     uint32_t end, size_t count)
{
    for (uint32_t r = 0; r < self->nlocal; r++) {
        uint32_t next = r * cut->call->nblk + at;
        run_t run = find_run(cut->call, &next, r * cut->call->nblk + end);
        tutti__nccl_call_t send, recv;

        run.src += cut->skip;
        run.dst += cut->skip;
        run.count = count;
        send = make_call(self, cut, TUTTI__NCCL_SEND, r, &run);
        recv = make_call(self, cut, TUTTI__NCCL_RECV, r, &run);
        if (r == self->me) {
            if (send.src != recv.dst)
                add_piece(self, send.src, recv.dst, send.count);
            continue;
        }
        if (send.src == recv.dst) {
            char *stage = self->stage + r * self->stage_share;

            add_piece(self, send.src, stage, send.count);
            send.src = stage;
        }
        self->calls[self->ncalls++] = send;
        self->calls[self->ncalls++] = recv;
    }
}

/* All blocks have the same length, so all parts are cut in the same way as part 0. */
static void cut_alltoall(tutti__nccl_node_t *self, tutti__nccl_cut_t *cut)
{
    uint32_t end = cut->call->nblk;

    assert(cut->call->nparts == self->nlocal);
    while (cut->next < end) {
        uint32_t at = cut->next, next = at;
        run_t run = find_run(cut->call, &next, end);
        size_t left = run.count - cut->skip;
        size_t count = TUTTI__MIN(left, self->stage_share / cut->esize);

        if (count > 0)
            exchange(self, cut, at, next, count);
        cut->skip += count;
        if (count == left) {
            cut->next = next;
            cut->skip = 0;
        }
        if (count > 0)
            return;
    }
}

/* ---- all kinds ---- */

int tutti__nccl_cut_next(tutti__nccl_node_t *self, tutti__nccl_cut_t *cut)
{
    self->ncalls = self->npieces = 0;
    if (cut->call->kind == TUTTI__NODE_ALLTOALL) {
        cut_alltoall(self, cut);
        return self->ncalls + self->npieces > 0;
    }
    if (cut->next == 0 && is_parted(cut->call))
        self->ncalls = cut_equal(self, cut);
    if (self->ncalls > 0)
        cut->next = cut->call->nblk * cut->call->nparts;
    else
        self->ncalls = cut_runs(self, cut);
    return self->ncalls > 0;
}

tutti_status_t tutti__nccl_divide(tutti__nccl_node_t *self, const tutti__nccl_cut_t *cut)
{
    const tutti__node_call_t *call = cut->call;
    uint32_t next = 0, end = call->nblk * call->nparts;
    tutti_status_t status = TUTTI_OK;

    if (cut->divisor == 0 || (call->kind == TUTTI__NODE_REDUCE && self->me != call->root))
        return TUTTI_OK;
    if (is_parted(call)) {
        next = TUTTI__MIN(self->me * call->nblk, end);
        end = TUTTI__MIN(next + call->nblk, end);
    }
    while (next < end && status == TUTTI_OK) {
        run_t run = find_run(call, &next, end);
        void *dst = place(cut, call->dst, run.dst);
        const void *src = dst;

        if (run.count > 0)
            status =
                self->ops->sum(dst, &src, 1, run.count, call->dtype, cut->divisor, self->stream);
    }
    return status;
}
