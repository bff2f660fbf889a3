/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds and opens the modules for MPI and for devices.
 *
 * There is one module for each MPI implementation, because the ABIs of the implementations differ.
 * Two MPIs in one process corrupt each other. So if the process already has an MPI, the module for
 * this MPI is used, and a module that would load another MPI is refused. A module is opened with
 * RTLD_LOCAL, so its names cannot conflict with those of the application. Some plugins of Open MPI
 * do not link libmpi, and need libmpi's names in the global scope. So libmpi's names become global
 * before MPI is initialised.
 *
 * tutti_init calls these functions; `lock` serialises concurrent calls.
 */
#include "boot/module.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/status.h"
#include "boot/net.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Size of the buffer for MPI_Get_library_version, for any implementation. */
#define VERSION_BYTES 16384
#define REASONS_BYTES 384

typedef int mpi_version_f(char *version, int *length);
typedef int mpi_flag_f(int *flag);

/* A search through the candidate modules. */
typedef struct {
    char dir[4096];
    const char *running;         /* the MPI in this process, or NULL */
    char reasons[REASONS_BYTES]; /* the reasons why the tried modules do not fit */
    size_t used;
} search_t;

static tutti__mutex_t lock = TUTTI__MUTEX_INIT(TUTTI__LOCK_MODULE);
/* Protected by `lock`. The modules that were opened; they are never closed. */
static const tutti__mpi_module_t *opened;
static const tutti__device_ops_t *device, *lent;
static const char *device_versions;

static tutti_status_t core_fail(tutti_status_t status, const char *text)
{
    return tutti__fail(status, "%s", text);
}

static void core_log(tutti__log_level_t level, const char *text)
{
    tutti__log_write(level, "%s", text);
}

const tutti__core_t *tutti__module_core(void)
{
    static const tutti__core_t core = { TUTTI__MODULE_ABI, 0,        core_fail,
                                        tutti__log_on,     core_log, tutti__net_still,
                                        tutti__conf_text };

    return &core;
}

/* Does this file have the name of an MPI library, such as libmpi.so.40 or libmpich.so.12? */
static int find_libmpi(struct dl_phdr_info *info, size_t bytes, void *ret_path)
{
    const char *base = strrchr(info->dlpi_name, '/');

    (void)bytes;
    base = base == NULL ? info->dlpi_name : base + 1;
    if (strncmp(base, "libmpi.so", 9) != 0 && strncmp(base, "libmpich.so", 11) != 0)
        return 0;
    snprintf(ret_path, PATH_MAX, "%s", info->dlpi_name);
    return 1;
}

/* Find a function of the MPI in this process. Returns NULL if there is no MPI. MPI's names are in
   the global scope, or in the scope of the library or plugin that loaded MPI. */
static void *find_in_process(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name), *handle;
    char path[PATH_MAX];

    if (found != NULL || dl_iterate_phdr(find_libmpi, path) == 0)
        return found;
    handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == NULL)
        return NULL;
    found = dlsym(handle, name);
    dlclose(handle);
    return found;
}

/* Returns the MPI in this process. NULL: there is no MPI. "another MPI": no module is for it. */
static const char *running_mpi(void)
{
    static const char *const marks[][2] = {
        { "Open MPI", "openmpi" },   { "MPICH", "mpich" }, { "MVAPICH", "mpich" },
        { "Intel(R) MPI", "mpich" }, { "CRAY", "mpich" },
    };
    mpi_version_f *get = (mpi_version_f *)find_in_process("PMPI_Get_library_version");
    const char *name = "another MPI";
    int length = 0;
    char *version;

    if (get == NULL)
        return NULL;
    version = calloc(1, VERSION_BYTES);
    if (version == NULL || get(version, &length) != 0)
        length = 0;
    for (size_t i = sizeof(marks) / sizeof(*marks); i-- > 0 && length > 0;)
        if (strstr(version, marks[i][0]) != NULL)
            name = marks[i][1];
    free(version);
    return name;
}

int tutti__module_mpi_runs(void)
{
    mpi_flag_f *initialized = (mpi_flag_f *)find_in_process("PMPI_Initialized");
    mpi_flag_f *finalized = (mpi_flag_f *)find_in_process("PMPI_Finalized");
    int begun = 0, ended = 0;

    if (initialized == NULL || finalized == NULL)
        return 0;
    return initialized(&begun) == 0 && begun && finalized(&ended) == 0 && !ended;
}

/* The modules are in tutti/ beside libtutti.so. If libtutti is linked statically, this code is in a
   program or in another library, so the configured folder is used. */
