/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti_comm_state reports, without a collective call, whether a communicator is usable, or why it
 * has ended. It may be called while another thread is inside a call. After a rank was killed, the
 * other ranks can begin again.
 */
#include "api/api.h"
#include "tag.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

enum {
    LATE_MS = 300,
    PATIENCE_MS = 20000
};

static int failures;

static void nap_ms(int ms)
{
    struct timespec nap = { ms / 1000, ms % 1000 * 1000000L };

    nanosleep(&nap, NULL);
}

static void check_usable(const tutti_comm_t *comm)
{
    tutti_status_t state = TUTTI_ERR_INTERNAL;
    char text[8] = "before";

    CHECK_OK(tutti_comm_state(comm, &state, text, sizeof(text)));
    CHECK_INT(state, TUTTI_OK);
    CHECK(text[0] == '\0');
}

/* Poll until the communicator has ended with this status. */
static void await_end(const tutti_comm_t *comm, tutti_status_t want, const char *words)
{
    tutti_status_t state = TUTTI_OK;
    char text[512];

    for (int ms = 0; state == TUTTI_OK && ms < PATIENCE_MS; ms++) {
        CHECK_OK(tutti_comm_state(comm, &state, text, sizeof(text)));
        nap_ms(1);
    }
    CHECK_INT(state, want);
    if (strstr(text, words) == NULL)
        FAIL("'%s' does not say '%s'", text, words);
}

/* ---- alone ---- */

static void alone(int rank, int size)
{
    tutti_status_t state = TUTTI_ERR_INTERNAL;
    char text[256], cut[9] = "12345678";
    tutti_comm_t *world, *part;

    (void)rank, (void)size;
    unsetenv("TUTTI_RANK");
    unsetenv("TUTTI_SIZE");
    CHECK_OK(tutti_init(NULL));
    world = tutti_world();
    check_usable(world);
    CHECK_OK(tutti_comm_split(world, 0, 0, &part));
    CHECK_ERROR(tutti_comm_state(part, NULL, text, sizeof(text)), TUTTI_ERR_INVALID_ARGUMENT,
                "ret_state is NULL");
    CHECK_OK(tutti_abort(part, "no more data"));
    CHECK_ERROR(tutti_barrier(NULL), TUTTI_ERR_INVALID_ARGUMENT, "comm is NULL");
    CHECK_OK(tutti_comm_state(part, &state, text, sizeof(text)));
    CHECK_INT(state, TUTTI_ERR_PEER_LOST);
    CHECK(strstr(text, "no more data") != NULL);
    /* The thread's last error does not change; the text is the same as the text of a failed
       call. */
    CHECK(strstr(tutti_last_error(), "comm is NULL") != NULL);
    CHECK_STATUS(tutti_barrier(part), TUTTI_ERR_PEER_LOST);
    CHECK(strcmp(tutti_last_error(), text) == 0);
    /* The text is cut to the size, or not requested at all. */
    CHECK_OK(tutti_comm_state(part, &state, cut, 5));
    CHECK(strncmp(cut, text, 4) == 0 && memcmp(cut + 4,
                                               "\0"
                                               "678",
                                               4) == 0);
    CHECK_OK(tutti_comm_state(part, &state, cut, 0));
    CHECK(strncmp(cut, text, 4) == 0);
    CHECK_OK(tutti_comm_state(part, &state, NULL, sizeof(text)));
    check_usable(world);

    CHECK_OK(tutti_comm_free(part));
    state = TUTTI_ERR_INTERNAL;
    CHECK_ERROR(tutti_comm_state(part, &state, text, sizeof(text)), TUTTI_ERR_INVALID_ARGUMENT,
                "was freed");
    CHECK_OK(tutti_finalize());
    CHECK_ERROR(tutti_comm_state(world, &state, text, sizeof(text)), TUTTI_ERR_INVALID_ARGUMENT,
                "was freed");
    CHECK_INT(state, TUTTI_ERR_INTERNAL);
}

/* ---- several ranks ---- */

/* Rank 1 dies. The other ranks make no call, and no call is pending. */
static void death(int rank, int size)
{
    (void)size;
    CHECK_OK(tutti_init(NULL));
    check_usable(tutti_world());
    CHECK_OK(tutti_barrier(tutti_world()));
    if (rank == 1)
        _exit(0);
    await_end(tutti_world(), TUTTI_ERR_PEER_LOST, "rank 1");
    CHECK_OK(tutti_finalize());
}

/* A child of rank 1 is rank 1 of the first world, and is killed there. */
static void be_killed(void)
{
    int result;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK_OK(tutti_init(NULL));
        CHECK_OK(tutti_barrier(tutti_world()));
        kill(getpid(), SIGKILL);
    }
    CHECK_INT(waitpid(pid, &result, 0), pid);
    CHECK(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
}

