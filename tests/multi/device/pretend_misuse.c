/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tests plant misuse that would make NCCL hang: the pretended NCCL reports it on all ranks, and
 * its work ends.
 */
#include "pretend_job.h"

#include <pthread.h>
#include <string.h>

/* The last rank makes a different call from the other ranks. */
static void differ(rank_t *self, const tutti__nccl_call_t *theirs, const char *words)
{
    tutti__nccl_call_t call;
    plant_t p;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    call.kind = TUTTI__NCCL_REDUCE;
    CHECK_OK(gpu_call(&p.gpu, &call, 1));
    if (self->rank == self->size - 1) {
        call = *theirs;
        call.src = call.dst = p.buf;
    }
    if (plant_launch(&p, &call))
        gpu_expect_event(&p.gpu, words);
    gpu_expect(&p.gpu, p.gpu.nccl, words);
    /* The communicator has failed permanently. */
    CHECK_STATUS(p.gpu.ops->nccl_call(p.gpu.nccl, &call, 1, p.gpu.stream), TUTTI_ERR_TRANSPORT);
    plant_end(&p);
}

#define REDUCE(kind, count, dtype, op, root)                                                       \
    {                                                                                              \
        kind, NULL, NULL, count, dtype, op, root                                                   \
    }

static void other_kind(rank_t *self)
{
    tutti__nccl_call_t call = REDUCE(TUTTI__NCCL_ALLREDUCE, PLANT_COUNT, TUTTI_INT32, TUTTI_SUM, 0);

    differ(self, &call, "allreduce of 100");
}

static void other_count(rank_t *self)
{
    tutti__nccl_call_t call =
        REDUCE(TUTTI__NCCL_REDUCE, PLANT_COUNT - 1, TUTTI_INT32, TUTTI_SUM, 0);

    differ(self, &call, "reduce of 99");
}

static void other_type(rank_t *self)
{
    tutti__nccl_call_t call = REDUCE(TUTTI__NCCL_REDUCE, PLANT_COUNT, TUTTI_FLOAT32, TUTTI_SUM, 0);

    differ(self, &call, "of type 11");
}

static void other_op(rank_t *self)
{
    tutti__nccl_call_t call = REDUCE(TUTTI__NCCL_REDUCE, PLANT_COUNT, TUTTI_INT32, TUTTI_MAX, 0);

    differ(self, &call, "op 4");
}

static void other_root(rank_t *self)
{
    tutti__nccl_call_t call = REDUCE(TUTTI__NCCL_REDUCE, PLANT_COUNT, TUTTI_INT32, TUTTI_SUM, 1);

    differ(self, &call, "root 1");
}

static void message_not_collective(rank_t *self)
{
    tutti__nccl_call_t call = REDUCE(TUTTI__NCCL_RECV, PLANT_COUNT, TUTTI_INT32, TUTTI_SUM, 0);

    differ(self, &call, "the peer is in a collective call");
}

/* Rank 0 and rank 1 make two calls that do not match. */
static void pair(rank_t *self, tutti__nccl_kind_t kind, tutti__nccl_kind_t other, size_t count,
                 const char *words)
{
    tutti__nccl_call_t call;
    plant_t p;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    call.kind = self->rank == 0 ? kind : other;
    call.count = self->rank == 0 ? PLANT_COUNT : count;
    call.root = self->rank == 0;
    if (self->rank < 2 && plant_launch(&p, &call))
        gpu_expect_event(&p.gpu, words);
    gpu_expect(&p.gpu, p.gpu.nccl, words);
    plant_end(&p);
}

static void both_send(rank_t *self)
{
    pair(self, TUTTI__NCCL_SEND, TUTTI__NCCL_SEND, PLANT_COUNT, "and the peer sends, too");
}

static void both_receive(rank_t *self)
{
    pair(self, TUTTI__NCCL_RECV, TUTTI__NCCL_RECV, PLANT_COUNT, "and the peer receives, too");
}

static void other_length(rank_t *self)
{
    pair(self, TUTTI__NCCL_SEND, TUTTI__NCCL_RECV, PLANT_COUNT + 1, "recv of 101 from rank 0");
}

