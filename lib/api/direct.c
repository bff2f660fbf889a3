/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct calls: check the arguments, take the cached schedule, run it on this thread.
 *
 * Mismatches. Inside a host every node operation begins with a meeting of all ranks, and a schedule
 * without node operations begins with one as well. There the ranks compare their calls before data
 * moves, so all ranks find a mismatch, and the communicator stays usable. Between hosts, and
 * between two ranks, the ranks first compare their arguments by messages (counts.c, pairs.c). With
 * TUTTI_COMPARE=0 they do not; then a mismatch is found while data moves, and ends the
 * communicator.
 *
 * Device memory: see on_device.c.
 */
#include "api/direct.h"

#include "api/arguments.h"
#include "api/device.h"
#include "base/status.h"

#include <unistd.h>

/* After a failure without a known cause: how long to wait for a peer's report of the cause. */
#define NEWS_MS 300

/* ---- waiting: see backoff.c ---- */

/* Poll only the word of the wait hint, for about a microsecond. Has it changed? */
static int comes_soon(const tutti__hint_t *hint)
{
    if (hint->word == NULL)
        return 0;
    for (int i = 0; i < TUTTI__CLOSE_LOOKS; i++) {
        if (tutti__load_acquire(hint->word) != hint->value)
            return 1;
        tutti__pause();
    }
    return 0;
}

/* What a direct call is stepping. */
typedef enum {
    THE_RUN,   /* comm->run */
    THE_AGAIN, /* comm->again */
    THE_SIDES, /* comm->side: a message */
    THE_STAGED /* comm->staged: copies from the device or to it */
} what_t;

static inline tutti_status_t step(tutti__comm_t *comm, what_t what, tutti__hint_t *hint)
{
    if (what == THE_RUN)
        return tutti__run_step(&comm->run, hint);
    if (what == THE_SIDES)
        return tutti__pairs_step(comm, hint);
    hint->word = NULL;
    hint->peer = -1;
    if (what == THE_STAGED)
        return tutti__staged_step(&comm->device, 0, &comm->staged);
    return comm->node->ops->step(comm->node, 0, hint);
}

/* Continue after a step that returned `status`, until a word does not change soon. */
static inline tutti_status_t go_on(tutti__comm_t *comm, what_t what, tutti_status_t status,
                                   tutti__hint_t *hint)
{
    while (status == TUTTI__AGAIN && comm->spin && comes_soon(hint))
        status = step(comm, what, hint);
    return status;
}

static unsigned tag_of(const tutti__comm_t *comm, what_t what)
{
    if (what == THE_SIDES)
        return comm->side[0].data.tag;
    if (what == THE_STAGED)
        return tutti__call_kinds[comm->staged.call.kind].tag | TUTTI__TAG_ON_DEVICE;
    return what == THE_AGAIN ? comm->again.node.tag : comm->run.node_call.tag;
}

/* The progress so far between hosts and on the device, which no shared word shows. */
static uint32_t moves_of(const tutti__comm_t *comm)
{
    return comm->run.moves + tutti__pairs_moves(comm) + comm->staged.moves;
}

/* The communicator has ended. Step once more: the last data may have arrived after the last
   step. */
static tutti_status_t last_look(tutti__comm_t *comm, what_t what, tutti_status_t status)
{
    char words[TUTTI__ERROR_BYTES];
    tutti__hint_t hint;

    snprintf(words, sizeof(words), "%s", tutti_last_error());
    return step(comm, what, &hint) == TUTTI_OK ? TUTTI_OK : tutti__fail(status, "%s", words);
}

/* Continue to the end, after a step that could make no progress. Not inlined: few calls get
   here. */
static tutti_status_t wait_to_end(tutti__comm_t *comm, what_t what, tutti__hint_t *hint)
{
    tutti__backoff_t backoff = { .tag = tag_of(comm, what), .hint = { NULL, 0, -1 } };
    tutti_status_t status;

    do {
        int32_t peer = hint->peer;
        uint32_t moves = moves_of(comm);

        if (peer >= 0 && tutti__watch_has_left(comm->watch, (uint32_t)peer)) {
            /* Its last data may have arrived after the last step. */
            status = step(comm, what, hint);
            if (status != TUTTI__AGAIN)
                return status;
            if (hint->peer == peer)
                return tutti__fail(TUTTI_ERR_SHUTDOWN, "%s has left",
                                   tutti__boot_rank_name(comm->boot, (uint32_t)peer));
            continue;
        }
        status = tutti__backoff_step(comm, &backoff, hint);
        if (status != TUTTI_OK)
            return last_look(comm, what, status);
        status = go_on(comm, what, step(comm, what, hint), hint);
        if (moves_of(comm) != moves)
            backoff = (tutti__backoff_t){ .tag = backoff.tag, .hint = { NULL, 0, -1 } };
    } while (status == TUTTI__AGAIN);
    return status;
}

