/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the OSU-style programs share: flags, ranks, data, the measuring loop, the table.
 *
 * A program describes its collective in a bench_program_t and calls bench_main(). For each size,
 * contestants (Tutti, and what it is compared with) take turns in blocks of iterations, in the same
 * run, on the same buffers. README.md has the method.
 */
#ifndef TUTTI_BENCH_H
#define TUTTI_BENCH_H

#include <tutti/tutti.h>

#ifdef HAVE_MPI
#include <mpi.h>
#endif

/* An element type, as -T names it. */
typedef struct {
    const char *name;     /* "float32" */
    const char *mpi_name; /* "MPI_FLOAT", or NULL if MPI has none */
    tutti_dtype_t dtype;
    size_t bytes;
    int limit; /* integers up to here are exact, sums included; 0: sums wrap around */
} bench_type_t;

typedef struct {
    size_t min_bytes, max_bytes;
    size_t memory_bytes;   /* -M: no message above it */
    long iterations, skip; /* -1: by size, as OSU */
    long rounds;
    const bench_type_t *type;
    int full, validate, in_place;
    int stats; /* medians and bus bandwidth, also without a peer */
    int peer_mpi, async;
    int back_to_back;  /* no barrier between iterations */
    int shared;        /* buffers from tutti_mem_alloc */
    int barrier_tutti; /* the harness's barrier; else MPI's */
    int mpi_level;     /* 0 to 3: SINGLE to MULTIPLE */
    uint64_t seed;
    int help, version;
    char error[160]; /* what is wrong with the flags, or "" */
} bench_options_t;

/* The ranks of the job, as the harness sees them. It uses MPI where there is one. */
typedef struct {
    int rank, size;
    int has_mpi;
    int barrier_tutti;
    tutti_comm_t *comm;
} bench_world_t;

/* One call of the collective under test. */
typedef struct {
    const void *sendbuf; /* equal to recvbuf: in place */
    void *recvbuf;
    size_t count; /* elements of the size column */
    const bench_type_t *type;
    const bench_world_t *world;
} bench_call_t;

typedef struct {
    const char *name; /* as in the table's head: "Tutti", "MPI" */
    /* Once. 0, or -1 after saying why on stderr. */
    int (*run)(const bench_call_t *call);
} bench_contestant_t;

/* A collective. */
typedef struct {
    const char *title;                       /* "Allreduce" */
    const bench_contestant_t *tutti, *async; /* async: NULL if there is none */
    const bench_contestant_t *mpi;           /* NULL if built without MPI */
    double (*bus_factor)(int ranks);         /* bus bandwidth = factor * size / time */
    /* Fill the buffers so that a call can be checked; how many elements are wrong after it? */
    void (*fill)(const bench_call_t *call);
    size_t (*count_wrong)(const bench_call_t *call);
} bench_program_t;

/* All of a program's main(). */
int bench_main(int argc, char **argv, const bench_program_t *program);

/* options.c */
void bench_parse(int argc, char **argv, bench_options_t *ret_options);
void bench_usage(const char *name, const bench_program_t *program);

/* world.c */

/* Starts MPI, where a launcher or the peer wants it, and Tutti. */
void bench_world_open(const bench_options_t *options, bench_world_t *ret_world);
void bench_world_close(bench_world_t *world);
void bench_barrier(const bench_world_t *world);
/* Each element becomes the largest of all ranks'; the sum. */
void bench_max(const bench_world_t *world, double *values, size_t count);
double bench_sum(const bench_world_t *world, double value);
/* Rank 0's value, for all. */
uint64_t bench_same(const bench_world_t *world, uint64_t value);
/* Ends the job on all ranks; bench_die says first what failed in Tutti. */
void bench_stop(const bench_world_t *world);
void bench_die(const bench_world_t *world, const char *what);
/* 0 for TUTTI_OK; else -1, and the cause on stderr. */
int bench_check(const bench_world_t *world, tutti_status_t status, const char *what);
/* "Open MPI v4.1.4" or "none". */
const char *bench_mpi_version(char *text, size_t bytes);
#ifdef HAVE_MPI
MPI_Datatype bench_mpi_type(const bench_type_t *type);
#endif

/* pattern.c: small integers that depend on place and rank, so that sums are exact */
const bench_type_t *bench_type_find(const char *name);
const bench_type_t *bench_type_at(size_t index); /* NULL at the end */
/* Element i becomes element `first + i` of rank `rank`'s pattern. */
void bench_fill(void *data, const bench_type_t *type, size_t first, size_t count, int rank);
/* How many elements differ from that; from the sum of the patterns of ranks 0 to size-1? */
size_t bench_wrong(const void *data, const bench_type_t *type, size_t first, size_t count,
                   int rank);
size_t bench_wrong_sum(const void *data, const bench_type_t *type, size_t first, size_t count,
                       int size);

#endif
