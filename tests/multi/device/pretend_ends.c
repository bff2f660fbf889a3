/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of the pretended NCCL's work: the work hangs, is aborted, is closed too early, or
 * completes.
 */
#include "pretend_job.h"

#include "base/time.h"

#include <pthread.h>

/* An abort ends hanging work only on its own rank. The other ranks are not informed, and each must
   abort as well. */
static void aborted(rank_t *self)
{
    tutti__nccl_call_t call;
    plant_t p;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    if (self->rank == 1)
        pretend_hang(1, 1);
    CHECK_OK(gpu_call(&p.gpu, &call, 1));
    CHECK(plant_launch(&p, &call));
    usleep(20000);
    CHECK_STATUS(p.gpu.ops->query(p.gpu.event), TUTTI__AGAIN);
    CHECK_OK(tutti_barrier(self->comm));
    for (int r = 0; r < self->size; r++) {
        if (r == self->rank) {
            CHECK_STATUS(p.gpu.ops->query(p.gpu.event), TUTTI__AGAIN);
            CHECK_OK(p.gpu.ops->nccl_poll(p.gpu.nccl));
            p.gpu.ops->nccl_abort(p.gpu.nccl);
            p.gpu.nccl = NULL;
            /* Work that is queued behind the aborted call continues. */
            CHECK_OK(gpu_finish(&p.gpu));
        }
        CHECK_OK(tutti_barrier(self->comm));
    }
    plant_end(&p);
}

static void *abort_later(void *arg)
{
    plant_t *p = arg;

    for (int ms = 0; ms < 10000 && pretend_counts(0, PRETEND_SYNCS_IN_NCCL) == 0; ms++)
        usleep(1000);
    p->gpu.ops->nccl_abort(p->gpu.nccl);
    return NULL;
}

/* A deadlock: an allocation waits for NCCL's work, which waits for a rank. The pretend device
   counts this. */
static void alloc_in_flight(rank_t *self)
{
    tutti__nccl_call_t call;
    pthread_t thread;
    plant_t p;
    void *ptr;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    CHECK_INT(pretend_counts(self->rank, PRETEND_SYNCS_IN_NCCL), 0);
    if (self->rank == 0) {
        CHECK(plant_launch(&p, &call));
        CHECK_INT(pthread_create(&thread, NULL, abort_later, &p), 0);
        CHECK_OK(p.gpu.ops->alloc(1, &ptr));
        CHECK_OK(p.gpu.ops->query(p.gpu.event));
        pthread_join(thread, NULL);
        p.gpu.nccl = NULL;
        CHECK_INT(pretend_counts(0, PRETEND_SYNCS_IN_NCCL), 1);
        p.gpu.ops->free(ptr);
    }
    plant_end(&p);
}

static void closed_busy(rank_t *self)
{
    tutti__nccl_call_t call;
    plant_t p;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    if (self->rank == 0) {
        CHECK(plant_launch(&p, &call));
        p.gpu.ops->nccl_close(p.gpu.nccl);
        p.gpu.nccl = NULL;
        CHECK_INT(pretend_counts(0, PRETEND_CLOSED_BUSY), 1);
    } else {
        gpu_expect(&p.gpu, p.gpu.nccl, "nccl_close before its work was done");
    }
    plant_end(&p);
}

static void paced(rank_t *self)
{
    uint64_t begin_ns;
    tutti__nccl_call_t call;
    plant_t p;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    pretend_rates(0, PLANT_COUNT * sizeof(int) * 20);
    begin_ns = tutti__now_ns();
    CHECK_OK(gpu_call(&p.gpu, &call, 1));
    CHECK(tutti__now_ns() - begin_ns >= 50000000);
    CHECK_OK(tutti_barrier(self->comm));
    pretend_rates(0, 0);
    plant_end(&p);
}

int main(void)
{
    int failures = run_pretend_jobs(aborted, 2);

    failures += run_pretend_jobs(alloc_in_flight, 2);
    failures += run_pretend_jobs(closed_busy, 2);
    failures += run_pretend_jobs(paced, 1);
    return failures != 0;
}
