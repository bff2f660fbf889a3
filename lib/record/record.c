/* SPDX-License-Identifier: BSD-3-Clause */
/* The flight recorder: opening, tensors, waiting callers, the end. See record.h. */
#include "record/record.h"

#include "base/constants.h"
#include "base/lock.h"
#include "base/log.h"
#include "record/recorders.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

tutti__recorders_t tutti__recorders;
/* Held while a recorder enters the table, so that has_failed is cleared only before the first
   recorder is in the table. Dumps do not take this lock, because they run in signal handlers. */
static tutti__mutex_t enter_lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_RECORDERS);

/* ---- opening and closing ---- */

/* Add the recorder to the table for dumps. If the table is full, the recorder is only counted, in
   left_out. */
static void enter(tutti__record_t *record)
{
    tutti__record_t *other;
    int is_alone = 1;

    tutti__mutex_lock(&enter_lock);
    for (uint32_t i = 0; i < TUTTI__RECORDERS; i++)
        is_alone &= atomic_load(&tutti__recorders.record[i]) == NULL;
    /* The failure of a closed communicator does not affect this communicator. If the dump of that
       failure stayed in the file, tutti_report would read that dump instead of a later one. */
    if (is_alone)
        atomic_store(&tutti__recorders.has_failed, 0);
    for (uint32_t i = 0; i < TUTTI__RECORDERS; i++) {
        other = NULL;
        if (atomic_compare_exchange_strong(&tutti__recorders.record[i], &other, record))
            break;
    }
    if (other != NULL)
        atomic_fetch_add(&tutti__recorders.left_out, 1);
    tutti__mutex_unlock(&enter_lock);
}

/* A forked child has one thread. Forget the parent's recorders and readers. Make the lock anew,
   because another thread of the parent may have held it. */
static void in_child(void)
{
    tutti__mutex_init(&enter_lock, TUTTI__LOCK_RECORDERS);
    for (uint32_t i = 0; i < TUTTI__RECORDERS; i++)
        atomic_store(&tutti__recorders.record[i], NULL);
    atomic_store(&tutti__recorders.left_out, 0);
    atomic_store(&tutti__recorders.readers, 0);
    atomic_store(&tutti__recorders.is_busy, 0);
    atomic_store(&tutti__recorders.has_failed, 0);
}

static void prepare(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

static void warn_of_dump(const tutti__record_t *record, int error)
{
    if (error != 0)
        TUTTI__LOG(TUTTI__LOG_WARN, "TUTTI_DUMP: no dump can be written: %s: %s.%u",
                   strerror(error), record->dump_path, record->world_rank);
}

tutti_status_t tutti__record_open(const tutti__record_facts_t *facts, tutti__record_t **ret_record)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tutti__record_t *record =
        mmap(NULL, sizeof(*record), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (record == MAP_FAILED)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "flight recorder of %zu bytes", sizeof(*record));
    pthread_once(&once, prepare);
    record->rank = facts->rank;
    record->size = facts->size;
    record->world_rank = facts->world_rank;
    record->first = facts->first;
    record->id = facts->id;
    record->is_world = facts->is_world;
    record->is_leader = facts->is_leader;
    strncpy(record->dump_path, facts->dump_path, sizeof(record->dump_path) - 1);
    record->pid = (int32_t)getpid();
    strncpy(record->host, facts->host, sizeof(record->host) - 1);
    for (uint32_t i = 0; i < TUTTI__RECORD_LANES; i++)
        atomic_store(&record->lane[i].peer, TUTTI__RECORD_NONE);
    record->number = atomic_fetch_add(&tutti__recorders.opened, 1);
    enter(record);
    if (facts->is_leader && record->number == 0 && record->dump_path[0] != '\0')
        warn_of_dump(record, tutti__record_dump_check(record->dump_path, record->world_rank));
    *ret_record = record;
    return TUTTI_OK;
}

void tutti__record_close(tutti__record_t *record)
{
    tutti__record_t *found = NULL;

    if (record == NULL)
        return;
    for (uint32_t i = 0; i < TUTTI__RECORDERS; i++) {
        found = record;
        if (atomic_compare_exchange_strong(&tutti__recorders.record[i], &found, NULL))
            break;
    }
    if (found != record && record->pid == (int32_t)getpid())
        atomic_fetch_sub(&tutti__recorders.left_out, 1);
    /* Wait for readers that may have found the recorder. All these accesses are seq_cst. */
    while (atomic_load(&tutti__recorders.readers) > 0)
        sched_yield();
    munmap(record, sizeof(*record));
}

/* ---- tensors ---- */

