/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti_finalize while a request is pending: the request ends with an error, and its callback runs
 * during tutti_finalize. The callback may not initialise or finalize the library.
 */
#include "api/api.h"
#include "tag.h"

#include <stdatomic.h>
#include <sys/mman.h>

/* This variable is in memory that all ranks map. */
static atomic_int *has_left;

static void on_end(void *calls, tutti_status_t status)
{
    CHECK_INT(status, TUTTI_ERR_SHUTDOWN);
    CHECK_ERROR(tutti_init(NULL), TUTTI_ERR_INVALID_ARGUMENT, "callback");
    CHECK_ERROR(tutti_finalize(), TUTTI_ERR_INVALID_ARGUMENT, "callback");
    atomic_fetch_add((atomic_int *)calls, 1);
}

/* Only rank 0 submits. It is also the first rank to leave. */
static void with_callback(int rank, int size)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *request;
    atomic_int calls = 0;
    float x = 1;

    (void)size;
    options.callback = on_end;
    options.callback_arg = &calls;
    CHECK_OK(tutti_init(NULL));
    if (rank != 0) {
        while (!atomic_load(has_left))
            usleep(1000);
        CHECK_OK(tutti_finalize());
        return;
    }
    CHECK_OK(tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, tutti_world(),
                                   &options, &request));
    CHECK_OK(tutti_finalize());
    CHECK_INT(atomic_load(&calls), 1);
    CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_SHUTDOWN);
    CHECK(tutti_world() == NULL);
    atomic_store(has_left, 1);
}

int main(void)
{
    char env[256];
    void *shared =
        mmap(NULL, sizeof(*has_left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(shared != MAP_FAILED);
    has_left = shared;
    clean_environment();
    snprintf(env, sizeof(env), "TUTTI_BOOT=local:tutti-test-finalize-%d\nTUTTI_LOG=none", tag());
    return run_children(2, env, with_callback, NULL, 0) != 0;
}
