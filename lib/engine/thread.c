/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's own thread. It makes progress while no thread waits, and watches sockets, stalls,
 * and transports that advance only when polled (MPI, devices). No other thread sleeps on the
 * doorbell, or on the descriptor of UCX for the engine's messages. If this thread wakes while
 * another thread works, it sleeps again.
 */
#include "engine/steps.h"

#include "base/constants.h"
#include "base/own_thread.h"
#include "base/time.h"
#include "engine/own_deadline.h"
#include "engine/wait.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

/* The thread's state from one round of work to the next. */
typedef struct {
    int owns;          /* this thread had the token */
    uint32_t moves;    /* tutti__lanes_moves */
    uint64_t moved_ns; /* since when polled work has not moved; 0: it has just moved */
} pace_t;

/* The event that has ended a sleep. */
typedef enum {
    TIME,  /* the timeout, a signal, or a message and nothing else */
    ALARM, /* tutti__engine_ring_later */
    BELL   /* the doorbell, or a readable socket */
} wake_t;

/*
 * Sleep until the doorbell rings, a socket is readable, or the alarm goes off. If `far` is not
 * NULL, a message of this transport also ends the sleep. Before this function returns BELL, it
 * empties the doorbell and sets `news`: the token's next owner may be another thread, and must poll
 * everything.
 *
 * ppoll is used, because it takes its timeout in microseconds on every kernel. Tried: epoll_pwait2.
 * Seccomp filters of older containers refuse it with EPERM: the thread spun, used half of a
 * processor, and detected no deaths.
 * Tried: waiters sleep here as well. A waiter emptied a doorbell that was rung for the thread, and
 * the thread emptied a doorbell that was rung for a waiter: 70 ms a step in the example trainer
 * instead of 2.
 */
static wake_t sleep_bell(tutti__engine_t *e, tutti__xport_t *far, int64_t timeout_us)
{
    struct timespec timeout = { timeout_us / 1000000, timeout_us % 1000000 * 1000 };
    struct pollfd events = { .fd = e->epfd, .events = POLLIN };
    uint64_t count;

    if (far != NULL ? !far->ops->sleep(far, e->epfd, timeout_us)
                    : ppoll(&events, 1, timeout_us < 0 ? NULL : &timeout, NULL) <= 0)
        return TIME;
    /* If the doorbell has rung as well, or a socket is readable, the next sleep ends at once. */
    if (atomic_load(&e->alarmed) && read(e->alarm, &count, sizeof(count)) > 0) {
        atomic_exchange(&e->alarmed, 0);
        return ALARM;
    }
    if (read(e->env.machine->doorbell[e->env.machine->me], &count, sizeof(count)) < 0)
        errno = 0;
    atomic_store(&e->news, 1);
    return BELL;
}

/* Have the operations in the lanes advanced since the last round? */
static int has_advanced(tutti__engine_t *e, pace_t *pace)
{
    uint32_t moves = tutti__lanes_moves(&tutti__owned(e)->lanes);
    int advanced = moves != pace->moves;

    pace->moves = moves;
    return advanced;
}

/* Take steps while they make progress. Returns 1 if they made progress. */
static int thread_work(tutti__engine_t *e, pace_t *pace)
{
    int moved, has_moved = 0, advanced = 0;

    do {
        pace->owns = tutti__token_take(&e->token);
        if (!pace->owns)
            break;
        do {
            tutti__stalls_check(&tutti__owned(e)->stalls);
            tutti__overdue_check(&tutti__owned(e)->agreed, &e->pending);
            if (tutti__queued_check(&e->env, &tutti__owned(e)->queued_ns))
                atomic_store(&e->news, 1); /* the next step polls the sockets */
            tutti__semaphore_check(&tutti__owned(e)->semaphores);
            moved = tutti__engine_step(e, TUTTI__STEP_THREAD);
            has_moved |= moved;
            advanced |= has_advanced(e, pace);
        } while (moved && !atomic_load(&e->pending.callbacks) && !atomic_load(&e->token.wanted));
        /* Callbacks are called after the token is given back. */
        tutti__engine_yield(e, TUTTI__STEP_THREAD);
    } while (moved);
    if (!has_moved)
        tutti__engine_push(e);
    if (has_moved || advanced || !pace->owns)
        pace->moved_ns = 0;
    return has_moved;
}

