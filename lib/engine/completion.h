/* SPDX-License-Identifier: BSD-3-Clause */
/* Pending completions: buckets whose work is queued on the device. See completion.c. Callers own
   the token. Callers have entered the device (tutti__device_enter), unless a comment says "on any
   device". */
#ifndef TUTTI__ENGINE_COMPLETION_H
#define TUTTI__ENGINE_COMPLETION_H

#include "engine/bucket.h"
#include "engine/pending.h"

typedef struct {
    const tutti__engine_env_t *env;
    tutti__pending_t *pending;
    tutti__bucket_t *first, *last;
    uint32_t count;
} tutti__completions_t;

/* Record the bucket's event behind the stream's present work, which includes the bucket's work. */
tutti_status_t tutti__completion_record(tutti__completions_t *completions, tutti__bucket_t *bucket,
                                        tutti__dstream_t *stream);
/* Add a bucket that has left its lane. */
void tutti__completion_add(tutti__completions_t *completions, tutti__bucket_t *bucket);
/* End the buckets that are complete. Returns 1 if a bucket has ended. */
int tutti__completion_poll(tutti__completions_t *completions);
/* Forget all pending completions, on any device; the caller ends their requests. */
void tutti__completion_clear(tutti__completions_t *completions);
/* Wait for all pending completions and NCCL's other work. At the time limit_ns, abort NCCL's work
   that is not complete. On any device. */
void tutti__completion_drain(tutti__completions_t *completions, uint64_t limit_ns);
/* If the request is queued: set *ret_found to 1, order later work in the stream behind the result
   of the request, and end the request. On any device. */
tutti_status_t tutti__completion_pass(tutti__completions_t *completions, tutti__request_t *request,
                                      tutti__dstream_t *stream, int *ret_found);

#endif