/* Run a rank of the first world that is not killed. The barrier may fail if rank 1 dies early. */
static void survive(void)
{
    tutti_request_t *request = NULL;
    tutti_status_t status;
    float x = 1;

    CHECK_OK(tutti_init(NULL));
    status = tutti_barrier(tutti_world());
    CHECK(status == TUTTI_OK || status == TUTTI_ERR_PEER_LOST);
    if (tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, tutti_world(), NULL,
                              &request) == TUTTI_OK)
        CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_PEER_LOST);
    await_end(tutti_world(), TUTTI_ERR_PEER_LOST, "rank 1");
    CHECK_ERROR(tutti_init(NULL), TUTTI_ERR_INVALID_ARGUMENT, "already");
    CHECK_OK(tutti_finalize());
    CHECK(tutti_world() == NULL);
}

/* Rank 1 is killed while the other ranks finalize. */
static void finalizing(int rank, int size)
{
    tutti_status_t status;

    (void)size;
    if (rank == 1) {
        be_killed();
        return;
    }
    CHECK_OK(tutti_init(NULL));
    status = tutti_barrier(tutti_world());
    CHECK(status == TUTTI_OK || status == TUTTI_ERR_PEER_LOST);
    CHECK_OK(tutti_finalize());
    CHECK(tutti_world() == NULL);
    CHECK_OK(tutti_finalize());
}

/* After the death, all ranks make a second world, in which another process is rank 1. */
static void begin_again(int rank, int size)
{
    char boot[256];

    snprintf(boot, sizeof(boot), "%s-again", getenv("TUTTI_BOOT"));
    if (rank == 1)
        be_killed();
    else
        survive();
    setenv("TUTTI_BOOT", boot, 1);
    CHECK_OK(tutti_init(NULL));
    check_usable(tutti_world());
    CHECK_INT(tutti_rank(tutti_world()), rank);
    for (int step = 0; step < 6; step++) {
        tutti_request_t *request;
        int x[2] = { rank, 1 };

        CHECK_OK(tutti_allreduce_async("x", x, x, 2, TUTTI_INT32, TUTTI_SUM, tutti_world(), NULL,
                                       &request));
        CHECK_OK(tutti_wait(request, -1));
        CHECK_OK(tutti_allreduce(x, x, 2, TUTTI_INT32, TUTTI_SUM, tutti_world()));
        CHECK_INT(x[0], size * size * (size - 1) / 2);
        CHECK_INT(x[1], size * size);
    }
    CHECK_OK(tutti_finalize());
}

static void begin_again_on_hosts(int rank, int size)
{
    char host[32];

    snprintf(host, sizeof(host), "host-%d", rank / 2);
    setenv("TUTTI_HOST_ID", host, 1);
    begin_again(rank, size);
}

/* The end of a group does not end the world. */
static void part_ends(int rank, int size)
{
    tutti_comm_t *world, *part;

    (void)size;
    CHECK_OK(tutti_init(NULL));
    world = tutti_world();
    CHECK_OK(tutti_comm_split(world, 0, 0, &part));
    if (rank == 0)
        CHECK_OK(tutti_abort(part, "out of disk"));
    await_end(part, TUTTI_ERR_PEER_LOST, "out of disk");
    check_usable(world);
    CHECK_OK(tutti_barrier(world));
    CHECK_OK(tutti_comm_free(part));
    CHECK_OK(tutti_finalize());
}

static atomic_int returned;

static void *wait_for_others(void *comm)
{
    CHECK_OK(tutti_barrier(comm));
    atomic_store(&returned, 1);
    return NULL;
}

/* A thread of rank 0 is inside a call that waits for rank 1. */
static void during_a_call(int rank, int size)
{
    int polls = 0;
    pthread_t thread;

    (void)size;
    CHECK_OK(tutti_init(NULL));
    CHECK_OK(tutti_barrier(tutti_world()));
    if (rank == 1) {
        nap_ms(LATE_MS);
        CHECK_OK(tutti_barrier(tutti_world()));
    } else {
        CHECK_INT(pthread_create(&thread, NULL, wait_for_others, tutti_world()), 0);
        for (; !atomic_load(&returned); polls++) {
            check_usable(tutti_world());
            nap_ms(1);
        }
        CHECK_INT(pthread_join(thread, NULL), 0);
        CHECK(polls > 2);
    }
    CHECK_OK(tutti_finalize());
}

static void run(int size, void (*fn)(int rank, int size))
{
    static int number;
    char env[256];

    snprintf(env, sizeof(env), "TUTTI_LOG=none\nTUTTI_TIMEOUT=60");
    if (size > 1)
        snprintf(env, sizeof(env),
                 "TUTTI_BOOT=local:tutti-test-state-%d-%d\nTUTTI_LOG=none\nTUTTI_TIMEOUT=60", tag(),
                 number++);
    failures += run_children(size, env, fn, NULL, 0);
}

int main(void)
{
    clean_environment();
    run(1, alone);
    run(3, death);
    run(3, finalizing);
    run(2, begin_again);
    run(3, begin_again);
    run(4, begin_again_on_hosts);
    run(2, part_ends);
    run(2, during_a_call);
    return failures != 0;
}
