/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This process's place in a job, from the environment, for ranks that meet without MPI.
 *
 * The rank and the number of ranks come from the first of these sources that is set:
 *
 *   env://       RANK, WORLD_SIZE, with MASTER_ADDR (PyTorch's names; torchrun sets them)
 *   a launcher   OMPI_COMM_WORLD_RANK and _SIZE, MV2_COMM_WORLD_..., PMI_RANK and PMI_SIZE, or
 *                SLURM_PROCID and SLURM_STEP_NUM_TASKS: see launcher.c
 *   Slurm        SLURM_PROCID and SLURM_NTASKS, with TUTTI_BOOT=env only: a batch script also has
 *                these variables, but runs once
 *
 * Rank 0 listens at an address and a port, each from the first source that is set:
 *
 *   address   MASTER_ADDR; AZ_BATCH_MASTER_NODE; the first host of srun's list of nodes
 *   port      TUTTI_PORT; MASTER_PORT; with AZ_BATCH_MASTER_NODE: AZURE_PORT, because the port in
 *             that variable belongs to the Azure Batch service; with srun: a number made from the
 *             job's number
 *   neither   but a Unix socket, under three conditions: the first two addresses are not set; the
 *             launcher has started all ranks on this host; the job has a name
 *
 * If TORCHELASTIC_USE_AGENT_STORE is True, torchrun's agent itself listens at MASTER_PORT.
 */
#include "base/compiler.h"
#include "base/status.h"
#include "conf/conf_inside.h"
#include "conf/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The port that Azure's documentation recommends. */
#define AZURE_PORT 6105u
/* For srun: ports from 16384 to 32767, because Linux uses higher ports for outgoing connections. */
#define SLURM_PORT 16384u
#define SLURM_PORTS 16384u
/* The distance between the ports of consecutive steps of a job, which may run at the same time. */
#define SLURM_STEP_PORTS 101u

static void put(char *to, size_t capacity, const char *text)
{
    snprintf(to, capacity, "%s", text != NULL ? text : "");
}

static void miss(tutti__conf_job_t *job, const char *what)
{
    size_t used = strlen(job->missing);

    snprintf(job->missing + used, sizeof(job->missing) - used, "%s%s", used > 0 ? " and " : "",
             what);
}

/* A variable has an invalid value. With env:// this is an error. With a launcher's variables the
   value counts as missing, because the ranks may meet by the launcher's MPI. */
static tutti_status_t reject(tutti__conf_job_t *job, const char *name, const char *text,
                             const char *what)
{
    char valid[80];

    if (job->is_env)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s=%.80s is no %s", name, text, what);
    snprintf(valid, sizeof(valid), "a valid %s", name);
    miss(job, valid);
    return TUTTI_OK;
}

/* ---- rank and size ---- */

static tutti_status_t contradiction(const char *rank, const char *size)
{
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "MASTER_ADDR is set, but RANK=%.20s and WORLD_SIZE=%.20s are no rank and "
                       "number of ranks",
                       rank != NULL ? rank : "(not set)", size != NULL ? size : "(not set)");
}

/* Read RANK and WORLD_SIZE. If a variable is not set, or WORLD_SIZE is 1, job->size stays 0. */
static tutti_status_t read_env(tutti__conf_job_t *job)
{
    const char *rank = tutti__conf_text("RANK"), *size = tutti__conf_text("WORLD_SIZE");
    const char *launcher = "";

    if (tutti__conf_env(&job->rank, &job->size)) {
        put(job->source, sizeof(job->source), "env://");
        job->is_env = 1;
        job->is_launcher_equal = tutti__conf_launcher_size(&launcher) == (int)job->size &&
                                 tutti__conf_launcher_own_rank() == (int)job->rank;
        return TUTTI_OK;
    }
    if (tutti__conf_text("MASTER_ADDR") == NULL || (rank == NULL && size == NULL) ||
        tutti__conf_launcher_size(&launcher) > 0)
        return TUTTI_OK;
    /* Variables of a job with a single rank do not contradict each other. */
    if (tutti__conf_int("WORLD_SIZE") == 1 && (rank == NULL || tutti__conf_int("RANK") == 0))
        return TUTTI_OK;
    return contradiction(rank, size);
}

