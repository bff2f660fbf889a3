/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Effects of the environment: ranks without a launcher, forced algorithms, the help text, and
 * reports of wrong variables. Each case runs in separate processes, because a process reads its
 * environment once.
 */
#include "api/api.h"
#include "tag.h"

#include <stdlib.h>

enum {
    BYTES = 65536
};

static int failures;
static char text[BYTES];

/* ---- the functions of the children ---- */

static void works(int rank, int size)
{
    tutti_comm_t *world;
    tutti_request_t *request;
    static float x[20000];

    for (int times = 0; times < 2; times++) {
        CHECK_OK(tutti_init(NULL));
        world = tutti_world();
        CHECK_INT(tutti_rank(world), rank);
        CHECK_INT(tutti_size(world), size);
        for (size_t n = 1; n <= 20000; n *= 20) {
            for (size_t i = 0; i < n; i++)
                x[i] = (float)((size_t)rank + i % 9);
            CHECK_OK(tutti_allreduce(x, x, n, TUTTI_FLOAT32, TUTTI_SUM, world));
            for (size_t i = 0; i < n; i++)
                CHECK_INT(x[i], (size_t)(size * (size - 1) / 2) + (size_t)size * (i % 9));
        }
        x[0] = (float)rank;
        CHECK_OK(
            tutti_allreduce_async("x", x, x, 1, TUTTI_FLOAT32, TUTTI_MAX, world, NULL, &request));
        CHECK_OK(tutti_wait(request, -1));
        CHECK_INT(x[0], size - 1);
        CHECK_OK(tutti_barrier(world));
        CHECK_OK(tutti_finalize());
    }
}

/* tutti_init fails; print its error. */
static void refused(int rank, int size)
{
    tutti_status_t status = tutti_init(NULL);

    (void)rank, (void)size;
    CHECK(status != TUTTI_OK);
    CHECK(tutti_world() == NULL);
    CHECK_OK(tutti_finalize());
    printf("[%d] %s\n", (int)status, tutti_last_error());
}

static void refused_on_two_hosts(int rank, int size)
{
    setenv("TUTTI_HOST_ID", rank % 2 ? "odd" : "even", 1);
    refused(rank, size);
}

static void works_on_two_hosts(int rank, int size)
{
    setenv("TUTTI_HOST_ID", rank % 2 ? "odd" : "even", 1);
    works(rank, size);
}

/* Shared settings come from rank 0: another rank's values have no effect. */
static void rank_0_decides(int rank, int size)
{
    if (rank == size - 1)
        setenv("TUTTI_ALGORITHM", "allreduce:pigeon", 1);
    works(rank, size);
}

/* Rank 0 never calls init. */
static void incomplete(int rank, int size)
{
    if (rank == 0)
        return;
    refused(rank, size);
}

static void world_of_one(int rank, int size)
{
    (void)rank, (void)size;
    unsetenv("TUTTI_RANK");
    unsetenv("TUTTI_SIZE");
    CHECK_OK(tutti_init(NULL));
    CHECK_INT(tutti_size(tutti_world()), 1);
    CHECK_OK(tutti_finalize());
}

static void aborts(int rank, int size)
{
    (void)rank, (void)size;
    CHECK_OK(tutti_init(NULL));
    CHECK_OK(tutti_abort(tutti_world(), "of this test"));
    CHECK_OK(tutti_finalize());
}

/* ---- cases ---- */

/* Run several ranks that meet under a new name. */
static void together(int size, const char *env, void (*fn)(int rank, int size))
{
    static int number;
    char all[512];

    snprintf(all, sizeof(all), "TUTTI_BOOT=local:tutti-test-api-%d-%d\nTUTTI_TIMEOUT=60\n%s", tag(),
             number++, env);
    text[0] = '\0';
    if (run_children(size, all, fn, text, sizeof(text)) != 0) {
        fprintf(stderr, "FAILED: %d ranks with %s:\n%s\n", size, env, text);
        failures++;
    }
}

static int count(const char *words)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        n++;
    return n;
}

