/* SPDX-License-Identifier: BSD-3-Clause */
/* Direct calls with flat schedules, which first pass the launch sequencer. See engine/flat.h. */
#include "api/direct.h"

#include "engine/flat.h"

static tutti_status_t pass_gate(tutti__comm_t *comm, const tutti__call_t *call,
                                tutti__exec_call_t *exec)
{
    uint32_t signature = tutti__call_signature(call, exec, comm->shape.size);
    tutti__gate_t gate = { .turn = 0 };
    tutti_status_t status = TUTTI_OK;

    for (unsigned step = 0; step < TUTTI__GATE_STEPS && status == TUTTI_OK; step++) {
        tutti__exec_call_t own = tutti__gate_call(&gate, step, &comm->exec, exec->tag, signature);

        status = tutti__comm_run(comm, comm->device.gate[step], &own, 0);
    }
    exec->turn = gate.turn;
    return status;
}

tutti_status_t tutti__flat_run(tutti__comm_t *comm, const tutti__call_t *call,
                               const tutti__sched_t *sched, tutti__exec_call_t *exec)
{
    tutti_status_t status = pass_gate(comm, call, exec);

    if (status != TUTTI_OK)
        return status;
    status = tutti__comm_run(comm, sched, exec, 0);
    /* An assigned turn that is not launched blocks all later launches. */
    if (status == TUTTI_ERR_UNSUPPORTED || status == TUTTI_ERR_MISMATCH)
        return tutti__comm_end_badly(comm, status);
    return status;
}
