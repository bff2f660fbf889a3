/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of the engine. See steps.c. */
#ifndef TUTTI__ENGINE_STEPS_H
#define TUTTI__ENGINE_STEPS_H

#include "engine/state.h"

/* One step; 1 if anything moved. With the token. */
int tutti__engine_step(tutti__engine_t *e, tutti__who_t who);
/* Give the token back. No thread polls after this, so peers must ring if there is work. Then call
   the callbacks that are due. */
void tutti__engine_yield(tutti__engine_t *e, tutti__who_t who);
/* Take the token if it is free, and run one round of steps. */
void tutti__engine_kick(tutti__engine_t *e, tutti__who_t who);
/* As kick, if there is work; calls no callbacks. 1: an operation in a lane has advanced. */
int tutti__engine_help(tutti__engine_t *e);
/* Let the transport between hosts send messages that it still has: see steps.c. */
void tutti__engine_push(const tutti__engine_t *e);
/* Tell peers whether to ring. With the token. */
void tutti__engine_sleeping(const tutti__engine_t *e, uint32_t value);
/* Wake the engine's thread: some work needs a thread that polls, reads the sockets, or checks a
   deadline. */
void tutti__engine_ring_self(const tutti__engine_t *e);
/* The same, but only after a moment, because a thread of the program will probably do this work. */
void tutti__engine_ring_later(tutti__engine_t *e);
/* The engine's receiver of the watch's messages; see watch/links.h. engine: a tutti__engine_t. */
void tutti__engine_message(void *engine, uint32_t link, uint32_t kind, const void *body,
                           size_t bytes);

#endif
