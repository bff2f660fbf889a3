/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pretended NCCL's calls. Errors are reported at once, or by nccl_poll and by query. A call
 * hangs only if another rank has not made it yet, or by pretend_hang.
 *
 * NCCL's own thread may be slow, so a call is queued only after nccl_poll was called several times.
 * If the stream is used earlier, this is an error.
 */
#include "pretend/nccl_inside.h"

#include "base/hash.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* nccl_poll returns AGAIN at least so many times. */
#define POLLS 2

typedef struct {
    uint64_t magic, serial;
    uint32_t slot;
} unique_t;

#define MAGIC 0x7475747469707265u

int nccl_serves(tutti_dtype_t dtype, tutti_op_t op)
{
    int has_type = dtype == TUTTI_INT8 || dtype == TUTTI_UINT8 ||
                   (dtype >= TUTTI_INT32 && dtype <= TUTTI_FLOAT64);

    return has_type && (int)dtype != device_lacks() && op >= TUTTI_SUM && op <= TUTTI_PROD;
}

tutti_status_t nccl_id(tutti__nccl_id_t *ret_id)
{
    unique_t id = { MAGIC, 0, 0 };

    if (pretend_shared == NULL)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "nccl_id: pretend_prepare was not called");
    shared_lock(&pretend_shared->lock);
    for (uint32_t i = 0; i < SLOTS && id.serial == 0; i++) {
        slot_t *slot = &pretend_shared->slots[i];

        if (slot->serial != 0)
            continue;
        memset((char *)slot + sizeof(slot->lock), 0, sizeof(*slot) - sizeof(slot->lock));
        id.serial = slot->serial = ++pretend_shared->serials;
        id.slot = i;
    }
    pthread_mutex_unlock(&pretend_shared->lock);
    if (id.serial == 0)
        return tutti__fail(TUTTI_ERR_TRANSPORT, "nccl_id: too many communicators");
    memset(ret_id, 0, sizeof(*ret_id));
    memcpy(ret_id, &id, sizeof(id));
    return TUTTI_OK;
}

tutti_status_t nccl_fail(tutti__nccl_t *nccl, const char *fmt, ...)
{
    slot_t *slot = nccl->slot;
    char words[WORDS_BYTES - 32];
    va_list args;

    va_start(args, fmt);
    vsnprintf(words, sizeof(words), fmt, args);
    va_end(args);
    shared_lock(&slot->lock);
    if (!atomic_load(&slot->is_failed))
        snprintf(slot->words, WORDS_BYTES, "NCCL, rank %u: %s", (unsigned)nccl->rank, words);
    atomic_store(&slot->is_failed, 1);
    pthread_mutex_unlock(&slot->lock);
    return tutti__fail(TUTTI_ERR_TRANSPORT, "NCCL, rank %u: %s", (unsigned)nccl->rank, words);
}

int nccl_is_over(const tutti__nccl_t *nccl)
{
    return atomic_load(&nccl->slot->is_failed) || atomic_load(&nccl->is_aborted);
}

/* Report the error of a failed communicator. */
static tutti_status_t say(tutti__nccl_t *nccl)
{
    char words[WORDS_BYTES];

    shared_lock(&nccl->slot->lock);
    memcpy(words, nccl->slot->words, WORDS_BYTES);
    pthread_mutex_unlock(&nccl->slot->lock);
    return tutti__fail(TUTTI_ERR_TRANSPORT, "%s", words);
}

static tutti_status_t enter(tutti__nccl_t *nccl, const char *what)
{
    unsigned slow_us = atomic_load(&pretend_options.slow_us);

    if (atomic_exchange(&nccl->device->nccl_callers, 1) != 0)
        return nccl_fail(nccl, "%s: another thread of device %d is in a NCCL call", what,
                         nccl->device->number);
    atomic_store(&nccl->in_use, 1);
    if (slow_us > 0)
        usleep(slow_us);
    return TUTTI_OK;
}

static tutti_status_t leave(tutti__nccl_t *nccl, tutti_status_t status)
{
    atomic_store(&nccl->device->nccl_callers, 0);
    atomic_store(&nccl->in_use, 0); /* after this another thread may free it */
    return status;
}

