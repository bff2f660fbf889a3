/* SPDX-License-Identifier: BSD-3-Clause */
/* Deadlines of single requests: options->timeout_ms. See own_deadline.c. */
#ifndef TUTTI__ENGINE_OWN_DEADLINE_H
#define TUTTI__ENGINE_OWN_DEADLINE_H

#include "engine/agreed.h"

/* If a request has passed its own deadline, end the communicator. The token's owner calls this. */
void tutti__overdue_check(tutti__agreement_t *agreed, tutti__pending_t *pending);
/* How long the engine's thread may sleep until the next check; -1: no check is needed. */
int64_t tutti__overdue_nap_us(const tutti__pending_t *pending);

#endif
