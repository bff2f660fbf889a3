/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * If the limit of open descriptors is too low for the number of ranks, all ranks get an error with
 * both numbers, long before the deadline. If only the soft limit is too low, tutti_init raises it.
 */
#include "fault/startup.h"

#include "ranks.h"

#include <string.h>
#include <sys/resource.h>

#define SOON_S 50.0

static struct rlimit limit;

static void at_start(int rank)
{
    (void)rank;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int run(way_t way, int size, rlim_t soft, rlim_t hard, int enough)
{
    startup_t job = {
        .way = way, .size = size, .timeout_s = 60, .limit_s = 90, .at_start = at_start
    };
    double begin = now_s();
    int failures = 0;

    limit = (struct rlimit){ soft, hard };
    failures += startup_run(&job);
    failures += now_s() - begin > SOON_S;
    for (int r = 0; r < size; r++) {
        const outcome_t *out = &hall->outcome[r];
        int right = enough ? out->status == TUTTI_OK
                           : out->status == TUTTI_ERR_NO_MEMORY &&
                                 strstr(out->text, "more files are needed") != NULL;

        if (out->ended && right)
            continue;
        failures++;
        fprintf(stderr, "rank %d: %d, %s\n", r, out->status, out->ended ? out->text : "no end");
    }
    if (failures > 0)
        fprintf(stderr, "FAILED: by %s, %d ranks, limit %d, at most %d: %.1f s\n", way_names[way],
                size, (int)soft, (int)hard, now_s() - begin);
    return failures;
}

int main(void)
{
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    startup_open();
    for (way_t way = 0; way < WAYS; way++) {
        failures += run(way, 8, 12, 12, 0);
        failures += run(way, 8, 12, 1000, 1);
    }
    failures += run(BY_NAME, 32, 64, 64, 0);
    failures += run(BY_ID, 32, 64, 64, 0);
    return failures != 0;
}
