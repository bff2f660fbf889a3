/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The place of a process in its job, from the variables of env:// and of launchers: which variables
 * count, and in which order.
 */
#include "conf/conf_inside.h"
#include "conf/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int clean_environment(void **state)
{
    (void)state;
    return clearenv();
}

#define cleanly(test) cmocka_unit_test_setup_teardown(test, clean_environment, clean_environment)

/* "NAME=VALUE NAME=VALUE" */
static void set(const char *env)
{
    char name[64], value[128];
    int used;

    for (; sscanf(env, " %63[^=]=%127s%n", name, value, &used) == 2; env += used)
        setenv(name, value, 1);
}

static tutti__conf_job_t read_job(int told)
{
    tutti__conf_job_t job;
    tutti__conf_t conf;

    assert_int_equal(tutti__conf_read(&conf), TUTTI_OK);
    assert_int_equal(tutti__conf_job(&conf, told, &job), TUTTI_OK);
    return job;
}

static void expect(const char *source, uint32_t rank, uint32_t size, const char *addr,
                   uint32_t port, int is_taken)
{
    tutti__conf_job_t job = read_job(0);

    assert_string_equal(job.source, source);
    assert_string_equal(job.missing, "");
    assert_int_equal(job.rank, rank);
    assert_int_equal(job.size, size);
    assert_string_equal(job.addr, addr);
    assert_int_equal(job.port, port);
    assert_int_equal(job.port_is_taken, is_taken);
}

