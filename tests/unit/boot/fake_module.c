/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI module without MPI, for test_module.c. The environment variable FAKE_SIZE is the number
 * of ranks of its "MPI"; 0 makes the meeting fail. Built twice: FAKE_ABI is the interface
 * version that it claims.
 */
#include "boot/module.h"

#include <stdlib.h>

#ifndef FAKE_ABI
#define FAKE_ABI TUTTI__MODULE_ABI
#endif

extern const tutti__mpi_module_t tutti_module;

static tutti_status_t gather(void *ctx, const void *mine, size_t bytes, void *ret_all,
                             uint64_t timeout_ms)
{
    (void)ctx;
    (void)mine;
    (void)bytes;
    (void)ret_all;
    (void)timeout_ms;
    return TUTTI_ERR_TIMEOUT;
}

/* Set an environment variable that the test checks. */
static void hang_up(void *ctx)
{
    (void)ctx;
    setenv("FAKE_CLOSED", "1", 1);
}

static tutti_status_t meet(const tutti__core_t *core, const void *mpi_comm, tutti__meet_t *ret_meet)
{
    const char *size = getenv("FAKE_SIZE");

    (void)mpi_comm;
    if (core->abi != TUTTI__MODULE_ABI)
        return core->fail(TUTTI_ERR_ABI, "the core is of another kind");
    if (size == NULL || atoi(size) == 0)
        return core->fail(TUTTI_ERR_TRANSPORT, "the fake network is down");
    if (core->log_on(TUTTI__LOG_DATA))
        core->log(TUTTI__LOG_DATA, "the fake module meets");
    *ret_meet = (tutti__meet_t){
        .name = "fake", .size = (uint32_t)atoi(size), .allgather = gather, .close = hang_up
    };
    return TUTTI_OK;
}

__attribute__((visibility("default"))) const tutti__mpi_module_t tutti_module = {
    .abi = FAKE_ABI,
    .name = "fake",
    .meet = meet,
};
