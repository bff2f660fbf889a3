/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exposed and hidden communication. Three times are measured: threads of the program wait; buckets
 * are in flight; buckets are in flight while no thread waits.
 *
 *      waits          .....#########..............####......
 *      in flight      ..##########.....########.............
 *      hidden         ..###............########.............
 *
 * When a thread begins or stops waiting, or `in flight` changes, the time since the last change is
 * added to the phases that it belongs to. Any thread does this, under a lock, and only if times are
 * measured.
 */
#include "stats/stats_inside.h"

#include "base/time.h"

#include <assert.h>

/* Add the time since the last change to the phases that it belongs to. Returns the time now. The
   caller holds the lock. */
static uint64_t advance(tutti__stats_phases_t *phases)
{
    uint64_t now = tutti__now_ns(), ns = now - phases->since_ns;

    if (phases->waiting > 0)
        phases->exposed_ns += ns;
    if (phases->in_flight)
        phases->in_flight_ns += ns;
    if (phases->in_flight && phases->waiting == 0)
        phases->hidden_ns += ns;
    phases->since_ns = now;
    return now;
}

uint64_t tutti__phase_wait(tutti__stats_phases_t *phases, int by)
{
    uint64_t now;

    tutti__mutex_lock(&phases->lock);
    now = advance(phases);
    assert(by > 0 || phases->waiting > 0);
    phases->waiting += (uint32_t)by;
    tutti__mutex_unlock(&phases->lock);
    return now;
}

/* Only this function writes in_flight, and one thread at a time calls this function. So it may read
   in_flight without the lock. */
void tutti__stats_in_flight(tutti__stats_t *stats, int is_any)
{
    if (stats == NULL || !stats->is_timed || stats->phases.in_flight == is_any)
        return;
    tutti__mutex_lock(&stats->phases.lock);
    (void)advance(&stats->phases);
    stats->phases.in_flight = is_any;
    tutti__mutex_unlock(&stats->phases.lock);
}

void tutti__phase_read(tutti__stats_phases_t *phases, tutti_stats_t *ret_stats)
{
    tutti__mutex_lock(&phases->lock);
    (void)advance(phases);
    ret_stats->exposed_ns = phases->exposed_ns;
    ret_stats->in_flight_ns = phases->in_flight_ns;
    ret_stats->hidden_ns = phases->hidden_ns;
    tutti__mutex_unlock(&phases->lock);
}
