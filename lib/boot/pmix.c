/* SPDX-License-Identifier: BSD-3-Clause */
/* PMIx, which mpirun of Open MPI and srun --mpi=pmix provide. See pm.h. */
#include "boot/pmix.h"

#include "base/status.h"
#include "boot/pm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef const char *error_f(int status);
typedef int init_f(tutti__pmix_proc_t *ret_proc, tutti__pmix_info_t *info, size_t count);
typedef int finalize_f(const tutti__pmix_info_t *info, size_t count);
typedef int put_f(uint8_t scope, const char *key, tutti__pmix_value_t *value);
typedef int commit_f(void);
typedef int fence_f(const tutti__pmix_proc_t *procs, size_t nprocs, const tutti__pmix_info_t *info,
                    size_t count);
typedef int get_f(const tutti__pmix_proc_t *proc, const char *key, const tutti__pmix_info_t *info,
                  size_t count, tutti__pmix_value_t **ret_value);

static struct {
    void *library;
    error_f *error;
    init_f *init;
    finalize_f *finalize;
    put_f *put;
    commit_f *commit;
    fence_f *fence;
    get_f *get;
    tutti__pmix_proc_t self;
    uint32_t size; /* 0: not connected */
} pmix;

static tutti_status_t failed(tutti_status_t status, const char *what, int code)
{
    return tutti__fail(status, "%s: %.200s (%d)", what, pmix.error(code), code);
}

static tutti_status_t load(void)
{
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "PMIx cannot be used (Debian's package libpmix2): %.200s", dlerror());
    pmix.error = (error_f *)dlsym(library, "PMIx_Error_string");
    pmix.init = (init_f *)dlsym(library, "PMIx_Init");
    pmix.finalize = (finalize_f *)dlsym(library, "PMIx_Finalize");
    pmix.put = (put_f *)dlsym(library, "PMIx_Put");
    pmix.commit = (commit_f *)dlsym(library, "PMIx_Commit");
    pmix.fence = (fence_f *)dlsym(library, "PMIx_Fence");
    pmix.get = (get_f *)dlsym(library, "PMIx_Get");
    if (pmix.error == NULL || pmix.init == NULL || pmix.finalize == NULL || pmix.put == NULL ||
        pmix.commit == NULL || pmix.fence == NULL || pmix.get == NULL) {
        dlclose(library);
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "libpmix.so.2 has other functions than PMIx");
    }
    pmix.library = library;
    return TUTTI_OK;
}

static void close_pmix(void)
{
    pmix.finalize(NULL, 0);
}

static tutti_status_t get(uint32_t rank, const char *key, uint16_t type,
                          tutti__pmix_value_t **ret_value)
{
    tutti__pmix_proc_t from = pmix.self;
    tutti__pmix_value_t *value = NULL;
    int code;

    from.rank = rank;
    code = pmix.get(&from, key, NULL, 0, &value);
    if (code != TUTTI__PMIX_SUCCESS || value == NULL)
        return failed(TUTTI_ERR_SYSTEM, "PMIx_Get", code);
    if (value->type != type) {
        free(value);
        return tutti__fail(TUTTI_ERR_SYSTEM, "PMIx_Get: the type of %s is unknown", key);
    }
    *ret_value = value;
    return TUTTI_OK;
}

static tutti_status_t open_pmix(uint32_t *ret_rank, uint32_t *ret_size)
{
    tutti__pmix_value_t *value;
    tutti_status_t status = pmix.library == NULL ? load() : TUTTI_OK;
    int code;

    if (status == TUTTI_OK && pmix.size == 0) {
        code = pmix.init(&pmix.self, NULL, 0);
        if (code != TUTTI__PMIX_SUCCESS)
            return failed(TUTTI_ERR_UNSUPPORTED, "PMIx_Init", code);
        status = get(TUTTI__PMIX_ALL_RANKS, "pmix.job.size", TUTTI__PMIX_UINT32, &value);
        if (status != TUTTI_OK) {
            pmix.finalize(NULL, 0);
            return TUTTI_ERR_UNSUPPORTED;
        }
        pmix.size = value->data.number;
        free(value);
    }
    if (status != TUTTI_OK)
        return status;
    *ret_rank = pmix.self.rank;
    *ret_size = pmix.size;
    return TUTTI_OK;
}

static tutti_status_t put(const char *key, char *text)
{
    tutti__pmix_value_t value = { .type = TUTTI__PMIX_STRING, .data = { .text = text } };
    int code = pmix.put(TUTTI__PMIX_GLOBAL, key, &value);

    if (code == TUTTI__PMIX_SUCCESS)
        code = pmix.commit();
    return code == TUTTI__PMIX_SUCCESS ? TUTTI_OK : failed(TUTTI_ERR_SYSTEM, "PMIx_Put", code);
}

static tutti_status_t share(const char *key, uint32_t rank, char text[TUTTI__PM_TEXT_BYTES])
{
    tutti__pmix_info_t collect = { .key = "pmix.collect",
                                   .value = { .type = TUTTI__PMIX_BOOL, .data = { .flag = 1 } } };
    tutti__pmix_value_t *value;
    tutti_status_t status = rank == 0 ? put(key, text) : TUTTI_OK;
    int code;

    if (status != TUTTI_OK)
        return status;
    code = pmix.fence(NULL, 0, &collect, 1);
    if (code != TUTTI__PMIX_SUCCESS)
        return failed(TUTTI_ERR_SYSTEM, "PMIx_Fence", code);
    if (rank == 0)
        return TUTTI_OK;
    status = get(0, key, TUTTI__PMIX_STRING, &value);
    if (status != TUTTI_OK)
        return status;
    snprintf(text, TUTTI__PM_TEXT_BYTES, "%s", value->data.text);
    free(value->data.text);
    free(value);
    return TUTTI_OK;
}

const tutti__pm_t tutti__pm_pmix = {
    .name = "PMIx", .open = open_pmix, .share = share, .close = close_pmix
};
