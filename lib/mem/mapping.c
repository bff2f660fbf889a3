/* SPDX-License-Identifier: BSD-3-Clause */
/* See mapping.h. */
#include "mem/mapping.h"

#include "base/forked.h"
#include "base/lock.h"
#include "base/status.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef struct mapping {
    char *base;
    size_t span;
    unsigned users;
    unsigned generation; /* fork generation of the process that has made the mapping */
    struct mapping *next;
} mapping_t;

static tutti__mutex_t lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_ARENA);
static mapping_t *mappings; /* under lock */

/* ---- forks ---- */

/* fork() holds the lock while it copies the process, so the child's lists are complete. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock.mutex);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock.mutex);
}

/* pthread_atfork waits for a fork in progress, and the fork waits for the lock. The first call of
   tutti__fork_generation calls pthread_atfork, so this first call must not be made under the
   lock. */
static void register_handlers(void)
{
    (void)tutti__fork_generation();
    pthread_atfork(before_fork, after_fork, after_fork);
}

void tutti__mapping_lock(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, register_handlers);
    tutti__mutex_lock(&lock);
}

void tutti__mapping_unlock(void)
{
    tutti__mutex_unlock(&lock);
}

/* ---- the list ---- */

/* Find the list's pointer to the mapping; the pointer is NULL if there is none. An entry of another
   generation is the parent's: in this process another object may be at that address. */
static mapping_t **find(const char *base)
{
    unsigned generation = tutti__fork_generation();
    mapping_t **at = &mappings;

    while (*at != NULL && ((*at)->base != base || (*at)->generation != generation))
        at = &(*at)->next;
    return at;
}

/* A page table entry for a huge page needs file offset and address to have the same alignment. So
   addresses for one more huge page are reserved, and the excess is unmapped. */
static void *map_aligned(int fd, size_t span)
{
    size_t reserved = span + TUTTI__HUGE_BYTES, before;
    char *base, *taken = mmap(NULL, reserved, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (taken == MAP_FAILED)
        return MAP_FAILED;
    before = (size_t)(-(uintptr_t)taken % TUTTI__HUGE_BYTES);
    base = mmap(taken + before, span, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        int error = errno;

        munmap(taken, reserved);
        errno = error;
        return MAP_FAILED;
    }
    if (before > 0)
        munmap(taken, before);
    if (before < TUTTI__HUGE_BYTES)
        munmap(base + span, TUTTI__HUGE_BYTES - before);
    return base;
}

tutti_status_t tutti__mapping_open(int fd, size_t span, char **ret_base)
{
    uint64_t huge_from = tutti__mapping_huge_from(span);
    mapping_t *mapping = malloc(sizeof(*mapping));
    char *base;

    if (mapping == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory for a mapping");
    base = map_aligned(fd, span);
    if (base == MAP_FAILED) {
        free(mapping);
        return tutti__fail_errno("cannot map %zu bytes of addresses for shared memory", span);
    }
    if (huge_from < span)
        (void)madvise(base + huge_from, span - huge_from, MADV_HUGEPAGE);
    /* Failures of these two calls do not matter: a forked child must not use the mapping anyway,
       and a core file may contain it. */
    (void)madvise(base, span, MADV_DONTFORK);
    (void)madvise(base, span, MADV_DONTDUMP);

    *mapping = (mapping_t){ base, span, 1, tutti__fork_generation(), NULL };
    tutti__mapping_lock();
    mapping->next = mappings;
    mappings = mapping;
    tutti__mapping_unlock();
    *ret_base = base;
    return TUTTI_OK;
}

int tutti__mapping_join(const char *base)
{
    mapping_t *mapping;

    tutti__mapping_lock();
    mapping = *find(base);
    if (mapping != NULL)
        mapping->users++;
    tutti__mapping_unlock();
    return mapping != NULL;
}

uint64_t tutti__mapping_total(void)
{
    unsigned generation = tutti__fork_generation();
    uint64_t total = 0;

    tutti__mapping_lock();
    for (const mapping_t *m = mappings; m != NULL; m = m->next)
        total += m->generation == generation ? m->span : 0;
    tutti__mapping_unlock();
    return total;
}

void tutti__mapping_leave(const char *base)
{
    mapping_t **at, *mapping;

    tutti__mapping_lock();
    at = find(base);
    mapping = *at;
    if (mapping != NULL && --mapping->users == 0)
        *at = mapping->next;
    else
        mapping = NULL;
    tutti__mapping_unlock();
    if (mapping == NULL)
        return;
    munmap(mapping->base, mapping->span);
    free(mapping);
}