/* Set the time to the next alarm. is_vain: this alarm was not needed, because the thread found no
   work, or another thread has the token. This shows a program that waits soon after it submits. */
static void set_alarm_us(tutti__engine_t *e, int is_vain)
{
    uint32_t us = atomic_load_explicit(&e->alarm_us, memory_order_relaxed);

    us = is_vain ? TUTTI__MIN(2 * us, TUTTI__ALARM_MOST_US) : TUTTI__ALARM_US;
    atomic_store_explicit(&e->alarm_us, us, memory_order_relaxed);
}

/* How long to sleep, in microseconds, while work in flight must be polled. *ret_far: the transport
   whose messages end the sleep. It is not set while another thread polls. */
static int64_t poll_nap(const tutti__engine_t *e, pace_t *pace, tutti__xport_t **ret_far)
{
    uint64_t now = tutti__now_ns();

    if (pace->moved_ns == 0)
        pace->moved_ns = now;
    if (!pace->owns)
        return TUTTI__TAKEN_NAP_US;
    if (e->far != NULL && e->far->ops->sleep != NULL)
        *ret_far = e->far;
    return tutti__poll_nap_us(e, now - pace->moved_ns);
}

/* The shorter of two sleeps; -1: a sleep without a limit. */
static int64_t sooner(int64_t a, int64_t b)
{
    if (a < 0 || b < 0)
        return TUTTI__MAX(a, b);
    return TUTTI__MIN(a, b);
}

static void *thread_main(void *arg)
{
    tutti__engine_t *e = arg;
    pace_t pace = { .owns = 1 };
    int busy = 0, missed = 0, moved;

    tutti__thread_set_own();
    while (!atomic_load(&e->stop)) {
        int64_t nap = tutti__stalls_nap_us(e->env.conf, &e->signals);
        tutti__xport_t *far = NULL;
        wake_t wake;
        int polls;

        nap = sooner(nap, tutti__queued_nap_us(&e->env));
        nap = sooner(nap, tutti__overdue_nap_us(&e->pending));
        if (missed)
            nap = sooner(nap, TUTTI__TAKEN_NAP_US);
        /* Do not spin on a socket that stays readable until the working thread reads it. */
        if (busy)
            usleep(TUTTI__BUSY_NAP_US);
        polls = atomic_load(&e->signals.polling);
        if (polls)
            nap = poll_nap(e, &pace, &far);
        else if ((tutti__pending_count(&e->pending) > 0 || atomic_load(&e->signals.plans)) &&
                 (nap < 0 || nap > TUTTI__TICK_MS * 1000))
            nap = TUTTI__TICK_MS * 1000;
        wake = sleep_bell(e, far, nap);
        if (wake == BELL || !polls)
            pace.moved_ns = 0;
        moved = thread_work(e, &pace);
        if (wake == ALARM)
            set_alarm_us(e, !pace.owns || (!moved && !atomic_load(&e->signals.polling)));
        busy = !pace.owns && wake == BELL;
        /* Another thread has the token. It may leave work without setting the timer, because
           `alarmed` was set until this thread read the alarm. So this thread tries again after
           TAKEN_NAP_US. From now on, a thread that leaves work sets the timer. This thread does not
           set the timer: it would wake every ALARM_US during a long wait, and each time take the
           processor from the waiter. */
        missed = !pace.owns && wake == ALARM;
    }
    return NULL;
}

int tutti__thread_is_needed(const tutti__engine_t *e)
{
    return e->size > 1 || e->env.exec->device != NULL;
}

/* The thread blocks all signals: they belong to the application. */
tutti_status_t tutti__thread_start(tutti__engine_t *e)
{
    int error;

    if (!tutti__thread_is_needed(e))
        return TUTTI_OK;
    /* Set has_thread before other threads read it. tutti__thread_stop does not clear it, because
       other threads may still read it. */
    e->has_thread = 1;
    error = tutti__thread_launch(thread_main, e, &e->thread);
    if (error != 0) {
        e->has_thread = 0;
        errno = error;
        return tutti__fail_errno("the engine's thread");
    }
    pthread_setname_np(e->thread, "tutti");
    return TUTTI_OK;
}

void tutti__thread_stop(tutti__engine_t *e)
{
    if (!e->has_thread)
        return;
    atomic_store(&e->stop, 1);
    tutti__engine_ring_self(e);
    pthread_join(e->thread, NULL);
}