/* Call it with the slot's lock held. */
static tutti_status_t join(slot_t *slot, uint64_t serial, uint32_t rank, uint32_t size, int device)
{
    const char *host = getenv("NCCL_HOSTID");

    if (slot->serial != serial)
        return tutti__fail(TUTTI_ERR_TRANSPORT, "nccl_open: the id's communicator is gone");
    if (slot->joined > 0 && slot->size != size)
        return tutti__fail(TUTTI_ERR_TRANSPORT, "nccl_open: %u ranks, another rank said %u",
                           (unsigned)size, (unsigned)slot->size);
    if (slot->members[rank].joined)
        return tutti__fail(TUTTI_ERR_TRANSPORT, "nccl_open: there is a rank %u", (unsigned)rank);
    slot->size = size;
    slot->members[rank].joined = 1;
    slot->members[rank].device = device;
    slot->members[rank].host = host != NULL ? tutti__hash(host, strlen(host)) : 0;
    slot->joined += atomic_load(&pretend_options.no_space) != device + 1;
    return TUTTI_OK;
}

int nccl_binds(void)
{
    return atomic_load(&pretend_options.binds);
}

/* Note that a call, or connecting, has begun and is not complete. */
static void begin(tutti__nccl_t *nccl)
{
    nccl->polls = nccl->is_blocking ? 0 : POLLS;
    nccl->is_bound = nccl_binds();
    nccl->caller = pthread_self();
}

/* Report whether the communicator is connected. The status is available only after all ranks have
   joined. */
static tutti_status_t stand(tutti__nccl_t *nccl)
{
    const member_t *members = nccl->slot->members;
    int has_all;

    shared_lock(&nccl->slot->lock);
    has_all = nccl->slot->joined == nccl->size;
    pthread_mutex_unlock(&nccl->slot->lock);
    for (uint32_t r = 1; has_all && r < nccl->size; r++)
        for (uint32_t s = 0; s < r; s++)
            if (members[r].device == members[s].device && members[r].host == members[s].host)
                return nccl_fail(nccl, "Duplicate GPU detected: ranks %u and %u both on device %d",
                                 (unsigned)s, (unsigned)r, members[r].device);
    nccl->stands = has_all;
    nccl->is_bound = nccl->is_bound && !has_all;
    return has_all ? TUTTI_OK : TUTTI__AGAIN;
}

static tutti_status_t poll(tutti__nccl_t *nccl)
{
    group_t *group = nccl->launching;

    if (nccl->is_bound && !pthread_equal(nccl->caller, pthread_self()))
        return nccl_fail(nccl, "nccl_poll in another thread than the call that is not through");
    if (atomic_load(&nccl->slot->is_failed))
        return say(nccl);
    if (atomic_load(&pretend_options.sick) == nccl->device->number + 1)
        return tutti__fail(TUTTI_ERR_TRANSPORT, "NCCL, rank %u: a link is down",
                           (unsigned)nccl->rank);
    if (nccl->polls > 0) {
        nccl->polls--;
        return TUTTI__AGAIN;
    }
    if (nccl->no_space)
        return tutti__fail(TUTTI_ERR_TRANSPORT,
                           "NCCL, rank %u: Error while creating shared memory segment "
                           "/dev/shm/nccl-pretend: No space left on device",
                           (unsigned)nccl->rank);
    if (!nccl->stands)
        return stand(nccl);
    nccl->is_bound = 0;
    if (group == NULL)
        return TUTTI_OK;
    nccl->launching = NULL;
    (void)stream_launching(nccl->stream, NULL);
    return stream_push("nccl_poll", nccl->stream, group);
}

tutti_status_t nccl_poll(tutti__nccl_t *nccl)
{
    tutti_status_t status = enter(nccl, "nccl_poll");

    return status == TUTTI_OK ? leave(nccl, poll(nccl)) : status;
}

/* Wait until all ranks have joined. */
static tutti_status_t connect_all(tutti__nccl_t *nccl)
{
    tutti_status_t status;
    unsigned tries = 0;

    while ((status = nccl_poll(nccl)) == TUTTI__AGAIN)
        shared_nap(&tries);
    return status;
}

