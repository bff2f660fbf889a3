/* SPDX-License-Identifier: BSD-3-Clause */
/* Direct messages: send, receive, sendrecv. See pairs.c. */
#ifndef TUTTI__CALL_PAIRS_H
#define TUTTI__CALL_PAIRS_H

#include "call/call.h"
#include "call/env.h"

/* The head of a direct message. */
typedef struct {
    uint32_t type, count[2]; /* count: 64 bits */
} tutti__head_t;

typedef enum {
    TUTTI__SIDE_DONE, /* also if the call has no such side */
    TUTTI__SIDE_HEADS,
    TUTTI__SIDE_DATA,
    TUTTI__SIDE_WRONG
} tutti__partner_stage_t;

/* One side of a direct message: this rank as sender or as receiver. */
typedef struct {
    tutti__partner_stage_t stage;
    uint32_t peer;
    tutti__head_t mine, its;
    tutti__exec_call_t data;
    tutti__run_t run;
} tutti__partner_t;

typedef struct {
    const tutti__call_env_t *env;
    tutti__partner_t side[2]; /* as sender, as receiver */
} tutti__pairs_t;

void tutti__pairs_init(tutti__pairs_t *pairs, const tutti__call_env_t *env);
void tutti__pairs_fini(tutti__pairs_t *pairs);

/* Start, step and end a message. UNSUPPORTED: nothing has started. Other errors of start and step
   end the communicator. tutti__pairs_end returns MISMATCH if a peer passed other arguments. A
   direction of a sendrecv whose arguments match has nevertheless moved its data. */
tutti_status_t tutti__pairs_start(tutti__pairs_t *pairs, const tutti__call_t *call,
                                  const tutti__exec_call_t *exec);
tutti_status_t tutti__pairs_step(tutti__pairs_t *pairs, tutti__hint_t *hint);
uint32_t tutti__pairs_moves(const tutti__pairs_t *pairs); /* sum over both runs */
tutti_status_t tutti__pairs_end(const tutti__pairs_t *pairs);
/* After the last step. 1: all data that this rank receives have arrived. 0: the sender passed other
   arguments. */
int tutti__pairs_has_received(const tutti__pairs_t *pairs);
void tutti__pairs_cancel(tutti__pairs_t *pairs);

#endif