static void refuse(const char *words)
{
    tutti__conf_job_t job;
    tutti__conf_t conf;

    assert_int_equal(tutti__conf_read(&conf), TUTTI_OK);
    assert_int_equal(tutti__conf_job(&conf, 0, &job), TUTTI_ERR_INVALID_ARGUMENT);
    if (strstr(tutti_last_error(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), words);
}

static void test_no_job(void **state)
{
    static const char *const alone[] = {
        "",
        "RANK=0 WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=1",
        "RANK=0 WORLD_SIZE=4",
        "MASTER_ADDR=a MASTER_PORT=1",
        "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0",
        "SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_NODELIST=a SLURM_JOB_ID=3",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(alone) / sizeof(*alone); i++) {
        clearenv();
        set(alone[i]);
        assert_int_equal(read_job(0).size, 0);
    }
}

static void test_env(void **state)
{
    tutti__conf_job_t job;

    (void)state;
    set("RANK=3 WORLD_SIZE=8 MASTER_ADDR=host-a MASTER_PORT=29500");
    expect("env://", 3, 8, "host-a", 29500, 0);
    job = read_job(0);
    assert_int_equal(job.is_env, 1);
    assert_int_equal(job.is_launcher_equal, 0);
    assert_string_equal(job.run, "");
    assert_int_equal(job.restart, 0);
    set("MASTER_ADDR=[fe80::1]");
    expect("env://", 3, 8, "fe80::1", 29500, 0);

    /* A rank of torchrun on two hosts. */
    set("TORCHELASTIC_RUN_ID=run TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_USE_AGENT_STORE=True "
        "LOCAL_WORLD_SIZE=4 LOCAL_RANK=3 MASTER_ADDR=host-a");
    expect("env://", 3, 8, "host-a", 29500, 1);
    job = read_job(0);
    assert_string_equal(job.run, "run");
    /* The number of restarts is not used, because two agents may count differently. */
    assert_int_equal(job.restart, 0);
    set("TORCHELASTIC_USE_AGENT_STORE=False");
    expect("env://", 3, 8, "host-a", 29500, 0);
    set("TORCHELASTIC_USE_AGENT_STORE=True TUTTI_PORT=1234");
    expect("env://", 3, 8, "host-a", 1234, 0);
    unsetenv("TUTTI_PORT");
    /* A rank of torchrun on one host. */
    set("LOCAL_WORLD_SIZE=8");
    expect("env://", 3, 8, "127.0.0.1", 29500, 1);
    assert_int_equal(read_job(0).restart, 2);
    assert_int_equal(tutti__conf_launcher_local_size(), 8);
    assert_int_equal(tutti__conf_launcher_rank(), 3);
    assert_int_equal(tutti__conf_job_size(), 8);
}

/* torchrun may run inside a launcher's job; then torchrun's numbers count. A script may also copy
   the launcher's numbers to torchrun's variables. */
static void test_env_in_launcher(void **state)
{
    (void)state;
    set("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 RANK=5 WORLD_SIZE=8 MASTER_ADDR=a "
        "MASTER_PORT=7");
    expect("env://", 5, 8, "a", 7, 0);
    assert_int_equal(read_job(0).is_launcher_equal, 0);
    set("OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=5");
    expect("env://", 5, 8, "a", 7, 0);
    assert_int_equal(read_job(0).is_launcher_equal, 1);
    set("OMPI_COMM_WORLD_RANK=4");
    assert_int_equal(read_job(0).is_launcher_equal, 0);
    set("WORLD_SIZE=1 RANK=0");
    expect("mpirun's variables", 4, 8, "a", 7, 0);
}

static void test_env_nonsense(void **state)
{
    (void)state;
    set("MASTER_ADDR=a MASTER_PORT=1 RANK=2 WORLD_SIZE=2");
    refuse("RANK=2 and WORLD_SIZE=2 are no rank and number of ranks");
    set("WORLD_SIZE=many");
    refuse("WORLD_SIZE=many");
    unsetenv("WORLD_SIZE");
    refuse("WORLD_SIZE=(not set)");
    set("WORLD_SIZE=4");
    unsetenv("RANK");
    refuse("RANK=(not set)");
    set("RANK=0 MASTER_PORT=0");
    refuse("MASTER_PORT=0 is no port");
    set("MASTER_PORT=65536");
    refuse("is no port");
    unsetenv("MASTER_PORT");
    assert_string_equal(read_job(0).missing, "MASTER_PORT");
    set("TUTTI_PORT=9");
    expect("env://", 0, 4, "a", 9, 0);
}

static void test_launchers(void **state)
{
    tutti__conf_job_t job;

    (void)state;
    set("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3");
    job = read_job(0);
    assert_string_equal(job.source, "mpirun's variables");
    assert_string_equal(job.missing, "MASTER_ADDR and MASTER_PORT");
    /* If all ranks are on this host, they need a name instead of an address. */
    set("OMPI_COMM_WORLD_LOCAL_SIZE=4");
    assert_string_equal(read_job(0).missing, "MASTER_ADDR and MASTER_PORT");
    set("PMIX_NAMESPACE=job7");
    expect("mpirun's variables", 3, 4, "", 0, 0);
    assert_string_equal(read_job(0).run, "job7");
    set("AZ_BATCH_MASTER_NODE=10.0.0.4:6000");
    expect("mpirun's variables", 3, 4, "10.0.0.4", 6105, 0);
    set("MASTER_PORT=77");
    expect("mpirun's variables", 3, 4, "10.0.0.4", 77, 0);
    set("MASTER_ADDR=h");
    expect("mpirun's variables", 3, 4, "h", 77, 0);
    /* A wrong port is no error here, because MPI may work. */
    set("MASTER_PORT=none");
    assert_string_equal(read_job(0).missing, "a valid MASTER_PORT");
    set("OMPI_COMM_WORLD_RANK=4");
    assert_string_equal(read_job(0).missing, "this process's rank and a valid MASTER_PORT");
}

static void test_slurm(void **state)
{
    uint32_t port;

    (void)state;
    set("SLURM_NTASKS=6 SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NODELIST=node[03-05,9],x "
        "SLURM_JOB_ID=1234567");
    assert_int_equal(read_job(0).size, 0);
    assert_int_equal(read_job(1).size, 6);
    /* mpirun -np 1 in a batch script */
    set("OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0");
    assert_int_equal(read_job(1).size, 0);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("OMPI_COMM_WORLD_RANK");
    set("SLURM_STEP_NUM_TASKS=6 SLURM_STEP_ID=0");
    port = read_job(0).port;
    assert_in_range(port, 16384, 32767);
    expect("srun's variables", 5, 6, "node03", port, 0);
    assert_string_equal(read_job(0).run, "1234567.0");
    set("SLURM_STEP_ID=1 SLURM_RESTART_COUNT=3");
    assert_int_not_equal(read_job(0).port, port);
    assert_int_equal(read_job(0).restart, 3);
    set("SLURM_STEP_NODELIST=other7");
    expect("srun's variables", 5, 6, "other7", read_job(0).port, 0);
    set("SLURM_STEP_TASKS_PER_NODE=2(x3)");
    expect("srun's variables", 5, 6, "other7", read_job(0).port, 0);
    set("SLURM_STEP_TASKS_PER_NODE=6");
    expect("srun's variables", 5, 6, "", 0, 0);
    assert_int_equal(tutti__conf_launcher_lacks_mpi(), 1);
    set("PMIX_RANK=5");
    assert_int_equal(tutti__conf_launcher_lacks_mpi(), 0);
    assert_int_equal(tutti__conf_launcher_lacks_pmix(), 0);
    unsetenv("PMIX_RANK");
    assert_int_equal(tutti__conf_launcher_lacks_pmix(), 1);
    set("SLURM_STEP_TASKS_PER_NODE=2(x3) SLURM_STEP_NODELIST=a[1");
    assert_string_equal(read_job(0).missing, "a valid SLURM_NODELIST");
}

static void test_process_manager(void **state)
{
    (void)state;
    assert_int_equal(tutti__conf_pm(), TUTTI__CONF_NO_PM);
    set("PMI_FD=9 PMI_RANK=0 PMI_SIZE=2");
    assert_int_equal(tutti__conf_pm(), TUTTI__CONF_NO_PM); /* mpiexec */
    set("SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0");
    assert_int_equal(tutti__conf_pm(), TUTTI__CONF_PMI2);
    set("PMIX_RANK=0");
    assert_int_equal(tutti__conf_pm(), TUTTI__CONF_PMI2);
    set("PMIX_NAMESPACE=job");
    assert_int_equal(tutti__conf_pm(), TUTTI__CONF_PMIX);
    /* Which variables name rank 0's place. */
    assert_int_equal(read_job(0).is_addressed, 0);
    set("MASTER_PORT=7");
    assert_int_equal(read_job(0).is_addressed, 0);
    set("TUTTI_PORT=7");
    assert_int_equal(read_job(0).is_addressed, 1);
    unsetenv("TUTTI_PORT");
    set("AZ_BATCH_MASTER_NODE=a:1");
    assert_int_equal(read_job(0).is_addressed, 1);
    unsetenv("AZ_BATCH_MASTER_NODE");
    set("MASTER_ADDR=a");
    assert_int_equal(read_job(0).is_addressed, 1);
}

static void test_first_host(void **state)
{
    static const struct {
        const char *list, *host;
    } good[] = { { "a", "a" },
                 { "a,b", "a" },
                 { "a[1-3]", "a1" },
                 { "a[03,5-7]", "a03" },
                 { "rack[1-2]n[07-08]-x,b", "rack1n07-x" },
                 { "a.b_c-d", "a.b_c-d" },
                 { "a[12]", "a12" } };
    static const char *const bad[] = { "", ",a", "a[1", "a b", "a;b", "a/b", "a[1;2]", "a\n" };
    char host[16], longest[300];

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        assert_true(tutti__parse_first_host(good[i].list, host, sizeof(host)));
        assert_string_equal(host, good[i].host);
    }
    snprintf(host, sizeof(host), "before");
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        if (tutti__parse_first_host(bad[i], host, sizeof(host)))
            fail_msg("\"%s\" was taken for %s", bad[i], host);
    assert_false(tutti__parse_first_host("a234567890123456", host, sizeof(host)));
    memset(longest, 'a', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    assert_false(tutti__parse_first_host(longest, host, sizeof(host)));
    assert_string_equal(host, "before");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cleanly(test_no_job),          cleanly(test_env),        cleanly(test_env_in_launcher),
        cleanly(test_env_nonsense),    cleanly(test_launchers),  cleanly(test_slurm),
        cleanly(test_process_manager), cleanly(test_first_host),
    };

    return cmocka_run_group_tests_name("conf/job", tests, NULL, NULL);
}
