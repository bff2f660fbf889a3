/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti_comm_get_stats and tutti_comm_get_stats_part. Any thread. */
#include "api/comm.h"

#include "base/grown.h"
#include "base/status.h"

#include <string.h>

/* Sizes by version; the size of a released version never changes. See base/grown.h. */
enum {
    STATS_V0 = 2784,
    PART_V0 = 96
};
TUTTI__GROWN_VERSION(tutti_stats_t, plan_in_place, STATS_V0);
TUTTI__GROWN_TODAY(tutti_stats_t, STATS_V0);
TUTTI__GROWN_VERSION(tutti_stats_part_t, transport, PART_V0);
TUTTI__GROWN_TODAY(tutti_stats_part_t, PART_V0);

static const size_t stats_sizes[] = { STATS_V0 }, part_sizes[] = { PART_V0 };
static const tutti__grown_t stats_grown = TUTTI__GROWN("stats", "TUTTI_STATS_INIT", stats_sizes);
static const tutti__grown_t part_grown = TUTTI__GROWN("part", "TUTTI_STATS_PART_INIT", part_sizes);

/* Copy a structure of this version to the caller's structure, which may be of any version. */
static void put(void *to, const void *from, size_t bytes)
{
    size_t size;

    memcpy(&size, to, sizeof(size));
    memcpy(to, from, TUTTI__MIN(size, bytes));
}

tutti_status_t tutti_comm_get_stats(const tutti_comm_t *handle, tutti_stats_t *stats)
{
    tutti_stats_t all;
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);

    if (status != TUTTI_OK)
        return status;
    if (stats == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "stats is NULL");
    status = tutti__grown_read(&stats_grown, stats, &all);
    if (status != TUTTI_OK)
        return status;
    tutti__stats_read(comm->stats, &all);
    put(stats, &all, sizeof(all));
    return TUTTI_OK;
}

tutti_status_t tutti_comm_get_stats_part(const tutti_comm_t *handle, size_t index,
                                         tutti_stats_part_t *part)
{
    tutti_stats_part_t read;
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);

    if (status != TUTTI_OK)
        return status;
    if (part == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "part is NULL");
    status = tutti__grown_read(&part_grown, part, &read);
    if (status != TUTTI_OK)
        return status;
    if (!tutti__stats_part(comm->stats, index, &read))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "there is no part %zu: see stats.nparts",
                           index);
    put(part, &read, sizeof(read));
    return TUTTI_OK;
}
