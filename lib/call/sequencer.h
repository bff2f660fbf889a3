/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The launch sequencer before a run of scope ALL (sched.h). No rank of the job launches before all
 * ranks have reached the call, and all ranks launch such runs in one order. node/nccl/nccl.h proves
 * that this is sufficient.
 *
 *      COME     all ranks report to rank 0 that they have reached the call: a reduce of 8 bytes
 *      NUMBER   rank 0 gives the call its sequence number, and sends it to all ranks: a broadcast
 *               of 8 bytes
 *
 * Both steps run a schedule in host memory (device->sequencer), in the lane of the call. These
 * schedules are trees, whatever TUTTI_ALGORITHM selects for other calls. Then the run may start.
 */
#ifndef TUTTI__CALL_SEQUENCER_H
#define TUTTI__CALL_SEQUENCER_H

#include "exec/exec.h"

/* The state of one lane. */
typedef struct {
    uint64_t mine, all; /* COME: mine is 1; `all` is the sum over all ranks, at rank 0 */
    uint64_t sequence;  /* the call's sequence number; valid after NUMBER */
} tutti__sequencer_t;

/* Begin a step, TUTTI__SEQUENCER_COME or _NUMBER, in `run`. tag, signature: the call's. */
tutti_status_t tutti__sequencer_start(tutti__sequencer_t *sequencer, unsigned step,
                                      const tutti__exec_env_t *env, tutti__run_t *run, uint8_t tag,
                                      uint32_t signature);
/* After both steps: set the sequence number of the lane's next launch. */
void tutti__sequencer_pass(const tutti__sequencer_t *sequencer, const tutti__exec_env_t *env,
                           uint32_t lane);

#endif
