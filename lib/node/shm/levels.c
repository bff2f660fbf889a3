/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Node operations among several groups of ranks. The ranks of a group share a cache or a NUMA node.
 *
 * Meetings. With p ranks in G groups of m ranks, each rank reads G cache lines instead of p, and a
 * leader reads G + m.
 *
 *      announcement of each rank --> leader: all equal?  --> announcement of the group --> all
 *                                    one-shot: their sum
 *
 *   A group's announcement has the form of a rank's announcement. If a one-shot operation reduces,
 *   the announcement has the sum of the group's data. If the group's ranks have different calls,
 *   the announcement's head is MIXED. When a rank has read all groups' announcements of operation
 *   m, all ranks have announced m. So two slots are enough, as in shm.h. After that, the rank may
 *   also read the announcements of other ranks, for data that is moved, for descriptions of large
 *   operations, and for the text of a mismatch.
 *
 * Chunks: RED is preceded by a further stage, SUM. In each group, member j % m sums up block j over
 * the group. So G members, one of each group, sum up block j. If the groups are contiguous ranges
 * of ranks and have equal sizes, the final owner of block j is one of these G members. g is the
 * number of the chunk, as in shm.h.
 *      IN   copy to own slot the blocks that other members sum  needs: all OUT, own RED >= g - 1
 *      SUM  sum up own blocks over the group, into own slot     needs: the group's IN >= g + 1
 *      RED  reduce own block over the groups' sums              needs: SUM of their owners >= g + 1
 *      OUT  as in shm.h
 *   With n bytes of data, a rank in RED reads (G - 1) n / p bytes of other groups, instead of
 *   (p - m) n / p.
 *
 * Zero-copy reads all data in place, but reduces them in the same order.
 *
 * Narrow floats are reduced in one level. If the groups are not contiguous ranges of ranks,
 * operations that do not commute are also reduced in one level.
 */
#include "node/shm/shm.h"

#include "base/constants.h"

#include <stdlib.h>
#include <string.h>

/* Upper half of a group's head, if the group has different calls. No call has this value. */
#define MIXED ((uint64_t)UINT32_MAX << 32)

/* ---- groups ---- */

static uint32_t leader_of(const tutti__shm_t *shm, uint32_t group)
{
    return shm->by_group[shm->group_first[group]];
}

static tutti__announce_t *announce_of(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                      uint32_t group)
{
    return tutti__shm_of_group(&lane->peer[leader_of(shm, group)], lane->seq);
}

tutti_status_t tutti__shm_make_groups(tutti__shm_t *shm, const uint32_t *group_of)
{
    uint32_t n = shm->nlocal, at = 0;

    shm->ngroups = 1;
    for (uint32_t r = 0; group_of != NULL && r < n; r++)
        shm->ngroups = TUTTI__MAX(shm->ngroups, group_of[r] + 1);
    /* If each rank is alone in its group, there is one level. */
    if (shm->ngroups == n)
        shm->ngroups = 1;
    shm->group_first = calloc(shm->ngroups + 1, sizeof(*shm->group_first));
    shm->by_group = calloc(n, sizeof(*shm->by_group));
    shm->sums = calloc((size_t)TUTTI__LANES * shm->ngroups, TUTTI__SHM_SUM_BYTES);
    if (shm->group_first == NULL || shm->by_group == NULL || shm->sums == NULL)
        return TUTTI_ERR_NO_MEMORY;
    shm->in_order = 1;
    for (uint32_t g = 0; g < shm->ngroups; g++) {
        shm->group_first[g] = at;
        for (uint32_t r = 0; r < n; r++) {
            if (shm->ngroups > 1 && group_of[r] != g)
                continue;
            if (r == shm->me)
                shm->group = g;
            shm->in_order &= at == r;
            shm->by_group[at++] = r;
        }
    }
    shm->group_first[shm->ngroups] = at;
    return TUTTI_OK;
}

/* Sums of groups have the type of the elements. In a narrow type a sum may overflow although the
   average fits, and results would be rounded twice. So narrow types are reduced in one level. */
static int is_narrow(tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_FLOAT16:
    case TUTTI_BFLOAT16:
    case TUTTI_FLOAT8_E4M3:
    case TUTTI_FLOAT8_E5M2:
        return 1;
    default:
        return 0;
    }
}

int tutti__shm_takes_levels(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    const tutti__reducer_t *reducer = lane->call->reducer;

    if (shm->ngroups == 1 || !tutti__shm_reduces(lane) || is_narrow(lane->call->dtype))
        return 0;
    return shm->in_order || reducer->fold != NULL || tutti__user_op_commutes(reducer->user);
}

/* ---- meeting ---- */

/* Is this announcement equal to this rank's call? */
static int is_mine(const tutti__shm_lane_t *lane, const tutti__announce_t *a)
{
    return atomic_load_explicit(&a->head, memory_order_relaxed) == (lane->head | lane->seq) &&
           a->count == lane->count_word &&
           (lane->call->kind != TUTTI__NODE_MEET || a->u.root == lane->call->root);
}

