/* SPDX-License-Identifier: BSD-3-Clause */
/* Buckets: freeing, and the memory that can serve a bucket. Callers own the token. */
#include "engine/bucket.h"

#include <stdlib.h>

void tutti__bucket_group_drop(tutti__bucket_group_t *group)
{
    if (group != NULL && --group->uses == 0)
        free(group);
}

void tutti__bucket_free(tutti__bucket_t *bucket)
{
    tutti__request_t *next;

    if (bucket != NULL)
        tutti__bucket_group_drop(bucket->group);
    for (tutti__request_t *r = bucket != NULL ? bucket->first : NULL; r != NULL; r = next) {
        next = r->next;
        if (r->is_zero)
            tutti__request_free(r);
    }
    free(bucket);
}

/* Several tensors are always packed. A lone tensor is packed if some ranks make zero contributions,
   which have no other memory, or if its scaled operand needs separate memory. */
int tutti__bucket_is_packed(const tutti__bucket_t *bucket)
{
    const tutti__call_t *call = &bucket->first->call;

    return bucket->nrequests > 1 || bucket->joined ||
           (call->prescale != 1 && tutti__call_reduces(call->kind) &&
            call->kind != TUTTI_CALL_ALLREDUCE);
}

/* Calls with blocks of different sizes (reduce_scatterv, allgatherv) run in host memory. Several
   tensors always fit the lane's memory. */
int tutti__bucket_fits_device(const tutti__bucket_t *bucket, const tutti__exec_device_t *device)
{
    const tutti__request_t *r = bucket->first;

    if (device == NULL || device->node == NULL || tutti__call_device_tag(&r->call) == 0 ||
        r->call.kind == TUTTI_CALL_REDUCE_SCATTERV || r->call.kind == TUTTI_CALL_ALLGATHERV)
        return 0;
    return bucket->nrequests > 1 || !tutti__bucket_is_packed(bucket) ||
           r->bytes <= device->fuse_bytes;
}
