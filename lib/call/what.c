/* SPDX-License-Identifier: BSD-3-Clause */
/* The algorithm and the transport of an operation. See what.h. */
#include "call/what.h"

#include <assert.h>

/* The schedule that has moved the data; NULL: there was none. */
static const tutti__sched_t *sched_of(const tutti__operation_t *op, const tutti__call_t *call)
{
    return call->on_device && !op->is_staged && op->sched != NULL ? op->sched : op->run_sched;
}

/* The transport to other hosts, if the schedule has messages to other hosts; NULL: it has none.
   Ranks of pretended hosts on one machine use shared memory. */
static const tutti__xport_t *far_of(const tutti__operation_t *op, const tutti__sched_t *sched)
{
    for (uint32_t i = 0; op->far != NULL && i < sched->nchans; i++) {
        const tutti__xport_t *xport = op->env->exec->xport[sched->chans[i].peer];

        if (xport->ops->progress != NULL)
            return xport;
    }
    return NULL;
}

/* The transport of an operation without a schedule: a direct message, or data in the comparison. */
static const char *other_transport(const tutti__operation_t *op, const tutti__call_t *call)
{
    const tutti__exec_env_t *exec = op->env->exec;

    if (tutti__call_is_message(call->kind) && call->root != exec->rank)
        return exec->xport[call->root]->ops->name;
    return op->has_far && op->far != NULL ? op->far->ops->name : "shm";
}

tutti__stats_what_t tutti__operation_what(const tutti__operation_t *op, const tutti__call_t *call,
                                          int is_async)
{
    const tutti__sched_t *sched = sched_of(op, call);
    tutti__stats_what_t what = { call->kind, is_async, "none", "shm" };
    const tutti__xport_t *far;

    assert(op->at == TUTTI__AT_END);
    if (sched != NULL) {
        far = far_of(op, sched);
        what.algorithm = sched->name;
        if (far != NULL)
            what.transport = far->ops->name;
        else if (sched != op->run_sched)
            what.transport = "nccl";
    } else {
        if (op->has_compared && op->compare.is_done)
            what.algorithm = "ride";
        else if (tutti__call_is_message(call->kind))
            what.algorithm = "message";
        what.transport = other_transport(op, call);
    }
    if (op->env->exec->size == 1)
        what.transport = "none";
    return what;
}
