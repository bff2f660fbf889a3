/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds a rank of this machine that is stopped, by a signal or a debugger.
 *
 * Called when a deadline has passed. All ranks of the machine are checked: a GPU does not report
 * which rank it waits for, and a late peer may itself wait for the stopped rank. Any thread.
 */
#include "watch/watch_inside.h"

#include <stdio.h>
#include <string.h>

/* The state of a process: the field behind the name in /proc/PID/stat; '\0': unknown. */
static char state_of(int pid)
{
    char path[64], text[256], *at = NULL;
    size_t n;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return '\0';
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    at = strrchr(text, ')');
    return at != NULL && at[1] == ' ' ? at[2] : '\0';
}

int tutti__watch_halted(const tutti__watch_t *watch, char *text, size_t bytes)
{
    const tutti__watcher_t *w = tutti__watcher_read(watch);
    const tutti__machine_t *machine = w->machine;

    for (uint32_t i = 0; i < machine->nranks; i++) {
        char state = i != machine->me && machine->pid[i] > 0 ? state_of(machine->pid[i]) : '\0';

        if (state != 'T' && state != 't')
            continue;
        snprintf(text, bytes, "%s does not go on: its process %d is stopped",
                 tutti__boot_rank_name(w->boot, machine->rank[i]), machine->pid[i]);
        return 1;
    }
    return 0;
}
