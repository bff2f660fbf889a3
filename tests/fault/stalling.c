/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank is slow in each step of tutti_init, but each step takes less than TUTTI_TIMEOUT.
 * TUTTI_TIMEOUT is the deadline of all steps together, so all ranks give up soon after this time.
 */
#include "fault/startup.h"

#include "ranks.h"

#include <poll.h>
#include <string.h>

#define TIMEOUT_S 2
#define STALL_MS 1000
/* All calls of the slow rank together would take minutes. */
#define SOON_S 50.0

static int slow;

static void stall(const char *name)
{
    if (strcmp(name, "send") == 0)
        poll(NULL, 0, STALL_MS);
}

static void before(int rank)
{
    if (rank == slow)
        on_call = stall;
}

static int run(way_t way, const char *hosts)
{
    startup_t job = { .way = way,
                      .size = 3,
                      .hosts = hosts,
                      .timeout_s = TIMEOUT_S,
                      .limit_s = 60,
                      .before = before };
    double begin = now_s(), took_s;
    int failures = startup_run(&job);

    took_s = now_s() - begin;
    failures += took_s > SOON_S;
    for (int r = 0; r < job.size; r++)
        failures += !hall->outcome[r].ended || hall->outcome[r].status == TUTTI_OK;
    if (failures > 0)
        fprintf(stderr, "FAILED: by %s, hosts %s, rank %d is slow: %.1f s\n", way_names[way], hosts,
                slow, took_s);
    for (int r = 0; r < job.size; r++)
        fprintf(stderr, "by %s, hosts %s, rank %d is slow: %.1f s, rank %d: %d, %s\n",
                way_names[way], hosts, slow, took_s, r, hall->outcome[r].status,
                hall->outcome[r].text);
    return failures;
}

int main(void)
{
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    startup_open();
    for (slow = 0; slow < 3; slow++) {
        failures += run(BY_NAME, "aaa");
        failures += run(BY_ID, "aab");
        failures += run(BY_ENV, "abc");
    }
    return failures != 0;
}
