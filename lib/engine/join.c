/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that have joined (tutti_join): they have no requests, but take part in what the others
 * submit. Rank 0 tells them what it is with each bucket; each makes a ghost of the tensor, which
 * lives in the lane's memory, of the host or the device, and gives zeros.
 */
#include "engine/agree.h"

#include <string.h>

const char *tutti__join_refuses(const tutti__engine_t *e, const tutti__facts_t *facts)
{
    switch ((tutti_call_kind_t)facts->kind) {
    case TUTTI_CALL_BARRIER:
        return NULL;
    case TUTTI_CALL_ALLREDUCE:
    case TUTTI_CALL_REDUCE:
    case TUTTI_CALL_REDUCE_SCATTER:
        if (facts->op == TUTTI_SUM || facts->op == TUTTI_AVG)
            return NULL;
        return "while ranks have joined only sum and avg are served";
    case TUTTI_CALL_BROADCAST:
        return e->joined[facts->root] ? "the root has joined" : NULL;
    case TUTTI_CALL_ALLGATHERV:
        if (facts->unsure || facts->phase > 0)
            return NULL;
        return "while ranks have joined recvcounts must be NULL";
    default:
        return "this collective is not served while ranks have joined";
    }
}

/*
 * The bucket of a second phase may come before this rank has finished the first one, since it does
 * not announce anything; so the second is a ghost of its own, and asks when it starts.
 */
int tutti__join_counts(tutti__engine_t *e, tutti__request_t *ghost)
{
    for (tutti__request_t **at = &e->ghosts; *at != NULL; at = &(*at)->next) {
        tutti__request_t *first = *at;

        if (first->hash != ghost->hash || strcmp(first->name, ghost->name) != 0)
            continue;
        *at = first->next;
        memcpy(ghost->arrays, first->arrays, 4 * (size_t)e->size * sizeof(*ghost->arrays));
        ghost->call.recvcounts = ghost->arrays + 2 * (size_t)e->size;
        tutti__request_free(first);
        return 1;
    }
    return 0;
}

tutti__request_t *tutti__join_ghost(tutti__engine_t *e, const tutti__facts_t *facts,
                                    const char *name, size_t name_bytes)
{
    char text[TUTTI__NAME_BYTES] = "";
    tutti__entry_t entry = {
        .name = text,
        .call = {
            .kind = (tutti_call_kind_t)facts->kind,
            .dtype = (tutti_dtype_t)facts->dtype,
            .op = (tutti_op_t)facts->op,
            .root = facts->root,
            .count = facts->kind == TUTTI_CALL_ALLGATHERV ? 0 : facts->count,
            .prescale = 1,
            .postscale = 1,
            .on_device = facts->on_device,
        },
        .counts_later = facts->kind == TUTTI_CALL_ALLGATHERV,
    };
    tutti__request_t *ghost;

    memcpy(text, name, name_bytes);
    if (tutti__request_new(e, &entry, &ghost) != TUTTI_OK) {
        tutti__watch_dead(e, TUTTI_ERR_NO_MEMORY, "no memory to take part after tutti_join");
        return NULL;
    }
    ghost->ghost = 1;
    ghost->phase = facts->phase;
    return ghost;
}
