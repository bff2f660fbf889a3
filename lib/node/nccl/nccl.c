/* SPDX-License-Identifier: BSD-3-Clause */
/* Node operations by NCCL: starting and stepping, through the phases of nccl.h. */
#include "node/nccl/nccl.h"

#include "base/names.h"

#include <assert.h>
#include <sched.h>

static void start(tutti__node_t *node, uint32_t lane_index, const tutti__node_call_t *call)
{
    tutti__nccl_node_t *self = (tutti__nccl_node_t *)node;
    tutti__nccl_lane_t *lane = &self->lane[lane_index];

    assert(lane->phase == NCCL_IDLE);
    lane->call = call;
    lane->phase = NCCL_MEET;
    /* A dead node may have left `host` inside a meeting, so start no other meeting. step reports
       the error. */
    if (tutti__nccl_alive(self) != TUTTI_OK)
        return;
    if (call->kind != TUTTI__NODE_MEET) {
        lane->meet = (tutti__node_call_t){ .kind = TUTTI__NODE_MEET,
                                           .dtype = call->dtype,
                                           .op = call->op,
                                           .tag = call->tag | TUTTI__TAG_ON_DEVICE,
                                           .root = call->root,
                                           .map = { .count = call->map.count } };
        call = &lane->meet;
    }
    self->host->ops->start(self->host, lane_index, call);
}

static tutti_status_t meet(tutti__nccl_node_t *self, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__nccl_lane_t *lane = &self->lane[lane_index];
    const tutti__node_call_t *call = lane->call;
    tutti_status_t status = self->host->ops->step(self->host, lane_index, hint);
    tutti__nccl_cut_t cut;

    if (status != TUTTI_OK || call->kind == TUTTI__NODE_MEET)
        return status;
    if (!tutti__nccl_cut_begin(self, call, &cut))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "NCCL does not serve %s of %s; use host memory for this call",
                           tutti__op_name(call->op), tutti__dtype_name(call->dtype));
    lane->phase = NCCL_ORDER;
    return TUTTI_OK;
}

/* ---- one thread at a time: inside the gate ---- */

static tutti_status_t begin_launch(tutti__nccl_node_t *self, uint32_t lane_index,
                                   tutti__hint_t *hint)
{
    tutti__nccl_lane_t *lane = &self->lane[lane_index];
    tutti_status_t status = TUTTI_OK;

    static_assert(TUTTI__NCCL_RING > TUTTI__DEVICE_LANES, "see nccl.h");
    if (!tutti__nccl_is_next(self, lane_index, hint))
        return TUTTI__AGAIN;
    self->launching = 1;
    tutti__nccl_cut_begin(self, lane->call, &self->cut);
    lane->phase = NCCL_LAUNCH;
    if (lane->ready != NULL)
        status = self->ops->wait(self->stream, lane->ready);
    return status == TUTTI_OK ? tutti__nccl_overdue_begin(self, lane->call) : status;
}

/* Queue the calls that self->cut has produced. */
static tutti_status_t queue_calls(tutti__nccl_node_t *self)
{
    tutti_status_t status = TUTTI_OK;

    if (self->npieces > 0)
        status =
            self->ops->pack(self->pieces, self->npieces, TUTTI_UINT8, TUTTI_UINT8, 1, self->stream);
    if (status == TUTTI_OK && self->ncalls > 0)
        status = self->ops->nccl_call(self->nccl, self->calls, self->ncalls, self->stream);
    return status;
}

/* Has NCCL accepted the last calls? Some versions of NCCL bind the calling thread until the calls
   are accepted; with these versions this function waits. An abort ends the wait, because some rank
   may never make the call. */
static tutti_status_t accepted(tutti__nccl_node_t *self)
{
    tutti_status_t status = self->ops->nccl_poll(self->nccl);

    while (status == TUTTI__AGAIN && self->ops->nccl_binds() &&
           tutti__nccl_alive(self) == TUTTI_OK) {
        sched_yield();
        status = self->ops->nccl_poll(self->nccl);
    }
    return status;
}

/* Queue all of the operation's calls. Work behind NCCL's calls is queued only after NCCL has
   accepted them. */