static void put_name(tutti__record_tensor_t *tensor, const char *name)
{
    uint64_t words[TUTTI__RECORD_NAME_WORDS] = { 0 };

    memcpy(words, name, strnlen(name, sizeof(words) - 1));
    for (uint32_t i = 0; i < TUTTI__RECORD_NAME_WORDS; i++)
        atomic_store_explicit(&tensor->name[i], words[i], memory_order_relaxed);
}

static int is_idle(const tutti__record_tensor_t *tensor)
{
    return atomic_load_explicit(&tensor->call, memory_order_relaxed) >> 24 == TUTTI__TENSOR_IDLE;
}

/* Give the name to the entry of the set that has been unused for the longest time. Returns NULL if
   all entries have pending tensors. */
static tutti__record_tensor_t *take_entry(tutti__record_tensor_t *set, uint64_t hash,
                                          const char *name)
{
    tutti__record_tensor_t *oldest = NULL;

    for (uint32_t i = 0; i < TUTTI__RECORD_WAYS; i++)
        if (is_idle(&set[i]) &&
            (oldest == NULL || atomic_load(&set[i].since_ns) < atomic_load(&oldest->since_ns)))
            oldest = &set[i];
    if (oldest == NULL)
        return NULL;
    atomic_store_explicit(&oldest->traced, 0, memory_order_relaxed);
    atomic_store_explicit(&oldest->hash, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    put_name(oldest, name);
    atomic_store_explicit(&oldest->hash, hash, memory_order_release);
    return oldest;
}

static int is_free_entry_of(const tutti__record_tensor_t *tensor, uint64_t hash)
{
    return atomic_load_explicit(&tensor->hash, memory_order_relaxed) == hash && is_idle(tensor);
}

/* Find an entry for a tensor that is not pending yet. before: the number of the tensor's previous
   entry; 0: not known. Returns NULL if all entries of the tensor's set have pending tensors. */
static tutti__record_tensor_t *find_entry(tutti__record_t *record, uint64_t hash, const char *name,
                                          uint32_t before)
{
    tutti__record_tensor_t *set = &record->tensor[hash % TUTTI__RECORD_SETS * TUTTI__RECORD_WAYS];

    if (TUTTI__LIKELY(before != 0 && is_free_entry_of(&record->tensor[before - 1], hash)))
        return &record->tensor[before - 1];
    for (uint32_t i = 0; i < TUTTI__RECORD_WAYS; i++)
        if (is_free_entry_of(&set[i], hash))
            return &set[i];
    return take_entry(set, hash, name);
}

static void trace_submit(tutti__record_t *record, uint32_t number,
                         const tutti__submitted_t *submitted)
{
    tutti__record_trace(record, (tutti__traced_t){ .kind = TUTTI__TRACE_SUBMIT,
                                                   .time_ns = submitted->since_ns,
                                                   .tensor = number,
                                                   .bucket = TUTTI__RECORD_NONE,
                                                   .value = submitted->bytes });
}

uint32_t tutti__record_submit(tutti__record_t *record, const tutti__submitted_t *submitted)
{
    uint64_t hash = submitted->hash != 0 ? submitted->hash : 1; /* 0 would mean a free entry */
    tutti__record_tensor_t *tensor = find_entry(record, hash, submitted->name, submitted->before);
    uint32_t number;

    if (TUTTI__UNLIKELY(tensor == NULL)) {
        atomic_fetch_add_explicit(&record->lost, 1, memory_order_relaxed);
        return 0;
    }
    number = 1 + (uint32_t)(tensor - record->tensor);
    atomic_store_explicit(&tensor->since_ns, submitted->since_ns, memory_order_relaxed);
    atomic_store_explicit(&tensor->count, submitted->count, memory_order_relaxed);
    atomic_store_explicit(&tensor->op, submitted->op, memory_order_relaxed);
    atomic_store_explicit(&tensor->call,
                          (uint32_t)TUTTI__TENSOR_SUBMITTED << 24 |
                              (uint32_t)submitted->kind << 16 | (uint32_t)submitted->dtype << 8,
                          memory_order_relaxed);
    if (TUTTI__UNLIKELY(tutti__trace_on()))
        trace_submit(record, number, submitted);
    return number;
}

/* ---- the trace ---- */

void tutti__record_trace(tutti__record_t *record, tutti__traced_t traced)
{
    tutti__record_tensor_t *tensor = traced.tensor != 0 ? &record->tensor[traced.tensor - 1] : NULL;
    uint32_t on = tutti__trace_on();
    uint64_t name[TUTTI__RECORD_NAME_WORDS];

    traced.comm = record->number;
    if (tensor != NULL && atomic_load_explicit(&tensor->traced, memory_order_relaxed) != on &&
        atomic_exchange(&tensor->traced, on) != on) {
        for (uint32_t i = 0; i < TUTTI__RECORD_NAME_WORDS; i++)
            name[i] = atomic_load_explicit(&tensor->name[i], memory_order_relaxed);
        tutti__trace_name(traced.tensor, record->number, (const char *)name);
    }
    tutti__trace_put(&traced);
}

void tutti__record_trace_agreed(tutti__record_t *record, uint32_t number, uint32_t bucket,
                                uint32_t lane)
{
    tutti__record_trace(record, (tutti__traced_t){ .kind = TUTTI__TRACE_AGREE,
                                                   .time_ns = tutti__now_ns(),
                                                   .tensor = number,
                                                   .bucket = bucket,
                                                   .lane = lane });
}

void tutti__record_trace_done(tutti__record_t *record, uint32_t number, uint64_t now_ns,
                              tutti_status_t status)
{
    tutti__record_trace(record, (tutti__traced_t){ .kind = TUTTI__TRACE_DONE,
                                                   .time_ns = now_ns,
                                                   .tensor = number,
                                                   .bucket = TUTTI__RECORD_NONE,
                                                   .value = (uint64_t)status });
}

void tutti__record_trace_bucket(tutti__record_t *record, uint32_t lane)
{
    tutti__record_lane_t *at = &record->lane[lane % TUTTI__RECORD_LANES];
    uint32_t ntensors = atomic_load(&at->ntensors);

    if (ntensors > 0)
        tutti__record_trace(record, (tutti__traced_t){ .kind = TUTTI__TRACE_BUCKET,
                                                       .time_ns = atomic_load(&at->began_ns),
                                                       .end_ns = tutti__now_ns(),
                                                       .tensor = atomic_load(&at->tensor),
                                                       .bucket = atomic_load(&at->bucket),
                                                       .lane = lane,
                                                       .value = ntensors });
    atomic_store(&at->began_ns, 0);
}

/* ---- lanes ---- */

void tutti__record_stuck(tutti__record_t *record, uint32_t lane, const char *doing, int32_t peer,
                         uint32_t step, uint32_t of)
{
    tutti__record_lane_t *at = &record->lane[lane % TUTTI__RECORD_LANES];
    uint64_t now;

    atomic_store_explicit(&at->doing, doing, memory_order_relaxed);
    atomic_store_explicit(&at->peer, (uint32_t)peer, memory_order_relaxed);
    atomic_store_explicit(&at->step, step, memory_order_relaxed);
    atomic_store_explicit(&at->of, of, memory_order_relaxed);
    if (atomic_load_explicit(&at->since_ns, memory_order_relaxed) != 0)
        return;
    atomic_store_explicit(&at->messages, 0, memory_order_relaxed);
    now = tutti__now_ns();
    tutti__record_event(record, TUTTI__RING_OWNER, TUTTI__EVENT_SLOW, now, atomic_load(&at->tensor),
                        atomic_load(&at->bucket), lane, (uint32_t)peer);
    atomic_store_explicit(&at->since_ns, now, memory_order_relaxed);
}

void tutti__record_arrived(tutti__record_t *record, uint32_t lane,
                           const tutti__record_arrived_t *arrived)
{
    static const tutti__record_arrived_t none;
    tutti__record_lane_t *at = &record->lane[lane % TUTTI__RECORD_LANES];

    if (arrived == NULL)
        arrived = &none;
    atomic_store_explicit(&at->is_recv, (uint32_t)arrived->is_recv, memory_order_relaxed);
    atomic_store_explicit(&at->bytes, arrived->bytes, memory_order_relaxed);
    atomic_store_explicit(&at->complete, (uint32_t)arrived->complete, memory_order_relaxed);
    atomic_store_explicit(&at->messages, (uint32_t)arrived->messages, memory_order_relaxed);
}

/* ---- waiting callers ---- */

void tutti__record_direct(tutti__record_t *record, const tutti__direct_t *direct)
{
    tutti__record_direct_t *live = &record->direct;

    if (atomic_load_explicit(&live->since_ns, memory_order_relaxed) != direct->since_ns)
        tutti__record_event(record, TUTTI__RING_ANY, TUTTI__EVENT_DIRECT, direct->since_ns, 0,
                            TUTTI__RECORD_NONE, 0, (uint32_t)direct->peer);
    atomic_store_explicit(&live->count, direct->count, memory_order_relaxed);
    atomic_store_explicit(&live->call, (uint32_t)direct->kind << 8 | direct->dtype,
                          memory_order_relaxed);
    atomic_store_explicit(&live->op, direct->op, memory_order_relaxed);
    atomic_store_explicit(&live->tag, direct->tag, memory_order_relaxed);
    atomic_store_explicit(&live->peer, (uint32_t)direct->peer, memory_order_relaxed);
    atomic_store_explicit(&live->since_ns, direct->since_ns, memory_order_release);
}

void tutti__record_direct_left(tutti__record_t *record)
{
    tutti__record_event(record, TUTTI__RING_ANY, TUTTI__EVENT_DIRECT_END, tutti__now_ns(), 0,
                        TUTTI__RECORD_NONE, 0, 0);
    atomic_store_explicit(&record->direct.since_ns, 0, memory_order_relaxed);
}

uint32_t tutti__record_wait(tutti__record_t *record, uint32_t tensor)
{
    uint64_t now = tutti__now_ns(), none;

    for (uint32_t i = 0; i < TUTTI__RECORD_WAITS; i++) {
        none = 0;
        if (!atomic_compare_exchange_strong(&record->wait[i].since_ns, &none, 1))
            continue;
        tutti__record_event(record, TUTTI__RING_ANY, TUTTI__EVENT_WAIT, now, tensor,
                            TUTTI__RECORD_NONE, 0, 0);
        atomic_store_explicit(&record->wait[i].tensor, tensor, memory_order_relaxed);
        atomic_store_explicit(&record->wait[i].since_ns, now, memory_order_release);
        return i + 1;
    }
    return 0;
}

void tutti__record_waited(tutti__record_t *record, uint32_t wait)
{
    if (wait == 0)
        return;
    tutti__record_event(record, TUTTI__RING_ANY, TUTTI__EVENT_WAITED, tutti__now_ns(),
                        atomic_load_explicit(&record->wait[wait - 1].tensor, memory_order_relaxed),
                        TUTTI__RECORD_NONE, 0, 0);
    atomic_store_explicit(&record->wait[wait - 1].since_ns, 0, memory_order_release);
}

/* ---- the end ---- */

/* Is this status a failure? SHUTDOWN is not a failure: a peer has left in the ordinary way. */
static int is_failure(tutti_status_t status)
{
    return status != TUTTI_OK && status != TUTTI_ERR_SHUTDOWN;
}

/* Log the first error of writing a dump. error: an errno; 0: none. */
static void note_error(tutti__record_t *record, int error)
{
    if (error != 0 && !atomic_exchange(&record->has_hinted, 1))
        warn_of_dump(record, error);
}

/* Log once how to find the cause. */
static void hint(tutti__record_t *record)
{
    if (!atomic_exchange(&record->has_hinted, 1))
        TUTTI__LOG(TUTTI__LOG_WARN, "to learn which rank is to blame, set TUTTI_DUMP=PATH and pass "
                                    "PATH.* to tutti_report");
}

void tutti__record_end(tutti__record_t *record, tutti_status_t status, const char *text)
{
    strncpy(record->text, text, sizeof(record->text) - 1);
    atomic_store_explicit(&record->status, (uint32_t)status, memory_order_release);
    tutti__record_event(record, TUTTI__RING_ANY, TUTTI__EVENT_END, tutti__now_ns(), 0,
                        TUTTI__RECORD_NONE, 0, (uint64_t)status);
    if (is_failure(status) && record->dump_path[0] != '\0')
        atomic_store(&record->dump_error,
                     tutti__record_dump_asked(record->dump_path, "failure", 1));
}

void tutti__record_advise(tutti__record_t *record, tutti_status_t status)
{
    note_error(record, atomic_load(&record->dump_error));
    if (status == TUTTI_ERR_TIMEOUT && record->rank == 0 && record->dump_path[0] == '\0')
        hint(record);
}

/* Write the dump of a stall. Returns 0 if the last such dump was less than STALL_DUMP_NS ago. */
static int dump_stall(tutti__record_t *record)
{
    uint64_t now = tutti__now_ns(), last = atomic_load(&record->stalled_ns);

    if (now - last < TUTTI__STALL_DUMP_NS ||
        !atomic_compare_exchange_strong(&record->stalled_ns, &last, now))
        return 0;
    note_error(record, tutti__record_dump_asked(record->dump_path, "stall", 0));
    return 1;
}

void tutti__record_stall(tutti__record_t *record)
{
    if (record->dump_path[0] == '\0')
        hint(record);
    else if (dump_stall(record))
        atomic_store(&record->has_stalled, 1);
}

int tutti__record_wants_others(tutti__record_t *record)
{
    return atomic_load_explicit(&record->has_stalled, memory_order_relaxed) &&
           atomic_exchange(&record->has_stalled, 0);
}

int tutti__record_wish(tutti__record_t *record)
{
    return record->dump_path[0] != '\0' && dump_stall(record);
}
