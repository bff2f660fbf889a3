/* SPDX-License-Identifier: BSD-3-Clause */
/* See fault.h. */
#include "fault/fault.h"

#include "base/log.h"
#include "base/time.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

board_t *board;

void board_open(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    /* Turn the log off: otherwise every rank would log every death. */
    tutti__log_setup(TUTTI__LOG_NONE, -1);
}

void board_clear(void)
{
    memset(board, 0, sizeof(*board));
}

void long_path(char ret_path[TUTTI__CONF_PATH], const char *path)
{
    size_t at = TUTTI__CONF_PATH - 1 - strlen(path);

    memset(ret_path, '/', at);
    for (size_t i = 1; i + 1 < at; i += 2)
        ret_path[i] = '.';
    strcpy(ret_path + at, path);
}

double board_age_s(void)
{
    return (double)(tutti__now_ns() - atomic_load(&board->when_ns)) / 1e9;
}

double wall_ms(void)
{
    return (double)tutti__now_ns() / 1e6;
}

double cpu_ms(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static void check_words(const char *text, const char *call)
{
    if (strstr(tutti_last_error(), text) == NULL)
        ranks_fail(__FILE__, __LINE__, "%s says '%s', wanted '%s' in it", call, tutti_last_error(),
                   text);
}

void check_dead(rank_t *self, tutti_status_t want, const char *text)
{
    double began = wall_ms();
    tutti_request_t *request;
    float x[64] = { 0 };
    void *ptr;

    CHECK_STATUS(tutti_allreduce(x, x, 64, TUTTI_FLOAT32, TUTTI_SUM, self->comm), want);
    check_words(text, "allreduce");
    CHECK_STATUS(tutti_broadcast(x, 64, TUTTI_FLOAT32, 0, self->comm), want);
    CHECK_STATUS(tutti_barrier(self->comm), want);
    check_words(text, "barrier");
    CHECK_STATUS(tutti_allreduce_async("after", x, x, 64, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &request),
                 want);
    check_words(text, "allreduce_async");
    CHECK_STATUS(tutti_mem_alloc(self->comm, 100, &ptr), want);
    check_words(text, "mem_alloc");
    CHECK(wall_ms() - began < SOON_S * 1e3);
}

long proc_status(const char *key)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long value = -1;

    if (file == NULL)
        return -1;
    while (value < 0 && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            value = strtol(line + strlen(key), NULL, 10);
    fclose(file);
    return value;
}
