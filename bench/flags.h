/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of flags: what there is, how it is read, what --help prints.
 */
#ifndef TUTTI_BENCH_FLAGS_H
#define TUTTI_BENCH_FLAGS_H

#include "bench.h"

typedef struct {
    bench_options_t *options;
    const bench_program_t *program;
} bench_parse_t;

typedef struct flag {
    int letter;        /* 'm'; above 255: there is none */
    const char *name;  /* "message-size" */
    const char *value; /* as in the help; "[LIST]" may be left out; NULL: takes none */
    void (*take)(bench_parse_t *parse, const struct flag *flag, const char *text);
    size_t offset;  /* of what it sets in bench_options_t, by type of `take` */
    uint64_t least; /* take_number */
    const char *help;
} bench_flag_t;

enum {
    BENCH_FLAGS = 30
};

extern const bench_flag_t bench_flags[BENCH_FLAGS + 1]; /* the last has no name */

/* "-m", or "--peer" where there is no letter; until the next call. */
const char *bench_flag_shown(const bench_flag_t *flag);
/* The first complaint counts. */
void bench_complain(bench_parse_t *parse, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
