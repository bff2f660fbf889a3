/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests: the ranks of one host with nodes by NCCL, over the pretend device; device r
   is rank r's. */
#ifndef TESTS_UNIT_NODE_TEST_NCCL_WORLD_H
#define TESTS_UNIT_NODE_TEST_NCCL_WORLD_H

#include "node/nccl/nccl.h"
#include "unit/node/watched.h"
#include "unit/node/world.h"

#define NCCL_RANKS 5
#define NCCL_BUFFERS 3
#define NCCL_BUFFER_BYTES ((size_t)65536)

/* There is one job at a time. */
typedef struct {
    uint32_t n;
    world_t world;
    tutti__nccl_order_t order;
    tutti__nccl_id_t id;
    tutti__node_t *host[NCCL_RANKS], *node[NCCL_RANKS];
    /* the callers' */
    tutti__dstream_t *stream[NCCL_RANKS][TUTTI__DEVICE_LANES];
    tutti__devent_t *event[NCCL_RANKS][TUTTI__DEVICE_LANES];
    char *buffer[NCCL_RANKS][TUTTI__DEVICE_LANES][NCCL_BUFFERS]; /* device memory, zeroed */
} nccl_job_t;

extern nccl_job_t nccl_job;

/* Connect n ranks. After this call no stream, event or memory of the device is made. seed: see
   watched_begin. */
void nccl_begin(uint32_t n, uint32_t seed);
/* Fails the running test if the device was misused. */
void nccl_finish(void);

/* Open only rank r's node, with the existing id. */
tutti_status_t nccl_open_rank(uint32_t r);

#endif
