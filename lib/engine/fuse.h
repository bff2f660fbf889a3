/* SPDX-License-Identifier: BSD-3-Clause */
/* Several tensors as one call, in a lane's memory. See fuse.c. */
#ifndef TUTTI__ENGINE_FUSE_H
#define TUTTI__ENGINE_FUSE_H

#include "engine/lanes.h"

/* Lay out the lane's first bucket, and make the call that serves it of lane->call. */
tutti_status_t tutti__fuse_call(tutti__lane_t *lane, tutti__call_t *ret_call);
/* The same on the caller's buffers, if they are shared memory, and the tensors of the bucket follow
   each other there as in the packed bucket. 0: it must be packed. */
int tutti__fuse_call_in_place(const tutti__lane_t *lane, tutti__call_t *ret_call);
/* Can the request's buffer be a part of such a bucket? It must be an allreduce in place, without
   factors. */
static inline int tutti__fuse_can_join(const tutti__request_t *r)
{
    return r->call.kind == TUTTI_CALL_ALLREDUCE && r->call.sendbuf == r->call.recvbuf &&
           r->call.prescale == 1 && r->call.postscale == 1;
}
/* Its owner is the lane. */
extern const tutti__packing_t tutti__fuse_packing;

#endif
