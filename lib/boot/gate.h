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
 *     guest -- confirm --> gate          now it is admitted
 *
 * Strangers (another user, wrong token, garbage) are closed and forgotten. Only a strict gate, that
 * of a meeting by name alone, is ended by a guest that belongs here and says what cannot be:
 * another number of ranks, or a rank that is there already.
 *
 * No state; any thread.
 */
#ifndef TUTTI__BOOT_GATE_H
#define TUTTI__BOOT_GATE_H

#include "base/status.h"

/* The number of the layout of all that ranks say to each other before and on the side channel. */
#define TUTTI__BOOT_LAYOUT 1

/* In `fds` of tutti__gate_admit. */
#define TUTTI__GATE_AWAITED (-1)
#define TUTTI__GATE_NOBODY (-2)

typedef enum {
    TUTTI__GATE_MEET = 1,
    TUTTI__GATE_SIDE,
    TUTTI__GATE_SHARE
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

/* Knock, as gate->rank, at the gate of `host` behind the connection fd. fd stays the caller's. */
tutti_status_t tutti__gate_knock(const tutti__gate_t *gate, int fd, uint32_t host,
                                 uint64_t deadline);

#endif
