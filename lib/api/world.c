/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti_init, tutti_finalize, tutti_world, tutti_abort: the communicator of all ranks. Unique
   ids. */
#include "api/arguments.h"
#include "api/comm.h"

#include "base/grown.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/status.h"
#include "boot/meet.h"
#include "reduce/reduce.h"

#include <string.h>

/* Sizes by version; a released one never changes. See base/grown.h. */
enum {
    OPTIONS_V0 = 24,
    OPTIONS_V1 = 48
};
TUTTI__GROWN_VERSION(tutti_options_t, mpi_comm, OPTIONS_V0);
TUTTI__GROWN_VERSION(tutti_options_t, nranks, OPTIONS_V1);
TUTTI__GROWN_TODAY(tutti_options_t, OPTIONS_V1);

static const size_t options_sizes[] = { OPTIONS_V0, OPTIONS_V1 };
static const tutti__grown_t options_grown =
    TUTTI__GROWN("options", "TUTTI_OPTIONS_INIT", options_sizes);

/* Protects `world` while it is made and ended. */
static tutti__mutex_t world_lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_WORLD);
static tutti_comm_t *_Atomic world;

static tutti_status_t read_options(const tutti_options_t *user, tutti_options_t *ret_options)
{
    tutti_options_t options = TUTTI_OPTIONS_INIT;
    tutti_status_t status;

    if (user != NULL) {
        status = tutti__grown_read(&options_grown, user, &options);
        if (status != TUTTI_OK)
            return status;
        if (options.reserved != 0)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "options->reserved is not 0");
        if (options.api_version >> 16 != TUTTI_VERSION_MAJOR)
            return tutti__fail(TUTTI_ERR_ABI, "the program was built for version %x, this is %x",
                               options.api_version, tutti_version());
    }
    *ret_options = options;
    return TUTTI_OK;
}

/* With unique_id or store: check the other options, and settings that would contradict. */
static tutti_status_t check_told(const tutti_options_t *options, const tutti__conf_t *conf)
{
    const char *what = options->unique_id != NULL ? "options->unique_id" : "options->store";

    if (options->unique_id == NULL && options->store == NULL) {
        if (options->rank != 0 || options->nranks != 0)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "options->rank and nranks are for unique_id and store, which are "
                               "NULL");
        return TUTTI_OK;
    }
    if (options->unique_id != NULL && options->store != NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "options has both a unique_id and a store; one is enough");
    if (options->mpi_comm != NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "options has both an mpi_comm and %s", what);
    if (options->nranks < 1 || options->rank < 0 || options->rank >= options->nranks)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "options: there is no rank %d, nranks is %d",
                           options->rank, options->nranks);
    if (conf->boot[0] != '\0')
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_BOOT=%s conflicts with %s, which the program has set", conf->boot,
                           what);
    return TUTTI_OK;
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
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "TUTTI_ISA=%s is not on this machine", conf.isa);
    status = meet_others(options, &conf, &meet, &module);
    explicit_bzero(conf.job_secret, sizeof(conf.job_secret)); /* conf lives as long as the world */
    if (status != TUTTI_OK)
        return status;
    tutti__log_setup((tutti__log_level_t)conf.log_level, (int)meet.rank);
    return tutti__comm_open(&meet, module, &conf, ret_comm);
}

tutti_status_t tutti_init(const tutti_options_t *user)
{
    tutti_options_t options;
    tutti__comm_t *comm = NULL;
    tutti_status_t status = read_options(user, &options);

    if (status != TUTTI_OK)
        return status;
    tutti__mutex_lock(&world_lock);
    /* A forked child must first call tutti_finalize, to forget its parent's world. */
    if (atomic_load(&world) != NULL)
        status = tutti__comm_of(atomic_load(&world), &comm);
    if (status == TUTTI_OK && atomic_load(&world) != NULL)
        status = tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "tutti_init was called already");
    if (status == TUTTI_OK)
        status = open_world(&options, &comm);
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
    tutti__mutex_lock(&world_lock);
    handle = atomic_exchange(&world, NULL);
    /* In a forked child this is the parent's world, which is not touched. */
    if (handle != NULL && tutti__comm_of(handle, &comm) == TUTTI_OK)
        tutti__comm_close(comm);
    tutti__id_end_all();
    tutti__mutex_unlock(&world_lock);
    return TUTTI_OK;
}

tutti_status_t tutti_unique_id_create(tutti_unique_id_t *ret_id)
{
    tutti__conf_t conf;
    tutti_status_t status;

    if (ret_id == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "ret_id is NULL");
    status = tutti__conf_read(&conf);
    return status == TUTTI_OK ? tutti__id_create(&conf, ret_id) : status;
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
