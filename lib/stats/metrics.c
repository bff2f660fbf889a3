/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The counters in the text format of Prometheus, version 0.0.4.
 *
 * All samples of a metric must follow its HELP and TYPE lines. So each metric is written for all
 * communicators of the process, which the labels `comm` and `id` distinguish. A communicator's name
 * may contain text of the program, so names are escaped. Times are in seconds.
 */
#include "stats/stats_inside.h"

#include "base/kinds.h"

#include <inttypes.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a text that grows ---- */

static int reserve(tutti__stats_text_t *text, size_t bytes)
{
    size_t capacity = TUTTI__MAX(text->capacity, 4096);
    char *larger;

    if (text->bytes + bytes < text->capacity)
        return 1;
    while (capacity <= text->bytes + bytes)
        capacity *= 2;
    larger = realloc(text->at, capacity);
    if (larger == NULL) {
        text->failed = 1;
        return 0;
    }
    text->at = larger;
    text->capacity = capacity;
    return 1;
}

void tutti__stats_append(tutti__stats_text_t *text, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || text->failed || !reserve(text, (size_t)n))
        return;
    va_start(args, fmt);
    vsnprintf(text->at + text->bytes, (size_t)n + 1, fmt, args);
    va_end(args);
    text->bytes += (size_t)n;
}

const char *tutti__stats_call_name(tutti_call_kind_t kind)
{
    const char *name = tutti__call_name(kind), *blank = strchr(name, ' ');

    return blank != NULL ? blank + 1 : name;
}

/* ---- one communicator ---- */

/* A communicator whose counters were read. */
typedef struct {
    tutti__stats_t *stats;
    tutti_stats_t values;
    char labels[200]; /* labels of all its samples: comm="world",id="1",rank="0" */
} source_t;

static void escape(const char *from, char *to, size_t capacity)
{
    size_t n = 0;

    for (; *from != '\0' && n + 3 < capacity; from++) {
        if (*from == '\\' || *from == '"' || *from == '\n')
            to[n++] = '\\';
        to[n++] = *from == '\n' ? 'n' : *from;
    }
    to[n] = '\0';
}

static void read_source(tutti__stats_t *stats, source_t *source)
{
    char name[2 * sizeof(stats->name)];

    source->stats = stats;
    source->values.size = sizeof(source->values);
    tutti__stats_read(stats, &source->values);
    escape(stats->name, name, sizeof(name));
    snprintf(source->labels, sizeof(source->labels), "comm=\"%s\",id=\"%u\",rank=\"%u\"", name,
             stats->id, stats->rank);
}

/* ---- metrics ---- */

