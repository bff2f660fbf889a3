/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the counters. Any thread may read while other threads count. */
#include "stats/stats_inside.h"

#include "base/time.h"

#include <string.h>

static uint64_t get(const tutti__word64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void read_histogram(const tutti__stats_histogram_t *from, tutti_stats_histogram_t *to)
{
    to->sum = get(&from->sum);
    for (int i = 0; i < TUTTI_STATS_BUCKETS; i++) {
        to->buckets[i] = get(&from->buckets[i]);
        to->count += to->buckets[i];
    }
}

/* Add a class of direct calls to the totals, because direct calls are counted by class only. */
static void read_direct(const tutti__stats_class_t *class, tutti_stats_t *stats)
{
    tutti_stats_count_t *direct = &stats->direct[class->kind];

    for (int i = 0; i < TUTTI_STATS_BUCKETS; i++) {
        uint64_t operations = get(&class->entries[i].operations);
        uint64_t bytes = get(&class->entries[i].bytes);

        direct->operations += operations;
        direct->bytes += bytes;
        stats->direct_bytes.buckets[i] += operations;
        stats->direct_bytes.count += operations;
        stats->direct_bytes.sum += bytes;
    }
}

static const tutti__stats_class_t *next_of(tutti__stats_class_t *const _Atomic *at)
{
    return atomic_load_explicit(at, memory_order_acquire);
}

void tutti__stats_read(tutti__stats_t *stats, tutti_stats_t *ret_stats)
{
    tutti_stats_t all = { .size = ret_stats->size };

    *ret_stats = all;
    if (stats == NULL)
        return;
    all.age_ns = tutti__now_ns() - stats->opened_ns;
    all.times = stats->is_timed != 0;
    all.requests = get(&stats->requests);
    all.failed = get(&stats->failed);
    all.ordered = get(&stats->ordered);
    all.buckets = get(&stats->buckets);
    all.bucket_tensors = get(&stats->bucket_tensors);
    all.bucket_bytes = get(&stats->bucket_bytes);
    all.announcements_sent = get(&stats->announcements);
    all.bucket_messages_sent = get(&stats->bucket_messages);
    all.other_messages_sent = get(&stats->other_messages);
    all.plan_steps = get(&stats->plan_steps);
    all.plan_hits = get(&stats->plan_hits);
    all.plan_breaks = get(&stats->plan_breaks);
    all.plan_in_place = get(&stats->plan_in_place);
    if (stats->is_timed)
        tutti__phase_read(&stats->phases, &all);
    for (int i = 0; i < TUTTI_STATS_CALLS; i++)
        all.async[i] =
            (tutti_stats_count_t){ get(&stats->async[i].operations), get(&stats->async[i].bytes) };
    read_histogram(&stats->direct_ns, &all.direct_ns);
    read_histogram(&stats->async_ns, &all.async_ns);
    read_histogram(&stats->async_bytes, &all.async_bytes);
    for (const tutti__stats_class_t *c = next_of(&stats->first); c != NULL; c = next_of(&c->next)) {
        all.nparts++;
        if (!c->is_async)
            read_direct(c, &all);
    }
    *ret_stats = all;
}

int tutti__stats_part(tutti__stats_t *stats, size_t index, tutti_stats_part_t *ret_part)
{
    const tutti__stats_class_t *class = stats != NULL ? next_of(&stats->first) : NULL;
    tutti_stats_part_t part = { .size = ret_part->size };

    while (class != NULL && index-- > 0)
        class = next_of(&class->next);
    if (class == NULL)
        return 0;
    part.call = class->kind;
    part.is_async = class->is_async;
    for (int i = 0; i < TUTTI_STATS_BUCKETS; i++) {
        part.operations += get(&class->entries[i].operations);
        part.bytes += get(&class->entries[i].bytes);
        part.ns += get(&class->entries[i].ns);
    }
    memcpy(part.algorithm, class->algorithm, sizeof(part.algorithm));
    memcpy(part.transport, class->transport, sizeof(part.transport));
    *ret_part = part;
    return 1;
}
