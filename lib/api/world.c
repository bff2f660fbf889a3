/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti_init, tutti_finalize, tutti_world, tutti_abort: the communicator of all ranks. Also unique
   ids. */
#include "api/comm_state.h"
#include "api/connected.h"
#include "api/options.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/status.h"
#include "boot/meet.h"
#include "boot/waiting.h"
#include "reduce/reduce.h"

#include <string.h>

/* Protects `world` while the world is made and ended. tutti_init holds this mutex while the ranks
   meet. If another thread forks meanwhile, the child initialises the mutex again. */
static tutti__mutex_t world_lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_WORLD);
static tutti_comm_t *_Atomic world;

/* Refuse settings that contradict unique_id or store. */
static tutti_status_t check_told(const tutti_options_t *options, const tutti__conf_t *conf)
{
    tutti_status_t status = tutti__options_check_ranks(options);

    if (status == TUTTI_OK && tutti__options_have_place(options) && conf->boot[0] != '\0')
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_BOOT=%s conflicts with %s, which the program has set", conf->boot,
                           options->unique_id != NULL ? "options->unique_id" : "options->store");
    return status;
}

static tutti_status_t meet_others(const tutti_options_t *options, const tutti__conf_t *conf,
                                  tutti__meet_t *ret_meet, const tutti__mpi_module_t **ret_module)
{
    uint32_t rank = (uint32_t)options->rank, size = (uint32_t)options->nranks;
    tutti_status_t status = check_told(options, conf);

    if (status != TUTTI_OK)
        return status;
    if (options->unique_id != NULL)
        return tutti__meet_id(options->unique_id, conf, rank, size, ret_meet);
    if (options->store != NULL)
        return tutti__meet_store(options->store, conf, rank, size, ret_meet);
    return tutti__boot_meet(conf, options->mpi_comm, ret_meet, ret_module);
}

static tutti_status_t open_world(const tutti_options_t *options, tutti__comm_t **ret_comm)
{
    const tutti__mpi_module_t *module = NULL;
    tutti__conf_t conf;
    tutti__meet_t meet;
    tutti_status_t status = tutti__conf_read(&conf);

    if (status != TUTTI_OK)
        return status;
    tutti__log_setup((tutti__log_level_t)conf.log_level, -1);
    if (!tutti__reduce_force(conf.isa))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "TUTTI_TEST_ISA=%s is not on this machine",
                           conf.isa);
    tutti__options_apply(options, &conf);
    tutti__waiting_every(conf.shared.stall_ms);
    status = meet_others(options, &conf, &meet, &module);
    explicit_bzero(conf.job_secret, sizeof(conf.job_secret)); /* the communicator copies conf */
    if (status == TUTTI_OK) {
        tutti__log_setup((tutti__log_level_t)conf.log_level, (int)meet.rank);
        status = tutti__comm_open(&meet, module, &conf, ret_comm);
    }
    tutti__waiting_every(0);
    return status;
}

tutti_status_t tutti_init(const tutti_options_t *user)
{
    tutti_options_t options;
    tutti__comm_t *comm = NULL;
    tutti_status_t status = tutti__options_read(user, &options);

    if (status != TUTTI_OK)
        return status;
    if (tutti__engine_in_callback())
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "a callback must not call tutti_init");
    tutti__mutex_lock_renewed(&world_lock);
    /* A forked child must first call tutti_finalize, to forget its parent's world. */
    if (atomic_load(&world) != NULL)
        status = tutti__comm_of(atomic_load(&world), &comm);
    if (status == TUTTI_OK && atomic_load(&world) != NULL)
        status = tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "tutti_init was called already");
    if (status == TUTTI_OK) {
        tutti__connect_keep_ids();
        status = open_world(&options, &comm);
    }
    if (status == TUTTI_OK)
        atomic_store(&world, comm->handle);
    tutti__mutex_unlock(&world_lock);
    return status;
}

tutti_status_t tutti_finalize(void)
{
    tutti_comm_t *handle;
    tutti__comm_t *comm;

    if (tutti__engine_in_callback())
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "a callback must not call tutti_finalize");
    tutti__mutex_lock_renewed(&world_lock);
    handle = atomic_exchange(&world, NULL);
    tutti__mutex_unlock(&world_lock);
    /* world_lock is not held here: callbacks of pending requests run now, and never under a lock.
       In a forked child `handle` may be the parent's world: tutti__comm_of refuses this handle, so
       the world is not touched. */
    if (handle != NULL && tutti__comm_of(handle, &comm) == TUTTI_OK)
        tutti__comm_close(comm);
    else
        (void)tutti_trace_stop();
    tutti__connect_end_ids();
    return TUTTI_OK;
}

tutti_status_t tutti_unique_id_create(tutti_unique_id_t *ret_id)
{
    tutti__conf_t conf;
    tutti_status_t status;

    if (ret_id == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "ret_id is NULL");
    status = tutti__conf_read(&conf);
    if (status != TUTTI_OK)
        return status;
    tutti__connect_keep_ids();
    return tutti__id_create(&conf, ret_id);
}

tutti_comm_t *tutti_world(void)
{
    return atomic_load(&world);
}

tutti_status_t tutti_abort(tutti_comm_t *handle, const char *reason)
{
    char text[TUTTI__ERROR_BYTES];
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);

    if (status != TUTTI_OK)
        return status;
    snprintf(text, sizeof(text), "%s called tutti_abort: %.200s",
             tutti__boot_rank_name(comm->boot, comm->topo->rank),
             reason != NULL ? reason : "no reason given");
    tutti__engine_kill(comm->engine, TUTTI_ERR_PEER_LOST, text);
    return TUTTI_OK;
}
