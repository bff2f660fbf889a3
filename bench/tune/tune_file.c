/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file that the library reads: its text, and writing it atomically, so that no process reads a
 * partial file.
 */
#include "tune/tune.h"

#include "api/info.h"
#include "conf/tuned.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int tune_path(int ranks, char *ret_path, size_t bytes)
{
    char path[TUTTI__TUNED_PATH];

    return tutti__tuned_path((uint64_t)ranks, path) &&
           snprintf(ret_path, bytes, "%s", path) < (int)bytes;
}

/* The result with this name, or NULL. */
static const tune_result_t *find_result(const tune_search_t *search, const char *name)
{
    for (size_t i = 0; i < search->count; i++)
        if (strcmp(search->results[i].name, name) == 0)
            return &search->results[i];
    return NULL;
}

/* Copy the library's statement about the file that TUTTI_TUNED names. */
static void take_use(void *arg, const tutti__info_item_t *item)
{
    if (strcmp(item->from, "tuned") == 0 && strcmp(item->name, "use") == 0)
        snprintf(arg, TUTTI__TUNED_PATH, "%s", item->value);
}

int tune_can_keep(const char *path)
{
    static const char unused[] = "tuned settings are not used: ";
    char use[TUTTI__TUNED_PATH] = "";
    struct stat file;

    if (stat(path, &file) != 0 || file.st_size == 0)
        return 1;
    setenv("TUTTI_TUNED", path, 1);
    if (tutti_version() == TUTTI_API_VERSION)
        tutti__info(TUTTI__INFO_SETTINGS, "1", take_use, use);
    setenv("TUTTI_TUNED", "none", 1);
    if (strncmp(use, unused, strlen(unused)) != 0)
        return 1;
    fprintf(stderr, "tutti_tune: the older file has an error; correct it or remove it: %s\n",
            use + strlen(unused));
    return 0;
}

void tune_keep(const char *path, int has_link, tune_search_t *search)
{
    tutti__tuned_t old;
    char why[256];
    int closed;

    if (path == NULL || !tutti__tuned_read(path, &old, &closed, why, sizeof(why)))
        return;
    for (size_t i = 0; i < old.count; i++) {
        const tutti__tuned_entry_t *entry = &old.entry[i];
        const tune_result_t *result = find_result(search, entry->name);

        if ((has_link && tune_link_has(entry->name)) || (result != NULL && !result->stays) ||
            strncmp(entry->name, "TUTTI_", 6) != 0 || search->nkept == TUNE_KEPT)
            continue;
        snprintf(search->kept[search->nkept].name, sizeof(search->kept->name), "%s", entry->name);
        snprintf(search->kept[search->nkept++].value, sizeof(search->kept->value), "%s",
                 entry->value);
        if (result == NULL)
            setenv(entry->name, entry->value, 1);
    }
}

static void put_link(const tune_link_t *link, FILE *to)
{
    if (link->used)
        fprintf(to,
                "TUTTI_LINK_NS %llu # half of a round trip between ranks 0 and %d\n"
                "TUTTI_LINK_MBPS %llu # with both, calls take %.3f of the default's time\n",
                (unsigned long long)link->ns, link->peer, (unsigned long long)link->mbps,
                link->ratio);
    else if (link->measured)
        fprintf(to, "# TUTTI_LINK_NS, TUTTI_LINK_MBPS: the defaults stay\n");
}

char *tune_text(const tune_search_t *found, const char *command)
{
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);

    if (to == NULL) {
        perror("tutti_tune");
        exit(1);
    }
    fprintf(to,
            "# Settings that tutti_tune has measured on this machine.\n"
            "# Environment variables override them. To return to the defaults, remove this\n"
            "# file. After a change of the machine, measure again:\n"
            "#     %s\n"
            "tutti_tuned %d\n",
            command, TUTTI__TUNED_VERSION);
    put_link(&found->link, to);
    for (size_t i = 0; i < found->count; i++) {
        const tune_result_t *result = &found->results[i];
        const tune_figures_t *winner = &result->of[result->winner];

        if (!result->in_file)
            continue;
        if (result->winner == 0)
            fprintf(to, "# %s: the default stays\n", result->name);
        else
            fprintf(to, "%s %s # %.3f (%.3f to %.3f) of the default's time\n", result->name,
                    winner->value, winner->ratio.middle, winner->ratio.low, winner->ratio.high);
    }
    for (size_t i = 0; i < found->nkept; i++)
        fprintf(to, "%s %s # from the file before\n", found->kept[i].name, found->kept[i].value);
    fclose(to);
    return text;
}

void tune_make_folders(const char *path)
{
    char folder[TUTTI__TUNED_PATH];

    snprintf(folder, sizeof(folder), "%s", path);
    for (char *at = strchr(folder + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(folder, 0777);
        *at = '/';
    }
}

/* Make a file beside `path`. other: its name. Returns a descriptor, or -1 and a message on
   stderr. */
static int open_other(const char *path, char *other, size_t bytes)
{
    struct stat file;
    int fd = -1;

    snprintf(other, bytes, "%s.XXXXXX", path);
    if (stat(path, &file) == 0 && S_ISDIR(file.st_mode))
        errno = EISDIR;
    else
        fd = mkstemp(other);
    if (fd < 0)
        fprintf(stderr, "tutti_tune: %s: %s\n", path, strerror(errno));
    return fd;
}

int tune_can_write(const char *path)
{
    char other[TUTTI__TUNED_PATH + 8];
    int fd = open_other(path, other, sizeof(other));

    if (fd < 0)
        return 0;
    close(fd);
    unlink(other);
    return 1;
}

static int put_whole(int fd, const char *text)
{
    size_t bytes = strlen(text);

    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        text += n;
        bytes -= (size_t)n;
    }
    return fchmod(fd, 0644) == 0 && fsync(fd) == 0 ? 0 : -1;
}

int tune_write(const char *path, const char *text)
{
    char other[TUTTI__TUNED_PATH + 8];
    int fd, failed;

    fd = open_other(path, other, sizeof(other));
    if (fd < 0)
        return -1;
    failed = put_whole(fd, text) != 0;
    failed = close(fd) != 0 || failed;
    if (!failed && rename(other, path) == 0)
        return 0;
    fprintf(stderr, "tutti_tune: %s: %s\n", path, strerror(errno));
    unlink(other);
    return -1;
}
