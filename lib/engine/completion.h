/* SPDX-License-Identifier: BSD-3-Clause */
/* Pending completions, which are buckets that are queued on the device. See completion.c. The
   token's owner, on the device unless noted. */
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

/* All of a bucket's work is queued; its results are complete when the stream's present work is. */
tutti_status_t tutti__completion_record(tutti__completions_t *completions, tutti__bucket_t *bucket,
                                        tutti__dstream_t *stream);
/* The bucket has left its lane. */
void tutti__completion_add(tutti__completions_t *completions, tutti__bucket_t *bucket);
/* End the buckets that are complete; 1 if there was any. */
int tutti__completion_poll(tutti__completions_t *completions);
/* Forget all pending completions, on any device; the caller ends their requests. */
void tutti__completion_clear(tutti__completions_t *completions);
/* Wait for all pending completions and NCCL's other work, until this time at most; then abort
   NCCL's work. On any device. */
void tutti__completion_drain(tutti__completions_t *completions, uint64_t limit_ns);
/* If the request is queued, later work in the stream sees its result, and the request is done:
   *ret_found. On any device. */
tutti_status_t tutti__completion_pass(tutti__completions_t *completions, tutti__request_t *request,
                                      tutti__dstream_t *stream, int *ret_found);

#endif
