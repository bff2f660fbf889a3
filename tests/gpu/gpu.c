/* SPDX-License-Identifier: BSD-3-Clause */
/* See gpu.h. */
#include "gpu/gpu.h"

#include "boot/module.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *gpu_name(void)
{
    const char *name = getenv("TUTTI_TEST_DEVICE");

    return name != NULL && name[0] != '\0' ? name : "cuda";
}

int gpu_is_real(void)
{
    return strcmp(gpu_name(), "pretend") != 0;
}

/* The pretend device, or the real module over the libraries of libraries.sh: in both cases the host
   makes the copies, and NCCL needs a file. */
static int is_pretended(void)
{
    return !gpu_is_real() || getenv("TUTTI_TEST_PRETEND") != NULL;
}

int gpu_devices(void)
{
    const char *text = getenv("TUTTI_TEST_DEVICES");
    int count = text != NULL ? atoi(text) : 1;

    return count < 1 ? 1 : count < GPU_MOST ? count : GPU_MOST;
}

int gpu_ranks(void)
{
    return gpu_devices() > 1 ? gpu_devices() : 2;
}

int gpu_has_nccl(void)
{
    const char *text = getenv("TUTTI_TEST_NCCL");

    return text == NULL || strcmp(text, "0") != 0;
}

static const char *module_dir(void)
{
    const char *dir = getenv("TUTTI_MODULE_DIR");

    return dir != NULL ? dir : "";
}

/* Like `share` in common.sh, but for processes that a test has forked. */
static void share(void)
{
    char host[32];

    snprintf(host, sizeof(host), "process%d", (int)getpid());
    setenv("NCCL_HOSTID", host, 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_NET", "Socket", 0);
}

tutti_status_t gpu_module(const tutti__device_ops_t **ret_ops, const char **ret_versions)
{
    static tutti__conf_t conf;

    if (gpu_is_real() && gpu_devices() == 1)
        share();
    tutti__conf_defaults(&conf);
    snprintf(conf.module_dir, sizeof(conf.module_dir), "%s", module_dir());
    snprintf(conf.device, sizeof(conf.device), "%s", gpu_name());
    return tutti__module_device(&conf, ret_ops, ret_versions);
}

int gpu_prepare(void)
{
    static char file[64];

    if (!is_pretended() || !gpu_has_nccl())
        return 0;
    if (file[0] == '\0') {
        snprintf(file, sizeof(file), "/dev/shm/tutti-gpu-%d", (int)getpid());
        setenv("TUTTI_TEST_PRETEND", file, 1);
    }
    return unlink(file) != 0 && access(file, F_OK) == 0;
}

static void no_device(tutti__conf_t *conf, int rank)
{
    (void)rank;
    snprintf(conf->device, sizeof(conf->device), "none");
}

int gpu_run(rank_fn_t fn, int size)
{
    const job_t job = { .size = size, .threads = size == 1, .fn = fn, .settings = no_device };
    int failures = gpu_prepare() != 0;

    RUN_JOB(failures, &job);
    failures += gpu_prepare() != 0;
    return failures;
}

void *gpu_function(const char *name)
{
    static const char *const files[] = { "libcudart.so.13", "libcudart.so.12" };
    char path[4200];
    void *found = NULL;

    if (!gpu_is_real()) {
        snprintf(path, sizeof(path), "%s/pretend.so", module_dir());
        return dlsym(dlopen(path, RTLD_NOW | RTLD_NOLOAD), name);
    }
    for (size_t i = 0; i < COUNT_OF(files) && found == NULL; i++) {
        void *lib = dlopen(files[i], RTLD_NOW | RTLD_NOLOAD);

        if (lib != NULL)
            found = dlsym(lib, name);
    }
    return found;
}

void gpu_begin(gpu_t *gpu, rank_t *self)
{
    const char *versions;
    int count, device;

    *gpu = (gpu_t){ .rank = self };
    CHECK_OK(gpu_module(&gpu->ops, &versions));
    CHECK_INT(gpu->ops->abi, TUTTI__DEVICE_ABI);
    CHECK_OK(gpu->ops->count(&count));
    device = self->rank % count;
    CHECK_OK(gpu->ops->use(device));
    CHECK_INT(gpu->ops->current(), device);
    CHECK_OK(gpu->ops->stream_make(0, &gpu->stream));
    CHECK_OK(gpu->ops->event_make(&gpu->event));
}

void gpu_end(gpu_t *gpu)
{
    gpu->ops->event_drop(gpu->event);
    gpu->ops->stream_drop(gpu->stream);
}

tutti_status_t gpu_query(const gpu_t *gpu, tutti__devent_t *event)
{
    tutti_status_t status;

    while ((status = gpu->ops->query(event)) == TUTTI__AGAIN)
        sched_yield();
    return status;
}

void gpu_finish(const gpu_t *gpu)
{
    CHECK_OK(gpu->ops->record(gpu->event, gpu->stream));
    CHECK_OK(gpu_query(gpu, gpu->event));
}

char *gpu_alloc(const gpu_t *gpu, size_t bytes)
{
    void *memory;

    CHECK_OK(gpu->ops->alloc(bytes, &memory));
    return memory;
}

void gpu_copy(const gpu_t *gpu, void *dst, const void *src, size_t bytes)
{
    CHECK_OK(gpu->ops->copy(dst, src, bytes, gpu->stream));
    gpu_finish(gpu);
}

/* Bytes of one copy. */
static size_t busy_bytes(void)
{
    return (size_t)(is_pretended() ? 32 : 256) << 20;
}

size_t gpu_busy_bytes(void)
{
    return 2 * busy_bytes();
}

/* On a real device 600 copies take about 100 ms. There are not more copies, because the queues of a
   device are finite. */
void gpu_busy(const gpu_t *gpu, char *memory, tutti__dstream_t *stream)
{
    int copies = is_pretended() ? 10 : 600;

    for (int i = 0; i < copies; i++)
        CHECK_OK(gpu->ops->copy(memory + busy_bytes(), memory, busy_bytes(), stream));
}
