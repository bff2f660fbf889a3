/* SPDX-License-Identifier: BSD-3-Clause */
/* Redirects stderr to an unnamed file. */
#include "unit/base/capture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int saved_fd, file_fd;

static void check(int ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    exit(1);
}

void capture_begin(void)
{
    saved_fd = dup(STDERR_FILENO);
    check(saved_fd >= 0, "dup");
    file_fd = memfd_create("stderr", 0);
    check(file_fd >= 0, "memfd_create");
    /* Threads write at the same time; a memfd's position has no lock. */
    check(fcntl(file_fd, F_SETFL, O_APPEND) == 0, "fcntl");
    check(dup2(file_fd, STDERR_FILENO) >= 0, "dup2");
}

void capture_end(char *ret_text, size_t room)
{
    ssize_t n;

    check(dup2(saved_fd, STDERR_FILENO) >= 0, "dup2");
    n = pread(file_fd, ret_text, room - 1, 0);
    check(n >= 0, "pread");
    ret_text[n] = '\0';
    close(saved_fd);
    close(file_fd);
}
