/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transport fails because a rank has ended, and this rank has not read the report of the end yet:
 * the call ends with the report. If there is no report, the call ends with the transport's error,
 * on the other rank as well.
 *
 * The hosts are pretended. The transport between them is that of shared memory, whose functions
 * fail on rank 0.
 */
#include "fault/fault.h"

#include "engine/state.h"

#include <unistd.h>

enum {
    COUNT = 100000
};

typedef struct {
    const char *name;
    int is_async;
    int aborts; /* rank 1 reports a reason */
    int leaves; /* rank 0 closes its communicator, and does not wait for its request */
} plan_t;

static struct {
    const plan_t *plan;
    tutti__engine_t *engine;
    int has_failed;
} broken;

static void await(const atomic_int *word)
{
    double began = wall_ms();

    while (atomic_load(word) == 0) {
        CHECK(wall_ms() - began < 60e3);
        usleep(1000);
    }
}

/* The first error comes when the report of rank 1 is in the socket. Meanwhile this thread owns the
   token, so no thread reads the report. */
static tutti_status_t fail(void)
{
    int takes = !broken.plan->is_async && !broken.has_failed;

    if (takes)
        tutti__token_await(&broken.engine->token);
    broken.has_failed = 1;
    atomic_store(&board->ready, 1);
    if (broken.plan->aborts)
        await(&board->done);
    if (takes)
        tutti__token_leave(&broken.engine->token);
    return tutti__fail(TUTTI_ERR_TRANSPORT, "the cable is cut");
}

static tutti_status_t fail_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                uint32_t signature, int *ret_pending, tutti__hint_t *hint)
{
    (void)chan, (void)data, (void)bytes, (void)signature, (void)ret_pending, (void)hint;
    return fail();
}

static tutti_status_t fail_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                                const void **ret_data, tutti__hint_t *hint)
{
    (void)chan, (void)bytes, (void)signature, (void)ret_data, (void)hint;
    return fail();
}

static tutti_status_t call(rank_t *self)
{
    static float x[COUNT];
    tutti_request_t *request;
    tutti_status_t status;

    if (!broken.plan->is_async)
        return tutti_allreduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm);
    status = tutti_allreduce_async(NULL, x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                   &request);
    return status == TUTTI_OK ? tutti_wait(request, -1) : status;
}

/* After this function rank 0 closes its communicator, while its engine waits for a report of the
   cause. If the close came before the engine noted the failure, the rank would leave as if nothing
   had failed. So this function waits until the engine has noted it. */
static void submit_and_leave(rank_t *self)
{
    static tutti_request_t *request; /* static, for leak checkers */
    static float x[COUNT];
    double began = wall_ms();

    CHECK_OK(tutti_allreduce_async(NULL, x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                   &request));
    while (!tutti__watch_has_failed(broken.engine->env.watch)) {
        CHECK(wall_ms() - began < 60e3);
        usleep(1000);
    }
}

static void run(rank_t *self)
{
    const plan_t *plan = self->arg;
    tutti_status_t want = plan->aborts ? TUTTI_ERR_PEER_LOST : TUTTI_ERR_TRANSPORT;
    const char *words = plan->aborts ? "the disk is full" : "the cable is cut";
    static tutti__xport_ops_t ops;

    broken.plan = plan;
    broken.engine = self->inside->engine;
    ranks_poll_far(self->inside, &ops);
    if (self->rank == 0) {
        ops.send = fail_send;
        ops.view = fail_view;
    } else {
        await(&board->ready);
        if (plan->aborts)
            CHECK_OK(tutti_abort(self->comm, words));
        atomic_store(&board->done, 1);
    }
    if (self->rank == 0 && plan->leaves) {
        submit_and_leave(self);
        return;
    }
    CHECK_STATUS(call(self), want);
    CHECK_WORDS(words);
    check_dead(self, want, words);
}

static void settings(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.compare = 0; /* so that the first message is one of the transport's channels */
}

int main(void)
{
    static const plan_t plans[] = { { "direct, with a report", 0, 1, 0 },
                                    { "direct, without a report", 0, 0, 0 },
                                    { "asynchronous, with a report", 1, 1, 0 },
                                    { "asynchronous, without a report", 1, 0, 0 },
                                    { "asynchronous, and the rank leaves", 1, 0, 1 } };
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    board_open();
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        plan_t plan = plans[i];
        job_t job = { .size = 2, .hosts = "ab", .fn = run, .arg = &plan };

        job.settings = settings;
        board_clear();
        if (ranks_run(&job) == 0)
            continue;
        fprintf(stderr, "FAILED: %s\n", plan.name);
        failures++;
    }
    return failures != 0;
}
