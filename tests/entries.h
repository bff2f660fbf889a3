/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts the entries of a folder: what a process holds, according to /proc. */
#ifndef TUTTI_TESTS_ENTRIES_H
#define TUTTI_TESTS_ENTRIES_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* "." and ".." count as well. If the folder cannot be read, the process ends. */
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

/* File descriptors; one of them is that of the folder. */
static inline int open_files(void)
{
    return count_entries("/proc/self/fd");
}

#endif
