/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses how this process meets the other processes: the first way in this list that applies.
 *
 *   1. the caller's unique_id or store (api/world.c), or TUTTI_BOOT
 *   2. the caller's mpi_comm, or an MPI that the process itself initialised, with several ranks
 *   3. env://, unless a launcher's variables have the same rank and size. If these differ, torchrun
 *      was started inside the launcher's job, so torchrun's variables describe this process
 *   4. the launcher's MPI, if the launcher provides the PMI that MPI needs, and an MPI module opens
 *   5. env://
 *   6. the launcher's variables, if they name a place or show that all ranks are on this host
 *   7. PMIx or PMI-2, if the launcher provides it and its library opens (meet_pm.c)
 *   8. the launcher's variables (meet_job.c)
 *   9. a world of one
 *
 * The main rule: N processes of one job must never become N worlds of one, because each process
 * would train alone without any sign of an error. So if a launcher has started several ranks,
 * tutti_init gives each rank a world of all these ranks, or an error.
 */
#include "base/log.h"
#include "base/status.h"
#include "boot/meet.h"
#include "boot/module.h"
#include "boot/starting.h"

#include <string.h>

static const char *const local_prefix = "local:";

static tutti_status_t meet_mpi(const tutti__conf_t *conf, const void *mpi_comm,
                               tutti__meet_t *ret_meet, const tutti__mpi_module_t **ret_module)
{
    const tutti__mpi_module_t *module;
    tutti__starting_t *starting;
    tutti__marks_t *marks;
    tutti_status_t status;

    status = tutti__module_mpi(conf, &module);
    if (status != TUTTI_OK)
        return status;
    marks = tutti__marks_open();
    starting = tutti__module_mpi_runs() ? NULL : tutti__starting_begin(conf, marks);
    status = module->meet(tutti__module_core(), mpi_comm, ret_meet);
    tutti__starting_end(starting);
    if (status == TUTTI_OK)
        *ret_module = module;
    /* The marks have the launcher's rank numbers; the caller's communicator may have other
       numbers. */
    if (status == TUTTI_OK && mpi_comm == NULL && ret_meet->size > 1 &&
        tutti__marks_fit(marks, ret_meet->rank, ret_meet->size))
        ret_meet->marks = marks;
    else
        tutti__marks_close(marks);
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

static tutti_status_t incomplete(const tutti__conf_job_t *job)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "there are %u ranks, by %s, but no way to meet them: not set: %s", job->size,
                       job->source, job->missing);
}

/* TUTTI_BOOT=env: meet by env:// or by the launcher's variables, without MPI. */
static tutti_status_t meet_by_env(const tutti__conf_t *conf, tutti__meet_t *ret_meet)
{
    tutti__conf_job_t job;
    char unset[64];
    tutti_status_t status = tutti__conf_job(conf, 1, &job);

    if (status != TUTTI_OK)
        return status;
    if (job.size > 0)
        return job.missing[0] != '\0' ? incomplete(&job) : tutti__meet_job(conf, &job, ret_meet);
    if (tutti__conf_job_is_one()) {
        tutti__meet_self(ret_meet);
        return TUTTI_OK;
    }
    tutti__conf_env_unset(unset, sizeof(unset));
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "TUTTI_BOOT=%s needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or a "
                       "launcher's variables; not set: %s",
                       conf->boot, unset);
}

/* TUTTI_BOOT=pmix or pmi2: meet by this process manager. If the launcher's variables are not set,
   refuse, because these libraries may make a world of one in each process. */
static tutti_status_t meet_by_pm(const tutti__conf_t *conf, tutti__conf_pm_t kind,
                                 tutti__meet_t *ret_meet)
{
    tutti__conf_job_t job;
    tutti_status_t status;

    if (tutti__conf_pm() != kind)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "TUTTI_BOOT=%s, but the launcher has not set %s; mpirun of Open MPI and "
                           "srun --mpi=pmix have PMIx, srun --mpi=pmi2 has PMI-2",
                           conf->boot,
                           kind == TUTTI__CONF_PMIX ? "PMIX_RANK and PMIX_NAMESPACE" : "PMI_FD");
    status = tutti__conf_job(conf, 0, &job);
    return status == TUTTI_OK
               ? tutti__meet_pm(conf, kind, job.size > 0 && !job.is_env ? &job : NULL, ret_meet)
               : status;
}

