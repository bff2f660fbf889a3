/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that meet without MPI, by the variables of env:// and of launchers: in any order; with
 * missing ranks, duplicate ranks and ranks that have wrong variables; with strangers and other jobs
 * at the port; with secrets; and if another process owns MASTER_PORT, like torchrun's agent.
 *
 * Each rank is a process. A port is reserved by a socket that is bound and does not listen, so that
 * tests that run at the same time choose different ports.
 */
#include "api/api.h"
#include "tag.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
    MOST = 8,
    ALL_PORTS = 17 /* MASTER_PORT and the ports above it */
};

/* A process, and the outcome that its tutti_init must have. */
typedef struct {
    int rank, size;
    const char *env;       /* "NAME=VALUE\n...", besides the variables of env:// */
    tutti_status_t status; /* of tutti_init */
    const char *words;     /* words that the error must have */
    int delay_ms;          /* delay before tutti_init */
} member_t;

static int failures;
static int port;        /* MASTER_PORT of the present job */
static int log_fd = -1; /* stderr of the processes that are started next; -1: stderr of this
                           process */
static atomic_int *ready;
static char folder[] = "/tmp/tutti-env-XXXXXX";

/* ---- ports ---- */

static int bind_port(int number)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)number) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0);
    CHECK_INT(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Reserve `count` consecutive ports. Sets `port` to the first. */
static void reserve(int count, int *ret_fds)
{
    struct sockaddr_in addr;
    socklen_t bytes = sizeof(addr);
    int done = 0;

    while (done < count) {
        ret_fds[0] = bind_port(0);
        CHECK(ret_fds[0] >= 0);
        CHECK_INT(getsockname(ret_fds[0], (struct sockaddr *)&addr, &bytes), 0);
        port = ntohs(addr.sin_port);
        for (done = 1; done < count && port + done < 65536; done++) {
            ret_fds[done] = bind_port(port + done);
            if (ret_fds[done] < 0)
                break;
        }
        for (int i = 0; i < done && done < count; i++)
            close(ret_fds[i]);
    }
}

static int reach(void)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Wait until rank 0 listens. */
static void await_port(void)
{
    int fd;

    while ((fd = reach()) < 0)
        poll(NULL, 0, 2);
    close(fd);
}

/* ---- processes ---- */

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

static void set_all(const char *env)
{
    char name[64], value[600];
    int used;

    for (; env != NULL && sscanf(env, "%63[^=]=%599[^\n]%n", name, value, &used) == 2;
         env += used) {
        if (strcmp(value, "-") == 0)
            unsetenv(name);
        else
            setenv(name, value, 1);
        if (env[used] == '\n')
            used++;
    }
}

static void work(int rank, int size)
{
    int me = rank, all[MOST];
    float sum = 1;

    CHECK_INT(tutti_rank(tutti_world()), rank);
    CHECK_INT(tutti_size(tutti_world()), size);
    CHECK_OK(tutti_allgather(&me, all, 1, TUTTI_INT32, tutti_world()));
    for (int i = 0; i < size; i++)
        CHECK_INT(all[i], i);
    CHECK_OK(tutti_allreduce(&sum, &sum, 1, TUTTI_FLOAT32, TUTTI_SUM, tutti_world()));
    CHECK(sum == (float)size);
}

/* common: variables of all ranks. together: the number of processes that wait for each other before
   tutti_init. */
static pid_t start(const member_t *it, const char *common, int together)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(100);
    if (log_fd >= 0)
        CHECK_INT(dup2(log_fd, STDERR_FILENO), STDERR_FILENO);
    setenv("TUTTI_TIMEOUT", "60", 1);
    setenv("TUTTI_LOG", "none", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", port);
    set_number("RANK", it->rank);
    set_number("WORLD_SIZE", it->size);
    set_all(common);
    set_all(it->env);
    atomic_fetch_add(ready, 1);
    while (atomic_load(ready) < together)
        poll(NULL, 0, 1);
    poll(NULL, 0, it->delay_ms);
    if (it->words != NULL) {
        CHECK_ERROR(tutti_init(NULL), it->status, it->words);
    } else {
        CHECK_OK(tutti_init(NULL));
        work(it->rank, it->size);
        CHECK_OK(tutti_finalize());
    }
    _exit(0);
}

static void finish(const char *what, pid_t pid)
{
    int status;

    CHECK_INT(waitpid(pid, &status, 0), pid);
    if (status == 0)
        return;
    fprintf(stderr, "FAILED: %s: a process ended with %x\n", what, (unsigned)status);
    failures++;
}

/* Run all members at the same time, with the reserved port. */
static void run_here(const char *what, const member_t *members, int count, const char *common)
{
    pid_t pid[MOST];

    atomic_store(ready, 0);
    for (int i = 0; i < count; i++)
        pid[i] = start(&members[i], common, count);
    for (int i = 0; i < count; i++)
        finish(what, pid[i]);
}

static void run(const char *what, const member_t *members, int count, const char *common)
{
    int fd;

    reserve(1, &fd);
    run_here(what, members, count, common);
    close(fd);
}

/* ---- cases ---- */

static void any_order(void)
{
    member_t members[MOST] = { 0 };

    for (int size = 1; size <= MOST; size++) {
        for (int late = -1; late < size && late < 2; late++) {
            for (int i = 0; i < size; i++) {
                int rank = late < 0 ? (3 * i + 1) % size : size - 1 - i;

                /* If 3 does not divide the size, 3 i + 1 modulo the size gives each rank once. */
                members[i].rank = size % 3 == 0 ? size - 1 - i : rank;
                members[i].size = size;
                members[i].delay_ms = members[i].rank == late ? 150 : 0;
            }
            run("in any order", members, size, NULL);
        }
    }
}

/* New processes use the same port several times. */
static void again(void)
{
    member_t members[3] = { { .rank = 0, .size = 3 },
                            { .rank = 1, .size = 3 },
                            { .rank = 2, .size = 3 } };
    int fd;

    reserve(1, &fd);
    for (int round = 0; round < 4; round++)
        run_here("again", members, 3, NULL);
    close(fd);
}

static void missing(void)
{
    static const member_t last[] = {
        { 0, 4, NULL, TUTTI_ERR_TIMEOUT, "ranks 2 and 3 did not connect to rank 0", 0 },
        { 1, 4, NULL, TUTTI_ERR_TIMEOUT, "ranks 2 and 3 did not connect to rank 0", 0 },
    };
    static const member_t first[] = {
        { 1, 2, NULL, TUTTI_ERR_TIMEOUT, "rank 1 cannot reach rank 0 at 127.0.0.1 port", 0 },
    };

    run("two ranks are missing", last, 2, "TUTTI_TIMEOUT=4");
    run("rank 0 is missing", first, 1, "TUTTI_TIMEOUT=1");
}

/* Two ranks: the second rank starts after the first rank has logged `words`. */
static void warned(const char *words, const member_t *first, const member_t *second,
                   const char *common)
{
    char text[8192] = "";
    size_t used = 0;
    int fd, ends[2];
    pid_t pid[2];

    reserve(1, &fd);
    atomic_store(ready, 0);
    CHECK_INT(pipe(ends), 0);
    log_fd = ends[1];
    pid[0] = start(first, common, 0);
    log_fd = -1;
    close(ends[1]);
    while (strstr(text, words) == NULL) {
        ssize_t n = read(ends[0], text + used, sizeof(text) - 1 - used);

        if (n <= 0)
            break;
        used += (size_t)n;
        text[used] = '\0';
    }
    if (strstr(text, words) == NULL) {
        fprintf(stderr, "FAILED: no '%s' in: %s\n", words, text);
        failures++;
    }
    pid[1] = start(second, common, 0);
    finish(words, pid[0]);
    finish(words, pid[1]);
    close(ends[0]);
    close(fd);
}

static void overdue(void)
{
    static const char soon[] = "TUTTI_LOG=warn\nTUTTI_STALL_WARNING=0.2\nTUTTI_TIMEOUT=20";
    static const member_t ranks[] = { { .rank = 0, .size = 2 }, { .rank = 1, .size = 2 } };
    static const member_t nameless = { .rank = 0,
                                       .size = 2,
                                       .env = "MASTER_ADDR=no-such-host.invalid" };
    static const member_t local[] = { { .rank = 0, .size = 2, .env = "TUTTI_RANK=0" },
                                      { .rank = 1, .size = 2, .env = "TUTTI_RANK=1" } };
    static const member_t lost = { 1,
                                   2,
                                   "MASTER_ADDR=no-such-host.invalid\nTUTTI_TIMEOUT=0.5",
                                   TUTTI_ERR_TIMEOUT,
                                   "no-such-host.invalid has no address",
                                   0 };
    static const member_t alone = { .rank = 0, .size = 1 };
    char common[200];

    warned(" s: rank 1 has not connected to it\n", &ranks[0], &ranks[1], soon);
    warned(" s for rank 0, which does not answer at 127.0.0.1 port ", &ranks[1], &ranks[0], soon);
    snprintf(common, sizeof(common), "%s\nTUTTI_BOOT=local:tutti-env-%d\nTUTTI_SIZE=2", soon,
             tag());
    warned(" s for rank 0, which has not called tutti_init\n", &local[1], &local[0], common);
    /* Rank 0 logs this warning as soon as it listens. */
    warned("rank 0's name: no-such-host.invalid has no address", &nameless, &ranks[1],
           "TUTTI_LOG=warn");
    /* The other ranks log their warning after their first lookup. */
    warned("rank 1 cannot find rank 0 yet: no-such-host.invalid has no address", &lost, &alone,
           "TUTTI_LOG=warn");
}

static void misinformed(void)
{
    static const member_t size[] = {
        { 0, 3, NULL, TUTTI_ERR_INVALID_ARGUMENT, "rank 2 was told of 4 ranks, rank 0 of 3", 0 },
        { 1, 3, NULL, TUTTI_ERR_INVALID_ARGUMENT, "rank 2 was told of 4 ranks, rank 0 of 3", 0 },
        { 2, 4, NULL, TUTTI_ERR_INVALID_ARGUMENT, "rank 2 was told of 4 ranks, rank 0 of 3", 0 },
    };
    static const member_t twice[] = {
        { 0, 3, NULL, TUTTI_ERR_INVALID_ARGUMENT, "two processes are rank 1", 0 },
        { 1, 3, NULL, TUTTI_ERR_INVALID_ARGUMENT, "two processes are rank 1", 0 },
        { 1, 3, NULL, TUTTI_ERR_INVALID_ARGUMENT, "two processes are rank 1", 0 },
    };
    static const member_t zeros[] = {
        { 0, 2, NULL, TUTTI_ERR_INVALID_ARGUMENT, "two processes are rank 0", 0 },
        { 0, 2, NULL, TUTTI_ERR_INVALID_ARGUMENT, "two processes are rank 0", 0 },
    };

    run("wrong WORLD_SIZE", size, 3, NULL);
    run("rank 1 twice", twice, 3, NULL);
    run("rank 0 twice", zeros, 2, NULL);
}

/* Variables with invalid values. No other ranks are started. */
static void nonsense(void)
{
    static const member_t cases[] = {
        { 2, 2, NULL, TUTTI_ERR_INVALID_ARGUMENT, "RANK=2 and WORLD_SIZE=2 are no rank", 0 },
        { 0, 2, "WORLD_SIZE=-", TUTTI_ERR_INVALID_ARGUMENT, "WORLD_SIZE=(not set)", 0 },
        { 0, 2, "RANK=-", TUTTI_ERR_INVALID_ARGUMENT, "RANK=(not set)", 0 },
        { 0, 2, "MASTER_PORT=-", TUTTI_ERR_UNSUPPORTED, "not set: MASTER_PORT", 0 },
        { 0, 2, "MASTER_PORT=0", TUTTI_ERR_INVALID_ARGUMENT, "MASTER_PORT=0 is no port", 0 },
        { 0, 2, "MASTER_PORT=65536", TUTTI_ERR_INVALID_ARGUMENT, "is no port", 0 },
        { 0, 2, "MASTER_ADDR=-", TUTTI_ERR_UNSUPPORTED,
          "there are other ranks (RANK=0 and WORLD_SIZE=2)", 0 },
        { 0, 2, "MASTER_ADDR=-", TUTTI_ERR_UNSUPPORTED, "or set MASTER_ADDR, options->unique_id",
          0 },
        { 0, 2, "MASTER_ADDR=-\nMASTER_PORT=-", TUTTI_ERR_UNSUPPORTED,
          "or set MASTER_ADDR and MASTER_PORT, options->unique_id", 0 },
        { 0, 2, "TUTTI_BOOT=env\nRANK=-\nMASTER_ADDR=-\nMASTER_PORT=-\nTUTTI_PORT=7000",
          TUTTI_ERR_INVALID_ARGUMENT, "not set: RANK and MASTER_ADDR", 0 },
        { 0, 2, "TUTTI_JOB_SECRET=a\nTUTTI_JOB_SECRET_FILE=b", TUTTI_ERR_INVALID_ARGUMENT,
          "are both set", 0 },
        { 0, 2, "TUTTI_JOB_SECRET_FILE=/nonexistent", TUTTI_ERR_INVALID_ARGUMENT,
          "TUTTI_JOB_SECRET_FILE: cannot read /nonexistent", 0 },
        { 0, 2, "TUTTI_JOB_SECRET_FILE=/dev/null", TUTTI_ERR_INVALID_ARGUMENT, "it is empty", 0 },
        { 0, 2, "TUTTI_BOOT=env\nRANK=-\nWORLD_SIZE=-\nMASTER_ADDR=-", TUTTI_ERR_INVALID_ARGUMENT,
          "TUTTI_BOOT=env needs RANK, WORLD_SIZE", 0 },
        { 1, 2, "MASTER_ADDR=no-such-host.invalid\nTUTTI_TIMEOUT=0.5", TUTTI_ERR_TIMEOUT,
          "no-such-host.invalid has no address", 0 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        run(cases[i].words, &cases[i], 1, NULL);
}

/* A job of two ranks. Rank 1 starts after the intruders have ended. */
static void with_intruders(const char *what, const char *common, const member_t *intruders,
                           int count)
{
    const member_t ranks[] = { { .rank = 0, .size = 2 }, { .rank = 1, .size = 2 } };
    pid_t rank0, pid[MOST];
    int fd;

    reserve(1, &fd);
    atomic_store(ready, 0);
    rank0 = start(&ranks[0], common, 0);
    await_port();
    for (int i = 0; i < count; i++)
        pid[i] = start(&intruders[i], common, 0);
    for (int i = 0; i < count; i++)
        finish(what, pid[i]);
    finish(what, start(&ranks[1], common, 0));
    finish(what, rank0);
    close(fd);
}

static void secrets(void)
{
    static const member_t wrong[] = {
        { 1, 2, "TUTTI_JOB_SECRET=psst\nTUTTI_TIMEOUT=2", TUTTI_ERR_INVALID_ARGUMENT,
          "rank 1 has another job secret than rank 0", 0 },
        { 1, 9, "TUTTI_JOB_SECRET=psst! \nTUTTI_TIMEOUT=2", TUTTI_ERR_INVALID_ARGUMENT,
          "rank 1 has another job secret than rank 0", 0 },
        { 1, 2, "TUTTI_JOB_SECRET=-\nTUTTI_TIMEOUT=2", TUTTI_ERR_INVALID_ARGUMENT,
          "demands a job secret: set TUTTI_JOB_SECRET", 0 },
    };
    static const member_t needless[] = {
        { 1, 2, "TUTTI_JOB_SECRET=psst!\nTUTTI_TIMEOUT=2", TUTTI_ERR_INVALID_ARGUMENT,
          "has no job secret, but this rank has", 0 },
    };
    member_t members[2] = { { .rank = 0, .size = 2 }, { .rank = 1, .size = 2 } };
    char path[64], common[128];
    FILE *file;

    with_intruders("wrong secrets", "TUTTI_JOB_SECRET=psst!", wrong, 3);
    with_intruders("a needless secret", NULL, needless, 1);
    /* The secret is in a file, and the line end of the file does not belong to it. */
    snprintf(path, sizeof(path), "%s/secret", folder);
    snprintf(common, sizeof(common), "TUTTI_JOB_SECRET_FILE=%s", path);
    file = fopen(path, "w");
    CHECK(file != NULL);
    fputs("psst!\n", file);
    fclose(file);
    members[1].env = "TUTTI_JOB_SECRET=psst!\nTUTTI_JOB_SECRET_FILE=-";
    run("a secret in a file", members, 2, common);
    unlink(path);
}

static void other_jobs(void)
{
    static const member_t others[] = {
        { 1, 2, "TORCHELASTIC_RUN_ID=b\nTUTTI_TIMEOUT=2", TUTTI_ERR_INVALID_ARGUMENT,
          "rank 1 belongs to job b, rank 0 to job a", 0 },
        { 1, 2, "TORCHELASTIC_RUN_ID=-\nTUTTI_TIMEOUT=2", TUTTI_ERR_INVALID_ARGUMENT,
          "rank 1 belongs to job without a name, rank 0 to job a", 0 },
        { 1, 2, "TORCHELASTIC_RESTART_COUNT=2\nTUTTI_TIMEOUT=2", TUTTI_ERR_INVALID_ARGUMENT,
          "rank 1 belongs to restart 2 of the job, rank 0 to restart 1", 0 },
    };

    with_intruders("other jobs", "TORCHELASTIC_RUN_ID=a\nTORCHELASTIC_RESTART_COUNT=1", others, 3);
}

/* Garbage of every length, closed connections, and silent connections that stay open. */
static void garbage(void)
{
    const member_t ranks[] = { { .rank = 0, .size = 3 },
                               { .rank = 1, .size = 3 },
                               { .rank = 2, .size = 3 } };
    unsigned char bytes[400];
    int fd, silent[100];
    pid_t pid[3];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 31 + 7);
    reserve(1, &fd);
    atomic_store(ready, 0);
    pid[0] = start(&ranks[0], "TUTTI_JOB_SECRET=psst!", 0);
    await_port();
    for (size_t i = 0; i < sizeof(bytes); i += 9) {
        int stranger = reach();

        CHECK(stranger >= 0);
        (void)send(stranger, bytes, i, MSG_NOSIGNAL);
        close(stranger);
    }
    pid[1] = start(&ranks[1], "TUTTI_JOB_SECRET=psst!", 0);
    for (int i = 0; i < 100; i++)
        CHECK((silent[i] = reach()) >= 0);
    pid[2] = start(&ranks[2], "TUTTI_JOB_SECRET=psst!", 0);
    for (int i = 0; i < 3; i++)
        finish("garbage", pid[i]);
    for (int i = 0; i < 100; i++)
        close(silent[i]);
    close(fd);
}

/* MASTER_PORT belongs to an imitated agent of torchrun, and the next port to a silent service. */
static void agent(void)
{
    static const char torchrun[] = "TORCHELASTIC_USE_AGENT_STORE=True\nTORCHELASTIC_RUN_ID=none";
    member_t members[MOST];
    int fds[ALL_PORTS];
    char common[200];

    for (int i = 0; i < MOST; i++)
        members[i] = (member_t){ .rank = MOST - 1 - i, .size = MOST };
    reserve(ALL_PORTS, fds);
    CHECK_INT(listen(fds[0], 100), 0);
    run_here("an agent's port", members, MOST, torchrun);
    CHECK_INT(listen(fds[1], 100), 0);
    for (int i = 0; i < 3; i++)
        members[i] = (member_t){ .rank = 2 - i, .size = 3 };
    run_here("a silent service's port", members, 3, torchrun);
    snprintf(common, sizeof(common), "%s\nTUTTI_PORT=%d", torchrun, port + 9);
    run_here("TUTTI_PORT", members, 3, common);
    /* Two jobs with neighbouring ports run at the same time. */
    for (int i = 0; i < 6; i++)
        members[i] = (member_t){ .rank = i % 3, .size = 3 };
    snprintf(common, sizeof(common), "MASTER_PORT=%d", port + 1);
    for (int i = 3; i < 6; i++)
        members[i].env = common;
    run_here("two jobs", members, 6, torchrun);
    for (int i = 2; i < ALL_PORTS; i++)
        CHECK_INT(listen(fds[i], 1), 0);
    members[0] = (member_t){ 0, 3, NULL, TUTTI_ERR_SYSTEM, "rank 0 cannot listen at port", 0 };
    run_here("no port is free", members, 1, "TORCHELASTIC_USE_AGENT_STORE=True\nTUTTI_TIMEOUT=0.5");
    for (int i = 0; i < ALL_PORTS; i++)
        close(fds[i]);
}

/* Ranks meet by the variables of launchers, without MPI. */
static void launchers(void)
{
    static const char none[] = "RANK=-\nWORLD_SIZE=-\nMASTER_ADDR=-\nMASTER_PORT=-\n"
                               "TUTTI_MODULE_DIR=/nonexistent\n";
    /* all: variables of all ranks. The other fields: names of the variables with rank and size. */
    static const struct {
        const char *what, *all, *rank, *size;
        int port;
    } cases[] = {
        { "mpirun on this host", "PMIX_NAMESPACE=tutti-%d\nOMPI_COMM_WORLD_LOCAL_SIZE=3",
          "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", 0 },
        { "mpirun with MASTER_ADDR", "MASTER_ADDR=localhost", "OMPI_COMM_WORLD_RANK",
          "OMPI_COMM_WORLD_SIZE", 1 },
        { "mpiexec with MASTER_ADDR", "MASTER_ADDR=[::ffff:127.0.0.1]", "PMI_RANK", "PMI_SIZE", 1 },
        { "Azure", "AZ_BATCH_MASTER_NODE=127.0.0.1:9", "OMPI_COMM_WORLD_RANK",
          "OMPI_COMM_WORLD_SIZE", 1 },
        { "srun", "SLURM_STEP_NODELIST=localhost\nSLURM_JOB_ID=7\nSLURM_STEP_ID=0", "SLURM_PROCID",
          "SLURM_STEP_NUM_TASKS", 1 },
        { "srun on this host",
          "SLURM_STEP_NODELIST=x\nSLURM_JOB_ID=%d\nSLURM_STEP_ID=0\nSLURM_STEP_TASKS_PER_NODE=3",
          "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", 0 },
        /* The launcher's process manager does not answer, or its library is missing. */
        { "srun with PMIx",
          "SLURM_STEP_NODELIST=localhost\nSLURM_JOB_ID=%d\nSLURM_STEP_ID=0\nPMIX_RANK=0\n"
          "PMIX_NAMESPACE=none",
          "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", 0 },
        { "srun with PMI-2",
          "SLURM_STEP_NODELIST=localhost\nSLURM_JOB_ID=%d\nSLURM_STEP_ID=1\nPMI_FD=77",
          "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", 0 },
        { "Slurm, told", "SLURM_NODELIST=localhost\nSLURM_JOB_ID=7\nTUTTI_BOOT=env", "SLURM_PROCID",
          "SLURM_NTASKS", 1 },
        { "env:// in mpirun",
          "MASTER_ADDR=127.0.0.1\nOMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_RANK=0", "RANK",
          "WORLD_SIZE", 2 },
        { "env:// instead of MPI", "MASTER_ADDR=127.0.0.1\nTUTTI_BOOT=env://", "RANK", "WORLD_SIZE",
          2 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char env[3][120], common[600], all[300];
        member_t members[3];
        int fd;

        reserve(1, &fd);
        /* Only some texts have a "%d", which is replaced. */
        snprintf(all, sizeof(all), "%s", cases[i].all);
        if (strstr(all, "%d") != NULL) {
            char *at = strstr(all, "%d"), rest[300];

            snprintf(rest, sizeof(rest), "%s", at + 2);
            snprintf(at, sizeof(all) - (size_t)(at - all), "%d%s", tag(), rest);
        }
        snprintf(common, sizeof(common), "%s%s\n%s", none, all,
                 cases[i].port == 0 ? "" : "TUTTI_PORT=");
        if (cases[i].port != 0)
            snprintf(common + strlen(common), sizeof(common) - strlen(common), "%d", port);
        for (int r = 0; r < 3; r++) {
            snprintf(env[r], sizeof(env[r]), "%s=%d\n%s=3", cases[i].rank, r, cases[i].size);
            members[r] = (member_t){ .rank = r, .size = 3, .env = env[r] };
        }
        run_here(cases[i].what, members, 3, common);
        close(fd);
    }
}

/* If libcrypto cannot be loaded, a secret that is set is an error. This is tested in a newly
   started process, because the loader reads its search path at the start. */
static void no_libcrypto(const char *self)
{
    static const member_t alone = { 0,
                                    2,
                                    "TUTTI_JOB_SECRET=psst!",
                                    TUTTI_ERR_UNSUPPORTED,
                                    "libcrypto.so.3 cannot be used (Debian's package libssl3",
                                    0 };
    static const char *const names[] = { "libcrypto.so.3", "libcrypto.so.1.1" };
    char path[2][64];
    pid_t pid;

    if (self == NULL) {
        port = 1;
        finish("no libcrypto", start(&alone, NULL, 0));
        return;
    }
    for (int i = 0; i < 2; i++) {
        int fd;

        snprintf(path[i], sizeof(path[i]), "%s/%s", folder, names[i]);
        fd = open(path[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
        CHECK_INT(write(fd, "not a library", 13), 13);
        close(fd);
    }
    pid = fork();
    if (pid == 0) {
        setenv("LD_LIBRARY_PATH", folder, 1);
        execl("/proc/self/exe", self, "no libcrypto", (char *)NULL);
        _exit(127);
    }
    finish("no libcrypto", pid);
    unlink(path[0]);
    unlink(path[1]);
}

int main(int argc, char **argv)
{
    ready = mmap(NULL, sizeof(*ready), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(ready != MAP_FAILED);
    clean_environment();
    if (argc == 2) {
        no_libcrypto(NULL);
        return failures != 0;
    }
    CHECK(mkdtemp(folder) != NULL);
    any_order();
    again();
    missing();
    overdue();
    misinformed();
    nonsense();
    secrets();
    other_jobs();
    garbage();
    agent();
    launchers();
    no_libcrypto(argv[0]);
    rmdir(folder);
    return failures != 0;
}
