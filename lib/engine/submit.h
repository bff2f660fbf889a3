/* SPDX-License-Identifier: BSD-3-Clause */
/* Making requests and handing them to the engine. Any thread. */
#ifndef TUTTI__ENGINE_SUBMIT_H
#define TUTTI__ENGINE_SUBMIT_H

#include "engine/request.h"

/* Make a request with a handle for the program. */
tutti_status_t tutti__submit_make(tutti__engine_t *engine, const tutti__entry_t *entry,
                                  tutti__request_t **ret_request);
/* Push requests, all or none. If the first request has group.size > 0, the requests are a
   submission group. ret_handles: see tutti__pending_push. */
tutti_status_t tutti__submit_push(tutti__engine_t *engine, tutti__request_t **requests, size_t n,
                                  tutti_request_t **ret_handles);
/* The request of a handle. An error if this process was forked after the request was made. */
tutti_status_t tutti__submit_find(const tutti_request_t *handle, tutti__request_t **ret_request);

#endif
