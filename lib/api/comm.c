/* SPDX-License-Identifier: BSD-3-Clause */
/* Making and ending communicators. */
#include "api/comm_state.h"

#include "api/arguments.h"
#include "api/clocks.h"
#include "base/constants.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "coll/cost.h"
#include "node/shm/shm.h"
#include "xport/shm/shm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tutti__handles_t tutti__comms = TUTTI__HANDLES_INIT(
    TUTTI__HANDLE_COMM, "communicator", "was freed, by tutti_comm_free or tutti_finalize");

tutti_status_t tutti__comm_wrong(const tutti_comm_t *handle)
{
    if (handle == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "comm is NULL: was tutti_init called, or tutti_finalize?");
    return tutti__handle_wrong(&tutti__comms, handle, "comm");
}

/* ---- opening ---- */

/* If an algorithm of TUTTI_ALGORITHM cannot serve this communicator, fail now, and not in the first
   call. */
static tutti_status_t check_algorithms(const tutti__comm_t *comm, tutti__association_t association)
{
    const char *text = comm->conf.shared.algorithm;
    tutti__shape_t shape = comm->shape;
    tutti_status_t status;

    shape.device_scope = tutti__device_scope(&comm->device);
    status = tutti__algorithm_check_override(text, &shape);

    for (int c = 0; c < TUTTI__COLLECTIVES && status == TUTTI_OK; c++) {
        const tutti__want_t want = { (tutti__collective_t)c, SIZE_MAX, TUTTI__ANY_ROOT, 0 };
        tutti__choice_t choice;
        const char *why;

        status = tutti__algorithm_choose(&want, &shape, text, association, &choice, &why);
    }
    return status;
}

static void prepare_calls(tutti__comm_t *comm)
{
    tutti__comm_state_t *state = tutti__comm_state(comm);

    state->calls = (tutti__call_env_t){ .exec = &comm->exec,
                                        .shape = &comm->shape,
                                        .conf = &comm->conf.shared,
                                        .watch = comm->watch,
                                        .boot = comm->boot,
                                        .cache = &state->cache,
                                        .device_cache = &state->device_cache };
    state->running = (tutti__run_env_t){ .watch = comm->watch,
                                         .boot = comm->boot,
                                         .machine = comm->machine,
                                         .rank = comm->topo->rank,
                                         .size = comm->topo->size,
                                         .spins = !comm->topo->oversubscribed,
                                         .where = comm->world_rank != NULL         ? "a group"
                                                  : tutti__comm_is_connected(comm) ? comm->name.text
                                                                                   : NULL };
    tutti__pairs_init(&state->pairs, &state->calls);
    tutti__operation_init(&state->op, &state->calls, 0, &state->pairs);
    state->cached.is_off = state->timed.is_off =
        comm->exec.device != NULL || comm->lone.ops != NULL;
}

static void prepare_caches(tutti__comm_t *comm, tutti__association_t association)
{
    const tutti__conf_shared_t *conf = &comm->conf.shared;
    const tutti__device_limits_t limits = { conf->device_staged_bytes, conf->stage_bytes };
    tutti__comm_state_t *state = tutti__comm_state(comm);
    tutti__cache_t *caches[] = { &state->cache, &state->device_cache };

    for (int i = 0; i < 2; i++)
        tutti__cache_init(caches[i], &comm->shape, comm->topo->rank, conf->algorithm, association,
                          conf->check ? (uint32_t)conf->credits : 0);
    tutti__cache_for_device(&state->device_cache, &limits);
    state->device_cache.device_scope = tutti__device_scope(&comm->device);
}

/* With TUTTI_STATS=1, rank 0 of a world prints the world's table, and the table of each group to
   which it belongs. */
static void open_stats(tutti__comm_t *comm)
{
    const tutti__topo_t *topo = comm->topo;
    uint32_t world_rank = comm->world_rank != NULL ? comm->world_rank[topo->rank] : topo->rank;
    const tutti__stats_want_t want = {
        .rank = topo->rank,
        .size = topo->size,
        .local_rank = topo->local_of[topo->rank],
        .name = tutti__comm_is_connected(comm) ? comm->name.text
                : comm->world == comm          ? "world"
                                               : "group",
        .prints = comm->conf.stats == TUTTI__CONF_STATS_PRINT && world_rank == 0,
        .is_timed = comm->conf.stats != TUTTI__CONF_STATS_OFF || comm->conf.stats_file[0] != '\0' ||
                    comm->conf.stats_port >= 0,
        .file = comm->conf.stats_file,
        .port = (int)comm->conf.stats_port,
    };

    comm->stats = tutti__stats_open(&want);
    tutti__comm_state(comm)->is_timed = comm->stats != NULL && want.is_timed;
}

