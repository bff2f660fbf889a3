/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi-cycle: the work of Horovod when all tensors are in its response cache.
 *
 *      program's thread        bits of the tensors that it submits  --> submitted
 *      cycle's thread, every --cycle milliseconds:
 *          collect             submitted --> mine
 *          agree               MPI_Allreduce (BAND) of mine over all ranks --> agreed
 *          fuse                pack agreed tensors, MPI_Allreduce (SUM) in place, scale and unpack
 *          mark as done        wake the program's thread when no tensor is left
 *
 * It is faster than Horovod: a tensor is one bit, so there is no name to look up, and no lock or
 * object per tensor; scaling and unpacking are one pass; a tensor that is alone in the fusion
 * buffer is not copied; the thread's timer slack is 1 ns.
 *
 * Horovod's loop never stops. Here the thread is parked outside this contestant's iterations, so
 * that it does not disturb the other contestants. Only one thread at a time calls MPI: the
 * program's thread before it submits and after all tensors are done, otherwise the cycle's thread.
 * The cycle that completes the last tensor is the same on all ranks. A real program submits at any
 * time of a cycle. So each iteration draws the time at which the thread's next cycle begins; all
 * ranks draw the same time.
 */
#include "gradients/gradients.h"
#include "harness/peers.h"

#ifdef HAVE_MPI

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    WORD_BITS = 64
};

struct gradients_cycle {
    const gradients_run_t *run;
    size_t words; /* of a bit vector */
    pthread_t thread;

    pthread_mutex_t lock; /* protects the next five fields */
    pthread_cond_t wake, done;
    uint64_t next_ns; /* when the next cycle begins; the thread reads it in park() */
    int is_armed;     /* the thread's cycles run */
    int must_end;

    atomic_int has_begun;        /* the program's thread submits, and does not call MPI */
    _Atomic uint64_t *submitted; /* [words] release pairs with the acquire in collect */
    /* Tensors of this iteration that are not done. Release pairs with the acquire in wait_spin. */
    atomic_size_t left;

    /* Only the cycle's thread uses these. */
    uint64_t *mine;   /* [words] collected, and not agreed yet */
    uint64_t *agreed; /* [words] in this cycle */
    int *list;        /* [tensors] the numbers of the tensors in `agreed` */
};

static const gradient_t *tensor(const gradients_cycle_t *c, size_t i)
{
    return &c->run->gradients.all[c->list[i]];
}

static size_t bytes_of(const gradients_cycle_t *c, size_t i)
{
    return tensor(c, i)->count * c->run->bench->options.type->bytes;
}

/* ---- the thread: one cycle ---- */

static void collect(gradients_cycle_t *c)
{
    for (size_t w = 0; w < c->words; w++) {
        if (atomic_load_explicit(&c->submitted[w], memory_order_relaxed) != 0)
            c->mine[w] |= atomic_exchange_explicit(&c->submitted[w], 0, memory_order_acquire);
    }
}

/* Returns the number of tensors that all ranks have submitted, and lists them in bit order. */
static size_t agree(gradients_cycle_t *c)
{
    size_t n = 0;

    if (MPI_Allreduce(c->mine, c->agreed, (int)c->words, MPI_UINT64_T, MPI_BAND, MPI_COMM_WORLD) !=
        MPI_SUCCESS) {
        fprintf(stderr, "rank %d: MPI_Allreduce of a bit vector failed\n",
                c->run->bench->world.rank);
        bench_stop(&c->run->bench->world);
    }
    for (size_t w = 0; w < c->words; w++) {
        c->mine[w] &= ~c->agreed[w];
        for (uint64_t bits = c->agreed[w]; bits != 0; bits &= bits - 1)
            c->list[n++] = (int)(w * WORD_BITS) + __builtin_ctzll(bits);
    }
    return n;
}

static void reduce(const gradients_cycle_t *c, void *data, size_t bytes)
{
    if (gradients_mpi_sum(c->run, data, bytes) != 0)
        bench_stop(&c->run->bench->world);
}

/* Reduces the agreed tensors [from, to), which fit into the fusion buffer together. */
static void reduce_filling(const gradients_cycle_t *c, size_t from, size_t to)
{
    char *at = c->run->fusion;

    for (size_t i = from; i < to; i++) {
        memcpy(at, gradients_place(c->run, tensor(c, i)), bytes_of(c, i));
        at += bytes_of(c, i);
    }
    reduce(c, c->run->fusion, (size_t)(at - c->run->fusion));
    at = c->run->fusion;
    for (size_t i = from; i < to; i++) {
        gradients_mpi_unpack(c->run, gradients_place(c->run, tensor(c, i)), at,
                             tensor(c, i)->count);
        at += bytes_of(c, i);
    }
}

static void reduce_alone(const gradients_cycle_t *c, size_t i)
{
    void *data = gradients_place(c->run, tensor(c, i));

    reduce(c, data, bytes_of(c, i));
    gradients_mpi_unpack(c->run, data, data, tensor(c, i)->count);
}

static void reduce_agreed(const gradients_cycle_t *c, size_t n)
{
    size_t to;

    for (size_t from = 0; from < n; from = to) {
        size_t used = bytes_of(c, from);

        for (to = from + 1; to < n && used + bytes_of(c, to) <= c->run->options->fusion_bytes; to++)
            used += bytes_of(c, to);
        if (to - from > 1)
            reduce_filling(c, from, to);
        else
            reduce_alone(c, from);
    }
}

