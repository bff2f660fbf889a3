/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts the entries of a folder of /proc, such as the descriptors that a process holds. */
#ifndef TUTTI_TESTS_ENTRIES_H
#define TUTTI_TESTS_ENTRIES_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* "." and ".." count as well. If the folder cannot be read, this function ends the process. */
static inline int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;

    if (dir == NULL) {
        perror(path);
        abort();
    }
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

/* The number of open file descriptors, including the descriptor with which the folder is read. */
static inline int open_files(void)
{
    return count_entries("/proc/self/fd");
}

#endif
