/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses how this process meets the others.
 *
 * The main rule: N processes of one job must never become N worlds of one, because each would train
 * alone without any sign of an error. So if a launcher has started several ranks,
 * tutti_init gives each rank a world of all of them, or an error.
 */
#include "base/log.h"
#include "base/status.h"
#include "boot/module.h"
#include "boot/starting.h"

#include <string.h>

static const char *const local_prefix = "local:";

static tutti_status_t meet_mpi(const tutti__conf_t *conf, const void *mpi_comm,
                               tutti__meet_t *ret_meet, const tutti__mpi_module_t **ret_module)
{
    const tutti__mpi_module_t *module;
    tutti__starting_t *starting;
    tutti_status_t status;

    status = tutti__module_mpi(conf, &module);
    if (status != TUTTI_OK)
        return status;
    starting = tutti__module_mpi_runs() ? NULL : tutti__starting_begin(conf);
    status = module->meet(tutti__module_core(), mpi_comm, ret_meet);
    tutti__starting_end(starting);
    if (status == TUTTI_OK)
        *ret_module = module;
    return status;
}

static tutti_status_t meet_local(const tutti__conf_t *conf, tutti__meet_t *ret_meet)
{
    if (conf->rank < 0 || conf->size <= conf->rank || conf->size > UINT32_MAX)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_BOOT=%s needs TUTTI_RANK and TUTTI_SIZE; they are %lld and %lld",
                           conf->boot, (long long)conf->rank, (long long)conf->size);
    return tutti__meet_local(conf->boot + strlen(local_prefix), (uint32_t)conf->rank,
                             (uint32_t)conf->size, conf->shared.timeout_ms, ret_meet);
}

/* As TUTTI_BOOT requires. */
static tutti_status_t meet_as_told(const tutti__conf_t *conf, const void *mpi_comm,
                                   tutti__meet_t *ret_meet, const tutti__mpi_module_t **ret_module)
{
    if (strcmp(conf->boot, "mpi") == 0)
        return meet_mpi(conf, mpi_comm, ret_meet, ret_module);
    if (strncmp(conf->boot, local_prefix, strlen(local_prefix)) == 0)
        return meet_local(conf, ret_meet);
    if (strcmp(conf->boot, "self") != 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_BOOT=%s is not one of self, mpi, local:NAME", conf->boot);
    tutti__meet_self(ret_meet);
    return TUTTI_OK;
}

/* Only the launchers' variables can still show that other ranks exist. */
static tutti_status_t check_alone(void)
{
    char vars[96];

    switch (tutti__conf_company(vars, sizeof(vars))) {
    case TUTTI__CONF_IN_COMPANY:
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "there are other ranks (%s), but no way to meet them: start the ranks "
                           "with mpirun, or set options->unique_id or options->store; "
                           "TUTTI_BOOT=self makes a world of one",
                           vars);
    case TUTTI__CONF_PERHAPS_ALONE:
        TUTTI__LOG(TUTTI__LOG_WARN,
                   "%s, but no launcher started this process: it is a world of one "
                   "(TUTTI_BOOT=self: without this warning)",
                   vars);
        return TUTTI_OK;
    default:
        return TUTTI_OK;
    }
}

tutti_status_t tutti__boot_meet(const tutti__conf_t *conf, const void *mpi_comm,
                                tutti__meet_t *ret_meet, const tutti__mpi_module_t **ret_module)
{
    const char *launcher = "";
    int size = tutti__conf_launcher_size(&launcher);
    tutti_status_t status;

    *ret_module = NULL;
    if (conf->boot[0] != '\0')
        return meet_as_told(conf, mpi_comm, ret_meet, ret_module);
    if (mpi_comm == NULL && size <= 1 && !tutti__module_mpi_runs()) {
        status = check_alone();
        if (status != TUTTI_OK)
            return status;
        TUTTI__LOG(TUTTI__LOG_DEBUG, "a world of one rank");
        tutti__meet_self(ret_meet);
        return TUTTI_OK;
    }
    status = meet_mpi(conf, mpi_comm, ret_meet, ret_module);
    if (status != TUTTI_OK && size > 1)
        return tutti__fail(status, "%s started %d ranks, but: %s", launcher, size,
                           tutti_last_error());
    if (status != TUTTI_OK)
        return status;
    if (mpi_comm != NULL || ret_meet->size > 1)
        return TUTTI_OK;
    status = size <= 1 ? check_alone()
                       : tutti__fail(TUTTI_ERR_UNSUPPORTED,
                                     "%s started %d ranks, but MPI in this process says that it is "
                                     "alone: they are not of the same MPI",
                                     launcher, size);
    if (status != TUTTI_OK) {
        ret_meet->close(ret_meet->ctx);
        *ret_module = NULL;
    }
    return status;
}
