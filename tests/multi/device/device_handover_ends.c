/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TUTTI_STREAM_WAIT=device when a communicator ends: no stream may wait for ever if a rank dies, is
 * late, or frees the communicator. Work of the caller's own that takes long is not late.
 */
#include "multi/device/handover.h"

#include "base/time.h"
#include "engine/state.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- stall warnings ---- */

static atomic_int reports[PRETEND_DEVICES]; /* stall warnings about a device's work */

/* Receives the log of this process, which has all ranks. */
static void count_reports(void *arg, tutti_log_level_t level, const char *text)
{
    const char *at = strstr(text, ": the work of bucket ");
    unsigned bucket, device = PRETEND_DEVICES;

    (void)arg;
    (void)level;
    if (at != NULL)
        sscanf(at, ": the work of bucket %u has been queued on device %u for", &bucket, &device);
    if (device < PRETEND_DEVICES)
        atomic_fetch_add(&reports[device], 1);
    else
        fprintf(stderr, "%s\n", text);
}

/* ---- the end ---- */

/* The communicator is freed while the caller's own work lasts longer than the deadline. This must
   not be reported as an error of a peer. */
static void freed_late(rank_t *self)
{
    pthread_t opener;
    tutti_comm_t *comm;
    tutti_call_t call;
    tutti_request_t *request;
    user_t u;

    handover_begin(&u, self);
    CHECK_OK(tutti_comm_split(self->comm, 0, self->rank, &comm));
    gate_close(self);
    gate_put(&u);
    handover_put(&u, 0);
    call = ranks_sum("late", handover_slot(&u, 0), COUNT);
    CHECK_OK(tutti_cuda_submit(&call, 1, comm, user_stream(&u), &request));
    CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
    ranks_set_deadline(self, comm, SHORT_MS);
    CHECK_INT(pthread_create(&opener, NULL, gate_open_later, NULL), 0);
    CHECK_OK(tutti_comm_free(comm));
    CHECK_INT(pthread_join(opener, NULL), 0);
    handover_get(&u, 0);
    user_wait(&u);
    handover_verify(&u, 0, 1);
    user_end(&u);
}

/* The communicator is freed while the host still has work to do. A rank that joins has no pending
   requests. */
static void freed(rank_t *self)
{
    tutti_request_t *request;
    tutti_comm_t *comm;
    tutti_status_t status;
    tutti_call_t call;
    uint64_t begun;
    int last;
    user_t u;

    handover_begin(&u, self);
    for (int t = 0; t < 2; t++) {
        CHECK_OK(tutti_comm_split(self->comm, 0, self->rank, &comm));
        handover_put(&u, t);
        user_wait(&u);
        CHECK_OK(tutti_barrier(self->comm));
        pretend_rates(COUNT * sizeof(float) * 5, 0); /* 0.2 s for each copy */
        call = ranks_sum("x", handover_slot(&u, t), COUNT);
        begun = tutti__now_ns();
        CHECK_OK(tutti_cuda_submit(&call, 1, comm, user_stream(&u), &request));
        CHECK_OK(tutti_cuda_wait(request, -1, user_stream(&u)));
        status = user_look(&u);
        /* If more time has passed, this rank itself was late, and nothing can be checked. */
        if (tutti__now_ns() - begun < 200000000u)
            CHECK_INT(status, TUTTI__AGAIN);
        if (t == 1)
            CHECK_OK(tutti_join(comm, &last));
        CHECK_OK(tutti_comm_free(comm));
        pretend_rates(0, 0);
        handover_get(&u, t);
        user_wait(&u);
        handover_verify(&u, t, 1);
    }
    user_end(&u);
}

/* Wait until the communicator has ended by itself. */
static void check_ends(rank_t *self, tutti_status_t expected, const char *words)
{
    uint64_t limit = tutti__now_ns() + 50000000000u;
    tutti_status_t status;

    while ((status = tutti__watch_alive(self->inside->watch)) == TUTTI_OK &&
           tutti__now_ns() < limit)
        usleep(1000);
    CHECK_STATUS(tutti_barrier(self->comm), expected);
    CHECK_WORDS(words);
}

