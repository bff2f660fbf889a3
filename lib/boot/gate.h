/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gate: admission of connections to the library's sockets.
 *
 * A process that connects (the guest) knocks: it sends its purpose, its rank and the job's token.
 * The process that listens (the host of the gate) answers with the second half of the token. The
 * guest confirms. After the confirmation both ends have the same state. If a guest has given up
 * waiting and tries another address, no half-made connection remains.
 *
 *     guest -- knock --> gate
 *     guest <-- answer -- gate
 *     guest -- CONFIRM or LATER --> gate           CONFIRM: the guest is admitted
 *
 * The gate closes the connections of strangers (another user, wrong token, garbage, silence). It
 * has at most TUTTI__GATE_STRANGERS such connections open at a time. It never drops a guest that
 * has shown the token.
 *
 * A gate fails if a rank shows the token and ends while the gate still waits for other ranks. A
 * gate for a meeting is strict. A strict gate also fails if a knock contradicts the meeting: the
 * knock has another number of ranks, or a rank that has connected already. After a failure a strict
 * gate sends the reason to all ranks that connect within the next second.
 *
 * Ranks start at different times, so their waits end at different times. A knock contains the time
 * for which its sender will still wait. A strict gate gives up before the first admitted rank gives
 * up. So all admitted ranks receive the numbers of the missing ranks.
 *
 * If other jobs have the gate's address, a greeting and a hello precede the knock: see pass.h.
 *
 * The functions keep no state. Any thread may call them.
 */
#ifndef TUTTI__BOOT_GATE_H
#define TUTTI__BOOT_GATE_H

#include "boot/net.h"

/* Version of all messages between ranks during set-up and on the side channel. */
#define TUTTI__BOOT_LAYOUT 9

/* Values in `fds` of tutti__gate_admit. */
#define TUTTI__GATE_AWAITED (-1)
#define TUTTI__GATE_NOBODY (-2)

typedef enum {
    TUTTI__GATE_MEET = 1,
    TUTTI__GATE_SIDE,
    TUTTI__GATE_SHARE,
    TUTTI__GATE_ID,
    TUTTI__GATE_JOB
} tutti__gate_purpose_t;

typedef struct {
    unsigned char knock[16], answer[16];
} tutti__gate_token_t;

/* Both ends must pass the same purpose, number and size, and the same token or passes of one job.
   `strict`, `came` and `dismiss` are for the host of the gate only. */
typedef struct {
    tutti__gate_purpose_t purpose;
    uint32_t number; /* distinguishes repeated uses of one listening socket */
    uint32_t rank;   /* this rank */
    uint32_t size;   /* number of ranks */
    int strict;
    /* For a guest only: the guest's deadline for the host's first message after admission, a time
       of tutti__now_ns(). The guest's knock contains the time that is left until this deadline. 0:
       the knock contains no such time. */
    uint64_t until;
    tutti__gate_token_t token; /* ignored if there is a pass */
    /* Not NULL: other jobs have the gate's address; see pass.h. The gate refuses a guest without a
       valid pass, and sends it the reason. Even a strict gate does not fail because of this. */
    const struct tutti__pass *pass;
    /* Called by an open gate after it has admitted `rank`. fds: all connections. May be NULL. */
    void (*came)(void *arg, uint32_t rank, const int *fds, uint32_t size);
    void *came_arg;
    /* Called if a guest confirms but is not admitted, because another guest was admitted as the
       same rank after this guest's knock. The guest assumes that it is admitted, and waits for the
       host's first message. This function sends the status and the thread's last error in the form
       of that message. May be NULL. */
    void (*dismiss)(int fd, tutti_status_t status);
} tutti__gate_t;

/*
 * Admit the ranks r with fds[r] == TUTTI__GATE_AWAITED: fds[r] becomes their connection.
 *
 * door  the listening socket
 * fds   [size]; after a failure it still has the connections of the admitted ranks, so that the
 *       caller can send them the reason and close them
 *
 * TUTTI_ERR_TIMEOUT: the text names the missing ranks.
 */
tutti_status_t tutti__gate_admit(const tutti__gate_t *gate, int door, int *fds, uint64_t deadline);

/* For at most a second, send the status and the thread's last error to all ranks that connect.
   Returns the status; the thread's last error has the same text as before. */
tutti_status_t tutti__gate_turn_away(const tutti__gate_t *gate, int door, int *fds,
                                     tutti_status_t status, uint64_t deadline);

/*
 * tutti__gate_admit for an unknown number of ranks: the first guest's knock has the number. All
 * ranks are awaited; gate->size and gate->rank are ignored.
 *
 * stop        a descriptor; TUTTI_ERR_SHUTDOWN when it becomes readable
 * timeout_ms  counted from the first guest's knock
 * ret_fds     [*ret_size] for the caller to close and free, also after a failure; NULL and 0 if no
 *             guest has knocked. Written at the first guest's knock
 */
tutti_status_t tutti__gate_admit_all(const tutti__gate_t *gate, int door, int stop,
                                     uint64_t timeout_ms, uint32_t *ret_size, int **ret_fds);

/* Answer each guest of this job with TUTTI_ERR_INVALID_ARGUMENT and `text`, until
   `stop` is readable. */
void tutti__gate_refuse(const tutti__gate_t *gate, int door, int stop, const char *text);

/* A rank will wait left_ms from now for a decision. Returns the latest time for the decision: after
   it, enough time is left to send the decision to the rank. left_ms: at least 1. */
uint64_t tutti__gate_decide_by(uint32_t left_ms);

/* Knock, as gate->rank, at the gate of rank `host` over the connection fd. The caller keeps fd. */
tutti_status_t tutti__gate_knock(const tutti__gate_t *gate, int fd, uint32_t host,
                                 uint64_t deadline);

/* One round of attempts to reach a gate. */
typedef struct {
    const tutti__net_addr_t *addrs;
    uint32_t count;
    unsigned try_ms; /* for each address */
    /* The outcome. is_alone: no process listens at any address. is_final: another round would give
       the same result. is_greeted: a gate with a pass has sent a greeting that names this job.
       other: the refusal by a process of another job, or "". */
    int is_alone, is_final, is_greeted;
    char other[TUTTI__ERROR_BYTES];
} tutti__gate_round_t;

tutti_status_t tutti__gate_try(const tutti__gate_t *gate, tutti__gate_round_t *round, uint32_t host,
                               uint64_t deadline, int *ret_fd);

/*
 * Connect over TCP to one of these addresses and knock there.
 *
 * Connections may reach another host (each host has its own 172.17.0.1) or hang (behind firewalls).
 * So this function tries all addresses in rounds, with longer timeouts in each round, until an
 * address leads to a gate with the job's token. This gate's answer is final, even if it is a
 * refusal.
 *
 * patient  1: wait until a process listens; 0: TUTTI_ERR_TRANSPORT if no process listens at any
 *          address
 */
tutti_status_t tutti__gate_reach(const tutti__gate_t *gate, const tutti__net_addrs_t *addrs,
                                 uint32_t host, int patient, uint64_t deadline, int *ret_fd);

#endif
