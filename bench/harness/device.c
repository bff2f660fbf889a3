/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening the device, its memory, and its clock.
 */
#include "harness/device.h"

#include "base/status.h"
#include "boot/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- functions that a module needs from its opener ---- */

/* The module's last error. Empty if the library has opened the module before: then the library
   stores the module's errors. */
static char words[256];

static tutti_status_t keep_words(tutti_status_t status, const char *text)
{
    snprintf(words, sizeof(words), "%s", text);
    return status;
}

static int log_on(tutti__log_level_t level)
{
    return level <= TUTTI__LOG_WARN;
}

static void log_line(tutti__log_level_t level, const char *text)
{
    (void)level;
    fprintf(stderr, "%s\n", text);
}

/* A message begins with "tutti_pack: ", or with several ranks "tutti_allreduce: rank 1: ". */
static const char *begin(const bench_world_t *world)
{
    static char text[96];

    if (world->size > 1)
        snprintf(text, sizeof(text), "%.64s: rank %d: ", program_invocation_short_name,
                 world->rank);
    else
        snprintf(text, sizeof(text), "%.64s: ", program_invocation_short_name);
    return text;
}

static const char *last_words(void)
{
    return words[0] != '\0' ? words : tutti_last_error();
}

void bench_device_check(const bench_world_t *world, tutti_status_t status, const char *what)
{
    if (status == TUTTI_OK)
        return;
    fprintf(stderr, "%sdevice: %s: %s\n", begin(world), what, last_words());
    bench_stop(world);
}

/* ---- opening ---- */

void bench_device_ask(const bench_world_t *world, const char *kind)
{
    const char *given = getenv("TUTTI_DEVICE");

    if (given == NULL || given[0] == '\0')
        setenv("TUTTI_DEVICE", kind, 1);
    else if (strcmp(given, kind) != 0) {
        fprintf(stderr, "%s-d %s: but TUTTI_DEVICE is %s\n", begin(world), kind, given);
        bench_stop(world);
    }
}

/* As in the library: the folder in TUTTI_MODULE_DIR, otherwise tutti/ next to the library. */
static void module_path(const char *kind, char *path, size_t bytes)
{
    const char *dir = getenv("TUTTI_MODULE_DIR");
    const char *slash = NULL;
    Dl_info info;

    if (dir != NULL && dir[0] != '\0') {
        snprintf(path, bytes, "%s/%s.so", dir, kind);
        return;
    }
    if (dladdr((void *)(uintptr_t)tutti_init, &info) != 0 && info.dli_fname != NULL)
        slash = strrchr(info.dli_fname, '/');
    snprintf(path, bytes, "%.*s/tutti/%s.so", slash == NULL ? 1 : (int)(slash - info.dli_fname),
             slash == NULL ? "." : info.dli_fname, kind);
}

/* The module's error text begins with the module's name. Leave the name out, since the
   message already has it. */
static void refuse_device(const bench_world_t *world, const char *kind)
{
    const char *why = last_words();
    size_t length = strlen(kind);

    if (strncmp(why, kind, length) == 0 && strncmp(why + length, ": ", 2) == 0)
        why += length + 2;
    fprintf(stderr, "%s-d %s: %s\n", begin(world), kind, why);
    bench_stop(world);
}

static void open_module(const bench_world_t *world, const char *kind, bench_device_t *device)
{
    static const tutti__core_t core = {
        .abi = TUTTI__MODULE_ABI, .fail = keep_words, .log_on = log_on, .log = log_line
    };
    const tutti__device_module_t *module = NULL;
    char path[4200];
    void *handle;

    module_path(kind, path, sizeof(path));
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed: the library may use it as well */
    if (handle != NULL)
        module = dlsym(handle, "tutti_module");
    if (module == NULL) {
        fprintf(stderr, "%s-d %s: %s\n", begin(world), kind, dlerror());
        bench_stop(world);
    }
    if (module->abi == TUTTI__MODULE_ABI &&
        module->open(&core, &device->ops, &device->versions) != TUTTI_OK)
        refuse_device(world, kind);
    if (module->abi != TUTTI__MODULE_ABI || device->ops->abi != TUTTI__DEVICE_ABI) {
        fprintf(stderr, "%s-d %s: %s is of another version\n", begin(world), kind, path);
        bench_stop(world);
    }
}

void bench_device_start(const bench_world_t *world, bench_device_t *device)
{
    const tutti__device_ops_t *ops = device->ops;

    bench_device_check(world, ops->use(device->number), "use");
    bench_device_check(world, ops->stream_make(0, &device->stream), "stream_make");
    bench_device_check(world, ops->event_make(&device->done), "event_make");
    bench_device_check(world, ops->timer_make(&device->start), "timer_make");
    bench_device_check(world, ops->timer_make(&device->stop), "timer_make");
}

void bench_device_stop(bench_device_t *device)
{
    device->ops->event_drop(device->stop);
    device->ops->event_drop(device->start);
    device->ops->event_drop(device->done);
    device->ops->stream_drop(device->stream);
}

void bench_device_open(bench_world_t *world, const char *kind)
{
    const char *number = getenv("TUTTI_DEVICE_ID");
    bench_device_t *device = bench_allocate(1, sizeof(*device));
    int count = 0;

    open_module(world, kind, device);
    bench_device_check(world, device->ops->count(&count), "count");
    if (number != NULL && number[0] != '\0')
        device->number = atoi(number);
    else if (world->comm != NULL && count > 0)
        device->number = tutti_local_rank(world->comm) % count;
    bench_device_start(world, device);
    world->device = device;
}

void bench_device_close(bench_world_t *world)
{
    if (world->device == NULL)
        return;
    bench_nccl_close(world);
    bench_device_stop(world->device);
    free(world->device);
    world->device = NULL;
}

/* ---- waiting and the clock ---- */

void bench_device_wait(const bench_world_t *world)
{
    const bench_device_t *device = world->device;
    tutti_status_t status;

    bench_device_check(world, device->ops->record(device->done, device->stream), "record");
    while ((status = device->ops->query(device->done)) == TUTTI__AGAIN)
        sched_yield(); /* there may be more ranks than processors */
    bench_device_check(world, status, "query");
}

void bench_device_clock(const bench_world_t *world)
{
    const bench_device_t *device = world->device;

    bench_device_check(world, device->ops->record(device->start, device->stream), "record");
}

double bench_device_us(const bench_world_t *world)
{
    const bench_device_t *device = world->device;
    double us = 0.0;

    bench_device_check(world, device->ops->record(device->stop, device->stream), "record");
    bench_device_wait(world);
    bench_device_check(world, device->ops->elapsed(device->start, device->stop, &us), "elapsed");
    return us;
}

/* ---- memory ---- */

void *bench_device_alloc(const bench_world_t *world, size_t bytes)
{
    void *memory = NULL;

    bench_device_check(world, world->device->ops->alloc(bytes, &memory), "alloc");
    return memory;
}

void bench_device_free(const bench_world_t *world, void *memory)
{
    world->device->ops->free(memory);
}

void bench_device_copy(const bench_world_t *world, void *dst, const void *src, size_t bytes)
{
    const bench_device_t *device = world->device;

    bench_device_check(world, device->ops->copy(dst, src, bytes, device->stream), "copy");
    bench_device_wait(world);
}
