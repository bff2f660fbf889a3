/* SPDX-License-Identifier: BSD-3-Clause */
/* The trace of this process: its mapped file, start and stop. See trace.h. */
#include "record/trace.h"

#include "base/constants.h"
#include "base/lock.h"
#include "base/log.h"
#include "conf/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A bit of `next`: the trace is being stopped, so no further entry is written. */
#define CLOSED ((uint64_t)1 << 63)
#define CHUNK_BYTES (TUTTI__TRACE_CHUNK * sizeof(tutti__trace_entry_t))
/* The smallest piece of the file that is allocated at once. */
#define LEAST_BYTES 65536
/* The text behind the last line of PATH. */
#define TAIL "\n]}\n"

_Atomic uint32_t tutti__tracing;

static struct {
    _Atomic uint64_t next;      /* the next free entry */
    _Atomic uint64_t completed; /* entries that were written, or given up */
    _Atomic(tutti__trace_entry_t *) chunk[TUTTI__TRACE_CHUNKS];
    atomic_int is_full; /* the disk has no space left */

    tutti__mutex_t grow_lock; /* protects the growing of the file */

    tutti__mutex_t lock; /* protects start and stop, and the following fields */
    uint32_t number;     /* how many traces so far */
    int fd;
    tutti__trace_head_t head;
    char path[TUTTI__CONF_PATH], part[TUTTI__CONF_PATH + 32];
} trace = { .next = CLOSED,
            .lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_TRACE),
            .grow_lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_TRACE_GROW) };

/* ---- entries ---- */

/* Allocate space on the disk. Returns 0 or an errno. If a signal interrupts the allocation, the
   next pieces are smaller, so that signals at short intervals do not interrupt every piece. */
static int allocate(off_t at)
{
    const off_t end = at + (off_t)CHUNK_BYTES;
    off_t piece = (off_t)CHUNK_BYTES;
    int error = 0;

    while (error == 0 && at < end) {
        piece = TUTTI__MIN(piece, end - at);
        error = posix_fallocate(trace.fd, at, piece);
        if (error == 0) {
            at += piece;
        } else if (error == EINTR) {
            piece = TUTTI__MAX(piece / 2, LEAST_BYTES);
            error = 0;
        }
    }
    return error;
}

static tutti__trace_entry_t *map_chunk(uint64_t chunk)
{
    off_t at = (off_t)(TUTTI__TRACE_HEAD_BYTES + chunk * CHUNK_BYTES);
    int error = allocate(at);
    void *ptr = MAP_FAILED;

    if (error == 0)
        ptr = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, trace.fd,
                   at);
    else
        errno = error;
    if (ptr != MAP_FAILED)
        return ptr;
    TUTTI__LOG(TUTTI__LOG_WARN, "the trace ends early: %.300s: %s", trace.part, strerror(errno));
    return NULL;
}

/* The entry with this number; NULL if there is no space for the entry. */
static tutti__trace_entry_t *entry_at(uint64_t i)
{
    uint64_t chunk = i / TUTTI__TRACE_CHUNK;
    tutti__trace_entry_t *entries;

    if (chunk >= TUTTI__TRACE_CHUNKS)
        return NULL;
    entries = atomic_load_explicit(&trace.chunk[chunk], memory_order_acquire);
    if (TUTTI__UNLIKELY(entries == NULL)) {
        tutti__mutex_lock(&trace.grow_lock);
        entries = atomic_load(&trace.chunk[chunk]);
        if (entries == NULL && !atomic_load(&trace.is_full)) {
            entries = map_chunk(chunk);
            atomic_store(&trace.is_full, entries == NULL);
            atomic_store_explicit(&trace.chunk[chunk], entries, memory_order_release);
        }
        tutti__mutex_unlock(&trace.grow_lock);
    }
    return entries != NULL ? &entries[i % TUTTI__TRACE_CHUNK] : NULL;
}

/* Take n entries, from *ret_first on; later call complete(n). Returns 0 if the trace is off. */
static int take(uint64_t n, uint64_t *ret_first)
{
    *ret_first = atomic_fetch_add(&trace.next, n);
    return (*ret_first & CLOSED) == 0;
}

static void complete(uint64_t n)
{
    /* Release pairs with the acquire in await_writers. */
    atomic_fetch_add_explicit(&trace.completed, n, memory_order_release);
}

static uint32_t thread_number(void)
{
    static _Atomic uint32_t threads;
    static _Thread_local uint32_t number;

    if (TUTTI__UNLIKELY(number == 0))
        number = 1 + atomic_fetch_add(&threads, 1);
    return (number - 1) & 0xff;
}

