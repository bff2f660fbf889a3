/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of tutti_tune, which finds the fastest values of settings on this machine.
 *
 *      tutti_tune.c --> tune_settings.c    the candidates, and the timed calls
 *            |
 *            +--------> tune_measure.c     rounds of all candidates, and the winner
 *            |
 *            +--------> tune_link.c        several hosts: the figures of the link between them
 *            |
 *            +--------> tune_file.c        the library's file              libbench: ranks, stats
 *            |
 *            +--------> tune_search.c      --gradients: the settings for the user's own tensors
 *                          |
 *                       tune_list.c        the file with them, and a step of them
 */
#ifndef TUTTI_BENCH_TUNE_H
#define TUTTI_BENCH_TUNE_H

#include "harness/bench.h"

/* Gains and losses up to this share of the time are ignored: on one machine, times differ as much
   from day to day. */
#define TUNE_MARGIN 0.02

enum {
    TUNE_CANDIDATES = 10, /* at most, of one setting; without the default */
    TUNE_SIZES = 8,       /* at most, message sizes of one setting */
    TUNE_TENSORS = 32,    /* submitted together, if fused buckets are tuned */
    TUNE_WARM = 8,        /* steps, after which the library has a plan for the user's tensors */
    TUNE_LIST_MOST = 16384,
    TUNE_SETTINGS = 16, /* at most, tuned in one run */
    TUNE_KEPT = 32      /* as many as a file can hold */
};

/* ---- the tuned settings: tune_settings.c ---- */

/* Buffers for the largest message. */
typedef struct {
    float *send, *recv;
} tune_buffers_t;

typedef struct tune_setting tune_setting_t;
typedef struct tune_list tune_list_t;
typedef struct tune_search tune_search_t;

/* One call, or one step of several. 0, or -1 and a message on stderr. */
typedef int (*tune_run_t)(const bench_world_t *world, const tune_setting_t *setting,
                          const tune_buffers_t *buffers, size_t bytes);

struct tune_setting {
    const char *name; /* of the variable */
    /* Values as in the environment; ends with NULL. The default is always tried. */
    const char *values[TUNE_CANDIDATES + 1];
    /* Message sizes at which the values differ; ends with 0. */
    size_t sizes[TUNE_SIZES + 1];
    int by_ranks; /* 1: the setting's value counts the bytes of all ranks together, and so do
                     `sizes` */
    tune_run_t run;
    int in_place; /* 1: calls are in place, on zeros, whose sums do not overflow */
    /* --gradients */
    long warm;               /* least number of untimed calls in a turn */
    const tune_list_t *list; /* the tensors of `run` */
    /* Puts a value in use; value NULL: the default. `set` NULL: the variable `name` is set. */
    void (*set)(const tune_setting_t *setting, const char *value);
    const tune_search_t *search; /* for `set` */
};

/* The entry after the last has no name. */
extern const tune_setting_t tune_settings[];

size_t tune_bytes(const tune_setting_t *setting, size_t index, int ranks);

/* ---- the measuring: tune_measure.c ---- */

typedef struct {
    int64_t rounds;
    double setting_ms; /* target time of one setting; at most three times as long */
    uint64_t seed;
    /* For tests. 1: divide the candidates' times by a million; -1: multiply them */
    int spoil;
    int quick;     /* --gradients tries two candidates of each setting */
    int spoil_end; /* spoil is -1 for the last turns of --gradients, and for the link */
} tune_effort_t;

/* One candidate. */
typedef struct {
    const char *value;          /* NULL: the default */
    double mean_us;             /* geometric, over sizes */
    double size_us[TUNE_SIZES]; /* medians over rounds */
    bench_interval_t ratio;     /* its time / the default's */
    int wins;                   /* surely faster than the default */
} tune_figures_t;

/* [0] is the default, [1] the default a second time. */
typedef struct {
    tune_figures_t of[TUNE_CANDIDATES + 2];
    int count;
    int winner; /* 0: the default stays */
    int64_t rounds;
    const char *name; /* the setting's */
    int in_file;      /* the file can hold the setting, and jobs like this one read it there */
    /* Before the measurement: the line of an older file stays, because only other jobs read it. */
    int stays;
} tune_result_t;

