/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of tutti_gradients: lists of a network's gradients, and who reduces them, measured.
 *
 *      tutti_gradients.c --> gradients_flags.c
 *              |
 *              +---> gradients_measure.c --> gradients_step.c, gradients_nccl.c
 *              |             |
 *              +-------------+-----> gradients.c (lists)       libbench: ranks, data, figures
 */
#ifndef TUTTI_BENCH_GRADIENTS_H
#define TUTTI_BENCH_GRADIENTS_H

#include "bench.h"

#include "mem/device.h"

/* ---- lists: gradients.c ---- */

typedef struct {
    char name[64];
    size_t count, first; /* elements; those of all gradients before it */
    size_t offset;       /* bytes, in the region that all share */
    double ready;        /* 0 to 1: the part of backward after which it is there */
} gradient_t;

/* In the order in which backward makes them: the last layer's come first. */
typedef struct {
    const char *model; /* "resnet50" */
    gradient_t *all;
    size_t n;
    size_t count;        /* elements of all */
    size_t region_bytes; /* with gaps */
} gradients_t;

enum {
    GRADIENTS_MODELS = 3
};

/* NULL beyond the last. */
const char *gradients_model(size_t index);
/* Each gradient has 1/scale of its elements, at least one, and begins at `align` of the region. */
gradients_t gradients_make(const char *model, size_t element_bytes, size_t scale,
                           bench_align_t align);
void gradients_free(gradients_t *gradients);

/* ---- flags: gradients_flags.c ---- */

typedef struct {
    const char *model; /* NULL: all */
    uint64_t backward_ms, fusion_bytes, scale;
    uint64_t orders; /* in which the same data is submitted, to compare bits */
    int alone;       /* no peers */
    int list;        /* print it, reduce nothing */
} gradients_options_t;

/* What is wrong is in bench_options_t. */
void gradients_parse(int argc, char **argv, gradients_options_t *ret_options,
                     bench_options_t *ret_common);
void gradients_usage(const char *name);

/* ---- one model's run ---- */

typedef struct {
    bench_t *bench;
    const gradients_options_t *options;
    gradients_t gradients;
    char *region;               /* all gradients: of each contestant in its turn */
    char *mirror;               /* with -d the host's copy of it, else the same */
    char *fusion;               /* mpi-fused and nccl-fused pack into it */
    tutti__piece_t *pieces;     /* [gradients.n] of nccl-fused */
    tutti_request_t **requests; /* [gradients.n] */
    int *order;                 /* [gradients.n] in which they are submitted */
} gradients_run_t;

/*
 * Once through the list, in run->order; each not before it is ready, counted from start_ns on.
 * 0: all of them are there, ready when start_ns is 0. -1 after saying why not.
 */
typedef int (*gradients_step_t)(const gradients_run_t *run, uint64_t start_ns);

/* gradients_step.c. The step of one of them, on device memory or not; NULL: there is none. */
extern const bench_contestant_t gradients_contestants[BENCH_CONTESTANTS + 1];
gradients_step_t gradients_step(const bench_contestant_t *contestant, int on_device);
/* The next one in the order of this iteration, once it is ready. */
const gradient_t *gradients_next(const gradients_run_t *run, size_t i, uint64_t start_ns);

/* gradients_nccl.c: on device memory */
int gradients_nccl(const gradients_run_t *run, uint64_t start_ns);
int gradients_nccl_fused(const gradients_run_t *run, uint64_t start_ns);

/* gradients_measure.c. All ranks; free with bench_row_free. */
bench_row_t gradients_measure(bench_t *bench, const gradients_options_t *options,
                              const char *model);

#endif
