/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs without ranks: if the command line is wrong, print one line, and exit with status
   2. */
#ifndef TUTTI_BENCH_REFUSE_H
#define TUTTI_BENCH_REFUSE_H

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

/* After getopt_long has rejected an option: it returned '?', or ':' for a missing value. Needs
   opterr = 0, and a ':' at the beginning of the letters. */
__attribute__((noreturn)) static inline void bench_refuse_option(const char *program, int option,
                                                                 char *const *argv,
                                                                 const struct option *known)
{
    const char *what = option == ':' ? "wants a value" : "unknown option";
    int is_letter = optopt != 0 && argv[optind - 1][1] != '-';

    for (; option == '?' && known->name != NULL; known++)
        if (!is_letter && optopt != 0 && known->val == optopt)
            what = "takes no value";
    if (is_letter)
        fprintf(stderr, "%s: -%c: %s; see --help\n", program, optopt, what);
    else
        fprintf(stderr, "%s: %s: %s; see --help\n", program, argv[optind - 1], what);
    exit(2);
}

__attribute__((noreturn)) static inline void bench_refuse_argument(const char *program,
                                                                   const char *argument)
{
    fprintf(stderr, "%s: %s: unexpected argument; see --help\n", program, argument);
    exit(2);
}

#endif
