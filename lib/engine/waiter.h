/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread that waits for requests. See wait.c. */
#ifndef TUTTI__ENGINE_WAITER_H
#define TUTTI__ENGINE_WAITER_H

#include "engine/request.h"
#include "engine/wait.h"

typedef struct {
    tutti__wait_t wait;
    tutti__engine_t *late; /* the engine whose deadline is checked */
    int timeout_ms;
    uint64_t limit_ns;
    uint64_t quiet_ns;            /* no lane has advanced since then; 0: a lane has just advanced */
    uint32_t moves;               /* tutti__lanes_moves before the last sleep */
    uint32_t busy;                /* polls that have moved something */
    int is_long;                  /* tutti__stuck_begin has returned 1 */
    uint32_t record;              /* number in the flight recorder; 0: has not slept yet */
    uint64_t traced_ns;           /* the beginning of this wait; 0: the trace is off */
    int holds;                    /* this waiter owns the token */
    int calls_back;               /* callbacks are due */
    tutti__request_t *one;        /* the only request; NULL: `list` has the requests */
    tutti_request_t *const *list; /* [n]; NULL entries are ignored */
    size_t n;
    const tutti__word_t *enough; /* NULL, or a word of `one`: if it is not 0, the wait ends */
    uint64_t deadline_ns;
    char name[104]; /* name of the late request, for the error's text */
    uint64_t since_ns;
    size_t ready;    /* `list`: the index of the request that ended first, or n */
    uint32_t looked; /* `list`: the epoch of the last search */
    int has_looked;
    int is_empty; /* `list`: callbacks have freed all requests */
} tutti__waiter_t;

tutti_status_t tutti__wait_not_yet(const tutti__waiter_t *w, int timeout_ms);
/* Let the engine take a step, and do not wait. If this is called again and again for a request of a
   plan's bucket, and no further request is submitted, the plan is stopped. */
void tutti__wait_look(tutti__engine_t *engine, tutti__waiter_t *w);
/* Wait until a request is ready. Returns OK if a request is ready, and TIMEOUT if no request is
   ready yet. engine: the engine of all requests; NULL: the requests belong to several engines. */
tutti_status_t tutti__wait(tutti__engine_t *engine, tutti__waiter_t *w, int timeout_ms);
/* As tutti_wait. */
tutti_status_t tutti__wait_and_take(tutti__request_t *request, int timeout_ms);

#endif
