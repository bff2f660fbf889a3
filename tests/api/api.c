/* SPDX-License-Identifier: BSD-3-Clause */
/* See api.h. */
#include "api/api.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

enum {
    MOST = 16
};

static void set_environment(const char *env, int rank, int size)
{
    char text[1024], *rest = text, *line;

    snprintf(text, sizeof(text), "%s", env != NULL ? env : "");
    while ((line = strsep(&rest, "\n")) != NULL) {
        char *value = strchr(line, '=');

        if (value == NULL)
            continue;
        *value = '\0';
        setenv(line, value + 1, 1);
    }
    snprintf(text, sizeof(text), "%d", rank);
    setenv("TUTTI_RANK", text, 0);
    snprintf(text, sizeof(text), "%d", size);
    setenv("TUTTI_SIZE", text, 0);
}

static void read_all(int fd, char *text, size_t bytes)
{
    size_t used = 0;
    char spill[512];
    ssize_t n;

    while ((n = read(fd, used + 1 < bytes ? text + used : spill,
                     used + 1 < bytes ? bytes - 1 - used : sizeof(spill))) > 0)
        if (used + 1 < bytes)
            used += (size_t)n;
    text[used] = '\0';
}

int run_children(int size, const char *env, void (*fn)(int rank, int size), char *ret_text,
                 size_t bytes)
{
    pid_t pid[MOST];
    int failures = 0, status, pipes[2] = { -1, -1 };

    CHECK(size <= MOST);
    if (ret_text != NULL)
        CHECK(pipe(pipes) == 0);
    fflush(NULL);
    for (int r = 0; r < size; r++) {
        pid[r] = fork();
        CHECK(pid[r] >= 0);
        if (pid[r] != 0)
            continue;
        if (ret_text != NULL) {
            dup2(pipes[1], STDOUT_FILENO);
            dup2(pipes[1], STDERR_FILENO);
            close(pipes[0]);
            close(pipes[1]);
        }
        alarm(150);
        set_environment(env, r, size);
        fn(r, size);
        exit(0);
    }
    if (ret_text != NULL) {
        close(pipes[1]);
        read_all(pipes[0], ret_text, bytes);
        close(pipes[0]);
    }
    for (int r = 0; r < size; r++) {
        waitpid(pid[r], &status, 0);
        if (status != 0) {
            fprintf(stderr, "rank %d ended with %x\n", r, (unsigned)status);
            failures++;
        }
    }
    return failures;
}

void clean_environment(void)
{
    static const char *const prefixes[] = { "TUTTI_",       "OMPI_",  "PMI",     "SLURM_",
                                            "MPI_",         "MV2_",   "RANK=",   "WORLD_SIZE=",
                                            "JSM_",         "LOCAL_", "MASTER_", "AZ_BATCH_",
                                            "TORCHELASTIC_" };
    char name[256];

    for (char **entry = environ; *entry != NULL;) {
        size_t length = strcspn(*entry, "=");
        int ours = 0;

        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
            ours |= strncmp(*entry, prefixes[i], strlen(prefixes[i])) == 0;
        if (!ours || length >= sizeof(name)) {
            entry++;
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)length, *entry);
        unsetenv(name); /* the next variable has moved to this place */
    }
}