static void head(tutti__stats_text_t *text, const char *name, const char *type, const char *help)
{
    tutti__stats_append(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The counters that are fields of tutti_stats_t. */
static const struct {
    const char *name, *help;
    size_t offset;
    int is_time;
} counters[] = {
#define COUNTER(name, help, field)                                                                 \
    {                                                                                              \
        name, help, offsetof(tutti_stats_t, field), 0                                              \
    }
#define SECONDS(name, help, field)                                                                 \
    {                                                                                              \
        name, help, offsetof(tutti_stats_t, field), 1                                              \
    }
    COUNTER("tutti_requests_total", "Asynchronous calls submitted.", requests),
    COUNTER("tutti_requests_failed_total", "Asynchronous calls ended with an error.", failed),
    COUNTER("tutti_ordered_calls_total", "Collectives without a name, run in their order.",
            ordered),
    COUNTER("tutti_buckets_total", "Buckets of agreed tensors.", buckets),
    COUNTER("tutti_bucket_tensors_total", "Tensors in buckets.", bucket_tensors),
    COUNTER("tutti_bucket_bytes_total", "Bytes of tensors in buckets.", bucket_bytes),
    COUNTER("tutti_announcements_sent_total", "Announcements of tensors sent to other ranks.",
            announcements_sent),
    COUNTER("tutti_bucket_messages_sent_total", "Messages about buckets sent to other ranks.",
            bucket_messages_sent),
    COUNTER("tutti_other_messages_sent_total", "Other messages of the agreement sent.",
            other_messages_sent),
    COUNTER("tutti_plan_steps_total", "Steps of learned plans.", plan_steps),
    COUNTER("tutti_plan_hits_total", "Buckets of learned plans served.", plan_hits),
    COUNTER("tutti_plan_in_place_total",
            "Buckets of a learned plan whose tensors were reduced where they are.", plan_in_place),
    COUNTER("tutti_plan_breaks_total", "Learned plans given up.", plan_breaks),
    SECONDS("tutti_exposed_seconds_total",
            "Time in which the program was in direct calls or waited for requests.", exposed_ns),
    SECONDS("tutti_in_flight_seconds_total", "Time in which buckets were in flight.", in_flight_ns),
    SECONDS("tutti_hidden_seconds_total",
            "Time in which buckets were in flight and the program did not wait.", hidden_ns),
};

static void put_counters(tutti__stats_text_t *text, const source_t *sources, size_t n)
{
    for (size_t c = 0; c < sizeof(counters) / sizeof(*counters); c++) {
        head(text, counters[c].name, "counter", counters[c].help);
        for (size_t i = 0; i < n; i++) {
            uint64_t value;

            memcpy(&value, (const char *)&sources[i].values + counters[c].offset, sizeof(value));
            if (counters[c].is_time)
                tutti__stats_append(text, "%s{%s} %.9f\n", counters[c].name, sources[i].labels,
                                    (double)value / 1e9);
            else
                tutti__stats_append(text, "%s{%s} %" PRIu64 "\n", counters[c].name,
                                    sources[i].labels, value);
        }
    }
}

static void put_count(tutti__stats_text_t *text, const source_t *source, int kind, int is_bytes)
{
    const tutti_stats_count_t *count[] = { &source->values.direct[kind],
                                           &source->values.async[kind] };
    static const char *const modes[] = { "direct", "async" };

    for (int m = 0; m < 2; m++)
        if (count[m]->operations > 0)
            tutti__stats_append(text, "tutti_%s_total{%s,call=\"%s\",mode=\"%s\"} %" PRIu64 "\n",
                                is_bytes ? "bytes" : "operations", source->labels,
                                tutti__stats_call_name((tutti_call_kind_t)kind), modes[m],
                                is_bytes ? count[m]->bytes : count[m]->operations);
}

static void put_calls(tutti__stats_text_t *text, const source_t *sources, size_t n)
{
    for (int is_bytes = 0; is_bytes < 2; is_bytes++) {
        head(text, is_bytes ? "tutti_bytes_total" : "tutti_operations_total", "counter",
             is_bytes ? "Bytes of calls that have ended without an error."
                      : "Calls that have ended without an error.");
        for (size_t i = 0; i < n; i++)
            for (int kind = 1; kind <= TUTTI_CALL_SENDRECV; kind++)
                put_count(text, &sources[i], kind, is_bytes);
    }
}

static void put_part(tutti__stats_text_t *text, const char *name, const source_t *source,
                     const tutti_stats_part_t *part)
{
    char algorithm[2 * sizeof(part->algorithm)];

    escape(part->algorithm, algorithm, sizeof(algorithm));
    tutti__stats_append(text, "%s{%s,call=\"%s\",mode=\"%s\",algorithm=\"%s\",transport=\"%s\"} ",
                        name, source->labels, tutti__stats_call_name(part->call),
                        part->is_async ? "async" : "direct", algorithm, part->transport);
}

static void put_parts(tutti__stats_text_t *text, const source_t *sources, size_t n)
{
    static const char *const names[] = { "tutti_algorithm_operations_total",
                                         "tutti_algorithm_bytes_total",
                                         "tutti_algorithm_seconds_total" };
    static const char *const helps[] = { "Direct calls and buckets that an algorithm served.",
                                         "Bytes of direct calls and buckets, by algorithm.",
                                         "Time of direct calls and buckets, by algorithm." };

    for (int m = 0; m < 3; m++) {
        head(text, names[m], "counter", helps[m]);
        for (size_t i = 0; i < n; i++) {
            tutti_stats_part_t part = TUTTI_STATS_PART_INIT;

            for (size_t p = 0; tutti__stats_part(sources[i].stats, p, &part); p++) {
                put_part(text, names[m], &sources[i], &part);
                if (m == 2)
                    tutti__stats_append(text, "%.9f\n", (double)part.ns / 1e9);
                else
                    tutti__stats_append(text, "%" PRIu64 "\n",
                                        m == 0 ? part.operations : part.bytes);
            }
        }
    }
}

/* Values below 2^least are in the first bucket, values above 2^most in +Inf only. The limits are
   fixed, because a histogram must have the same buckets each time it is read. */
static void put_histogram(tutti__stats_text_t *text, const char *name, const source_t *source,
                          const tutti_stats_histogram_t *histogram, const char *mode)
{
    int is_time = strstr(name, "seconds") != NULL, least = is_time ? 7 : 3,
        most = is_time ? 37 : 36;
    double unit = is_time ? 1e9 : 1;
    uint64_t total = 0;

    for (int i = 0; i < TUTTI_STATS_BUCKETS; i++) {
        total += histogram->buckets[i];
        if (i >= least && i <= most)
            tutti__stats_append(text, "%s_bucket{%s,mode=\"%s\",le=\"%.12g\"} %" PRIu64 "\n", name,
                                source->labels, mode, (double)((uint64_t)1 << i) / unit, total);
    }
    tutti__stats_append(text, "%s_bucket{%s,mode=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name,
                        source->labels, mode, total);
    tutti__stats_append(text, "%s_sum{%s,mode=\"%s\"} %.12g\n", name, source->labels, mode,
                        (double)histogram->sum / unit);
    tutti__stats_append(text, "%s_count{%s,mode=\"%s\"} %" PRIu64 "\n", name, source->labels, mode,
                        total);
}

static void put_histograms(tutti__stats_text_t *text, const source_t *sources, size_t n)
{
    head(text, "tutti_call_seconds", "histogram",
         "Time of direct calls, and of asynchronous calls from submission until they are done.");
    for (size_t i = 0; i < n; i++) {
        put_histogram(text, "tutti_call_seconds", &sources[i], &sources[i].values.direct_ns,
                      "direct");
        put_histogram(text, "tutti_call_seconds", &sources[i], &sources[i].values.async_ns,
                      "async");
    }
    head(text, "tutti_call_bytes", "histogram", "Bytes of calls.");
    for (size_t i = 0; i < n; i++) {
        put_histogram(text, "tutti_call_bytes", &sources[i], &sources[i].values.direct_bytes,
                      "direct");
        put_histogram(text, "tutti_call_bytes", &sources[i], &sources[i].values.async_bytes,
                      "async");
    }
}

static void put_all(tutti__stats_t *list, tutti__stats_text_t *text)
{
    source_t *sources;
    size_t n = 0;

    for (const tutti__stats_t *stats = list; stats != NULL; stats = stats->next)
        n++;
    sources = calloc(n + 1, sizeof(*sources));
    if (sources == NULL) {
        text->failed = 1;
        return;
    }
    n = 0;
    for (tutti__stats_t *stats = list; stats != NULL; stats = stats->next)
        read_source(stats, &sources[n++]);
    put_calls(text, sources, n);
    put_counters(text, sources, n);
    put_parts(text, sources, n);
    put_histograms(text, sources, n);
    free(sources);
}

/* Prometheus reads only numbers with a decimal point. In the program's locale, printf may write a
   comma, so the numbers are written in locale C. */
void tutti__stats_metrics(tutti__stats_t *list, tutti__stats_text_t *text)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), before;

    if (c == (locale_t)0) {
        text->failed = 1;
        return;
    }
    before = uselocale(c);
    put_all(list, text);
    uselocale(before);
    freelocale(c);
}