/* Continue to the end, after a step that returned `status`. */
static inline tutti_status_t go_to_end(tutti__comm_t *comm, what_t what, tutti_status_t status,
                                       tutti__hint_t *hint)
{
    status = go_on(comm, what, status, hint);
    return TUTTI__LIKELY(status != TUTTI__AGAIN) ? status : wait_to_end(comm, what, hint);
}

static inline tutti_status_t run_to_end(tutti__comm_t *comm, what_t what)
{
    tutti__hint_t hint;
    tutti_status_t status = step(comm, what, &hint);

    return go_to_end(comm, what, status, &hint);
}

/* ---- one schedule ---- */

/* The last error numbers the ranks of this communicator. In a group, say so in the text. */
static void say_group(const tutti__comm_t *comm, tutti_status_t status)
{
    char text[TUTTI__ERROR_BYTES];

    if (comm->world_rank == NULL)
        return;
    snprintf(text, sizeof(text), "%.450s", tutti_last_error());
    tutti__fail(status, "in a group of %u ranks: %s", comm->topo->size, text);
}

tutti_status_t tutti__comm_end_badly(tutti__comm_t *comm, tutti_status_t status)
{
    char text[TUTTI__ERROR_BYTES];

    say_group(comm, status);
    snprintf(text, sizeof(text), "%.500s", tutti_last_error());
    tutti__run_cancel(&comm->run);
    tutti__pairs_cancel(comm);
    return tutti__engine_kill(comm->engine, status, text);
}

/* Did all ranks of the communicator find this error before data moved? */
static int is_common(tutti_status_t status, const tutti__run_t *run, int has_channels)
{
    if (status == TUTTI_ERR_MISMATCH)
        return run->meeting || !has_channels;
    return status == TUTTI_ERR_NO_MEMORY && !has_channels;
}

/* In a callback, this may be the library's own thread, for which MPI was not initialised. */
tutti_status_t tutti__comm_allows(const tutti__comm_t *comm, const tutti__sched_t *sched)
{
    int is_own = sched->nchans > 0 && tutti__thread_is_own();

    if (TUTTI__LIKELY(sched->nchans == 0 || !tutti__run_forbidden(&comm->exec, sched, is_own)))
        return TUTTI_OK;
    if (is_own)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "a callback on the library's thread may not use MPI: it was initialised "
                           "with a thread level below MPI_THREAD_MULTIPLE");
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "this thread may not use MPI: it was initialised "
                                              "with a thread level below MPI_THREAD_SERIALIZED");
}

/* NCCL has failed. Usually another rank has aborted it, because a rank has died. Wait for the
   report of that death, which may arrive after NCCL's error: the first reported cause counts. */
static void await_news(tutti__comm_t *comm)
{
    char text[TUTTI__ERROR_BYTES], halted[160];
    int is_halted;

    snprintf(text, sizeof(text), "%.360s", tutti_last_error());
    for (int ms = 0; ms < NEWS_MS && tutti__watch_alive(comm->watch) == TUTTI_OK; ms++)
        usleep(1000);
    is_halted = tutti__watch_halted(comm->watch, halted, sizeof(halted));
    tutti__fail(TUTTI_ERR_TRANSPORT, "%s%s%s", text, is_halted ? "; " : "",
                is_halted ? halted : "");
}

