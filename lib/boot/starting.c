/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Warnings while MPI_Init waits.
 *
 * MPI_Init returns when all ranks of the launcher have called MPI_Init. It has no deadline, and
 * cannot be ended from outside. So a separate thread warns after an interval, and again after each
 * further interval. The interval is the shorter of TUTTI_STALL_WARNING and TUTTI_TIMEOUT.
 *
 * The ranks of a machine detect each other by their marks (marks.h), and the lowest rank warns. A
 * rank whose application calls MPI_Init itself is not detected.
 *
 * tutti_init calls these functions, on its thread.
 */
#include "boot/starting.h"

#include "base/log.h"
#include "base/own_thread.h"
#include "base/status.h"
#include "base/time.h"
#include "boot/net.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct tutti__starting {
    pthread_t thread;
    int end; /* an eventfd, readable when MPI_Init has returned */
    tutti__marks_t *marks;
    uint64_t interval_ms;
    const char *advice; /* the end of the warning, or "" */
};

/* ---- warning ---- */

static void warn_of(const tutti__starting_t *starting, double s)
{
    char text[400];

    if (starting->marks == NULL)
        TUTTI__LOG(TUTTI__LOG_WARN, "MPI_Init has waited %.0f s, which TUTTI_TIMEOUT cannot end%s",
                   s, starting->advice);
    else if (tutti__marks_describe(starting->marks, text, sizeof(text)))
        TUTTI__LOG(TUTTI__LOG_WARN,
                   "MPI_Init has waited %.0f s, which TUTTI_TIMEOUT cannot end: %s%s", s, text,
                   starting->advice);
}

static void *thread_main(void *arg)
{
    const tutti__starting_t *starting = arg;
    uint64_t begin = tutti__now_ns();
    struct pollfd end = { .fd = starting->end, .events = POLLIN };

    for (uint64_t n = 1;; n++) {
        uint64_t due = begin + n * starting->interval_ms * 1000000u;
        int left_ms;

        while ((left_ms = tutti__net_left_ms(due)) > 0)
            if (poll(&end, 1, left_ms) > 0)
                return NULL;
        warn_of(starting, (double)(tutti__now_ns() - begin) / 1e9);
    }
}

/* ---- begin and end ---- */

/* Returns advice to meet without MPI; "" if the launcher's variables do not suffice for this. */
static const char *advise(const tutti__conf_t *conf)
{
    tutti__conf_job_t job;

    if (tutti__conf_job(conf, 1, &job) != TUTTI_OK || job.size == 0 || job.missing[0] != '\0')
        return "";
    return "; with TUTTI_BOOT=env the ranks meet without MPI, and TUTTI_TIMEOUT ends the wait";
}

tutti__starting_t *tutti__starting_begin(const tutti__conf_t *conf, tutti__marks_t *marks)
{
    uint64_t stall_ms = conf->shared.stall_ms, timeout_ms = conf->shared.timeout_ms;
    tutti__starting_t *starting = stall_ms == 0 ? NULL : calloc(1, sizeof(*starting));

    if (starting == NULL)
        return NULL;
    starting->interval_ms = TUTTI__MIN(stall_ms, timeout_ms);
    starting->advice = advise(conf);
    starting->marks = marks;
    starting->end = eventfd(0, EFD_CLOEXEC);
    if (starting->end >= 0 && tutti__thread_launch(thread_main, starting, &starting->thread) == 0)
        return starting;
    if (starting->end >= 0)
        close(starting->end);
    free(starting);
    return NULL;
}

void tutti__starting_end(tutti__starting_t *starting)
{
    if (starting == NULL)
        return;
    eventfd_write(starting->end, 1);
    pthread_join(starting->thread, NULL);
    close(starting->end);
    free(starting);
}
