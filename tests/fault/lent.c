/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ranks repeat a zero-copy allreduce. The communicator ends while rank 0 waits in its call.
 * After rank 0's call has failed, rank 1 must not write to rank 0's buffer. This is tested for each
 * status with which the communicator can end.
 */
#include "fault/fault.h"

#include <unistd.h>

enum {
    COUNT = 1 << 18,
    OTHER = 5
};

/* Values of board->ready, in this order. */
enum {
    ANNOUNCED = 1, /* rank 1 has started its call */
    FAILED,        /* rank 0's call has failed, and its program uses the buffer for other data */
    STEPPED        /* rank 1 has continued its call */
};

static void await(int stage)
{
    while (atomic_load(&board->ready) < stage)
        usleep(1000);
}

static void fill(float *x, float value)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = value;
}

static void waiting_rank(rank_t *self, float *x, tutti_status_t end)
{
    await(ANNOUNCED);
    CHECK_STATUS(tutti_allreduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm), end);
    fill(x, OTHER);
    atomic_store(&board->ready, FAILED);
    await(STEPPED);
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(x[i], OTHER);
}

/* Runs the node operation's steps itself: a call might detect the end before its first step. */
static void late_rank(rank_t *self, const float *x, tutti_status_t end)
{
    tutti__cached_t *cached = &tutti__comm_state(self->inside)->cached;
    tutti__node_t *node = self->inside->node;
    tutti__hint_t hint = { NULL, 0, -1 };

    CHECK_STATUS(tutti__cached_start(cached, &cached->call, node, 1, &hint), TUTTI__AGAIN);
    atomic_store(&board->ready, ANNOUNCED);
    /* When rank 0's sums have arrived here, rank 0 has done its part. Then it waits for this
       rank. */
    while (*(const volatile float *)x != 2)
        usleep(1000);
    (void)tutti__watch_end(self->inside->watch, end, "the test");
    await(FAILED);
    (void)node->ops->step(node, 0, &hint);
    atomic_store(&board->ready, STEPPED);
    node->ops->cancel(node, 0);
}

static void lends(rank_t *self)
{
    const tutti_status_t *end = self->arg;
    void *memory;

    CHECK_OK(tutti_mem_alloc(self->comm, COUNT * sizeof(float), &memory));
    for (int i = 0; i < 3; i++)
        CHECK_OK(tutti_allreduce(memory, memory, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK(tutti__comm_state(self->inside)->cached.is_same);
    fill(memory, 1);
    if (self->rank == 0)
        waiting_rank(self, memory, *end);
    else
        late_rank(self, memory, *end);
}

int main(void)
{
    tutti_status_t ends[] = { TUTTI_ERR_NO_MEMORY, TUTTI_ERR_MISMATCH, TUTTI_ERR_PEER_LOST };
    int failures = 0;

    if (!ranks_can_fork()) {
        fprintf(stderr, "ranks must be processes\n");
        return 77;
    }
    board_open();
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        job_t job = { .size = 2, .fn = lends, .arg = &ends[i] };

        board_clear();
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
