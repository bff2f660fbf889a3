/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The common parts of the OSU-style programs: flags, ranks, data, measuring loop, statistics.
 *
 * A program describes its collective in a bench_program_t and calls bench_main(). For each size,
 * the contestants (Tutti and its peers) take turns in blocks of iterations, in the same run, on the
 * same buffers. README.md describes the method.
 *
 *      tutti_x.c --> bench.c --> measure.c --> figures.c --> table.c csv.c json.c plot.c compare.c
 *                       |            |
 *              options.c files.c  buffers.c check.c disturb.c limits.c world.c
 *                                    device.c nccl.c (-d)
 */
#ifndef TUTTI_BENCH_H
#define TUTTI_BENCH_H

#include <tutti/tutti.h>

#ifdef HAVE_MPI
#include <mpi.h>
#endif

#include "harness/pattern.h"
#include "harness/stats.h"

#include <stdio.h>

enum {
    BENCH_CONTESTANTS = 7, /* at most, of one program */
    BENCH_ALIGNS = 4,      /* of --align */
    BENCH_ENTRIES = BENCH_CONTESTANTS * BENCH_ALIGNS,
    BENCH_TAILS = 8 /* percentiles of -z */
};

/* ---- the description of a program ---- */

typedef struct bench_device bench_device_t; /* device.h */

/* The ranks of the job for the harness, which uses MPI if it is available. */
typedef struct {
    int rank, size;
    int has_mpi;
    int barrier_tutti;
    tutti_comm_t *comm;
    bench_device_t *device; /* NULL: buffers are in host memory */
} bench_world_t;

/* One call of the collective under test. */
typedef struct {
    const void *sendbuf; /* both buffers: in device memory, if the world has a device */
    void *recvbuf;       /* in place: equal to sendbuf, or containing it (allgather) */
    size_t count;        /* elements of the size column */
    int in_place;
    const bench_type_t *type;
    const bench_world_t *world;
} bench_call_t;

typedef struct {
    const char *flag; /* "mpi", as in --peer; NULL: Tutti itself */
    const char *name; /* as in the table's head: "Tutti", "MPI" */
    /* Make the call once. 0, or -1 and a message on stderr. NULL: not in this build. */
    int (*run)(const bench_call_t *call);
} bench_contestant_t;

/* The elements of a rank's buffer, for `count` elements in the size column. */
typedef enum {
    BENCH_NOTHING,
    BENCH_COUNT,
    BENCH_ALL_RANKS, /* count x ranks */
    BENCH_SHARE      /* this rank's part of count: bench_share() */
} bench_extent_t;

typedef enum {
    BENCH_NO_IN_PLACE,
    BENCH_SAME_BUFFER, /* sendbuf equals recvbuf */
    BENCH_OWN_PART     /* sendbuf is this rank's part of recvbuf */
} bench_in_place_t;

/* Writes elements `first` to `first` + `count` of the data of rank `rank`: bench_fill or
   bench_fill_rough. */
typedef void (*bench_put_t)(void *data, const bench_type_t *type, size_t first, size_t count,
                            int rank);

typedef struct {
    bench_extent_t send, recv; /* send BENCH_NOTHING: recvbuf is the only buffer */
    bench_in_place_t in_place; /* the form that -l selects */
    int sums;                  /* repeated calls in place would overflow */
    int same_everywhere;       /* all ranks get the same bits */
    /* For n ranks. Bus bandwidth = factor * size / time. */
    double (*bus_factor)(int ranks);
    /* The least number of bytes that all ranks together read and write, per byte of the size
       column. */
    double (*traffic)(int ranks, int in_place);
    /* fill: fill the buffers with data that can be checked. count_wrong: the number of wrong
       elements after the call. Both take a call on host memory (bench_host_call). */
    void (*fill)(const bench_call_t *call, bench_put_t put);
    size_t (*count_wrong)(const bench_call_t *call);
} bench_collective_t;

typedef struct {
    const char *name;  /* "tutti_allreduce" */
    const char *title; /* "Allreduce" */
    const bench_collective_t *collective;
    /* [0] is Tutti, followed by its peers; the entry after the last has no name. */
    bench_contestant_t contestants[BENCH_CONTESTANTS + 1];
    const char *nccl_is; /* how --peer nccl makes the call, if NCCL has no such call */
} bench_program_t;

