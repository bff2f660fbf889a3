/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds NCCL when the CUDA module is opened. If NCCL's version is supported, loads its functions
 * with dlsym. The caller holds the lock of cuda_module.c.
 */
#include "node/nccl/nccl_lib.h"

#include <stdio.h>

#define OLDEST 21800 /* 2.18 */

tutti__nccl_lib_t tutti__nccl_lib;

/* Is the version supported? Before NCCL 2.9, version numbers had one digit less. */
static int fits(const char *what, int version)
{
    int major = version / (version < 10000 ? 1000 : 10000);

    if (version < OLDEST)
        snprintf(tutti__nccl_lib.reason, sizeof(tutti__nccl_lib.reason),
                 "%s: it is %d.%d, 2.18 or later is needed", what, major,
                 version / 100 % (version < 10000 ? 10 : 100));
    return version >= OLDEST;
}

/* Find the optional functions of a library that is already loaded. */
static int find_optional(const char *what, const char *const *files)
{
    static const tutti__cuda_symbol_t symbols[] = {
#define SYMBOL(name, params) { #name, (void **)&tutti__nccl_lib.name },
        TUTTI__NCCL_OPTIONAL(SYMBOL)
#undef SYMBOL
    };
    char why[TUTTI__CUDA_REASON_BYTES];
    void *lib =
        tutti__cuda_open_lib(what, files, 1, symbols, sizeof(symbols) / sizeof(*symbols), why);

    tutti__cuda_close_lib(lib);
    return lib != NULL;
}

int tutti__cuda_nccl_registers(void)
{
    return tutti__nccl_lib.registers;
}

int tutti__cuda_nccl_find(int *ret_version, char *ret_reason)
{
    static const char *const files[] = { "libnccl.so.2" };
    static const tutti__cuda_symbol_t symbols[] = {
#define SYMBOL(name) { #name, (void **)&tutti__nccl_lib.name },
        TUTTI__NCCL_LIST(SYMBOL)
#undef SYMBOL
    };
    const char *what = "NCCL, libnccl.so.2";
    ncclResult_t code;
    int version = 0;
    void *lib;

    tutti__nccl_lib.version = 0;
    /* Check the version first, so that the reason names the old version and not a missing
       function. */
    lib = tutti__cuda_open_lib(
        what, files, 1,
        &(tutti__cuda_symbol_t){ "ncclGetVersion", (void **)&tutti__nccl_lib.ncclGetVersion }, 1,
        tutti__nccl_lib.reason);
    if (lib == NULL)
        goto none;
    code = tutti__nccl_lib.ncclGetVersion(&version);
    if (code != ncclSuccess)
        snprintf(tutti__nccl_lib.reason, sizeof(tutti__nccl_lib.reason),
                 "%s: ncclGetVersion failed with %d", what, (int)code);
    if (code != ncclSuccess || !fits(what, version)) {
        tutti__cuda_close_lib(lib);
        goto none;
    }
    tutti__cuda_close_lib(lib); /* the next line loads it again */
    if (tutti__cuda_open_lib(what, files, 1, symbols, sizeof(symbols) / sizeof(*symbols),
                             tutti__nccl_lib.reason) == NULL)
        goto none;
    tutti__nccl_lib.registers = find_optional(what, files);
    tutti__nccl_lib.version = version;
    *ret_version = version;
    return 1;

none:
    snprintf(ret_reason, TUTTI__CUDA_REASON_BYTES, "%s", tutti__nccl_lib.reason);
    return 0;
}
