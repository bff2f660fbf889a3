/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits of the machine, with which a collective's time is compared. bench/README.md names the
 * calls that can beat them.
 *
 * A short collective cannot end before a cache line has moved from one rank to another. A long
 * collective must read each byte of input and write each byte of output at least once. The speed of
 * copies is measured with memcpy, on all ranks at the same time, on the same buffers. The fastest
 * of repeated blocks counts, since a limit must not contain disturbances. README.md has the
 * formulas.
 *
 * In device memory only the second limit is known, from the device's own copies and clock.
 */
#include "harness/device.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    BLOCKS = 101,
    TRIPS = 20, /* round trips of a block */
    SPINS = 2000,
    COPY_BYTES = 1 << 20,   /* least bytes of a block */
    DEVICE_BYTES = 1 << 28, /* a device's block ends after this many bytes, or copies */
    DEVICE_COPIES = 64
};

static const uint64_t longest_ns = 200000000; /* for one pair of ranks */
static const uint32_t over = UINT32_MAX;

/* The cache line that moves back and forth. */
typedef struct {
    _Alignas(4096) _Atomic uint32_t ball;
} court_t;

static uint32_t wait_for_change(court_t *court, uint32_t old)
{
    for (int spins = 0;; spins++) {
        uint32_t now = atomic_load_explicit(&court->ball, memory_order_acquire);

        if (now != old)
            return now;
        if (spins >= SPINS)
            sched_yield(); /* the peer may need this processor */
    }
}

/* Rank 0's side. Returns half a round trip of the fastest block. */
static double serve(court_t *court)
{
    double us[BLOCKS];
    uint32_t ball = 0;
    uint64_t begin = bench_now_ns();
    size_t done;

    for (done = 0; done < BLOCKS && (done == 0 || bench_now_ns() - begin < longest_ns); done++) {
        uint64_t start = bench_now_ns();

        for (int i = 0; i < TRIPS; i++) {
            atomic_store_explicit(&court->ball, ++ball, memory_order_release);
            ball = wait_for_change(court, ball);
        }
        us[done] = (double)(bench_now_ns() - start) * 1e-3 / (2 * TRIPS);
    }
    atomic_store_explicit(&court->ball, over, memory_order_release);
    return bench_least(us, done);
}

static void answer(court_t *court)
{
    uint32_t ball = 0;

    for (;;) {
        ball = wait_for_change(court, ball);
        if (ball == over)
            return;
        atomic_store_explicit(&court->ball, ++ball, memory_order_release);
    }
}

/* Map a page that all ranks of this host share. Its name is removed before the return. NULL:
   failed. */
