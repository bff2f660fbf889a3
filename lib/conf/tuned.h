/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files with settings that tutti_tune has measured: what is in them, and which is this
 * machine's.
 *
 *      # a comment
 *      tutti_tuned 1                  the format, before anything else
 *      TUTTI_ONESHOT_BYTES 48K        NAME VALUE, as in the environment
 *
 * The file's name says for what it was measured, so that many kinds of machines can share a home:
 *
 *      AMD_EPYC_9554-25.17-128cpus-L2_1024K-L3_32768K-8ranks
 *
 * Needs the C library and parse.c only: tutti_tune is built with these files, too. Which settings
 * may stand in a file, and who goes before whom, is conf.c's.
 */
#ifndef TUTTI__CONF_TUNED_H
#define TUTTI__CONF_TUNED_H

#include <stddef.h>
#include <stdint.h>

/* Of the format, and of what the values mean: another one when old figures no longer hold. */
#define TUTTI__TUNED_VERSION 1

#define TUTTI__TUNED_MOST 32
#define TUTTI__TUNED_WORD 32    /* longest name or value, its end included */
#define TUTTI__TUNED_BYTES 8192 /* longest file */
#define TUTTI__TUNED_NAME 192   /* room for a file's name */
#define TUTTI__TUNED_PATH 4096  /* room for a path, or for a complaint */

typedef struct {
    char name[TUTTI__TUNED_WORD], value[TUTTI__TUNED_WORD];
    unsigned line; /* counts from 1 */
} tutti__tuned_entry_t;

typedef struct {
    tutti__tuned_entry_t entry[TUTTI__TUNED_MOST];
    size_t count;
} tutti__tuned_t;

/* 1, or 0 and what is wrong: "line 3: ...". No name comes twice. Pure. */
int tutti__tuned_parse(const char *text, size_t bytes, tutti__tuned_t *ret_tuned, char *ret_why,
                       size_t room);
/* The same of a file, or why it cannot be read. *ret_closed is the errno if it cannot even be
   opened, else 0. */
int tutti__tuned_read(const char *path, tutti__tuned_t *ret_tuned, int *ret_closed, char *ret_why,
                      size_t room);

/*
 * The file's name for `ranks` ranks on a machine: processor, number of processors, caches. They
 * are read below `root`, which is "" but in tests. What cannot be read is left out.
 *
 * All processors that are online count, not the mask of this process: mpirun gives each rank
 * another mask, and then a tuned file would be found or not by how ranks are bound.
 */
void tutti__tuned_name(const char *root, uint64_t ranks, char ret_name[TUTTI__TUNED_NAME]);

/* Its path: in $XDG_CONFIG_HOME/tutti/tuned, or in ~/.config/tutti/tuned. 0: no home is known. */
int tutti__tuned_path(uint64_t ranks, char ret_path[TUTTI__TUNED_PATH]);

#endif
