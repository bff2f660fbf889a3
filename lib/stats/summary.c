/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table that TUTTI_STATS=1 prints when a communicator ends.
 *
 *     tutti: statistics of world, as rank 0 of 4 saw them, after 12.3 s
 *       calls                       operations      bytes   mean time
 *       allreduce, direct                 1200    9.6 KiB
 *       all direct calls                  1200    9.6 KiB     0.21 us
 *     ...
 */
#include "stats/stats_inside.h"

#include <inttypes.h>
#include <stdio.h>

/* Bytes as text: "1.5 MiB". */
static const char *bytes_text(uint64_t bytes, char text[24])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double value = (double)bytes;
    int unit = 0;

    for (; value >= 1024 && unit < 5; unit++)
        value /= 1024;
    snprintf(text, 24, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

/* A time as text: "0.21 us". */
static const char *time_text(double ns, char text[24])
{
    if (ns < 1e6)
        snprintf(text, 24, "%.2f us", ns / 1e3);
    else if (ns < 1e9)
        snprintf(text, 24, "%.2f ms", ns / 1e6);
    else
        snprintf(text, 24, "%.2f s", ns / 1e9);
    return text;
}

static void put_row(tutti__stats_text_t *text, const char *name, uint64_t operations,
                    uint64_t bytes, double ns)
{
    char size[24], time[24];

    tutti__stats_append(text, "  %-44s %11" PRIu64 " %11s", name, operations,
                        bytes_text(bytes, size));
    if (ns > 0)
        tutti__stats_append(text, " %11s", time_text(ns, time));
    tutti__stats_append(text, "\n");
}

static double mean(const tutti_stats_histogram_t *histogram)
{
    return histogram->count > 0 ? (double)histogram->sum / (double)histogram->count : 0;
}

static void put_calls(tutti__stats_text_t *text, const tutti_stats_t *s)
{
    char name[64];

    tutti__stats_append(text, "  %-44s %11s %11s %11s\n", "calls", "operations", "bytes",
                        "mean time");
    for (int kind = 1; kind <= TUTTI_CALL_SENDRECV; kind++) {
        const char *call = tutti__stats_call_name((tutti_call_kind_t)kind);

        snprintf(name, sizeof(name), "%s, direct", call);
        if (s->direct[kind].operations > 0)
            put_row(text, name, s->direct[kind].operations, s->direct[kind].bytes, 0);
        snprintf(name, sizeof(name), "%s, asynchronous", call);
        if (s->async[kind].operations > 0)
            put_row(text, name, s->async[kind].operations, s->async[kind].bytes, 0);
    }
    if (s->direct_bytes.count > 0)
        put_row(text, "all direct calls", s->direct_bytes.count, s->direct_bytes.sum,
                mean(&s->direct_ns));
    if (s->async_bytes.count > 0)
        put_row(text, "all asynchronous calls, until done", s->async_bytes.count,
                s->async_bytes.sum, mean(&s->async_ns));
}

static void put_parts(tutti__stats_text_t *text, tutti__stats_t *stats)
{
    tutti_stats_part_t part = TUTTI_STATS_PART_INIT;
    char name[96];

    tutti__stats_append(text, "  direct calls and buckets, by algorithm and transport\n");
    for (size_t i = 0; tutti__stats_part(stats, i, &part); i++) {
        snprintf(name, sizeof(name), "%s%s: %s, %s", tutti__stats_call_name(part.call),
                 part.is_async ? " buckets" : "", part.algorithm, part.transport);
        put_row(text, name, part.operations, part.bytes,
                part.operations > 0 ? (double)part.ns / (double)part.operations : 0);
    }
}

static void put_rest(tutti__stats_text_t *text, const tutti_stats_t *s)
{
    char exposed[24], in_flight[24], hidden[24];

    if (s->requests > 0)
        tutti__stats_append(text,
                            "  requests: %" PRIu64 " submitted, %" PRIu64
                            " failed; buckets: %" PRIu64 " of %" PRIu64 " tensors\n"
                            "  messages sent: %" PRIu64 " announcements, %" PRIu64
                            " about buckets, %" PRIu64 " others; plans: %" PRIu64 " hits (%" PRIu64
                            " in place), %" PRIu64 " breaks\n",
                            s->requests, s->failed, s->buckets, s->bucket_tensors,
                            s->announcements_sent, s->bucket_messages_sent, s->other_messages_sent,
                            s->plan_hits, s->plan_in_place, s->plan_breaks);
    if (s->times)
        tutti__stats_append(text,
                            "  communication: exposed %s (the program waited), in flight %s, "
                            "hidden %s (it did not wait)\n",
                            time_text((double)s->exposed_ns, exposed),
                            time_text((double)s->in_flight_ns, in_flight),
                            time_text((double)s->hidden_ns, hidden));
}

void tutti__stats_summary(tutti__stats_t *stats, tutti__stats_text_t *text)
{
    tutti_stats_t s = TUTTI_STATS_INIT;

    tutti__stats_read(stats, &s);
    tutti__stats_append(text, "tutti: statistics of %s, as rank %u of %u saw them, after %.1f s\n",
                        stats->name, stats->rank, stats->size, (double)s.age_ns / 1e9);
    put_calls(text, &s);
    if (s.nparts > 0)
        put_parts(text, stats);
    put_rest(text, &s);
}
