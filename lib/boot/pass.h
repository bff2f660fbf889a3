/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pass: both ends of a connection prove that they belong to the same job. A gate (gate.h) needs
 * a pass if other jobs have the gate's address: their processes may connect to the gate, or may
 * themselves listen at the address.
 *
 *     guest <-- greeting: the gate's job, a new number -- gate
 *     guest -- hello: its job, and a number of its own -> gate
 *     guest -- knock -----------------------------------> gate       as at every gate, see gate.h
 *
 * The tokens in knock and answer are codes (secret.h) of both numbers, the job, the rank and the
 * size. So recorded messages cannot be used again, and the answer proves the gate's job.
 *
 * The gate sends the first message, so a guest sends nothing to a service that is not a gate, such
 * as a store at a port near torchrun's MASTER_PORT.
 *
 * The pass protects only the start of a connection. Later messages are not encrypted and not
 * signed, like all messages between ranks.
 */
#ifndef TUTTI__BOOT_PASS_H
#define TUTTI__BOOT_PASS_H

#include "boot/gate_wire.h"
#include "boot/secret.h"

/* This process's job. */
typedef struct tutti__pass {
    char run[TUTTI__GATE_RUN_BYTES]; /* the job's name, shortened; "": it has no name */
    uint64_t run_hash;               /* hash of the whole name */
    uint64_t restart;
    uint32_t port; /* the launcher's port, which distinguishes jobs without a name */
    tutti__secret_t secret;
} tutti__pass_t;

tutti_status_t tutti__pass_init(tutti__pass_t *ret_pass, const tutti__conf_t *conf,
                                const tutti__conf_job_t *job);
/* Erase the secret. */
void tutti__pass_clear(tutti__pass_t *pass);

tutti_status_t tutti__pass_greet(const tutti__pass_t *pass, tutti__gate_greeting_t *ret_greeting);
tutti_status_t tutti__pass_hello(const tutti__pass_t *pass, tutti__gate_hello_t *ret_hello);

/* Compute the tokens of one connection, for a guest that is rank `rank` of `size` ranks. */
tutti_status_t tutti__pass_tokens(const tutti__pass_t *pass, const tutti__gate_greeting_t *greeting,
                                  const tutti__gate_hello_t *hello, uint32_t rank, uint32_t size,
                                  tutti__gate_token_t *ret_token);

/* May the guest send its hello to this gate? TUTTI_OK: yes. TUTTI_ERR_ABI: the gate has another
   version. TUTTI_ERR_PEER_LOST: no. */
tutti_status_t tutti__pass_judge_greeting(const tutti__pass_t *pass,
                                          const tutti__gate_greeting_t *greeting);
/* For the guest: does the greeting name this process's job? Any process can send this name. */
int tutti__pass_is_ours(const tutti__pass_t *pass, const tutti__gate_greeting_t *greeting);
/* For the gate, after the check of the token: does the hello name the gate's job? INVALID_ARGUMENT:
   no; the text is for the guest. */
tutti_status_t tutti__pass_judge_hello(const tutti__pass_t *pass, const tutti__gate_hello_t *hello,
                                       uint32_t rank);

#endif
