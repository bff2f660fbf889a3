/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that has joined (tutti_join) counts as having announced every tensor, and contributes
 * zeros. The buckets contain the metadata of the other ranks' calls, which describe these zeros.
 */
#include "agree/tensors.h"

#include <tutti/tutti.h>

#include <assert.h>
#include <string.h>

const char *tutti__joins_refuse(const tutti__agree_t *a, const tutti__metadata_t *metadata)
{
    switch ((tutti_call_kind_t)metadata->kind) {
    case TUTTI_CALL_BARRIER:
        return NULL;
    case TUTTI_CALL_ALLREDUCE:
    case TUTTI_CALL_REDUCE:
    case TUTTI_CALL_REDUCE_SCATTER:
        if (metadata->op == TUTTI_SUM || metadata->op == TUTTI_AVG)
            return NULL;
        return "while ranks have joined only sum and avg are served";
    case TUTTI_CALL_BROADCAST:
        return a->joined[metadata->root] ? "the root has joined" : NULL;
    case TUTTI_CALL_ALLGATHERV:
        if (metadata->unsure || metadata->phase > 0)
            return NULL;
        return "while ranks have joined recvcounts must be NULL";
    default:
        return "this collective is not served while ranks have joined";
    }
}

/* Settle one tensor that all ranks have announced. Returns 0 if there is none. Otherwise other
   tensors may have left the table, so the caller searches again. */
static int settle_one(tutti__agree_t *a)
{
    for (uint32_t i = 0; i < TUTTI__TENSOR_BUCKETS; i++)
        for (tutti__tensor_t *t = a->tensors[i]; t != NULL; t = t->next)
            if ((a->env.parent < 0 && tutti__decide_joined(a, t)) || tutti__agree_settle(a, t))
                return 1;
    return 0;
}

void tutti__joins_add(tutti__agree_t *a, uint32_t rank)
{
    if (a->env.parent >= 0)
        a->env.ops->send(a->env.owner, (uint32_t)a->env.parent, TUTTI__MSG_JOIN, &rank,
                         sizeof(rank), 1);
    if (a->joined[rank])
        return;
    a->joined[rank] = 1;
    a->njoined++;
    assert(a->njoined <= a->subtree);
    if (a->env.parent < 0 && a->njoined == a->env.size) {
        tutti__joins_done(a, rank);
        return;
    }
    while (settle_one(a)) {
    }
}

void tutti__joins_done(tutti__agree_t *a, uint32_t last_rank)
{
    tutti__agree_send_down(a, TUTTI__MSG_JOINED, &last_rank, sizeof(last_rank));
    memset(a->joined, 0, a->env.size);
    a->njoined = 0;
    a->env.ops->joined(a->env.owner, last_rank);
}

void tutti__agree_join(tutti__agree_t *a)
{
    tutti__joins_add(a, a->env.rank);
}

int tutti__agree_has_joined(const tutti__agree_t *a)
{
    return a->joined[a->env.rank];
}
