/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses the algorithm for a call: by TUTTI_ALGORITHM, or by the table.
 *
 * The choice depends on the call, the shape and the settings, which are the same on all ranks, so
 * all ranks choose alike without communication. A choice that the user forces is followed or
 * refused, never silently replaced. Each algorithm refuses the shapes that it cannot serve, so a
 * setting made for another job gives a clear error. Without such a check, an algorithm that does
 * not suit the shape can crash the job: MPICH issue 7456.
 *
 * The table is searched from the top for the first row that fits. A row fits if its conditions
 * apply to the call, and if its algorithm can serve the shape. If the call requires the order of
 * ranks or one association, the algorithm must also keep it. If the reason of the first fitting row
 * is "by cost", the model of cost.c finds the cheapest of all fitting rows with this reason. The
 * model also chooses the allreduce between hosts inside hierarchical. The results:
 *
 *      one host         node operations, if there are any
 *      several hosts    the cheapest algorithm by the model; for an allreduce: hierarchical. An
 *                       alltoall above 1 MiB is never direct: the model ignores queues in switches
 *      gather, scatter  one host: a tree for small messages, otherwise directly from or to the root
 *      v forms          the lengths are unknown: an algorithm that suits all lengths
 *      an operation that does not commute: an algorithm that keeps operands in the order of ranks
 *
 * On device memory device_cost.c then chooses between the device and host memory.
 *
 * If the association must be fixed, only rows with one tree of operands may be taken, so that bits
 * do not depend on sizes. Recursive doubling and halving have the same tree.
 */
#include "base/constants.h"
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/cost.h"
#include "coll/files.h"

#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define ALL SIZE_MAX

typedef enum {
    ANY_HOSTS,
    ONE_HOST
} hosts_t;

typedef struct {
    tutti__collective_t collective;
    hosts_t hosts;
    uint32_t ranks; /* the smallest number of ranks */
    size_t bytes;   /* the largest number of bytes, in total */
    const char *algorithm;
    int strict;      /* may be taken if the association must be fixed */
    const char *why; /* tutti__why_cost: take the cheapest of the rows with this reason */
} row_t;

#define HOST "by the table: one host"
#define HOSTS "by the table: several hosts"
#define SMALL "by the table: small"
#define FEW "by the table: large, or few ranks"
#define MANY "by the table: many ranks"
#define LENGTHS "by the table: unknown lengths"
#define ONLY "by the table: the only one"
#define COST tutti__why_cost

const char tutti__why_forced[] = "TUTTI_ALGORITHM";
const char tutti__why_cost[] = "by cost";

