/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti_info's modules. Each module is opened in a process of its own, which runs this program with
 * --probe: see lib/boot/probe.c. Its standard output has lines of name, tab, value, tab, note.
 */
#include "api/info.h"
#include "info/info.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_KNOWN 8
#define PROBE_SECONDS 60

extern char **environ;

/* The library's own list of its modules. */
typedef struct {
    char folder[4096];
    struct {
        char file[64], built[256];
        int is_there;
    } known[MOST_KNOWN];
    int count;
} folder_t;

static void take_module(void *arg, const tutti__info_item_t *item)
{
    folder_t *folder = arg;

    if (strcmp(item->name, "folder") == 0) {
        snprintf(folder->folder, sizeof(folder->folder), "%s", item->value);
    } else if (folder->count < MOST_KNOWN) {
        snprintf(folder->known[folder->count].file, sizeof(folder->known[0].file), "%s",
                 item->name);
        snprintf(folder->known[folder->count++].built, sizeof(folder->known[0].built), "%s",
                 item->value);
    }
}

/* ---- the other process ---- */

static void print_item(void *arg, const tutti__info_item_t *item)
{
    (void)arg;
    printf("%s\t%s\t%s\n", item->name, item->value, item->note);
}

void info_probe(const char *file)
{
    alarm(PROBE_SECONDS);
    if (tutti__info(TUTTI__INFO_PROBE, file, print_item, NULL) != TUTTI_OK)
        printf("error\t%s\t\n", tutti_last_error());
    fflush(stdout);
    _exit(0); /* without the exit handlers of the module's libraries */
}

/* Start the process; returns its output, or NULL and the reason. */
static FILE *start(const char *file, pid_t *ret_pid, char *ret_why, size_t room)
{
    char *const argv[] = { (char *)"tutti_info", (char *)"--probe", (char *)(uintptr_t)file, NULL };
    posix_spawn_file_actions_t actions;
    int ends[2], error;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(ret_why, room, "cannot be probed: %s", strerror(errno));
        return NULL;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    error = posix_spawn(ret_pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error == 0)
        return fdopen(ends[0], "r");
    close(ends[0]);
    snprintf(ret_why, room, "cannot be probed: %s", strerror(error));
    return NULL;
}

/* Split a line into its parts; 0: not such a line. */
static int cut(char *line, char *ret_part[3])
{
    for (int i = 0; i < 3; i++) {
        ret_part[i] = line;
        line = i < 2 ? strchr(line, '\t') : strchr(line, '\n');
        if (line == NULL)
            return 0;
        *line++ = '\0';
    }
    return 1;
}

static void append(char *text, size_t room, const char *format, const char *a, const char *b)
{
    size_t used = strlen(text);

    snprintf(text + used, room - used, format, used > 0 ? ", " : "", a, b);
}

/* The report of the process for one file, as fields of a record. */
static void put_answers(info_t *info, const char *file)
{
    char why[512] = "", libraries[4096] = "", version[512] = "", line[4096];
    char *part[3];
    int status = 0;
    pid_t pid = -1;
    FILE *from = start(file, &pid, why, sizeof(why));

    while (from != NULL && fgets(line, sizeof(line), from) != NULL) {
        if (!cut(line, part))
            continue;
        if (strcmp(part[0], "error") == 0)
            snprintf(why, sizeof(why), "%s", part[1]);
        else if (strcmp(part[0], "library") == 0)
            append(libraries, sizeof(libraries), "%s%s => %s", part[1],
                   part[2][0] != '\0' ? part[2] : "not found");
        else if (strcmp(part[0], "devices") == 0)
            append(version, sizeof(version), "%s%s devices%s", part[1], "");
        else
            append(version, sizeof(version), "%s%s%s", part[1], "");
    }
    if (from != NULL)
        fclose(from);
    if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
        snprintf(why, sizeof(why), "ended by signal %d, %s", WTERMSIG(status),
                 WTERMSIG(status) == SIGALRM ? "after 60 s" : strsignal(WTERMSIG(status)));
    info_put(info, INFO_JSON, "state", "%s", why[0] == '\0' ? "loads" : "does not load");
    info_put(info, INFO_JSON, "version", "%s", version);
    info_put(info, INFO_JSON, "libraries", "%s", libraries);
    info_put(info, INFO_JSON, "error", "%s", why);
    if (why[0] != '\0')
        info_put(info, INFO_TEXT, "", "does not load: %s", why);
    else
        info_put(info, INFO_TEXT, "", "loads%s%s%s%s", version[0] != '\0' ? "; " : "", version,
                 libraries[0] != '\0' ? "; " : "", libraries);
}

/* ---- the list ---- */

static int is_module(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);

    return n > 3 && strcmp(entry->d_name + n - 3, ".so") == 0;
}

static void put_absent(info_t *info, const char *file, const char *built)
{
    int is_built = strncmp(built, "no", 2) != 0;

    info_record(info);
    info_put(info, INFO_BOTH, "file", "%s", file);
    info_put(info, INFO_JSON, "state", "%s", is_built ? "not there" : "not built");
    info_put(info, INFO_JSON, "error", "%s",
             is_built ? "it was built, but is not in the folder" : built);
    info_put(info, INFO_TEXT, "", "%s%s", is_built ? "built, but not in the folder" : "not built",
             is_built ? "" : built + 2);
}

void info_modules(info_t *info)
{
    folder_t *folder = calloc(1, sizeof(*folder));
    struct dirent **list = NULL;
    char title[4200];
    int n;

    if (folder == NULL)
        return;
    tutti__info(TUTTI__INFO_MODULES, NULL, take_module, folder);
    snprintf(title, sizeof(title), "modules in %s", folder->folder);
    info_list(info, "modules", title);
    n = scandir(folder->folder, &list, is_module, alphasort);
    for (int i = 0; i < n; i++) {
        info_record(info);
        info_put(info, INFO_BOTH, "file", "%s", list[i]->d_name);
        info_put(info, INFO_JSON, "path", "%s/%s", folder->folder, list[i]->d_name);
        put_answers(info, list[i]->d_name);
        for (int k = 0; k < folder->count; k++)
            folder->known[k].is_there |= strcmp(folder->known[k].file, list[i]->d_name) == 0;
        free(list[i]);
    }
    free(list);
    for (int k = 0; k < folder->count; k++)
        if (!folder->known[k].is_there)
            put_absent(info, folder->known[k].file, folder->known[k].built);
    free(folder);
}