static void expect(const char *words, int times)
{
    if (count(words) == times)
        return;
    fprintf(stderr, "FAILED: '%s' %d times, wanted %d, in:\n%s\n", words, count(words), times,
            text);
    failures++;
}

static void alone(const char *env, void (*fn)(int rank, int size))
{
    text[0] = '\0';
    if (run_children(1, env, fn, text, sizeof(text)) != 0) {
        fprintf(stderr, "FAILED: alone with %s:\n%s\n", env, text);
        failures++;
    }
}

static void ranks(void)
{
    static const char *const settings[] = {
        "",
        "TUTTI_ALGORITHM=allreduce:ring",
        "TUTTI_ALGORITHM=allreduce:recursive_doubling,barrier:dissemination",
        "TUTTI_ALGORITHM=broadcast:binomial,allgather:ring",
        "TUTTI_FUSION_BYTES=0\nTUTTI_CHUNK_BYTES=1K\nTUTTI_CREDITS=1",
        "TUTTI_ONESHOT_BYTES=0\nTUTTI_NODE_CHUNK_BYTES=4K",
        "TUTTI_DETERMINISTIC=strict\nTUTTI_LOG=error",
    };
    static const int sizes[] = { 1, 2, 3, 5 };

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            together(sizes[s], settings[i], works);
            /* No output is expected. */
            if (text[0] != '\0')
                expect(text, 0);
        }
    }
    together(3, "", rank_0_decides);
    together(4, "TUTTI_TRANSPORT=shm", works_on_two_hosts);
    together(3, "TUTTI_ALGORITHM=allreduce:ring", works_on_two_hosts);
}

static void wrong(void)
{
    together(2, "TUTTI_ALGORITHM=allreduce:pigeon", refused);
    expect("pigeon", 2);
    expect("[1] ", 2);
    together(2, "TUTTI_ALGORITHM=pigeon:ring", refused);
    expect("pigeon", 2);
    together(2, "TUTTI_ALGORITHM=allreduce", refused);
    expect("TUTTI_ALGORITHM", 2);
    /* The algorithm is known, but not for this collective: a barrier has no ring. */
    together(2, "TUTTI_ALGORITHM=barrier:ring", refused);
    expect("ring", 2);
    /* The algorithm is known, but does not support two hosts. In the next case, the transport
       between hosts is missing. */
    together(2, "TUTTI_ALGORITHM=allreduce:node", refused_on_two_hosts);
    expect("[6] ", 2);
    together(2, "TUTTI_TRANSPORT=mpi", refused_on_two_hosts);
    expect("[6] ", 2);
    together(2, "TUTTI_TIMEOUT=forever", refused);
    expect("TUTTI_TIMEOUT=forever", 2);
    together(2, "TUTTI_CREDITS=0", refused);
    expect("TUTTI_CREDITS=0", 2);
    together(2, "TUTTI_CHUNK_BYTES=1X", refused);
    expect("TUTTI_CHUNK_BYTES=1X", 2);
    together(2, "TUTTI_LOG=loud", refused);
    together(2, "TUTTI_TRANSPORT=pigeon", refused);
    together(3, "TUTTI_TIMEOUT=1", incomplete);
    expect("[4] ", 2);
    alone("TUTTI_BOOT=pigeon", refused);
    expect("TUTTI_BOOT=pigeon", 1);
    alone("TUTTI_BOOT=local:x\nTUTTI_RANK=3\nTUTTI_SIZE=2", refused);
    expect("[1] ", 1);
    /* The job of the launcher has four ranks, but there is no MPI by which to find the others. */
    alone("OMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=1\nTUTTI_MODULE_DIR=/nonexistent", refused);
    expect("[6] ", 1);
    expect("mpirun started 4 ranks", 1);
}

