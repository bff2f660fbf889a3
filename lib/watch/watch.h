/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deaths, departures and deadlines of ranks. Only this room ends a communicator.
 *
 * Deaths. A neighbour in the tree of links (links.c) detects a death: a connection closes, or a
 * process ends. The neighbour reports the death up and down the tree, so each rank receives the
 * report even if its own data path is blocked.
 *
 * The end. tutti__watch_end sets the end state and rings this rank's doorbell (boot/machine.h); the
 * first reason is kept. Then the owner of the links (see below) reports the end to the neighbours
 * (tutti__watch_tell). Operations (call/) and the engine read the end state and cancel their own
 * work: this room does not call them.
 *
 * Goodbyes. A rank that calls finalize sends a goodbye first. The goodbye is forwarded up the tree
 * to rank 0, and then down. A rank applies a goodbye only when the goodbye comes down. At that time
 * the rank has received all messages that rank 0 sent before the goodbye. So no rank rejects a
 * tensor that another rank reduces. Before a rank with a parent and children leaves, it waits until
 * a goodbye has come down, usually its own (tutti__watch_drain).
 *
 * A rank that has left forwards nothing. If rank 0 has left, the hosts receive nothing from each
 * other; if a host's leader has left, this host receives nothing. Therefore each rank also writes
 * its state into its status page, and the waiting ranks of its machine read this page. A rank whose
 * parent has left also watches the processes and the status pages of its machine (orphan.c).
 * Between machines only the first goodbye is certain to arrive. A later goodbye, or the report of a
 * death, is lost if a rank that has left would have to forward it. Waits on other machines then end
 * at the deadline.
 *
 * Threads: "owner" marks functions for the owner of the links, which is the owner of the engine's
 * token. Any thread may call the other functions.
 */
#ifndef TUTTI__WATCH_WATCH_H
#define TUTTI__WATCH_WATCH_H

#include "base/compiler.h"
#include "base/status.h"
#include "boot/machine.h"
#include "conf/conf.h"
#include "record/record.h"

/* The beginning of the object; watch_inside.h has the rest. */
typedef struct {
    tutti__word_t ended;     /* TUTTI_OK, or the reason why the communicator has ended */
    tutti__record_t *record; /* the communicator's flight recorder */
} tutti__watch_t;

/* A value for "no rank", in place of a rank's number. */
#define TUTTI__NO_RANK UINT32_MAX

/* Collective over all ranks of boot. The arguments must outlive the object. is_part 0: the world,
   which tutti_finalize closes; 1: another communicator. */
tutti_status_t tutti__watch_open(tutti__boot_t *boot, const tutti__machine_t *machine,
                                 const tutti__conf_shared_t *conf, int is_part,
                                 tutti__watch_t **ret_watch);
/* Local. NULL is allowed. */
void tutti__watch_close(tutti__watch_t *watch);

/* ---- the end ---- */

static inline int tutti__watch_has_ended(const tutti__watch_t *watch)
{
    return atomic_load(&watch->ended) != TUTTI_OK;
}

/* Returns TUTTI_OK, or the status with which the communicator has ended. In the second case the
   function sets the thread's last error. */
tutti_status_t tutti__watch_alive(const tutti__watch_t *watch);

/* As tutti__watch_alive, but does not set the thread's last error. *ret_text: the reason, or "";
   valid until close. */
tutti_status_t tutti__watch_state(const tutti__watch_t *watch, const char **ret_text);

/* End the communicator on all ranks: every pending and later call returns `status` with `text`. If
   the communicator has ended before, its first reason is kept. If `status` is TUTTI_ERR_SHUTDOWN
   and a rank has left, a text that names this rank replaces `text`. Returns the reason that is
   kept, and sets the thread's last error. */
tutti_status_t tutti__watch_end(tutti__watch_t *watch, tutti_status_t status, const char *text);
/* End the calls that other threads of this process still execute on the communicator. Other ranks
   receive no report. Call this function after this rank has sent its goodbye. */
void tutti__watch_close_calls(tutti__watch_t *watch);

/* Report that a call has failed. If `status` is not TUTTI_ERR_TRANSPORT, end the communicator.
   TRANSPORT mostly means that a rank has died, or that another rank has aborted NCCL because a rank
   has died. A report of this death is the better reason. So after TRANSPORT the failure is only
   noted, and if no report arrives, tutti__watch_end_unexplained ends the communicator. */
void tutti__watch_fail(tutti__watch_t *watch, tutti_status_t status, const char *text);

/* Has tutti__watch_fail noted a failure of a transport? */
int tutti__watch_has_failed(const tutti__watch_t *watch);

/* Call this often while tutti__watch_has_failed returns 1. If no report of the cause has arrived
   within TUTTI__NEWS_MS, end the communicator. */
void tutti__watch_end_unexplained(tutti__watch_t *watch);

/* Owner: if the communicator has ended, report this to the neighbours, once. Returns 1 if this call
   has sent the report. */