/* Set the clock of the watch's recorder, and start the trace that TUTTI_TRACE requests. */
static tutti_status_t open_record(tutti__comm_t *comm)
{
    tutti__record_t *record = comm->watch->record;
    int64_t offset_ns;
    tutti_status_t status = tutti__clocks_compare(comm->boot, &offset_ns);

    atomic_store(&record->offset_ns, offset_ns); /* dumps of other threads may read it */
    comm->exec.record = record;
    comm->exec.host_of = comm->topo->host_of;
    if (status == TUTTI_OK && tutti__comm_is_world(comm) && comm->conf.shared.trace[0] != '\0') {
        status = tutti_trace_start(comm->conf.shared.trace);
        tutti__comm_state(comm)->ends_trace = status == TUTTI_OK;
        status = tutti__boot_agree(comm->boot, status);
    }
    return status;
}

/* Open all rooms (folders of lib/) above the transports. */
static tutti_status_t open_engine(tutti__comm_t *comm)
{
    tutti__engine_env_t env = {
        .boot = comm->boot,
        .machine = comm->machine,
        .exec = &comm->exec,
        .shape = &comm->shape,
        .conf = &comm->conf.shared,
        .world = comm->world != comm ? comm->world->engine : NULL,
        .stats = comm->stats,
        .check_receive = tutti__call_check_receive,
        .comm = comm,
    };
    const tutti__conf_shared_t *conf = &comm->conf.shared;
    tutti__association_t association =
        conf->strict ? TUTTI__STRICT_ASSOCIATION : TUTTI__ANY_ASSOCIATION;
    tutti_status_t status;

    comm->exec = (tutti__exec_env_t){
        .rank = comm->topo->rank,
        .size = comm->topo->size,
        .xport = comm->xport,
        .node = comm->node,
        .slot_bytes = comm->conf.shared.chunk_bytes,
        .device = comm->device.ops != NULL ? &comm->device : NULL,
    };
    /* TUTTI_STREAM_WAIT has no effect in a world of one host, or in a group of such a world: groups
       share the world's devices. See engine/semaphore.c. */
    if (comm->world->topo->nhosts == 1)
        comm->conf.shared.stream_wait = 0;
    prepare_caches(comm, association);
    status = tutti__comm_take_files(comm);
    if (status != TUTTI_OK)
        return status;
    status = check_algorithms(comm, association);
    status = tutti__boot_agree(comm->boot, status);
    if (status == TUTTI_OK)
        status = tutti__watch_open(comm->boot, comm->machine, conf, !tutti__comm_is_world(comm),
                                   &comm->watch);
    if (status != TUTTI_OK)
        return status;
    prepare_calls(comm);
    status = open_record(comm);
    if (status != TUTTI_OK) {
        tutti__watch_close(comm->watch);
        comm->watch = NULL;
        return status;
    }
    env.watch = comm->watch;
    return tutti__engine_open(&env, &comm->engine);
}

static tutti__device_setup_t device_setup(tutti__comm_t *comm)
{
    return (tutti__device_setup_t){ .conf = &comm->conf,
                                    .shape = &comm->shape,
                                    .topo = comm->topo,
                                    .machine = comm->machine,
                                    .boot = comm->boot,
                                    .node = comm->node,
                                    .xport = comm->xport,
                                    .world = comm->world != comm ? &comm->world->device : NULL,
                                    .device = &comm->device,
                                    .lone = &comm->lone,
                                    .keeps = comm->exec.keeps };
}

static tutti_status_t open_device(tutti__comm_t *comm)
{
    const tutti__device_setup_t setup = device_setup(comm);
    tutti_status_t status;

    comm->lone = comm->world->lone;
    tutti__semaphore_pause();
    status = tutti__device_open(&setup);
    tutti__semaphore_resume();
    return status;
}

/* Open all rooms, bottom up, over comm->meet. */
static tutti_status_t open_all(tutti__comm_t *comm)
{
    const tutti__conf_shared_t *conf = &comm->conf.shared;
    tutti_status_t status;

    status = tutti__boot_open(&comm->meet, &comm->conf, &comm->boot);
    if (status != TUTTI_OK)
        return status;
    comm->topo = tutti__boot_topo(comm->boot);
    status = tutti__comm_take_shape(comm);
    open_stats(comm);
    if (status == TUTTI_OK)
        status = tutti__machine_open(comm->boot, &comm->machine);
    if (status == TUTTI_OK)
        tutti__arena_use_huge(comm->machine->arena, (tutti__huge_t)conf->huge_pages);
    if (status == TUTTI_OK)
        status = tutti__shm_open(comm->boot, comm->machine, conf, &comm->node);
    if (status == TUTTI_OK)
        status = tutti__xport_shm_open(comm->boot, comm->machine, conf->chunk_bytes,
                                       (uint32_t)conf->credits, &comm->shm);
    if (status == TUTTI_OK)
        status = tutti__comm_open_xports(comm);
    if (status == TUTTI_OK)
        status = open_device(comm);
    if (status == TUTTI_OK)
        status = open_engine(comm);
    if (status == TUTTI_OK)
        tutti__boot_settle(comm->boot);
    return status;
}

