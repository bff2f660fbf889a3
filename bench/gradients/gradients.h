/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of tutti_gradients: lists of a network's gradients, and the contestants that reduce
 * them.
 *
 *      tutti_gradients.c --> gradients_flags.c
 *              |
 *              +---> gradients_measure.c --> gradients_step.c, gradients_nccl.c
 *              |             |
 *              +-------------+-----> gradients.c (lists)       libbench: ranks, data, figures
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
    GRADIENTS_MODELS = 3
};

/* The name of a model; NULL beyond the last. */
const char *gradients_model(size_t index);
/* Each gradient has 1/scale of its elements, at least one, and begins at a place of `align`. */
gradients_t gradients_make(const char *model, size_t element_bytes, size_t scale,
                           bench_align_t align);
void gradients_free(gradients_t *gradients);

/* ---- flags: gradients_flags.c ---- */

typedef struct {
    const char *model; /* NULL: all */
    uint64_t backward_ms, fusion_bytes, scale;
    uint64_t orders; /* number of submission orders of the same data, to compare bits */
    int alone;       /* no peers */
    int list;        /* print the list, reduce nothing */
} gradients_options_t;

/* An error text goes to ret_common->error. */
void gradients_parse(int argc, char **argv, gradients_options_t *ret_options,
                     bench_options_t *ret_common);
void gradients_usage(const char *name);

/* ---- one model's run ---- */

typedef struct {
    bench_t *bench;
    const gradients_options_t *options;
    gradients_t gradients;
    char *region;               /* all gradients; the contestants use it in turns */
    char *mirror;               /* with -d its copy in host memory, otherwise equal to region */
    char *fusion;               /* buffer of mpi-fused and nccl-fused */
    tutti__piece_t *pieces;     /* [gradients.n] of nccl-fused */
    tutti_request_t **requests; /* [gradients.n] */
    int *order;                 /* [gradients.n] order of submission */
} gradients_run_t;

/*
 * Reduces all gradients once, in run->order, each not before it is ready. start_ns: begin of the
 * backward pass; 0: all gradients are ready. Returns 0, or -1 and a message on stderr.
 */
typedef int (*gradients_step_t)(const gradients_run_t *run, uint64_t start_ns);

/* gradients_step.c. The step function of a contestant, on device memory or not; NULL: none. */
extern const bench_contestant_t gradients_contestants[BENCH_CONTESTANTS + 1];
gradients_step_t gradients_step(const bench_contestant_t *contestant, int on_device);
/* Waits until the i-th gradient in the order of this iteration is ready, and returns it. */
const gradient_t *gradients_next(const gradients_run_t *run, size_t i, uint64_t start_ns);

/* gradients_nccl.c: on device memory */
int gradients_nccl(const gradients_run_t *run, uint64_t start_ns);
int gradients_nccl_fused(const gradients_run_t *run, uint64_t start_ns);

/* gradients_measure.c. All ranks; free with bench_row_free. */
bench_row_t gradients_measure(bench_t *bench, const gradients_options_t *options,
                              const char *model);

#endif