static int all_mine(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    for (uint32_t i = shm->group_first[shm->group]; i < shm->group_first[shm->group + 1]; i++)
        if (shm->by_group[i] != shm->me &&
            !is_mine(lane, lane->peer[shm->by_group[i]].announce[lane->seq & 1]))
            return 0;
    return 1;
}

/* Sum up the packed data of the group's announcements. */
static void sum_oneshot(tutti__shm_t *shm, uint32_t lane_index, char *to)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const void **srcs = tutti__shm_srcs(shm, lane_index);
    const uint32_t *member = shm->by_group + shm->group_first[shm->group];
    uint32_t n = shm->group_first[shm->group + 1] - shm->group_first[shm->group];
    size_t at = 0;

    for (uint32_t j = 0; j < lane->call->nblk * lane->call->nparts; j++) {
        tutti__shm_part_t part = tutti__shm_block(lane, j);

        for (uint32_t i = 0; i < n; i++)
            srcs[i] = tutti__shm_given(shm, lane, member[i], at, part);
        tutti__reduce(lane->call->reducer, to + at, srcs, n, part.count, 0);
        at += part.count * lane->esize;
    }
}

/* Write the group's announcement. All ranks of the group must have announced. */
static void announce_group(tutti__shm_t *shm, uint32_t lane_index)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti__announce_t *group = announce_of(shm, lane, shm->group);
    int alike = all_mine(shm, lane);

    if (alike && lane->call->kind == TUTTI__NODE_MEET)
        group->u.root = lane->call->root;
    else if (alike && lane->levels && lane->oneshot)
        sum_oneshot(shm, lane_index, group->u.data);
    group->count = lane->count_word;
    tutti__store64_release(&group->head, (alike ? lane->head : MIXED) | lane->seq);
    /* This stores the number once more, and wakes sleeping ranks. */
    tutti__shm_publish(shm, lane_index, tutti__shm_seq(group), lane->seq);
}

/* The leader's part of a meeting. */
static tutti_status_t lead(tutti__shm_t *shm, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    uint32_t n = shm->group_first[shm->group + 1] - shm->group_first[shm->group];

    for (; lane->seen < n; lane->seen++) {
        uint32_t r = shm->by_group[shm->group_first[shm->group] + lane->seen];
        tutti__word_t *word = tutti__shm_seq(lane->peer[r].announce[lane->seq & 1]);
        uint32_t value = tutti__load_acquire(word);

        if (value != lane->seq)
            return tutti__shm_hint(shm, r, word, value, hint);
        if (lane->seen + 1 == n)
            announce_group(shm, lane_index);
    }
    return TUTTI_OK;
}

/* Fill in the wait hint for a group's announcement. It names the group's leader or, after
   TUTTI__GROUP_LOOKS polls, a rank for which the leader waits. Returns TUTTI__AGAIN. */
static tutti_status_t wait_for_group(const tutti__shm_t *shm, tutti__shm_lane_t *lane,
                                     uint32_t group, uint32_t value, tutti__hint_t *hint)
{
    lane->misses += lane->misses < TUTTI__GROUP_LOOKS;
    for (uint32_t i = shm->group_first[group];
         lane->misses == TUTTI__GROUP_LOOKS && i < shm->group_first[group + 1]; i++) {
        uint32_t r = shm->by_group[i];
        tutti__word_t *word = tutti__shm_seq(lane->peer[r].announce[lane->seq & 1]);
        uint32_t its = tutti__load_acquire(word);

        if (its != lane->seq)
            return tutti__shm_hint(shm, r, word, its, hint);
    }
    return tutti__shm_hint(shm, leader_of(shm, group),
                           tutti__shm_seq(announce_of(shm, lane, group)), value, hint);
}

/* Do all groups have this rank's call? If not, report the ranks that differ. */
static tutti_status_t compare_groups(const tutti__shm_t *shm, const tutti__shm_lane_t *lane)
{
    for (uint32_t g = 0; g < shm->ngroups; g++)
        if (!is_mine(lane, announce_of(shm, lane, g)))
            return tutti__shm_mismatch(shm, lane);
    return TUTTI_OK;
}

/* Reduce the groups' sums to this rank's result. */
static void reduce_oneshot(tutti__shm_t *shm, uint32_t lane_index)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const tutti__node_call_t *call = lane->call;
    const void **srcs = tutti__shm_srcs(shm, lane_index);
    size_t at = 0;

    for (uint32_t j = 0; j < call->nblk * call->nparts; j++) {
        tutti__shm_part_t part = tutti__shm_block(lane, j);

        for (uint32_t g = 0; g < shm->ngroups; g++)
            srcs[g] = announce_of(shm, lane, g)->u.data + at;
        if (call->kind != TUTTI__NODE_REDUCE_SCATTER || j / call->nblk == shm->me)
            tutti__reduce(call->reducer, tutti__shm_dst(lane, part), srcs, shm->ngroups, part.count,
                          call->divisor);
        at += part.count * lane->esize;
    }
}

/* If the groups' announcements suffice, complete the operation. Otherwise TUTTI_OK means only that
   all ranks have announced. */
