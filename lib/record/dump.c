/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dumps of all flight recorders of this process, for bench/tutti_report. A line is a JSON object.
 *
 *      dump     the process, and why the dump was written
 *      comm     a communicator; the following lines belong to it
 *      tensor   a pending tensor
 *      lane     a bucket in flight
 *      direct   the direct call that waits
 *      wait     a thread in tutti_wait
 *      event    one of the last events, oldest first
 *      end      the dump is complete
 *
 * Any thread may write a dump, also in a signal handler. So dumps use no malloc, stdio or lock, and
 * little stack, and keep errno. Times are of this host's CLOCK_MONOTONIC. Adding `offset_ns` gives
 * the time of rank 0's host.
 */
#include "record/put.h"
#include "record/recorders.h"

#include "base/kinds.h"
#include "base/names.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/* A dump has at most this many events of each ring. */
#define DUMPED 512u
/* [bytes] Paths of this length and longer are opened in pieces. The name of a file or folder has at
   most 255 bytes, so each piece can end with a '/'. */
#define PIECE 272u

static const char *const events[TUTTI__EVENTS] = { "none",   "slow",   "done",       "wait",
                                                   "waited", "direct", "direct_end", "end" };
static const char *const states[] = { "done", "submitted", "agreed" };

static void begin(tutti__put_t *put, const char *what)
{
    tutti__put_text(put, "{\"what\":\"");
    tutti__put_text(put, what);
    tutti__put_text(put, "\"");
}

static void end(tutti__put_t *put)
{
    tutti__put_text(put, "}\n");
}

/* tutti__op_name is not used: it formats the names of users' operations, which a signal handler
   must not do. */
static const char *op_name(uint32_t op)
{
    return op >= TUTTI__USER_OP_FIRST ? "a user's operation" : tutti_op_name((tutti_op_t)op);
}

/* The name of a call's kind, without the article of "an allreduce". */
static const char *kind_name(uint32_t kind)
{
    const char *name = tutti__call_name((tutti_call_kind_t)kind), *space = strchr(name, ' ');

    return space != NULL ? space + 1 : name;
}

static void put_call(tutti__put_t *put, uint32_t kind, uint64_t count, uint32_t dtype, uint32_t op)
{
    tutti__put_key_text(put, "call", kind_name(kind));
    tutti__put_key_number(put, "count", (int64_t)count);
    tutti__put_key_text(put, "dtype", tutti_dtype_name((tutti_dtype_t)dtype));
    if (kind > 0 && kind <= TUTTI_CALL_SENDRECV && tutti__call_reduces((tutti_call_kind_t)kind))
        tutti__put_key_text(put, "op", op_name(op));
}

/* ---- tensors ---- */

/* Copy an entry's name. Returns 0 if there is none, or if another thread is replacing the name. */
static int read_name(const tutti__record_tensor_t *tensor, char name[TUTTI__RECORD_NAME],
                     uint64_t *ret_hash)
{
    uint64_t words[TUTTI__RECORD_NAME_WORDS];
    uint64_t hash = atomic_load_explicit(&tensor->hash, memory_order_acquire);

    for (uint32_t i = 0; i < TUTTI__RECORD_NAME_WORDS; i++)
        words[i] = atomic_load_explicit(&tensor->name[i], memory_order_relaxed);
    /* Pairs with the fence in take_entry. */
    atomic_thread_fence(memory_order_acquire);
    memcpy(name, words, TUTTI__RECORD_NAME);
    *ret_hash = hash;
    return hash != 0 && atomic_load_explicit(&tensor->hash, memory_order_relaxed) == hash;
}

/* Put the name and the hash of the tensor with this number. hash: 16 bits from an event, or -1. If
   these bits differ from the low bits of the tensor's hash, the entry belongs to another tensor by
   now, and nothing is put. */
static void put_tensor(tutti__put_t *put, const tutti__record_t *record, uint32_t number, int hash)
{
    char name[TUTTI__RECORD_NAME];
    uint64_t whole;

    if (number == 0 || number > TUTTI__RECORD_TENSORS ||
        !read_name(&record->tensor[number - 1], name, &whole) ||
        (hash >= 0 && (whole & 0xffff) != (uint64_t)hash))
        return;
    tutti__put_key_text(put, "name", name);
    tutti__put_key_hex(put, "hash", whole);
}

