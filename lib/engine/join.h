/* SPDX-License-Identifier: BSD-3-Clause */
/* Zero contributions of a rank that has joined. See join.c. */
#ifndef TUTTI__ENGINE_JOIN_H
#define TUTTI__ENGINE_JOIN_H

#include "engine/request.h"

/* Make a zero contribution. name: [name_bytes]. NULL: no memory, and the communicator has ended. */
tutti__request_t *tutti__join_zero(const tutti__engine_env_t *env,
                                   const tutti__metadata_t *metadata, const char *name,
                                   size_t name_bytes);
/* zero: a contribution to the second phase of a call of `size` ranks. Find the contribution to the
   first phase in the list `zeros`, copy its counts to `zero`, and free this contribution. Returns 0
   if it is not in the list, because the first phase is not complete. */
int tutti__join_counts(tutti__request_t **zeros, uint32_t size, tutti__request_t *zero);

#endif
