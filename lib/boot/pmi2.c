/* SPDX-License-Identifier: BSD-3-Clause */
/* PMI-2, which srun --mpi=pmi2 provides. See pm.h. */
#include "base/status.h"
#include "boot/pm.h"

#include <dlfcn.h>

#define SUCCESS 0
#define NO_RANK (-1)

typedef int init_f(int *ret_spawned, int *ret_size, int *ret_rank, int *ret_app);
typedef int finalize_f(void);
typedef int put_f(const char *key, const char *value);
typedef int fence_f(void);
typedef int get_f(const char *job, int from, const char *key, char *ret_value, int capacity,
                  int *ret_length);

static struct {
    void *library;
    init_f *init;
    finalize_f *finalize;
    put_f *put;
    fence_f *fence;
    get_f *get;
    int rank, size; /* size 0: not connected */
} pmi2;

static tutti_status_t failed(tutti_status_t status, const char *what, int code)
{
    return tutti__fail(status, "%s: error %d", what, code);
}

static tutti_status_t load(void)
{
    void *library = dlopen("libpmi2.so.0", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "PMI-2 cannot be used (Debian's package libpmi2-0): %.200s", dlerror());
    pmi2.init = (init_f *)dlsym(library, "PMI2_Init");
    pmi2.finalize = (finalize_f *)dlsym(library, "PMI2_Finalize");
    pmi2.put = (put_f *)dlsym(library, "PMI2_KVS_Put");
    pmi2.fence = (fence_f *)dlsym(library, "PMI2_KVS_Fence");
    pmi2.get = (get_f *)dlsym(library, "PMI2_KVS_Get");
    if (pmi2.init == NULL || pmi2.finalize == NULL || pmi2.put == NULL || pmi2.fence == NULL ||
        pmi2.get == NULL) {
        dlclose(library);
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "libpmi2.so.0 has other functions than PMI-2");
    }
    pmi2.library = library;
    return TUTTI_OK;
}

static void close_pmi2(void)
{
    pmi2.finalize();
}

static tutti_status_t open_pmi2(uint32_t *ret_rank, uint32_t *ret_size)
{
    int spawned, size = 0, app, code;
    tutti_status_t status = pmi2.library == NULL ? load() : TUTTI_OK;

    if (status == TUTTI_OK && pmi2.size == 0) {
        code = pmi2.init(&spawned, &size, &pmi2.rank, &app);
        if (code != SUCCESS)
            return failed(TUTTI_ERR_UNSUPPORTED, "PMI2_Init", code);
        if (size < 1 || pmi2.rank < 0 || pmi2.rank >= size) {
            close_pmi2();
            return tutti__fail(TUTTI_ERR_UNSUPPORTED, "PMI2_Init: rank %d of %d", pmi2.rank, size);
        }
        pmi2.size = size;
    }
    if (status != TUTTI_OK)
        return status;
    *ret_rank = (uint32_t)pmi2.rank;
    *ret_size = (uint32_t)pmi2.size;
    return TUTTI_OK;
}

static tutti_status_t share(const char *key, uint32_t rank, char text[TUTTI__PM_TEXT_BYTES])
{
    int length = 0, code = rank == 0 ? pmi2.put(key, text) : SUCCESS;

    if (code != SUCCESS)
        return failed(TUTTI_ERR_SYSTEM, "PMI2_KVS_Put", code);
    code = pmi2.fence();
    if (code != SUCCESS)
        return failed(TUTTI_ERR_SYSTEM, "PMI2_KVS_Fence", code);
    if (rank == 0)
        return TUTTI_OK;
    code = pmi2.get(NULL, NO_RANK, key, text, TUTTI__PM_TEXT_BYTES, &length);
    if (code != SUCCESS || length <= 0 || length >= TUTTI__PM_TEXT_BYTES)
        return failed(TUTTI_ERR_SYSTEM, "PMI2_KVS_Get", code);
    text[length] = '\0';
    return TUTTI_OK;
}

const tutti__pm_t tutti__pm_pmi2 = {
    .name = "PMI-2", .open = open_pmi2, .share = share, .close = close_pmi2
};
