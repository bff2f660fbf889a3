/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of tutti_gradients: lists of a network's gradients, and the contestants that reduce
 * them.
 *
 *      tutti_gradients.c --> gradients_flags.c, gradients_peers.c
 *              |
 *              +---> gradients_measure.c --> gradients_check.c
 *              |             |                      |
 *              |             +----------------------+---> gradients_step.c: the contestants
 *              |             |                               gradients_start.c gradients_mpi.c
 *              |             |                               gradients_cycle.c gradients_nccl.c
 *              +-------------+---> gradients.c (lists)       libbench: ranks, data, figures
 */
#ifndef TUTTI_BENCH_GRADIENTS_H
#define TUTTI_BENCH_GRADIENTS_H

#include "harness/bench.h"

#include "mem/device.h"

/* ---- lists: gradients.c ---- */

typedef struct {
    char name[64];
    size_t count, first; /* elements of this gradient; of all gradients before it */
    size_t offset;       /* bytes, in the region of all gradients */
    double ready;        /* 0 to 1: the part of the backward pass after which it is ready */
} gradient_t;

/* In the order of the backward pass: the last layer's gradients come first. */
typedef struct {
    const char *model; /* "resnet50" */
    gradient_t *all;
    size_t n;
    size_t count;        /* elements of all */
    size_t region_bytes; /* with the gaps between gradients */
} gradients_t;

enum {
    GRADIENTS_MODELS = 3,
    GRADIENTS_TENSORS_MOST = 1 << 20, /* of "NxBYTES" */
    GRADIENTS_BYTES_MOST = 1 << 30
};

/* The name of a network; NULL beyond the last. */
const char *gradients_model(size_t index);
/* Is the model N tensors of so many bytes, such as "1000x1K"? */
int gradients_tensors(const char *text, uint64_t *ret_tensors, uint64_t *ret_bytes);
/* Each gradient has 1/scale of its elements, at least one, and begins align.offset bytes after a
   multiple of align.bytes. */
gradients_t gradients_make(const char *model, size_t element_bytes, size_t scale,
                           bench_align_t align);
void gradients_free(gradients_t *gradients);

/* ---- flags: gradients_flags.c ---- */

typedef struct {
    const char *model;          /* NULL: all */
    int has_model, has_tensors; /* these flags were given */
    uint64_t backward_ms, fusion_bytes, scale;
    uint64_t orders;   /* number of submission orders of the same data, to compare bits */
    uint64_t warm;     /* untimed iterations of each contestant before the first block */
    uint64_t cycle_ns; /* of mpi-cycle */
    unsigned peers;    /* bit i: gradients_contestants[i] was named; 0: the usual ones */
    int all_peers;     /* all that can run here */
    int alone;         /* no peers */
    int random;        /* each rank submits in its own random order, a new one each time */
    int average;       /* divide the sums by the number of ranks */
    int spin;          /* the program's thread of mpi-cycle spins while it waits */
    int list;          /* print the list, reduce nothing */
} gradients_options_t;

/* An error text goes to ret_common->error. */
void gradients_parse(int argc, char **argv, gradients_options_t *ret_options,
                     bench_options_t *ret_common);
void gradients_usage(const char *name);

/* gradients_peers.c. _chosen: does gradients_contestants[contestant] run? */
void gradients_take_peers(bench_options_t *common, gradients_options_t *options, const char *list);
void gradients_judge_peers(const gradients_options_t *options, bench_options_t *common);
int gradients_chosen(const gradients_options_t *options, const bench_options_t *common,
                     int contestant);

/* ---- one model's run ---- */

typedef struct gradients_cycle gradients_cycle_t; /* gradients_cycle.c */

typedef struct {
    bench_t *bench;
    const gradients_options_t *options;
    gradients_t gradients;
    char *region;                 /* all gradients; the contestants use it in turns */
    char *mirror;                 /* with -d its copy in host memory, otherwise equal to region */
    char *fusion;                 /* buffer of mpi-fused, mpi-cycle and nccl-fused */
    tutti__piece_t *pieces;       /* [gradients.n] of nccl-fused */
    tutti_request_t **requests;   /* [gradients.n] in the order of submission */
    tutti_request_t **persistent; /* [gradients.n] in the order of the list, of tutti-start */
    gradients_cycle_t *cycle;     /* of mpi-cycle */
    int *order;                   /* [gradients.n] order of submission */
    uint64_t random;              /* this rank's own */
} gradients_run_t;

