/* SPDX-License-Identifier: BSD-3-Clause */
/* Several tensors as one call, in a lane's memory. See fuse.c. */
#ifndef TUTTI__ENGINE_FUSE_H
#define TUTTI__ENGINE_FUSE_H

#include "engine/lanes.h"

/* Lay out the lane's first bucket, and make the call that serves it of lane->call. */
tutti_status_t tutti__fuse_call(tutti__lane_t *lane, tutti__call_t *ret_call);
/* Its owner is the lane. */
extern const tutti__packing_t tutti__fuse_packing;

#endif
