/* SPDX-License-Identifier: BSD-3-Clause */
/* Direct calls: on the caller's thread, one at a time on a communicator, until they are done. */
#ifndef TUTTI__API_DIRECT_H
#define TUTTI__API_DIRECT_H

#include "api/comm.h"
#include "call/call.h"

/* Check a call's arguments and make it. Blocks. */
tutti_status_t tutti__comm_call(tutti_comm_t *comm, tutti__call_t *call);

/* The same for a call that has a stream. */
tutti_status_t tutti__comm_call_in_stream(tutti_comm_t *comm, tutti__call_t *call);

/* For initialisers of calls without factors. */
#define TUTTI__UNSCALED .prescale = 1, .postscale = 1

/* ---- parts of a direct call ---- */

/* The schedule of a collective. All ranks find an error in the choice. */
tutti_status_t tutti__comm_find(tutti__comm_t *comm, const tutti__want_t *want, int in_place,
                                const tutti__sched_t **ret_sched);

/* May this thread use the transports of a schedule? UNSUPPORTED if not. */
tutti_status_t tutti__comm_allows(const tutti__comm_t *comm, const tutti__sched_t *sched);

/* Run a schedule of lane 0 to its end. meets: the ranks of the host first compare their calls. An
   error that not all ranks find ends the communicator. */
tutti_status_t tutti__comm_run(tutti__comm_t *comm, const tutti__sched_t *sched,
                               tutti__exec_call_t *exec, int meets);

/* The schedule for device memory; if its on_device is 0, there is none. */
tutti_status_t tutti__comm_find_on_device(tutti__comm_t *comm, const tutti__want_t *want,
                                          int in_place, const tutti__sched_t **ret_sched);

/* on_device.c: make a checked call on device memory. */
tutti_status_t tutti__comm_make_on_device(tutti__comm_t *comm, const tutti__call_t *call);

/* flat.c: pass the launch sequencer, and run a flat schedule for `call`, prepared as `exec`. */
tutti_status_t tutti__flat_run(tutti__comm_t *comm, const tutti__call_t *call,
                               const tutti__sched_t *sched, tutti__exec_call_t *exec);

/* Make a call in host memory that stands for a call on device memory. agreed: the ranks have
   compared the latter; device_tag: its tag. */
tutti_status_t tutti__comm_make_in_host(tutti__comm_t *comm, const tutti__call_t *call, int agreed,
                                        unsigned device_tag);

/* Wait until copies queued in lane 0, followed by its event `done`, have completed. status: of the
   queueing. An error ends the communicator. */
tutti_status_t tutti__comm_wait_for_copies(tutti__comm_t *comm, tutti_status_t status);

/* The bit added to the tag of a call on device memory, so that ranks with different kinds of memory
   find a mismatch. 0 for calls whose path does not depend on the kind of memory: messages, and
   calls whose ranks know only their own counts. There each rank may use another kind. */
unsigned tutti__comm_device_tag(const tutti__call_t *call);

/* End the communicator after an error that not all ranks find. Returns `status`. */
tutti_status_t tutti__comm_end_badly(tutti__comm_t *comm, tutti_status_t status);

/* backoff.c: the backoff of a wait that has lasted longer than this many polls of a word. Begins
   as { .tag = tag, .stuck = { NULL, 0, -1 } }. */
#define TUTTI__CLOSE_LOOKS 50

typedef struct {
    unsigned tag;        /* of the waiting call */
    tutti__hint_t hint;  /* the last wait hint */
    uint32_t looks;      /* steps without progress, at the same word and value */
    uint32_t yielded_ns; /* at this place and value, if ranks share processors */
    uintptr_t place;     /* of the word in its writer's arena */
    uint64_t since_ns;   /* begin of the wait; 0: the clock was not read yet */
    uint64_t warned;     /* intervals of TUTTI_STALL_WARNING that have ended with a warning */
} tutti__backoff_t;

/* Back off after a step without progress: spin, yield or sleep, depending on how long the wait has
   lasted. PEER_LOST, TIMEOUT, ...: end the wait. now: the call's wait hint. */
tutti_status_t tutti__backoff_step(tutti__comm_t *comm, tutti__backoff_t *p,
                                   const tutti__hint_t *now);

/* help.c: do the asynchronous calls' work that the engine's thread may not do, for all
   communicators of comm's world. */
void tutti__comm_help(tutti__comm_t *comm);
/* tutti__comm_help, as an engine's help. comm: a tutti__comm_t. */
void tutti__comm_help_others(void *comm);

/* again.c: keep the last call of a simple kind, which the next call may repeat with other
   buffers. */
void tutti__again_keep(tutti__comm_t *comm, const tutti__call_t *call, const tutti__sched_t *sched);
/* Does `call` repeat the kept call, with valid buffers? */
int tutti__again_fits(const tutti__again_t *again, const tutti__call_t *call);
/* Give the kept node operation the buffers of `call`. */
void tutti__again_aim(tutti__again_t *again, const tutti__call_t *call);

/* counts.c: compare a call's arguments between all ranks before data moves. Needed on one host for
   some calls, and between hosts unless TUTTI_COMPARE=0. MISMATCH on all ranks, naming two. */
int tutti__counts_needed(const tutti__comm_t *comm, const tutti__call_t *call);
tutti_status_t tutti__counts_agree(tutti__comm_t *comm, const tutti__call_t *call);
/* The same for the library's own calls; checked: between hosts, with TUTTI_COMPARE=1. */
int tutti__counts_checked(const tutti__comm_t *comm);
tutti_status_t tutti__counts_agree_own(tutti__comm_t *comm, uint32_t tag, size_t count);

/* pairs.c: start, step and end a direct message or sendrecv. _end: MISMATCH if a peer passed other
   arguments; a matching direction has moved its data nevertheless. Errors of the other functions
   end the communicator. */
tutti_status_t tutti__pairs_start(tutti__comm_t *comm, const tutti__call_t *call,
                                  const tutti__exec_call_t *exec);
tutti_status_t tutti__pairs_step(tutti__comm_t *comm, tutti__hint_t *hint);
uint32_t tutti__pairs_moves(const tutti__comm_t *comm); /* as of a run */
tutti_status_t tutti__pairs_end(tutti__comm_t *comm);
void tutti__pairs_cancel(tutti__comm_t *comm);

#endif
