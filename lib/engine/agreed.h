/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's calls to its agreement. See agreed.c. Callers own the token. */
#ifndef TUTTI__ENGINE_AGREED_H
#define TUTTI__ENGINE_AGREED_H

#include "engine/planned.h"

typedef struct {
    const tutti__engine_env_t *env;
    tutti__pending_t *pending;
    tutti__lanes_t *lanes;
    int parent; /* index of the link to the parent; -1 at rank 0 */
    tutti__agree_t *agree;
    tutti__agree_link_t *links; /* [nlinks] */
    tutti__plan_requests_t plan;
    uint32_t waits;           /* `waits` of the request from which rank 0 learned last */
    tutti__bucket_t *filling; /* the bucket that is received now, tensor by tensor */
} tutti__agreement_t;

tutti_status_t tutti__agreed_open(tutti__agreement_t *a, const tutti__engine_env_t *env,
                                  tutti__pending_t *pending, tutti__lanes_t *lanes);
void tutti__agreed_close(tutti__agreement_t *a);
/* Announce the requests of a list. Ordered requests enter the ordered lane instead. only_ordered:
   ignore all other requests of the list. */
void tutti__agreed_submit(tutti__agreement_t *a, tutti__request_t *first, int only_ordered);
/* Stop the plan if plan.why has a reason. If this rank is rank 0, send agreed tensors as buckets.
   Returns 1 if a bucket was sent. */
int tutti__agreed_step(tutti__agreement_t *a);
/* Forget the plan, and all tensors that are not in a lane. */
void tutti__agreed_clear(tutti__agreement_t *a);
/* Write which rank or device a request waits for. Returns 1 if this is certain. */
int tutti__agreed_culprit(tutti__agreement_t *a, const tutti__request_t *request, char *text,
                          size_t bytes);

#endif
