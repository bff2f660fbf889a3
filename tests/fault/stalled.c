/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that comes late to a direct call: those that wait say so once, naming the call and the
 * rank, and go on; when it never comes the deadline's error names both, too.
 */
#include "fault/fault.h"

#include "base/log.h"
#include "unit/base/capture.h"

#include <string.h>
#include <unistd.h>

static int count(const char *text, const char *part)
{
    int n = 0;

    while ((text = strstr(text, part)) != NULL) {
        n++;
        text += strlen(part);
    }
    return n;
}

static void impatient(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.stall_ms = 200;
    conf->shared.timeout_ms = 2000;
    conf->log_level = TUTTI__LOG_WARN;
}

/* Rank 0 is late: for 1 s, and then for ever. */
static void late(rank_t *self)
{
    char text[4096], want[128];
    float x = 1;

    if (self->rank == 0) {
        usleep(1000000);
        CHECK_OK(tutti_barrier(self->comm));
        sleep(4);
        CHECK_STATUS(tutti_barrier(self->comm), TUTTI_ERR_TIMEOUT);
        return;
    }
    tutti__log_setup(TUTTI__LOG_WARN, self->rank);
    capture_begin();
    CHECK_OK(tutti_barrier(self->comm));
    capture_end(text, sizeof(text));
    snprintf(want, sizeof(want), "rank %d has waited 0.2 s in a barrier (direct) for rank 0",
             self->rank);
    CHECK_INT(count(text, "has waited"), 1);
    CHECK_INT(count(text, want), 1);
    CHECK_STATUS(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_TIMEOUT);
    CHECK(strstr(tutti_last_error(), "in an allreduce (direct) for rank 0") != NULL);
}

int main(void)
{
    job_t job = { .size = 2, .settings = impatient, .fn = late };
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    board_open();
    RUN_JOB(failures, &job);
    return failures != 0;
}