tutti_status_t tutti__comm_run(tutti__comm_t *comm, const tutti__sched_t *sched,
                               tutti__exec_call_t *exec, int meets)
{
    int has_channels = sched->nchans > 0;
    tutti_status_t status;

    status = tutti__comm_allows(comm, sched);
    if (TUTTI__UNLIKELY(status != TUTTI_OK))
        return status;
    exec->meet = meets && has_channels && comm->shape.nhosts == 1;
    status = tutti__run_start(&comm->run, sched, exec);
    if (TUTTI__UNLIKELY(status != TUTTI_OK)) {
        /* UNSUPPORTED is found on all ranks; other errors only on this rank. */
        return status == TUTTI_ERR_UNSUPPORTED ? status : tutti__comm_end_badly(comm, status);
    }
    status = run_to_end(comm, THE_RUN);
    if (TUTTI__LIKELY(status == TUTTI_OK))
        return status;
    if (status == TUTTI_ERR_UNSUPPORTED && exec->on_device) {
        /* From NCCL, on all ranks, before data moved. */
        tutti__run_cancel(&comm->run);
        return status;
    }
    /* If a device has no memory, only its rank finds this error. */
    if (is_common(status, &comm->run, has_channels) &&
        !(exec->on_device && status == TUTTI_ERR_NO_MEMORY))
        return status;
    if (status == TUTTI_ERR_TRANSPORT && exec->on_device)
        await_news(comm);
    return tutti__comm_end_badly(comm, status);
}

/* ---- one call ---- */

/* call: NULL for a call of the library's own. */
static tutti_status_t enter(tutti__comm_t *comm, const tutti__call_t *call)
{
    tutti_status_t status = tutti__watch_alive(comm->watch);

    if (TUTTI__UNLIKELY(status != TUTTI_OK))
        return status;
    if (atomic_exchange_explicit(&comm->busy, 1, memory_order_acquire))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "another thread is in a direct call on this communicator");
    comm->call = call;
    return TUTTI_OK;
}

static tutti_status_t leave(tutti__comm_t *comm, tutti_status_t status)
{
    if (TUTTI__UNLIKELY(status != TUTTI_OK) && tutti__watch_alive(comm->watch) == TUTTI_OK)
        say_group(comm, status);
    atomic_store_explicit(&comm->busy, 0, memory_order_release);
    return status;
}

/* An error in the choice of a schedule is found on all ranks. Any other error, such as NO_MEMORY,
   is found on this rank only, and ends the communicator. */
static tutti_status_t found(tutti__comm_t *comm, tutti_status_t status)
{
    if (status == TUTTI_OK || status == TUTTI_ERR_UNSUPPORTED ||
        status == TUTTI_ERR_INVALID_ARGUMENT)
        return status;
    return tutti__comm_end_badly(comm, status);
}

tutti_status_t tutti__comm_find(tutti__comm_t *comm, const tutti__want_t *want, int in_place,
                                const tutti__sched_t **ret_sched)
{
    return found(comm, tutti__cache_get(&comm->cache, want, in_place, ret_sched));
}

tutti_status_t tutti__comm_find_on_device(tutti__comm_t *comm, const tutti__want_t *want,
                                          int in_place, const tutti__sched_t **ret_sched)
{
    return found(comm, tutti__cache_get(&comm->device_cache, want, in_place, ret_sched));
}

/* ---- the same call again; see again.c ---- */

/* Make the node operation comm->again.node. */
static inline tutti_status_t make_node(tutti__comm_t *comm)
{
    tutti__hint_t hint = { NULL, 0, -1 };
    tutti_status_t status = comm->node->ops->repeat(comm->node, &comm->again.node,
                                                    comm->spin ? TUTTI__CLOSE_LOOKS : 1, &hint);

    if (TUTTI__LIKELY(status == TUTTI_OK))
        return status;
    status = go_to_end(comm, THE_AGAIN, status, &hint);
    if (status == TUTTI_OK || is_common(status, &comm->run, 0))
        return status;
    return tutti__comm_end_badly(comm, status);
}

static inline tutti_status_t make_again(tutti__comm_t *comm, const tutti__call_t *call)
{
    tutti_status_t status;

    tutti__again_aim(&comm->again, call);
    status = make_node(comm);
    comm->again.node.again = 1;
    return status;
}

static tutti_status_t make_message(tutti__comm_t *comm, const tutti__call_t *call,
                                   tutti__exec_call_t *exec)
{
    tutti_status_t status;

    exec->signature = tutti__call_signature(call, exec, comm->shape.size);
    status = tutti__pairs_start(comm, call, exec);
    if (status == TUTTI_OK)
        status = run_to_end(comm, THE_SIDES);
    if (status == TUTTI_OK)
        return tutti__pairs_end(comm);
    return status == TUTTI_ERR_UNSUPPORTED ? status : tutti__comm_end_badly(comm, status);
}

