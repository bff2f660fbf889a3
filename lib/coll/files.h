/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules that users wrote: the files that TUTTI_ALGORITHM names, as one communicator has them.
 *
 * A file holds the schedules of all ranks for one collective and one number of ranks (sched.h,
 * text.c). Nothing of it runs that was not proved before, by each rank for itself: texts and shapes
 * are the same on all ranks, so all come to the same end. How the texts get there is not for this
 * room (api/files.c).
 */
#ifndef TUTTI__COLL_FILES_H
#define TUTTI__COLL_FILES_H

#include "coll/override.h"

typedef struct {
    tutti__algorithm_t row; /* what was proved of it: `ordered`, `fixed_association`; no build */
    char name[TUTTI__FILE_PATH + 1]; /* "@path", as in TUTTI_ALGORITHM; row.name */
    char *text;                      /* owned, if there is one; NULL: somebody else's */
    uint32_t ranks;                  /* for which it is */
    uint32_t root;                   /* for which it is, if the collective has one */
    tutti__sched_t *sched;           /* this rank's; NULL: it is for another number of ranks */
} tutti__file_t;

struct tutti__files {
    uint32_t n;
    tutti__file_t file[];
};

/*
 * The files that TUTTI_ALGORITHM names, each once for a collective; without texts and schedules.
 *
 * ret_files  to be freed; NULL if there are none
 */
tutti_status_t tutti__files_list(const char *override, tutti__files_t **ret_files);
/* NULL is fine. */
void tutti__files_free(tutti__files_t *files);

/* The path in it. */
const char *tutti__file_path(const tutti__file_t *file);

/*
 * Read and prove the schedules in `text`, for calls in place and others.
 *
 * text      need not live on
 * is_group  another number of ranks is fine; then there are no schedules
 * credits   slots per channel, as the transport has them
 *
 * The root is found out. TUTTI_ERR_INVALID_ARGUMENT naming the file, and line, or rank and
 * operation.
 */
tutti_status_t tutti__file_take(tutti__file_t *file, const char *text, const tutti__shape_t *shape,
                                uint32_t rank, int is_group, uint32_t credits);

/* What TUTTI_ALGORITHM's item names; NULL: nobody has read it. */
const tutti__file_t *tutti__files_find(const tutti__files_t *files,
                                       const tutti__override_item_t *item);
/* The file of that row; NULL: it is the table's. */
const tutti__file_t *tutti__files_of(const tutti__files_t *files, const tutti__algorithm_t *row);

/* Does a call of this collective have a root? */
int tutti__collective_has_root(tutti__collective_t collective);

#endif