static void find_dir(const tutti__conf_t *conf, search_t *search)
{
    const char *file = "", *slash, *base;
    Dl_info info;

    if (conf->module_dir[0] != '\0') {
        snprintf(search->dir, sizeof(search->dir), "%s", conf->module_dir);
        return;
    }
    if (dladdr((void *)(uintptr_t)find_dir, &info) != 0 && info.dli_fname != NULL)
        file = info.dli_fname;
    slash = strrchr(file, '/');
    base = slash == NULL ? file : slash + 1;
    if (strncmp(base, "libtutti.so", 11) != 0)
        snprintf(search->dir, sizeof(search->dir), "%s", TUTTI__MODULE_DIR);
    else if (slash == NULL)
        snprintf(search->dir, sizeof(search->dir), "./tutti");
    else
        snprintf(search->dir, sizeof(search->dir), "%.*s/tutti", (int)(slash - file), file);
}

static void reject(search_t *search, const char *file, const char *reason)
{
    int n = snprintf(search->reasons + search->used, sizeof(search->reasons) - search->used,
                     "%s%s: %s", search->used == 0 ? "" : "; ", file, reason);

    TUTTI__LOG(TUTTI__LOG_DEBUG, "module %s/%s: %s", search->dir, file, reason);
    search->used = TUTTI__MIN(search->used + (size_t)n, sizeof(search->reasons) - 1);
}

/* Make libmpi's names global for Open MPI's plugins. function: a function of libmpi. */
static void raise_libmpi(void *function)
{
    Dl_info info;

    if (dladdr(function, &info) != 0 &&
        dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) == NULL)
        TUTTI__LOG(TUTTI__LOG_WARN, "cannot make %s global: %s", info.dli_fname, dlerror());
}

/* Load a module and return its table. Returns NULL after an error; `search` has the reason. Each
   table begins with its ABI version. */
static const void *load(search_t *search, const char *file, void **ret_handle)
{
    char path[sizeof(search->dir) + NAME_MAX + 2], reason[128];
    const uint32_t *abi;
    void *handle;

    snprintf(path, sizeof(path), "%s/%s", search->dir, file);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *text = dlerror();
        size_t skip = strlen(path);

        /* The text is "DIR/FILE: reason" or "other file: reason". */
        reject(search, file, strncmp(text, path, skip) == 0 ? text + skip + 2 : text);
        return NULL;
    }
    abi = dlsym(handle, "tutti_module");
    if (abi == NULL) {
        reject(search, file, "is no module of Tutti");
        goto close_handle;
    }
    if (*abi != TUTTI__MODULE_ABI) {
        snprintf(reason, sizeof(reason), "module interface %u, the library has %u", *abi,
                 (unsigned)TUTTI__MODULE_ABI);
        reject(search, file, reason);
        goto close_handle;
    }
    *ret_handle = handle;
    return abi;

close_handle:
    dlclose(handle);
    return NULL;
}

void tutti__module_dir(const tutti__conf_t *conf, char ret_dir[4096])
{
    search_t search;

    find_dir(conf, &search);
    snprintf(ret_dir, sizeof(search.dir), "%s", search.dir);
}

const void *tutti__module_probe(const tutti__conf_t *conf, const char *file, void **ret_handle)
{
    search_t search = { .used = 0 };
    const void *module;

    find_dir(conf, &search);
    module = load(&search, file, ret_handle);
    if (module == NULL)
        tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s",
                    search.reasons + TUTTI__MIN(strlen(file) + 2, search.used)); /* "FILE: " */
    return module;
}

/* Open the MPI module in a file. Returns NULL after an error; `search` has the reason. */
static const tutti__mpi_module_t *try_file(search_t *search, const char *file)
{
    void *in_process = search->running == NULL ? NULL : find_in_process("PMPI_Init");
    const tutti__mpi_module_t *module;
    void *handle, *own;

    module = load(search, file, &handle);
    if (module == NULL)
        return NULL;
    own = dlsym(handle, "PMPI_Init");
    if (in_process != NULL && own != in_process) {
        reject(search, file, "needs another libmpi than the one in this process");
        dlclose(handle);
        return NULL;
    }
    if (own != NULL && dlsym(handle, "ompi_mpi_init") != NULL)
        raise_libmpi(own);
    return module;
}

static int is_module(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);

    return n > 7 && strncmp(entry->d_name, "mpi_", 4) == 0 &&
           strcmp(entry->d_name + n - 3, ".so") == 0;
}

static const tutti__mpi_module_t *try_all(search_t *search)
{
    const tutti__mpi_module_t *module = NULL;
    struct dirent **list = NULL;
    int n = scandir(search->dir, &list, is_module, alphasort);

    if (n <= 0)
        reject(search, "mpi_*.so", "there is none");
    for (int i = 0; i < n; i++) {
        if (module == NULL)
            module = try_file(search, list[i]->d_name);
        free(list[i]);
    }
    free(list);
    return module;
}

