/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests for which only a CUDA stream waits, on a semaphore: tutti_cuda_wait with
 * TUTTI_STREAM_WAIT=device. Semaphores are for requests in which the host takes part: no event can
 * be recorded behind the host's work. For work that the device does alone, see completion.c.
 *
 *      caller   takes a semaphore; makes the stream wait for its new value; returns
 *      engine   continues; when the request ends, with success or an error, writes the value
 *
 * A semaphore is a word of pinned memory. Values only increase, and a stream waits until the word
 * has the stream's value or a higher value. So when the stream's value has been written, the word
 * may serve another request at once, even if the stream reaches its wait much later. The words
 * belong to the process and are never freed (mem/device.h): all communicators share them. If no
 * semaphore is free, or the stream cannot wait, the caller waits on the host.
 *
 * A request can be handed over to a stream when only the end of the communicator can still make the
 * request fail. At that point all ranks have announced the request, its schedules are known, and
 * the engine's own thread may run it. After the handover the request is not pending, its name is
 * free, and the engine owns it.
 *
 * No stream waits for ever. The thread that hands a request over has the token and finds the
 * request in a lane. From then on the request is in `given`. Only tutti__semaphore_end and
 * tutti__semaphore_end_all remove the request, and both write the word. tutti__pending_finish calls
 * semaphore_end when the bucket has ended. tutti__pending_finish_all calls semaphore_end_all when
 * the communicator is closed or has died; after a death, the next step of any thread does this.
 * The bucket itself always ends. While its lane is busy, `polling` (signals.h) keeps the engine's
 * thread awake. Peers that die or leave are detected as usual. At the deadline the engine's thread
 * ends the communicator. The deadline counts from the moment at which the request's data are
 * complete, so the caller's own earlier work in the stream may take any time.
 *
 * A stream must not block the work that it waits for. NCCL executes the calls of one communicator
 * in their order, in any stream. If a call of NCCL followed such a wait in a stream, it would block
 * all later launches, even the launch that would end the wait. So a request is launched only when
 * its data are complete (TUTTI__AT_INPUT), and a direct call in a stream becomes a request
 * (api/cuda.c). Buckets cannot wait for each other in a cycle. Suppose that a stream waits on a
 * semaphore before it completes the data of a request. This request was submitted after the
 * semaphore's bucket had begun on this rank, so the request's bucket has a higher number.
 *
 * No thread may wait for the device while a stream waits on a semaphore: the engine might then be
 * unable to launch the awaited work. Opening and closing a communicator allocates and frees device
 * memory, which waits for the device. So the opening and closing threads first wait until the
 * process uses no semaphore, and until they are done no thread takes a semaphore. The documentation
 * has a warning about cudaMalloc and cudaFree in the program.
 *
 * A world of one host uses no semaphores (api/comm.c). Events order NCCL's work there. With
 * semaphores, NCCL would wait on the host for its data, and this order would be lost. In such a
 * world, if the processor must do a part of a request, the caller blocks in tutti_cuda_wait until
 * the request is done. In any world the caller also waits on the host for persistent requests,
 * requests with a callback, and requests with the caller's own operation. Each of them needs a
 * thread that is told when the request is done.
 */
#include "engine/semaphore.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/time.h"
#include "engine/counted.h"
#include "engine/lanes.h"

#include <assert.h>
#include <unistd.h>

/* The semaphores in use, one bit each. Taking a bit also orders the accesses to `values`. */
static _Atomic uint64_t taken;
static atomic_uint pauses;
static uint32_t values[TUTTI__DEVICE_WORDS];

static_assert(TUTTI__DEVICE_WORDS <= 64, "a bit each");

static tutti__word_t *word_of(const tutti__semaphores_t *s, uint32_t index)
{
    return (tutti__word_t *)(void *)((char *)s->words + (size_t)index * TUTTI__DEVICE_WORD_BYTES);
}

static void put_word(uint32_t index)
{
    atomic_fetch_and(&taken, ~((uint64_t)1 << index));
}

