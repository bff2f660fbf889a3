/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules that users wrote: the files that TUTTI_ALGORITHM names, for one communicator.
 *
 * A file has the schedules of all ranks for one collective and one number of ranks (sched.h,
 * text.c). Each rank proves a file before it is used. Texts and shapes are the same on all ranks,
 * so all ranks get the same result. api/comm_files.c sends the texts to the ranks.
 */
#ifndef TUTTI__COLL_FILES_H
#define TUTTI__COLL_FILES_H

#include "coll/override.h"

typedef struct {
    tutti__algorithm_t row;          /* `ordered`, `fixed_association`: as proved; `build`: NULL */
    char name[TUTTI__FILE_PATH + 1]; /* "@path", as in TUTTI_ALGORITHM; row.name is this array */
    char *text;                      /* owned; NULL: another entry has the text */
    uint32_t ranks;                  /* number of ranks of its schedules */
    uint32_t root;                   /* root of its schedules, if the collective has one */
    tutti__sched_t *sched;           /* this rank's; NULL: for another number of ranks */
} tutti__file_t;

struct tutti__files {
    uint32_t n;
    tutti__file_t file[];
};

/*
 * List the files that TUTTI_ALGORITHM names, each once per collective; without texts and schedules.
 *
 * ret_files  the caller frees it; NULL if there are none
 */
tutti_status_t tutti__files_list(const char *override, tutti__files_t **ret_files);
/* files may be NULL. */
void tutti__files_free(tutti__files_t *files);

/* The path in the file's name. */
const char *tutti__file_path(const tutti__file_t *file);

/*
 * Read the schedules in `text`, and prove them for calls in place and out of place.
 *
 * text      not kept
 * is_group  1: a file for another number of ranks is no error, and file->sched stays NULL
 * credits   slots per channel of the transport
 *
 * Sets file->root to the root that the proof has found. The text of TUTTI_ERR_INVALID_ARGUMENT
 * names the file, and the line or the rank and operation.
 */
tutti_status_t tutti__file_take(tutti__file_t *file, const char *text, const tutti__shape_t *shape,
                                uint32_t rank, int is_group, uint32_t credits);

/* The file that this item of TUTTI_ALGORITHM names; NULL: it was not read. */
const tutti__file_t *tutti__files_find(const tutti__files_t *files,
                                       const tutti__override_item_t *item);
/* The file of this row; NULL: the row is the table's. */
const tutti__file_t *tutti__files_of(const tutti__files_t *files, const tutti__algorithm_t *row);

/* Does a call of this collective have a root? */
int tutti__collective_has_root(tutti__collective_t collective);

#endif