static tutti_status_t open_module(const tutti__conf_t *conf)
{
    search_t *search = calloc(1, sizeof(*search));
    tutti_status_t status = TUTTI_OK;
    const char *name;
    char file[64];

    if (search == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "search for an MPI module");
    find_dir(conf, search);
    search->running = running_mpi();
    name = search->running != NULL ? search->running : tutti__conf_launcher_mpi();
    if (name == NULL) {
        opened = try_all(search);
    } else if (strchr(name, ' ') != NULL) {
        reject(search, "libmpi", "this process uses an MPI that is neither Open MPI nor MPICH");
    } else {
        snprintf(file, sizeof(file), "mpi_%s.so", name);
        opened = try_file(search, file);
    }
    if (opened == NULL)
        status = tutti__fail(TUTTI_ERR_UNSUPPORTED, "no MPI module fits, in %s: %s", search->dir,
                             search->reasons);
    free(search);
    return status;
}

tutti_status_t tutti__module_mpi(const tutti__conf_t *conf, const tutti__mpi_module_t **ret_module)
{
    tutti_status_t status = TUTTI_OK;

    tutti__mutex_lock_renewed(&lock);
    if (opened == NULL)
        status = open_module(conf);
    if (status == TUTTI_OK)
        *ret_module = opened;
    tutti__mutex_unlock(&lock);
    return status;
}

/* ---- devices ---- */

/* Is this libcuda.so.1, libcudart.so.12, or (in Python's packages) libcudart-<hash>.so.12? */
static int find_libcuda(struct dl_phdr_info *info, size_t bytes, void *unused)
{
    const char *base = strrchr(info->dlpi_name, '/');

    (void)bytes, (void)unused;
    base = base == NULL ? info->dlpi_name : base + 1;
    return strncmp(base, "libcuda.so", 10) == 0 || strncmp(base, "libcudart.so", 12) == 0 ||
           strncmp(base, "libcudart-", 10) == 0;
}

static tutti_status_t open_device(search_t *search, const char *name)
{
    const tutti__device_module_t *module;
    const tutti__device_ops_t *ops;
    char file[TUTTI__CONF_TEXT + 4];
    tutti_status_t status;
    void *handle;

    if (strchr(name, '/') != NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_DEVICE=%s is no name", name);
    /* Reject these modules by name, because their tables begin like the table of a device. */
    if (strcmp(name, "ucx") == 0 || strncmp(name, "mpi_", 4) == 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_DEVICE=%s is no device, but a module for messages", name);
    snprintf(file, sizeof(file), "%s.so", name);
    module = load(search, file, &handle);
    if (module != NULL && strcmp(module->name, name) != 0) {
        reject(search, file, "is no device");
        dlclose(handle);
        module = NULL;
    }
    if (module == NULL)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "there is no device %s, in %s: %s", name,
                           search->dir, search->reasons);
    /* A module stays loaded even if its `open` fails, because it may have started threads. */
    status = module->open(tutti__module_core(), &ops, &device_versions);
    if (status != TUTTI_OK)
        return status;
    if (ops->abi != TUTTI__DEVICE_ABI)
        return tutti__fail(TUTTI_ERR_ABI, "%s has device interface %u, the library has %u", file,
                           ops->abi, (unsigned)TUTTI__DEVICE_ABI);
    device = ops;
    TUTTI__LOG(TUTTI__LOG_INFO, "device %s: %s", name, device_versions);
    return TUTTI_OK;
}

static tutti_status_t search_device(const tutti__conf_t *conf, const char *name)
{
    search_t *search = calloc(1, sizeof(*search));
    tutti_status_t status;

    if (search == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "search for a device");
    find_dir(conf, search);
    status = open_device(search, name);
    free(search);
    return status;
}

/* Call it with `lock` held. */
static tutti_status_t find_device(const tutti__conf_t *conf, const char *name,
                                  const tutti__device_ops_t **ret_ops, const char **ret_versions)
{
    tutti_status_t status = TUTTI_OK;

    if (lent != NULL && strcmp(lent->name, name) == 0) {
        *ret_ops = lent;
        *ret_versions = "lent";
        return TUTTI_OK;
    }
    if (device == NULL || strcmp(device->name, name) != 0)
        status = search_device(conf, name);
    if (status == TUTTI_OK) {
        *ret_ops = device;
        *ret_versions = device_versions;
    }
    return status;
}

tutti_status_t tutti__module_device(const tutti__conf_t *conf, const tutti__device_ops_t **ret_ops,
                                    const char **ret_versions)
{
    int is_auto = strcmp(conf->device, "auto") == 0;
    tutti_status_t status;

    *ret_ops = NULL;
    *ret_versions = "";
    if (strcmp(conf->device, "none") == 0 || (is_auto && dl_iterate_phdr(find_libcuda, NULL) == 0))
        return TUTTI_OK;
    tutti__mutex_lock_renewed(&lock);
    status = find_device(conf, is_auto ? "cuda" : conf->device, ret_ops, ret_versions);
    tutti__mutex_unlock(&lock);
    return status;
}

void tutti__module_lend_device(const tutti__device_ops_t *ops)
{
    tutti__mutex_lock(&lock);
    lent = ops;
    tutti__mutex_unlock(&lock);
}
