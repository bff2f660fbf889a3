/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two hosts' ranks on one processor: a rank that waits in a direct call must detect from its yields
 * that the other rank uses the processor, because each host counts only its own ranks.
 */
#include "ranks.h"

#include "base/time.h"
#include "engine/state.h"

#include <sched.h>

#define LIMIT_NS 50000000000u

/* Let this thread run only on the first processor that the process may use. */
static void use_one_processor(void)
{
    cpu_set_t may, one;
    int first = 0;

    CHECK(sched_getaffinity(0, sizeof(may), &may) == 0);
    while (!CPU_ISSET(first, &may))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
}

static void both(rank_t *self)
{
    const tutti__engine_t *e = self->inside->engine;
    uint64_t end = tutti__now_ns() + LIMIT_NS;
    int32_t found;

    if (!e->spin)
        return; /* the machine has one processor, and the ranks know that they share it */
    use_one_processor();
    do {
        CHECK(tutti__now_ns() < end);
        found = atomic_load(&e->shared_ns) != 0;
        CHECK_OK(tutti_allreduce(&found, &found, 1, TUTTI_INT32, TUTTI_MIN, self->comm));
    } while (!found);
}

int main(void)
{
    job_t job = { .size = 2, .hosts = "ab", .fn = both };
    int failures = 0;

    RUN_JOB(failures, &job);
    return failures != 0;
}
