/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens the libraries of CUDA and NCCL when the module is opened.
 *
 * If the process has already loaded a copy of a library, from any folder, this copy is used. So the
 * application's CUDA streams, events and memory belong to the same library.
 */
#include "mem/cuda/cuda_parts.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Open the first file that the process has loaded. If no file is loaded, open the first file that
   can be opened. */
static void *open_first(const char *const *files, size_t nfiles, char *ret_why)
{
    void *lib = NULL;
    size_t used = 0;

    for (size_t i = 0; i < nfiles && lib == NULL; i++)
        lib = dlopen(files[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    for (size_t i = 0; i < nfiles && lib == NULL; i++) {
        lib = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        if (lib == NULL && used < TUTTI__CUDA_REASON_BYTES) /* dlerror's text has the file's name */
            used += (size_t)snprintf(ret_why + used, TUTTI__CUDA_REASON_BYTES - used, "%s%s",
                                     used == 0 ? "" : "; ", dlerror());
    }
    return lib;
}

/* The length of "FILE: " at the beginning of dlerror's text, if `what` already ends with FILE. */
static size_t named_before(const char *what, const char *file, const char *why)
{
    size_t length = strlen(file), whole = strlen(what);

    if (whole < length || strcmp(what + whole - length, file) != 0 ||
        strncmp(why, file, length) != 0 || strncmp(why + length, ": ", 2) != 0)
        return 0;
    return length + 2;
}

void *tutti__cuda_open_lib(const char *what, const char *const *files, size_t nfiles,
                           const tutti__cuda_symbol_t *symbols, size_t nsymbols, char *ret_reason)
{
    char why[TUTTI__CUDA_REASON_BYTES] = "no version of it fits";
    void *lib = open_first(files, nfiles, why);

    if (lib == NULL) {
        snprintf(ret_reason, TUTTI__CUDA_REASON_BYTES, "%s: %.300s", what,
                 why + named_before(what, files[0], why));
        return NULL;
    }
    for (size_t i = 0; i < nsymbols; i++) {
        *symbols[i].slot = dlsym(lib, symbols[i].name);
        if (*symbols[i].slot == NULL) {
            snprintf(ret_reason, TUTTI__CUDA_REASON_BYTES,
                     "%s has no %s: it is too old, or another library of this name", what,
                     symbols[i].name);
            dlclose(lib);
            return NULL;
        }
    }
    return lib;
}

void tutti__cuda_close_lib(void *lib)
{
    if (lib != NULL)
        dlclose(lib);
}
