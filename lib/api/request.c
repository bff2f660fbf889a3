/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting, testing and waiting for requests: argument checks. The engine does the rest. */
#include "api/arguments.h"

#include "base/status.h"

static tutti_status_t is_null(const char *what)
{
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s is NULL", what);
}

tutti_status_t tutti_start_all(tutti_request_t *const *requests, size_t nrequests)
{
    if (requests == NULL && nrequests > 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "requests is NULL");
    return tutti__engine_start_all(requests, nrequests);
}

tutti_status_t tutti_start(tutti_request_t *request)
{
    return tutti__engine_start(request);
}

tutti_status_t tutti_request_set_buffers(tutti_request_t *request, const void *sendbuf,
                                         void *recvbuf)
{
    return tutti__engine_set_buffers(request, sendbuf, recvbuf);
}

tutti_status_t tutti_request_free(tutti_request_t *request)
{
    return request == NULL ? TUTTI_OK : tutti__engine_free(request);
}

tutti_status_t tutti_test(tutti_request_t *request, int *ret_done)
{
    if (ret_done == NULL)
        return is_null(request == NULL ? "request" : "ret_done");
    return tutti__engine_test(request, ret_done);
}

tutti_status_t tutti_wait(tutti_request_t *request, int timeout_ms)
{
    return tutti__engine_wait(request, timeout_ms);
}

tutti_status_t tutti_wait_all(tutti_request_t **requests, size_t nrequests, int timeout_ms)
{
    if (requests == NULL && nrequests > 0)
        return is_null("requests");
    return tutti__engine_wait_all(requests, nrequests, timeout_ms);
}

tutti_status_t tutti_wait_any(tutti_request_t **requests, size_t nrequests, int timeout_ms,
                              size_t *ret_index)
{
    if ((requests == NULL && nrequests > 0) || ret_index == NULL)
        return is_null(ret_index == NULL ? "ret_index" : "requests");
    return tutti__engine_wait_any(requests, nrequests, timeout_ms, ret_index);
}

tutti_status_t tutti_request_recvcounts(tutti_request_t *request, int timeout_ms,
                                        size_t *ret_counts)
{
    if (ret_counts == NULL)
        return is_null(request == NULL ? "request" : "ret_counts");
    return tutti__engine_recvcounts(request, timeout_ms, ret_counts);
}

tutti_status_t tutti_request_receive(tutti_request_t *request, void *recvbuf,
                                     const size_t *recvdispls)
{
    return tutti__engine_receive(request, recvbuf, recvdispls);
}
