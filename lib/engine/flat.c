/* SPDX-License-Identifier: BSD-3-Clause */
/* The launch sequencer before flat runs, and how a lane of the engine passes it. See flat.h. */
#include "engine/flat.h"

#include "base/hash.h"
#include "engine/state.h"
#include "node/nccl/nccl.h"

#include <assert.h>

tutti__exec_call_t tutti__gate_call(tutti__gate_t *gate, unsigned step,
                                    const tutti__exec_env_t *env, uint8_t tag, uint32_t signature)
{
    int is_turn = step == TUTTI__GATE_TURN;

    gate->mine = 1;
    if (is_turn && env->rank == 0) {
        assert(gate->all == env->size);
        gate->turn = tutti__nccl_node_next_turn(env->device->flat);
    }
    return (tutti__exec_call_t){
        .in = is_turn ? &gate->turn : &gate->mine,
        .out = is_turn ? &gate->turn : &gate->all,
        .count = 1,
        .dtype = TUTTI_UINT64,
        .op = TUTTI_SUM,
        .tag = tag,
        .signature = signature ^ (is_turn ? 0x55555555u : 0xaaaaaaaau),
    };
}

int tutti__flat_serves(const tutti__engine_t *e, const tutti__call_t *call,
                       const tutti__sched_t *sched)
{
    return !sched->flat || tutti__nccl_node_serves(e->env.exec->device->flat, 1, call->dtype,
                                                   call->op, call->op == TUTTI_AVG ? e->size : 0);
}

/* Begin the step if this thread may drive it; otherwise another thread will. */
static tutti_status_t begin(tutti__engine_t *e, tutti__lane_t *lane, unsigned step,
                            tutti__who_t who)
{
    const tutti__sched_t *sched = e->env.exec->device->gate[step];
    uint32_t signature = (uint32_t)tutti__hash(&lane->first->number, sizeof(uint32_t));
    tutti__exec_call_t exec;

    if (tutti__lanes_forbidden(e, sched, who))
        return TUTTI__AGAIN;
    exec = tutti__gate_call(&lane->gate, step, e->env.exec, TUTTI__TAG_BUCKET, signature);
    return tutti__run_start(&lane->run, sched, &exec);
}

tutti_status_t tutti__flat_step(tutti__engine_t *e, tutti__lane_t *lane, tutti__who_t who)
{
    int is_turn = lane->phase == TUTTI__DEVICE_TURN;
    unsigned step = is_turn ? TUTTI__GATE_TURN : TUTTI__GATE_COME;
    tutti_status_t status = TUTTI_OK;

    if (lane->run.sched == NULL)
        status = begin(e, lane, step, who);
    else if (tutti__lanes_forbidden(e, lane->run.sched, who))
        return TUTTI__AGAIN;
    if (status == TUTTI_OK)
        status = tutti__lanes_step_run(e, lane);
    if (status != TUTTI_OK)
        return status;
    lane->phase = is_turn ? TUTTI__DEVICE_RUN : TUTTI__DEVICE_TURN;
    if (!is_turn)
        return TUTTI_OK;
    lane->exec.turn = lane->gate.turn;
    return tutti__lanes_run(lane, lane->sched);
}