static const row_t rows[] = {
    { TUTTI__ALLREDUCE, ONE_HOST, 1, ALL, "node", 1, HOST },
    { TUTTI__ALLREDUCE, ANY_HOSTS, 1, ALL, "hierarchical", 1, HOSTS },
    { TUTTI__ALLREDUCE, ANY_HOSTS, 1, ALL, "recursive_doubling", 1, COST },
    { TUTTI__ALLREDUCE, ANY_HOSTS, 1, ALL, "halving_doubling", 1, COST },

    { TUTTI__ROOT_REDUCE, ONE_HOST, 1, ALL, "node", 1, HOST },
    { TUTTI__ROOT_REDUCE, ANY_HOSTS, 1, ALL, "binomial", 1, COST },
    { TUTTI__ROOT_REDUCE, ANY_HOSTS, 1, ALL, "scatter_gather", 0, COST },
    { TUTTI__ROOT_REDUCE, ANY_HOSTS, 1, ALL, "chain", 0, COST },

    { TUTTI__BROADCAST, ONE_HOST, 1, ALL, "node", 1, HOST },
    { TUTTI__BROADCAST, ANY_HOSTS, 1, ALL, "binomial", 1, COST },
    { TUTTI__BROADCAST, ANY_HOSTS, 1, ALL, "scatter_allgather", 1, COST },
    { TUTTI__BROADCAST, ANY_HOSTS, 1, ALL, "chain", 1, COST },

    { TUTTI__REDUCE_SCATTER, ONE_HOST, 1, ALL, "node", 1, HOST },
    { TUTTI__REDUCE_SCATTER, ANY_HOSTS, 1, ALL, "halving", 1, COST },
    { TUTTI__REDUCE_SCATTER, ANY_HOSTS, 1, ALL, "ring", 0, COST },

    { TUTTI__ALLGATHER, ONE_HOST, 1, ALL, "node", 1, HOST },
    { TUTTI__ALLGATHER, ANY_HOSTS, 1, ALL, "bruck", 1, COST },
    { TUTTI__ALLGATHER, ANY_HOSTS, 1, ALL, "ring", 1, COST },

    { TUTTI__ALLGATHERV, ANY_HOSTS, 1, 0, "ring", 1, LENGTHS },
    { TUTTI__ALLGATHERV, ANY_HOSTS, 1, ALL, "bruck", 1, COST },
    { TUTTI__ALLGATHERV, ANY_HOSTS, 1, ALL, "ring", 1, COST },

    { TUTTI__GATHER, ONE_HOST, 8, 256 * KIB, "binomial", 1, SMALL },
    { TUTTI__GATHER, ONE_HOST, 1, ALL, "direct", 1, FEW },
    { TUTTI__GATHER, ANY_HOSTS, 1, ALL, "direct", 1, COST },
    { TUTTI__GATHER, ANY_HOSTS, 1, ALL, "binomial", 1, COST },
    { TUTTI__GATHERV, ANY_HOSTS, 1, ALL, "direct", 1, ONLY },
    { TUTTI__SCATTER, ONE_HOST, 8, 256 * KIB, "binomial", 1, SMALL },
    { TUTTI__SCATTER, ONE_HOST, 1, ALL, "direct", 1, FEW },
    { TUTTI__SCATTER, ANY_HOSTS, 1, ALL, "direct", 1, COST },
    { TUTTI__SCATTER, ANY_HOSTS, 1, ALL, "binomial", 1, COST },
    { TUTTI__SCATTERV, ANY_HOSTS, 1, ALL, "direct", 1, ONLY },

    { TUTTI__ALLTOALL, ONE_HOST, 1, ALL, "node", 1, HOST },
    { TUTTI__ALLTOALL, ANY_HOSTS, 1, 1 * MIB, "direct", 1, COST },
    { TUTTI__ALLTOALL, ANY_HOSTS, 1, ALL, "pairwise", 1, COST },
    { TUTTI__ALLTOALL, ANY_HOSTS, 1, ALL, "recursive_doubling", 1, COST },
    { TUTTI__ALLTOALL, ANY_HOSTS, 1, ALL, "bruck", 1, COST },
    { TUTTI__ALLTOALLV, ONE_HOST, 1, ALL, "direct", 1, HOST },
    { TUTTI__ALLTOALLV, ANY_HOSTS, 64, ALL, "pairwise", 1, MANY },
    { TUTTI__ALLTOALLV, ANY_HOSTS, 1, ALL, "direct", 1, LENGTHS },

    { TUTTI__SCAN, ANY_HOSTS, 1, ALL, "recursive_doubling", 1, COST },
    { TUTTI__SCAN, ANY_HOSTS, 1, ALL, "chain", 0, COST },
    { TUTTI__EXSCAN, ANY_HOSTS, 1, ALL, "recursive_doubling", 1, COST },
    { TUTTI__EXSCAN, ANY_HOSTS, 1, ALL, "chain", 0, COST },

    { TUTTI__BARRIER, ONE_HOST, 1, ALL, "node", 1, HOST },
    { TUTTI__BARRIER, ANY_HOSTS, 1, ALL, "dissemination", 1, HOSTS },
};

static const char not_fixed[] =
    "its association depends on an element's place, against TUTTI_DETERMINISTIC=strict";
static const char not_ordered[] = "it does not keep the order of ranks, which the operation needs";

/* May the model choose this sub (allreduce between hosts)? Two cases exclude direct_scatter. If the
   number of hosts is a power of two, halving_doubling sends as few bytes, and with it no rank
   receives from all others at once. On device memory direct_scatter needs SCRATCH in host memory,
   so its messages cannot be GPU-direct (exec/gpu_direct.c). */
static int is_candidate(const tutti__algorithm_t *algorithm, const char *sub,
                        const tutti__shape_t *shape, tutti__association_t association)
{
    int is_power = (shape->nhosts & (shape->nhosts - 1)) == 0;

    if ((is_power || shape->on_device) && strcmp(sub, "direct_scatter") == 0)
        return 0;
    return association == TUTTI__ANY_ASSOCIATION ||
           tutti__algorithm_find(algorithm->collective, sub)->fixed_association;
}

/* The cheapest of the algorithm's subs that the association allows; if costs are equal, the first
   of them. */
static const char *cheapest_sub(const tutti__algorithm_t *algorithm, const tutti__shape_t *shape,
                                size_t bytes, tutti__association_t association)
{
    const char *best = algorithm->subs[0];
    uint64_t least = UINT64_MAX;

    for (const char *const *sub = algorithm->subs; *sub != NULL; sub++) {
        tutti__cost_t cost;

        if (!is_candidate(algorithm, *sub, shape, association))
            continue;
        if (tutti__cost_of(algorithm, *sub, shape, &cost) && tutti__cost_ps(&cost, bytes) < least) {
            least = tutti__cost_ps(&cost, bytes);
            best = *sub;
        }
    }
    return best;
}

