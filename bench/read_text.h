/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_READ_TEXT_H
#define BENCH_READ_TEXT_H

/* The whole file, ended by a 0, to be freed; "-" is standard input. NULL: it cannot be read, and
   errno says why. */
char *read_text(const char *path);

#endif
