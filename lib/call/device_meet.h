/* SPDX-License-Identifier: BSD-3-Clause */
/* The exchange before an NCCL communicator is opened. For device_nccl.c and device_flat.c. */
#ifndef TUTTI__CALL_DEVICE_MEET_H
#define TUTTI__CALL_DEVICE_MEET_H

#include "call/device_setup.h"
#include "node/nccl/nccl.h"

#define TUTTI__MEET_WORDS 80

/* The data that a rank passes to the other ranks before NCCL is opened. */
typedef struct {
    int32_t status; /* result of making the id; on an error, the ranks open no NCCL */
    uint64_t order; /* leaders: the launch order's offset in the arena */
    tutti__nccl_serves_t serves;
    tutti__nccl_id_t id;                              /* set by the rank that makes it */
    char identity[TUTTI__DEVICE_IDENTITY_BYTES + 20]; /* identifies the rank's GPU */
} tutti__meet_facts_t;

/* Fill in this rank's zeroed data; on a leader, allocate a zeroed page for the order of launches.
   makes_id: this rank makes NCCL's id. */
tutti_status_t tutti__meet_prepare(const tutti__device_setup_t *setup, int makes_id,
                                   tutti__meet_facts_t *mine);

/* Do two ranks with the same place[] use one GPU? NCCL refuses this. place: [size] each rank's host
   or machine. ret_words: names the two ranks. */
int tutti__meet_is_shared(const tutti__meet_facts_t *facts, const uint32_t *place, uint32_t size,
                          char ret_words[TUTTI__MEET_WORDS]);

/* The arguments with which all nodes of NCCL are opened. facts: [size] */
tutti__nccl_open_t tutti__meet_with(const tutti__device_setup_t *setup,
                                    const tutti__meet_facts_t *facts);

/* Wait until NCCL is connected on all ranks, a rank reports an error, or TUTTI_TIMEOUT has passed.
   whom: a name of the ranks to connect, for error texts. */
tutti_status_t tutti__meet_settle(const tutti__device_setup_t *setup, tutti__node_t *node,
                                  const char *whom);

#endif
