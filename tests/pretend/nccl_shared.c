/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mapping that the NCCL of all ranks shares. It is made before the ranks start, or it is a
 * file. Also checks the order of launches.
 *
 * Two communicators that share two devices deadlock if their kernels run in different orders on the
 * devices, and so wait for each other. So each device keeps a list of its launches. It is an error
 * if two devices launch the same two operations in different orders; the last launch reports it:
 *
 *      device 0:  X, Y            the second launch on device 1 finds X before Y on device 0,
 *      device 1:  Y, X            while Y is before X on its own
 */
#include "pretend/nccl_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Each lock is held for a few instructions. */
#define LOCK_S 1

shared_t *pretend_shared;

static size_t data_offset(void)
{
    return TUTTI__ROUND_UP(sizeof(shared_t), 4096);
}

static void make_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

static size_t bytes_for(int nranks)
{
    return data_offset() + SLOTS * (size_t)nranks * ((size_t)nranks + 1) * PIECE_BYTES;
}

static void make_shared(shared_t *shared, int nranks)
{
    shared->bytes = bytes_for(nranks);
    shared->nranks = (uint32_t)nranks;
    make_lock(&shared->lock);
    for (int i = 0; i < SLOTS; i++)
        make_lock(&shared->slots[i].lock);
}

/* Use `shared` instead of the previous mapping. */
static int take(shared_t *shared)
{
    if (shared == MAP_FAILED)
        return 1;
    if (pretend_shared != NULL)
        munmap(pretend_shared, pretend_shared->bytes);
    pretend_shared = shared;
    return 0;
}

int pretend_prepare(int nranks)
{
    shared_t *shared;

    if (nranks < 1 || nranks > PRETEND_RANKS)
        return 1;
    shared = mmap(NULL, bytes_for(nranks), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared != MAP_FAILED)
        make_shared(shared, nranks);
    return take(shared);
}

int pretend_attach(const char *file)
{
    size_t bytes = bytes_for(PRETEND_RANKS);
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    shared_t *shared = MAP_FAILED;
    struct stat st;

    if (fd < 0)
        return 1;
    /* The first process finds the file empty, and fills it in. If this process dies before the end,
       the file is unusable. */
    if (flock(fd, LOCK_EX) == 0 && fstat(fd, &st) == 0 &&
        (st.st_size > 0 || ftruncate(fd, (off_t)bytes) == 0))
        shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED && st.st_size == 0)
        make_shared(shared, PRETEND_RANKS);
    flock(fd, LOCK_UN); /* close would not unlock it, because the mapping keeps the file open */
    close(fd);
    return take(shared);
}

/* The wait is limited, because the owner may be a stopped process, and the real NCCL has no such
   locks. After one timeout this function no longer waits for any lock. Unlocking a mutex that
   another owner holds has no effect. */
void shared_lock(pthread_mutex_t *lock)
{
    static atomic_int in_vain;
    struct timespec limit;
    int error;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += atomic_load(&in_vain) ? 0 : LOCK_S;
    error = pthread_mutex_timedlock(lock, &limit);
    if (error == EOWNERDEAD)
        pthread_mutex_consistent(lock);
    if (error == ETIMEDOUT)
        atomic_store(&in_vain, 1);
}

void shared_nap(unsigned *tries)
{
    struct timespec ts = { 0, 50000 };

    if ((*tries)++ < 20)
        sched_yield();
    else
        nanosleep(&ts, NULL);
}

static char *piece(const tutti__nccl_t *nccl, size_t number)
{
    size_t n = pretend_shared->nranks, slot = (size_t)(nccl->slot - pretend_shared->slots);

    return (char *)pretend_shared + data_offset() + (slot * n * (n + 1) + number) * PIECE_BYTES;
}

char *shared_window(const tutti__nccl_t *nccl, uint32_t rank)
{
    return piece(nccl, rank);
}

char *shared_channel(const tutti__nccl_t *nccl, uint32_t rank, uint32_t to)
{
    return piece(nccl, (size_t)pretend_shared->nranks * (rank + 1) + to);
}

launches_t *shared_launches(int device)
{
    launches_t *found = NULL;

    shared_lock(&pretend_shared->lock);
    for (int i = 0; i < SHARED_DEVICES && found == NULL; i++) {
        launches_t *d = &pretend_shared->devices[i];

        if (d->pid == 0) {
            d->pid = (int)getpid();
            d->device = device;
        }
        if (d->pid == getpid() && d->device == device)
            found = d;
    }
    pthread_mutex_unlock(&pretend_shared->lock);
    return found;
}

static int is_same(const launch_t *a, const launch_t *b)
{
    return a->serial == b->serial && a->first == b->first;
}

/* The index of a launch in a device's list, plus 1; 0: it is not in the list. */
static uint64_t place(const launches_t *d, const launch_t *launch)
{
    for (uint64_t i = d->n; i > 0 && i + LAUNCHES > d->n; i--)
        if (is_same(&d->ring[(i - 1) % LAUNCHES], launch))
            return i;
    return 0;
}

/* Find a launch that follows `mine` on another device, and precedes it on this device. */
static const launch_t *crossed(const launches_t *d, const launches_t *other, const launch_t *mine)
{
    uint64_t at = place(other, mine);

    if (at == 0 || d == other)
        return NULL;
    for (uint64_t i = at; i < other->n; i++) {
        const launch_t *after = &other->ring[i % LAUNCHES];

        if (after->serial != mine->serial && place(d, after) != 0)
            return after;
    }
    return NULL;
}

int shared_launch(const tutti__nccl_t *nccl, char words[WORDS_BYTES])
{
    launch_t mine = { nccl->serial, nccl->collectives };
    launches_t *d = nccl->launches;
    const launch_t *wrong = NULL;

    shared_lock(&pretend_shared->lock);
    d->ring[d->n++ % LAUNCHES] = mine;
    for (int i = 0; i < SHARED_DEVICES && wrong == NULL; i++) {
        const launches_t *other = &pretend_shared->devices[i];

        wrong = crossed(d, other, &mine);
        if (wrong != NULL)
            snprintf(words, WORDS_BYTES,
                     "collective %llu of communicator %llu was launched before collective %llu of "
                     "communicator %llu by device %d of process %d, and after it here",
                     (unsigned long long)mine.first, (unsigned long long)mine.serial,
                     (unsigned long long)wrong->first, (unsigned long long)wrong->serial,
                     other->device, other->pid);
    }
    pthread_mutex_unlock(&pretend_shared->lock);
    return wrong == NULL;
}
