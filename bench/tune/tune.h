/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of tutti_tune, which finds the fastest values of settings on this machine.
 *
 *      tutti_tune.c --> tune_settings.c    the candidates, and the timed calls
 *            |
 *            +--------> tune_measure.c     rounds of all candidates, and the winner
 *            |
 *            +--------> tune_file.c        the library's file              libbench: ranks, stats
 */
#ifndef TUTTI_BENCH_TUNE_H
#define TUTTI_BENCH_TUNE_H

#include "harness/bench.h"

enum {
    TUNE_CANDIDATES = 10, /* at most, of one setting; without the default */
    TUNE_SIZES = 8,       /* at most, message sizes of one setting */
    TUNE_TENSORS = 32     /* submitted together, if fused buckets are tuned */
};

/* ---- the tuned settings: tune_settings.c ---- */

/* Buffers for the largest message. */
typedef struct {
    float *send, *recv;
} tune_buffers_t;

/* One call, or one step of several. 0, or -1 and a message on stderr. */
typedef int (*tune_run_t)(const bench_world_t *world, const tune_buffers_t *buffers, size_t bytes);

typedef struct {
    const char *name; /* of the variable */
    /* Values as in the environment; ends with NULL. The default is always tried. */
    const char *values[TUNE_CANDIDATES + 1];
    /* Message sizes at which the values differ; ends with 0. */
    size_t sizes[TUNE_SIZES + 1];
    int by_ranks; /* sizes are sums over all ranks, like the setting */
    tune_run_t run;
    int in_place; /* then with zeros, whose sums do not overflow */
} tune_setting_t;

/* The entry after the last has no name. */
extern const tune_setting_t tune_settings[];

size_t tune_bytes(const tune_setting_t *setting, size_t index, int ranks);

/* ---- the measuring: tune_measure.c ---- */

typedef struct {
    int64_t rounds;
    double setting_ms; /* target time of one setting; at most three times as long */
    uint64_t seed;
    int spoil; /* for tests: divide the candidates' times by a million */
} tune_effort_t;

/* One candidate. */
typedef struct {
    const char *value;          /* NULL: the default */
    double mean_us;             /* geometric, over sizes */
    double size_us[TUNE_SIZES]; /* medians over rounds */
    bench_interval_t ratio;     /* its time / the default's */
} tune_figures_t;

/* [0] is the default, [1] the default a second time. */
typedef struct {
    tune_figures_t of[TUNE_CANDIDATES + 2];
    int count;
    int winner; /* 0: the default stays */
    int64_t rounds;
} tune_result_t;

/* Collective; the same result on all ranks. Sets the setting's variable to the winner's value. */
tune_result_t tune_measure(bench_world_t *world, const tune_setting_t *setting,
                           const tune_effort_t *effort);

/* ---- the file: tune_file.c ---- */

/* The path that the library reads. 0: there is no home directory. */
int tune_path(int ranks, char *ret_path, size_t room);
/* The file's text, allocated. command: the command line, for a comment in the file. */
char *tune_text(const tune_result_t *results, size_t count, const char *command);
/* Writes the whole file, or leaves the old one. 0, or -1 and a message on stderr. */
int tune_write(const char *path, const char *text);

#endif
