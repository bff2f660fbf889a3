/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Describes a module, and the libraries that the module has loaded, for tutti_info.
 *
 * tutti_info starts a process for each module. The reasons: two MPIs in one process corrupt each
 * other, and a library that crashes when it is loaded must not end the report. This file closes no
 * library, because the process ends soon.
 */
#include "boot/module.h"

#include "base/status.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* Size of the buffer for MPI_Get_library_version, for any implementation. */
#define VERSION_BYTES 16384

typedef int mpi_version_f(char *version, int *length);

/* Libraries that every process has. */
static int is_common(const char *name)
{
    static const char *const common[] = { "libc.",     "libm.",    "libpthread.", "libdl.",
                                          "ld-linux",  "librt.",   "libgcc_s.",   "libasan.",
                                          "libubsan.", "libtsan.", "liblsan." };

    for (size_t i = 0; i < sizeof(common) / sizeof(*common); i++)
        if (strncmp(name, common[i], strlen(common[i])) == 0)
            return 1;
    return 0;
}

/* Returns the path of a loaded library. */
static const char *path_of(const struct link_map *map, const char *name)
{
    while (map->l_prev != NULL)
        map = map->l_prev;
    for (; map != NULL; map = map->l_next) {
        const char *slash = strrchr(map->l_name, '/');

        if (slash != NULL && strcmp(slash + 1, name) == 0)
            return map->l_name;
    }
    return NULL;
}

static void put_libraries(void *handle, tutti__module_put_t put, void *arg)
{
    const struct link_map *map;
    const char *names = NULL;

    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        return;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_STRTAB)
            names = (const char *)(uintptr_t)entry->d_un.d_ptr;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL && names != NULL; entry++)
        if (entry->d_tag == DT_NEEDED && !is_common(names + entry->d_un.d_val))
            put(arg, "library", names + entry->d_un.d_val, path_of(map, names + entry->d_un.d_val));
}

/* Put the short version: "Open MPI v4.1.4" from "Open MPI v4.1.4, package: ...", or the first
   line. */
static void put_mpi(void *handle, tutti__module_put_t put, void *arg)
{
    mpi_version_f *get = (mpi_version_f *)dlsym(handle, "MPI_Get_library_version");
    char *text = calloc(1, VERSION_BYTES), *to = text;
    int length;

    if (get != NULL && text != NULL && get(text, &length) == 0) {
        text[strcspn(text, ",\n")] = '\0';
        for (const char *from = text; *from != '\0'; from++)
            if ((*from != ' ' && *from != '\t') || (to > text && to[-1] != ' '))
                *to++ = *from == '\t' ? ' ' : *from;
        *to = '\0';
        put(arg, "version", text, NULL);
    }
    free(text);
}

static void put_device(const tutti__device_module_t *module, tutti__module_put_t put, void *arg)
{
    const tutti__device_ops_t *ops;
    const char *versions;
    char number[16];
    int count;

    if (module->open(tutti__module_core(), &ops, &versions) != TUTTI_OK) {
        put(arg, "error", tutti_last_error(), NULL);
        return;
    }
    put(arg, "version", versions, NULL);
    if (ops->abi != TUTTI__DEVICE_ABI)
        put(arg, "error", "another device interface than the library's", NULL);
    else if (ops->count(&count) != TUTTI_OK)
        put(arg, "error", tutti_last_error(), NULL);
    else {
        snprintf(number, sizeof(number), "%d", count);
        put(arg, "devices", number, NULL);
    }
}

void tutti__module_describe(const tutti__conf_t *conf, const char *file, tutti__module_put_t put,
                            void *arg)
{
    void *handle;
    const void *module = tutti__module_probe(conf, file, &handle);

    if (module == NULL) {
        put(arg, "error", tutti_last_error(), NULL);
        return;
    }
    put_libraries(handle, put, arg);
    if (strncmp(file, "mpi_", 4) == 0)
        put_mpi(handle, put, arg);
    else if (strcmp(file, "ucx.so") == 0)
        put(arg, "version", ((const tutti__ucx_module_t *)module)->version(), NULL);
    else if (strcmp(file, "cuda.so") == 0)
        put_device(module, put, arg);
}
