/* SPDX-License-Identifier: BSD-3-Clause */
/* From public asynchronous calls to the engine's entries: argument checks. */
#ifndef TUTTI__API_SUBMIT_H
#define TUTTI__API_SUBMIT_H

#include "api/comm.h"
#include "engine/call.h"

/* Check and submit one call. Factors of scale are taken from the options. */
tutti_status_t tutti__submit_one(tutti_comm_t *comm, const char *name, tutti__call_t *call,
                                 const tutti_async_options_t *options,
                                 tutti_request_t **ret_request);

/* What a call that is written down says; not whether its arguments are right. */
tutti_status_t tutti__read_call(const tutti_call_t *call, tutti__call_t *ret_call);

/* The stream that calls on device memory are made in. */
typedef struct {
    tutti__dstream_t *stream;
} tutti__stream_of_t;

/* tutti_submit; in: NULL, or the stream behind which the data of all calls are there. */
tutti_status_t tutti__submit_all(const tutti_call_t *calls, size_t ncalls, tutti_comm_t *comm,
                                 const tutti__stream_of_t *in, tutti_request_t **ret_request);

#endif
