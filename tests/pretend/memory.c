/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device's memory, which is mapped twice, and pinned memory, which is ordinary memory.
 *
 *      callers' view   | PROT_NONE ............ | one page more |    any access faults
 *      device's view   | read and write ....... |                    of the same memfd
 *
 * A freed range stays reserved until pretend_reset. So an access after the free faults as well, and
 * the message can name the range.
 */
#include "pretend/inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_RANGES 8192

typedef struct {
    uintptr_t begin; /* the callers' address */
    size_t bytes, mapped;
    char *view;
    tutti__mem_kind_t kind;
    int device, is_nccls;
    int registered; /* number of registrations */
    atomic_int was_freed;
} range_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects ranges */
static range_t ranges[MAX_RANGES];
/* Stored with release order after a range is filled in, because the signal handler reads it without
   the lock. */
static atomic_uint nranges;

static range_t *find(const void *ptr)
{
    unsigned n = atomic_load_explicit(&nranges, memory_order_acquire);

    for (unsigned i = 0; i < n; i++) {
        range_t *r = &ranges[i];

        if (!atomic_load(&r->was_freed) && (uintptr_t)ptr - r->begin < r->bytes)
            return r;
    }
    return NULL;
}

static tutti_status_t add(const device_t *device, tutti__mem_kind_t kind, void *ptr, char *view,
                          size_t bytes, size_t mapped)
{
    unsigned n;

    pthread_mutex_lock(&lock);
    n = atomic_load(&nranges);
    if (n < MAX_RANGES) {
        range_t *r = &ranges[n];

        r->begin = (uintptr_t)ptr;
        r->bytes = bytes;
        r->mapped = mapped;
        r->view = view;
        r->kind = kind;
        r->device = device->number;
        r->is_nccls = r->registered = 0;
        atomic_store(&r->was_freed, 0);
        atomic_store_explicit(&nranges, n + 1, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return n < MAX_RANGES ? TUTTI_OK : tutti__fail(TUTTI_ERR_NO_MEMORY, "alloc: too many");
}

static tutti_status_t begin_alloc(const char *name, device_t **ret_device)
{
    tutti_status_t status = device_mine(name, ret_device);

    if (status == TUTTI_OK)
        status = device_changes(*ret_device, PRETEND_ALLOCS, name);
    if (status == TUTTI_OK)
        device_drain(*ret_device);
    return status;
}

tutti_status_t memory_alloc(size_t bytes, void **ret_ptr)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = TUTTI__ROUND_UP(bytes, page);
    device_t *device;
    char *host, *view;
    tutti_status_t status = begin_alloc("alloc", &device);
    int fd;

    if (status != TUTTI_OK)
        return status;
    if (bytes == 0 || mapped < bytes)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "alloc: %zu bytes cannot be had", bytes);
    fd = memfd_create("tutti-pretend", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)mapped) != 0) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "alloc: %zu bytes: %s", bytes, strerror(errno));
        goto close_fd;
    }
    host = mmap(NULL, mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    view = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (host == MAP_FAILED || view == MAP_FAILED ||
        mmap(host, mapped, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "alloc: %zu bytes: %s", bytes, strerror(errno));
        goto unmap;
    }
    status = add(device, TUTTI__MEM_DEVICE, host, view, bytes, mapped);
    if (status != TUTTI_OK)
        goto unmap;
    close(fd);
    *ret_ptr = host;
    return TUTTI_OK;

unmap:
    if (host != MAP_FAILED)
        munmap(host, mapped + page);
    if (view != MAP_FAILED)
        munmap(view, mapped);
close_fd:
    if (fd >= 0)
        close(fd);
    return status;
}

tutti_status_t memory_nccl_alloc(size_t bytes, void **ret_ptr)
{
    tutti_status_t status;

    if (atomic_load(&pretend_options.lacks_register))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "nccl_alloc: this NCCL does not");
    status = memory_alloc(bytes, ret_ptr);
    if (status != TUTTI_OK)
        return status;
    pthread_mutex_lock(&lock);
    find(*ret_ptr)->is_nccls = 1;
    pthread_mutex_unlock(&lock);
    return TUTTI_OK;
}

int memory_register(const void *ptr, size_t bytes, int by)
{
    range_t *r;
    int fits;

    pthread_mutex_lock(&lock);
    r = find(ptr);
    fits = r != NULL && r->is_nccls && bytes > 0 && bytes <= r->bytes - ((uintptr_t)ptr - r->begin);
    if (fits)
        r->registered += by;
    pthread_mutex_unlock(&lock);
    return fits;
}

tutti_status_t memory_host_alloc(size_t bytes, void **ret_ptr)
{
    device_t *device;
    tutti_status_t status = begin_alloc("host_alloc", &device);
    void *ptr;

    if (status != TUTTI_OK)
        return status;
    if (bytes == 0 || posix_memalign(&ptr, 256, bytes) != 0)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "host_alloc: %zu bytes cannot be had", bytes);
    status = add(device, TUTTI__MEM_PINNED, ptr, ptr, bytes, 0);
    if (status != TUTTI_OK) {
        free(ptr);
        return status;
    }
    *ret_ptr = ptr;
    return TUTTI_OK;
}

