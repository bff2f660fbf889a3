/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of pretend/pretend.h over the device that TUTTI_TEST_DEVICE names. With them the
 * tests of calls on the pretend device run on a real device without changes. This file is linked
 * instead of tests/libpretend.la.
 *
 * There are always PRETEND_DEVICES devices: number n is the real device n modulo the number of real
 * devices. So there may be more ranks than GPUs if NCCL allows this, which it does on different
 * hosts. A list of allocations records the owner of each.
 *
 * Ranks are processes, and each opens the module at the first use, because a process that has
 * initialised CUDA must not fork. Counts are per process. Delays cannot be set, because the real
 * device has its own.
 */
#include "gpu/gpu.h"
#include "pretend/pretend.h"

#include "boot/module.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANGES 4096

typedef struct {
    uintptr_t begin;
    size_t bytes;
    int device;
    tutti__mem_kind_t kind;
} range_t;

static const tutti__device_ops_t *real;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the non-atomic variables */
static range_t ranges[MOST_RANGES];
static int nranges;
/* Used by pretend_read and pretend_write. */
static struct {
    tutti__dstream_t *stream;
    tutti__devent_t *event;
} reach[PRETEND_DEVICES];
static atomic_int forbidden;
static atomic_uint violations;
static __thread int mine = -1;

static void open_real(void);

/* ---- devices ---- */

static tutti_status_t use(int device)
{
    int count = 1;
    tutti_status_t status;

    pthread_once(&once, open_real);
    status = real->count(&count);
    if (status == TUTTI_OK)
        status = real->use(device % count);
    if (status == TUTTI_OK)
        mine = device;
    return status;
}

static tutti_status_t get_count(int *ret_count)
{
    *ret_count = PRETEND_DEVICES;
    return TUTTI_OK;
}

static int current(void)
{
    return mine;
}

static void identity(int device, char ret_identity[TUTTI__DEVICE_IDENTITY_BYTES])
{
    int count = 1;

    pthread_once(&once, open_real);
    (void)real->count(&count);
    real->identity(device % count, ret_identity);
}

/* ---- memory ---- */

static tutti__where_t where(const void *ptr)
{
    tutti__where_t found = { TUTTI__MEM_HOST, -1 };
    tutti__mem_kind_t is;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < nranges; i++) {
        if ((uintptr_t)ptr - ranges[i].begin < ranges[i].bytes)
            found = (tutti__where_t){ ranges[i].kind, ranges[i].device };
    }
    pthread_mutex_unlock(&lock);
    if (real == NULL)
        return found;
    is = real->where(ptr).kind;
    if (found.kind == TUTTI__MEM_HOST) /* or behind the end of this device's memory */
        return (tutti__where_t){ is, is == TUTTI__MEM_HOST ? -1 : mine };
    if (is != found.kind)
        ranks_fail(__FILE__, __LINE__, "%p is memory of kind %d, and not %d", ptr, (int)is,
                   (int)found.kind);
    return found;
}

/* Called before an object is made or freed: counts a violation if this is forbidden now. */
static tutti_status_t changes(const char *what)
{
    if (!atomic_load(&forbidden))
        return TUTTI_OK;
    atomic_fetch_add(&violations, 1);
    return tutti__fail(TUTTI_ERR_SYSTEM, "%s, where nothing may be made or freed now", what);
}

static void list(void *ptr, size_t bytes, tutti__mem_kind_t kind)
{
    pthread_mutex_lock(&lock);
    CHECK(nranges < MOST_RANGES);
    ranges[nranges++] = (range_t){ (uintptr_t)ptr, bytes, mine, kind };
    pthread_mutex_unlock(&lock);
}

static void unlist(const void *ptr)
{
    int at = -1;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < nranges; i++) {
        if (ranges[i].begin == (uintptr_t)ptr)
            at = i;
    }
    CHECK(at >= 0);
    ranges[at] = ranges[--nranges];
    pthread_mutex_unlock(&lock);
}

/* Zeroed, as the pretend device's memory is. */
static tutti_status_t alloc(size_t bytes, void **ret_ptr)
{
    tutti_status_t status = changes("alloc");
    void *zeros = NULL;

    if (status == TUTTI_OK)
        status = real->alloc(bytes, ret_ptr);
    if (status != TUTTI_OK)
        return status;
    list(*ret_ptr, bytes, TUTTI__MEM_DEVICE);
    zeros = calloc(1, bytes);
    pretend_write(*ret_ptr, zeros, bytes);
    free(zeros);
    return TUTTI_OK;
}

static void drop(void *ptr)
{
    if (ptr == NULL)
        return;
    (void)changes("free");
    unlist(ptr);
    real->free(ptr);
}

