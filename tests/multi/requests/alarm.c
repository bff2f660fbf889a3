/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The alarm that wakes the engine's thread after a submission. If the program waits soon after each
 * submission, the time to the alarm becomes longer. If the program waits late, the time is ALARM_US
 * again.
 */
#include "ranks.h"

#include "base/constants.h"
#include "base/time.h"
#include "engine/state.h"

#include <unistd.h>

enum {
    COUNT = 4 * TUTTI__BRIEF_BYTES / sizeof(int) /* more than a brief step does: the alarm is set */
};

#define LIMIT_NS 50000000000u

static int is_late(const rank_t *self)
{
    return atomic_load(&self->inside->engine->alarm_us) > TUTTI__ALARM_US;
}

/* Repeat the call until, on each rank, the time to the alarm was longer than ALARM_US once (late
   1), or was ALARM_US once (late 0). */
static void repeat(const rank_t *self, int late, unsigned pause_us)
{
    static int x[COUNT];
    uint64_t end = tutti__now_ns() + LIMIT_NS;
    int found = 0;
    tutti_request_t *request;

    do {
        CHECK(tutti__now_ns() < end);
        found |= is_late(self) == late;
        x[0] = found;
        CHECK_OK(tutti_allreduce_async("x", x, x, COUNT, TUTTI_INT32, TUTTI_MIN, self->comm, NULL,
                                       &request));
        if (pause_us > 0)
            usleep(pause_us);
        CHECK_OK(tutti_wait(request, -1));
    } while (!x[0]);
}

static void both(rank_t *self)
{
    CHECK(!is_late(self));
    repeat(self, 1, 0);
    repeat(self, 0, 5000);
}

int main(void)
{
    static const char *const hosts[] = { NULL, "ab" };
    int failures = 0;

    for (int i = 0; i < 2; i++) {
        job_t job = { .size = 2, .hosts = hosts[i], .fn = both };

        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
