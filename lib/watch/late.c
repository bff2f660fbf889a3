/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Late waits: the deadline of every wait, and the intervals of stall warnings. Any thread.
 *
 * All ranks have the same deadline, and the first reason for the end is kept. So a rank that can
 * name the culprit ends the communicator at once, and the other ranks wait a little longer.
 */
#include "watch/watch_inside.h"

#include <stdio.h>

const char *tutti__late_time(uint64_t ns, char text[static 24])
{
    double s = (double)ns / 1e9;

    snprintf(text, 24, "%.*f s", s < 10 ? 1 : 0, s);
    return text;
}

int tutti__late_check(tutti__watch_t *watch, const tutti__late_t *late, uint64_t since_ns,
                      uint64_t now_ns, uint64_t limit_ns)
{
    const tutti__watcher_t *w = tutti__watcher_read(watch);
    uint64_t waited_ns = now_ns > since_ns ? now_ns - since_ns : 0;
    char text[TUTTI__ERROR_BYTES], what[192], culprit[280], halted[160];
    int certain;

    if (tutti__watch_has_ended(watch))
        return 1;
    if (waited_ns < limit_ns)
        return 0;
    certain = late->culprit(late->subject, culprit, sizeof(culprit));
    if (certain == TUTTI__LATE_NOT)
        return 0;
    if (tutti__watch_halted(watch, halted, sizeof(halted)))
        snprintf(culprit, sizeof(culprit), "%s", halted);
    else if (!certain && waited_ns < limit_ns + late->unsure_ns)
        return 0;
    late->what(late->subject, what, sizeof(what));
    snprintf(text, sizeof(text), "%s %s%s%s", tutti__boot_rank_name(w->boot, w->rank), what,
             culprit[0] != '\0' ? ": " : "", culprit);
    (void)tutti__watch_end(watch, TUTTI_ERR_TIMEOUT, text);
    return 1;
}

int tutti__late_is_due(const tutti__watch_t *watch, uint64_t since_ns, uint64_t before_ns,
                       uint64_t now_ns)
{
    uint64_t interval_ns = tutti__watcher_read(watch)->conf->stall_ms * 1000000u;
    uint64_t before = before_ns > since_ns ? before_ns - since_ns : 0;
    uint64_t now = now_ns > since_ns ? now_ns - since_ns : 0;

    return interval_ns > 0 && now / interval_ns > before / interval_ns;
}
