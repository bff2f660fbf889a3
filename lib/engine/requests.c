/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: made by the submitter, ended by the token's owner, freed by the waiter; and the table
 * of pending names. Any thread; see each function.
 */
#include "engine/state.h"

#include "base/hash.h"
#include "base/time.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

tutti_status_t tutti__request_new(tutti__engine_t *e, const char *name,
                                  tutti_request_t **ret_request)
{
    size_t bytes = strnlen(name, TUTTI__NAME_BYTES);
    tutti_request_t *r;

    if (bytes == 0 || bytes == TUTTI__NAME_BYTES)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "a tensor's name has 1 to %d bytes",
                           TUTTI__NAME_BYTES - 1);
    r = calloc(1, sizeof(*r));
    if (r == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "request for tensor '%s'", name);
    memcpy(r->name, name, bytes + 1);
    r->hash = tutti__hash(name, bytes);
    r->since_ns = tutti__now_ns();
    r->engine = e;
    atomic_fetch_add(&e->refs, 1);
    *ret_request = r;
    return TUTTI_OK;
}

void tutti__request_free(tutti_request_t *request)
{
    tutti__engine_t *e = request->engine;

    free(request->text);
    free(request);
    if (atomic_fetch_sub(&e->refs, 1) == 1)
        free(e);
}

/* ---- names; the caller holds queue_lock ---- */

static tutti_request_t **chain_of(tutti__names_t *names, uint64_t hash)
{
    return &names->bucket[hash % names->nbuckets];
}

/* Keep chains short. Without memory they get longer, which is no error. */
static void grow(tutti__names_t *names)
{
    tutti__names_t larger = { NULL, names->nbuckets ? 2 * names->nbuckets : 256, names->count };

    if (names->nbuckets != 0 && names->count < 2 * names->nbuckets)
        return;
    larger.bucket = calloc(larger.nbuckets, sizeof(*larger.bucket));
    if (larger.bucket == NULL)
        return;
    for (uint32_t i = 0; i < names->nbuckets; i++) {
        tutti_request_t *next;

        for (tutti_request_t *r = names->bucket[i]; r != NULL; r = next) {
            tutti_request_t **chain = chain_of(&larger, r->hash);

            next = r->chain;
            r->chain = *chain;
            *chain = r;
        }
    }
    free(names->bucket);
    *names = larger;
}

static tutti_request_t *find(tutti__names_t *names, const char *name, size_t bytes, uint64_t hash)
{
    if (names->nbuckets == 0)
        return NULL;
    for (tutti_request_t *r = *chain_of(names, hash); r != NULL; r = r->chain)
        if (r->hash == hash && memcmp(r->name, name, bytes) == 0 && r->name[bytes] == '\0')
            return r;
    return NULL;
}

static void take_out(tutti__names_t *names, tutti_request_t *request)
{
    for (tutti_request_t **at = chain_of(names, request->hash); *at != NULL; at = &(*at)->chain) {
        if (*at == request) {
            *at = request->chain;
            names->count--;
            return;
        }
    }
}

tutti_status_t tutti__request_push(tutti__engine_t *e, tutti_request_t *request)
{
    tutti_status_t status = TUTTI_OK;

    tutti__mutex_lock(&e->queue_lock);
    grow(&e->names);
    if (atomic_load(&e->closed)) {
        status = tutti__fail(TUTTI_ERR_SHUTDOWN, "tutti_finalize was called");
    } else if (e->names.nbuckets == 0) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "table of names");
    } else if (find(&e->names, request->name, strlen(request->name), request->hash) != NULL) {
        status = tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                             "tensor '%s' is pending already: wait for it before using its name "
                             "again",
                             request->name);
    } else {
        request->chain = *chain_of(&e->names, request->hash);
        *chain_of(&e->names, request->hash) = request;
        e->names.count++;
        if (e->queue_last != NULL)
            e->queue_last->next = request;
        else
            e->queue_first = request;
        e->queue_last = request;
        atomic_fetch_add(&e->pending, 1);
        atomic_store(&e->queued, 1);
    }
    tutti__mutex_unlock(&e->queue_lock);
    return status;
}

tutti_request_t *tutti__request_find(tutti__engine_t *e, const char *name, size_t name_bytes)
{
    tutti_request_t *r;

    tutti__mutex_lock(&e->queue_lock);
    r = find(&e->names, name, name_bytes, tutti__hash(name, name_bytes));
    tutti__mutex_unlock(&e->queue_lock);
    return r;
}

/* ---- the end ---- */

void tutti__request_wake(tutti__engine_t *e)
{
    atomic_fetch_add(&e->epoch, 1);
    if (atomic_load(&e->sleepers) > 0)
        syscall(SYS_futex, &e->epoch, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void finish(tutti__engine_t *e, tutti_request_t *request, tutti_status_t status,
                   const char *text)
{
    request->status = status;
    request->text = text != NULL ? strdup(text) : NULL;
    atomic_fetch_sub(&e->pending, 1);
    /* From here on the request is its waiter's. */
    tutti__store_release(&request->done, 1);
    tutti__request_wake(e);
}

void tutti__request_finish(tutti__engine_t *e, tutti_request_t *request, tutti_status_t status,
                           const char *text)
{
    tutti__mutex_lock(&e->queue_lock);
    take_out(&e->names, request);
    tutti__mutex_unlock(&e->queue_lock);
    finish(e, request, status, text);
}

void tutti__request_finish_all(tutti__engine_t *e, int (*pick)(const tutti_request_t *),
                               tutti_status_t status, const char *text)
{
    tutti_request_t *ended = NULL, *next;

    /* The queue in the same breath: what is ended here may be freed by its waiter at once. */
    tutti__mutex_lock(&e->queue_lock);
    e->queue_first = e->queue_last = NULL;
    atomic_store(&e->queued, 0);
    for (uint32_t i = 0; i < e->names.nbuckets; i++) {
        tutti_request_t **at = &e->names.bucket[i];

        while (*at != NULL) {
            tutti_request_t *r = *at;

            if (pick != NULL && !pick(r)) {
                at = &r->chain;
                continue;
            }
            *at = r->chain;
            r->chain = ended;
            ended = r;
            e->names.count--;
        }
    }
    tutti__mutex_unlock(&e->queue_lock);
    for (; ended != NULL; ended = next) {
        next = ended->chain;
        finish(e, ended, status, text);
    }
}