static void dump_tensors(tutti__put_t *put, const tutti__record_t *record)
{
    for (uint32_t i = 0; i < TUTTI__RECORD_TENSORS; i++) {
        const tutti__record_tensor_t *tensor = &record->tensor[i];
        uint32_t call = atomic_load_explicit(&tensor->call, memory_order_relaxed);
        uint32_t bucket = atomic_load_explicit(&tensor->bucket, memory_order_relaxed);

        if (call >> 24 == TUTTI__TENSOR_IDLE || call >> 24 > TUTTI__TENSOR_AGREED)
            continue;
        begin(put, "tensor");
        put_tensor(put, record, i + 1, -1);
        tutti__put_key_text(put, "state", states[call >> 24]);
        tutti__put_key_number(put, "since_ns", (int64_t)atomic_load(&tensor->since_ns));
        put_call(put, call >> 16 & 0xff, atomic_load(&tensor->count), call >> 8 & 0xff,
                 atomic_load(&tensor->op));
        if (call >> 24 == TUTTI__TENSOR_AGREED) {
            tutti__put_key_number(put, "bucket", bucket);
            tutti__put_key_number(put, "lane", call & 0xff);
        }
        end(put);
    }
}

/* ---- lanes and waiting callers ---- */

static void put_peer(tutti__put_t *put, uint32_t peer)
{
    if (peer != TUTTI__RECORD_NONE)
        tutti__put_key_number(put, "peer", peer);
}

/* Put the rank or device that a lane's bucket waits for. */
static void put_stuck(tutti__put_t *put, const tutti__record_lane_t *lane, uint64_t since_ns)
{
    const char *doing = atomic_load(&lane->doing);

    tutti__put_key_number(put, "since_ns", (int64_t)since_ns);
    if (doing != NULL)
        tutti__put_key_text(put, "doing", doing);
    put_peer(put, atomic_load(&lane->peer));
    if (atomic_load(&lane->of) == 0)
        return;
    tutti__put_key_number(put, "step", atomic_load(&lane->step));
    tutti__put_key_number(put, "of", atomic_load(&lane->of));
    if (atomic_load(&lane->messages) == 0)
        return;
    tutti__put_key_number(put, atomic_load(&lane->is_recv) ? "received" : "sent",
                          atomic_load(&lane->complete));
    tutti__put_key_number(put, "messages", atomic_load(&lane->messages));
    tutti__put_key_number(put, "bytes", (int64_t)atomic_load(&lane->bytes));
}

static void dump_lanes(tutti__put_t *put, const tutti__record_t *record)
{
    for (uint32_t i = 0; i < TUTTI__RECORD_LANES; i++) {
        const tutti__record_lane_t *lane = &record->lane[i];
        uint64_t since_ns = atomic_load(&lane->since_ns);

        if (atomic_load(&lane->ntensors) == 0)
            continue;
        begin(put, "lane");
        tutti__put_key_number(put, "lane", i);
        tutti__put_key_number(put, "bucket", atomic_load(&lane->bucket));
        tutti__put_key_number(put, "tensors", atomic_load(&lane->ntensors));
        put_tensor(put, record, atomic_load(&lane->tensor), -1);
        if (since_ns != 0)
            put_stuck(put, lane, since_ns);
        end(put);
    }
}

static void dump_waits(tutti__put_t *put, const tutti__record_t *record)
{
    const tutti__record_direct_t *direct = &record->direct;
    uint64_t since_ns = atomic_load_explicit(&direct->since_ns, memory_order_acquire);
    uint32_t call = atomic_load(&direct->call);

    if (since_ns != 0) {
        begin(put, "direct");
        tutti__put_key_number(put, "since_ns", (int64_t)since_ns);
        put_call(put, call >> 8, atomic_load(&direct->count), call & 0xff,
                 atomic_load(&direct->op));
        put_peer(put, atomic_load(&direct->peer));
        end(put);
    }
    for (uint32_t i = 0; i < TUTTI__RECORD_WAITS; i++) {
        since_ns = atomic_load_explicit(&record->wait[i].since_ns, memory_order_acquire);
        if (since_ns <= 1)
            continue;
        begin(put, "wait");
        tutti__put_key_number(put, "since_ns", (int64_t)since_ns);
        put_tensor(put, record, atomic_load(&record->wait[i].tensor), -1);
        end(put);
    }
}

