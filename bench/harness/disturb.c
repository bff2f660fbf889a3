/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Disturbances: a rank that is late (--skew), processors that are busy (--load).
 */
#include "harness/bench.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_int stop;
static pthread_t *busy;
static int64_t nbusy;

/* A busy thread: computes in registers, on any processor that this process may use. */
static void *work(void *arg)
{
    volatile uint64_t sink;
    uint64_t x = 1;

    (void)arg;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        for (int i = 0; i < 10000; i++)
            x = x * 6364136223846793005u + 1442695040888963407u;
        sink = x;
    }
    (void)sink;
    return NULL;
}

/* A launcher may have bound this process to one processor; the load must use all of them. The
   kernel ignores processors in the mask that this process may not use at all. */
static void unbind(pthread_attr_t *attr)
{
    cpu_set_t all;

    CPU_ZERO(&all);
    for (int i = 0; i < CPU_SETSIZE; i++)
        CPU_SET(i, &all);
    pthread_attr_setaffinity_np(attr, sizeof(all), &all);
}

void bench_load_start(const bench_world_t *world, int64_t threads)
{
    pthread_attr_t attr;

    if (threads == 0 || tutti_local_rank(world->comm) != 0)
        return;
    busy = bench_allocate((size_t)threads, sizeof(*busy));
    pthread_attr_init(&attr);
    unbind(&attr);
    for (nbusy = 0; nbusy < threads; nbusy++) {
        if (pthread_create(&busy[nbusy], &attr, work, NULL) != 0) {
            fprintf(stderr, "rank %d: --load: no more than %lld threads\n", world->rank,
                    (long long)nbusy);
            bench_stop(world);
        }
    }
    pthread_attr_destroy(&attr);
}

void bench_load_stop(void)
{
    atomic_store_explicit(&stop, 1, memory_order_relaxed);
    for (int64_t i = 0; i < nbusy; i++)
        pthread_join(busy[i], NULL);
    free(busy);
    busy = NULL;
    nbusy = 0;
}

void bench_spin_until(uint64_t ns)
{
    while (bench_now_ns() < ns) {
    }
}