/* Meet as TUTTI_BOOT requires. */
static tutti_status_t meet_as_told(const tutti__conf_t *conf, const void *mpi_comm,
                                   tutti__meet_t *ret_meet, const tutti__mpi_module_t **ret_module)
{
    if (strcmp(conf->boot, "mpi") == 0)
        return meet_mpi(conf, mpi_comm, ret_meet, ret_module);
    if (strncmp(conf->boot, local_prefix, strlen(local_prefix)) == 0)
        return meet_local(conf, ret_meet);
    if (strcmp(conf->boot, "env") == 0 || strcmp(conf->boot, "env://") == 0)
        return meet_by_env(conf, ret_meet);
    if (strcmp(conf->boot, "pmix") == 0)
        return meet_by_pm(conf, TUTTI__CONF_PMIX, ret_meet);
    if (strcmp(conf->boot, "pmi2") == 0)
        return meet_by_pm(conf, TUTTI__CONF_PMI2, ret_meet);
    if (strcmp(conf->boot, "self") != 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_BOOT=%s is not one of self, mpi, env, pmix, pmi2, local:NAME",
                           conf->boot);
    tutti__meet_self(ret_meet);
    return TUTTI_OK;
}

/* Check that no variables of launchers show that other ranks exist. */
static tutti_status_t check_alone(void)
{
    char vars[96], unset[64];

    switch (tutti__conf_company(vars, sizeof(vars))) {
    case TUTTI__CONF_IN_COMPANY:
        tutti__conf_env_unset(unset, sizeof(unset));
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "there are other ranks (%s), but no way to meet them: start the ranks "
                           "with mpirun or torchrun, or set %s, options->unique_id or "
                           "options->store; TUTTI_BOOT=self makes a world of one",
                           vars, unset);
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

static tutti_status_t meet_alone(tutti__meet_t *ret_meet)
{
    tutti_status_t status = check_alone();

    if (status != TUTTI_OK)
        return status;
    TUTTI__LOG(TUTTI__LOG_DEBUG, "a world of one rank");
    tutti__meet_self(ret_meet);
    return TUTTI_OK;
}

/* Do the variables suffice for the ranks to meet without MPI? */
static int is_complete(const tutti__conf_job_t *job)
{
    return job->size > 0 && job->missing[0] == '\0';
}

/* Is the launcher's process manager better than the launcher's variables? The variables suffice if
   all ranks are on one host, or if the user has set rank 0's address or port. */
static int wants_pm(const tutti__conf_job_t *job)
{
    return job->size > 0 && !job->is_env && !job->is_addressed &&
           (job->addr[0] != '\0' || job->missing[0] != '\0') &&
           tutti__conf_pm() != TUTTI__CONF_NO_PM;
}

/* Meet without MPI: by the process manager, or by the variables of env:// or of a launcher. */
static tutti_status_t meet_without_mpi(const tutti__conf_t *conf, const tutti__conf_job_t *job,
                                       tutti__meet_t *ret_meet)
{
    tutti_status_t status;

    if (wants_pm(job)) {
        status = tutti__meet_pm(conf, tutti__conf_pm(), job, ret_meet);
        if (status != TUTTI_ERR_UNSUPPORTED)
            return status;
        TUTTI__LOG(job->rank == 0 ? TUTTI__LOG_INFO : TUTTI__LOG_DEBUG, "%s", tutti_last_error());
    }
    return is_complete(job) ? tutti__meet_job(conf, job, ret_meet) : incomplete(job);
}

/* Check a meeting over MPI: MPI may consist of this rank only. */
static tutti_status_t judge_mpi(const tutti__conf_t *conf, const tutti__conf_job_t *job,
                                const char *launcher, int size, tutti__meet_t *meet,
                                const tutti__mpi_module_t **module)
{
    tutti_status_t status;

    if (meet->size > 1) {
        TUTTI__LOG(meet->rank == 0 ? TUTTI__LOG_INFO : TUTTI__LOG_DEBUG, "%u ranks meet by MPI",
                   meet->size);
        return TUTTI_OK;
    }
    /* torchrun has started several processes, each with an MPI of its own that has one rank. */
    if (size <= 1 && is_complete(job)) {
        meet->close(meet->ctx);
        *module = NULL;
        return tutti__meet_job(conf, job, meet);
    }
    status = size <= 1 ? check_alone()
                       : tutti__fail(TUTTI_ERR_UNSUPPORTED,
                                     "%s started %d ranks, but MPI in this process has one rank: "
                                     "the launcher belongs to another MPI",
                                     launcher, size);
    if (status != TUTTI_OK) {
        meet->close(meet->ctx);
        *module = NULL;
    }
    return status;
}

/* Meet over MPI. Call this if a launcher has started several ranks, or MPI runs in this process. */
static tutti_status_t meet_by_mpi(const tutti__conf_t *conf, const tutti__conf_job_t *job,
                                  tutti__meet_t *ret_meet, const tutti__mpi_module_t **ret_module)
{
    const tutti__mpi_module_t *module;
    const char *launcher = "";
    int size = tutti__conf_launcher_size(&launcher);
    tutti_status_t status = tutti__module_mpi(conf, &module);

    if (status == TUTTI_OK && strcmp(module->name, "openmpi") == 0 &&
        tutti__conf_launcher_lacks_pmix() && !tutti__module_mpi_runs())
        status = tutti__fail(TUTTI_ERR_UNSUPPORTED,
                             "srun provides no PMIx, without which Open MPI ends the process; srun "
                             "--mpi=pmix provides it");
    if (status != TUTTI_OK && (is_complete(job) || wants_pm(job))) {
        TUTTI__LOG(job->rank == 0 ? TUTTI__LOG_INFO : TUTTI__LOG_DEBUG,
                   "the ranks meet without MPI: %s", tutti_last_error());
        return meet_without_mpi(conf, job, ret_meet);
    }
    if (status != TUTTI_OK && size > 1)
        return tutti__fail(status,
                           "%s started %d ranks, but: %s; a meeting without MPI also needs: %s",
                           launcher, size, tutti_last_error(), job->missing);
    if (status == TUTTI_OK)
        status = meet_mpi(conf, NULL, ret_meet, ret_module);
    if (status != TUTTI_OK && size > 1)
        return tutti__fail(status, "%s started %d ranks, but: %s", launcher, size,
                           tutti_last_error());
    if (status != TUTTI_OK)
        return status;
    return judge_mpi(conf, job, launcher, size, ret_meet, ret_module);
}

tutti_status_t tutti__boot_meet(const tutti__conf_t *conf, const void *mpi_comm,
                                tutti__meet_t *ret_meet, const tutti__mpi_module_t **ret_module)
{
    const char *launcher = "";
    int mpi_runs, launcher_has_mpi;
    tutti__conf_job_t job;
    tutti_status_t status;

    *ret_module = NULL;
    if (conf->boot[0] != '\0')
        return meet_as_told(conf, mpi_comm, ret_meet, ret_module);
    if (mpi_comm != NULL)
        return meet_mpi(conf, mpi_comm, ret_meet, ret_module);
    mpi_runs = tutti__module_mpi_runs();
    launcher_has_mpi =
        tutti__conf_launcher_size(&launcher) > 1 && !tutti__conf_launcher_lacks_mpi();
    status = tutti__conf_job(conf, 0, &job);
    if (status != TUTTI_OK)
        return status;
    if (!mpi_runs && job.is_env && is_complete(&job) &&
        !(launcher_has_mpi && job.is_launcher_equal))
        return tutti__meet_job(conf, &job, ret_meet);
    if (mpi_runs || launcher_has_mpi)
        return meet_by_mpi(conf, &job, ret_meet, ret_module);
    if (job.size == 0)
        return meet_alone(ret_meet);
    return meet_without_mpi(conf, &job, ret_meet);
}