/* ---- events ---- */

/* A copy of an event. */
typedef struct {
    uint32_t kind, lane; /* kind NONE: there is no event with this number */
    uint64_t time_ns, subject, value;
} copied_t;

static copied_t copy_event(const tutti__ring_t *ring, uint32_t number)
{
    const tutti__event_t *event = &ring->event[number % TUTTI__RECORD_EVENTS];
    uint64_t head = atomic_load_explicit(&event->head, memory_order_acquire);
    copied_t copied = {
        .kind = head >> 24 & 0xff,
        .lane = head >> 16 & 0xff,
        .time_ns = atomic_load_explicit(&event->time_ns, memory_order_relaxed),
        .subject = atomic_load_explicit(&event->subject, memory_order_relaxed),
        .value = atomic_load_explicit(&event->value, memory_order_relaxed),
    };

    /* Pairs with the fence in tutti__record_event. */
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&event->head, memory_order_relaxed) != head || head == 0 ||
        head >> 32 != number || copied.kind >= TUTTI__EVENTS)
        copied.kind = TUTTI__EVENT_NONE;
    return copied;
}

static void put_event(tutti__put_t *put, const tutti__record_t *record, const copied_t *event)
{
    begin(put, "event");
    tutti__put_key_text(put, "kind", events[event->kind]);
    tutti__put_key_number(put, "time_ns", (int64_t)event->time_ns);
    put_tensor(put, record, event->subject & 0xffff, event->subject >> 16 & 0xffff);
    if (event->subject >> 32 != TUTTI__RECORD_NONE) {
        tutti__put_key_number(put, "bucket", (int64_t)(event->subject >> 32));
        tutti__put_key_number(put, "lane", event->lane);
    }
    if (event->kind == TUTTI__EVENT_DONE) {
        tutti__put_key_number(put, "took_ns", (int64_t)(event->value >> 8));
        tutti__put_key_number(put, "status", event->value & 0xff);
    } else {
        tutti__put_key_number(put, "value", (int64_t)event->value);
    }
    end(put);
}

/* The next event of a ring, from *at on. Entries that another thread is replacing are skipped. */
static copied_t next_event(const tutti__ring_t *ring, uint32_t *at, uint32_t last)
{
    copied_t event = { .kind = TUTTI__EVENT_NONE };

    while (event.kind == TUTTI__EVENT_NONE && *at != last) {
        event = copy_event(ring, *at);
        if (event.kind == TUTTI__EVENT_NONE)
            (*at)++;
    }
    return event;
}

/* Put the last events of all rings, in the order of their times. */
static void dump_events(tutti__put_t *put, const tutti__record_t *record)
{
    uint32_t at[TUTTI__RINGS], last[TUTTI__RINGS];
    copied_t event, first = { .kind = TUTTI__EVENT_NONE };
    int from;

    for (int i = 0; i < TUTTI__RINGS; i++) {
        last[i] = atomic_load(&record->ring[i].next);
        at[i] = last[i] < DUMPED ? 0 : last[i] - DUMPED;
    }
    do {
        from = -1;
        for (int i = 0; i < TUTTI__RINGS; i++) {
            event = next_event(&record->ring[i], &at[i], last[i]);
            if (event.kind == TUTTI__EVENT_NONE || (from >= 0 && event.time_ns >= first.time_ns))
                continue;
            first = event;
            from = i;
        }
        if (from >= 0) {
            put_event(put, record, &first);
            at[from]++;
        }
    } while (from >= 0);
}

/* ---- communicators ---- */