tutti_status_t nccl_open(const tutti__nccl_id_t *unique, uint32_t rank, uint32_t size,
                         int is_blocking, tutti__nccl_t **ret_nccl)
{
    device_t *device;
    tutti_status_t status = device_mine("nccl_open", &device);
    launches_t *launches;
    tutti__nccl_t *nccl;
    slot_t *slot;
    unique_t id;

    if (status != TUTTI_OK)
        return status;
    memcpy(&id, unique, sizeof(id));
    if (pretend_shared == NULL || id.magic != MAGIC || id.slot >= SLOTS)
        return tutti__fail(TUTTI_ERR_TRANSPORT, "nccl_open: this is no id");
    if (rank >= size || size > pretend_shared->nranks)
        return tutti__fail(TUTTI_ERR_TRANSPORT, "nccl_open: rank %u of %u, prepared for %u",
                           (unsigned)rank, (unsigned)size, (unsigned)pretend_shared->nranks);
    launches = shared_launches(device->number);
    nccl = calloc(1, sizeof(*nccl));
    if (nccl == NULL || launches == NULL) {
        free(nccl);
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "nccl_open");
    }
    slot = &pretend_shared->slots[id.slot];
    shared_lock(&slot->lock);
    status = join(slot, id.serial, rank, size, device->number);
    pthread_mutex_unlock(&slot->lock);
    if (status != TUTTI_OK) {
        free(nccl);
        return status;
    }
    nccl->slot = slot;
    nccl->serial = id.serial;
    nccl->rank = rank;
    nccl->size = size;
    nccl->device = device;
    nccl->launches = launches;
    nccl->is_blocking = is_blocking;
    begin(nccl);
    nccl->no_space = atomic_load(&pretend_options.no_space) == device->number + 1;
    pthread_mutex_init(&nccl->regs_lock, NULL);
    atomic_fetch_add(&pretend_left, 1);
    *ret_nccl = nccl;
    return is_blocking ? connect_all(nccl) : TUTTI_OK;
}

/* ---- calls ---- */

static int is_message(const tutti__nccl_call_t *call)
{
    return call->kind == TUTTI__NCCL_SEND || call->kind == TUTTI__NCCL_RECV;
}

static tutti_status_t check(const tutti__nccl_t *nccl, const tutti__nccl_call_t *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const tutti__nccl_call_t *c = &calls[i];
        int reduces = c->kind == TUTTI__NCCL_ALLREDUCE || c->kind == TUTTI__NCCL_REDUCE ||
                      c->kind == TUTTI__NCCL_REDUCE_SCATTER;
        int has_root =
            is_message(c) || c->kind == TUTTI__NCCL_BROADCAST || c->kind == TUTTI__NCCL_REDUCE;

        if (reduces ? !nccl_serves(c->dtype, c->op) : tutti_dtype_bytes(c->dtype) == 0)
            return tutti__fail(TUTTI_ERR_TRANSPORT, "nccl_call: no type %d with operation %d",
                               (int)c->dtype, (int)c->op);
        if (has_root && c->root >= nccl->size)
            return tutti__fail(TUTTI_ERR_TRANSPORT, "nccl_call: there is no rank %u",
                               (unsigned)c->root);
        if (is_message(c) != is_message(calls))
            return tutti__fail(TUTTI_ERR_TRANSPORT,
                               "nccl_call: messages and collectives in one call");
    }
    return TUTTI_OK;
}

/* Each rank's stream runs this function, in the order of the communicator's calls. */
static int run_calls(group_t *group)
{
    tutti__nccl_t *nccl = group->nccl;
    unsigned tries = 0;

    while (group->hangs || atomic_load(&nccl->groups_done) != group->number) {
        if (nccl_is_over(nccl))
            return 0;
        shared_nap(&tries);
    }
    if (is_message(group->calls))
        return nccl_messages(nccl, group->calls, group->ncalls);
    for (size_t i = 0; i < group->ncalls; i++)
        if (!nccl_collective(nccl, &group->calls[i], i, group->ncalls))
            return 0;
    return 1;
}

static void end_call(tutti__nccl_t *nccl)
{
    device_t *device = nccl->device;

    atomic_fetch_add(&nccl->groups_done, 1);
    atomic_fetch_sub(&device->nccl_in_flight, 1);
    atomic_fetch_sub(&nccl->in_flight, 1); /* after this another thread may free it */
}

static void run_group(item_t *item, tutti__dstream_t *stream)
{
    group_t *group = (group_t *)item;
    tutti__nccl_t *nccl = group->nccl;

    if (!run_calls(group) && !atomic_load(&nccl->is_aborted)) {
        trouble_t trouble = { TUTTI_ERR_TRANSPORT, nccl, "" };

        shared_lock(&nccl->slot->lock);
        memcpy(trouble.words, nccl->slot->words, WORDS_BYTES);
        pthread_mutex_unlock(&nccl->slot->lock);
        stream_trouble(stream, &trouble);
    }
    end_call(nccl);
}

/* Does this device's next call hang? */
static int next_hangs(device_t *device)
{
    int calls = atomic_load(&device->hang_after);

    if (calls > 0)
        atomic_store(&device->hang_after, calls - 1);
    return calls == 0;
}

