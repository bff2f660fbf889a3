/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_READ_TEXT_H
#define BENCH_READ_TEXT_H

/* The whole file, with a '\0' at its end; the caller frees it. "-" is standard input. NULL: it
   cannot be read, see errno. */
char *read_text(const char *path);

#endif