/* End the world and make another one, which reads the settings again. */
void tune_reopen(bench_world_t *world);

/* Collective; the same result on all ranks. Sets the setting's variable to the winner's value. */
tune_result_t tune_measure(bench_world_t *world, const tune_setting_t *setting,
                           const tune_effort_t *effort);

/* ---- the file: tune_file.c ---- */

/* The link between hosts. */
typedef struct {
    uint64_t ns, mbps; /* TUTTI_LINK_NS, TUTTI_LINK_MBPS */
    int peer;          /* measured between rank 0 and this rank */
    int measured, used;
    double ratio; /* time of calls with these figures / the default's */
} tune_link_t;

/* The results, and the other settings of an older file. */
struct tune_search {
    tune_link_t link;
    tune_result_t results[TUNE_SETTINGS];
    size_t count;
    struct {
        char name[32], value[32];
    } kept[TUNE_KEPT];
    size_t nkept;
    tune_result_t last; /* all winners together */
    int has_last;       /* there were winners */
    /* Called with each result; NULL: not on this rank. */
    void (*print)(const tune_setting_t *setting, const tune_result_t *result, int ranks);
    int verbose_ranks; /* --verbose: the number of ranks; otherwise 0 */
};

/* The path that the library reads. 0: there is no home directory. */
int tune_path(int ranks, char *ret_path, size_t room);
/* The file's text, allocated. command: the command line, for a comment in the file. */
char *tune_text(const tune_search_t *found, const char *command);
/* Make all folders above the file. An error is reported when the file is made. */
void tune_make_folders(const char *path);
/* Before the measurements: can the file be written? 1, or 0 and a message on stderr. */
int tune_can_write(const char *path);
/* Before the measurements: does the library use the older file, if there is one? Otherwise its
   lines cannot be kept. 1, or 0 and a message on stderr. */
int tune_can_keep(const char *path);
/* Writes the whole file, or leaves the old one. 0, or -1 and a message on stderr. */
int tune_write(const char *path, const char *text);

/* Keep the settings of an older file that this run does not measure. They are in use in all turns.
   Also keep the results with `stays`, which are not in use. If `path` is NULL, there is no file.
   has_link: the link will be measured. */
void tune_keep(const char *path, int has_link, tune_search_t *search);

/* ---- the link between hosts: tune_link.c ---- */

/* Collective, on several hosts. Measures the link. Sets its variables if calls are not slower with
   it. */
void tune_link(bench_world_t *world, const tune_effort_t *effort, tune_search_t *search);
/* Remove the link's variables. */
void tune_link_clear(void);
/* Is this the name of one of the link's variables? */
int tune_link_has(const char *name);

/* ---- the user's gradients: tune_list.c ---- */

typedef struct {
    char name[256];
    size_t count, offset; /* elements; bytes */
    tutti_dtype_t dtype;
    size_t element_bytes;
} tune_tensor_t;

struct tune_list {
    tune_tensor_t *all;
    size_t n;
    size_t bytes; /* of all, with gaps */
    tutti_request_t **requests;
};

/* Collective. Rank 0 reads the file. 0, or -1 and a message on stderr. */
int tune_list_read(const bench_world_t *world, const char *path, tune_list_t *ret_list);
void tune_list_free(tune_list_t *list);
/* One step: all tensors are submitted in their order, and then waited for. */
int tune_list_run(const bench_world_t *world, const tune_setting_t *setting,
                  const tune_buffers_t *buffers, size_t bytes);

/* ---- the search for their settings: tune_search.c ---- */

/* Remove the variables that are tuned. */
void tune_search_clear(void);
/* Fill in name, in_file and stays of the results that tune_search will have. */
void tune_search_names(const bench_world_t *world, tune_search_t *search);
/* Let the setting be measured with these tensors. */
void tune_use_list(tune_setting_t *setting, const tune_list_t *list);
/* Collective, after tune_search_names. */
void tune_search(bench_world_t *world, const tune_list_t *list, const tune_effort_t *effort,
                 tune_search_t *search);

#endif