static tutti_status_t call(tutti__nccl_t *nccl, const tutti__nccl_call_t *calls, size_t ncalls,
                           tutti__dstream_t *stream)
{
    tutti_status_t status;
    char words[WORDS_BYTES];
    group_t *group;

    if (atomic_load(&nccl->slot->is_failed))
        return say(nccl);
    if (!nccl->stands || nccl->launching != NULL)
        return nccl_fail(nccl, "nccl_call before nccl_poll was OK after the last call");
    status = check(nccl, calls, ncalls);
    if (status == TUTTI_OK)
        status = stream_item(sizeof(*group) + ncalls * sizeof(*calls), run_group, &group);
    if (status != TUTTI_OK)
        return status;
    memcpy(group->calls, calls, ncalls * sizeof(*calls));
    group->ncalls = ncalls;
    group->nccl = nccl;
    group->number = nccl->groups;
    group->hangs = next_hangs(nccl->device);
    if (!is_message(calls) && !shared_launch(nccl, words)) {
        free(group);
        return nccl_fail(nccl, "%s", words);
    }
    status = stream_launching(stream, nccl);
    if (status != TUTTI_OK) {
        free(group);
        return status;
    }
    if (nccl->stream != NULL && nccl->stream != stream)
        device_count(nccl->device, PRETEND_OTHER_STREAM);
    nccl->groups++;
    nccl->collectives += is_message(calls) ? 0 : ncalls;
    nccl->launching = group;
    nccl->stream = stream;
    begin(nccl);
    atomic_fetch_add(&nccl->in_flight, 1);
    atomic_fetch_add(&nccl->device->nccl_in_flight, 1);
    return nccl->is_blocking ? poll(nccl) : TUTTI_OK;
}

tutti_status_t nccl_call(tutti__nccl_t *nccl, const tutti__nccl_call_t *calls, size_t ncalls,
                         tutti__dstream_t *stream)
{
    tutti_status_t status = stream_find("nccl_call", &stream);

    if (status == TUTTI_OK && stream_device(stream) != nccl->device)
        status = tutti__fail(TUTTI_ERR_TRANSPORT, "nccl_call: the communicator is device %d's",
                             nccl->device->number);
    if (status != TUTTI_OK || ncalls == 0)
        return status;
    device_count(nccl->device, PRETEND_NCCL_CALLS);
    status = enter(nccl, "nccl_call");
    return status == TUTTI_OK ? leave(nccl, call(nccl, calls, ncalls, stream)) : status;
}

/* ---- the end ---- */

static void destroy(tutti__nccl_t *nccl)
{
    slot_t *slot = nccl->slot;
    unsigned tries = 0;
    int is_last;

    if (nccl->launching != NULL) {
        (void)stream_launching(nccl->stream, NULL);
        free(nccl->launching);
        end_call(nccl);
    }
    while (atomic_load(&nccl->in_flight) > 0)
        shared_nap(&tries);
    streams_forget(nccl->device, nccl);
    register_end(nccl, atomic_load(&nccl->is_aborted));
    pthread_mutex_destroy(&nccl->regs_lock);
    shared_lock(&slot->lock);
    is_last = ++slot->left == slot->size;
    pthread_mutex_unlock(&slot->lock);
    if (is_last) {
        shared_lock(&pretend_shared->lock);
        slot->serial = 0;
        pthread_mutex_unlock(&pretend_shared->lock);
    }
    free(nccl);
    atomic_fetch_sub(&pretend_left, 1);
}

void nccl_close(tutti__nccl_t *nccl)
{
    device_t *device;

    if (nccl == NULL)
        return;
    device = nccl->device;
    if (nccl->launching != NULL || atomic_load(&nccl->in_flight) > 0) {
        device_count(device, PRETEND_CLOSED_BUSY);
        nccl_fail(nccl, "nccl_close before its work was done");
    }
    destroy(nccl);
}

/* Any thread may abort, so this function waits until other threads' calls are over. Other
   communicators continue to work. The work of other ranks waits until these ranks abort as well. As
   in NCCL, an abort frees memory at its end, which waits for the work of all of the device's
   communicators. */
void nccl_abort(tutti__nccl_t *nccl)
{
    device_t *device;
    unsigned tries = 0;

    if (nccl == NULL)
        return;
    device = nccl->device;
    while (atomic_exchange(&nccl->in_use, 1) != 0)
        shared_nap(&tries);
    while (atomic_load(&pretend_options.hangs_abort) == nccl->device->number + 1)
        shared_nap(&tries);
    atomic_store(&nccl->is_aborted, 1);
    destroy(nccl);
    while (atomic_load(&device->nccl_in_flight) > 0)
        shared_nap(&tries);
}
