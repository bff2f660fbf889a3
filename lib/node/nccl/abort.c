/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Aborting NCCL's communicator, which may never return (NCCL's issues 549, 829, 992): so a thread
 * of its own does it. Who aborts waits for that for a while, and then goes on without.
 *
 * What that abort was to end is on the device still, then, and whatever waits for the device waits
 * for ever: freeing memory, dropping streams, allocating. So a device is stuck until all of its
 * aborts have returned: nothing there is given back or made.
 */
#include "node/nccl/nccl.h"

#include "base/log.h"
#include "base/time.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define PATIENCE_NS 3000000000u
#define NAP_US 100

/* Of devices with these numbers, modulo: more would only be stuck together. */
#define DEVICES 32

/* Aborts that nobody waits for any more. */
static tutti__word_t abandoned[DEVICES];

/* abort_t's state */
enum {
    AT_WORK,
    DONE,
    ALONE /* nobody waits */
};

typedef struct {
    const tutti__device_ops_t *ops;
    int device;
    tutti__nccl_t *nccl;
    tutti__word_t state; /* who comes second frees it all */
} abort_t;

static tutti__word_t *count_of(int device)
{
    return &abandoned[(unsigned)device % DEVICES];
}

static void *thread_main(void *arg)
{
    abort_t *job = arg;

    /* No answer is of use: NCCL is aborted in any case, and the device's errors last. */
    (void)job->ops->use(job->device);
    job->ops->nccl_abort(job->nccl);
    if (atomic_exchange(&job->state, DONE) == ALONE) {
        atomic_fetch_sub(count_of(job->device), 1);
        free(job);
    }
    return NULL;
}

/* 0: there is no thread. */
static int start(abort_t *job)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int error;

    /* Signals are for the program's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &attr, thread_main, job);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

void tutti__nccl_abort(const tutti__device_ops_t *ops, int device, tutti__nccl_t *nccl)
{
    uint64_t limit = tutti__now_ns() + PATIENCE_NS;
    abort_t *job = malloc(sizeof(*job));

    if (job != NULL)
        *job = (abort_t){ .ops = ops, .device = device, .nccl = nccl };
    if (job == NULL || !start(job)) {
        free(job);
        ops->nccl_abort(nccl);
        return;
    }
    while (atomic_load(&job->state) == AT_WORK && tutti__now_ns() < limit)
        usleep(NAP_US);
    if (atomic_load(&job->state) == DONE) {
        free(job);
        return;
    }
    atomic_fetch_add(count_of(device), 1);
    if (atomic_exchange(&job->state, ALONE) == DONE) {
        atomic_fetch_sub(count_of(device), 1);
        free(job);
        return;
    }
    TUTTI__LOG(TUTTI__LOG_WARN,
               "aborting NCCL on device %d does not return; nothing of the device is given back "
               "until it does",
               device);
}

int tutti__nccl_is_stuck(int device)
{
    return atomic_load(count_of(device)) > 0;
}