/* Make a communicator; the caller sets its world. */
static tutti_status_t make(const tutti__meet_t *meet, const tutti__mpi_module_t *module,
                           const tutti__conf_t *conf, tutti__comm_t **ret_comm)
{
    tutti__comm_state_t *state = calloc(1, sizeof(*state));
    tutti__comm_t *comm;
    tutti_status_t status;
    void *handle;

    if (state == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "communicator");
    else
        status = tutti__handle_make(&tutti__comms, state, &handle);
    if (status != TUTTI_OK) {
        free(state);
        tutti__marks_close(meet->marks);
        meet->close(meet->ctx);
        return status;
    }
    comm = &state->comm;
    comm->handle = handle;
    comm->generation = tutti__fork_generation();
    comm->conf = *conf;
    comm->module = module;
    comm->meet = *meet;
    tutti__mutex_init(&state->parts_lock, TUTTI__LOCK_PARTS);
    *ret_comm = comm;
    return TUTTI_OK;
}

static tutti_status_t open_made(tutti__comm_t *comm, tutti__comm_t **ret_comm)
{
    tutti_status_t status;

    assert((comm->world == comm) == (comm->world_rank == NULL));
    status = open_all(comm);
    if (status != TUTTI_OK) {
        if (comm->stats != NULL)
            comm->stats->prints = 0; /* the program never receives this communicator */
        tutti__comm_close(comm);
        return status;
    }
    tutti__comm_state(comm)->ends_trace = tutti__comm_is_world(comm);
    TUTTI__LOG(tutti__comm_is_world(comm) ? TUTTI__LOG_INFO : TUTTI__LOG_DEBUG,
               "rank %u of %u, host %u of %u, %s", comm->topo->rank, comm->topo->size,
               comm->topo->host_of[comm->topo->rank], comm->topo->nhosts,
               !comm->topo->oversubscribed ? "spins while it waits"
                                           : "more ranks than processors: yields");
    *ret_comm = comm;
    return TUTTI_OK;
}

tutti_status_t tutti__comm_open(const tutti__meet_t *meet, const tutti__mpi_module_t *module,
                                const tutti__conf_t *conf, tutti__comm_t **ret_comm)
{
    tutti_status_t status;
    tutti__comm_t *comm;

    status = make(meet, module, conf, &comm);
    if (status != TUTTI_OK)
        return status;
    comm->world = comm;
    return open_made(comm, ret_comm);
}

tutti_status_t tutti__comm_open_connected(const tutti__meet_t *meet, const tutti__conf_t *conf,
                                          const tutti__comm_name_t *name, tutti__comm_t **ret_comm)
{
    tutti_status_t status;
    tutti__comm_t *comm;

    assert(name->text[0] != '\0');
    status = make(meet, NULL, conf, &comm);
    if (status != TUTTI_OK)
        return status;
    comm->world = comm;
    comm->name = *name;
    comm->meet.comm_name = comm->name.text;
    return open_made(comm, ret_comm);
}

tutti_status_t tutti__comm_open_part(const tutti__meet_t *meet, const tutti__comm_t *parent,
                                     uint32_t *world_rank, tutti__comm_t **ret_comm)
{
    tutti_status_t status;
    tutti__comm_t *comm;

    status = make(meet, parent->module, &parent->conf, &comm);
    if (status != TUTTI_OK) {
        free(world_rank);
        return status;
    }
    comm->world = parent->world;
    comm->world_rank = world_rank;
    comm->meet.world_rank = world_rank;
    if (tutti__comm_is_connected(comm->world))
        comm->meet.comm_name = comm->world->name.text;
    return open_made(comm, ret_comm);
}

/* ---- closing ---- */

/* Wait until the calls that are queued in streams are done, the communicator has ended, or
   TUTTI_TIMEOUT has passed. Call this while the engine still runs, because the engine detects
   deaths. */
static void end_queued(tutti__comm_t *comm)
{
    uint64_t limit = tutti__now_ns() + comm->conf.shared.timeout_ms * 1000000u;
    int before;

    tutti__engine_drain(comm->engine);
    if (comm->device.node == NULL)
        return;
    before = tutti__device_enter(&comm->device);
    while (tutti__watch_alive(comm->watch) == TUTTI_OK && tutti__device_is_queued(&comm->device) &&
           tutti__now_ns() < limit)
        usleep(TUTTI__DRAIN_NAP_US);
    tutti__device_leave(&comm->device, before);
}

