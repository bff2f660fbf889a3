/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes entries of a trace as lines of Chrome's JSON. tutti_report also compiles this file, so the
 * file calls no function of the library.
 *
 *      process   a rank
 *      thread    1 to 7: the lanes, with buckets, packing and unpacking; 100 and more: the
 *                program's threads, with submissions and waits; 1000 and more: chunks to and from
 *                other hosts, by lane and stream
 *      async     a tensor, from its submission to its end
 */
#include "record/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS 65536
#define NAME 64
#define THREADS 4096

typedef struct {
    FILE *out;
    uint64_t nlines;
    uint32_t rank;
    int64_t offset_ns;
    char (*name)[NAME];    /* [TENSORS]; see slot_of */
    char threads[THREADS]; /* 1: the thread has events */
} writer_t;

static void begin(writer_t *w)
{
    fputs(w->nlines++ > 0 ? ",\n" : "", w->out);
}

static void put_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            fputc('\\', out);
        fputc(c < 0x20 || c > 0x7e ? '?' : c, out);
    }
}

/* A tensor's place in `name`. Numbers of tensors are unique in a communicator, and at most 4096.
   There is space for 16 communicators. Names of later communicators overwrite earlier names. */
static uint32_t slot_of(uint32_t comm, uint32_t tensor)
{
    return (comm % 16 * 4096 + tensor) % TENSORS;
}

static const char *name_of(writer_t *w, uint32_t comm, uint32_t tensor)
{
    const char *name = w->name[slot_of(comm, tensor)];

    return name[0] != '\0' ? name : "a tensor";
}

static uint32_t thread_of(uint32_t kind, uint32_t lane, uint32_t thread)
{
    switch (kind) {
    case TUTTI__TRACE_SUBMIT:
    case TUTTI__TRACE_WAIT:
        return 100 + thread;
    case TUTTI__TRACE_SEND:
    case TUTTI__TRACE_RECV:
        return 1000 + lane;
    default:
        return lane & 15;
    }
}

/* Write an event's common fields. phase: X: with a duration; i: without a duration; b, e: see
   put_life. */
static void put_event(writer_t *w, const char *name, char phase, uint32_t thread, uint64_t time_ns,
                      uint64_t duration_ns)
{
    int64_t ns = (int64_t)time_ns + w->offset_ns;

    begin(w);
    fprintf(w->out, "{\"name\":\"");
    put_text(w->out, name);
    fprintf(w->out,
            "\",\"ph\":\"%c\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"ts\":%" PRId64
            ".%03" PRId64,
            phase, w->rank, thread, ns / 1000, ns % 1000);
    if (phase == 'X')
        fprintf(w->out, ",\"dur\":%" PRIu64 ".%03" PRIu64, duration_ns / 1000, duration_ns % 1000);
    if (phase == 'i')
        fprintf(w->out, ",\"s\":\"t\"");
    if (thread < THREADS)
        w->threads[thread] = 1;
}

/* Write the begin (b) or the end (e) of a tensor. Viewers join the two by category and id. */
static void put_life(writer_t *w, char phase, const char *name, uint32_t slot, uint64_t time_ns,
                     uint32_t thread)
{
    put_event(w, name, phase, thread, time_ns, 0);
    fprintf(w->out, ",\"cat\":\"tensor\",\"id2\":{\"local\":\"0x%" PRIx32 "\"}}", slot);
}

static const char *const kinds[] = { "none", "name",   "submit", "agree", "done", "bucket",
                                     "pack", "unpack", "wait",   "send",  "recv" };

