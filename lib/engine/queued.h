/* SPDX-License-Identifier: BSD-3-Clause */
/* Deadlines of work that is queued in CUDA streams. See queued.c. For the engine's thread only. */
#ifndef TUTTI__ENGINE_QUEUED_H
#define TUTTI__ENGINE_QUEUED_H

#include "engine/engine.h"

/* The interval of the checks; -1: no check is needed. */
int64_t tutti__queued_nap_us(const tutti__engine_env_t *env);
/* With the token: end the communicator if queued work has passed the deadline. checked_ns: the time
   of the last check. Returns 1 if a failure has no known cause yet; then poll the sockets. */
int tutti__queued_check(const tutti__engine_env_t *env, uint64_t *checked_ns);

#endif
