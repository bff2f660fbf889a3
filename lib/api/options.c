/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of tutti_init and tutti_comm_connect. Any thread. */
#include "api/options.h"

#include "base/grown.h"
#include "base/status.h"

/* Sizes by version; the size of a released version never changes. See base/grown.h. */
enum {
    OPTIONS_V0 = 24,
    OPTIONS_V1 = 48,
    OPTIONS_V2 = 56
};
TUTTI__GROWN_VERSION(tutti_options_t, mpi_comm, OPTIONS_V0);
TUTTI__GROWN_VERSION(tutti_options_t, nranks, OPTIONS_V1);
TUTTI__GROWN_VERSION(tutti_options_t, reserved_end, OPTIONS_V2);
TUTTI__GROWN_TODAY(tutti_options_t, OPTIONS_V2);

static const size_t options_sizes[] = { OPTIONS_V0, OPTIONS_V1, OPTIONS_V2 };
static const tutti__grown_t options_grown =
    TUTTI__GROWN("options", "TUTTI_OPTIONS_INIT", options_sizes);

static tutti_status_t check_fields(const tutti_options_t *options)
{
    if (options->reserved != 0 || options->reserved_end != 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "options->%s is not 0",
                           options->reserved != 0 ? "reserved" : "reserved_end");
    if (options->api_version >> 16 != TUTTI_VERSION_MAJOR)
        return tutti__fail(TUTTI_ERR_ABI, "the program was built for version %x, this is %x",
                           options->api_version, tutti_version());
    if (options->timeout_ms < 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "options->timeout_ms is %d; it is a number of milliseconds, or 0 for "
                           "TUTTI_TIMEOUT",
                           options->timeout_ms);
    return TUTTI_OK;
}

tutti_status_t tutti__options_read(const tutti_options_t *user, tutti_options_t *ret_options)
{
    tutti_options_t options = TUTTI_OPTIONS_INIT;
    tutti_status_t status;

    if (user != NULL) {
        status = tutti__grown_read(&options_grown, user, &options);
        if (status == TUTTI_OK)
            status = check_fields(&options);
        if (status != TUTTI_OK)
            return status;
    }
    *ret_options = options;
    return TUTTI_OK;
}

tutti_status_t tutti__options_check_ranks(const tutti_options_t *options)
{
    if (!tutti__options_have_place(options)) {
        if (options->rank != 0 || options->nranks != 0)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "options->rank and nranks are for unique_id and store, which are "
                               "NULL");
        return TUTTI_OK;
    }
    if (options->unique_id != NULL && options->store != NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "options has both a unique_id and a store; one is enough");
    if (options->mpi_comm != NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "options has both an mpi_comm and %s",
                           options->unique_id != NULL ? "options->unique_id" : "options->store");
    if (options->nranks < 1 || options->rank < 0 || options->rank >= options->nranks)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "options: there is no rank %d, nranks is %d",
                           options->rank, options->nranks);
    return TUTTI_OK;
}

void tutti__options_apply(const tutti_options_t *options, tutti__conf_t *conf)
{
    if (options->timeout_ms > 0)
        conf->shared.timeout_ms = (uint64_t)options->timeout_ms;
}
