/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pretend device of this process, for preloaded libraries, which cannot link with it: the
 * library opens it as a module, in a separate scope of symbols.
 */
#ifndef TUTTI_TESTS_PRETEND_OPENED_H
#define TUTTI_TESTS_PRETEND_OPENED_H

#include "pretend/pretend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Must be zeroed before the first use. */
typedef struct {
    const tutti__device_ops_t *ops;
    void (*read)(void *dst, const void *device_src, size_t bytes);
    void (*write)(void *device_dst, const void *src, size_t bytes);
    int (*synchronize)(int device);
} opened_pretend_t;

/* Find the functions of the module that the library has opened, or will open. One thread at a
   time. */
static inline void opened_pretend_find(opened_pretend_t *pretend)
{
    const tutti__device_ops_t *(*device)(void);
    char path[4200];
    void *handle;

    if (pretend->ops != NULL)
        return;
    snprintf(path, sizeof(path), "%s/pretend.so", getenv("TUTTI_MODULE_DIR"));
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        abort();
    *(void **)&pretend->read = dlsym(handle, "pretend_read");
    *(void **)&pretend->write = dlsym(handle, "pretend_write");
    *(void **)&pretend->synchronize = dlsym(handle, "pretend_synchronize");
    *(void **)&device = dlsym(handle, "pretend_device");
    pretend->ops = device();
}

#endif