/* A program's main() consists of this call. */
int bench_main(int argc, char **argv, const bench_program_t *program);

/* Rank `rank`'s part of `count` elements, divided as in OSU: the first ranks get one more. */
size_t bench_share(size_t count, int ranks, int rank);
size_t bench_share_begin(size_t count, int ranks, int rank);
size_t bench_extent(bench_extent_t extent, const bench_call_t *call);

/* A contestant that needs MPI. */
#ifdef HAVE_MPI
#define BENCH_MPI(run) run
#else
#define BENCH_MPI(run) NULL
#endif

/* A contestant that needs UCC, which needs MPI here. */
#ifdef HAVE_UCC
#define BENCH_UCC(run) run
#else
#define BENCH_UCC(run) NULL
#endif

/* ---- flags: options.c ---- */

/* Where buffers begin: at a multiple of `bytes`, a power of two, plus `offset` < `bytes`. */
typedef struct {
    uint64_t bytes, offset;
} bench_align_t;

typedef struct {
    uint64_t min_bytes, max_bytes;
    uint64_t memory_bytes;    /* -M: limit of the message size */
    int64_t iterations, skip; /* -1: by size, as in OSU */
    int64_t rounds;
    const bench_type_t *type;
    const char *device; /* -d: "cuda"; NULL: host memory */
    int full, validate, in_place;
    int ntails;
    int tails[BENCH_TAILS]; /* -z: percent */
    int stats;              /* medians and bus bandwidth, also without a peer */
    int npeers;
    int peers[BENCH_CONTESTANTS]; /* of the program's contestants */
    int back_to_back;             /* no barrier between iterations */
    int shared, rotate;           /* buffers from tutti_mem_alloc; a pool of buffers */
    const char *align_text;       /* --align; NULL: pages */
    int naligns;
    bench_align_t aligns[BENCH_ALIGNS];
    int64_t skew_us;   /* delay of one rank */
    int64_t load;      /* busy threads on each host */
    int spoil;         /* one element of each result is damaged before the check */
    int barrier_tutti; /* 1: the harness uses Tutti's barrier; 0: MPI's, if MPI runs */
    int barrier_mpi;   /* --barrier mpi was given */
    int mpi_level;     /* 0 to 3: SINGLE to MULTIPLE */
    uint64_t seed;
    const char *csv, *json, *plot, *compare; /* file names, or NULL; "-": stdout, no table */
    double fail_above;                       /* percent; below 0: not given */
    int help, version;
    char error[200]; /* the error in the flags, or "" */
} bench_options_t;

void bench_parse(int argc, char **argv, const bench_program_t *program,
                 bench_options_t *ret_options);
void bench_usage(const char *name, const bench_program_t *program);
/* Does this process print usage and errors of the command line, before the ranks have met? Yes if
   the launcher's variables make it rank 0, or if there are no such variables. */
