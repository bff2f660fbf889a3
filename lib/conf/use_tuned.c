/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the tuned file, and applies its settings.
 *
 * Called while the settings are read, before the ranks meet. So the number of local ranks comes
 * from the launcher. If this number is not known (unique ids, stores), only a file named by
 * TUTTI_TUNED is read.
 *
 * All ranks use rank 0's values, as for all shared settings. So the other ranks do not search the
 * home directory, which may be on a network file system. But all ranks read a file named by
 * TUTTI_TUNED, because rank 0 may have another rank in the launcher's variables.
 */
#include "conf/conf_inside.h"
#include "conf/tuned.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The number of ranks on this host; 0: not known. */
static uint64_t local_ranks(const tutti__conf_t *conf)
{
    if (tutti__conf_is_local(conf))
        return (uint64_t)conf->size;
    if (strcmp(conf->boot, "self") == 0)
        return 1;
    return (uint64_t)tutti__conf_launcher_local_size();
}

static int is_one_host(const tutti__conf_t *conf)
{
    return tutti__conf_is_local(conf) ||
           (local_ranks(conf) > 0 && local_ranks(conf) == (uint64_t)tutti__conf_job_size());
}

/* Returns 1 if, according to the launcher's variables, this rank will use rank 0's settings. */
static int follows(const tutti__conf_t *conf)
{
    if (tutti__conf_is_local(conf))
        return conf->rank > 0;
    return strcmp(conf->boot, "self") != 0 && tutti__conf_launcher_rank() > 0;
}

/* Find the path of the file. Returns 0 if no file is to be read. */
static int find(const tutti__conf_t *conf, char path[TUTTI__TUNED_PATH], tutti__conf_note_t *note)
{
    uint64_t ranks = local_ranks(conf);

    if (strcmp(conf->tuned, "none") == 0)
        return 0;
    if (conf->tuned[0] != '\0') {
        snprintf(path, TUTTI__TUNED_PATH, "%s", conf->tuned);
        return 1;
    }
    if (follows(conf))
        return 0;
    if (ranks == 0)
        snprintf(note->text, sizeof(note->text),
                 "no tuned settings: no launcher says how many ranks this host has; start the "
                 "program under mpirun, or name the file in TUTTI_TUNED");
    return ranks > 0 && tutti__tuned_path(ranks, path);
}

/* Apply all settings of the file. If a setting is invalid, returns 0 and the reason in ret_why. */
static int put_all(const tutti__tuned_t *tuned, tutti__conf_t *conf, char *ret_why, size_t capacity)
{
    char allowed[128];

    for (size_t i = 0; i < tuned->count; i++) {
        const tutti__tuned_entry_t *entry = &tuned->entry[i];

        if (!tutti__conf_is_tunable(entry->name)) {
            snprintf(ret_why, capacity, "line %u: %s is not a tunable setting", entry->line,
                     entry->name);
            return 0;
        }
        if (!tutti__conf_put(conf, entry->name, entry->value, allowed, sizeof(allowed))) {
            snprintf(ret_why, capacity, "line %u: %s %s makes no sense; allowed: %s", entry->line,
                     entry->name, entry->value, allowed);
            return 0;
        }
    }
    return 1;
}

/* "tuned settings of FILE: TUTTI_ONESHOT_BYTES=48K, TUTTI_FUSION_BYTES=4M (not used: ...)" */
static void note_values(const char *path, const tutti__tuned_t *tuned, int one_host,
                        tutti__conf_note_t *note)
{
    size_t used = (size_t)snprintf(note->text, sizeof(note->text), "tuned settings of %.600s:%s",
                                   path, tuned->count == 0 ? " the defaults" : "");

    for (size_t i = 0; i < tuned->count; i++) {
        const tutti__tuned_entry_t *entry = &tuned->entry[i];
        const char *but = "";

        if (tutti__conf_text(entry->name) != NULL)
            but = " (not used: the variable is set)";
        else if (!one_host && strcmp(entry->name, "TUTTI_FUSION_BYTES") == 0)
            but = " (not used: for one host)";
        else
            note->used.entry[note->used.count++] = *entry;
        if (used < sizeof(note->text))
            used += (size_t)snprintf(note->text + used, sizeof(note->text) - used, "%s %s=%s%s",
                                     i == 0 ? "" : ",", entry->name, entry->value, but);
    }
}

/* The file cannot be opened. This is not a warning, because a user need not have a tuned file. */
static void note_closed(const char *path, int error, const char *why, tutti__conf_note_t *note)
{
    if (error == ENOENT || error == ENOTDIR)
        snprintf(note->text, sizeof(note->text),
                 "no tuned settings: %.600s is not there; tutti_tune makes it", path);
    else
        snprintf(note->text, sizeof(note->text), "no tuned settings: %.600s: %.300s", path, why);
}

void tutti__conf_use_tuned(tutti__conf_t *conf, tutti__conf_note_t *ret_note)
{
    char path[TUTTI__TUNED_PATH], why[256];
    tutti__conf_shared_t before = conf->shared;
    tutti__tuned_t tuned;
    int closed = 0;

    ret_note->level = TUTTI__LOG_INFO;
    ret_note->text[0] = '\0';
    ret_note->used.count = 0;
    if (!find(conf, path, ret_note))
        return;
    if (tutti__tuned_read(path, &tuned, &closed, why, sizeof(why)) &&
        put_all(&tuned, conf, why, sizeof(why))) {
        /* tutti_tune measures fused buckets on one host; between hosts other sizes are better. */
        if (!is_one_host(conf))
            conf->shared.fusion_bytes = before.fusion_bytes;
        note_values(path, &tuned, is_one_host(conf), ret_note);
        return;
    }
    conf->shared = before;
    if (closed != 0 && conf->tuned[0] == '\0') {
        note_closed(path, closed, why, ret_note);
        return;
    }
    ret_note->level = TUTTI__LOG_WARN;
    snprintf(ret_note->text, sizeof(ret_note->text), "tuned settings are not used: %.600s: %.300s",
             path, why);
}
