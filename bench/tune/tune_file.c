/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file that the library reads: its text, and writing it atomically, so that no process reads a
 * partial file.
 */
#include "tune/tune.h"

#include "conf/tuned.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int tune_path(int ranks, char *ret_path, size_t room)
{
    char path[TUTTI__TUNED_PATH];

    return tutti__tuned_path((uint64_t)ranks, path) &&
           snprintf(ret_path, room, "%s", path) < (int)room;
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
            "# Settings that were measured to be faster than the defaults on this machine.\n"
            "# Environment variables override them. To return to the defaults, remove this\n"
            "# file. After a change of the machine, measure again:\n"
            "#     %s\n"
            "tutti_tuned %d\n",
            command, TUTTI__TUNED_VERSION);
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

/* Make all folders above the file. An error here is reported when the file is made. */
static void make_folders(const char *path)
{
    char folder[TUTTI__TUNED_PATH];

    snprintf(folder, sizeof(folder), "%s", path);
    for (char *at = strchr(folder + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(folder, 0777);
        *at = '/';
    }
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

    make_folders(path);
    snprintf(other, sizeof(other), "%s.XXXXXX", path);
    fd = mkstemp(other);
    if (fd < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    failed = put_whole(fd, text) != 0;
    failed = close(fd) != 0 || failed;
    if (!failed && rename(other, path) == 0)
        return 0;
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    unlink(other);
    return -1;
}