static void put_entry(writer_t *w, const tutti__trace_entry_t *entry, uint64_t what)
{
    uint32_t kind = what & 0xff, lane = what >> 8 & 0xff, comm = what >> 16 & 0xff;
    uint32_t tensor = entry->subject & 0xffff, bucket = (uint32_t)(entry->subject >> 32);
    uint32_t thread = thread_of(kind, lane, what >> 24 & 0xff);
    uint64_t duration = (entry->subject >> 16 & 0xffff) << 32 | what >> 32;
    int spans = kind >= TUTTI__TRACE_BUCKET;

    if (kind == TUTTI__TRACE_SUBMIT)
        put_life(w, 'b', name_of(w, comm, tensor), slot_of(comm, tensor), entry->time_ns, thread);
    if (kind == TUTTI__TRACE_DONE) {
        put_life(w, 'e', name_of(w, comm, tensor), slot_of(comm, tensor), entry->time_ns, 100);
        return;
    }
    put_event(w, kinds[kind], spans ? 'X' : 'i', thread, entry->time_ns, duration);
    fprintf(w->out, ",\"cat\":\"tutti\",\"args\":{\"comm\":%" PRIu32, comm);
    if (tensor != 0) {
        fprintf(w->out, ",\"tensor\":\"");
        put_text(w->out, name_of(w, comm, tensor));
        fprintf(w->out, "\"");
    }
    if (bucket != UINT32_MAX)
        fprintf(w->out, ",\"bucket\":%" PRIu32, bucket);
    if (kind == TUTTI__TRACE_BUCKET)
        fprintf(w->out, ",\"tensors\":%" PRIu64, entry->value);
    else if (kind == TUTTI__TRACE_SEND || kind == TUTTI__TRACE_RECV)
        fprintf(w->out, ",\"peer\":%" PRIu64 ",\"bytes\":%" PRIu64, entry->value >> 40,
                entry->value & 0xffffffffffu);
    else if (kind == TUTTI__TRACE_SUBMIT)
        fprintf(w->out, ",\"bytes\":%" PRIu64, entry->value);
    fprintf(w->out, "}}");
}

/* Write the names of the process and of its threads. */
static void put_metadata(writer_t *w, const tutti__trace_head_t *head)
{
    begin(w);
    fprintf(w->out,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%" PRIu32
            ",\"args\":{\"name\":\"rank %" PRIu32 " (",
            w->rank, w->rank);
    put_text(w->out, head->host);
    fprintf(w->out, ")\"}}");
    for (uint32_t thread = 0; thread < THREADS; thread++) {
        if (!w->threads[thread])
            continue;
        begin(w);
        fprintf(w->out,
                "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
                ",\"args\":{\"name\":\"",
                w->rank, thread);
        if (thread >= 1000)
            fprintf(w->out, "lane %" PRIu32 ", chunks of stream %" PRIu32, (thread - 1000) & 15,
                    (thread - 1000) >> 4);
        else if (thread >= 100)
            fprintf(w->out, "thread %" PRIu32, thread - 100);
        else
            fprintf(w->out, "lane %" PRIu32, thread);
        fprintf(w->out, "\"}}");
    }
}

/* Read a name; its text is in the two entries behind entry i. Returns the number of entries that
   the name uses. */
static uint64_t take_name(writer_t *w, const tutti__trace_entry_t *(*at)(void *owner, uint64_t i),
                          void *owner, uint64_t i, uint64_t what, uint64_t nentries)
{
    const tutti__trace_entry_t *entry = at(owner, i);
    char *name = w->name[slot_of(what >> 16 & 0xff, entry->subject & 0xffff)];

    if (i + 2 >= nentries)
        return 1;
    memcpy(name, (const void *)at(owner, i + 1), NAME / 2);
    memcpy(name + NAME / 2, (const void *)at(owner, i + 2), NAME / 2);
    name[NAME - 1] = '\0';
    return 3;
}

uint64_t tutti__trace_json(FILE *out, const tutti__trace_head_t *head,
                           const tutti__trace_entry_t *(*at)(void *owner, uint64_t i), void *owner,
                           uint64_t nentries, uint64_t nlines)
{
    writer_t *w = calloc(1, sizeof(*w));

    if (w == NULL || (w->name = calloc(TENSORS, NAME)) == NULL) {
        free(w);
        return nlines;
    }
    w->out = out;
    w->nlines = nlines;
    w->rank = head->rank;
    w->offset_ns = head->offset_ns;
    for (uint64_t i = 0; i < nentries;) {
        uint64_t what = atomic_load_explicit(&at(owner, i)->what, memory_order_acquire);

        if ((what & 0xff) == TUTTI__TRACE_NAME) {
            i += take_name(w, at, owner, i, what, nentries);
            continue;
        }
        if ((what & 0xff) != TUTTI__TRACE_NONE && (what & 0xff) <= TUTTI__TRACE_RECV)
            put_entry(w, at(owner, i), what);
        i++;
    }
    put_metadata(w, head);
    nlines = w->nlines;
    free(w->name);
    free(w);
    return nlines;
}
