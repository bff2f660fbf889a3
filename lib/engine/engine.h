/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine. Threads submit named tensors in any order. The ranks agree on the tensors that all
 * ranks have submitted, and the engine fuses and reduces these tensors. It also watches the peers
 * for deaths, departures and delays.
 *
 * Threads. The owner of the token does all work, in steps. The owner is a thread that submits, a
 * thread that waits, or the engine's own thread. The engine's thread sleeps on the doorbell and the
 * sockets, and makes progress while no thread waits. A submission, a peer's doorbell and a message
 * each cause a step. The engine's thread also wakes soon after a submission for which no thread
 * waits, and at intervals while requests are pending.
 *
 *      submit ---> queue ---> announce ---> merge at the host's leader ---> merge at rank 0
 *                                                                              |
 *      done  <--- unpack <--- run a lane's schedule <--- pack <--- bucket <----+
 *
 * If the ranks must first exchange counts, a call passes this cycle twice: see call/exchange.h.
 */
#ifndef TUTTI__ENGINE_ENGINE_H
#define TUTTI__ENGINE_ENGINE_H

#include "boot/machine.h"
#include "coll/cache.h"
#include "call/call.h"
#include "exec/exec.h"
#include "stats/stats.h"
#include "watch/links.h"

typedef struct tutti__engine tutti__engine_t;
typedef struct tutti__request tutti__request_t;

/* The engine's environment. All of its objects outlive the engine, except `watch`. */
typedef struct {
    tutti__boot_t *boot;
    const tutti__machine_t *machine;
    const tutti__exec_env_t *exec;
    const tutti__shape_t *shape;
    const tutti__conf_shared_t *conf;
    tutti__watch_t *watch;  /* owned by the engine; closed after the last request is freed */
    tutti__engine_t *world; /* a group: the engine of its world; NULL: this is a world */
    tutti__stats_t *stats;  /* or NULL */
    /* Called when the program has given an asynchronous call its receive buffer, or other buffers.
       Checks the call's counts and buffers as for a direct call, and sets call->on_device. The
       engine passes the next field as `comm`. */
    tutti_status_t (*check_receive)(const void *comm, tutti__call_t *call);
    const void *comm;
} tutti__engine_env_t;

/* Collective over all ranks of boot. */
tutti_status_t tutti__engine_open(const tutti__engine_env_t *env, tutti__engine_t **ret_engine);

/* Before close: wait until all requests that were handed over to CUDA streams have ended, or the
   communicator has ended. */
void tutti__engine_drain(tutti__engine_t *engine);

/* Call pause before device memory is allocated or freed, and resume afterwards. Between the two
   calls, no communicator of the process hands requests over to streams. Pause waits for the end of
   all requests that were handed over earlier. In a callback, pause does not wait. */
void tutti__semaphore_pause(void);
void tutti__semaphore_resume(void);

/* Local: send a goodbye, end pending requests with TUTTI_ERR_SHUTDOWN, stop the thread. When this
   returns, no callback is due any more, but a callback may still run on another thread. Called at
   most once. */
void tutti__engine_stop(tutti__engine_t *engine);

/* Local. Stop the engine, if it was not stopped, and free it; NULL is allowed. Requests stay valid
   for wait. After the return, the engine does not use `env`, and callbacks must not use the
   engine. */
void tutti__engine_close(tutti__engine_t *engine);

/* ---- asynchronous calls: async.h has their guarantees ---- */

/* A call for submission, with checked arguments. The engine copies its arrays. Data in device
   memory are complete when the present work of the call's CUDA stream is complete. If
   call.has_stream is 0, the data are complete already. */
typedef struct {
    const char *name; /* NULL: matched by order, see nameless.h */
    tutti__call_t call;
    uint32_t timeout_ms;       /* the request's own deadline; 0: none */
    uint8_t priority;          /* in agreement; 0: none */
    int counts_later;          /* recvcounts is NULL, and the engine determines it */
    tutti_callback_t callback; /* or NULL */
    void *callback_arg;
    int callback_info; /* 1: callback receives a tutti_callback_info_t, which has callback_arg */
} tutti__entry_t;