static court_t *open_court(const bench_t *bench)
{
    uint64_t number = bench_same(&bench->world, (uint64_t)getpid() ^ bench->options.seed << 20);
    void *memory = MAP_FAILED;
    double failed;
    char name[64];
    int fd = -1;

    snprintf(name, sizeof(name), "/tutti_bench_%016llx", (unsigned long long)number);
    if (bench->world.rank == 0) {
        fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
        if (fd >= 0 && ftruncate(fd, sizeof(court_t)) != 0) {
            close(fd);
            fd = -1;
        }
    }
    bench_barrier(&bench->world);
    if (bench->world.rank != 0)
        fd = shm_open(name, O_RDWR, 0600);
    if (fd >= 0) {
        memory = mmap(NULL, sizeof(court_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    failed = memory == MAP_FAILED;
    bench_sum(&bench->world, &failed, 1);
    if (bench->world.rank == 0)
        shm_unlink(name);
    if (failed == 0.0)
        return memory;
    if (memory != MAP_FAILED)
        munmap(memory, sizeof(court_t));
    return NULL;
}

double bench_line_us(const bench_t *bench)
{
    const bench_world_t *world = &bench->world;
    double least = 1e9;
    court_t *court;

    if (world->device != NULL)
        return -1.0;
    if (world->size == 1)
        return 0.0;
    if (tutti_host_count(world->comm) > 1)
        return -1.0;
    court = open_court(bench);
    if (court == NULL)
        return -1.0;
    for (int peer = 1; peer < world->size; peer++) {
        double us = 1e9;

        atomic_store(&court->ball, 0);
        bench_barrier(world);
        if (world->rank == 0)
            us = serve(court);
        else if (world->rank == peer)
            answer(court);
        bench_barrier(world);
        if (us < least)
            least = us;
    }
    munmap(court, sizeof(*court));
    least = -least;
    bench_max(world, &least, 1); /* distributes rank 0's value; the other ranks have -1e9 */
    return -least;
}

/* memcpy from one buffer to the other, or between the halves of a single buffer; in a rotating
   pool, each copy uses the next pair. */
typedef struct {
    char *to;
    const char *from;
    size_t length; /* 0: this rank has no share */
    size_t to_stride, from_stride;
} copy_t;

static copy_t first_copy(bench_t *bench, size_t bytes)
{
    const bench_collective_t *collective = bench->program->collective;
    const bench_buffers_t *buffers = &bench->buffers;
    size_t place = buffers->next;
    bench_call_t call = bench_next_call(bench, bytes);
    size_t send = bench_extent(collective->send, &call) * call.type->bytes;
    size_t recv = bench_extent(collective->recv, &call) * call.type->bytes;
    copy_t copy = { .to_stride = buffers->stride[1], .from_stride = buffers->stride[0] };

    copy.to = call.recvbuf;
    copy.from = call.sendbuf;
    copy.length = send < recv ? send : recv;
    if (call.in_place || collective->send == BENCH_NOTHING) {
        copy.length = recv / 2;
        copy.from = copy.to + copy.length;
        copy.from_stride = copy.to_stride;
    }
    copy.to -= place * copy.to_stride;
    copy.from -= place * copy.from_stride;
    return copy;
}

/* Copies at least COPY_BYTES; returns the number of bytes. */
static size_t copy_block(bench_buffers_t *buffers, const copy_t *copy)
{
    size_t done;

    for (done = 0; done < COPY_BYTES && copy->length > 0; done += copy->length) {
        size_t place = buffers->next;

        memcpy(copy->to + place * copy->to_stride, copy->from + place * copy->from_stride,
               copy->length);
        atomic_signal_fence(memory_order_seq_cst); /* keeps the compiler from merging copies */
        buffers->next = place + 1 < buffers->pairs ? place + 1 : 0;
    }
    return done;
}

/* The same with the device's copies. They take microseconds to start, so their number is limited as
   well. */
static double device_us_per_byte(bench_buffers_t *buffers, const bench_world_t *world,
                                 const copy_t *copy)
{
    const bench_device_t *device = world->device;
    size_t done = 0;
    double us;

    bench_device_clock(world);
    for (int i = 0; i < DEVICE_COPIES && done < DEVICE_BYTES && copy->length > 0; i++) {
        size_t place = buffers->next;
        tutti_status_t status =
            device->ops->copy(copy->to + place * copy->to_stride,
                              copy->from + place * copy->from_stride, copy->length, device->stream);

        bench_device_check(world, status, "copy");
        buffers->next = place + 1 < buffers->pairs ? place + 1 : 0;
        done += copy->length;
    }
    us = bench_device_us(world);
    return done > 0 ? us / (double)done : 0.0;
}

static double host_us_per_byte(bench_buffers_t *buffers, const copy_t *copy)
{
    uint64_t start = bench_now_ns();
    size_t done = copy_block(buffers, copy);

    return done > 0 ? (double)(bench_now_ns() - start) * 1e-3 / (double)done : 0.0;
}

double bench_copy_us(bench_t *bench, size_t bytes)
{
    const bench_world_t *world = &bench->world;
    const bench_collective_t *collective = bench->program->collective;
    double us_per_byte;
    copy_t copy;

    if (collective->recv == BENCH_NOTHING)
        return 0.0;
    copy = first_copy(bench, bytes);
    bench_barrier(world);
    us_per_byte = world->device != NULL ? device_us_per_byte(&bench->buffers, world, &copy)
                                        : host_us_per_byte(&bench->buffers, &copy);
    bench_max(world, &us_per_byte, 1);
    /* A copied byte is read once and written once, on all ranks at the same time. */
    return collective->traffic(world->size, bench->options.in_place) / (2.0 * world->size) *
           us_per_byte;
}
