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

#endif
