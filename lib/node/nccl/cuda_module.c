/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA module, tutti/cuda.so: the table that it exports, and opening it.
 *
 * The file is in this room because this room may include the core's services (boot/module.h).
 * mem/cuda/cuda_parts.h lists the other parts.
 */
#include "mem/cuda/cuda_parts.h"

#include "base/status.h"
#include "boot/module.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const tutti__core_t *core; /* set by the first open, then constant */
static int is_open;               /* `lock` protects this and all following variables */
static char versions[TUTTI__CUDA_REASON_BYTES + 128];

tutti_status_t tutti__cuda_fail(tutti_status_t status, const char *fmt, ...)
{
    char text[TUTTI__ERROR_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return core->fail(status, text);
}

void tutti__cuda_note(const char *fmt, ...)
{
    char text[TUTTI__ERROR_BYTES];
    va_list args;

    if (!core->log_on(TUTTI__LOG_WARN))
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    core->log(TUTTI__LOG_WARN, text);
}

static const tutti__device_ops_t ops = {
    .abi = TUTTI__DEVICE_ABI,
    .name = "cuda",
    .count = tutti__cuda_count,
    .use = tutti__cuda_use,
    .current = tutti__cuda_current_device,
    .identity = tutti__cuda_identity,
    .where = tutti__cuda_where,
    .alloc = tutti__cuda_alloc,
    .free = tutti__cuda_free,
    .host_alloc = tutti__cuda_host_alloc,
    .host_free = tutti__cuda_host_free,
    .stream_make = tutti__cuda_stream_make,
    .stream_drop = tutti__cuda_stream_drop,
    .stream_captures = tutti__cuda_stream_captures,
    .event_make = tutti__cuda_event_make,
    .event_drop = tutti__cuda_event_drop,
    .record = tutti__cuda_record,
    .wait = tutti__cuda_wait,
    .query = tutti__cuda_query,
    .timer_make = tutti__cuda_timer_make,
    .elapsed = tutti__cuda_elapsed,
    .words = tutti__cuda_words,
    .await = tutti__cuda_await,
    .copy = tutti__cuda_copy,
    .pack = tutti__cuda_pack,
    .sum = tutti__cuda_sum,
    .nccl_serves = tutti__cuda_nccl_serves,
    .nccl_id = tutti__cuda_nccl_id,
    .nccl_open = tutti__cuda_nccl_open,
    .nccl_binds = tutti__cuda_nccl_binds,
    .nccl_poll = tutti__cuda_nccl_poll,
    .nccl_call = tutti__cuda_nccl_call,
    .nccl_alloc = tutti__cuda_nccl_alloc,
    .nccl_free = tutti__cuda_nccl_free,
    .nccl_register = tutti__cuda_nccl_register,
    .nccl_deregister = tutti__cuda_nccl_deregister,
    .nccl_close = tutti__cuda_nccl_close,
    .nccl_abort = tutti__cuda_nccl_abort,
};

/* Load all libraries that a device needs, or none. NCCL is optional. */
static tutti_status_t open_libs(void)
{
    char reason[TUTTI__CUDA_REASON_BYTES];
    int driver = 0, runtime = 0, nccl = 0;
    int n;

    if (!tutti__cuda_driver_open(&driver, reason))
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "cuda: %s", reason);
    if (!tutti__cuda_runtime_open(driver, &runtime, reason)) {
        tutti__cuda_driver_close();
        return tutti__cuda_fail(TUTTI_ERR_UNSUPPORTED, "cuda: %s", reason);
    }
    n = snprintf(versions, sizeof(versions), "CUDA runtime %d.%d, driver %d.%d, ", runtime / 1000,
                 runtime % 1000 / 10, driver / 1000, driver % 1000 / 10);
    if (tutti__cuda_nccl_find(&nccl, reason))
        snprintf(versions + n, sizeof(versions) - (size_t)n, "NCCL %d.%d.%d%s", nccl / 10000,
                 nccl % 10000 / 100, nccl % 100,
                 tutti__cuda_nccl_registers() ? "" : ", which registers no buffers");
    else
        snprintf(versions + n, sizeof(versions) - (size_t)n, "no NCCL (%s)", reason);
    return TUTTI_OK;
}

static tutti_status_t open_once(const void *services, const tutti__device_ops_t **ret_ops,
                                const char **ret_versions)
{
    tutti_status_t status = TUTTI_OK;

    pthread_mutex_lock(&lock);
    if (!is_open) {
        core = services;
        status = open_libs();
        is_open = status == TUTTI_OK;
    }
    pthread_mutex_unlock(&lock);
    if (status != TUTTI_OK)
        return status;
    *ret_ops = &ops;
    *ret_versions = versions;
    return TUTTI_OK;
}

/* The only symbol that the module exports. */
TUTTI_API extern const tutti__device_module_t tutti_module;

const tutti__device_module_t tutti_module = {
    .abi = TUTTI__MODULE_ABI,
    .name = "cuda",
    .open = open_once,
};
