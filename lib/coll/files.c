/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules that users wrote. See files.h.
 *
 * A call may be in place on some ranks only. If one rank refused such a call, the other ranks would
 * wait for this rank. So a file must be correct in place and out of place; usually it is, because a
 * message has the value that its block had at the SEND.
 *
 * Other requirements of a call (a root, the order of operands, one association) are equal on all
 * ranks. The proof finds out which of them the schedules meet. If a call requires more, select.c
 * refuses the call on all ranks.
 */
#include "coll/files.h"

#include "base/log.h"
#include "base/status.h"
#include "coll/prove.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BLOCKS 8192u /* the proof has a cell for each block of each rank */

int tutti__collective_has_root(tutti__collective_t collective)
{
    switch (collective) {
    case TUTTI__ROOT_REDUCE:
    case TUTTI__BROADCAST:
    case TUTTI__GATHER:
    case TUTTI__GATHERV:
    case TUTTI__SCATTER:
    case TUTTI__SCATTERV:
        return 1;
    default:
        return 0;
    }
}

/* ---- the list ---- */

const char *tutti__file_path(const tutti__file_t *file)
{
    return file->name + 1;
}

const tutti__file_t *tutti__files_find(const tutti__files_t *files,
                                       const tutti__override_item_t *item)
{
    for (uint32_t i = 0; files != NULL && i < files->n; i++) {
        const char *path = tutti__file_path(&files->file[i]);

        if (files->file[i].row.collective == item->collective && strlen(path) == item->path_bytes &&
            memcmp(path, item->path, item->path_bytes) == 0)
            return &files->file[i];
    }
    return NULL;
}

const tutti__file_t *tutti__files_of(const tutti__files_t *files, const tutti__algorithm_t *row)
{
    for (uint32_t i = 0; files != NULL && i < files->n; i++) {
        if (&files->file[i].row == row)
            return &files->file[i];
    }
    return NULL;
}

static void add(tutti__files_t *files, const tutti__override_item_t *item)
{
    tutti__file_t *file = &files->file[files->n++];

    snprintf(file->name, sizeof(file->name), "@%.*s", (int)item->path_bytes, item->path);
    file->row = (tutti__algorithm_t){ .name = file->name,
                                      .collective = item->collective,
                                      .purpose = "a user's" };
}

tutti_status_t tutti__files_list(const char *override, tutti__files_t **ret_files)
{
    tutti__files_t *files = NULL;
    tutti__override_t forced;
    tutti_status_t status = tutti__override_parse(override, &forced);
    uint32_t n = 0;

    if (status != TUTTI_OK)
        return status;
    for (uint32_t i = 0; i < forced.n; i++)
        n += forced.items[i].path != NULL;
    if (n > 0) {
        files = calloc(1, sizeof(*files) + n * sizeof(files->file[0]));
        if (files == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "%u schedules of users", n);
    }
    for (uint32_t i = 0; i < forced.n; i++) {
        if (forced.items[i].path != NULL && tutti__files_find(files, &forced.items[i]) == NULL)
            add(files, &forced.items[i]);
    }
    *ret_files = files;
    return TUTTI_OK;
}

void tutti__files_free(tutti__files_t *files)
{
    for (uint32_t i = 0; files != NULL && i < files->n; i++) {
        tutti__sched_free(files->file[i].sched);
        free(files->file[i].text);
    }
    free(files);
}

/* ---- the proof ---- */

/* Prove the schedules for calls in place and out of place. */
static tutti_status_t prove(const tutti__algorithm_t *row, const tutti__shape_t *shape,
                            uint32_t root, tutti__sched_t *const *scheds, uint32_t credits)
{
    tutti__coll_args_t args = { .root = root };
    tutti_status_t status = tutti__coll_prove_scheds(row, shape, &args, scheds, credits);

    args.in_place = 1;
    if (status == TUTTI_OK)
        status = tutti__coll_prove_scheds(row, shape, &args, scheds, credits);
    return status;
}

/* Find the one root for which the schedules are made. If there is none, the error text is about
   root 0. */
static tutti_status_t find_root(const tutti__algorithm_t *row, const tutti__shape_t *shape,
                                tutti__sched_t *const *scheds, uint32_t credits, uint32_t *ret_root)
{
    uint32_t roots = tutti__collective_has_root(row->collective) ? shape->size : 1;
    char why[TUTTI__ERROR_BYTES];
    tutti_status_t status;

    for (uint32_t root = 0; root < roots; root++) {
        status = prove(row, shape, root, scheds, credits);
        if (root == 0)
            snprintf(why, sizeof(why), "%s", tutti_last_error());
        *ret_root = root;
        if (status != TUTTI_ERR_INTERNAL)
            return status;
    }
    if (roots == 1)
        return TUTTI_ERR_INTERNAL;
    return tutti__fail(TUTTI_ERR_INTERNAL, "for no root; for root 0 %.400s", why);
}