void tutti__trace_put(const tutti__traced_t *traced)
{
    uint64_t duration = traced->end_ns > traced->time_ns ? traced->end_ns - traced->time_ns : 0;
    tutti__trace_entry_t *entry;
    uint64_t i;

    if (!take(1, &i))
        return;
    entry = entry_at(i);
    if (entry != NULL) {
        entry->time_ns = traced->time_ns;
        entry->subject = (uint64_t)traced->bucket << 32 | (duration >> 32 & 0xffff) << 16 |
                         (traced->tensor & 0xffff);
        entry->value = traced->value;
        atomic_store_explicit(&entry->what,
                              duration << 32 | thread_number() << 24 | (traced->comm & 0xff) << 16 |
                                  (traced->lane & 0xff) << 8 | (uint32_t)traced->kind,
                              memory_order_release);
    }
    complete(1);
}

void tutti__trace_name(uint32_t tensor, uint32_t comm, const char *name)
{
    tutti__trace_entry_t *entry[3];
    uint64_t i;

    if (!take(3, &i))
        return;
    for (uint64_t k = 0; k < 3; k++)
        entry[k] = entry_at(i + k);
    if (entry[0] != NULL && entry[1] != NULL && entry[2] != NULL) {
        memcpy((void *)entry[1], name, sizeof(*entry[1]));
        memcpy((void *)entry[2], name + sizeof(*entry[1]), sizeof(*entry[2]));
        entry[0]->subject = tensor & 0xffff;
        atomic_store_explicit(&entry[0]->what, (comm & 0xff) << 16 | TUTTI__TRACE_NAME,
                              memory_order_release);
    }
    complete(3);
}

/* ---- forks ---- */

/* The trace belongs to the parent. The child must not write into the parent's file, but may start
   its own trace. grow_lock is made anew, because another thread of the parent may have held this
   lock. tutti__mutex_lock_renewed does the same for trace.lock: a fork may copy a held trace.lock
   even before this handler is registered. */
static void in_child(void)
{
    if (tutti__trace_on())
        close(trace.fd);
    atomic_store(&tutti__tracing, 0);
    atomic_store(&trace.next, CLOSED);
    for (uint64_t i = 0; i < TUTTI__TRACE_CHUNKS; i++) {
        tutti__trace_entry_t *entries = atomic_exchange(&trace.chunk[i], NULL);

        if (entries != NULL)
            munmap((void *)entries, CHUNK_BYTES);
    }
    tutti__mutex_init(&trace.grow_lock, TUTTI__LOCK_TRACE_GROW);
}

static void prepare(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

/* ---- start ---- */

static tutti_status_t open_part(int is_leader)
{
    /* Make a new file. Another process, such as the parent, may have mapped the old file. */
    unlink(trace.part);
    trace.fd = open(trace.part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (trace.fd < 0)
        return tutti__fail(TUTTI_ERR_SYSTEM, "trace %.300s: %s", trace.part, strerror(errno));
    if (write(trace.fd, &trace.head, sizeof(trace.head)) != (ssize_t)sizeof(trace.head) ||
        ftruncate(trace.fd, TUTTI__TRACE_HEAD_BYTES) < 0) {
        close(trace.fd);
        return tutti__fail(TUTTI_ERR_SYSTEM, "trace %.300s: %s", trace.part, strerror(errno));
    }
    /* Remove an older file of this name. Otherwise the ranks would append to the older file when
       they stop. Each host may have a file of its own, so one rank of each host does this. */
    if (is_leader)
        unlink(trace.path);
    return TUTTI_OK;
}

static tutti_status_t start(const char *path, const tutti__trace_head_t *head, int is_leader)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tutti_status_t status;

    pthread_once(&once, prepare);
    if (tutti__trace_on())
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "a trace is on: %s", trace.path);
    if (strlen(path) >= sizeof(trace.path))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "trace: the path has more than %zu bytes",
                           sizeof(trace.path) - 1);
    strcpy(trace.path, path);
    snprintf(trace.part, sizeof(trace.part), "%s.%u.part", path, head->rank);
    trace.head = *head;
    trace.head.magic = TUTTI__TRACE_MAGIC;
    status = open_part(is_leader);
    if (status != TUTTI_OK)
        return status;
    atomic_store(&trace.is_full, 0);
    atomic_store(&trace.completed, 0);
    atomic_store(&trace.next, 0);
    atomic_store(&tutti__tracing, ++trace.number);
    return TUTTI_OK;
}

tutti_status_t tutti__trace_start(const char *path, const tutti__trace_head_t *head, int is_leader)
{
    tutti_status_t status;

    tutti__mutex_lock_renewed(&trace.lock);
    status = start(path, head, is_leader);
    tutti__mutex_unlock(&trace.lock);
    return status;
}

/* ---- stop ---- */

static const tutti__trace_entry_t *written(void *owner, uint64_t i)
{
    static const tutti__trace_entry_t none;
    tutti__trace_entry_t *entries;

    (void)owner;
    if (i / TUTTI__TRACE_CHUNK >= TUTTI__TRACE_CHUNKS)
        return &none;
    entries = atomic_load(&trace.chunk[i / TUTTI__TRACE_CHUNK]);
    return entries != NULL ? &entries[i % TUTTI__TRACE_CHUNK] : &none;
}