static const tutti__algorithm_t *sub_algorithm(const tutti__choice_t *choice)
{
    return tutti__algorithm_find(choice->algorithm->collective, choice->sub);
}

static int is_fixed(const tutti__choice_t *choice)
{
    return choice->algorithm->fixed_association &&
           (choice->sub == NULL || sub_algorithm(choice)->fixed_association);
}

/* Does the choice keep operands in order? Without a reduction there are no operands. */
static int is_ordered(const tutti__choice_t *choice)
{
    switch (choice->algorithm->collective) {
    case TUTTI__ALLREDUCE:
    case TUTTI__ROOT_REDUCE:
    case TUTTI__REDUCE_SCATTER:
    case TUTTI__SCAN:
    case TUTTI__EXSCAN:
        return choice->algorithm->ordered &&
               (choice->sub == NULL || sub_algorithm(choice)->ordered);
    default:
        return 1;
    }
}

/* The reason why the choice cannot serve the call; NULL if it can. */
static const char *refusal(const tutti__choice_t *choice, const tutti__shape_t *shape, int ordered)
{
    const tutti__algorithm_t *a = choice->algorithm;
    const char *reason = a->refuses != NULL ? a->refuses(shape) : NULL;

    if (reason == NULL && ordered && !is_ordered(choice))
        reason = not_ordered;
    return reason;
}

static tutti_status_t refuse(const tutti__choice_t *choice, const char *reason)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "TUTTI_ALGORITHM=%s:%s%s%s cannot be used: %s",
                       tutti__collective_name(choice->algorithm->collective),
                       choice->algorithm->name, choice->sub != NULL ? "/" : "",
                       choice->sub != NULL ? choice->sub : "", reason);
}

/* Fill in the parts of the choice that were left open. */
static void complete(tutti__choice_t *choice, const tutti__want_t *want,
                     const tutti__shape_t *shape, tutti__association_t association)
{
    if (choice->sub == NULL && choice->algorithm->subs != NULL)
        choice->sub = cheapest_sub(choice->algorithm, shape, want->bytes, association);
    if (choice->radix == 0)
        choice->radix = choice->algorithm->radix;
    choice->streams = tutti__coll_streams(choice, shape, want->bytes, is_fixed(choice));
}

/* If the row fits, returns 1, and *ret_choice is the choice by this row. */
static int fits(const row_t *row, const tutti__want_t *want, const tutti__shape_t *shape,
                tutti__association_t association, tutti__choice_t *ret_choice)
{
    if (row->collective != want->collective || (row->hosts == ONE_HOST && shape->nhosts != 1) ||
        shape->size < row->ranks || want->bytes > row->bytes ||
        (association != TUTTI__ANY_ASSOCIATION && !row->strict))
        return 0;
    *ret_choice =
        (tutti__choice_t){ .algorithm = tutti__algorithm_find(want->collective, row->algorithm) };
    complete(ret_choice, want, shape, association);
    return refusal(ret_choice, shape, want->ordered) == NULL;
}

static tutti_status_t choose_row(const tutti__want_t *want, const tutti__shape_t *shape,
                                 tutti__association_t association, tutti__choice_t *ret_choice,
                                 const char **ret_why)
{
    uint64_t least = UINT64_MAX;
    const char *why = NULL;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tutti__choice_t choice;
        tutti__cost_t cost;

        if ((why != NULL && rows[i].why != COST) ||
            !fits(&rows[i], want, shape, association, &choice))
            continue;
        if (rows[i].why == COST) {
            if (!tutti__cost_of(choice.algorithm, choice.sub, shape, &cost) ||
                tutti__cost_ps(&cost, want->bytes) >= least)
                continue;
            least = tutti__cost_ps(&cost, want->bytes);
        }
        *ret_choice = choice;
        why = rows[i].why;
        if (why != COST)
            break;
    }
    if (why == NULL)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "there is no algorithm for this %s",
                           tutti__collective_name(want->collective));
    *ret_why = why;
    return TUTTI_OK;
}

/* Is this choice nccl-flat, on a shape that it does not serve? If so, the table decides. */
static int is_elsewhere(const tutti__choice_t *choice, const tutti__shape_t *shape)
{
    return choice->algorithm != NULL &&
           choice->algorithm->refuses == tutti__coll_nccl_flat_refuses &&
           tutti__coll_nccl_flat_refuses(shape) != NULL;
}

