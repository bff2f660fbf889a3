/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread that calls the program's log callback.
 *
 * The library logs while it holds mutexes, or the engine's token (engine/token.h). Suppose that the
 * logging thread called the callback, and the callback took a lock of the program. Another thread
 * of the program may hold this lock while it waits, inside a Tutti call, for the mutex or the
 * token: a deadlock. So a message is put into a list, and a thread that holds neither a mutex nor
 * the token calls the callback. This thread exists while there is a callback.
 *
 *      any thread: put ---> list ---> this thread: callback(arg, level, text)
 *
 * Rejected: the logging thread calls the callback when it has released its last lock. Each lock and
 * the token would need a hook. If a direct call waits for a peer, the warning about this wait would
 * be delivered only after the call.
 */
#include "base/log_callback.h"

#include "base/forked.h"
#include "base/lock.h"
#include "base/own_thread.h"
#include "base/status.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAME(name)                                                                                 \
    _Static_assert((int)TUTTI_LOG_##name == (int)TUTTI__LOG_##name, #name " has two numbers")
SAME(ERROR);
SAME(WARN);
SAME(INFO);
SAME(DEBUG);
SAME(TRACE);
SAME(DATA);

typedef struct line line_t;

struct line {
    line_t *next;
    tutti_log_callback_t callback; /* the callback at the time of logging */
    void *arg;
    tutti_log_level_t level;
    unsigned dropped_after; /* messages dropped after this one because the list was full */
    char text[];
};

/* Each process has one queue. A forked child makes a new queue, because threads of the parent may
   have held the locks of the parent's queue. */
typedef struct queue queue_t;

struct queue {
    queue_t *parents; /* the parent process's queue; never read, only for leak checkers */
    unsigned generation;
    tutti__mutex_t change_lock; /* held during each change of the callback */
    int has_thread;             /* under change_lock */
    pthread_t thread;

    tutti__mutex_t lock;  /* protects the fields below; no other lock is taken under it */
    pthread_cond_t moved; /* a line was put or delivered, or `stop` was set */
    tutti_log_callback_t callback;
    void *arg;
    line_t *first, *last;
    unsigned waiting;
    uint64_t put, delivered; /* how many lines so far */
    int stop;
};

/* Release pairs with the acquire in find. */
static queue_t *_Atomic the_queue;
/* In the thread that calls the callback: 1 + the fork generation in which this thread was started.
   In all other threads: 0. */
static _Thread_local unsigned called_in;

/* Returns 1 in the thread that calls the callback. In a child forked inside the callback: 0. */
static int is_mine(void)
{
    return called_in != 0 && called_in == 1 + tutti__fork_generation();
}

/* Returns this process's queue, or NULL if there is none yet. */
static queue_t *find(void)
{
    queue_t *queue = atomic_load_explicit(&the_queue, memory_order_acquire);

    return queue != NULL && queue->generation == tutti__fork_generation() ? queue : NULL;
}

static queue_t *find_or_make(void)
{
    queue_t *queue = find(), *found;

    if (queue != NULL)
        return queue;
    queue = calloc(1, sizeof(*queue));
    if (queue == NULL)
        return NULL;
    queue->generation = tutti__fork_generation();
    tutti__mutex_init(&queue->change_lock, TUTTI__LOCK_LOG_CHANGE);
    tutti__mutex_init(&queue->lock, TUTTI__LOCK_LOG);
    pthread_cond_init(&queue->moved, NULL);
    found = atomic_load(&the_queue);
    do {
        if (found != NULL && found->generation == queue->generation) {
            free(queue);
            return found;
        }
        queue->parents = found;
    } while (!atomic_compare_exchange_weak(&the_queue, &found, queue));
    return queue;
}

/* ---- putting ---- */

/* The caller holds queue->lock. */
static void append(queue_t *queue, line_t *line)
{
    if (queue->first == NULL)
        queue->first = line;
    else
        queue->last->next = line;
    queue->last = line;
    queue->waiting++;
    queue->put++;
    pthread_cond_broadcast(&queue->moved);
}

int tutti__log_hand_over(tutti__log_level_t level, const char *text)
{
    size_t bytes = strlen(text) + 1;
    queue_t *queue = find();
    line_t *line;
    int taken = 0;

    if (TUTTI__LIKELY(queue == NULL) || is_mine())
        return 0;
    line = malloc(sizeof(*line) + bytes);
    tutti__mutex_lock(&queue->lock);
    if (queue->callback == NULL || (line == NULL && queue->first == NULL)) {
        tutti__mutex_unlock(&queue->lock);
        free(line);
        return 0;
    }
    if (line != NULL && queue->waiting < TUTTI__LOG_WAITING) {
        *line = (line_t){ NULL, queue->callback, queue->arg, (tutti_log_level_t)level, 0 };
        memcpy(line->text, text, bytes);
        append(queue, line);
        taken = 1;
    } else {
        queue->last->dropped_after++;
    }
    tutti__mutex_unlock(&queue->lock);
    if (!taken)
        free(line);
    return 1;
}

/* ---- delivering ---- */

static void deliver(const line_t *line)
{
    char text[96];

    line->callback(line->arg, line->level, line->text);
    if (line->dropped_after == 0 || !tutti__log_on(TUTTI__LOG_WARN))
        return;
    snprintf(text, sizeof(text), "%u log messages were dropped: the log callback is too slow",
             line->dropped_after);
    line->callback(line->arg, TUTTI_LOG_WARN, text);
}

static void *thread_main(void *arg)
{
    queue_t *queue = arg;
    line_t *line;

    called_in = 1 + tutti__fork_generation();
    tutti__thread_set_own();
    tutti__mutex_lock(&queue->lock);
    for (;;) {
        while (queue->first == NULL && !queue->stop)
            pthread_cond_wait(&queue->moved, &queue->lock.mutex);
        line = queue->first;
        if (line == NULL)
            break;
        queue->first = line->next;
        queue->waiting--;
        tutti__mutex_unlock(&queue->lock);
        deliver(line);
        free(line);
        tutti__mutex_lock(&queue->lock);
        queue->delivered++;
        pthread_cond_broadcast(&queue->moved);
    }
    tutti__mutex_unlock(&queue->lock);
    return NULL;
}

static tutti_status_t start_thread(queue_t *queue)
{
    int error;

    if (queue->has_thread)
        return TUTTI_OK;
    error = tutti__thread_launch(thread_main, queue, &queue->thread);
    if (error != 0) {
        errno = error;
        return tutti__fail_errno("the log callback's thread");
    }
    pthread_setname_np(queue->thread, "tutti-log");
    queue->has_thread = 1;
    return TUTTI_OK;
}

static void stop_thread(queue_t *queue)
{
    if (!queue->has_thread)
        return;
    tutti__mutex_lock(&queue->lock);
    queue->stop = 1;
    pthread_cond_broadcast(&queue->moved);
    tutti__mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    queue->stop = 0;
    queue->has_thread = 0;
}

/* ---- changing ---- */

/* Set the callback for all later lines. Then wait until the old callback has received all lines
   that are in the list. */
static void change(queue_t *queue, tutti_log_callback_t callback, void *arg)
{
    uint64_t put;

    tutti__mutex_lock(&queue->lock);
    queue->callback = callback;
    queue->arg = arg;
    put = queue->put;
    while (queue->delivered < put)
        pthread_cond_wait(&queue->moved, &queue->lock.mutex);
    tutti__mutex_unlock(&queue->lock);
}

tutti_status_t tutti_log_set_callback(tutti_log_callback_t callback, void *arg)
{
    queue_t *queue = callback != NULL ? find_or_make() : find();
    tutti_status_t status = TUTTI_OK;

    if (is_mine())
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "tutti_log_set_callback inside the log callback");
    if (queue == NULL)
        return callback == NULL ? TUTTI_OK : tutti__fail(TUTTI_ERR_NO_MEMORY, "log callback");
    tutti__mutex_lock(&queue->change_lock);
    if (callback != NULL)
        status = start_thread(queue);
    if (status == TUTTI_OK)
        change(queue, callback, arg);
    if (callback == NULL)
        stop_thread(queue);
    tutti__mutex_unlock(&queue->change_lock);
    return status;
}
