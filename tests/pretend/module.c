/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pretend device as a module, tutti/pretend.so in the build tree, for whole jobs:
 *
 *      TUTTI_DEVICE=pretend TUTTI_MODULE_DIR=BUILD/tutti/.libs TUTTI_TEST_PRETEND=FILE mpirun ...
 *
 * The ranks of all pretended hosts share FILE. Each job needs a new file, preferably in /dev/shm.
 * The file is sparse, so it needs less space than its size. Without TUTTI_TEST_PRETEND there is no
 * NCCL.
 *
 * A program that loads the module itself (dlopen of the same file) has the same devices, and all
 * functions of pretend.h. The module contains a copy of the library's code that it needs. Its
 * errors are passed to the core.
 */
#include "pretend/inside.h"

#include "boot/module.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(const tutti__core_t *) core; /* set by the first open */
static int is_open;                         /* under lock */

/* Linked instead of tutti__fail, because the core would not receive that function's text. */
tutti_status_t __wrap_tutti__fail(tutti_status_t status, const char *fmt, ...) TUTTI__PRINTF(2, 3);

tutti_status_t __wrap_tutti__fail(tutti_status_t status, const char *fmt, ...)
{
    const tutti__core_t *to = atomic_load(&core);
    char text[TUTTI__ERROR_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (to != NULL)
        return to->fail(status, text);
    /* The program itself has made this call before the library has opened the module. */
    fprintf(stderr, "pretend device: %s\n", text);
    return status;
}

static tutti_status_t open_once(const void *services, const tutti__device_ops_t **ret_ops,
                                const char **ret_versions)
{
    const char *file = getenv("TUTTI_TEST_PRETEND");
    int has_file = file != NULL && file[0] != '\0', failed = 0;

    pthread_mutex_lock(&lock);
    if (atomic_load(&core) == NULL)
        atomic_store(&core, services);
    if (!is_open && has_file)
        failed = pretend_attach(file);
    is_open = !failed;
    pthread_mutex_unlock(&lock);
    if (failed)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "pretend: cannot map %s", file);
    *ret_ops = pretend_device();
    *ret_versions = has_file ? "pretend device, pretend NCCL" : "pretend device, no NCCL";
    return TUTTI_OK;
}

TUTTI_API extern const tutti__device_module_t tutti_module;

const tutti__device_module_t tutti_module = {
    .abi = TUTTI__MODULE_ABI,
    .name = "pretend",
    .open = open_once,
};
