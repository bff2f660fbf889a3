/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trace: while it is switched on, a file gets all events with their durations.
 *
 * Each process writes entries of 32 bytes into a mapped file of its own, PATH.RANK.part, without a
 * lock: one atomic addition takes an entry, a second addition counts the entry as complete. The
 * file grows in chunks. Space on the disk is allocated before a chunk is mapped, so a full disk
 * ends the trace and not the process. When the trace stops, the entries become lines of Chrome's
 * JSON, which the processes append to PATH one after another under a file lock. So PATH is always
 * complete JSON. A killed process leaves its .part file, which tutti_report --trace converts.
 *
 * Rejected: a thread that writes the events. The ranks would have one processor less.
 */
#ifndef TUTTI__RECORD_TRACE_H
#define TUTTI__RECORD_TRACE_H

#include "base/compiler.h"
#include "base/status.h"
#include "base/time.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#define TUTTI__TRACE_MAGIC 0x0065636172545474u /* "tTrace" */
#define TUTTI__TRACE_CHUNK 131072u             /* entries */
#define TUTTI__TRACE_CHUNKS 4096u
/* Chunks are mapped behind the head, so the head's size is a multiple of every page size. */
#define TUTTI__TRACE_HEAD_BYTES 65536u

/* Kinds of entries. NONE: the entry is not written. */
typedef enum {
    TUTTI__TRACE_NONE,
    TUTTI__TRACE_NAME,   /* name of a tensor; its text is in the next two entries */
    TUTTI__TRACE_SUBMIT, /* value: bytes */
    TUTTI__TRACE_AGREE,
    TUTTI__TRACE_DONE,   /* value: status */
    TUTTI__TRACE_BUCKET, /* a bucket's time in its lane. value: number of tensors */
    TUTTI__TRACE_PACK,
    TUTTI__TRACE_UNPACK,
    TUTTI__TRACE_WAIT, /* a thread's time in tutti_wait */
    TUTTI__TRACE_SEND, /* a chunk to or from another host. value: rank << 40 | bytes. The field
                          `lane` has stream << 4 | lane */
    TUTTI__TRACE_RECV
} tutti__trace_kind_t;

typedef struct {
    _Atomic uint64_t what; /* low half of the duration << 32 | thread << 24 | comm << 16 |
                              lane << 8 | kind */
    uint64_t time_ns;      /* the start */
    uint64_t subject;      /* bucket << 32 | high half of the duration << 16 | tensor */
    uint64_t value;
} tutti__trace_entry_t;

/* The head of a file PATH.RANK.part. */
typedef struct {
    uint64_t magic;
    uint32_t rank, size;
    int64_t offset_ns; /* added to a time, gives the time of rank 0's host */
    char host[64];
} tutti__trace_head_t;

_Static_assert(sizeof(tutti__trace_entry_t) == 32, "entries fill cache lines");

/* 0: off; otherwise the number of the trace. */
extern _Atomic uint32_t tutti__tracing;

static inline uint32_t tutti__trace_on(void)
{
    return atomic_load_explicit(&tutti__tracing, memory_order_relaxed);
}

/* The time now, for `time_ns` of a later entry; 0: the trace is off. */
static inline uint64_t tutti__trace_begin(void)
{
    return TUTTI__UNLIKELY(tutti__trace_on()) ? tutti__now_ns() : 0;
}

/* The content of an entry. */
typedef struct {
    tutti__trace_kind_t kind;
    uint64_t time_ns, end_ns; /* end_ns 0: an event without duration */
    uint32_t tensor, bucket, lane, comm;
    uint64_t value;
} tutti__traced_t;

/* Add an entry, if the trace is on. Any thread. */
void tutti__trace_put(const tutti__traced_t *traced);
/* Add a tensor's name. name: 64 bytes. Any thread. */
void tutti__trace_name(uint32_t tensor, uint32_t comm, const char *name);

/* Switch the trace on. head: all fields but magic are set. is_leader 1: the lowest rank of its
   host, which removes an older file of this name. INVALID_ARGUMENT: the trace is on already. */
tutti_status_t tutti__trace_start(const char *path, const tutti__trace_head_t *head, int is_leader);
/* Switch the trace off, and write PATH. Returns TUTTI_OK if the trace is off already. */
tutti_status_t tutti__trace_stop(void);

/* trace_json.c: write the entries as lines of JSON, separated by ",\n". nlines: the number of lines
   that `out` already has. Returns the new number of lines, or nlines if there is no memory. The
   caller checks ferror(out). */
uint64_t tutti__trace_json(FILE *out, const tutti__trace_head_t *head,
                           const tutti__trace_entry_t *(*at)(void *owner, uint64_t i), void *owner,
                           uint64_t nentries, uint64_t nlines);

#endif
