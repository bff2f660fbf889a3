/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of tutti_tune: which values of the library's settings are fastest on this machine.
 *
 *      tutti_tune.c --> tune_settings.c    what is tried, and how it is timed
 *            |
 *            +--------> tune_measure.c     rounds of all candidates, and who has won
 *            |
 *            +--------> tune_file.c        where the library reads it      libbench: ranks, stats
 */
#ifndef TUTTI_BENCH_TUNE_H
#define TUTTI_BENCH_TUNE_H

#include "bench.h"

enum {
    TUNE_CANDIDATES = 10, /* at most, of one setting; without the default */
    TUNE_SIZES = 8,       /* the same of messages */
    TUNE_TENSORS = 32     /* handed over together, where buckets are tuned */
};

/* ---- what is tuned: tune_settings.c ---- */

/* Buffers of the largest message. */
typedef struct {
    float *send, *recv;
} tune_buffers_t;

/* One message, or one step of several. -1 after saying what failed. */
typedef int (*tune_run_t)(const bench_world_t *world, const tune_buffers_t *buffers, size_t bytes);

typedef struct {
    const char *name; /* of the variable */
    /* Values as in the environment; ends with NULL. The default is tried anyway. */
    const char *values[TUNE_CANDIDATES + 1];
    /* Messages on which they differ; ends with 0. */
    size_t sizes[TUNE_SIZES + 1];
    int by_ranks; /* sizes are of all ranks together, as the setting's */
    tune_run_t run;
    int in_place; /* of zeros then, whose sums do not grow */
} tune_setting_t;

/* The last one has no name. */
extern const tune_setting_t tune_settings[];

size_t tune_bytes(const tune_setting_t *setting, size_t index, int ranks);

/* ---- the measuring: tune_measure.c ---- */

typedef struct {
    int64_t rounds;
    double setting_ms; /* about how long one setting takes; up to three times that if it must */
    uint64_t seed;
    int spoil; /* candidates count as a million times as fast */
} tune_effort_t;

/* One candidate. */
typedef struct {
    const char *value;          /* NULL: the default */
    double mean_us;             /* geometric, over sizes */
    double size_us[TUNE_SIZES]; /* medians over rounds */
    bench_interval_t ratio;     /* its time / the default's */
} tune_figures_t;

/* [0] is the default, [1] the default again. */
typedef struct {
    tune_figures_t of[TUNE_CANDIDATES + 2];
    int count;
    int winner; /* 0: the default stays */
    int64_t rounds;
} tune_result_t;

/* Collective; the same result on all ranks. The setting's variable then has the winner's value. */
tune_result_t tune_measure(bench_world_t *world, const tune_setting_t *setting,
                           const tune_effort_t *effort);

/* ---- the file: tune_file.c ---- */

/* Where the library looks for it. 0: nowhere, there is no home. */
int tune_path(int ranks, char *ret_path, size_t room);
/* The file's text, allocated. `command`: that made it. */
char *tune_text(const tune_result_t *results, size_t count, const char *command);
/* Whole or not at all. 0, or -1 after saying why not. */
int tune_write(const char *path, const char *text);

#endif