static tutti_status_t nccl_alloc(size_t bytes, void **ret_ptr)
{
    tutti_status_t status = changes("nccl_alloc");

    if (status == TUTTI_OK)
        status = real->nccl_alloc(bytes, ret_ptr);
    if (status == TUTTI_OK)
        list(*ret_ptr, bytes, TUTTI__MEM_DEVICE);
    return status;
}

static void nccl_drop(void *ptr)
{
    if (ptr == NULL)
        return;
    (void)changes("nccl_free");
    unlist(ptr);
    real->nccl_free(ptr);
}

static tutti_status_t host_alloc(size_t bytes, void **ret_ptr)
{
    tutti_status_t status = changes("host_alloc");

    if (status == TUTTI_OK)
        status = real->host_alloc(bytes, ret_ptr);
    if (status == TUTTI_OK)
        list(*ret_ptr, bytes, TUTTI__MEM_PINNED);
    return status;
}

static void host_drop(void *ptr)
{
    if (ptr == NULL)
        return;
    (void)changes("host_free");
    unlist(ptr);
    real->host_free(ptr);
}

/* ---- objects of which only the making is checked, not the freeing ---- */

static tutti_status_t make_stream(int is_urgent, tutti__dstream_t **ret_stream)
{
    tutti_status_t status = changes("stream_make");

    return status == TUTTI_OK ? real->stream_make(is_urgent, ret_stream) : status;
}

static tutti_status_t make_event(tutti__devent_t **ret_event)
{
    tutti_status_t status = changes("event_make");

    return status == TUTTI_OK ? real->event_make(ret_event) : status;
}

static tutti_status_t make_timer(tutti__devent_t **ret_timer)
{
    tutti_status_t status = changes("timer_make");

    return status == TUTTI_OK ? real->timer_make(ret_timer) : status;
}

/* ---- the table ---- */

/* Functions that may be called before a device is used; open_real fills in the others. */
static tutti__device_ops_t ours = {
    .abi = TUTTI__DEVICE_ABI,
    .name = "pretend",
    .count = get_count,
    .use = use,
    .current = current,
    .identity = identity,
    .where = where,
};

static void open_real(void)
{
    const char *versions;
    tutti__device_ops_t table;

    /* If a device were lent under the same name, it would be found instead of the real device. */
    tutti__module_lend_device(NULL);
    CHECK_OK(gpu_module(&real, &versions));
    tutti__module_lend_device(&ours);
    CHECK_INT(real->abi, TUTTI__DEVICE_ABI);
    table = *real;
    table.name = ours.name;
    table.count = get_count;
    table.use = use;
    table.current = current;
    table.identity = identity;
    table.where = where;
    table.alloc = alloc;
    table.free = drop;
    table.nccl_alloc = nccl_alloc;
    table.nccl_free = nccl_drop;
    table.host_alloc = host_alloc;
    table.host_free = host_drop;
    table.stream_make = make_stream;
    table.event_make = make_event;
    table.timer_make = make_timer;
    ours = table;
}

const tutti__device_ops_t *pretend_device(void)
{
    return &ours;
}

/* ---- the other functions of pretend.h that these tests call ---- */

int pretend_prepare(int nranks)
{
    (void)nranks;
    return gpu_prepare();
}

int pretend_reset(void)
{
    return gpu_prepare();
}

void pretend_delays(unsigned seed, unsigned most_us)
{
    (void)seed, (void)most_us;
}

void pretend_forbid_alloc(int now)
{
    atomic_store(&forbidden, now);
}

unsigned pretend_counts(int device, pretend_count_t what)
{
    (void)device;
    return what == PRETEND_FORBIDDEN ? atomic_load(&violations) : 0;
}

/* Copies on the thread's device; if the thread has none, on the first device. */
static void copy(void *dst, const void *src, size_t bytes)
{
    int device = mine < 0 ? 0 : mine;
    tutti_status_t status;

    if (bytes == 0)
        return;
    CHECK_OK(use(device));
    pthread_mutex_lock(&lock);
    if (reach[device].stream == NULL) {
        CHECK_OK(real->stream_make(1, &reach[device].stream));
        CHECK_OK(real->event_make(&reach[device].event));
    }
    CHECK_OK(real->copy(dst, src, bytes, reach[device].stream));
    CHECK_OK(real->record(reach[device].event, reach[device].stream));
    while ((status = real->query(reach[device].event)) == TUTTI__AGAIN)
        sched_yield();
    pthread_mutex_unlock(&lock);
    CHECK_OK(status);
}

void pretend_read(void *dst, const void *device_src, size_t bytes)
{
    copy(dst, device_src, bytes);
}

void pretend_write(void *device_dst, const void *src, size_t bytes)
{
    copy(device_dst, src, bytes);
}