/* Rank 0 makes the next call before nccl_poll has returned OK. */
static void not_polled(rank_t *self)
{
    tutti__nccl_call_t call;
    plant_t p;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    if (self->rank == 0) {
        CHECK_OK(p.gpu.ops->nccl_call(p.gpu.nccl, &call, 1, p.gpu.stream));
        CHECK_STATUS(p.gpu.ops->nccl_poll(p.gpu.nccl), TUTTI__AGAIN);
        CHECK_STATUS(p.gpu.ops->nccl_call(p.gpu.nccl, &call, 1, p.gpu.stream), TUTTI_ERR_TRANSPORT);
    } else if (plant_launch(&p, &call)) {
        gpu_expect_event(&p.gpu, "before nccl_poll was OK");
    }
    gpu_expect(&p.gpu, p.gpu.nccl, "before nccl_poll was OK");
    plant_end(&p);
}

/* As not_polled, but rank 0 records an event. The call has queued no work so far that this event
   could follow. */
static void recorded_before_poll(rank_t *self)
{
    tutti__nccl_call_t call;
    plant_t p;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    if (self->rank == 0) {
        CHECK_OK(p.gpu.ops->nccl_call(p.gpu.nccl, &call, 1, p.gpu.stream));
        CHECK_STATUS(p.gpu.ops->record(p.gpu.event, p.gpu.stream), TUTTI_ERR_TRANSPORT);
    } else if (plant_launch(&p, &call)) {
        gpu_expect_event(&p.gpu, "record: nccl_poll has not said");
    }
    gpu_expect(&p.gpu, p.gpu.nccl, "record: nccl_poll has not said");
    plant_end(&p);
}

static void not_open(rank_t *self)
{
    tutti__nccl_id_t id;
    tutti__nccl_call_t call;
    tutti__nccl_t *nccl;
    plant_t p;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    gpu_id(&p.gpu, &id);
    /* The other ranks do not open theirs, so the communicator does not become ready. No call waits
       for this. */
    if (self->rank == 0) {
        CHECK_OK(p.gpu.ops->nccl_open(&id, 0, (uint32_t)self->size, 0, &nccl));
        for (int i = 0; i < 10; i++)
            CHECK_STATUS(p.gpu.ops->nccl_poll(nccl), TUTTI__AGAIN);
        CHECK_STATUS(p.gpu.ops->nccl_call(nccl, &call, 1, p.gpu.stream), TUTTI_ERR_TRANSPORT);
        CHECK_STATUS(p.gpu.ops->nccl_open(&id, 0, (uint32_t)self->size, 0, &nccl),
                     TUTTI_ERR_TRANSPORT);
        p.gpu.ops->nccl_abort(nccl);
    }
    plant_end(&p);
}

static void *poll_too(void *arg)
{
    plant_t *p = arg;

    CHECK_OK(p->gpu.ops->use(p->gpu.rank->rank));
    usleep(10000);
    CHECK_STATUS(p->gpu.ops->nccl_poll(p->gpu.nccl), TUTTI_ERR_TRANSPORT);
    return NULL;
}

/* Two threads of rank 0 make a call at the same time. */
static void two_threads(rank_t *self)
{
    tutti__nccl_call_t call;
    pthread_t thread;
    plant_t p;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    if (self->rank == 0) {
        pretend_slow_calls(500000);
        CHECK_INT(pthread_create(&thread, NULL, poll_too, &p), 0);
        /* If the other thread's call was first, this call may fail. */
        (void)p.gpu.ops->nccl_call(p.gpu.nccl, &call, 1, p.gpu.stream);
        pthread_join(thread, NULL);
        pretend_slow_calls(0);
    }
    /* The later of the two calls reports the misuse. */
    gpu_expect(&p.gpu, p.gpu.nccl, "another thread of device 0");
    plant_end(&p);
}