/*
 * Reduces all gradients once, in run->order, but no gradient before it is ready. start_ns: the time
 * at which the backward pass begins; 0: all gradients are ready. Returns 0, or -1 and a message on
 * stderr.
 */
typedef int (*gradients_step_t)(const gradients_run_t *run, uint64_t start_ns);

/* How a contestant works. Functions may be NULL. */
typedef struct {
    gradients_step_t step[2];            /* in host memory, in device memory */
    void (*open)(gradients_run_t *run);  /* before its first iteration; all ranks */
    void (*close)(gradients_run_t *run); /* all ranks */
    void (*ready)(gradients_run_t *run); /* before each iteration and its barrier; not timed */
    int is_tutti;                        /* not a peer */
    int is_usual;                        /* runs without --peer */
    int takes_any_order;                 /* the ranks' orders of submission may differ */
    int calls_from_thread;               /* needs MPI_THREAD_SERIALIZED */
} gradients_way_t;

/* gradients_step.c. The contestants' names for libbench, [0] is Tutti; and how they work. */
extern const bench_contestant_t gradients_contestants[BENCH_CONTESTANTS + 1];
const gradients_way_t *gradients_way(const bench_contestant_t *contestant);
gradients_step_t gradients_step(const bench_contestant_t *contestant, int on_device);
/* Waits until the i-th gradient in the order of this iteration is ready, and returns it. */
const gradient_t *gradients_next(const gradients_run_t *run, size_t i, uint64_t start_ns);
static inline void *gradients_place(const gradients_run_t *run, const gradient_t *gradient)
{
    return run->region + gradient->offset;
}

/* gradients_start.c: persistent requests */
void gradients_start_open(gradients_run_t *run);
void gradients_start_ready(gradients_run_t *run);
void gradients_start_close(gradients_run_t *run);
int gradients_start(const gradients_run_t *run, uint64_t start_ns);

#ifdef HAVE_MPI
/* gradients_mpi.c */
int gradients_mpi(const gradients_run_t *run, uint64_t start_ns);
int gradients_mpi_fused(const gradients_run_t *run, uint64_t start_ns);
/* MPI_Allreduce in place. 0, or -1 and a message on stderr. */
int gradients_mpi_sum(const gradients_run_t *run, void *data, size_t bytes);
/* Move sums to their place: copy them, unless they are there; scale them with --average. */
void gradients_mpi_unpack(const gradients_run_t *run, void *to, const void *from, size_t count);

/* gradients_cycle.c: a thread with a cycle, as in Horovod */
void gradients_cycle_open(gradients_run_t *run);
void gradients_cycle_ready(gradients_run_t *run);
void gradients_cycle_close(gradients_run_t *run);
int gradients_cycle(const gradients_run_t *run, uint64_t start_ns);
#endif

/* gradients_nccl.c: on device memory */
int gradients_nccl(const gradients_run_t *run, uint64_t start_ns);
int gradients_nccl_fused(const gradients_run_t *run, uint64_t start_ns);

/* gradients_measure.c. All ranks; free with bench_row_free. */
bench_row_t gradients_measure(bench_t *bench, const gradients_options_t *options,
                              const char *model);
/* One iteration. _order: makes the order of submission. _ready: the untimed preparation, and a
   barrier. _run: makes the step, and ends the job on an error. */
void gradients_order(gradients_run_t *run, int who);
void gradients_ready(gradients_run_t *run, int who);
void gradients_run(gradients_run_t *run, int who, uint64_t start_ns);

/* gradients_check.c: untimed iterations. _right: 1 if all gradients of all ranks are right. _same:
   1 if all ranks have the same bits in several orders of submission. */
int gradients_right(gradients_run_t *run, int who);
int gradients_same(gradients_run_t *run, int who);
/* Set all gradients to 0. */
void gradients_clear(gradients_run_t *run);

#endif
