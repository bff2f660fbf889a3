/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The launch sequencer before a flat run (sched.h). No rank of the job launches before all ranks
 * have reached the call, and all ranks launch such runs in one order. node/nccl/nccl.h proves that
 * this is sufficient.
 *
 *      COME   all ranks report to rank 0 that they have reached the call: a reduce of 8 bytes
 *      TURN   rank 0 gives the call its number, and sends it to all ranks: a broadcast of 8 bytes
 *
 * Both are ordinary schedules in host memory, device->gate, in the lane of the call. They are
 * trees, whatever TUTTI_ALGORITHM selects for other calls. Then the run may start, with
 * exec_call.turn = gate.turn. Direct calls: api/flat.c; asynchronous calls: flat.c.
 */
#ifndef TUTTI__ENGINE_FLAT_H
#define TUTTI__ENGINE_FLAT_H

#include "exec/exec.h"

/* One lane's. */
typedef struct {
    uint64_t mine, all; /* COME: 1, and at rank 0 the sum over all ranks */
    uint64_t turn;      /* the call's number; valid after TURN */
} tutti__gate_t;

/* The call of a step, for device->gate[step]. It must begin at once, because at rank 0
   this function assigns the number. tag, signature: of the flat call. `gate` lives until
   the step is over. */
tutti__exec_call_t tutti__gate_call(tutti__gate_t *gate, unsigned step,
                                    const tutti__exec_env_t *env, uint8_t tag, uint32_t signature);

#endif