int bench_speaks(void);
/* Sets the error text, unless it is set already. */
void bench_complain(bench_options_t *options, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Parse a value of a flag: "64K"; "5%". 1 if it is valid. */
int bench_number(const char *text, uint64_t *ret_number);
/* Parse "8:64K"; or "64K", which leaves *ret_first unchanged. NULL, or what is wrong with the
   text. */
const char *bench_range(const char *text, uint64_t *ret_first, uint64_t *ret_last);
/* Can the text be a module's name, such as "cuda"? */
int bench_is_module(const char *text);
/* Parse "50,99": up to BENCH_TAILS numbers from 1 to 100. Returns their number, or 0. */
int bench_percentiles(const char *text, int *ret_percent);

/* Parse "4096,4096+16": up to BENCH_ALIGNS places. Returns their number, or 0. */
int bench_aligns(const char *text, bench_align_t *ret_aligns);

/* ---- ranks: world.c ---- */

/* Starts Tutti, and MPI if a launcher or a peer needs it. */
void bench_world_open(const bench_options_t *options, int wants_mpi, bench_world_t *ret_world);
void bench_world_close(bench_world_t *world);
void bench_barrier(const bench_world_t *world);
/* Each element becomes the maximum, or the sum, over all ranks. */
void bench_max(const bench_world_t *world, double *values, size_t count);
void bench_sum(const bench_world_t *world, double *values, size_t count);
/* Rank 0's value, on all ranks. */
uint64_t bench_same(const bench_world_t *world, uint64_t value);
/* Do all ranks have the same value? */
int bench_agree(const bench_world_t *world, uint64_t value);
/* Ends the job on all ranks; bench_die first prints Tutti's last error. */
void bench_stop(const bench_world_t *world) __attribute__((noreturn));
void bench_die(const bench_world_t *world, const char *what) __attribute__((noreturn));
/* 0 for TUTTI_OK; otherwise -1, and the cause on stderr. */
int bench_check(const bench_world_t *world, tutti_status_t status, const char *what);
/* The same for an asynchronous call. After TUTTI_OK it also waits for the request, and checks the
   status of the wait. */
int bench_check_wait(const bench_world_t *world, tutti_status_t status, tutti_request_t *request,
                     const char *what);
/* "Open MPI v4.1.4" or "none". */
const char *bench_mpi_version(char *text, size_t bytes);
uint64_t bench_now_ns(void);

/* ---- one run of a program ---- */

/* Memory of both buffers: buffers.c. */
typedef struct {
    void *memory[2];    /* send and recv; send NULL: there is one buffer */
    void *mirror[2];    /* host memory for the data of one pair in device memory */
    size_t bytes[2];    /* of each region */
    size_t stride[2];   /* from one pair to the next */
    size_t pairs, next; /* pairs > 1: rotate */
    int align;          /* index into the options' aligns, for the next call's buffers */
} bench_buffers_t;

typedef struct {
    const bench_program_t *program;
    bench_options_t options;
    bench_world_t world;
    /* [0] is Tutti. With several places of --align, each contestant has an entry for each place. */
    const bench_contestant_t *contestants[BENCH_ENTRIES];
    char names[BENCH_ENTRIES][64]; /* "MPI", "MPI@4096+16" */
    int align[BENCH_ENTRIES];      /* its buffers' place */
    int against[BENCH_ENTRIES];    /* index of its reference, the divisor of its ratio */
    int count;
    bench_buffers_t buffers;
    uint64_t random; /* equal on all ranks */
    double line_us;  /* limits.c; below 0: not known */
    int argc;
    char **argv;
} bench_t;

/* bench.c. Add a contestant. align: its buffers' place; against: the index of its reference. */
void bench_add(bench_t *bench, const bench_contestant_t *contestant, int align, int against);
/* bench.c. The sweep's size number `index`, counted from 0. Returns 0 if there are fewer sizes. */
int bench_size(const bench_t *bench, size_t index, size_t *ret_bytes);

/* buffers.c */
void bench_buffers_open(bench_t *bench);
void bench_buffers_close(bench_t *bench);
/* The next call of the size `bytes` (the table's size column). With --buffers rotate it uses the
   next pair of buffers, otherwise the same pair again. */
bench_call_t bench_next_call(bench_t *bench, size_t bytes);
/* The number of pairs of buffers. */
size_t bench_pairs(bench_t *bench, size_t bytes);
/* The same call on host memory: with a device, on the mirror of one pair; otherwise unchanged. */
bench_call_t bench_host_call(const bench_t *bench, const bench_call_t *call);
/* Copy the data of the host call's buffers to the device; copy the results back. */
void bench_push(const bench_t *bench, const bench_call_t *call, const bench_call_t *host);
void bench_pull(const bench_t *bench, const bench_call_t *call, const bench_call_t *host);
void bench_buffers_describe(const bench_t *bench, char *text, size_t bytes);

/* check.c: a `fill` of collectives that send `count` elements of the rank's own data. */
void bench_fill_send(const bench_call_t *call, bench_put_t put);
/* Make a call outside the measurement. 1 if every rank's result is right. */
int bench_result_right(bench_t *bench, int who, size_t bytes);
/* Make a call on data whose sums need rounding: 1 if all ranks have the same bits, 0 if not, -1 if
   the results of this collective differ between ranks. */
int bench_result_same(bench_t *bench, int who, size_t bytes);

/* disturb.c */
void bench_load_start(const bench_world_t *world, int64_t threads);
void bench_load_stop(void);
/* Spins until this time of bench_now_ns. */
void bench_spin_until(uint64_t ns);

/* limits.c: one-way time of a cache line between ranks, us. Below 0: not known, because there are
   several hosts, or buffers are in device memory, or the ranks cannot share a page. */
double bench_line_us(const bench_t *bench);
/* The time of the least traffic of a call, in us per byte of the size column, while all ranks copy.
   `bytes`: the size at which it is measured. */
double bench_copy_us(bench_t *bench, size_t bytes);

/* ---- measurements ---- */

/* Microseconds of one contestant at one size, [rounds x block]. */
typedef struct {
    double *own;     /* of this rank */
    double *slowest; /* over all ranks */
    double *mean;    /* over all ranks; NULL without -z */
    int right;       /* the results of all ranks are right */
    int same_bits;   /* as bench_result_same */
} bench_samples_t;

typedef struct {
    size_t bytes;
    long block;      /* iterations */
    long skip;       /* before each block */
    double *copy_us; /* [rounds] of bench_copy_us; NULL: not measured */
    bench_samples_t samples[BENCH_ENTRIES];
} bench_trip_t;

/* measure.c: all measurements of one size. */
bench_trip_t bench_trip_open(const bench_t *bench, size_t bytes);
void bench_measure(bench_t *bench, bench_trip_t *trip);
void bench_trip_close(const bench_t *bench, bench_trip_t *trip);

/* One contestant at one size. */
typedef struct {
    const char *name;
    long iterations;
    double avg_us, min_us, max_us; /* as in OSU: of the ranks' own means */
    double tails_us[BENCH_TAILS];
    double median_us, p10_us, p90_us, p99_us; /* of the slowest rank's times */
    double bus_gbs;                           /* GB/s */
    double *round_us;                         /* [rounds] medians */
    bench_interval_t ratio; /* time / the time of `against`, computed in each round */
    double extra_us;        /* the difference, computed in each round */
    int right, same_bits;
} bench_figures_t;

typedef struct {
    size_t bytes;
    double copy_us;                    /* limits.c */
    double limit_us;                   /* below 0: not known */
    bench_figures_t of[BENCH_ENTRIES]; /* in the order of bench_t's contestants */
} bench_row_t;

/* figures.c. All ranks call it; only rank 0's row is filled in. */
bench_row_t bench_row_make(const bench_t *bench, const bench_trip_t *trip);
void bench_row_free(const bench_t *bench, bench_row_t *row);
double bench_of_limit(const bench_row_t *row, int who);

/* ---- output, on rank 0 ---- */

/* table.c */
int bench_is_long(const bench_t *bench);
void bench_table_head(const bench_t *bench);
void bench_table_row(const bench_t *bench, const bench_row_t *row);
/* files.c. Print why a flag's file cannot be written. The reason is in errno. */
void bench_cannot(const bench_t *bench, const char *flag, const char *path);
/* Return 1, or 0 after a message on stderr. _can_write does not change the file; its result is 1 if
   `path` is NULL. Without --csv, *ret_csv becomes NULL. */
int bench_can_write(const bench_t *bench, const char *flag, const char *path);
/* Check --csv and --json together. */
void bench_judge_files(bench_options_t *options);
int bench_csv_open(const bench_t *bench, FILE **ret_csv);
int bench_csv_close(const bench_t *bench, FILE *csv);
/* csv.c */
void bench_csv_head(const bench_t *bench, FILE *to);
void bench_csv_row(const bench_t *bench, const bench_row_t *row, FILE *to);
/* json.c. 0, or -1 and a message on stderr. */
int bench_json_write(const bench_t *bench, const bench_row_t *rows, size_t count);
/* plot.c. _known: can a drawing have this name? _begin: 1 if --plot is given and there is a
   gnuplot, otherwise 0; if only gnuplot is missing, a line on stderr reports it. _write: as
   json.c. */
int bench_plot_known(const char *path);
int bench_plot_begin(const bench_t *bench);
int bench_plot_write(const bench_t *bench, const bench_row_t *rows, size_t count);
/* compare.c: the number of sizes that are slower than in the old file. On failure -1, and a message
   on stderr. */
int bench_compare(const bench_t *bench, const bench_row_t *rows, size_t count);
/* NULL if the old file can be read, and has the same setting and one of this run's sizes; otherwise
   the error, in `text`. */
const char *bench_compare_missing(const bench_t *bench, char *text, size_t bytes);

/* facts.c */
void bench_fact_host(char *text, size_t bytes);
void bench_fact_cpu(char *text, size_t bytes);
void bench_fact_kernel(char *text, size_t bytes);
const char *bench_fact_commit(void);
/* The i-th environment variable that affects the measurement, as NAME=VALUE; NULL at the end. */
const char *bench_fact_variable(size_t index);

#endif
