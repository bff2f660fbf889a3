/* SPDX-License-Identifier: BSD-3-Clause */
/* Deadlines of the work that is queued in CUDA streams. See queued.c. The engine's thread calls
   these functions. */
#ifndef TUTTI__ENGINE_QUEUED_H
#define TUTTI__ENGINE_QUEUED_H

#include "engine/engine.h"

/* The interval of the checks; -1: none. */
int64_t tutti__queued_nap_us(const tutti__engine_env_t *env);
/* With the token: end the communicator if such work passes the deadline. checked_ns: the time of
   the last check. 1: a failure has no known cause yet, so the sockets must be polled. */
int tutti__queued_check(const tutti__engine_env_t *env, uint64_t *checked_ns);

#endif
