/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gate before a flat run (sched.h): no rank of the job launches before all have come, and all
 * launch such runs in one order. Why, and that this is enough: node/nccl/nccl.h.
 *
 *      COME   everybody tells rank 0 that it has come: a reduce of 8 bytes
 *      TURN   rank 0 gives the call its number, and tells all: a broadcast of 8 bytes
 *
 * Both are ordinary schedules in host memory, device->gate, in the lane of the call; they are
 * trees, whatever TUTTI_ALGORITHM says of others. Then the run may start, with exec_call.turn =
 * gate.turn. Direct calls: api/flat.c; asynchronous ones: flat.c.
 */
#ifndef TUTTI__ENGINE_FLAT_H
#define TUTTI__ENGINE_FLAT_H

#include "exec/exec.h"

/* A lane's. */
typedef struct {
    uint64_t mine, all; /* COME: 1, and at rank 0 their sum */
    uint64_t turn;      /* known when TURN is over */
} tutti__gate_t;

/* A step's call, for device->gate[step]; to be begun at once, since rank 0 gives a turn by that.
   tag, signature: of the call behind the gate. `gate` lives until the step is over. */
tutti__exec_call_t tutti__gate_call(tutti__gate_t *gate, unsigned step,
                                    const tutti__exec_env_t *env, uint8_t tag, uint32_t signature);

#endif
