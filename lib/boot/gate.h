/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gate: who may come in.
 *
 * Whoever connects to one of the library's sockets knocks: it says what for, as which rank, and
 * shows the job's token. The gate answers with the token's other half, and the guest confirms, so
 * that both know of the other that it went on: a guest that gave up waiting and tries another
 * address leaves no half-made connection behind.
 *
 *     guest -- knock --> gate
 *     guest <-- answer -- gate
 *     guest -- confirm, or later --> gate          confirm: now it is admitted
 *
 * Strangers (another user, wrong token, garbage, silence) are closed and forgotten. The gate keeps
 * a fixed number of them. It never drops a guest that has shown the token.
 *
 * A gate fails if a rank ends that was admitted, or that showed the token, while others are still
 * awaited. A strict gate, that of a meeting, also fails if a guest's knock cannot be true: it has
 * another number of ranks, or a rank that is there already. The gate sends the reason to all ranks
 * that come within the next second.
 *
 * No state; any thread.
 */
#ifndef TUTTI__BOOT_GATE_H
#define TUTTI__BOOT_GATE_H

#include "boot/net.h"

/* The number of the layout of all that ranks say to each other before and on the side channel. */
#define TUTTI__BOOT_LAYOUT 4

/* In `fds` of tutti__gate_admit. */
#define TUTTI__GATE_AWAITED (-1)
#define TUTTI__GATE_NOBODY (-2)

typedef enum {
    TUTTI__GATE_MEET = 1,
    TUTTI__GATE_SIDE,
    TUTTI__GATE_SHARE,
    TUTTI__GATE_ID
} tutti__gate_purpose_t;

typedef struct {
    unsigned char knock[16], answer[16];
} tutti__gate_token_t;

/* What both ends must agree on. */
typedef struct {
    tutti__gate_purpose_t purpose;
    uint32_t number; /* tells repeated uses of one door apart */
    uint32_t rank;   /* my own */
    uint32_t size;   /* of the world */
    int strict;
    tutti__gate_token_t token;
    /* At an open gate: called when a rank is admitted, with the connections so far. May be NULL. */
    void (*came)(void *arg, uint32_t rank, const int *fds, uint32_t size);
    void *came_arg;
} tutti__gate_t;

/*
 * Let in the ranks r with fds[r] == TUTTI__GATE_AWAITED: fds[r] becomes their connection.
 *
 * door  the listening socket
 * fds   [size]; when this fails, those that came before stay in it, for the caller to tell and
 *       close
 *
 * TUTTI_ERR_TIMEOUT: names those that did not come.
 */
tutti_status_t tutti__gate_admit(const tutti__gate_t *gate, int door, int *fds, uint64_t deadline);

/* For at most a second, send the status and the thread's last error to all ranks that come. Returns
   the status, with that error. */
tutti_status_t tutti__gate_turn_away(const tutti__gate_t *gate, int door, int *fds,
                                     tutti_status_t status, uint64_t deadline);

/*
 * As tutti__gate_admit, if the number of ranks is not known: the first guest's knock has it. All
 * ranks are awaited; gate->size and rank do not count.
 *
 * stop        a descriptor; TUTTI_ERR_SHUTDOWN once it is readable
 * timeout_ms  from that first guest's knock
 * ret_fds     [*ret_size] for the caller to close and free, also when this fails; NULL and 0 if
 *             none came. Written as soon as the first guest is there
 */
tutti_status_t tutti__gate_admit_all(const tutti__gate_t *gate, int door, int stop,
                                     uint64_t timeout_ms, uint32_t *ret_size, int **ret_fds);

/* Answer whoever belongs here with TUTTI_ERR_INVALID_ARGUMENT and `text`, until `stop` is readable.
 */
void tutti__gate_refuse(const tutti__gate_t *gate, int door, int stop, const char *text);

/* Knock, as gate->rank, at the gate of `host` behind the connection fd. fd stays the caller's. */
tutti_status_t tutti__gate_knock(const tutti__gate_t *gate, int fd, uint32_t host,
                                 uint64_t deadline);

/*
 * Connect over TCP to one of these addresses and knock there.
 *
 * Some addresses may lead elsewhere (each host has its own 172.17.0.1, behind firewalls connections
 * just hang). They are tried in turn, in rounds with growing patience, until one leads to a gate
 * that knows the token. What that gate answers counts, also a refusal.
 *
 * patient  nobody may be listening yet; else TUTTI_ERR_TRANSPORT if nobody is, at any of them
 */
tutti_status_t tutti__gate_reach(const tutti__gate_t *gate, const tutti__net_addrs_t *addrs,
                                 uint32_t host, int patient, uint64_t deadline, int *ret_fd);

#endif