/* All tensors are done, on all ranks. From now on the program's thread may call MPI. */
static void finish(gradients_cycle_t *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_armed = 0;
    atomic_store_explicit(&c->has_begun, 0, memory_order_relaxed);
    atomic_store_explicit(&c->left, 0, memory_order_release);
    pthread_cond_signal(&c->done);
    pthread_mutex_unlock(&c->lock);
}

/* Returns the number of tensors that are left. */
static size_t one_cycle(gradients_cycle_t *c, size_t left)
{
    size_t n;

    collect(c);
    n = agree(c);
    reduce_agreed(c, n);
    if (n == left)
        finish(c);
    else
        atomic_store_explicit(&c->left, left - n, memory_order_release);
    return left - n;
}

/* ---- the thread: its cycles ---- */

/* Waits until the next cycle begins: at `next_ns`, or at once if the last cycle took longer.
   Returns the present time. */
static uint64_t sleep_until(uint64_t next_ns)
{
    struct timespec until = { (time_t)(next_ns / 1000000000u), (long)(next_ns % 1000000000u) };

    if (bench_now_ns() >= next_ns) {
        sched_yield();
    } else {
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
        }
    }
    return bench_now_ns();
}

/* Waits until an iteration is about to begin. Returns the time at which the next cycle begins; 0:
   the thread must end. */
static uint64_t park(gradients_cycle_t *c)
{
    uint64_t next_ns;

    pthread_mutex_lock(&c->lock);
    while (!c->is_armed && !c->must_end)
        pthread_cond_wait(&c->wake, &c->lock);
    next_ns = c->must_end ? 0 : c->next_ns;
    pthread_mutex_unlock(&c->lock);
    return next_ns;
}

static void *work(void *arg)
{
    gradients_cycle_t *c = arg;
    uint64_t next_ns;

    prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul); /* by default a sleep may end 50 us late */
    while ((next_ns = park(c)) != 0) {
        size_t left = c->run->gradients.n;

        while (left > 0) {
            next_ns = sleep_until(next_ns) + c->run->options->cycle_ns;
            /* Before has_begun is set, the program's thread may call MPI: the harness's barrier. */
            if (atomic_load_explicit(&c->has_begun, memory_order_acquire))
                left = one_cycle(c, left);
        }
    }
    return NULL;
}

/* ---- the program's thread ---- */

static void wait_asleep(gradients_cycle_t *c)
{
    pthread_mutex_lock(&c->lock);
    while (atomic_load_explicit(&c->left, memory_order_relaxed) > 0)
        pthread_cond_wait(&c->done, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void wait_spin(gradients_cycle_t *c)
{
    while (atomic_load_explicit(&c->left, memory_order_acquire) > 0)
        sched_yield();
}

int gradients_cycle(const gradients_run_t *run, uint64_t start_ns)
{
    gradients_cycle_t *c = run->cycle;

    atomic_store_explicit(&c->has_begun, 1, memory_order_release);
    for (size_t i = 0; i < run->gradients.n; i++) {
        int bit = (int)(gradients_next(run, i, start_ns) - run->gradients.all);

        atomic_fetch_or_explicit(&c->submitted[bit / WORD_BITS], UINT64_C(1) << bit % WORD_BITS,
                                 memory_order_release);
    }
    if (run->options->spin)
        wait_spin(c);
    else
        wait_asleep(c);
    return 0;
}

/* All ranks draw the same phase of the cycle. */
void gradients_cycle_ready(gradients_run_t *run)
{
    gradients_cycle_t *c = run->cycle;
    uint64_t phase_ns = bench_draw(&run->bench->random, run->options->cycle_ns + 1);

    pthread_mutex_lock(&c->lock);
    c->next_ns = bench_now_ns() + phase_ns;
    c->is_armed = 1;
    atomic_store_explicit(&c->left, run->gradients.n, memory_order_relaxed);
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

void gradients_cycle_open(gradients_run_t *run)
{
    gradients_cycle_t *c = bench_allocate(1, sizeof(*c));
    int level = MPI_THREAD_SINGLE;

    MPI_Query_thread(&level);
    c->run = run;
    c->words = (run->gradients.n + WORD_BITS - 1) / WORD_BITS;
    c->submitted = bench_allocate(c->words, sizeof(*c->submitted));
    c->mine = bench_allocate(c->words, sizeof(*c->mine));
    c->agreed = bench_allocate(c->words, sizeof(*c->agreed));
    c->list = bench_allocate(run->gradients.n, sizeof(*c->list));
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    pthread_cond_init(&c->done, NULL);
    run->cycle = c;
    if (level >= MPI_THREAD_SERIALIZED && pthread_create(&c->thread, NULL, work, c) == 0)
        return;
    fprintf(stderr, "rank %d: mpi-cycle: %s\n", run->bench->world.rank,
            level < MPI_THREAD_SERIALIZED ? "MPI has no MPI_THREAD_SERIALIZED" : "no thread");
    bench_stop(&run->bench->world);
}

void gradients_cycle_close(gradients_run_t *run)
{
    gradients_cycle_t *c = run->cycle;

    pthread_mutex_lock(&c->lock);
    c->must_end = 1;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->done);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    free(c->submitted);
    free(c->mine);
    free(c->agreed);
    free(c->list);
    free(c);
    run->cycle = NULL;
}

#endif