static void dump_comm(tutti__put_t *put, const tutti__record_t *record)
{
    tutti_status_t status =
        (tutti_status_t)atomic_load_explicit(&record->status, memory_order_acquire);

    begin(put, "comm");
    tutti__put_key_text(put, "comm", record->is_world ? "world" : "group");
    tutti__put_key_number(put, "first", record->first);
    tutti__put_key_hex(put, "id", record->id);
    tutti__put_key_number(put, "rank", record->rank);
    tutti__put_key_number(put, "size", record->size);
    tutti__put_key_number(put, "world_rank", record->world_rank);
    tutti__put_key_text(put, "host", record->host);
    tutti__put_key_number(put, "offset_ns", atomic_load(&record->offset_ns));
    tutti__put_key_number(put, "lost", atomic_load(&record->lost));
    if (status != TUTTI_OK) {
        tutti__put_key_number(put, "status", status);
        tutti__put_key_text(put, "text", record->text);
    }
    end(put);
    dump_tensors(put, record);
    dump_lanes(put, record);
    dump_waits(put, record);
    dump_events(put, record);
}

static int64_t now_of(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void dump_all(tutti__put_t *put, const char *reason)
{
    int32_t pid = (int32_t)getpid();

    begin(put, "dump");
    tutti__put_key_number(put, "format", 1);
    tutti__put_key_text(put, "reason", reason);
    tutti__put_key_number(put, "pid", pid);
    tutti__put_key_number(put, "time_ns", now_of(CLOCK_MONOTONIC));
    tutti__put_key_number(put, "wall_ns", now_of(CLOCK_REALTIME));
    tutti__put_key_number(put, "left_out", atomic_load(&tutti__recorders.left_out));
    end(put);
    for (uint32_t i = 0; i < TUTTI__RECORDERS; i++) {
        const tutti__record_t *record = atomic_load(&tutti__recorders.record[i]);

        /* Skip copies of the parent's recorders, which a forked child has. */
        if (record != NULL && record->pid == pid)
            dump_comm(put, record);
    }
    begin(put, "end");
    end(put);
    tutti__put_flush(put);
}

/* ---- files ---- */

/* The world's recorder in this process; if there is no world, the first recorder; NULL: none. */
static const tutti__record_t *find_first(void)
{
    const tutti__record_t *first = NULL;
    int32_t pid = (int32_t)getpid();

    for (uint32_t i = 0; i < TUTTI__RECORDERS; i++) {
        const tutti__record_t *record = atomic_load(&tutti__recorders.record[i]);

        if (record != NULL && record->pid == pid &&
            (first == NULL || (record->is_world && !first->is_world)))
            first = record;
    }
    return first;
}

/* Make the text PATH.RANK. Returns 0 if the text is too long. */
static int make_path(const char *path, uint32_t rank, char *text, size_t capacity)
{
    size_t at = strnlen(path, TUTTI__CONF_PATH);
    char digits[12];
    size_t n = 0;

    do {
        digits[n++] = (char)('0' + rank % 10);
        rank /= 10;
    } while (rank > 0);
    if (at == TUTTI__CONF_PATH || at + n + 2 > capacity)
        return 0;
    memcpy(text, path, at);
    text[at++] = '.';
    while (n > 0)
        text[at++] = digits[--n];
    text[at] = '\0';
    return 1;
}

int tutti__record_dump_check(const char *path, uint32_t rank)
{
    char text[4200], *slash;

    if (!make_path(path, rank, text, sizeof(text)))
        return ENAMETOOLONG;
    if (access(text, W_OK) == 0)
        return 0;
    if (errno != ENOENT)
        return errno;
    slash = strrchr(text, '/');
    if (slash == text)
        slash++;
    if (slash != NULL)
        *slash = '\0';
    return access(slash != NULL ? text : ".", W_OK | X_OK) == 0 ? 0 : errno;
}

/* Open the folder at the beginning of *path, which is relative to *dir. Then replace *dir by this
   folder, and *path by the rest of the path. text: a buffer of PIECE bytes. After a failure returns
   0 and sets errno. */
static int enter_folder(int *dir, const char **path, char *text)
{
    size_t n = PIECE - 1;
    int next;

    while (n > 0 && (*path)[n - 1] != '/')
        n--;
    if (n == 0) {
        errno = ENAMETOOLONG;
        return 0;
    }
    memcpy(text, *path, n);
    text[n] = '\0';
    next = openat(*dir, text, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (next < 0)
        return 0;
    if (*dir != AT_FDCWD)
        close(*dir);
    *dir = next;
    *path += n;
    *path += strspn(*path, "/"); /* otherwise the rest would be an absolute path */
    return 1;
}

/* Open PATH.RANK. Returns a descriptor, or -1 and errno. A signal handler's stack may have no space
   for a long path, so such a path is opened in pieces, folder by folder. */
static int open_file(const char *path, uint32_t rank, int flags)
{
    char text[PIECE + 16];
    int dir = AT_FDCWD, fd = -1, is_there = 1, error;

    while (is_there && strlen(path) >= PIECE)
        is_there = enter_folder(&dir, &path, text);
    if (is_there && make_path(path, rank, text, sizeof(text)))
        fd = openat(dir, text, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    error = errno;
    if (dir != AT_FDCWD)
        close(dir);
    errno = error;
    return fd;
}

/* Write a dump. flags: for open(). The caller has incremented `readers`. ret_error: the errno of a
   file that cannot be written; otherwise not changed. */
static tutti_status_t dump_to(const char *path, const char *reason, int flags, int *ret_error)
{
    const tutti__record_t *first = find_first();
    tutti__put_t put = { .fd = STDERR_FILENO };

    if (first == NULL)
        return TUTTI_ERR_INVALID_ARGUMENT;
    if (path == NULL && first->dump_path[0] != '\0')
        path = first->dump_path;
    if (path != NULL && strnlen(path, TUTTI__CONF_PATH) == TUTTI__CONF_PATH)
        return TUTTI_ERR_INVALID_ARGUMENT;
    if (path != NULL)
        put.fd = open_file(path, first->world_rank, flags);
    if (put.fd < 0) {
        *ret_error = errno;
        return TUTTI_ERR_SYSTEM;
    }
    dump_all(&put, reason);
    if (path != NULL && close(put.fd) < 0)
        put.error = errno;
    if (put.error == 0)
        return TUTTI_OK;
    *ret_error = put.error;
    return TUTTI_ERR_SYSTEM;
}

static tutti_status_t dump(const char *path, const char *reason, int flags, int *ret_error)
{
    int before = errno;
    tutti_status_t status;

    atomic_fetch_add(&tutti__recorders.readers, 1);
    status = dump_to(path, reason, flags, ret_error);
    atomic_fetch_sub(&tutti__recorders.readers, 1);
    errno = before;
    return status;
}

tutti_status_t tutti__record_dump(const char *path)
{
    int keeps = path == NULL && atomic_load(&tutti__recorders.has_failed), error;

    return dump(path, "asked", keeps ? O_APPEND : O_TRUNC, &error);
}

int tutti__record_dump_asked(const char *path, const char *reason, int is_failure)
{
    int keeps, error = 0;

    while (atomic_exchange(&tutti__recorders.is_busy, 1))
        sched_yield();
    keeps = is_failure ? atomic_exchange(&tutti__recorders.has_failed, 1)
                       : atomic_load(&tutti__recorders.has_failed);
    (void)dump(path, reason, keeps ? O_APPEND : O_TRUNC, &error);
    atomic_store(&tutti__recorders.is_busy, 0);
    return error;
}

/* ---- the trace ---- */

/* Set the head of a trace. Returns 0 if there is no communicator. */
static int read_head(tutti__trace_head_t *ret_head, int *ret_is_leader)
{
    const tutti__record_t *first;

    atomic_fetch_add(&tutti__recorders.readers, 1);
    first = find_first();
    if (first != NULL) {
        *ret_head = (tutti__trace_head_t){ .rank = first->world_rank,
                                           .size = first->size,
                                           .offset_ns = atomic_load(&first->offset_ns) };
        memcpy(ret_head->host, first->host, sizeof(ret_head->host));
        *ret_is_leader = first->is_leader;
    }
    atomic_fetch_sub(&tutti__recorders.readers, 1);
    return first != NULL;
}

/* The start may wait for a thread that stops the trace. Meanwhile this thread must not count as a
   reader, because tutti__record_close waits for readers. */
tutti_status_t tutti__record_trace_start(const char *path)
{
    tutti__trace_head_t head;
    int is_leader;

    if (!read_head(&head, &is_leader))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "trace: there is no communicator");
    return tutti__trace_start(path, &head, is_leader);
}