/* Take a semaphore. Returns 0 if no semaphore is free, or if semaphores are paused. */
static int take_word(uint32_t *ret_index)
{
    uint64_t before = atomic_load(&taken);

    for (uint32_t i = 0; i < TUTTI__DEVICE_WORDS; i++) {
        uint64_t bit = (uint64_t)1 << i;

        if ((before & bit) != 0 || (atomic_fetch_or(&taken, bit) & bit) != 0)
            continue;
        *ret_index = i;
        if (atomic_load(&pauses) == 0)
            return 1;
        put_word(i);
        break;
    }
    return 0;
}

void tutti__semaphore_pause(void)
{
    /* take_word first sets its bit, and then reads `pauses`. So either this function reads the bit,
       or take_word reads the pause. */
    atomic_fetch_add(&pauses, 1);
    while (atomic_load(&taken) != 0 && !tutti__engine_in_callback())
        usleep(TUTTI__DRAIN_NAP_US);
}

void tutti__semaphore_resume(void)
{
    atomic_fetch_sub(&pauses, 1);
}

tutti_status_t tutti__semaphore_open(tutti__semaphores_t *s)
{
    const tutti__device_ops_t *ops = s->env->exec->device->ops;
    tutti_status_t status;
    int before;

    if (!s->env->conf->stream_wait || ops->words == NULL || ops->await == NULL)
        return TUTTI_OK;
    before = tutti__device_enter(s->env->exec->device);
    status = ops->words(&s->words);
    tutti__device_leave(s->env->exec->device, before);
    if (status != TUTTI_OK)
        s->words = NULL;
    return status == TUTTI_ERR_UNSUPPORTED ? TUTTI_OK : status;
}

/* ---- handing over ---- */

static tutti_status_t await_word(tutti__semaphores_t *s, tutti__dstream_t *stream, uint32_t index)
{
    int before = tutti__device_enter(s->env->exec->device);
    tutti_status_t status =
        s->env->exec->device->ops->await(stream, (void *)word_of(s, index), values[index] + 1);

    tutti__device_leave(s->env->exec->device, before);
    return status;
}

int tutti__semaphore_suits(const tutti__request_t *request)
{
    const tutti__call_t *call = &request->call;

    return !request->persistent && request->callback == NULL &&
           !(tutti__call_reduces(call->kind) && call->op > TUTTI_MAXLOC);
}

tutti_status_t tutti__semaphore_give(tutti__semaphores_t *s, tutti__request_t *request,
                                     tutti__dstream_t *stream, int *ret_gone)
{
    tutti_status_t status;
    uint32_t index;

    assert(request->agreed && !request->is_zero);
    if (s->words == NULL || !tutti__load_relaxed(&request->begun) || !take_word(&index))
        return TUTTI_OK;
    status = await_word(s, stream, index);
    if (status != TUTTI_OK) {
        put_word(index);
        return status == TUTTI_ERR_UNSUPPORTED ? TUTTI_OK : status;
    }
    tutti__request_end_handle(request);
    tutti__pending_release(s->pending, request);
    request->semaphore = (uint8_t)(index + 1);
    request->semaphore_value = ++values[index];
    request->given_ns = tutti__now_ns();
    request->chain = s->given;
    s->given = request;
    atomic_fetch_add(&s->signals->given, 1);
    *ret_gone = 1;
    return TUTTI_OK;
}

/* ---- ending ---- */

/* Remove a request from the list and let its stream continue. */
static void let_go(tutti__semaphores_t *s, tutti__request_t **at)
{
    tutti__request_t *request = *at;
    uint32_t index = request->semaphore - 1u;

    assert(index < TUTTI__DEVICE_WORDS && (atomic_load(&taken) >> index & 1));
    assert(request->semaphore_value == values[index]);
    *at = request->chain;
    tutti__events_put(s->events, &request->ready);
    /* Release: pairs with the device's read, so the stream sees the request's result. */
    tutti__store_release(word_of(s, index), request->semaphore_value);
    put_word(index);
    tutti__request_free(request);
    atomic_fetch_sub(&s->signals->given, 1);
}

