/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that wait for each other in a circle. See stuck.c and agree/circle.h. */
#ifndef TUTTI__ENGINE_STUCK_H
#define TUTTI__ENGINE_STUCK_H

#include "agree/circle.h"
#include "engine/agreed.h"

typedef struct {
    tutti__agreement_t *agreed;
    tutti__circle_t *circle; /* rank 0; NULL until the first report */
    uint64_t next_ns;        /* no search before this time */
} tutti__stuck_state_t;

/* The kinds of the messages. */
#define TUTTI__MSG_STUCK (TUTTI__MSG_OTHERS + 1)
#define TUTTI__MSG_QUESTION (TUTTI__MSG_OTHERS + 2)

/* ---- any thread ---- */

/* Note that the calling thread has waited for a request for TUTTI__STUCK_NS, and has no timeout. If
   this returns 1, the thread must call tutti__stuck_end when the wait is over. */
int tutti__stuck_begin(tutti__pending_t *pending, const tutti__request_t *request);
/* As tutti__stuck_begin, in a direct call that waits for a rank of this machine. Call this function
   again while the wait lasts. *ret_news 1: the token's owner must call tutti__stuck_check. */
int tutti__stuck_begin_direct(tutti__pending_t *pending, uint32_t peer, const char *call,
                              int *ret_news);
void tutti__stuck_end(tutti__pending_t *pending);

/* ---- the token's owner ---- */

void tutti__stuck_message(tutti__stuck_state_t *stuck, uint32_t kind, const void *body,
                          size_t bytes);
/* Report this rank's long wait. Rank 0: search for a circle, and warn about it. */
void tutti__stuck_check(tutti__stuck_state_t *stuck);
void tutti__stuck_close(tutti__stuck_state_t *stuck);

#endif