static tutti_status_t launch(tutti__nccl_node_t *self, tutti__nccl_lane_t *lane)
{
    tutti_status_t status;

    for (;;) {
        status = accepted(self);
        if (status != TUTTI_OK)
            return status;
        if (!tutti__nccl_cut_next(self, &self->cut))
            break;
        status = queue_calls(self);
        if (status != TUTTI_OK)
            return status;
    }
    status = tutti__nccl_divide(self, &self->cut);
    if (status == TUTTI_OK)
        status = self->ops->record(lane->done, self->stream);
    if (status == TUTTI_OK)
        status = tutti__nccl_overdue_end(self);
    if (status == TUTTI_OK && lane->call->queued)
        status = self->ops->wait(lane->call->then, lane->done);
    if (status != TUTTI_OK)
        return status;
    /* Release pairs with the acquire in launch_order.c: a thread that reads this number launches
       after this operation. */
    tutti__store64_release(&self->number, tutti__load64_acquire(&self->number) + 1);
    self->launching = 0;
    lane->phase = NCCL_FLIGHT;
    return TUTTI_OK;
}

/* Is the operation complete? After an error of NCCL the operation never completes, and only
   nccl_poll reports the error. */
static tutti_status_t land(tutti__nccl_node_t *self, const tutti__nccl_lane_t *lane)
{
    tutti_status_t status = self->ops->query(lane->done), nccl;

    if (status != TUTTI__AGAIN)
        return status;
    nccl = self->ops->nccl_poll(self->nccl);
    return nccl == TUTTI_OK ? TUTTI__AGAIN : nccl;
}

static tutti_status_t work(tutti__nccl_node_t *self, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__nccl_lane_t *lane = &self->lane[lane_index];
    tutti_status_t status = self->ops->use(self->device);

    if (status == TUTTI_OK && lane->phase == NCCL_ORDER)
        status = begin_launch(self, lane_index, hint);
    if (status == TUTTI_OK && lane->phase == NCCL_LAUNCH)
        status = launch(self, lane);
    if (status == TUTTI_OK && lane->phase == NCCL_FLIGHT && !lane->call->queued)
        status = land(self, lane);
    return status;
}

static tutti_status_t advance(tutti__nccl_node_t *self, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__nccl_lane_t *lane = &self->lane[lane_index];
    tutti_status_t status = tutti__nccl_alive(self);

    if (status == TUTTI_OK && lane->phase == NCCL_MEET)
        status = meet(self, lane_index, hint);
    if (status != TUTTI_OK || lane->phase == NCCL_MEET)
        return status;
    hint->word = NULL; /* a device has no doorbell: poll */
    hint->peer = -1;
    if (!tutti__nccl_enter(self))
        return TUTTI__AGAIN;
    return tutti__nccl_leave(self, work(self, lane_index, hint));
}

static tutti_status_t step(tutti__node_t *node, uint32_t lane_index, tutti__hint_t *hint)
{
    tutti__nccl_node_t *self = (tutti__nccl_node_t *)node;
    tutti__nccl_lane_t *lane = &self->lane[lane_index];
    int moves = lane->call->kind != TUTTI__NODE_MEET;
    tutti_status_t status = advance(self, lane_index, hint);

    if (status == TUTTI__AGAIN)
        return status;
    lane->phase = NCCL_IDLE;
    if (moves) {
        lane->ready = NULL;
        lane->sequence = 0;
    }
    return status;
}

const tutti__node_ops_t tutti__nccl_ops = {
    .name = "nccl",
    .purpose = "device memory: NCCL among the host's ranks, in one order for all lanes",
    .close = tutti__nccl_close,
    .start = start,
    .step = step,
};

const tutti__node_device_ops_t tutti__nccl_device_ops = {
    .ready = tutti__nccl_node_ready,
    .serves = tutti__nccl_node_serves,
    .settle = tutti__nccl_node_settle,
    .queued = tutti__nccl_node_queued,
    .overdue = tutti__nccl_node_overdue,
    .begin_abort = tutti__nccl_node_begin_abort,
    .end_abort = tutti__nccl_node_end_abort,
};
