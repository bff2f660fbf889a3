/* SPDX-License-Identifier: BSD-3-Clause */
/* Several tensors as one call, in a lane's memory. See fuse.c. */
#ifndef TUTTI__ENGINE_FUSE_H
#define TUTTI__ENGINE_FUSE_H

#include "engine/lanes.h"

/* Lay out the lane's first bucket. *ret_call: lane->call on packed memory, to serve the bucket. */
tutti_status_t tutti__fuse_call(tutti__lane_t *lane, tutti__call_t *ret_call);
/* The same for the caller's buffers, without packing. Returns 0 unless the buffers are in shared
   memory, and the tensors follow each other there as in the packed bucket. */
int tutti__fuse_call_in_place(const tutti__lane_t *lane, tutti__call_t *ret_call);
/* Can a bucket with this request be served in the caller's buffers? The request must be an
   allreduce in place, without factors. */
static inline int tutti__fuse_can_join(const tutti__request_t *r)
{
    return r->call.kind == TUTTI_CALL_ALLREDUCE && r->call.sendbuf == r->call.recvbuf &&
           r->call.prescale == 1 && r->call.postscale == 1;
}
/* Functions that pack and unpack a lane's first bucket. Their argument `owner` is the lane. */
extern const tutti__packing_t tutti__fuse_packing;

#endif
