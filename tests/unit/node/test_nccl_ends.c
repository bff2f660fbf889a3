/* SPDX-License-Identifier: BSD-3-Clause */
/* Node operations by NCCL that do not complete: the operation is aborted or fails, or the node
   cannot be opened. */
#include "node/shm/shm.h"
#include "unit/node/test_nccl_world.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    LOOK_US = 20,
    LOOKS = 1000,        /* polls after which nothing is expected any more */
    MOST_LOOKS = 1000000 /* limit of polls for an expected event */
};

static void start_sum(uint32_t r, uint32_t lane, tutti__node_call_t *call)
{
    *call = (tutti__node_call_t){ .kind = TUTTI__NODE_ALLREDUCE,
                                  .dtype = TUTTI_FLOAT32,
                                  .op = TUTTI_SUM,
                                  .src = nccl_job.buffer[r][lane][0],
                                  .dst = nccl_job.buffer[r][lane][0],
                                  .map = { 4, 1, 4, NULL, NULL },
                                  .whole = 1,
                                  .nblk = 1,
                                  .nparts = 1 };
    nccl_job.node[r]->ops->start(nccl_job.node[r], lane, call);
}

static tutti_status_t step_for(uint32_t r, uint32_t lane, int looks)
{
    tutti_status_t status = TUTTI__AGAIN;
    tutti__hint_t hint;

    for (int i = 0; i < looks && status == TUTTI__AGAIN; i++) {
        status = nccl_job.node[r]->ops->step(nccl_job.node[r], lane, &hint);
        if (status == TUTTI__AGAIN)
            usleep(LOOK_US);
    }
    return status;
}

static tutti_status_t step_often(uint32_t r, uint32_t lane)
{
    return step_for(r, lane, LOOKS);
}

/* One rank does not make the call, and the work of the other ranks is already on their devices. */
static void test_abort(void **state)
{
    tutti__node_call_t call[3];
    uint32_t seq;

    (void)state;
    nccl_begin(3, 1);
    for (uint32_t r = 0; r < 3; r++)
        start_sum(r, 1, &call[r]);
    assert_int_equal(step_often(0, 1), TUTTI__AGAIN);
    assert_int_equal(step_often(1, 1), TUTTI__AGAIN);
    for (uint32_t r = 0; r < 3; r++) {
        tutti__nccl_node_abort(nccl_job.node[r]);
        tutti__nccl_node_abort(nccl_job.node[r]);
    }
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(step_often(r, 1), TUTTI_ERR_TRANSPORT);
        assert_non_null(strstr(tutti_last_error(), "aborted"));
        seq = ((tutti__shm_t *)nccl_job.host[r])->lane[1].seq;
        start_sum(r, 1, &call[r]);
        assert_int_equal(step_often(r, 1), TUTTI_ERR_TRANSPORT);
        /* The number of announced operations in lane 1 has not changed. */
        assert_int_equal(((tutti__shm_t *)nccl_job.host[r])->lane[1].seq, seq);
        assert_int_equal(watched_aborts(r), 1);
    }
    nccl_finish();
}

/* Add in two lanes until there is an error. */
static void *sum_on(void *arg)
{
    uint32_t r = *(uint32_t *)arg;
    tutti__node_call_t call[2];
    tutti_status_t status = TUTTI_OK;
    int running[2] = { 0, 0 };

    for (uint32_t i = r; status == TUTTI_OK || status == TUTTI__AGAIN; i++) {
        uint32_t lane = i % 2;
        tutti__hint_t hint;

        if (!running[lane])
            start_sum(r, lane, &call[lane]);
        status = nccl_job.node[r]->ops->step(nccl_job.node[r], lane, &hint);
        running[lane] = status == TUTTI__AGAIN;
        if (i % 16 == r)
            usleep(LOOK_US);
    }
    return status == TUTTI_ERR_TRANSPORT ? NULL : "not TRANSPORT";
}

static void *abort_all(void *arg)
{
    (void)arg;
    for (uint32_t r = 0; r < 3; r++)
        tutti__nccl_node_abort(nccl_job.node[r]);
    return NULL;
}

/* Two threads abort at once. */
static void test_abort_from_elsewhere(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed < 20; seed++) {
        pthread_t thread[3], other;
        uint32_t rank[3];
        void *wrong;

        nccl_begin(3, seed);
        for (uint32_t r = 0; r < 3; r++) {
            rank[r] = r;
            assert_int_equal(pthread_create(&thread[r], NULL, sum_on, &rank[r]), 0);
        }
        usleep(seed * 200);
        assert_int_equal(pthread_create(&other, NULL, abort_all, NULL), 0);
        abort_all(NULL);
        pthread_join(other, NULL);
        for (uint32_t r = 0; r < 3; r++) {
            pthread_join(thread[r], &wrong);
            assert_null(wrong);
            assert_int_equal(watched_aborts(r), 1);
        }
        nccl_finish();
    }
}

