/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: named tensors from any thread in any order, agreed on by all ranks, fused and
 * reduced. Also the watch over peers: who is dead, who has left, what is late.
 *
 * Threads. All work is done in steps by whoever owns the token: a thread that submits, a thread
 * that waits (it helps), or the engine's own thread, which sleeps on the bell and the sockets and
 * is there for progress while nobody waits. Nothing is timed: a step is taken because a tensor was
 * submitted, a peer rang, or a message came.
 *
 *      submit ---> queue ---> announce ---> merge at the host's leader ---> merge at rank 0
 *                                                                              |
 *      done  <--- unpack <--- run a lane's schedule <--- pack <--- bucket <----+
 *
 * Calls whose counts ranks do not know of each other go round twice: see exchange.c.
 */
#ifndef TUTTI__ENGINE_ENGINE_H
#define TUTTI__ENGINE_ENGINE_H

#include "boot/machine.h"
#include "coll/cache.h"
#include "engine/call.h"
#include "exec/exec.h"

typedef struct tutti__engine tutti__engine_t;
typedef struct tutti__request tutti__request_t;

/* What it is made of; all of it outlives the engine. */
typedef struct {
    tutti__boot_t *boot;
    const tutti__machine_t *machine;
    const tutti__exec_env_t *exec;
    const tutti__shape_t *shape;
    const tutti__conf_shared_t *conf;
    int is_part; /* ended by tutti_comm_free, not by tutti_finalize */
    /* Once, when the communicator is dead and the neighbours were told; or NULL. By any thread,
       with the token: it may not call the engine. */
    void (*on_death)(void *arg);
    void *on_death_arg;
    /* By whoever waits for a request, now and then: work of the job's other communicators that
       nobody else may do; or NULL. It may call tutti__engine_help of any of their engines. */
    void (*help)(void *arg);
    void *help_arg;
} tutti__engine_env_t;

/* Collective over all ranks of boot. */
tutti_status_t tutti__engine_open(const tutti__engine_env_t *env, tutti__engine_t **ret_engine);

/* Wait for the requests that were handed over to streams, TUTTI_TIMEOUT at most. Before close. */
void tutti__engine_drain(tutti__engine_t *engine);

/* While a device's memory is allocated or freed: nothing is handed over to streams, in no
   communicator of the process. Pause waits until streams wait for nothing that was. */
void tutti__tickets_pause(void);
void tutti__tickets_resume(void);

/* Local: say goodbye, end what is pending with TUTTI_ERR_SHUTDOWN, stop the thread. Requests stay
   valid for wait; `env` is not used any more when this returns. */
void tutti__engine_close(tutti__engine_t *engine);

/* ---- asynchronous calls: see async.h for what they promise ---- */

/* One call to be submitted. Its arguments were checked; arrays are copied. */
typedef struct {
    const char *name;
    tutti__call_t call;
    int counts_later;          /* recvcounts is NULL, and to be found out */
    tutti_callback_t callback; /* or NULL */
    void *callback_arg;
    int callback_info; /* its argument is a tutti_callback_info_t, with callback_arg in it */
    /* On device memory: the caller's data are there when the work that is in this stream by now is
       done; has_stream 0: they are there. */
    tutti__dstream_t *stream;
    int has_stream;
} tutti__entry_t;

/*
 * Submit calls; more than one are a group, all or nothing. Any thread.
 *
 * ret_requests  [nentries]
 *
 * INVALID_ARGUMENT: a name is too long, empty, pending, or there twice.
 */
tutti_status_t tutti__engine_submit(tutti__engine_t *engine, const tutti__entry_t *entries,
                                    size_t nentries, tutti_request_t **ret_requests);

/* Persistent requests. */
tutti_status_t tutti__engine_create(tutti__engine_t *engine, const tutti__entry_t *entry,
                                    tutti_request_t **ret_request);