static void read_launcher(int told, tutti__conf_job_t *job)
{
    const char *name = "srun";
    int size = tutti__conf_launcher_size(&name), rank = tutti__conf_launcher_own_rank();

    if (size < 1 && told) {
        size = tutti__conf_int("SLURM_NTASKS");
        rank = tutti__conf_int("SLURM_PROCID");
    }
    if (size <= 1)
        return;
    snprintf(job->source, sizeof(job->source), "%s's variables", name);
    job->size = (uint32_t)size;
    if (rank < 0 || rank >= size)
        miss(job, "this process's rank");
    else
        job->rank = (uint32_t)rank;
}

/* ---- the place ---- */

/* Store a host's name, or an IPv6 address without brackets. Returns 0 if empty or too long. */
static int put_host(tutti__conf_job_t *job, const char *text, size_t length)
{
    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof(job->addr))
        return 0;
    snprintf(job->addr, sizeof(job->addr), "%.*s", (int)length, text);
    return 1;
}

/* Store the host of a text in Azure's form, address and port: "10.0.0.4:6000". */
static int put_azure(tutti__conf_job_t *job, const char *text)
{
    const char *colon = strrchr(text, ':');

    return put_host(job, text, colon != NULL ? (size_t)(colon - text) : strlen(text));
}

static const char *slurm_nodes(void)
{
    static const char *const names[] = { "SLURM_STEP_NODELIST", "SLURM_NODELIST",
                                         "SLURM_JOB_NODELIST" };
    const char *text = NULL;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && text == NULL; i++)
        text = tutti__conf_text(names[i]);
    return text;
}

static int is_slurm(const tutti__conf_job_t *job)
{
    return strcmp(job->source, "srun's variables") == 0;
}

static int all_are_here(void)
{
    const char *name;
    int size = tutti__conf_launcher_size(&name);

    return size > 0 && tutti__conf_launcher_local_size() == size;
}

static tutti_status_t read_address(tutti__conf_job_t *job)
{
    const char *master = tutti__conf_text("MASTER_ADDR");
    const char *azure = tutti__conf_text("AZ_BATCH_MASTER_NODE"), *nodes = slurm_nodes();
    const char *name = "MASTER_ADDR", *text = master;
    int ok = 1;

    if (master != NULL) {
        ok = put_host(job, master, strlen(master));
    } else if (azure != NULL) {
        name = "AZ_BATCH_MASTER_NODE";
        text = azure;
        ok = put_azure(job, azure);
    } else if (job->run[0] != '\0' && all_are_here()) {
        return TUTTI_OK;
    } else if (is_slurm(job) && nodes != NULL) {
        name = "SLURM_NODELIST";
        text = nodes;
        ok = tutti__parse_first_host(nodes, job->addr, sizeof(job->addr));
    } else {
        miss(job, "MASTER_ADDR");
    }
    return ok ? TUTTI_OK : reject(job, name, text, "name of a host");
}

static tutti_status_t read_port(const tutti__conf_t *conf, tutti__conf_job_t *job)
{
    const char *text = tutti__conf_text("MASTER_PORT");
    const char *agent = tutti__conf_text("TORCHELASTIC_USE_AGENT_STORE");
    int port = tutti__conf_int("MASTER_PORT"), step = tutti__conf_int("SLURM_STEP_ID"), taken = 0;
    int slurm = tutti__conf_int("SLURM_JOB_ID");

    if (conf->port > 0) {
        job->port = (uint32_t)conf->port;
        put(job->port_source, sizeof(job->port_source), "TUTTI_PORT");
    } else if (text != NULL && (port < 1 || port > 65535)) {
        return reject(job, "MASTER_PORT", text, "port");
    } else if (text != NULL) {
        job->port = (uint32_t)port;
        job->port_is_taken = agent != NULL && tutti__parse_boolean(agent, &taken) && taken;
        put(job->port_source, sizeof(job->port_source), "MASTER_PORT");
    } else if (tutti__conf_text("MASTER_ADDR") == NULL &&
               tutti__conf_text("AZ_BATCH_MASTER_NODE") != NULL) {
        job->port = AZURE_PORT;
        put(job->port_source, sizeof(job->port_source), "MASTER_PORT is not set");
    } else if (is_slurm(job) && slurm >= 0) {
        job->port =
            SLURM_PORT +
            ((uint32_t)slurm + SLURM_STEP_PORTS * (uint32_t)TUTTI__MAX(step, 0)) % SLURM_PORTS;
        put(job->port_source, sizeof(job->port_source), "SLURM_JOB_ID");
    } else {
        miss(job, "MASTER_PORT");
    }
    return TUTTI_OK;
}

