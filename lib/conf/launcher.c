/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the launcher that has started this process, from the environment.
 *
 * Each launcher sets the number of ranks in a variable of its own. If several launchers' variables
 * are set, the first launcher of the table is used. For example, mpirun or mpiexec inside a Slurm
 * job starts its helpers with srun. So Slurm's variables are also set, but describe the helpers.
 *
 * Not in the table:
 *   SLURM_NTASKS         is also set in a batch script, which runs once. SLURM_STEP_NUM_TASKS is
 *                        set only in processes that srun has started
 *   PMIX_RANK            has no variable for the size. The launchers that set PMIX_RANK (Open MPI,
 *                        srun) also set a variable of the table
 *   RANK and WORLD_SIZE  identify no launcher, and so no MPI; see job.c. Without MASTER_ADDR, they
 *                        only show that a world of one rank is wrong; see tutti__conf_company
 */
#include "conf/conf_inside.h"
#include "conf/parse.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
    MPIRUN,
    MPIRUN_RSH,
    MPIEXEC,
    SRUN,
    LAUNCHERS
} launcher_t;

static const struct {
    const char *size, *rank, *local;
    const char *launcher; /* the command's name */
    const char *mpi;      /* NULL: the launcher serves several MPIs */
} launchers[LAUNCHERS] = {
    [MPIRUN] = { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                 "mpirun", "openmpi" },
    [MPIRUN_RSH] = { "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE",
                     "mpirun_rsh", "mpich" },
    [MPIEXEC] = { "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "mpiexec", "mpich" },
    [SRUN] = { "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE", "srun", NULL },
};

int tutti__conf_int(const char *name)
{
    const char *text = secure_getenv(name);
    uint64_t value;

    if (text == NULL || !tutti__parse_count(text, &value) || value > INT_MAX)
        return -1;
    return (int)value;
}

/* The first launcher whose size variable is set, or -1. */
static int find(void)
{
    for (int i = 0; i < LAUNCHERS; i++)
        if (tutti__conf_int(launchers[i].size) > 0)
            return i;
    return -1;
}

/* The launcher that has started the process. Both mpiexec and srun set PMI_SIZE, for any MPI. Only
   mpiexec sets MPI_LOCALNRANKS. */
static int find_name(void)
{
    int found = find();

    if (found == MPIEXEC && tutti__conf_int(launchers[SRUN].size) > 0 &&
        tutti__conf_int("MPI_LOCALNRANKS") < 0)
        return SRUN;
    return found;
}

int tutti__conf_launcher_size(const char **ret_name)
{
    int found = find();

    if (found < 0)
        return 0;
    *ret_name = launchers[find_name()].launcher;
    return tutti__conf_int(launchers[found].size);
}

int tutti__conf_env(uint32_t *ret_rank, uint32_t *ret_size)
{
    int rank = tutti__conf_int("RANK"), size = tutti__conf_int("WORLD_SIZE");

    if (size <= 1 || rank < 0 || rank >= size || tutti__conf_text("MASTER_ADDR") == NULL)
        return 0;
    *ret_rank = (uint32_t)rank;
    *ret_size = (uint32_t)size;
    return 1;
}

int tutti__conf_job_size(void)
{
    uint32_t rank, size;
    const char *name;

    return tutti__conf_env(&rank, &size) ? (int)size : tutti__conf_launcher_size(&name);
}

/* With --mpi=none, srun sets none of these variables. Without these variables, MPI_Init of Open MPI
   ends the process, and other MPIs make a world of one rank. */
int tutti__conf_launcher_lacks_mpi(void)
{
    return find_name() == SRUN && tutti__conf_text("PMIX_RANK") == NULL &&
           tutti__conf_text("PMI_RANK") == NULL && tutti__conf_text("PMI_FD") == NULL &&
           tutti__conf_text("PMIX_NAMESPACE") == NULL &&
           tutti__conf_text("I_MPI_PMI_LIBRARY") == NULL;
}

int tutti__conf_launcher_lacks_pmix(void)
{
    return find_name() == SRUN && tutti__conf_text("PMIX_RANK") == NULL &&
           tutti__conf_text("PMIX_NAMESPACE") == NULL;
}

/* mpiexec's PMI_FD is not used: it is for PMI-1, which has no common library. */
tutti__conf_pm_t tutti__conf_pm(void)
{
    if (tutti__conf_int("PMIX_RANK") >= 0 && tutti__conf_text("PMIX_NAMESPACE") != NULL)
        return TUTTI__CONF_PMIX;
    return find_name() == SRUN && tutti__conf_int("PMI_FD") >= 0 ? TUTTI__CONF_PMI2
                                                                 : TUTTI__CONF_NO_PM;
}

int tutti__conf_launcher_own_rank(void)
{
    int found = find();

    return found < 0 ? -1 : tutti__conf_int(launchers[found].rank);
}

int tutti__conf_launcher_rank(void)
{
    uint32_t rank, size;

    return tutti__conf_env(&rank, &size) ? (int)rank : tutti__conf_launcher_own_rank();
}

/* Returns LOCAL_WORLD_SIZE, if env:// is complete, or the number at the beginning of the launcher's
   variable: srun writes "4(x2),3" for two nodes with 4 tasks and a third node with 3 tasks. */
int tutti__conf_launcher_local_size(void)
{
    int found = find_name();
    const char *text = found < 0 ? NULL : secure_getenv(launchers[found].local);
    char number[16];
    uint32_t rank, size;
    uint64_t value;

    if (tutti__conf_env(&rank, &size))
        return TUTTI__MAX(tutti__conf_int("LOCAL_WORLD_SIZE"), 0);
    if (text == NULL)
        return 0;
    snprintf(number, sizeof(number), "%.*s", (int)strcspn(text, "(,"), text);
    return tutti__parse_count(number, &value) && value <= INT_MAX ? (int)value : 0;
}

const char *tutti__conf_launcher_mpi(void)
{
    int found = find_name();

    return found < 0 ? NULL : launchers[found].mpi;
}

void tutti__conf_launcher_job(char *ret_text, size_t text_bytes)
{
    const char *space = secure_getenv("PMIX_NAMESPACE"), *job = secure_getenv("SLURM_JOB_ID");
    const char *step = secure_getenv("SLURM_STEP_ID");

    ret_text[0] = '\0';
    if (space != NULL)
        snprintf(ret_text, text_bytes, "%s", space);
    else if (find_name() == SRUN && job != NULL && step != NULL)
        snprintf(ret_text, text_bytes, "%s.%s", job, step);
}

/* ---- no launcher of the table, or a launcher with size 1 ---- */

/* Variables with a rank. This file reads no variables with the sizes that belong to these ranks. If
   the rank is above 0, there are other ranks. */
static const char *const ranks_only[] = { "PMIX_RANK", "JSM_NAMESPACE_RANK" };
/* Variables whose size may belong to an allocation, or to the program that started this one. */
static const char *const sizes_only[] = { "SLURM_NTASKS", "WORLD_SIZE" };

static int find_rank(char *ret_text, size_t text_bytes)
{
    const char *name = NULL;

    for (size_t i = 0; i < sizeof(ranks_only) / sizeof(*ranks_only) && name == NULL; i++)
        if (tutti__conf_int(ranks_only[i]) > 0)
            name = ranks_only[i];
    for (int i = 0; i < LAUNCHERS && name == NULL; i++)
        if (tutti__conf_int(launchers[i].rank) > 0)
            name = launchers[i].rank;
    if (name != NULL)
        snprintf(ret_text, text_bytes, "%s=%d", name, tutti__conf_int(name));
    return name != NULL;
}

/* Are RANK and WORLD_SIZE both set, with at least one value that is no number? */
static int are_garbled(char *ret_text, size_t text_bytes)
{
    const char *rank = secure_getenv("RANK"), *size = secure_getenv("WORLD_SIZE");

    if (rank == NULL || size == NULL || *rank == '\0' || *size == '\0' ||
        (tutti__conf_int("RANK") >= 0 && tutti__conf_int("WORLD_SIZE") >= 0))
        return 0;
    snprintf(ret_text, text_bytes, "RANK=%.28s, WORLD_SIZE=%.28s (not both numbers)", rank, size);
    return 1;
}

tutti__conf_company_t tutti__conf_company(char *ret_text, size_t text_bytes)
{
    int rank = tutti__conf_int("RANK"), size = tutti__conf_int("WORLD_SIZE");

    /* torchrun and similar programs set these two variables, also inside mpirun -np 1. */
    if (size > 1 && rank >= 0 && rank < size) {
        snprintf(ret_text, text_bytes, "RANK=%d and WORLD_SIZE=%d", rank, size);
        return TUTTI__CONF_IN_COMPANY;
    }
    /* The launcher has started one rank. Other variables may belong to an outer launcher. */
    if (find() >= 0)
        return TUTTI__CONF_ALONE;
    if (find_rank(ret_text, text_bytes))
        return TUTTI__CONF_IN_COMPANY;
    if (are_garbled(ret_text, text_bytes))
        return TUTTI__CONF_PERHAPS_ALONE;
    for (size_t i = 0; i < sizeof(sizes_only) / sizeof(*sizes_only); i++)
        if (tutti__conf_int(sizes_only[i]) > 1) {
            snprintf(ret_text, text_bytes, "%s=%d", sizes_only[i], tutti__conf_int(sizes_only[i]));
            return TUTTI__CONF_PERHAPS_ALONE;
        }
    if (rank > 0 && size < 0) {
        snprintf(ret_text, text_bytes, "RANK=%d", rank);
        return TUTTI__CONF_PERHAPS_ALONE;
    }
    return TUTTI__CONF_ALONE;
}
