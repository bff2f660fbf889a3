/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests. The submitter makes a request, the token's owner ends it, and the waiter frees it. */
#ifndef TUTTI__ENGINE_REQUEST_H
#define TUTTI__ENGINE_REQUEST_H

#include "agree/agree.h"
#include "base/handles.h"
#include "base/status.h"
#include "engine/engine.h"

/* The state of a request. */
enum {
    TUTTI__NOT_DONE = 0, /* a persistent request may also be inactive */
    TUTTI__ENDED,        /* its status is set; its callback has not returned yet */
    TUTTI__DONE          /* the waiter may take it */
};

typedef struct tutti__spares tutti__spares_t;

struct tutti__request {
    /* If a request of the same name used this memory before, a new request takes over the fields
       from here to `engine`. It takes over `call`, `bytes` and `entered` only if the call is the
       same. It takes over `name_capacity`, `handle` and `engine` from a request of any name. */
    uint64_t hash;      /* hash of the name */
    tutti__call_t call; /* its arrays are in `arrays`. The data are complete when the CUDA stream's
                           work from before the submission is complete */
    size_t bytes;       /* size of the larger buffer (tutti__call_bytes); also serves as an estimate
                           of the call's cost */
    uint32_t planned;   /* 1 + index in the plan `plan_number`; 0: not in a plan when submitted */
    uint32_t plan_number;
    uint32_t entered; /* number of the plan that it has entered with its present call; 0: none */
    uint32_t record;  /* its number in the flight recorder. Before its submission: the number of
                           the previous request of this name. 0: none */
    uint32_t name_capacity; /* bytes of `name` */
    uint8_t name_bytes;
    uint8_t nameless;        /* see nameless.h; its name is made when it is submitted */
    tutti_request_t *handle; /* the program's handle. The handle is retired in an unused request
                                (spares.h), or if the program has no handle. NULL: the memory has
                                no slot */
    tutti__engine_t *engine; /* a reference, which unused requests keep; NULL: this request is a
                                zero contribution (is_zero) */

    /* The fields from here to `name` are 0 in a new request. */
    size_t *arrays;
    tutti_callback_t callback;
    void *callback_arg;
    tutti__devent_t *ready; /* the event recorded behind the stream's work, see `call`; or NULL */
    uint64_t since_ns;      /* time of its submission */
    uint64_t learned_ns;    /* rank 0: since_ns of its submission from which rank 0 learned last */
    uint64_t ended_ns;
    uint64_t completion_ns;  /* when its bucket was queued on the device; 0: not yet */
    size_t offset;           /* place in each part of its bucket's memory, in bytes */
    tutti__request_t *next;  /* in the queue, a bucket, or the list of due callbacks */
    tutti__request_t *chain; /* next in the table of pending names, or in `given` */
    tutti__group_msg_t group;
    uint8_t callback_info; /* see tutti__entry_t */
    uint8_t priority;      /* see tutti__entry_t */
    uint8_t counts_later;  /* phase 0 determines the recvcounts */
    uint8_t phase;         /* 1: the exchange of counts is over */
    uint8_t agreed;        /* it is in a bucket */
    uint8_t announced;     /* passed to the agreement */
    uint8_t lane;          /* lane of its bucket; 0: in no bucket yet */
    uint8_t ordered;       /* runs in the ordered lane, without agreement */
    uint8_t joins;         /* a request of tutti_join */
    uint8_t is_zero;       /* the zero contribution of a rank that has joined; it has no waiter */
    uint8_t persistent;
    uint8_t known;         /* under the lock of pending.h: it is in `names`, or it is `join` */
    uint32_t waits;        /* how many waits this rank's threads had begun before its submission */
    uint32_t last_rank;    /* tutti_join: the rank that joined last */
    uint32_t timeout_ms;   /* its own deadline, from since_ns; 0: none */
    atomic_int active;     /* persistent: started, and no wait has returned it */
    tutti__word_t counted; /* 1: phase 0 has set recvcounts; 2: the buffer is set. Release by the
                              token's owner, or for 2 by tutti_request_receive; acquire by
                              tutti_request_recvcounts */
    tutti__word_t begun;   /* 1: may be handed over to a stream, see semaphore.c. Memory order: see
                              `queued` */
    uint8_t semaphore;     /* 1 + index of its semaphore; 0: not handed over */
    uint32_t semaphore_value;
    uint64_t given_ns;           /* time of the handover, or of the last check that found its data
                                    incomplete */
    tutti__word_t waits_in_plan; /* 1: planned.c holds the request; any thread may read this word */
    tutti__word_t queued;  /* 1: its work is queued on the device; release by the token's owner,
                              acquire by tutti__engine_wait_queued */
    tutti__word_t done;    /* TUTTI__DONE, ...; release by the token's owner, or by the thread that
                              has called the callback; acquire by test and wait */
    tutti_status_t status; /* valid once ended */
    char *text;            /* text of an error, or NULL */
    char name[];           /* undefined until it is set */
};