/* Every lane of the rank returns NCCL's error. */
static void test_nccl_fails(void **state)
{
    tutti__node_call_t call[2][2];
    tutti_status_t status = TUTTI__AGAIN;

    (void)state;
    nccl_begin(2, 1);
    watched_fail_call(1);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t lane = 0; lane < 2; lane++)
            start_sum(r, lane, &call[r][lane]);
    for (int i = 0; i < 3 && status == TUTTI__AGAIN; i++) {
        assert_int_equal(step_often(0, 0), TUTTI__AGAIN);
        status = step_often(1, 0);
    }
    assert_int_equal(status, TUTTI_ERR_TRANSPORT);
    assert_non_null(strstr(tutti_last_error(), "failed on rank 1"));
    tutti__fail(TUTTI_ERR_SYSTEM, "something else");
    assert_int_equal(step_often(1, 1), TUTTI_ERR_TRANSPORT);
    assert_non_null(strstr(tutti_last_error(), "failed on rank 1"));
    tutti__nccl_node_abort(nccl_job.node[0]);
    assert_int_equal(step_often(0, 0), TUTTI_ERR_TRANSPORT);
    nccl_finish();
    /* Rank 1 was aborted by close. */
    assert_int_equal(watched_aborts(1), 1);
}

/* Close does not wait for work in flight, but aborts it. */
static void test_close_in_flight(void **state)
{
    tutti__node_call_t call[2];

    (void)state;
    nccl_begin(2, 1);
    for (int r = 0; r < 2; r++) {
        pretend_hang(r, 0);
        start_sum((uint32_t)r, 0, &call[r]);
    }
    for (int i = 0; i < 3; i++)
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(step_often(r, 0), TUTTI__AGAIN);
    nccl_finish();
    assert_int_equal(watched_aborts(0), 1);
    assert_int_equal(watched_aborts(1), 1);
}

/* The operation does not use the caller's event after its end. */
static void test_event_is_given_back(void **state)
{
    tutti__node_call_t call;

    (void)state;
    nccl_begin(1, 1);
    tutti__nccl_node_ready(nccl_job.node[0], 0, nccl_job.event[0][0]);
    start_sum(0, 0, &call);
    assert_int_equal(step_for(0, 0, MOST_LOOKS), TUTTI_OK);
    assert_null(((tutti__nccl_node_t *)nccl_job.node[0])->lane[0].ready);
    nccl_finish();
}

/* Begin a job of two ranks, and open only one of them. */
static void begin_alone(void)
{
    memset(&nccl_job, 0, sizeof(nccl_job));
    nccl_job.n = 2;
    watched_begin(2, 1);
    assert_int_equal(watched_device()->nccl_id(&nccl_job.id), TUTTI_OK);
}

static void test_open_fails(void **state)
{
    /* One more than the number of resources that are made: a stream, five events, the events of
       overdue.c, the stage, and NCCL's communicator. */
    const int all = 9 + 2 * TUTTI__NCCL_OVERDUE;
    tutti_status_t status = TUTTI_ERR_NO_MEMORY;

    (void)state;
    for (int n = 1; n < all + 7 && status != TUTTI_OK; n++) {
        begin_alone();
        watched_fail_make(n);
        status = nccl_open_rank(1);
        if (status == TUTTI_OK) {
            assert_int_equal(n, all);
            nccl_job.node[1]->ops->close(nccl_job.node[1]);
        } else {
            assert_int_equal(status, TUTTI_ERR_NO_MEMORY);
            assert_non_null(strstr(tutti_last_error(), "the device is full"));
        }
        watched_end();
    }
    assert_int_equal(status, TUTTI_OK);
    begin_alone();
    memset(&nccl_job.id, 0, sizeof(nccl_job.id));
    assert_int_equal(nccl_open_rank(1), TUTTI_ERR_TRANSPORT);
    watched_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abort),      cmocka_unit_test(test_abort_from_elsewhere),
        cmocka_unit_test(test_nccl_fails), cmocka_unit_test(test_event_is_given_back),
        cmocka_unit_test(test_open_fails), cmocka_unit_test(test_close_in_flight),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
