/* SPDX-License-Identifier: BSD-3-Clause */
/* The launch sequencer before runs of scope ALL. See sequencer.h. */
#include "call/sequencer.h"

#include <assert.h>

tutti_status_t tutti__sequencer_start(tutti__sequencer_t *sequencer, unsigned step,
                                      const tutti__exec_env_t *env, tutti__run_t *run, uint8_t tag,
                                      uint32_t signature)
{
    tutti__node_t *node = env->device->all_node;
    int is_number = step == TUTTI__SEQUENCER_NUMBER;
    tutti__exec_call_t exec;

    sequencer->mine = 1;
    if (is_number && env->rank == 0) {
        assert(sequencer->all == env->size);
        sequencer->sequence = env->device->sequencer_ops->next(node);
    }
    exec = (tutti__exec_call_t){
        .in = is_number ? &sequencer->sequence : &sequencer->mine,
        .out = is_number ? &sequencer->sequence : &sequencer->all,
        .count = 1,
        .dtype = TUTTI_UINT64,
        .op = TUTTI_SUM,
        .tag = tag,
        .signature = signature ^ (is_number ? 0x55555555u : 0xaaaaaaaau),
    };
    return tutti__run_start(run, env->device->sequencer[step], &exec);
}

void tutti__sequencer_pass(const tutti__sequencer_t *sequencer, const tutti__exec_env_t *env,
                           uint32_t lane)
{
    tutti__node_t *node = env->device->all_node;

    assert(node != NULL && lane < TUTTI__DEVICE_LANES);
    env->device->sequencer_ops->set(node, lane, sequencer->sequence);
}
