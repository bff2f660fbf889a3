/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log lines on stderr.
 *
 * Any thread, any time; errno is preserved. A line is formatted on the stack and written by one
 * write(2). A pipe takes up to PIPE_BUF (4096) bytes as a whole, so lines of several threads and
 * ranks on one terminal or pipe do not mix. Tried: stdio. If another thread prints during a fork,
 * stdio's lock stays held in the child; and unbuffered stderr splits lines.
 */
#include "base/log.h"

#include "base/log_callback.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* All accesses are relaxed, because no other data depends on these two variables. */
static atomic_int log_level = TUTTI__LOG_WARN;
static atomic_int log_rank = -1;

static const char *const level_names[TUTTI__LOG_LEVELS] = { "none",  "error", "warn", "info",
                                                            "debug", "trace", "data" };

void tutti__log_setup(tutti__log_level_t level, int rank)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
    atomic_store_explicit(&log_rank, rank, memory_order_relaxed);
}

void tutti__log_offer(tutti__log_level_t level, int rank)
{
    int none = -1;

    if (rank < 0 ? atomic_load_explicit(&log_rank, memory_order_relaxed) < 0
                 : atomic_compare_exchange_strong_explicit(
                       &log_rank, &none, rank, memory_order_relaxed, memory_order_relaxed))
        atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

int tutti__log_on(tutti__log_level_t level)
{
    return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

const char *tutti__log_level_name(tutti__log_level_t level)
{
    return (unsigned)level < TUTTI__LOG_LEVELS ? level_names[level] : "?";
}

static void write_all(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(STDERR_FILENO, text, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* stderr is unusable, and there is no other place to report it */
        text += n;
        bytes -= (size_t)n;
    }
}

static size_t prefix(char *line, size_t capacity, tutti__log_level_t level)
{
    int rank = atomic_load_explicit(&log_rank, memory_order_relaxed);
    const char *name = tutti__log_level_name(level);
    int n = rank < 0 ? snprintf(line, capacity, "tutti %s: ", name)
                     : snprintf(line, capacity, "tutti[%d] %s: ", rank, name);

    return (size_t)n;
}

void tutti__log_write(tutti__log_level_t level, const char *fmt, ...)
{
    char line[TUTTI__LOG_BYTES];
    int saved_errno = errno;
    size_t used, begin;
    va_list args;
    int n;

    begin = prefix(line, sizeof(line), level);
    va_start(args, fmt);
    n = vsnprintf(line + begin, sizeof(line) - begin, fmt, args);
    va_end(args);
    used = begin + (n < 0 ? 0 : (size_t)n);
    if (used > sizeof(line) - 1) {
        used = sizeof(line) - 1;
        memcpy(line + used - 3, "...", 3);
    }

    /* Tensor names are user input: control characters must not break the line. */
    for (size_t i = begin; i < used; i++)
        if ((unsigned char)line[i] < ' ')
            line[i] = ' ';
    line[used] = '\0';
    if (!tutti__log_hand_over(level, line + begin)) {
        line[used++] = '\n';
        write_all(line, used);
    }
    errno = saved_errno;
}

void tutti__log_text(const char *text)
{
    int saved_errno = errno;

    write_all(text, strlen(text));
    errno = saved_errno;
}
