/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Aborts NCCL's communicator. NCCL's abort may never return (NCCL's issues 549, 829, 992), so a
 * separate thread calls it. The caller waits for a limited time, and then continues in any case.
 *
 * NCCL's abort first tells its kernels to end, and then frees memory. Freeing waits for all work of
 * the device, also for the kernels of other communicators. So if several communicators are to be
 * aborted, all aborts begin before the first abort is awaited. Otherwise the first abort would wait
 * for kernels that only the second abort ends (NCCL's issue 1013). While an abort waits, CUDA may
 * keep all other threads from queueing work.
 *
 * While an abort has not returned, work of its communicator is still on the device. Any call that
 * waits for the device would wait for ever: freeing memory, dropping streams, allocating. So until
 * all aborts on the device have returned, the device counts as stuck, and nothing is freed or made
 * on it.
 */
#include "node/nccl/nccl.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/own_thread.h"
#include "base/time.h"

#include <stdlib.h>
#include <unistd.h>

/* Devices whose numbers are equal modulo DEVICES share an entry. If one of them is stuck, all of
   them count as stuck. Sharing has no other effect. */
#define DEVICES 32

/* [device] number of aborts that have not returned and for which no thread waits. */
static tutti__word_t abandoned[DEVICES];

/* Values of abort_t's `state`. */
enum {
    AT_WORK,
    DONE,
    ALONE /* the caller has stopped waiting */
};

struct tutti__nccl_abort {
    const tutti__device_ops_t *ops;
    int device;
    tutti__nccl_t *nccl;
    uint64_t limit_ns;   /* the caller waits until this time */
    tutti__word_t state; /* decides which of the two threads frees this structure */
};

static tutti__word_t *count_of(int device)
{
    return &abandoned[(unsigned)device % DEVICES];
}

static void *thread_main(void *arg)
{
    tutti__nccl_abort_t *job = arg;

    /* Abort NCCL even if this fails; a later call returns the device's error again. */
    (void)job->ops->use(job->device);
    job->ops->nccl_abort(job->nccl);
    if (atomic_exchange(&job->state, DONE) == ALONE) {
        atomic_fetch_sub(count_of(job->device), 1);
        free(job);
    }
    return NULL;
}

tutti__nccl_abort_t *tutti__nccl_abort_begin(const tutti__device_ops_t *ops, int device,
                                             tutti__nccl_t *nccl)
{
    tutti__nccl_abort_t *job = malloc(sizeof(*job));

    if (job != NULL)
        *job = (tutti__nccl_abort_t){ .ops = ops,
                                      .device = device,
                                      .nccl = nccl,
                                      .limit_ns = tutti__now_ns() + TUTTI__NCCL_ABORT_NS };
    if (job != NULL && tutti__thread_launch(thread_main, job, NULL) == 0)
        return job;
    free(job);
    ops->nccl_abort(nccl);
    return NULL;
}

void tutti__nccl_abort_await(tutti__nccl_abort_t *job)
{
    int device;

    if (job == NULL)
        return;
    device = job->device;
    while (atomic_load(&job->state) == AT_WORK && tutti__now_ns() < job->limit_ns)
        usleep(TUTTI__NCCL_NAP_US);
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
               "the abort of NCCL on device %d has not returned; until it does, no memory and no "
               "stream of the device is freed",
               device);
}

int tutti__nccl_is_stuck(int device)
{
    return atomic_load(count_of(device)) > 0;
}