/* If another thread is still inside a direct call, end the call, and wait for its return, at most
   END_DIRECT_MS. Programs join such threads first, but Python does not join its daemon threads
   before the process exits. */
static void end_direct(tutti__comm_t *comm)
{
    tutti__comm_state_t *state = tutti__comm_state(comm);
    uint64_t limit = tutti__now_ns() + TUTTI__END_DIRECT_MS * 1000000u;

    if (atomic_load(&state->busy) || atomic_load(&state->in_stream))
        tutti__watch_close_calls(comm->watch);
    while ((atomic_load(&state->busy) || atomic_load(&state->in_stream)) && tutti__now_ns() < limit)
        usleep(TUTTI__DRAIN_NAP_US);
}

void tutti__comm_stop(tutti__comm_t *comm)
{
    tutti__comm_state_t *state = tutti__comm_state(comm);
    tutti_status_t status;

    if (comm->engine == NULL || state->is_stopped)
        return;
    end_queued(comm);
    /* Otherwise this rank would leave as if nothing had failed. */
    if (tutti__watch_has_failed(comm->watch))
        tutti__run_await_report(comm->engine, comm->watch, 0);
    /* If a rank has died, MPI_Finalize would wait for it forever. A rank that has only left still
       takes part in MPI_Finalize. A group does nothing here: its world has lost the same ranks. */
    status = tutti__watch_alive(comm->watch);
    if (comm->module != NULL && comm->world == comm && status != TUTTI_OK &&
        status != TUTTI_ERR_SHUTDOWN)
        comm->module->give_up();
    tutti__engine_stop(comm->engine);
    end_direct(comm);
    state->is_stopped = 1;
}

/* Messages of failed calls may still be in flight. Until the peers have received these messages,
   MPI or an RDMA device may read their memory. So the memory of runs, STAGE of a device, and the
   arena are never freed. The arena has fused buckets and the memory of tutti_mem_alloc. */
static void keep_memory(tutti__comm_t *comm)
{
    tutti__xport_t *far = comm->mpi;

    if (far == NULL || far->ops->keeps == NULL || !far->ops->keeps(far))
        return;
    comm->exec.keeps = 1;
    tutti__arena_leave(comm->machine->arena);
    TUTTI__LOG(TUTTI__LOG_DEBUG, "rank %u leaves memory that messages may still reach",
               comm->topo->rank);
}

static void close_device(tutti__comm_t *comm)
{
    const tutti__device_setup_t setup = device_setup(comm);

    if (comm->device.ops == NULL)
        return;
    tutti__semaphore_pause();
    tutti__device_close(&setup);
    tutti__semaphore_resume();
}

void tutti__comm_close(tutti__comm_t *comm)
{
    tutti__comm_state_t *state = tutti__comm_state(comm);

    if (comm == NULL)
        return;
    /* A callback may use any communicator of the process. So the groups and the world are all
       stopped before the first of them is freed. The handles of the groups end even earlier: if a
       callback then uses a group, the callback gets errors, and can return. */
    tutti__parts_stop(comm);
    tutti__comm_stop(comm);
    tutti__parts_close(comm);
    assert(state->parts == NULL && (comm->engine == NULL || state->is_stopped));
    keep_memory(comm);
    assert(atomic_load(&state->busy) || state->op.at == TUTTI__AT_END); /* busy: a call runs */
    tutti__engine_close(comm->engine);
    /* If stopping the trace fails, the error is logged, and this rank's part of the trace stays. */
    if (state->ends_trace)
        (void)tutti_trace_stop();
    /* End the handle only now. Before this point callbacks may make calls, which return the reason
       why the communicator has ended. */
    tutti__handle_end(&tutti__comms, comm->handle);
    if (state->op.env != NULL)
        tutti__pairs_fini(&state->pairs);
    tutti__operation_fini(&state->op);
    tutti__stats_close(comm->stats);
    tutti__cache_fini(&state->cache);
    tutti__cache_fini(&state->device_cache);
    close_device(comm);
    if (comm->mpi != NULL)
        comm->mpi->ops->close(comm->mpi);
    if (comm->shm != NULL)
        comm->shm->ops->close(comm->shm);
    if (comm->node != NULL)
        comm->node->ops->close(comm->node);
    tutti__machine_close(comm->machine);
    tutti__files_free(comm->files);
    free(comm->xport);
    tutti__boot_close(comm->boot);
    free(comm->world_rank);
    tutti__mutex_destroy(&state->parts_lock);
    free(state);
}
