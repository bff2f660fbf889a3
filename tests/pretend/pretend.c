/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The devices, their users, options and counts. See pretend.h.
 */
#include "pretend/inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

options_t pretend_options;
atomic_int pretend_left;

static device_t devices[PRETEND_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* The first process that used a device; 0: none. A forked child cannot use the devices, because the
   threads do not exist in it. */
static atomic_int user_pid;
static _Thread_local device_t *mine;

static void make_devices(void)
{
    for (int i = 0; i < PRETEND_DEVICES; i++) {
        devices[i].number = i;
        pthread_mutex_init(&devices[i].driver, NULL);
        pthread_mutex_init(&devices[i].lock, NULL);
        pthread_mutex_init(&devices[i].trouble_lock, NULL);
        atomic_store(&devices[i].hang_after, -1);
    }
}

device_t *device_at(int number)
{
    pthread_once(&once, make_devices);
    return &devices[number];
}

static tutti_status_t device_number(int *ret_count)
{
    *ret_count = PRETEND_DEVICES;
    return TUTTI_OK;
}

static tutti_status_t device_use(int device)
{
    int nobody = 0;

    if (device < 0 || device >= PRETEND_DEVICES)
        return tutti__fail(TUTTI_ERR_SYSTEM, "use: there is no device %d", device);
    if (!atomic_compare_exchange_strong(&user_pid, &nobody, (int)getpid()) && nobody != getpid())
        return tutti__fail(TUTTI_ERR_SYSTEM, "use: forked after devices were used");
    mine = device_at(device);
    return device_say(mine);
}

static int device_current(void)
{
    return mine == NULL ? -1 : mine->number;
}

static void device_identity(int device, char ret_identity[TUTTI__DEVICE_IDENTITY_BYTES])
{
    snprintf(ret_identity, TUTTI__DEVICE_IDENTITY_BYTES, "pretend %d", device);
}

tutti_status_t device_mine(const char *what, device_t **ret_device)
{
    if (mine == NULL || atomic_load(&user_pid) != getpid())
        return tutti__fail(TUTTI_ERR_SYSTEM, "%s: this thread has not used a device", what);
    *ret_device = mine;
    return device_say(mine);
}

void device_set_mine(device_t *device)
{
    mine = device;
}

void device_count(device_t *device, pretend_count_t what)
{
    atomic_fetch_add(&device->counts[what], 1);
}

void device_trouble(device_t *device, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    pthread_mutex_lock(&device->trouble_lock);
    if (device->trouble.status == TUTTI_OK) {
        device->trouble.status = TUTTI_ERR_SYSTEM;
        vsnprintf(device->trouble.words, WORDS_BYTES, fmt, args);
    }
    pthread_mutex_unlock(&device->trouble_lock);
    va_end(args);
}

tutti_status_t device_say(device_t *device)
{
    tutti_status_t status;

    pthread_mutex_lock(&device->trouble_lock);
    status = device->trouble.status;
    if (status != TUTTI_OK)
        tutti__fail(status, "%s", device->trouble.words);
    pthread_mutex_unlock(&device->trouble_lock);
    return status;
}

tutti_status_t device_changes(device_t *device, pretend_count_t what, const char *name)
{
    device_count(device, what);
    if (!atomic_load(&pretend_options.forbidden))
        return TUTTI_OK;
    device_count(device, PRETEND_FORBIDDEN);
    return tutti__fail(TUTTI_ERR_SYSTEM, "%s on device %d, where nothing may be made or freed now",
                       name, device->number);
}

void pretend_delays(unsigned seed, unsigned most_us)
{
    atomic_store(&pretend_options.seed, seed);
    atomic_store(&pretend_options.delay_us, most_us);
}

void pretend_rates(double copy_bytes_per_s, double nccl_bytes_per_s)
{
    atomic_store(&pretend_options.copy_rate, copy_bytes_per_s);
    atomic_store(&pretend_options.nccl_rate, nccl_bytes_per_s);
}

void pretend_forbid_alloc(int forbidden)
{
    atomic_store(&pretend_options.forbidden, forbidden);
}

void pretend_slow_calls(unsigned us)
{
    atomic_store(&pretend_options.slow_us, us);
}

void pretend_bind_calls(int binds)
{
    atomic_store(&pretend_options.binds, binds);
}

void pretend_lacks(int device, tutti_dtype_t dtype)
{
    atomic_store(&device_at(device)->lacks, (int)dtype);
}

int device_lacks(void)
{
    return mine != NULL ? atomic_load(&mine->lacks) : 0;
}

void pretend_hang(int device, int calls)
{
    atomic_store(&device_at(device)->hang_after, calls);
}

void pretend_sick(int device)
{
    atomic_store(&pretend_options.sick, device + 1);
}

void pretend_hang_abort(int device)
{
    atomic_store(&pretend_options.hangs_abort, device + 1);
}

void pretend_no_space(int device)
{
    atomic_store(&pretend_options.no_space, device + 1);
}

unsigned pretend_counts(int device, pretend_count_t what)
{
    return atomic_load(&device_at(device)->counts[what]);
}

int pretend_reset(void)
{
    int left;

    for (int i = 0; i < PRETEND_DEVICES; i++) {
        device_t *device = device_at(i);

        stream_end_legacy(device);
        for (int c = 0; c < PRETEND_COUNTS; c++)
            atomic_store(&device->counts[c], 0);
        atomic_store(&device->hang_after, -1);
        atomic_store(&device->lacks, 0);
        pthread_mutex_lock(&device->trouble_lock);
        memset(&device->trouble, 0, sizeof(device->trouble));
        pthread_mutex_unlock(&device->trouble_lock);
    }
    pretend_delays(0, 0);
    pretend_rates(0, 0);
    pretend_forbid_alloc(0);
    pretend_slow_calls(0);
    pretend_bind_calls(0);
    pretend_refuse_register(-1);
    pretend_lack_register(0);
    pretend_sick(-1);
    pretend_hang_abort(-1);
    pretend_no_space(-1);
    left = memory_reset() + atomic_exchange(&pretend_left, 0);
    atomic_store(&user_pid, 0);
    return left;
}

const tutti__device_ops_t *pretend_device(void)
{
    static const tutti__device_ops_t ops = {
        .abi = TUTTI__DEVICE_ABI,
        .name = "pretend",
        .count = device_number,
        .use = device_use,
        .current = device_current,
        .identity = device_identity,
        .where = memory_where,
        .alloc = memory_alloc,
        .free = memory_free,
        .host_alloc = memory_host_alloc,
        .host_free = memory_host_free,
        .stream_make = stream_make,
        .stream_drop = stream_drop,
        .stream_captures = stream_captures,
        .event_make = event_make,
        .event_drop = event_drop,
        .record = event_record,
        .wait = event_wait,
        .query = event_query,
        .timer_make = event_timer,
        .elapsed = event_elapsed,
        .words = word_all,
        .await = word_await,
        .copy = work_copy,
        .pack = work_pack,
        .sum = work_sum,
        .nccl_serves = nccl_serves,
        .nccl_id = nccl_id,
        .nccl_open = nccl_open,
        .nccl_binds = nccl_binds,
        .nccl_poll = nccl_poll,
        .nccl_call = nccl_call,
        .nccl_alloc = memory_nccl_alloc,
        .nccl_free = memory_nccl_free,
        .nccl_register = nccl_register,
        .nccl_deregister = nccl_deregister,
        .nccl_close = nccl_close,
        .nccl_abort = nccl_abort,
    };

    return &ops;
}
