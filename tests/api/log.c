/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti_log_set_callback: the log goes to the callback instead of stderr, even before tutti_init.
 * If the callback takes a lock of the program, this delays no call. A learned plan is logged.
 */
#include "api/api.h"
#include "tag.h"

#include <pthread.h>
#include <stdlib.h>

enum {
    LATE_US = 200000
};

static pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
static int failures;

typedef struct {
    int count;
    tutti_log_level_t level;
    char all[16384];
} box_t;

/* Takes the program's lock. */
static void receive(void *arg, tutti_log_level_t level, const char *text)
{
    box_t *box = arg;
    size_t used;

    pthread_mutex_lock(&mine);
    used = strlen(box->all);
    box->count++;
    box->level = level;
    snprintf(box->all + used, sizeof(box->all) - used, "[%s]", text);
    pthread_mutex_unlock(&mine);
}

static void check_has(const box_t *box, const char *words)
{
    if (strstr(box->all, words) == NULL)
        FAIL("'%s' does not say '%s'", box->all, words);
}

/* ---- alone ---- */

/* A warning of tutti_init. */
static void from_the_start(int rank, int size)
{
    static box_t box;

    (void)rank, (void)size;
    CHECK_OK(tutti_log_set_callback(receive, &box));
    CHECK_OK(tutti_init(NULL));
    CHECK_OK(tutti_log_set_callback(NULL, NULL));
    CHECK_INT(box.count, 1);
    CHECK_INT(box.level, TUTTI_LOG_WARN);
    check_has(&box, "[TUTTI_NO_SUCH is no setting");
    CHECK_OK(tutti_finalize());
    /* Let the log go to stderr again. */
    setenv("TUTTI_LOG", "debug", 1);
    CHECK_OK(tutti_init(NULL));
    CHECK_STATUS(tutti_barrier(NULL), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_finalize());
    CHECK_INT(box.count, 1);
}

/* The library logs many messages while the caller holds the lock that the callback takes. */
static void with_a_lock(int rank, int size)
{
    static box_t box;
    tutti_comm_t *part;
    tutti_request_t *request;
    float x = 1;

    (void)rank, (void)size;
    CHECK_OK(tutti_log_set_callback(receive, &box));
    pthread_mutex_lock(&mine);
    CHECK_OK(tutti_init(NULL));
    for (int i = 0; i < 20; i++) {
        CHECK_STATUS(tutti_barrier(NULL), TUTTI_ERR_INVALID_ARGUMENT);
        CHECK_OK(tutti_comm_split(tutti_world(), 0, 0, &part));
        CHECK_OK(
            tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, part, NULL, &request));
        CHECK_OK(tutti_wait(request, -1));
        CHECK_OK(tutti_comm_free(part));
    }
    CHECK_INT(box.count, 0);
    CHECK_OK(tutti_finalize());
    pthread_mutex_unlock(&mine);
    CHECK_OK(tutti_log_set_callback(NULL, NULL));
    CHECK(box.count > 20);
    check_has(&box, "[invalid argument: comm is NULL");
}

/* ---- a learned plan ---- */

/* A plan is logged with its buckets. */
static void prints_plan(int rank, int size)
{
    enum {
        LAYERS = 3
    };
    static box_t box;
    tutti_request_t *request[LAYERS];
    float x[LAYERS];
    char name[16];

    (void)rank;
    CHECK_OK(tutti_log_set_callback(receive, &box));
    CHECK_OK(tutti_init(NULL));
    for (int step = 0; step < 8; step++) {
        for (int i = 0; i < LAYERS; i++) {
            snprintf(name, sizeof(name), "layer %d", i);
            x[i] = 1;
            CHECK_OK(tutti_allreduce_async(name, &x[i], &x[i], 1, TUTTI_FLOAT32, TUTTI_SUM,
                                           tutti_world(), NULL, &request[i]));
        }
        CHECK_OK(tutti_wait_all(request, LAYERS, -1));
        CHECK_INT(x[LAYERS - 1], size);
    }
    CHECK_OK(tutti_finalize());
    CHECK_OK(tutti_log_set_callback(NULL, NULL));
    check_has(&box, "plan 1: 3 tensors in 1 buckets]");
    check_has(&box, "plan 1, bucket 0: 3 tensors from 'layer 0']");
}

/* ---- a rank that dies ---- */

/* Rank 1 dies while the callback's lock is held. The thread that logs the death holds the engine's
   token, and no wait ends without this token. */
static void death(int rank, int size)
{
    static box_t box;
    tutti_request_t *request;

    (void)size;
    CHECK_OK(tutti_log_set_callback(receive, &box));
    CHECK_OK(tutti_init(NULL));
    if (rank == 0)
        CHECK_OK(tutti_barrier_async("b", tutti_world(), NULL, &request));
    CHECK_OK(tutti_barrier(tutti_world()));
    if (rank == 1) {
        usleep(LATE_US);
        _exit(0);
    }
    pthread_mutex_lock(&mine);
    CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_PEER_LOST);
    pthread_mutex_unlock(&mine);
    CHECK_OK(tutti_finalize());
    CHECK_OK(tutti_log_set_callback(NULL, NULL));
    CHECK_INT(box.level, TUTTI_LOG_ERROR);
    check_has(&box, "[rank 1 ");
}

/* want, dislike: texts that the stderr of the ranks must have, and must not have. */
static void run(int size, const char *settings, void (*fn)(int rank, int size), const char *want,
                const char *dislike)
{
    static int number;
    char env[256], text[4096];

    snprintf(env, sizeof(env), "TUTTI_BOOT=local:tutti-test-log-%d-%d\nTUTTI_TIMEOUT=60\n%s", tag(),
             number++, settings);
    if (run_children(size, env, fn, text, sizeof(text)) != 0 || strstr(text, want) == NULL ||
        strstr(text, dislike) != NULL) {
        fprintf(stderr, "FAILED: %d ranks with %s:\n%s\n", size, settings, text);
        failures++;
    }
}

int main(void)
{
    clean_environment();
    run(1, "TUTTI_NO_SUCH=1", from_the_start, "debug: invalid argument: comm is NULL",
        "TUTTI_NO_SUCH");
    run(1, "TUTTI_LOG=debug", with_a_lock, "", "tutti");
    run(2, "TUTTI_LOG=debug", prints_plan, "", "tutti");
    run(2, "", death, "", "tutti");
    return failures != 0;
}