/* Find the strongest set of the promises `ordered` and `fixed_association` that can be proved. They
   are independent, so a promise that holds with the other one also holds alone. */
static tutti_status_t find_promises(tutti__algorithm_t *row, const tutti__shape_t *shape,
                                    uint32_t root, tutti__sched_t *const *scheds, uint32_t credits)
{
    static const int promises[][2] = { { 1, 1 }, { 1, 0 }, { 0, 1 }, { 0, 0 } };
    tutti_status_t status = TUTTI_ERR_INTERNAL;

    for (size_t i = 0; i < sizeof(promises) / sizeof(*promises) && status == TUTTI_ERR_INTERNAL;
         i++) {
        row->ordered = promises[i][0];
        row->fixed_association = promises[i][1];
        status = prove(row, shape, root, scheds, credits);
    }
    return status;
}

static tutti_status_t prove_all(tutti__file_t *file, const tutti__shape_t *shape,
                                tutti__sched_t *const *scheds, uint32_t credits)
{
    tutti__algorithm_t *row = &file->row;
    char why[TUTTI__ERROR_BYTES];
    tutti_status_t status;

    for (uint32_t r = 0; r < shape->size; r++) {
        if (scheds[r]->nblocks > MOST_BLOCKS || scheds[r]->scratch_blocks > MOST_BLOCKS)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "TUTTI_ALGORITHM=%s:%.200s: more than %u blocks",
                               tutti__collective_name(row->collective), row->name, MOST_BLOCKS);
    }
    status = find_root(row, shape, scheds, credits, &file->root);
    if (status == TUTTI_OK)
        status = find_promises(row, shape, file->root, scheds, credits);
    if (status != TUTTI_ERR_INTERNAL)
        return status;
    snprintf(why, sizeof(why), "%s", tutti_last_error());
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_ALGORITHM=%s:%.120s is not proved: %s",
                       tutti__collective_name(row->collective), row->name, why);
}

static void tell(const tutti__file_t *file, uint32_t rank)
{
    const tutti__algorithm_t *row = &file->row;
    char root[32] = "";

    if (tutti__collective_has_root(row->collective))
        snprintf(root, sizeof(root), ", root %u", file->root);
    TUTTI__LOG(rank == 0 ? TUTTI__LOG_INFO : TUTTI__LOG_DEBUG, "%s:%s is proved for %u ranks%s%s%s",
               tutti__collective_name(row->collective), row->name, file->ranks, root,
               row->ordered ? "" : "; not for operations that do not commute",
               row->fixed_association ? "" : "; not for TUTTI_DETERMINISTIC=strict");
}

/* Read and prove the schedules of all ranks, and keep this rank's. */
static tutti_status_t read_and_prove(tutti__file_t *file, const char *text,
                                     const tutti__shape_t *shape, uint32_t rank, uint32_t credits)
{
    tutti__sched_t **scheds = calloc(shape->size, sizeof(*scheds));
    tutti_status_t status;

    if (scheds == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "schedules of %u ranks", shape->size);
    status = tutti__sched_parse(text, tutti__file_path(file), shape->size, scheds);
    if (status == TUTTI_OK)
        status = prove_all(file, shape, scheds, credits);
    if (status == TUTTI_OK) {
        file->sched = scheds[rank];
        scheds[rank] = NULL;
    }
    for (uint32_t r = 0; r < shape->size; r++)
        tutti__sched_free(scheds[r]);
    free(scheds);
    return status;
}

tutti_status_t tutti__file_take(tutti__file_t *file, const char *text, const tutti__shape_t *shape,
                                uint32_t rank, int is_group, uint32_t credits)
{
    const char *collective = tutti__collective_name(file->row.collective);
    tutti_status_t status = tutti__sched_text_ranks(text, tutti__file_path(file), &file->ranks);

    if (status == TUTTI_OK && file->ranks != shape->size) {
        if (!is_group)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "TUTTI_ALGORITHM=%s:%.200s is for %u ranks, but there are %u",
                               collective, file->name, file->ranks, shape->size);
        TUTTI__LOG(rank == 0 ? TUTTI__LOG_INFO : TUTTI__LOG_DEBUG,
                   "%s:%s is for %u ranks, and not for this group of %u", collective, file->name,
                   file->ranks, shape->size);
        return TUTTI_OK;
    }
    if (status == TUTTI_OK)
        status = read_and_prove(file, text, shape, rank, credits);
    if (status == TUTTI_OK)
        tell(file, rank);
    return status;
}
