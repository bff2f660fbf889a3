/* SPDX-License-Identifier: BSD-3-Clause */
/* Counting. See stats.h for the threads. */
#include "stats/stats.h"

#include "base/time.h"
#include "stats/add.h"
#include "stats/stats_inside.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned tutti__stats_bucket(uint64_t value)
{
    unsigned bits = value <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(value - 1);

    return TUTTI__MIN(bits, TUTTI_STATS_BUCKETS - 1u);
}

void tutti__stats_put(tutti__stats_histogram_t *histogram, uint64_t value)
{
    tutti__stats_add(&histogram->buckets[tutti__stats_bucket(value)], 1);
    tutti__stats_add(&histogram->sum, value);
}

uint64_t tutti__stats_now(const tutti__stats_t *stats)
{
    return stats != NULL && stats->is_timed ? tutti__now_ns() : 0;
}

/* ---- classes ---- */

static int is_of(const tutti__stats_class_t *class, const tutti__stats_what_t *what)
{
    return class->kind == what->kind && class->is_async == what->is_async &&
           strncmp(class->algorithm, what->algorithm, sizeof(class->algorithm) - 1) == 0 &&
           strcmp(class->transport, what->transport) == 0;
}

/* Like is_of, but compares the addresses of the texts. Most calls pass the texts that made the
   class. */
static int is_surely_of(const tutti__stats_class_t *class, const tutti__stats_what_t *what)
{
    return class->kind == what->kind && class->is_async == what->is_async &&
           class->source[0] == what->algorithm && class->source[1] == what->transport;
}

TUTTI__ALWAYS_INLINE tutti__stats_class_t *search(tutti__stats_t *stats,
                                                  const tutti__stats_what_t *what,
                                                  int (*fits)(const tutti__stats_class_t *class,
                                                              const tutti__stats_what_t *what))
{
    tutti__stats_class_t *class = atomic_load_explicit(&stats->first, memory_order_acquire);

    while (class != NULL && !fits(class, what))
        class = atomic_load_explicit(&class->next, memory_order_acquire);
    return class;
}

/* Append a class. Classes of direct and of asynchronous calls may be appended at the same time. */
static void append(tutti__stats_t *stats, tutti__stats_class_t *class)
{
    tutti__stats_class_t *_Atomic *at = &stats->first;
    tutti__stats_class_t *found = NULL;

    while (!atomic_compare_exchange_strong_explicit(at, &found, class, memory_order_release,
                                                    memory_order_acquire)) {
        at = &found->next;
        found = NULL;
    }
}

static tutti__stats_class_t *add(tutti__stats_t *stats, const tutti__stats_what_t *what)
{
    tutti__stats_class_t *class = calloc(1, sizeof(*class)), *spare = &stats->spare[what->is_async];

    if (class == NULL && spare->algorithm[0] != '\0')
        return spare;
    if (class == NULL)
        class = spare;
    class->kind = what->kind;
    class->is_async = what->is_async;
    class->source[0] = what->algorithm;
    class->source[1] = what->transport;
    snprintf(class->algorithm, sizeof(class->algorithm), "%s",
             class == spare ? "other" : what->algorithm);
    snprintf(class->transport, sizeof(class->transport), "%s", what->transport);
    append(stats, class);
    return class;
}

tutti__stats_entry_t *tutti__stats_find(tutti__stats_t *stats, const tutti__stats_what_t *what,
                                        uint64_t bytes)
{
    tutti__stats_class_t *class;

    if (stats == NULL)
        return NULL;
    assert(what->is_async == 0 || what->is_async == 1);
    assert(strlen(what->transport) < sizeof(class->transport));
    class = search(stats, what, is_surely_of);
    if (TUTTI__UNLIKELY(class == NULL))
        class = search(stats, what, is_of);
    if (TUTTI__UNLIKELY(class == NULL))
        class = add(stats, what);
    return &class->entries[tutti__stats_bucket(bytes)];
}

void tutti__stats_free(tutti__stats_t *stats)
{
    tutti__stats_class_t *next, *class = atomic_load(&stats->first);

    for (; class != NULL; class = next) {
        next = atomic_load(&class->next);
        if (class != &stats->spare[0] && class != &stats->spare[1])
            free(class);
    }
    tutti__mutex_destroy(&stats->phases.lock);
    free(stats);
}

