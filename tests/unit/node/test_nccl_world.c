/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of one host with nodes by NCCL. See test_nccl_world.h. */
#include "unit/node/test_nccl_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define STAGE_BYTES (64 * NCCL_RANKS) /* alltoalls take many rounds */

nccl_job_t nccl_job;

tutti_status_t nccl_open_rank(uint32_t r)
{
    tutti__nccl_open_t with = { .ops = watched_device(),
                                .device = (int)r,
                                .me = r,
                                .nlocal = nccl_job.n,
                                .host = nccl_job.host[r],
                                .order = &nccl_job.order,
                                .id = &nccl_job.id,
                                .stage_bytes = STAGE_BYTES };

    return tutti__nccl_node_open(&with, &nccl_job.node[r]);
}

/* Resources of rank r's callers. Opening has selected its device. */
static void make_callers(uint32_t r)
{
    const tutti__device_ops_t *ops = watched_device();
    void *ptr;

    for (int i = 0; i < TUTTI__DEVICE_LANES; i++) {
        assert_int_equal(ops->stream_make(0, &nccl_job.stream[r][i]), TUTTI_OK);
        assert_int_equal(ops->event_make(&nccl_job.event[r][i]), TUTTI_OK);
        for (int b = 0; b < NCCL_BUFFERS; b++) {
            assert_int_equal(ops->alloc(NCCL_BUFFER_BYTES, &ptr), TUTTI_OK);
            nccl_job.buffer[r][i][b] = ptr;
        }
    }
}

static void drop_callers(uint32_t r)
{
    const tutti__device_ops_t *ops = watched_device();

    for (int i = 0; i < TUTTI__DEVICE_LANES; i++) {
        ops->stream_drop(nccl_job.stream[r][i]);
        ops->event_drop(nccl_job.event[r][i]);
        for (int b = 0; b < NCCL_BUFFERS; b++)
            ops->free(nccl_job.buffer[r][i][b]);
    }
}

void nccl_begin(uint32_t n, uint32_t seed)
{
    memset(&nccl_job, 0, sizeof(nccl_job));
    nccl_job.n = n;
    world_open(&nccl_job.world, n, NULL);
    watched_begin(n, seed);
    assert_int_equal(watched_device()->nccl_id(&nccl_job.id), TUTTI_OK);
    for (uint32_t r = 0; r < n; r++) {
        nccl_job.host[r] = world_node(&nccl_job.world, r);
        assert_int_equal(nccl_open_rank(r), TUTTI_OK);
        make_callers(r);
    }
    for (uint32_t r = 0; r < n; r++)
        while (tutti__nccl_node_settle(nccl_job.node[r]) == TUTTI__AGAIN)
            ;
    pretend_forbid_alloc(1);
}

void nccl_finish(void)
{
    pretend_forbid_alloc(0);
    for (uint32_t r = 0; r < nccl_job.n; r++) {
        nccl_job.node[r]->ops->close(nccl_job.node[r]);
        drop_callers(r);
        nccl_job.host[r]->ops->close(nccl_job.host[r]);
    }
    watched_end();
    world_close(&nccl_job.world);
}
