/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pretend device as a module: unprepared processes connect their pretended NCCL by a file, and
 * errors are passed to the core's services.
 */
#include "pretend/pretend.h"
#include "ranks.h"

#include "base/status.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 1000

static char words[256];

static tutti_status_t take_words(tutti_status_t status, const char *text)
{
    snprintf(words, sizeof(words), "%s", text);
    return status;
}

static int log_on(tutti__log_level_t level)
{
    (void)level;
    return 0;
}

static void log_nothing(tutti__log_level_t level, const char *text)
{
    (void)level, (void)text;
}

static const tutti__core_t core = {
    .abi = TUTTI__MODULE_ABI, .fail = take_words, .log_on = log_on, .log = log_nothing
};

typedef void read_fn_t(void *dst, const void *device_src, size_t bytes);
typedef void write_fn_t(void *device_dst, const void *src, size_t bytes);

static void *load(void)
{
    char path[4200];
    void *handle;

    snprintf(path, sizeof(path), "%s/pretend.so", getenv("TUTTI_MODULE_DIR"));
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(handle != NULL);
    return handle;
}

static void *find(void *handle, const char *name)
{
    void *found = dlsym(handle, name);

    CHECK(found != NULL);
    return found;
}

static void wait_for(const tutti__device_ops_t *ops, tutti__devent_t *event)
{
    tutti_status_t status;

    while ((status = ops->query(event)) == TUTTI__AGAIN)
        usleep(50);
    CHECK_OK(status);
}

static void job(rank_t *self)
{
    void *handle = load();
    const tutti__device_module_t *module = find(handle, "tutti_module");
    read_fn_t *read_device = (read_fn_t *)find(handle, "pretend_read");
    write_fn_t *write_device = (write_fn_t *)find(handle, "pretend_write");
    const tutti__device_ops_t *ops, *same;
    tutti__dstream_t *stream;
    tutti__devent_t *event;
    tutti__nccl_id_t id;
    tutti__nccl_t *nccl;
    const char *versions;
    int32_t data[COUNT];
    void *buf;

    CHECK_INT(module->abi, TUTTI__MODULE_ABI);
    CHECK_OK(module->open(&core, &ops, &versions));
    CHECK(strstr(versions, "pretend NCCL") != NULL);
    CHECK_OK(module->open(&core, &same, &versions));
    CHECK(ops == same);
    CHECK_STATUS(ops->use(1000), TUTTI_ERR_SYSTEM);
    CHECK(strstr(words, "there is no device 1000") != NULL);

    CHECK_OK(ops->use(self->rank));
    CHECK_OK(ops->alloc(sizeof(data), &buf));
    CHECK_OK(ops->stream_make(1, &stream));
    CHECK_OK(ops->event_make(&event));
    if (self->rank == 0)
        CHECK_OK(ops->nccl_id(&id));
    CHECK_OK(tutti_broadcast(&id, sizeof(id), TUTTI_UINT8, 0, self->comm));
    CHECK_OK(ops->nccl_open(&id, (uint32_t)self->rank, (uint32_t)self->size, 0, &nccl));
    while (ops->nccl_poll(nccl) == TUTTI__AGAIN)
        usleep(50);
    for (int i = 0; i < COUNT; i++)
        data[i] = i + self->rank;
    write_device(buf, data, sizeof(data));
    CHECK_OK(ops->nccl_call(
        nccl,
        &(tutti__nccl_call_t){ TUTTI__NCCL_ALLREDUCE, buf, buf, COUNT, TUTTI_INT32, TUTTI_SUM, 0 },
        1, stream));
    while (ops->nccl_poll(nccl) == TUTTI__AGAIN)
        usleep(50);
    CHECK_OK(ops->record(event, stream));
    wait_for(ops, event);
    read_device(data, buf, sizeof(data));
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(data[i], self->size * i + self->size * (self->size - 1) / 2);
    CHECK_OK(tutti_barrier(self->comm));
    ops->nccl_close(nccl);
    ops->event_drop(event);
    ops->stream_drop(stream);
    ops->free(buf);
}

int main(void)
{
    char file[] = "/tmp/tutti-pretend-XXXXXX";
    int fd = mkstemp(file), failures = 0;

    if (!ranks_can_fork() || fd < 0)
        return 77;
    close(fd);
    setenv("TUTTI_TEST_PRETEND", file, 1);
    for (int size = 1; size <= 3; size += 2) {
        const job_t run = { .size = size, .fn = job };

        RUN_JOB(failures, &run);
        if (truncate(file, 0) != 0) /* each job needs a new file */
            failures++;
    }
    unlink(file);
    return failures != 0;
}