/* There are variables of launchers, but the ranks have no way to meet. */
static void company(void)
{
    static const char *const certain[] = {
        "RANK=1\nWORLD_SIZE=4",
        "RANK=0\nWORLD_SIZE=2",
        "RANK=1\nWORLD_SIZE=2\nOMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_RANK=0",
        "PMIX_RANK=1",
        "PMI_RANK=3",
        "SLURM_PROCID=2",
    };
    static const char *const perhaps[] = {
        "WORLD_SIZE=4",
        "RANK=1",
        "RANK=4\nWORLD_SIZE=many",
        "RANK=0\nWORLD_SIZE=two",
        "RANK=x\nWORLD_SIZE=2",
        "SLURM_NTASKS=4\nSLURM_PROCID=0",
    };
    static const char *const none[] = {
        "RANK=0\nWORLD_SIZE=1",
        "PMIX_RANK=0",
        "RANK=0",
        "SLURM_NTASKS=1\nSLURM_PROCID=0",
        "SLURM_NTASKS=4\nSLURM_PROCID=1\nOMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_RANK=0",
        "TUTTI_BOOT=self\nRANK=1\nWORLD_SIZE=4",
    };

    for (size_t i = 0; i < sizeof(certain) / sizeof(*certain); i++) {
        alone(certain[i], refused);
        expect("[6] ", 1);
        expect("), but no way to meet them: start the ranks with mpirun", 1);
        expect("TUTTI_BOOT=self", 1);
    }
    expect("SLURM_PROCID=2", 1);
    alone(certain[0], refused);
    expect("RANK=1 and WORLD_SIZE=4", 1);
    for (size_t i = 0; i < sizeof(perhaps) / sizeof(*perhaps); i++) {
        alone(perhaps[i], world_of_one);
        expect("warn: ", 1);
        expect("but no launcher started this process: it is a world of one", 1);
    }
    expect("SLURM_NTASKS=4", 1);
    alone("RANK=0\nWORLD_SIZE=two", world_of_one);
    expect("RANK=0, WORLD_SIZE=two (not both numbers)", 1);
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
        alone(none[i], world_of_one);
        expect("warn: ", 0);
    }
}

static void help_and_warnings(void)
{
    alone("TUTTI_HELP=1", world_of_one);
    expect("TUTTI_TIMEOUT [", 1);
    expect("TUTTI_ALGORITHM [", 1);
    expect("TUTTI_LOG [", 1);
    alone("TUTTI_HELP=0", world_of_one);
    expect("TUTTI", 0);
    alone("TUTTI_HELP=1\nTUTTI_LOG=none", world_of_one);
    expect("TUTTI_TIMEOUT [", 1);
    alone("TUTTI_TIMEOUTS=5", world_of_one);
    expect("TUTTI_TIMEOUTS is no setting; did you mean TUTTI_TIMEOUT?", 1);
    alone("TUTTI_ABSOLUTELY_NOTHING=5", world_of_one);
    expect("TUTTI_ABSOLUTELY_NOTHING is no setting", 1);
    alone("TUTTI_ABSOLUTELY_NOTHING=5\nTUTTI_LOG=error", world_of_one);
    expect("TUTTI", 0);
    alone("TUTTI_TEST_WHATEVER=5\nTUTTI_TIMEOUT=\n", world_of_one);
    expect("TUTTI", 0);
    /* One rank reports for all. */
    together(3, "TUTTI_HELP=1\nTUTTI_TIMEOUTS=5", works);
    expect("TUTTI_TIMEOUTS is no setting", 1);
    expect("TUTTI_ALGORITHM [", 1);
}

/* If dumps cannot be written, tutti_init warns on one rank of a host, and each failed dump is
   reported. */
static void dumps(void)
{
    static const char no[] = "TUTTI_DUMP: no dump can be written: No such file or directory: "
                             "/nonexistent/x.0\n";

    together(3, "TUTTI_DUMP=/nonexistent/x", works);
    expect(no, 1);
    expect("/nonexistent", 1);
    alone("TUTTI_DUMP=/nonexistent/x", aborts);
    expect(no, 2);
    alone("TUTTI_DUMP=tutti-dump-of-a-test", world_of_one);
    expect("TUTTI_DUMP", 0);
    CHECK(access("tutti-dump-of-a-test.0", F_OK) != 0);
}

int main(void)
{
    clean_environment();
    ranks();
    wrong();
    company();
    help_and_warnings();
    dumps();
    return failures != 0;
}
