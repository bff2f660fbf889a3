/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous calls: argument checks, and conversion of calls to the engine's entries. */
#ifndef TUTTI__API_SUBMISSION_H
#define TUTTI__API_SUBMISSION_H

#include "call/call.h"

/* Check and submit one call. The scale factors come from the options. */
tutti_status_t tutti__submit_one(tutti_comm_t *comm, const char *name, tutti__call_t *call,
                                 const tutti_async_options_t *options,
                                 tutti_request_t **ret_request);

/* Convert a call structure; does not check the call's arguments. */
tutti_status_t tutti__read_call(const tutti_call_t *call, tutti__call_t *ret_call);

/* The stream of calls on device memory. */
typedef struct {
    tutti__dstream_t *stream;
} tutti__stream_of_t;

/* tutti_submit. in: NULL, or the CUDA stream whose present work produces the data of all calls. */
tutti_status_t tutti__submit_all(const tutti_call_t *calls, size_t ncalls, tutti_comm_t *comm,
                                 const tutti__stream_of_t *in, tutti_request_t **ret_request);

#endif