/* Two communicators in one stream; the last rank uses the other order. */
static void crossed(rank_t *self)
{
    int is_last = self->rank == self->size - 1;
    tutti__nccl_t *pair[2];
    tutti__nccl_call_t call;
    int failed = 0;
    plant_t p;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    pair[is_last] = p.gpu.nccl;
    pair[!is_last] = gpu_open(&p.gpu);
    for (int i = 0; i < 2; i++) {
        if (p.gpu.ops->nccl_call(pair[i], &call, 1, p.gpu.stream) != TUTTI_OK ||
            gpu_poll(&p.gpu, pair[i]) != TUTTI_OK)
            failed = 1;
    }
    (void)failed;
    /* One of the two communicators has failed, and all work ends. */
    while (p.gpu.ops->nccl_poll(pair[0]) != TUTTI_ERR_TRANSPORT &&
           p.gpu.ops->nccl_poll(pair[1]) != TUTTI_ERR_TRANSPORT)
        usleep(50);
    CHECK(strstr(tutti_last_error(), "was launched before collective") != NULL);
    CHECK(gpu_finish(&p.gpu) == TUTTI_ERR_TRANSPORT || failed);
    CHECK_OK(tutti_barrier(self->comm));
    p.gpu.ops->nccl_close(pair[!is_last]);
    plant_end(&p);
}

/* A message and a collective in one group. */
static void mixed(rank_t *self)
{
    tutti__nccl_call_t calls[2];
    plant_t p;

    plant_begin(&p, self);
    calls[0] = calls[1] = plant_allreduce(&p);
    calls[1].kind = self->rank == 0 ? TUTTI__NCCL_SEND : TUTTI__NCCL_RECV;
    calls[1].root = (uint32_t)(self->rank + 1) % 2;
    CHECK_STATUS(p.gpu.ops->nccl_call(p.gpu.nccl, calls, 2, p.gpu.stream), TUTTI_ERR_TRANSPORT);
    CHECK(strstr(tutti_last_error(), "messages and collectives in one call") != NULL);
    plant_end(&p);
}

/* On rank 0 a buffer is too short; the other ranks get the error. */
static void short_buffer(rank_t *self)
{
    tutti__nccl_call_t call;
    plant_t p;

    plant_begin(&p, self);
    call = plant_allreduce(&p);
    call.count = self->rank == 0 ? (size_t)self->size * 2 * PLANT_COUNT + 1 : PLANT_COUNT;
    if (plant_launch(&p, &call) && self->rank != 0)
        gpu_expect_event(&p.gpu, "leave allocation");
    gpu_expect(&p.gpu, p.gpu.nccl, "leave allocation");
    if (self->rank == 0)
        CHECK_STATUS(p.gpu.ops->query(p.gpu.event), TUTTI_ERR_SYSTEM);
    plant_end(&p);
}

static void refused(rank_t *self)
{
    tutti__nccl_call_t call;
    plant_t p;

    plant_begin(&p, self);
    CHECK(p.gpu.ops->nccl_serves(TUTTI_BFLOAT16, TUTTI_AVG));
    CHECK(!p.gpu.ops->nccl_serves(TUTTI_INT16, TUTTI_SUM));
    CHECK(!p.gpu.ops->nccl_serves(TUTTI_INT32, TUTTI_BXOR));
    call = plant_allreduce(&p);
    call.dtype = TUTTI_INT16;
    CHECK_STATUS(p.gpu.ops->nccl_call(p.gpu.nccl, &call, 1, p.gpu.stream), TUTTI_ERR_TRANSPORT);
    call = plant_allreduce(&p);
    call.kind = TUTTI__NCCL_BROADCAST;
    call.root = (uint32_t)self->size;
    CHECK_STATUS(p.gpu.ops->nccl_call(p.gpu.nccl, &call, 1, p.gpu.stream), TUTTI_ERR_TRANSPORT);
    call = plant_allreduce(&p);
    CHECK_OK(gpu_call(&p.gpu, &call, 1));
    plant_end(&p);
}

int main(void)
{
    static const rank_fn_t plants[] = {
        other_kind, other_count,  other_type,   other_op,     other_root,  message_not_collective,
        both_send,  both_receive, other_length, not_polled,   two_threads, recorded_before_poll,
        not_open,   crossed,      mixed,        short_buffer,
    };
    int failures = run_pretend_jobs(refused, 1);

    for (size_t i = 0; i < sizeof(plants) / sizeof(*plants); i++) {
        int before = failures;

        failures += run_pretend_jobs(plants[i], 2);
        if (failures > before)
            fprintf(stderr, "FAILED: misuse number %zu of the list\n", i);
    }
    return failures != 0;
}
