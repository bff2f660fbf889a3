/* SPDX-License-Identifier: BSD-3-Clause */
/* A bucket: tensors that one call serves. Callers own the token. */
#ifndef TUTTI__ENGINE_BUCKET_H
#define TUTTI__ENGINE_BUCKET_H

#include "engine/request.h"

#include <assert.h>

/* The buckets of one planned submission group, if there are several. If some of these buckets
   return to agreement, their calls return together when the last bucket leaves its lane. */
typedef struct {
    uint32_t uses; /* buckets in lanes, and the caller that adds them */
    /* The calls that will return to agreement, in the order of the group. Until then they count as
       agreed. */
    tutti__request_t *first, *last;
} tutti__bucket_group_t;

typedef struct tutti__bucket tutti__bucket_t;
struct tutti__bucket {
    uint32_t number;
    uint32_t nrequests;           /* 0: this rank has no request in the bucket */
    uint32_t plan;                /* number of the bucket's plan; 0: none */
    int is_tight;                 /* packed without gaps; see tutti__planned_t */
    int counts;                   /* 1: the ranks exchange the counts first */
    uint32_t on_device;           /* 1: its tensors are device memory */
    int joined;                   /* some ranks have joined, and make zero contributions */
    tutti__bucket_group_t *group; /* NULL: no group, or a group of one bucket */
    tutti__request_t *first, *last;
    tutti__bucket_t *next;   /* in its lane, or in the list of pending completions */
    tutti__devent_t *landed; /* pending completion: the event recorded behind its work */
    uint64_t since_ns;       /* start of the pending completion */
};

static inline void tutti__bucket_add(tutti__bucket_t *bucket, tutti__request_t *request)
{
    assert(!request->agreed && request->done == TUTTI__NOT_DONE);
    request->agreed = 1;
    tutti__request_append(&bucket->first, &bucket->last, request);
    bucket->nrequests++;
    bucket->on_device = request->call.on_device != 0;
}

/* Append a bucket to the list from *first to *last. */
static inline void tutti__bucket_append(tutti__bucket_t **first, tutti__bucket_t **last,
                                        tutti__bucket_t *bucket)
{
    bucket->next = NULL;
    *(*last != NULL ? &(*last)->next : first) = bucket;
    *last = bucket;
}

/* Drop one use of a group. The last use frees the group. NULL is allowed. */
void tutti__bucket_group_drop(tutti__bucket_group_t *group);
/* Free a bucket and its zero contributions, but no other requests. NULL is allowed. */
void tutti__bucket_free(tutti__bucket_t *bucket);
/* Is the bucket served in memory of the lane, and not in the caller's buffers? */
int tutti__bucket_is_packed(const tutti__bucket_t *bucket);
/* Can all ranks serve the bucket in device memory? device NULL: there is no device. */
int tutti__bucket_fits_device(const tutti__bucket_t *bucket, const tutti__exec_device_t *device);

/* Estimated cost of a step with the bucket, in bytes. The cost of a bucket in device memory is 0,
   because the host only starts its work. */
static inline size_t tutti__bucket_bytes(const tutti__bucket_t *bucket)
{
    size_t total = 0;

    for (const tutti__request_t *r = bucket->first; r != NULL && !bucket->on_device; r = r->next)
        total += r->bytes;
    return total;
}

#endif
