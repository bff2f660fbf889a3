/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that has joined (tutti_join) makes a zero contribution to each tensor that the other ranks
 * submit. The bucket has the tensor's metadata. The zeros are in the lane's host or device memory.
 */
#include "engine/join.h"

#include <assert.h>
#include <string.h>

/*
 * A rank that has joined announces nothing, so the bucket of a second phase may arrive before this
 * rank has finished the first phase. Therefore the second phase has a zero contribution of its own,
 * which gets the counts from the contribution to the first phase when its bucket starts.
 */
int tutti__join_counts(tutti__request_t **zeros, uint32_t size, tutti__request_t *zero)
{
    assert(zero->is_zero && zero->phase > 0);
    for (tutti__request_t **at = zeros; *at != NULL; at = &(*at)->next) {
        tutti__request_t *first = *at;

        if (first->hash != zero->hash || strcmp(first->name, zero->name) != 0)
            continue;
        *at = first->next;
        memcpy(zero->arrays, first->arrays, 4 * (size_t)size * sizeof(*zero->arrays));
        zero->call.recvcounts = zero->arrays + 2 * (size_t)size;
        tutti__request_free(first);
        return 1;
    }
    return 0;
}

tutti__request_t *tutti__join_zero(const tutti__engine_env_t *env,
                                   const tutti__metadata_t *metadata, const char *name,
                                   size_t name_bytes)
{
    char text[TUTTI__NAME_BYTES] = "";
    tutti__entry_t entry = {
        .name = text,
        .call = {
            .kind = (tutti_call_kind_t)metadata->kind,
            .dtype = (tutti_dtype_t)metadata->dtype,
            .op = (tutti_op_t)metadata->op,
            .root = metadata->root,
            .count = metadata->kind == TUTTI_CALL_ALLGATHERV ? 0 : metadata->count,
            .prescale = 1,
            .postscale = 1,
            .wire = (tutti_dtype_t)metadata->wire,
            .on_device = metadata->on_device,
        },
        .counts_later = metadata->kind == TUTTI_CALL_ALLGATHERV,
    };
    tutti__request_t *zero;

    assert(name_bytes < sizeof(text));
    memcpy(text, name, name_bytes);
    if (tutti__request_new(env->exec->rank, env->exec->size, &entry, NULL, &zero) != TUTTI_OK) {
        tutti__watch_end(env->watch, TUTTI_ERR_NO_MEMORY,
                         "no memory to take part after tutti_join");
        return NULL;
    }
    zero->is_zero = 1;
    zero->phase = metadata->phase;
    return zero;
}