void tutti__semaphore_end(tutti__semaphores_t *s, tutti__request_t *request, tutti_status_t status,
                          const char *text)
{
    char words[TUTTI__ERROR_BYTES];
    tutti__request_t **at = &s->given;

    /* No caller waits for the error, so the next call reports it. */
    if (status != TUTTI_OK && !tutti__watch_has_ended(s->env->watch)) {
        snprintf(words, sizeof(words), "%s, tensor '%.100s', handed over to a stream: %.300s",
                 tutti__boot_rank_name(s->env->boot, s->env->exec->rank), request->name,
                 text != NULL ? text : "");
        tutti__watch_end(s->env->watch, status, words);
    }
    assert(request->semaphore > 0);
    tutti__request_count(s->pending->stats, request, status, tutti__now_ns());
    while (*at != request)
        at = &(*at)->chain;
    let_go(s, at);
}

void tutti__semaphore_end_all(tutti__semaphores_t *s, const char *text)
{
    if (s->given != NULL && !tutti__watch_has_ended(s->env->watch))
        TUTTI__LOG(TUTTI__LOG_WARN,
                   "%s, tensor '%s' is not done, but the stream that waits for it goes on: %s",
                   tutti__boot_rank_name(s->env->boot, s->env->exec->rank), s->given->name, text);
    while (s->given != NULL) {
        /* Any status but OK counts as failed. */
        tutti__request_count(s->pending->stats, s->given, TUTTI_ERR_SHUTDOWN, tutti__now_ns());
        let_go(s, &s->given);
    }
}

/* ---- the deadline ---- */

static void give_up(tutti__semaphores_t *s, const tutti__request_t *request, uint64_t now)
{
    uint64_t waited_ns = now - request->given_ns;
    uint64_t limit_ns = s->env->conf->timeout_ms * 1000000u + TUTTI__QUEUED_GRACE_NS;
    char text[TUTTI__ERROR_BYTES], culprit[448];

    if (!tutti__watch_halted(s->env->watch, culprit, sizeof(culprit)) &&
        !tutti__lanes_culprit(s->lanes, request, culprit, sizeof(culprit)) &&
        waited_ns <= limit_ns + TUTTI__QUEUED_UNSURE_NS)
        return;
    snprintf(text, sizeof(text),
             "%s: a stream of device %d has waited %.3g s for tensor '%.100s': %.280s",
             tutti__boot_rank_name(s->env->boot, s->env->exec->rank), s->env->exec->device->device,
             (double)waited_ns / 1e9, request->name, culprit);
    tutti__watch_end(s->env->watch, TUTTI_ERR_TIMEOUT, text);
}

/* Are the request's own data incomplete? If they are, the request does not wait for a peer yet. */
static int has_no_data(const tutti__semaphores_t *s, const tutti__request_t *request)
{
    return request->ready != NULL &&
           s->env->exec->device->ops->query(request->ready) == TUTTI__AGAIN;
}

void tutti__semaphore_check(tutti__semaphores_t *s)
{
    uint64_t now, limit_ns, late_ns = 0;
    const tutti__request_t *late = NULL;
    int before;

    if (TUTTI__LIKELY(s->given == NULL) || tutti__watch_has_ended(s->env->watch))
        return;
    now = tutti__now_ns();
    limit_ns = s->env->conf->timeout_ms * 1000000u;
    if (now - s->checked_ns <
        TUTTI__MIN(limit_ns / TUTTI__CHECKS_PER_DEADLINE, TUTTI__CHECK_MOST_NS))
        return;
    s->checked_ns = now;
    before = tutti__device_enter(s->env->exec->device);
    for (tutti__request_t *r = s->given; r != NULL; r = r->chain) {
        if (has_no_data(s, r))
            r->given_ns = now;
        else if (now - r->given_ns > limit_ns + TUTTI__QUEUED_GRACE_NS &&
                 now - r->given_ns > late_ns) {
            late = r;
            late_ns = now - r->given_ns;
        }
    }
    tutti__device_leave(s->env->exec->device, before);
    if (late != NULL)
        give_up(s, late, now);
}