tutti_status_t tutti__engine_start(tutti_request_t *request);
tutti_status_t tutti__engine_free(tutti_request_t *request);

/* See the public functions of these names. */
tutti_status_t tutti__engine_test(tutti_request_t *request, int *ret_done);
tutti_status_t tutti__engine_wait(tutti_request_t *request, int timeout_ms);
/* As wait, but on device memory it is enough that the work is queued, or, with
   TUTTI_STREAM_WAIT=device, has begun, and that later work in `stream` sees the result. */
tutti_status_t tutti__engine_wait_queued(tutti_request_t *request, int timeout_ms,
                                         tutti__dstream_t *stream);
/* Submit one call that nobody waits for but as wait_queued does: it has ended when this returns,
   or the stream waits for it. */
tutti_status_t tutti__engine_run_queued(tutti__engine_t *engine, const tutti__entry_t *entry);
tutti_status_t tutti__engine_wait_all(tutti_request_t **requests, size_t nrequests, int timeout_ms);
tutti_status_t tutti__engine_wait_any(tutti_request_t **requests, size_t nrequests, int timeout_ms,
                                      size_t *ret_index);
tutti_status_t tutti__engine_recvcounts(tutti_request_t *request, int timeout_ms,
                                        size_t *ret_counts);
/* Does it want a buffer now? Then its call with the recvcounts, to check a buffer against. */
tutti_status_t tutti__engine_receives(const tutti_request_t *request, tutti__call_t *ret_call,
                                      uint32_t *ret_rank, uint32_t *ret_size);
/* Only after that, with what was checked. */
tutti_status_t tutti__engine_receive(tutti_request_t *request, void *recvbuf,
                                     const size_t *recvdispls);
tutti_status_t tutti__engine_join(tutti__engine_t *engine, int *ret_last_rank);

/* Is this thread inside one of the caller's callbacks? Then it may not wait for anything. */
int tutti__engine_in_callback(void);

/* ---- for direct calls, which run beside the engine ---- */

/* Is the calling thread some engine's own? So it is inside a callback, too. */
int tutti__thread_is_own(void);

/* TUTTI_OK, or why the communicator can do nothing any more, with the thread's last error set. */
tutti_status_t tutti__engine_alive(tutti__engine_t *engine);

/* The same without an error set. ret_text: why; valid until the engine is closed. Any thread. */
tutti_status_t tutti__engine_state(const tutti__engine_t *engine, const char **ret_text);

/* For warnings: "an allreduce of 8 elements of float32, sum". Any thread. */
void tutti__engine_call_text(const tutti__engine_t *engine, const tutti__call_t *call, char *text,
                             size_t bytes);

/* A deadline has passed: is a rank of this machine stopped? 1: the text says which. Any thread. */
int tutti__engine_halted(const tutti__engine_t *engine, char *text, size_t bytes);

/* Do work of the engine that its own thread may not, if there is any. Calls no callbacks. Only
   threads that may drive all transports. */
void tutti__engine_help(tutti__engine_t *engine);

/* Has this peer left, or ended the communicator because another one has? It does nothing more. */
int tutti__engine_has_left(tutti__engine_t *engine, uint32_t rank);

/*
 * This rank cannot take part in a group of this communicator's ranks that is being made: tell those
 * who wait for it. first: the group's first rank; number: of the call, from 1, equal on all ranks.
 * Any thread.
 */
void tutti__engine_cancel(tutti__engine_t *engine, uint32_t first, uint32_t number);
/* Has any rank said so? */
int tutti__engine_cancelled(tutti__engine_t *engine, uint32_t first, uint32_t number);

/* End the communicator on all ranks: every pending and later call answers `status` with `text`.
   The first reason wins. Returns `status`, with the thread's last error set. Any thread.
   TUTTI_ERR_SHUTDOWN: the text says which rank has left instead, and how, if one has. */
tutti_status_t tutti__engine_kill(tutti__engine_t *engine, tutti_status_t status, const char *text);

#endif
