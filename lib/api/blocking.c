/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct calls: check the arguments, and run the communicator's operation on this thread.
 *
 * Mismatches. A node operation (node/node.h) is an operation of all ranks of a host. Node
 * operations, and schedules without them, begin with a meeting of these ranks. In the meeting the
 * ranks compare their calls before data moves, so all ranks find a mismatch, and the communicator
 * stays usable. Between hosts, and between two ranks, the ranks first compare their arguments by
 * messages (call/compare_calls.h, call/pairs.c). With TUTTI_COMPARE=0 they omit these messages. In
 * this case a mismatch is found while data moves, and ends the communicator.
 */
#include "api/blocking.h"

#include "api/arguments.h"
#include "api/comm_state.h"
#include "base/constants.h"
#include "base/status.h"
#include "call/what.h"
#include "stats/add.h"

#include <assert.h>

/* Begin a direct call. call: NULL for an internal call of the library. */
static tutti_status_t enter(tutti__comm_t *comm, const tutti__call_t *call)
{
    tutti__comm_state_t *state = tutti__comm_state(comm);
    tutti_status_t status = tutti__watch_alive(comm->watch);

    if (TUTTI__UNLIKELY(status != TUTTI_OK)) {
        /* After this error the program may exit: first send the reason to the peers. */
        tutti__engine_settle(comm->engine);
        return tutti__watch_alive(comm->watch);
    }
    if (atomic_exchange_explicit(&state->busy, 1, memory_order_acquire))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "another thread is in a direct call on this communicator");
    assert(state->op.at == TUTTI__AT_END); /* the previous call has ended */
    state->running.call = call;
    return TUTTI_OK;
}

static tutti_status_t leave(tutti__comm_t *comm, tutti_status_t status)
{
    tutti__comm_state_t *state = tutti__comm_state(comm);

    /* The call has ended or cancelled its operation, also after an error. */
    assert(atomic_load(&state->busy) && state->op.at == TUTTI__AT_END);
    if (TUTTI__UNLIKELY(status != TUTTI_OK) && !tutti__watch_has_ended(comm->watch))
        tutti__run_name_group(&state->running, status);
    atomic_store_explicit(&state->busy, 0, memory_order_release);
    return status;
}

/* Continue the operation to its end, after a start that returned `status`. */
static inline tutti_status_t run(tutti__comm_t *comm, tutti_status_t status)
{
    tutti__comm_state_t *state = tutti__comm_state(comm);
    tutti__operation_t *op = &state->op;

    if (TUTTI__LIKELY(status == TUTTI_OK))
        status = tutti__operation_step(op);
    if (status == TUTTI__AGAIN)
        status = tutti__run_await(comm->engine, &state->running, op, NULL, &op->hint);
    return TUTTI__LIKELY(status == TUTTI_OK)
               ? status
               : tutti__run_fail(comm->engine, &state->running, op, status);
}

/* Continue a call in cached form to its end, after a first step that returned `status`. */
static tutti_status_t finish_cached(tutti__comm_t *comm, tutti__cached_t *cached,
                                    const tutti__hint_t *hint, tutti_status_t status)
{
    tutti__comm_state_t *state = tutti__comm_state(comm);

    if (status == TUTTI__AGAIN) {
        state->running.cached_tag = cached->node.tag;
        status = tutti__run_await(comm->engine, &state->running, &state->op, comm->node, hint);
    }
    if (status == TUTTI_OK) {
        tutti__stats_count(cached->entry, cached->bytes);
        return status;
    }
    /* All ranks find these errors of a node operation. If the communicator has ended, its end may
       be the cause of the error: tutti__run_fail checks this first. */
    state->op.is_common = status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_NO_MEMORY;
    return tutti__run_fail(comm->engine, &state->running, &state->op, status);
}

static inline tutti_status_t make_cached(tutti__comm_t *comm, tutti__cached_t *cached,
                                         const tutti__call_t *call)
{
    tutti__comm_state_t *state = tutti__comm_state(comm);
    tutti__hint_t hint = { NULL, 0, -1 };
    tutti_status_t status = tutti__cached_start(
        cached, call, comm->node, state->running.spins ? TUTTI__CLOSE_LOOKS : 1, &hint);

    if (TUTTI__UNLIKELY(status != TUTTI_OK))
        return finish_cached(comm, cached, &hint, status);
    tutti__stats_count(cached->entry, cached->bytes);
    return TUTTI_OK;
}