/* ---- direct calls ---- */

uint64_t tutti__stats_direct_begin(tutti__stats_t *stats)
{
    assert(stats != NULL && stats->is_timed);
    return tutti__phase_wait(&stats->phases, 1);
}

void tutti__stats_direct_end(tutti__stats_t *stats, tutti__stats_entry_t *entry, uint64_t since_ns)
{
    uint64_t ns = tutti__phase_wait(&stats->phases, -1) - since_ns;

    tutti__stats_put(&stats->direct_ns, ns);
    if (entry != NULL)
        tutti__stats_add(&entry->ns, ns);
}

/* ---- waits ---- */

void tutti__stats_wait_begin(tutti__stats_t *stats)
{
    if (stats != NULL && stats->is_timed)
        (void)tutti__phase_wait(&stats->phases, 1);
}

void tutti__stats_wait_end(tutti__stats_t *stats)
{
    if (stats != NULL && stats->is_timed)
        (void)tutti__phase_wait(&stats->phases, -1);
}

/* ---- requests and buckets ---- */

void tutti__stats_submit(tutti__stats_t *stats, uint64_t nrequests)
{
    if (stats != NULL)
        tutti__stats_add(&stats->requests, nrequests);
}

void tutti__stats_request(tutti__stats_t *stats, tutti_call_kind_t kind, uint64_t bytes,
                          uint64_t ns, tutti_status_t status)
{
    if (stats == NULL)
        return;
    assert((unsigned)kind < TUTTI_STATS_CALLS);
    tutti__stats_put(&stats->async_ns, ns);
    if (status != TUTTI_OK) {
        tutti__stats_add(&stats->failed, 1);
        return;
    }
    tutti__stats_count(&stats->async[kind], bytes);
    tutti__stats_put(&stats->async_bytes, bytes);
}

static void end_operation(tutti__stats_t *stats, const tutti__stats_what_t *what, uint64_t bytes,
                          uint64_t since_ns)
{
    tutti__stats_entry_t *entry = tutti__stats_find(stats, what, bytes);

    tutti__stats_count(entry, bytes);
    if (stats->is_timed)
        tutti__stats_add(&entry->ns, tutti__now_ns() - since_ns);
}

void tutti__stats_bucket_end(tutti__stats_t *stats, const tutti__stats_what_t *what,
                             uint64_t ntensors, uint64_t bytes, uint64_t since_ns)
{
    if (stats == NULL)
        return;
    end_operation(stats, what, bytes, since_ns);
    tutti__stats_add(&stats->buckets, 1);
    tutti__stats_add(&stats->bucket_tensors, ntensors);
    tutti__stats_add(&stats->bucket_bytes, bytes);
}

void tutti__stats_ordered_end(tutti__stats_t *stats, const tutti__stats_what_t *what,
                              uint64_t bytes, uint64_t since_ns)
{
    if (stats == NULL)
        return;
    end_operation(stats, what, bytes, since_ns);
    tutti__stats_add(&stats->ordered, 1);
}

/* ---- single counters ---- */

void tutti__stats_announcement(tutti__stats_t *stats)
{
    if (stats != NULL)
        tutti__stats_add(&stats->announcements, 1);
}

void tutti__stats_bucket_message(tutti__stats_t *stats)
{
    if (stats != NULL)
        tutti__stats_add(&stats->bucket_messages, 1);
}

void tutti__stats_other_message(tutti__stats_t *stats)
{
    if (stats != NULL)
        tutti__stats_add(&stats->other_messages, 1);
}

void tutti__stats_plan_step(tutti__stats_t *stats)
{
    if (stats != NULL)
        tutti__stats_add(&stats->plan_steps, 1);
}

void tutti__stats_plan_hit(tutti__stats_t *stats, int is_in_place)
{
    if (stats == NULL)
        return;
    tutti__stats_add(&stats->plan_hits, 1);
    tutti__stats_add(&stats->plan_in_place, is_in_place != 0);
}

void tutti__stats_plan_break(tutti__stats_t *stats)
{
    if (stats != NULL)
        tutti__stats_add(&stats->plan_breaks, 1);
}