/*
 * Submit calls; several calls are a submission group, all or nothing. Any thread.
 *
 * ret_requests  [nentries]
 *
 * INVALID_ARGUMENT: a name is too long, empty, pending, or used twice; or some calls have names and
 * other calls have no names.
 */
tutti_status_t tutti__engine_submit(tutti__engine_t *engine, const tutti__entry_t *entries,
                                    size_t nentries, tutti_request_t **ret_requests);

/* Can this be a name that the engine has made for a call without a name? */
int tutti__engine_owns_name(const char *name);

/* Persistent requests. */
tutti_status_t tutti__engine_create(tutti__engine_t *engine, const tutti__entry_t *entry,
                                    tutti_request_t **ret_request);
tutti_status_t tutti__engine_start(const tutti_request_t *request);
tutti_status_t tutti__engine_start_all(tutti_request_t *const *requests, size_t nrequests);
tutti_status_t tutti__engine_set_buffers(tutti_request_t *request, const void *sendbuf,
                                         void *recvbuf);
tutti_status_t tutti__engine_free(tutti_request_t *request);

/* See the public functions of these names. */
tutti_status_t tutti__engine_test(tutti_request_t *request, int *ret_done);
tutti_status_t tutti__engine_wait(tutti_request_t *request, int timeout_ms);
/* As wait. But if the request is on device memory, return as soon as its work is queued. With
   TUTTI_STREAM_WAIT=device, return as soon as its work has begun. Later work in `stream` sees the
   result. */
tutti_status_t tutti__engine_wait_queued(tutti_request_t *request, int timeout_ms,
                                         tutti__dstream_t *stream);
/* Submit one call, and wait for it as wait_queued does. When this returns, the call has ended, or
   the stream waits for it. */
tutti_status_t tutti__engine_run_queued(tutti__engine_t *engine, const tutti__entry_t *entry);
tutti_status_t tutti__engine_wait_all(tutti_request_t **requests, size_t nrequests, int timeout_ms);
tutti_status_t tutti__engine_wait_any(tutti_request_t **requests, size_t nrequests, int timeout_ms,
                                      size_t *ret_index);
tutti_status_t tutti__engine_recvcounts(tutti_request_t *request, int timeout_ms,
                                        size_t *ret_counts);
tutti_status_t tutti__engine_receive(tutti_request_t *request, void *recvbuf,
                                     const size_t *recvdispls);
tutti_status_t tutti__engine_join(tutti__engine_t *engine, int *ret_last_rank);

/* Is this thread inside a callback of the program? A callback must not wait. */
int tutti__engine_in_callback(void);

/* ---- for direct calls, which run beside the engine ---- */

/* For warnings: "an allreduce of 8 elements of float32, sum". size: number of ranks. Any thread. */
void tutti__engine_call_text(uint32_t size, const tutti__call_t *call, char *text, size_t bytes);

/* help.c: a waiting thread does the work that the engines' own threads may not do, for all engines
   of the process. 1: some of this work has advanced. Any thread. */
int tutti__engine_help_others(tutti__engine_t *engine);

/* Does each local rank have a processor, so that waiting threads may spin? */
int tutti__engine_spins(const tutti__engine_t *engine);

/*
 * Ranks of this communicator are making a group, and this rank cannot take part. Tell the ranks
 * that wait for this rank. first: the group's first rank; number: the number of the group call,
 * from 1, equal on all ranks. Any thread.
 */
void tutti__engine_cancel(tutti__engine_t *engine, uint32_t first, uint32_t number);
/* After the end: tell the neighbours, end all requests, and abort the device's work. Any thread. */
void tutti__engine_settle(tutti__engine_t *engine);

/* Call tutti__watch_end, then settle. Returns the reason that was given first. Any thread. */
tutti_status_t tutti__engine_kill(tutti__engine_t *engine, tutti_status_t status, const char *text);

/* Drop a reference to the engine's memory: the communicator's, or a request's. Any thread. */
void tutti__engine_release(tutti__engine_t *engine);

#endif