/* Count a call that has ended without an error, and keep its cached form. */
static void count(tutti__comm_t *comm, const tutti__call_t *call)
{
    tutti__comm_state_t *state = tutti__comm_state(comm);
    uint64_t bytes = tutti__call_bytes(call, comm->topo->rank, comm->topo->size);
    const tutti__stats_what_t what = tutti__operation_what(&state->op, call, 0);

    state->counted = tutti__stats_find(comm->stats, &what, bytes);
    if (state->counted == NULL)
        state->counted = &state->uncounted;
    tutti__stats_count(state->counted, bytes);
    tutti__cached_keep(state->is_timed ? &state->timed : &state->cached, &state->op, state->counted,
                       bytes);
}

/* Make a checked call. */
static inline tutti_status_t make(tutti__comm_t *comm, const tutti__call_t *call)
{
    static const tutti__call_with_t nothing;
    tutti__comm_state_t *state = tutti__comm_state(comm);
    tutti_status_t status;
    int before = -1;

    if (TUTTI__UNLIKELY(call->on_device))
        before = tutti__device_enter(&comm->device);
    tutti__operation_start(&state->op, call, &nothing);
    status = run(comm, TUTTI_OK);
    if (status == TUTTI_OK)
        count(comm, call);
    if (TUTTI__UNLIKELY(call->on_device))
        tutti__device_leave(&comm->device, before);
    return status;
}

/* Check and make a call for which no cached form fits. */
static inline tutti_status_t make_checked(tutti__comm_t *comm, tutti__call_t *call, int in_stream)
{
    tutti_status_t status = tutti__call_check(comm, call, 0, 0);

    if (status == TUTTI_OK && in_stream)
        status = tutti__device_check_stream(comm, call, call->stream);
    return status == TUTTI_OK ? make(comm, call) : status;
}

/* Make a call, and measure its time. */
static tutti_status_t make_timed(tutti__comm_t *comm, tutti__call_t *call, int in_stream)
{
    tutti__comm_state_t *state = tutti__comm_state(comm);
    uint64_t since_ns = tutti__stats_direct_begin(comm->stats);
    tutti_status_t status;

    if (!in_stream && tutti__cached_fits(&state->timed, call)) {
        state->counted = state->timed.entry;
        status = make_cached(comm, &state->timed, call);
    } else {
        status = make_checked(comm, call, in_stream);
    }
    tutti__stats_direct_end(comm->stats, status == TUTTI_OK ? state->counted : NULL, since_ns);
    return status;
}

TUTTI__ALWAYS_INLINE tutti_status_t make_call(tutti_comm_t *handle, tutti__call_t *call,
                                              int in_stream)
{
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);

    if (status == TUTTI_OK)
        status = enter(comm, call);
    if (status != TUTTI_OK)
        return status;
    if (!in_stream && tutti__cached_fits(&tutti__comm_state(comm)->cached, call))
        return leave(comm, make_cached(comm, &tutti__comm_state(comm)->cached, call));
    if (TUTTI__UNLIKELY(tutti__comm_state(comm)->is_timed))
        return leave(comm, make_timed(comm, call, in_stream));
    return leave(comm, make_checked(comm, call, in_stream));
}

tutti_status_t tutti__comm_call(tutti_comm_t *comm, tutti__call_t *call)
{
    return make_call(comm, call, 0);
}

tutti_status_t tutti__comm_call_in_stream(tutti_comm_t *comm, tutti__call_t *call)
{
    return make_call(comm, call, 1);
}

tutti_status_t tutti__comm_direct(tutti__comm_t *comm, tutti__collective_t collective,
                                  const tutti__exec_call_t *exec, uint32_t root)
{
    tutti_status_t status = enter(comm, NULL);

    if (status != TUTTI_OK)
        return status;
    status = tutti__operation_start_own(&tutti__comm_state(comm)->op, collective, exec, root);
    return leave(comm, run(comm, status));
}
