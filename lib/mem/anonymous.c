/* SPDX-License-Identifier: BSD-3-Clause */
/* See anonymous.h. */
#include "mem/anonymous.h"

#include "base/status.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line of /proc/self/maps. */
typedef struct {
    uintptr_t begin, end;
    char permissions[5]; /* "rw-p": read, write, execute, private */
    unsigned long inode;
    const char *name; /* a file, "[heap]", "[stack]", "[anon:...]", or "" */
} mapping_t;

static int parse(char *line, mapping_t *mapping)
{
    int at = 0;

    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %lu %n", &mapping->begin, &mapping->end,
               mapping->permissions, &mapping->inode, &at) < 4)
        return 0;
    mapping->name = line + (at > 0 ? (size_t)at : strlen(line));
    return 1;
}

static tutti_status_t refuse(const void *ptr, const char *what, const char *name)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "the memory at %p %s%s", ptr, what, name);
}

static tutti_status_t judge(const void *ptr, const mapping_t *mapping)
{
    if (mapping->inode != 0 || mapping->permissions[3] != 'p')
        return refuse(ptr, "is shared, or belongs to a file: ", mapping->name);
    if (memcmp(mapping->permissions, "rw-", 3) != 0)
        return refuse(
            ptr, "can be executed, or cannot be both read and written: ", mapping->permissions);
    if (mapping->name[0] == '[' && strncmp(mapping->name, "[anon", 5) != 0)
        return refuse(ptr, "is in ", mapping->name);
    return TUTTI_OK;
}

/* Check all mappings of a range. The lines of the file are in the order of addresses. */
static tutti_status_t judge_all(FILE *file, uintptr_t begin, size_t bytes)
{
    tutti_status_t status = TUTTI_OK;
    uintptr_t at = begin, end = begin + bytes;
    char *line = NULL;
    size_t capacity = 0;

    while (status == TUTTI_OK && at < end && getline(&line, &capacity, file) > 0) {
        mapping_t mapping;

        if (!parse(line, &mapping) || mapping.end <= at)
            continue;
        if (mapping.begin > at)
            break;
        status = judge((const void *)at, &mapping);
        at = mapping.end;
    }
    if (status == TUTTI_OK && at < end)
        status = refuse((const void *)at, "is not mapped", "");
    free(line);
    return status;
}

/* The stack of a thread is also anonymous memory. In the list, only the main stack has a mark. */
static int overlaps_stack(uintptr_t begin, size_t bytes)
{
    pthread_attr_t attributes;
    size_t stack_bytes = 0;
    void *stack = NULL;

    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return 0;
    (void)pthread_attr_getstack(&attributes, &stack, &stack_bytes);
    pthread_attr_destroy(&attributes);
    return begin < (uintptr_t)stack + stack_bytes && (uintptr_t)stack < begin + bytes;
}

tutti_status_t tutti__mem_check_anonymous(const void *ptr, size_t bytes)
{
    uintptr_t begin = (uintptr_t)ptr, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    tutti_status_t status;
    FILE *file;

    if (begin % page != 0 || bytes % page != 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%zu bytes at %p are not whole pages of %zu bytes", bytes, ptr,
                           (size_t)page);
    if (begin == 0 || bytes > UINTPTR_MAX - begin)
        return refuse(ptr, "is not mapped", "");
    if (overlaps_stack(begin, bytes))
        return refuse(ptr, "is in the stack of this thread", "");
    file = fopen("/proc/self/maps", "re");
    if (file == NULL)
        return tutti__fail_errno("/proc/self/maps");
    status = judge_all(file, begin, bytes);
    fclose(file);
    return status;
}
