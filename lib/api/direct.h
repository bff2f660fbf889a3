/* SPDX-License-Identifier: BSD-3-Clause */
/* Direct calls: on the caller's thread, one at a time on a communicator, until they are done. */
#ifndef TUTTI__API_DIRECT_H
#define TUTTI__API_DIRECT_H

#include "api/comm.h"
#include "engine/call.h"

/* Check a call's arguments and make it. Blocks. */
tutti_status_t tutti__comm_call(tutti_comm_t *comm, tutti__call_t *call);

/* The same of a call that has a stream. */
tutti_status_t tutti__comm_call_in_stream(tutti_comm_t *comm, tutti__call_t *call);

/* For initialisers. */
#define TUTTI__UNSCALED .prescale = 1, .postscale = 1

/* ---- inside of a direct call ---- */

/* The schedule of a collective. What is wrong with the choice is wrong on all ranks. */
tutti_status_t tutti__comm_find(tutti__comm_t *comm, const tutti__want_t *want, int in_place,
                                const tutti__sched_t **ret_sched);

/* May this thread use what a schedule needs? Else UNSUPPORTED. */
tutti_status_t tutti__comm_allows(const tutti__comm_t *comm, const tutti__sched_t *sched);

/* Run one schedule of lane 0 to its end. meets: the ranks of the host find out first whether they
   came with the same call. An error that leaves ranks in different places ends the communicator. */
tutti_status_t tutti__comm_run(tutti__comm_t *comm, const tutti__sched_t *sched,
                               tutti__exec_call_t *exec, int meets);

/* The schedule for device memory, if sched->on_device; else it is none. */
tutti_status_t tutti__comm_find_on_device(tutti__comm_t *comm, const tutti__want_t *want,
                                          int in_place, const tutti__sched_t **ret_sched);

/* on_device.c: a call that was checked, on device memory. */
tutti_status_t tutti__comm_make_on_device(tutti__comm_t *comm, const tutti__call_t *call);

/* flat.c: run a flat schedule, through the gate, for `call`, which was prepared as exec. */
tutti_status_t tutti__flat_run(tutti__comm_t *comm, const tutti__call_t *call,
                               const tutti__sched_t *sched, tutti__exec_call_t *exec);

/* A call in host memory that stands for one elsewhere. agreed: the ranks have compared that one;
   device_tag: its. */
tutti_status_t tutti__comm_make_in_host(tutti__comm_t *comm, const tutti__call_t *call, int agreed,
                                        unsigned device_tag);

/* Copies were queued in lane 0, with its event `done` behind them, and that went as `status` says:
   until they have come. An error ends the communicator. */
tutti_status_t tutti__comm_wait_for_copies(tutti__comm_t *comm, tutti_status_t status);

/* What is added to the tags of a call on device memory: all ranks of the host must have it, if the
   way that data takes may depend on it. Where ranks know their own counts only, and in messages, it
   does not, and each rank's memory is its own affair. */
unsigned tutti__comm_device_tag(const tutti__call_t *call);

/* Such an error: end it. Returns `status`. */
tutti_status_t tutti__comm_end_badly(tutti__comm_t *comm, tutti_status_t status);

/* patience.c: a wait that has lasted longer than so many close looks at a word. It begins as
   { .tag = tag, .stuck = { NULL, 0, -1 } }. */
#define TUTTI__CLOSE_LOOKS 50

typedef struct {
    unsigned tag; /* what it is that waits */
    tutti__stuck_t stuck;
    uint32_t looks;      /* at the same word, without effect */
    uint32_t yielded_ns; /* for words of this place and value, if ranks share processors */
    uintptr_t place;     /* of the word in its writer's arena */
    uint64_t since_ns;   /* 0: not looked at the clock yet */
    uint64_t warned;     /* intervals of TUTTI_STALL_WARNING that have ended with a warning */
} tutti__patience_t;

/* Nothing could be done: spend some time, more the longer it lasts. PEER_LOST, TIMEOUT, ... : that
   will not become better. now: what the call is stuck on. */
tutti_status_t tutti__patience_bide(tutti__comm_t *comm, tutti__patience_t *p,
                                    const tutti__stuck_t *now);

/* help.c: asynchronous calls' work that nobody else may do, of all communicators of comm's
   world. */
void tutti__comm_help(tutti__comm_t *comm);
/* tutti__comm_help, as an engine's help. comm: a tutti__comm_t. */
void tutti__comm_help_others(void *comm);

/* again.c: the last call of a simple kind, which the next may repeat with other buffers. */
void tutti__again_keep(tutti__comm_t *comm, const tutti__call_t *call, const tutti__sched_t *sched);
/* Is this the call that is kept, and nothing wrong with its buffers? */
int tutti__again_fits(const tutti__again_t *again, const tutti__call_t *call);
/* Give its node operation the buffers of this one. */
void tutti__again_aim(tutti__again_t *again, const tutti__call_t *call);

/* counts.c: tell each other what the call is and what goes from whom to whom, before anything
   moves. Where needed: on one host, and between hosts that are checked. MISMATCH on all ranks,
   naming two. */
int tutti__counts_needed(const tutti__comm_t *comm, const tutti__call_t *call);
tutti_status_t tutti__counts_agree(tutti__comm_t *comm, const tutti__call_t *call);
/* The same for what the library calls itself, if it is checked: between hosts, TUTTI_COMPARE=1. */
int tutti__counts_checked(const tutti__comm_t *comm);
tutti_status_t tutti__counts_agree_own(tutti__comm_t *comm, uint32_t tag, size_t count);

/* pairs.c: a direct message, or a sendrecv: started, stepped like a run, and at its end MISMATCH if
   a peer came with another one; what fits between this rank and another one was moved all the
   same. Errors of the other functions end the communicator. */
tutti_status_t tutti__pairs_start(tutti__comm_t *comm, const tutti__call_t *call,
                                  const tutti__exec_call_t *exec);
tutti_status_t tutti__pairs_step(tutti__comm_t *comm, tutti__stuck_t *stuck);
uint32_t tutti__pairs_moves(const tutti__comm_t *comm); /* as of a run */
tutti_status_t tutti__pairs_end(tutti__comm_t *comm);
void tutti__pairs_cancel(tutti__comm_t *comm);

#endif