/* Free the memory; the callers' addresses stay reserved. */
static void release(range_t *r)
{
    if (r->kind == TUTTI__MEM_PINNED) {
        free(r->view);
    } else {
        munmap(r->view, r->mapped);
        mmap((void *)r->begin, r->mapped, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    r->view = NULL;
    atomic_store(&r->was_freed, 1);
}

static void give(void *ptr, tutti__mem_kind_t kind, int is_nccls, const char *name)
{
    range_t *r;
    int device = -1, registered = 0;

    if (ptr == NULL)
        return;
    pthread_mutex_lock(&lock);
    r = find(ptr);
    if (r != NULL && r->begin == (uintptr_t)ptr && r->kind == kind && r->is_nccls == is_nccls)
        device = r->device;
    if (device >= 0)
        registered = r->registered;
    pthread_mutex_unlock(&lock);
    if (registered > 0) {
        fprintf(stderr, "pretend device: %s: %p is still registered\n", name, ptr);
        abort();
    }
    if (device < 0) {
        fprintf(stderr, "pretend device: %s: %p is not the beginning of an allocation\n", name,
                ptr);
        abort();
    }
    /* This free cannot be refused, so it is only counted. */
    (void)device_changes(device_at(device), PRETEND_ALLOCS, name);
    device_drain(device_at(device));
    pthread_mutex_lock(&lock);
    release(r);
    pthread_mutex_unlock(&lock);
}

void memory_free(void *ptr)
{
    give(ptr, TUTTI__MEM_DEVICE, 0, "free");
}

void memory_nccl_free(void *ptr)
{
    give(ptr, TUTTI__MEM_DEVICE, 1, "nccl_free");
}

void memory_host_free(void *ptr)
{
    give(ptr, TUTTI__MEM_PINNED, 0, "host_free");
}

tutti__where_t memory_where(const void *ptr)
{
    tutti__where_t where = { TUTTI__MEM_HOST, -1 };
    range_t *r;

    pthread_mutex_lock(&lock);
    r = find(ptr);
    if (r != NULL) {
        where.kind = r->kind;
        where.device = r->device;
    }
    pthread_mutex_unlock(&lock);
    return where;
}

/* Call it with the lock held. */
static tutti_status_t view_of(const range_t *r, const device_t *device, view_use_t use,
                              const void *ptr, size_t bytes, char **ret_view, char *words)
{
    size_t offset;

    if (r == NULL && use == VIEW_COPY) {
        pretend_fault_t was;

        *ret_view = (char *)(uintptr_t)ptr;
        if (!pretend_is_device_fault(ptr, &was))
            return TUTTI_OK;
        snprintf(words, WORDS_BYTES, "%zu bytes at offset %zu of allocation %u, which %s", bytes,
                 was.offset, was.allocation, was.was_freed ? "was freed" : "ends before");
        return TUTTI_ERR_SYSTEM;
    }
    if (r == NULL) {
        snprintf(words, WORDS_BYTES, "%zu bytes at %p, which is no memory of the device", bytes,
                 ptr);
        return TUTTI_ERR_SYSTEM;
    }
    offset = (uintptr_t)ptr - r->begin;
    if (bytes > r->bytes - offset) {
        snprintf(words, WORDS_BYTES,
                 "%zu bytes at offset %zu leave allocation %d, of %zu bytes on device %d", bytes,
                 offset, (int)(r - ranges), r->bytes, r->device);
        return TUTTI_ERR_SYSTEM;
    }
    if (use == VIEW_KERNEL && r->kind == TUTTI__MEM_DEVICE && r->device != device->number) {
        snprintf(words, WORDS_BYTES, "allocation %d is device %d's, not device %d's",
                 (int)(r - ranges), r->device, device->number);
        return TUTTI_ERR_SYSTEM;
    }
    *ret_view = r->view + offset;
    return TUTTI_OK;
}

tutti_status_t memory_view(const device_t *device, view_use_t use, const void *ptr, size_t bytes,
                           char **ret_view, char words[WORDS_BYTES])
{
    tutti_status_t status;

    *ret_view = NULL;
    if (bytes == 0)
        return TUTTI_OK;
    pthread_mutex_lock(&lock);
    status = view_of(find(ptr), device, use, ptr, bytes, ret_view, words);
    pthread_mutex_unlock(&lock);
    return status;
}

int pretend_is_device_fault(const void *address, pretend_fault_t *ret_fault)
{
    unsigned n = atomic_load_explicit(&nranges, memory_order_acquire);

    for (unsigned i = 0; i < n; i++) {
        range_t *r = &ranges[i];
        size_t offset = (uintptr_t)address - r->begin;

        if (r->kind != TUTTI__MEM_DEVICE || offset >= r->mapped + (size_t)sysconf(_SC_PAGESIZE))
            continue;
        *ret_fault =
            (pretend_fault_t){ i, r->device, r->bytes, offset, atomic_load(&r->was_freed) };
        return 1;
    }
    return 0;
}

static char *must_view(const void *ptr, size_t bytes)
{
    char words[WORDS_BYTES] = "it is host memory", *view = NULL;

    if (memory_where(ptr).kind == TUTTI__MEM_HOST ||
        memory_view(NULL, VIEW_COPY, ptr, bytes, &view, words) != TUTTI_OK) {
        fprintf(stderr, "pretend device: read or write: %s\n", words);
        abort();
    }
    return view;
}

void pretend_read(void *dst, const void *device_src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, must_view(device_src, bytes), bytes);
}

void pretend_write(void *device_dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(must_view(device_dst, bytes), src, bytes);
}

int memory_reset(void)
{
    int left = 0;

    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < atomic_load(&nranges); i++) {
        range_t *r = &ranges[i];

        if (!atomic_load(&r->was_freed)) {
            left++;
            release(r);
        }
        if (r->kind == TUTTI__MEM_DEVICE)
            munmap((void *)r->begin, r->mapped + (size_t)sysconf(_SC_PAGESIZE));
    }
    atomic_store(&nranges, 0);
    pthread_mutex_unlock(&lock);
    return left;
}