/* Does the call have the file's root? A file's schedules are for one root only. */
static tutti_status_t check_root(const tutti__file_t *file, const tutti__want_t *want)
{
    if (!tutti__collective_has_root(want->collective) || want->root == TUTTI__ANY_ROOT ||
        want->root == file->root)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "TUTTI_ALGORITHM=%s:%s cannot be used: it is for root %u, but the call has"
                       " root %u",
                       tutti__collective_name(want->collective), file->name, file->root,
                       want->root);
}

/* Find the row of the item's file. *ret_row is NULL if the file is for another number of ranks. */
static tutti_status_t choose_file(const tutti__override_item_t *item, const tutti__want_t *want,
                                  const tutti__shape_t *shape, const tutti__algorithm_t **ret_row)
{
    const tutti__file_t *file = tutti__files_find(shape->files, item);

    if (file == NULL)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "TUTTI_ALGORITHM: the file %.*s was not read",
                           (int)item->path_bytes, item->path);
    *ret_row = file->sched != NULL ? &file->row : NULL;
    return file->sched != NULL ? check_root(file, want) : TUTTI_OK;
}

tutti_status_t tutti__algorithm_choose(const tutti__want_t *want, const tutti__shape_t *shape,
                                       const char *override, tutti__association_t association,
                                       tutti__choice_t *ret_choice, const char **ret_why)
{
    const tutti__override_item_t *item;
    tutti__override_t forced;
    tutti__choice_t choice;
    const char *reason;
    tutti_status_t status = tutti__override_parse(override, &forced);

    if (status != TUTTI_OK)
        return status;
    item = tutti__override_find(&forced, want->collective, want->bytes);
    if (item == NULL || is_elsewhere(&item->choice, shape))
        return choose_row(want, shape, association, ret_choice, ret_why);

    choice = item->choice;
    if (item->path != NULL) {
        status = choose_file(item, want, shape, &choice.algorithm);
        if (status != TUTTI_OK)
            return status;
        if (choice.algorithm == NULL)
            return choose_row(want, shape, association, ret_choice, ret_why);
    }
    complete(&choice, want, shape, association);
    reason = refusal(&choice, shape, want->ordered);
    if (reason == NULL && association == TUTTI__STRICT_ASSOCIATION && !is_fixed(&choice))
        reason = not_fixed;
    if (reason != NULL)
        return refuse(&choice, reason);
    *ret_choice = choice;
    *ret_why = tutti__why_forced;
    return TUTTI_OK;
}

tutti_status_t tutti__algorithm_check_override(const char *override, const tutti__shape_t *shape)
{
    tutti__override_t forced;
    tutti_status_t status = tutti__override_parse(override, &forced);

    for (uint32_t i = 0; status == TUTTI_OK && shape != NULL && i < forced.n; i++) {
        const tutti__choice_t *choice = &forced.items[i].choice;
        const char *reason = NULL;

        if (choice->algorithm != NULL && !is_elsewhere(choice, shape))
            reason = refusal(choice, shape, 0);
        if (reason != NULL)
            status = refuse(choice, reason);
    }
    return status;
}

/* For gather, scatter and alltoall the result is always `most`: their data are sent in the frame of
   the comparison (call/ride.h). By the model the limit would be 8 KiB on a link of 10 Gbit/s,
   because these calls have few steps. But messages after a frame also cost processor time, which
   the model ignores. Measured: two hosts (network namespaces), two ranks each, alltoall of 4 KiB to
   each rank, three runs beside other work. Sent with the comparison, it takes 84 to 121 us; after a
   frame without data, 280 to 650 us. */
size_t tutti__cost_ride_bytes(tutti__collective_t collective, const tutti__shape_t *shape,
                              tutti__association_t association, size_t most)
{
    tutti__want_t want = { .collective = collective, .bytes = most };
    tutti__cost_t frame, call;
    tutti__choice_t choice;
    const char *why;

    tutti__cost_of(tutti__algorithm_find(TUTTI__ALLREDUCE, "leaders"), NULL, shape, &frame);
    if (collective == TUTTI__GATHER || collective == TUTTI__SCATTER ||
        collective == TUTTI__ALLTOALL)
        return most;
    for (; want.bytes > TUTTI__RIDE_LEAST_BYTES; want.bytes /= 2)
        if (choose_row(&want, shape, association, &choice, &why) != TUTTI_OK ||
            !tutti__cost_of(choice.algorithm, choice.sub, shape, &call) ||
            tutti__cost_ps(&frame, want.bytes) <=
                tutti__cost_ps(&frame, 0) + tutti__cost_ps(&call, want.bytes))
            break;
    return want.bytes;
}
