/* SPDX-License-Identifier: BSD-3-Clause */
/* The launch sequencer before runs of scope ALL. See sequencer.h. */
#include "call/sequencer.h"

#include <assert.h>

tutti_status_t tutti__sequencer_start(tutti__sequencer_t *sequencer, unsigned step,
                                      const tutti__exec_env_t *env, tutti__run_t *run, uint8_t tag,
                                      uint32_t signature)
{
    tutti__node_t *node = env->device->all_node;
    int is_turn = step == TUTTI__GATE_TURN;
    tutti__exec_call_t exec;

    sequencer->mine = 1;
    if (is_turn && env->rank == 0) {
        assert(sequencer->all == env->size);
        sequencer->turn = node->device_ops->next_turn(node);
    }
    exec = (tutti__exec_call_t){
        .in = is_turn ? &sequencer->turn : &sequencer->mine,
        .out = is_turn ? &sequencer->turn : &sequencer->all,
        .count = 1,
        .dtype = TUTTI_UINT64,
        .op = TUTTI_SUM,
        .tag = tag,
        .signature = signature ^ (is_turn ? 0x55555555u : 0xaaaaaaaau),
    };
    return tutti__run_start(run, env->device->gate[step], &exec);
}

void tutti__sequencer_pass(const tutti__sequencer_t *sequencer, const tutti__exec_env_t *env,
                           uint32_t lane)
{
    tutti__node_t *node = env->device->all_node;

    assert(node != NULL && lane < TUTTI__DEVICE_LANES);
    node->device_ops->turn(node, lane, sequencer->turn);
}
