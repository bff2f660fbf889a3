/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices, kinds of memory, and copies between any two of them. */
#include "gpu/table.h"

#include <stdlib.h>
#include <string.h>

enum {
    BYTES = 1 << 20
};

static void expect(const gpu_t *gpu, const void *ptr, tutti__mem_kind_t kind, int line)
{
    tutti__where_t where = gpu->ops->where(ptr);
    int device = kind == TUTTI__MEM_HOST ? -1 : gpu->rank->rank;

    if (where.kind != kind || (kind == TUTTI__MEM_DEVICE && where.device != device))
        ranks_fail(__FILE__, line, "kind %d of device %d, not kind %d of device %d",
                   (int)where.kind, where.device, (int)kind, device);
}

#define EXPECT(ptr, kind) expect(gpu, ptr, kind, __LINE__)

static void managed(const gpu_t *gpu)
{
    int (*alloc)(void **, size_t, unsigned) =
        (int (*)(void **, size_t, unsigned))(uintptr_t)gpu_function("cudaMallocManaged");
    int (*drop)(void *) = (int (*)(void *))(uintptr_t)gpu_function("cudaFree");
    void *memory;

    if (alloc == NULL || drop == NULL || alloc(&memory, BYTES, 1) != 0)
        return;
    EXPECT((char *)memory + 77, TUTTI__MEM_PINNED);
    drop(memory);
}

static void kinds(const gpu_t *gpu, char *device, char *pinned, const char *host)
{
    static const char constant[] = "constant";
    char stack[8] = "stack";

    EXPECT(NULL, TUTTI__MEM_HOST);
    EXPECT(host, TUTTI__MEM_HOST);
    EXPECT(host + 12345, TUTTI__MEM_HOST);
    EXPECT(stack, TUTTI__MEM_HOST);
    EXPECT(constant, TUTTI__MEM_HOST);
    EXPECT((const void *)(uintptr_t)kinds, TUTTI__MEM_HOST);
    EXPECT(device, TUTTI__MEM_DEVICE);
    EXPECT(device + 12345, TUTTI__MEM_DEVICE);
    EXPECT(device + BYTES - 1, TUTTI__MEM_DEVICE);
    EXPECT(pinned, TUTTI__MEM_PINNED);
    EXPECT(pinned + BYTES - 1, TUTTI__MEM_PINNED);
    managed(gpu);
}

/* Copy to an odd address in other memory, and back to memory that the processor can read. */
static void copy_case(const gpu_t *gpu, char *from, char *to, char *look, size_t bytes)
{
    char *want = malloc(BYTES), *got = malloc(BYTES);

    for (size_t i = 0; i < BYTES; i++)
        want[i] = (char)(i * 7 + i / 251 + bytes);
    memset(got, 0x55, BYTES);
    gpu_copy(gpu, from, want, BYTES);
    gpu_copy(gpu, to, got, BYTES);
    gpu_copy(gpu, to + 3, from + 5, bytes);
    gpu_copy(gpu, look, to, BYTES);
    memcpy(got, look, BYTES);
    CHECK(memcmp(got + 3, want + 5, bytes) == 0);
    for (size_t i = 0; i < BYTES; i++)
        if (i < 3 || i >= 3 + bytes)
            CHECK_INT(got[i], 0x55);
    free(want);
    free(got);
}

static void copies(const gpu_t *gpu, char *device, char *pinned, char *host)
{
    static const size_t lengths[] = { 0, 1, 4097, BYTES - 5 };
    void *pinned2;
    char *device2 = gpu_alloc(gpu, BYTES), *host2 = malloc(BYTES), *look = malloc(BYTES);

    CHECK_OK(gpu->ops->host_alloc(BYTES, &pinned2));
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        char *const from[] = { device, pinned, host };
        char *const to[] = { device2, pinned2, host2 };

        for (size_t f = 0; f < 3; f++)
            for (size_t t = 0; t < 3; t++)
                copy_case(gpu, from[f], to[t], look, lengths[i]);
    }
    gpu->ops->free(device2);
    gpu->ops->host_free(pinned2);
    free(host2);
    free(look);
}

void table_memory(rank_t *self)
{
    gpu_t gpu;
    int count;
    void *pinned, *none;
    char *device, *host = malloc(BYTES);

    gpu_begin(&gpu, self);
    CHECK_OK(gpu.ops->count(&count));
    CHECK(gpu.ops->use(count) != TUTTI_OK);
    CHECK_INT(gpu.ops->current(), self->rank);
    device = gpu_alloc(&gpu, BYTES);
    CHECK_OK(gpu.ops->host_alloc(BYTES, &pinned));
    memset(pinned, 1, BYTES); /* pinned memory: the processor can access it */
    kinds(&gpu, device, pinned, host);
    copies(&gpu, device, pinned, host);
    if (gpu_is_real()) /* more memory than any device has; the device still works after the error */
        CHECK_STATUS(gpu.ops->alloc((size_t)1 << 50, &none), TUTTI_ERR_NO_MEMORY);
    gpu.ops->free(device);
    gpu.ops->free(NULL);
    gpu.ops->host_free(pinned);
    gpu.ops->host_free(NULL);
    gpu_end(&gpu);
    free(host);
}