/* SHORT_NAME: the least space for a name. OWN_NAME: the space for a name that the engine makes. */
#define TUTTI__SHORT_NAME 64
#define TUTTI__OWN_NAME 128

_Static_assert(sizeof(struct tutti__request) + TUTTI__SHORT_NAME <= 512,
               "memory of a pending request with a short name");

/* Append a request to the list from *first to *last. */
static inline void tutti__request_append(tutti__request_t **first, tutti__request_t **last,
                                         tutti__request_t *request)
{
    request->next = NULL;
    *(*last != NULL ? &(*last)->next : first) = request;
    *last = request;
}

/* Insert a request into the part of a list that begins at *at, in the order of its submission
   group: before requests with larger indices. *last: the end of the list. */
static inline void tutti__request_insert(tutti__request_t **at, tutti__request_t **last,
                                         tutti__request_t *request)
{
    if (*at != NULL && (*last)->group.index <= request->group.index)
        at = &(*last)->next;
    while (*at != NULL && (*at)->group.index <= request->group.index)
        at = &(*at)->next;
    request->next = *at;
    *at = request;
    if (request->next == NULL)
        *last = request;
}

/* The program's requests. */
extern tutti__handles_t tutti__requests;

/* Report why a handle does not refer to a request. */
tutti_status_t tutti__request_wrong(const tutti_request_t *handle);

/* The request that a handle refers to. */
static inline tutti_status_t tutti__request_of(const tutti_request_t *handle,
                                               tutti__request_t **ret_request)
{
    const tutti__slot_t *slot = tutti__handle_find(&tutti__requests, handle);

    if (slot == NULL) {
        *ret_request = NULL;
        return tutti__request_wrong(handle);
    }
    *ret_request = tutti__handle_object(slot);
    return TUTTI_OK;
}

/* Make a request of a rank among `size` ranks, without a valid handle. spares: unused requests
   whose memory may be reused, or NULL. If the memory is new, `engine` and `handle` are NULL. */
tutti_status_t tutti__request_new(uint32_t rank, uint32_t size, const tutti__entry_t *entry,
                                  tutti__spares_t *spares, tutti__request_t **ret_request);
void tutti__request_free(tutti__request_t *request);
/* The sum of the counts of n ranks. */
size_t tutti__request_sum(const size_t *counts, uint32_t n);
/* The metadata on which the ranks agree. Any thread. size: number of ranks. */
tutti__metadata_t tutti__request_metadata(const tutti__request_t *request, uint32_t size);
/* Retire the request's handle, if it has one. */
void tutti__request_end_handle(tutti__request_t *request);

static inline int tutti__request_is_done(const tutti__request_t *request)
{
    return tutti__load_acquire(&request->done) == TUTTI__DONE;
}

/* May a call wait for the request? An inactive persistent request is ignored in a list. */
static inline int tutti__request_is_active(const tutti__request_t *request)
{
    return !request->persistent || atomic_load(&request->active);
}

#endif