static tutti_status_t meet(tutti__shm_t *shm, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status = TUTTI_OK;

    if (shm->me == leader_of(shm, shm->group))
        status = lead(shm, lane_index, hint);
    if (status != TUTTI_OK)
        return status;
    for (; lane->heard < shm->ngroups; lane->heard++) {
        uint32_t value = tutti__load_acquire(tutti__shm_seq(announce_of(shm, lane, lane->heard)));

        if (value != lane->seq)
            return wait_for_group(shm, lane, lane->heard, value, hint);
        lane->misses = 0;
    }
    lane->heard = 0;
    lane->seen = shm->nlocal;
    status = compare_groups(shm, lane);
    if (status == TUTTI_OK && lane->call->kind != TUTTI__NODE_MEET &&
        !(lane->levels && lane->oneshot))
        return TUTTI_OK;
    if (status == TUTTI_OK && lane->call->kind != TUTTI__NODE_MEET && tutti__shm_gets(shm, lane))
        reduce_oneshot(shm, lane_index);
    lane->phase = SHM_IDLE;
    return status;
}

/* ---- chunks ---- */

/* Sum up this rank's blocks of a chunk over the group, into this rank's slot. The slot has no data
   in these places, because IN does not copy these blocks. */
void tutti__shm_sum_chunk(tutti__shm_t *shm, uint32_t lane_index, uint32_t chunk)
{
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    const void **srcs = tutti__shm_srcs(shm, lane_index);
    const uint32_t *member = shm->by_group + shm->group_first[shm->group];
    uint32_t n = shm->group_first[shm->group + 1] - shm->group_first[shm->group];

    for (uint32_t j = 0; j < lane->nblocks; j++) {
        tutti__shm_part_t part;

        if (tutti__shm_summer(shm, shm->group, j) != shm->me)
            continue;
        part = tutti__shm_piece(lane, j, chunk);
        for (uint32_t i = 0; i < n; i++)
            srcs[i] = member[i] == shm->me ? tutti__shm_src(lane, part)
                                           : tutti__shm_slot(shm, lane, member[i], chunk, j);
        if (part.count > 0)
            tutti__reduce(lane->call->reducer, tutti__shm_slot(shm, lane, shm->me, chunk, j), srcs,
                          n, part.count, 0);
    }
}

tutti_status_t tutti__shm_all_sums(const tutti__shm_t *shm, const tutti__shm_lane_t *lane,
                                   uint32_t target, tutti__hint_t *hint)
{
    for (uint32_t j = 0; j < lane->nblocks; j++) {
        for (uint32_t g = 0; tutti__shm_owner(lane, j) == shm->me && g < shm->ngroups; g++) {
            uint32_t r = tutti__shm_summer(shm, g, j), value;
            tutti__word_t *word = &lane->peer[r].progress->sum;

            if (r == shm->me)
                continue;
            value = tutti__load_acquire(word);
            if (!tutti__reached(value, target))
                return tutti__shm_hint(shm, r, word, value, hint);
        }
    }
    return TUTTI_OK;
}

/* ---- zero-copy ---- */

void tutti__shm_fold(tutti__shm_t *shm, uint32_t lane_index, void *dst, const void **srcs,
                     size_t count)
{
    const tutti__node_call_t *call = shm->lane[lane_index].call;
    char *sums = shm->sums + (size_t)lane_index * shm->ngroups * TUTTI__SHM_SUM_BYTES;

    for (uint32_t g = 0; g < shm->ngroups; g++, sums += TUTTI__SHM_SUM_BYTES) {
        uint32_t first = shm->group_first[g];

        tutti__reduce(call->reducer, sums, srcs + first, shm->group_first[g + 1] - first, count, 0);
        srcs[g] = sums; /* overwrites a pointer that has been used */
    }
    tutti__reduce(call->reducer, dst, srcs, shm->ngroups, count, call->divisor);
}

/* ---- the table for several groups ---- */

static void start(tutti__node_t *node, uint32_t lane_index, const tutti__node_call_t *call)
{
    tutti__shm_ops.start(node, lane_index, call);
}

static tutti_status_t step(tutti__node_t *node, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__shm_t *shm = (tutti__shm_t *)node;
    tutti__shm_lane_t *lane = &shm->lane[lane_index];
    tutti_status_t status = TUTTI_OK;

    if (lane->phase == SHM_EARLY)
        status = tutti__shm_early(shm, lane_index, hint);
    if (status == TUTTI_OK && lane->phase == SHM_MEET)
        status = meet(shm, lane_index, hint);
    if (status != TUTTI_OK || lane->phase == SHM_IDLE)
        return status;
    return tutti__shm_ops.step(node, lane_index, hint);
}

const tutti__node_ops_t tutti__shm_group_ops = {
    .name = "shm",
    .purpose = "shared memory, in two levels: groups of ranks that are near each other",
    .close = tutti__shm_close,
    .start = start,
    .step = step,
    .repeat = tutti__shm_repeat,
    .cancel = tutti__shm_cancel,
};