/* Append this rank's lines and TAIL to PATH, which has `end` bytes. The lines overwrite the old
   TAIL of PATH. */
static int put_lines(FILE *out, long end, uint64_t nentries)
{
    uint64_t nlines = end > 0;
    int ok = end > 0 ? fseek(out, end - (long)strlen(TAIL), SEEK_SET) == 0
                     : fputs("{\"traceEvents\":[\n", out) >= 0;

    if (!ok || tutti__trace_json(out, &trace.head, written, NULL, nentries, nlines) == nlines)
        return 0;
    return fputs(TAIL, out) >= 0 && fflush(out) == 0 && !ferror(out);
}

/* Restore PATH as it was before put_lines: `end` bytes, of which the last are TAIL. */
static void restore(FILE *out, long end)
{
    ssize_t bytes = end > 0 ? (ssize_t)strlen(TAIL) : 0;

    __fpurge(out); /* otherwise fclose would write the rest of the lines */
    if (ftruncate(fileno(out), end) != 0 ||
        pwrite(fileno(out), TAIL, (size_t)bytes, end - bytes) != bytes)
        TUTTI__LOG(TUTTI__LOG_WARN, "trace %.300s is damaged: %s", trace.path, strerror(errno));
}

/* Append this rank's lines to PATH. After a failure returns 0 and errno, and PATH is as before. */
static int extend(FILE *out, uint64_t nentries)
{
    long end = fseek(out, 0, SEEK_END) == 0 ? ftell(out) : -1;
    int error;

    if (end < 0)
        return 0;
    if (put_lines(out, end, nentries))
        return 1;
    error = errno;
    restore(out, end);
    errno = error;
    return 0;
}

static tutti_status_t fail_append(const char *doing, const char *reason)
{
    return tutti__fail(TUTTI_ERR_SYSTEM,
                       "trace %.150s: %s%s; %.200s is left for tutti_report --trace", trace.path,
                       doing, reason, trace.part);
}

/* Lock PATH. While another process appends its lines, PATH grows. If PATH does not grow for a long
   time, that process may have been stopped, so this function fails instead of waiting for ever. */
static tutti_status_t lock_path(int fd)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    uint64_t until_ns = 0;
    off_t bytes = -1;
    struct stat st;

    while (fcntl(fd, F_SETLK, &lock) < 0) {
        if ((errno != EAGAIN && errno != EACCES && errno != EINTR) || fstat(fd, &st) < 0)
            return fail_append("no file lock: ", strerror(errno));
        if (st.st_size != bytes) {
            bytes = st.st_size;
            until_ns = tutti__now_ns() + TUTTI__TRACE_LOCK_NS;
        } else if (tutti__now_ns() >= until_ns) {
            return fail_append("a process keeps the file locked and does not write", "");
        }
        usleep(TUTTI__TRACE_LOCK_NAP_US);
    }
    return TUTTI_OK;
}

/* Open PATH, lock it, and append this rank's lines. */
static tutti_status_t append(uint64_t nentries)
{
    int fd = open(trace.path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    FILE *out = fd >= 0 ? fdopen(fd, "r+") : NULL;
    tutti_status_t status;

    if (out == NULL) {
        status = fail_append("", strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    status = lock_path(fd);
    if (status == TUTTI_OK && !extend(out, nentries))
        status = fail_append("", strerror(errno));
    if (fclose(out) != 0 && status == TUTTI_OK) /* releases the lock */
        status = fail_append("", strerror(errno));
    return status;
}

/* Wait until no thread writes entries any more. Returns the number of entries. */
static uint64_t await_writers(void)
{
    uint64_t n;

    atomic_store(&tutti__tracing, 0);
    n = atomic_fetch_or(&trace.next, CLOSED);
    while (atomic_load_explicit(&trace.completed, memory_order_acquire) < n)
        sched_yield();
    return n;
}

static tutti_status_t stop(void)
{
    tutti_status_t status = append(await_writers());

    for (uint64_t i = 0; i < TUTTI__TRACE_CHUNKS; i++) {
        tutti__trace_entry_t *entries = atomic_exchange(&trace.chunk[i], NULL);

        if (entries != NULL)
            munmap((void *)entries, CHUNK_BYTES);
    }
    close(trace.fd);
    if (status == TUTTI_OK)
        unlink(trace.part);
    return status;
}

tutti_status_t tutti__trace_stop(void)
{
    tutti_status_t status = TUTTI_OK;

    tutti__mutex_lock_renewed(&trace.lock);
    if (tutti__trace_on())
        status = stop();
    tutti__mutex_unlock(&trace.lock);
    return status;
}