int tutti__watch_tell(tutti__watch_t *watch);

/* Owner: if this rank has reported a stall since the last call, ask all other ranks to write dumps
   (record/record.h), because the rank that causes the stall reports no stall itself. */
void tutti__watch_ask(tutti__watch_t *watch);

/* ---- departures ---- */

/*
 * Owner: before this rank leaves, forward all messages that rank 0 has sent through this rank.
 * tutti__watch_leave sends the goodbye directly to this rank's children. On the links to the
 * children, the goodbye must not overtake a bucket (agreed tensors) that rank 0 has sent, because
 * other ranks may reduce this bucket. So this function sends the goodbye only up, and polls the
 * links until a goodbye has come down, or until limit_ns, a time of tutti__now_ns(). If a goodbye
 * has come down before, rank 0 sends no more buckets, and the function does not wait. On rank 0,
 * and on ranks without children, it does nothing. progress: as in tutti__watch_leave.
 */
void tutti__watch_drain(tutti__watch_t *watch, const uint64_t *progress, uint64_t limit_ns);

/* Owner: send this rank's goodbye. After that this rank forwards nothing. progress:
   [TUTTI__PLAN_LANES] how much work this rank has completed in each lane of a learned plan. The
   caller defines the unit, which is the same on all ranks. */
void tutti__watch_leave(tutti__watch_t *watch, const uint64_t *progress);

/* The greatest progress[i] of the ranks that have left; 0: no rank has left. */
uint64_t tutti__watch_progress(const tutti__watch_t *watch, uint32_t i);

/* Has any rank left? */
int tutti__watch_any_left(const tutti__watch_t *watch);

/* Owner: has a rank left since the last call? */
int tutti__watch_departed(tutti__watch_t *watch);

/* Has this peer left, or has the communicator ended for this peer because another rank has left? In
   both cases the peer sends nothing more. */
int tutti__watch_has_left(const tutti__watch_t *watch, uint32_t rank);

/* Has this peer stopped running buckets, but not left? 0 for all ranks of other machines. */
int tutti__watch_is_idle(const tutti__watch_t *watch, uint32_t rank);

/* Owner: after a rank has left, write into the status page that this rank runs no more buckets. */
void tutti__watch_set_idle(tutti__watch_t *watch);

/* Describe `rank` if it has left, otherwise the first rank that left. Returns 0 if no rank has
   left. */
int tutti__watch_left_text(const tutti__watch_t *watch, uint32_t rank, char *text, size_t bytes);

/* The error text of calls on this communicator after this rank itself has left. */
const char *tutti__watch_closed_text(const tutti__watch_t *watch);

/*
 * Owner: report that this rank cannot take part in a group that ranks of this communicator are
 * making, so that the other ranks do not wait for this rank. first: the group's first rank. number:
 * the number of the call that makes the group, among all such calls on this communicator, counted
 * from 1; equal on all ranks.
 */
void tutti__watch_cancel(tutti__watch_t *watch, uint32_t first, uint32_t number);
/* Has a rank cancelled the group with this first rank and number? */
int tutti__watch_cancelled(const tutti__watch_t *watch, uint32_t first, uint32_t number);

/* ---- halted.c ---- */

/* Is a rank of this machine stopped, by a signal or a debugger? If so, the text names this rank. */
int tutti__watch_halted(const tutti__watch_t *watch, char *text, size_t bytes);

/* ---- late.c: one wait ---- */

#define TUTTI__LATE_NOT (-1)

/* Describes a wait, for the texts of errors. */
typedef struct {
    /* Write how long this rank has waited, and where: "waited 2 s in allreduce (direct)". */
    void (*what)(void *subject, char *text, size_t bytes);
    /* Write the culprit: a rank or a device. Returns 1 if the culprit is certain, 0 if not, or
       TUTTI__LATE_NOT if the wait is over. */
    int (*culprit)(void *subject, char *text, size_t bytes);
    void *subject;
    /* If the culprit is not certain: how long to wait after the deadline for a peer's report. */
    uint64_t unsure_ns;
} tutti__late_t;

/*
 * If a wait that began at `since_ns` has lasted for `limit_ns`, end the communicator with TIMEOUT:
 * at once if the culprit is certain or a process is stopped, otherwise `unsure_ns` later. Returns 1
 * if the communicator has ended. Never waits.
 */
int tutti__late_check(tutti__watch_t *watch, const tutti__late_t *late, uint64_t since_ns,
                      uint64_t now_ns, uint64_t limit_ns);

/* Is a stall warning due? Intervals of TUTTI_STALL_WARNING follow each other from `since_ns` on. A
   warning is due if an interval has ended between `before_ns` and `now_ns`. */
int tutti__late_is_due(const tutti__watch_t *watch, uint64_t since_ns, uint64_t before_ns,
                       uint64_t now_ns);

/* "2.5 s" or "61 s". Returns text. */
const char *tutti__late_time(uint64_t ns, char text[static 24]);

#endif