/* Has torchrun started all ranks on this host? If so, no other host needs to reach rank 0. */
static int is_torchrun_alone(const tutti__conf_job_t *job)
{
    return job->is_env && tutti__conf_text("TORCHELASTIC_RUN_ID") != NULL &&
           tutti__conf_int("LOCAL_WORLD_SIZE") == (int)job->size;
}

/* Are there several agents of torchrun? If so, the number of restarts is not used: each agent
   counts only the failures of its own ranks, so the agents may have different numbers. */
static int has_agents(const tutti__conf_job_t *job)
{
    int local = tutti__conf_int("LOCAL_WORLD_SIZE");

    return local > 0 && local < (int)job->size;
}

/* Read the job's name, by which the job's ranks identify each other, and the number of restarts. */
static void read_run(tutti__conf_job_t *job)
{
    const char *elastic = tutti__conf_text("TORCHELASTIC_RUN_ID");
    const char *restart = NULL;
    uint64_t count;

    if (job->is_env) {
        put(job->run, sizeof(job->run), elastic);
        if (!has_agents(job))
            restart = tutti__conf_text("TORCHELASTIC_RESTART_COUNT");
    } else {
        tutti__conf_launcher_job(job->run, sizeof(job->run));
        if (is_slurm(job))
            restart = tutti__conf_text("SLURM_RESTART_COUNT");
    }
    if (restart != NULL && tutti__parse_count(restart, &count))
        job->restart = count;
}

tutti_status_t tutti__conf_job(const tutti__conf_t *conf, int told, tutti__conf_job_t *ret_job)
{
    tutti_status_t status;

    memset(ret_job, 0, sizeof(*ret_job));
    status = read_env(ret_job);
    if (status == TUTTI_OK && ret_job->size == 0)
        read_launcher(told, ret_job);
    if (status != TUTTI_OK || ret_job->size == 0)
        return status;
    read_run(ret_job);
    ret_job->is_addressed = tutti__conf_text("MASTER_ADDR") != NULL || conf->port > 0 ||
                            tutti__conf_text("AZ_BATCH_MASTER_NODE") != NULL;
    status = read_address(ret_job);
    if (status == TUTTI_OK && (ret_job->addr[0] != '\0' || ret_job->missing[0] != '\0'))
        status = read_port(conf, ret_job);
    if (status == TUTTI_OK && is_torchrun_alone(ret_job))
        put(ret_job->addr, sizeof(ret_job->addr), "127.0.0.1");
    return status;
}

/* If TUTTI_PORT is set, MASTER_PORT counts as set. */
void tutti__conf_env_unset(char *ret_text, size_t text_bytes)
{
    static const char *const names[] = { "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT" };
    enum {
        NAMES = sizeof(names) / sizeof(*names)
    };
    int is_set[NAMES], left = 0, are_all_set;
    size_t used = 0;

    for (int i = 0; i < NAMES; i++) {
        is_set[i] = tutti__conf_text(names[i]) != NULL ||
                    (i == NAMES - 1 && tutti__conf_text("TUTTI_PORT") != NULL);
        left += !is_set[i];
    }
    are_all_set = left == 0;
    left = are_all_set ? NAMES : left;
    ret_text[0] = '\0';
    for (int i = 0; i < NAMES; i++) {
        if (is_set[i] && !are_all_set)
            continue;
        left--;
        put(ret_text + used, text_bytes - used, names[i]);
        used += strlen(ret_text + used);
        put(ret_text + used, text_bytes - used, left > 1 ? ", " : left == 1 ? " and " : "");
        used += strlen(ret_text + used);
    }
}

int tutti__conf_job_is_one(void)
{
    const char *name;

    return tutti__conf_int("WORLD_SIZE") == 1 || tutti__conf_launcher_size(&name) == 1 ||
           tutti__conf_int("SLURM_NTASKS") == 1;
}