typedef enum {
    BY_ABORT,
    BY_SIGNAL,
    BY_DEADLINE
} how_t;

/* Work in the stream continues when the communicator dies. */
static void dies(rank_t *self, how_t how, tutti_status_t expected, const char *words)
{
    tutti_call_t call;
    user_t u;

    handover_begin(&u, self);
    gate_close(self);
    if (self->rank == 1)
        gate_put(&u);
    handover_put(&u, 0);
    call = ranks_sum("lost", handover_slot(&u, 0), COUNT);
    hand_over(&u, &call);
    CHECK_OK(tutti_barrier(self->comm));
    if (how == BY_DEADLINE)
        ranks_set_deadline(self, self->comm, SHORT_MS);
    if (self->rank == 0) {
        usleep(SOON_US);
        CHECK_INT(user_look(&u), TUTTI__AGAIN);
        if (how == BY_ABORT)
            tutti_abort(self->comm, "enough");
    }
    if (self->rank == 1 && how == BY_SIGNAL) {
        usleep(20 * SOON_US);
        kill(getpid(), SIGKILL);
    }
    check_ends(self, expected, words);
    if (self->rank == 0)
        user_wait(&u);
    atomic_store(&gate_opened, 1);
    user_drop(&u);
}

static void aborted(rank_t *self)
{
    dies(self, BY_ABORT, TUTTI_ERR_PEER_LOST, "enough");
}

static void killed(rank_t *self)
{
    dies(self, BY_SIGNAL, TUTTI_ERR_PEER_LOST, "rank 1 was lost");
}

/* Rank 1's data do not arrive. */
static void late(rank_t *self)
{
    dies(self, BY_DEADLINE, TUTTI_ERR_TIMEOUT, "s for tensor 'lost': rank");
}

/* The caller's own work takes long on all ranks: longer than the deadline, or until there are
   `wanted` reports of this rank's device. This is allowed. */
static void slow(rank_t *self, int wanted)
{
    tutti_call_t call;
    user_t u;

    handover_begin(&u, self);
    gate_close(self);
    gate_put(&u);
    handover_put(&u, 0);
    call = ranks_sum("slow", handover_slot(&u, 0), COUNT);
    hand_over(&u, &call);
    if (wanted == 0) {
        ranks_set_deadline(self, self->comm, SHORT_MS);
        usleep(4700000); /* the deadline, and everything that is added to it */
        ranks_set_deadline(self, self->comm, LONG_MS);
    }
    for (int i = 0; i < 40000 && atomic_load(&reports[self->rank]) < wanted; i++)
        usleep(1000);
    CHECK(atomic_load(&reports[self->rank]) >= wanted);
    CHECK_INT(user_look(&u), TUTTI__AGAIN);
    CHECK_OK(tutti_barrier(self->comm));
    atomic_store(&gate_opened, 1);
    handover_get(&u, 0);
    user_wait(&u);
    handover_verify(&u, 0, 1);
    user_end(&u);
}

static void slow_input(rank_t *self)
{
    slow(self, 0);
}

/* All requests are handed over, so no request waits. Each rank warns again and again. */
static void reported(rank_t *self)
{
    slow(self, 2);
}

static void warning_settings(tutti__conf_t *conf, int rank)
{
    handover_settings(conf, rank);
    conf->shared.stall_ms = 200;
}

int main(void)
{
    int failures = 0;

    failures += handover_run(freed_late, "ab", handover_settings, 0);
    failures += handover_run(freed, "aab", handover_settings, 0);
    failures += handover_run(aborted, "aab", handover_settings, 0);
    failures += handover_run(aborted, "ab", handover_settings, 0);
    failures += handover_run(late, "aab", handover_settings, 0);
    failures += handover_run(slow_input, "aab", handover_settings, 0);
    failures += tutti_log_set_callback(count_reports, NULL) != TUTTI_OK;
    failures += handover_run(reported, "aa", warning_settings, 0);
    failures += tutti_log_set_callback(NULL, NULL) != TUTTI_OK;
    if (ranks_can_fork())
        failures += handover_run(killed, "aba", handover_settings, 1 << 1);
    return failures != 0;
}
