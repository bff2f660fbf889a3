/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files with settings that tutti_tune has measured: their format and names.
 *
 *      # a comment
 *      tutti_tuned 1                  the version, before all settings
 *      TUTTI_ONESHOT_BYTES 48K        NAME VALUE, as in the environment
 *
 * The file's name describes the machine and the number of ranks of the measurement, so several
 * kinds of machines can share a home directory:
 *
 *      AMD_EPYC_9554-25.17-128cpus-L2_1024K-L3_32768K-8ranks
 *
 * tuned.c needs only the C library and parse.c, because tuned.c is also built into tutti_tune.
 * conf.c decides which settings a file may have, and applies the variables after the file.
 */
#ifndef TUTTI__CONF_TUNED_H
#define TUTTI__CONF_TUNED_H

#include <stddef.h>
#include <stdint.h>

/* Version of the format and of the values' meaning. To be increased if old values are useless. */
#define TUTTI__TUNED_VERSION 1

#define TUTTI__TUNED_MOST 32
#define TUTTI__TUNED_WORD 32    /* longest name or value, with its '\0' */
#define TUTTI__TUNED_BYTES 8192 /* longest file */
#define TUTTI__TUNED_NAME 192   /* bytes of a file's name */
#define TUTTI__TUNED_PATH 4096  /* bytes of a path, or of an error text */

typedef struct {
    char name[TUTTI__TUNED_WORD], value[TUTTI__TUNED_WORD];
    unsigned line; /* counts from 1 */
} tutti__tuned_entry_t;

typedef struct {
    tutti__tuned_entry_t entry[TUTTI__TUNED_MOST];
    size_t count;
} tutti__tuned_t;

/* Parse the text of a file, and return 1. After an error, return 0 and the error in ret_why, such
   as "line 3: ...". A repeated name is an error. Pure. */
int tutti__tuned_parse(const char *text, size_t bytes, tutti__tuned_t *ret_tuned, char *ret_why,
                       size_t capacity);
/* Read and parse a file. *ret_closed: errno if the file cannot be opened, otherwise 0. */
int tutti__tuned_read(const char *path, tutti__tuned_t *ret_tuned, int *ret_closed, char *ret_why,
                      size_t capacity);

/*
 * The file's name for `ranks` ranks on a machine: processor, number of processors, caches. These
 * properties are read from files below `root`, which is "" outside tests. A property that cannot be
 * read is left out.
 *
 * The number of processors includes all online processors, also processors outside this process's
 * affinity mask. mpirun gives each rank a different mask, and the name must not depend on the
 * binding.
 */
void tutti__tuned_name(const char *root, uint64_t ranks, char ret_name[TUTTI__TUNED_NAME]);

/* Write the file's path in $XDG_CONFIG_HOME/tutti/tuned, or in ~/.config/tutti/tuned. Returns 0 if
   the home directory is not known, or the path is too long. */
int tutti__tuned_path(uint64_t ranks, char ret_path[TUTTI__TUNED_PATH]);

#endif
