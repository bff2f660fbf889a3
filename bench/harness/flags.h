/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of flags: names, parsing, and the texts of --help.
 */
#ifndef TUTTI_BENCH_FLAGS_H
#define TUTTI_BENCH_FLAGS_H

#include "harness/bench.h"

typedef struct {
    bench_options_t *options;
    const bench_program_t *program;
} bench_parse_t;

typedef struct flag {
    int letter;        /* 'm'; above 255: no letter */
    const char *name;  /* "message-size" */
    const char *value; /* as in the help; "[LIST]" is optional; NULL: takes no value */
    void (*take)(bench_parse_t *parse, const struct flag *flag, const char *text);
    size_t offset;  /* of the field in bench_options_t, whose type follows from `take` */
    uint64_t least; /* take_number */
    const char *help;
} bench_flag_t;

enum {
    BENCH_FLAGS = 30
};

extern const bench_flag_t bench_flags[BENCH_FLAGS + 1]; /* the last has no name */

/* "-m", or "--peer" for a flag without a letter; valid until the next call. */
const char *bench_flag_shown(const bench_flag_t *flag);

#endif