/* A call without elements: must the ranks meet? On one host they do, so that a rank that passed
   elements finds the mismatch. Between hosts the ranks have compared the call, or compare
   nothing. */
static int meets_only(const tutti__comm_t *comm, int agreed)
{
    return !agreed && comm->shape.nhosts == 1 && comm->shape.size > 1;
}

static tutti_status_t meet_only(tutti__comm_t *comm, const tutti__exec_call_t *exec)
{
    comm->again.is_kept = 0;
    comm->again.node = (tutti__node_call_t){
        .kind = TUTTI__NODE_MEET,
        .dtype = exec->dtype,
        .op = exec->op,
        .tag = exec->tag,
        .root = exec->root,
    };
    return make_node(comm);
}

/* Make a call in host memory. agreed: the ranks have compared the call. device_tag: the tag of the
   call on device memory that this call stands for. */
TUTTI__ALWAYS_INLINE tutti_status_t make(tutti__comm_t *comm, const tutti__call_t *call, int agreed,
                                         unsigned device_tag)
{
    int in_place, empty;
    const tutti__sched_t *sched;
    tutti__exec_call_t exec;
    tutti__want_t want;
    tutti_status_t status;

    status = tutti__call_prepare(call, comm->topo->rank, comm->shape.size, &comm->room, &want,
                                 &exec, &in_place, &empty);
    if (TUTTI__UNLIKELY(status != TUTTI_OK))
        return tutti__comm_end_badly(comm, status);
    exec.tag |= device_tag;
    if (tutti__call_collective(call->kind) == TUTTI__COLLECTIVES)
        return make_message(comm, call, &exec);
    if (!agreed && TUTTI__UNLIKELY(tutti__counts_needed(comm, call))) {
        status = tutti__counts_agree(comm, call);
        agreed = 1;
    }
    if (status != TUTTI_OK)
        return status;
    if (TUTTI__UNLIKELY(empty))
        return meets_only(comm, agreed) ? meet_only(comm, &exec) : TUTTI_OK;
    status = tutti__comm_find(comm, &want, in_place, &sched);
    if (status != TUTTI_OK)
        return status;
    if (sched->nchans > 0)
        exec.signature = tutti__call_signature(call, &exec, comm->shape.size);
    tutti__call_begin(call, &comm->room, &exec);
    status = tutti__comm_run(comm, sched, &exec, !agreed);
    if (status != TUTTI_OK)
        return status;
    tutti__call_end(call, &comm->room, &exec);
    tutti__again_keep(comm, call, sched);
    return TUTTI_OK;
}

tutti_status_t tutti__comm_make_in_host(tutti__comm_t *comm, const tutti__call_t *call, int agreed,
                                        unsigned device_tag)
{
    return make(comm, call, agreed, device_tag);
}

tutti_status_t tutti__comm_wait_for_copies(tutti__comm_t *comm, tutti_status_t status)
{
    if (status == TUTTI_OK)
        status = run_to_end(comm, THE_STAGED);
    return status == TUTTI_OK ? status : tutti__comm_end_badly(comm, status);
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
    if (!in_stream && tutti__again_fits(&comm->again, call))
        return leave(comm, make_again(comm, call));
    status = tutti__call_check(comm, call, 0);
    if (status == TUTTI_OK && in_stream)
        status = tutti__device_check_stream(comm, call, call->stream);
    if (status == TUTTI_OK && TUTTI__LIKELY(!call->on_device))
        status = make(comm, call, 0, 0);
    else if (status == TUTTI_OK)
        status = tutti__comm_make_on_device(comm, call);
    return leave(comm, status);
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
                                  tutti__exec_call_t *call, uint32_t root)
{
    tutti__want_t want = { collective, call->count * tutti_dtype_bytes(call->dtype), root, 0 };
    const tutti__sched_t *sched;
    tutti_status_t status = enter(comm, NULL);

    if (status != TUTTI_OK)
        return status;
    /* The signature contains the count, so ranks with different counts do not match. */
    call->signature = (uint32_t)call->tag << 24 ^ (uint32_t)call->count;
    call->root = root;
    if (tutti__counts_checked(comm))
        status = tutti__counts_agree_own(comm, call->tag, call->count);
    if (status == TUTTI_OK)
        status = tutti__comm_find(comm, &want, call->in == call->out, &sched);
    if (status == TUTTI_OK)
        status = tutti__comm_run(comm, sched, call, 1);
    return leave(comm, status);
}
