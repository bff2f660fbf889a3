/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Status texts and each thread's last error.
 *
 * Called from all rooms, on any thread. The text of an error is in thread-local memory. So setting
 * the text cannot fail and needs no lock, and the caller does not free the text.
 */
#include "base/status.h"

#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[TUTTI__ERROR_BYTES];

const char *tutti_strerror(tutti_status_t status)
{
    switch (status) {
#define STATUS_TEXT(name, number, text)                                                            \
    case name:                                                                                     \
        return text;
        TUTTI_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "unknown status";
    }
}

const char *tutti_last_error(void)
{
    return last_error;
}

/* `text` has TUTTI__ERROR_BYTES bytes; `bytes` is the length of the text before it was cut. */
static tutti_status_t keep(tutti_status_t status, char *text, size_t bytes)
{
    if (bytes >= TUTTI__ERROR_BYTES)
        memcpy(text + TUTTI__ERROR_BYTES - 4, "...", 4);
    memcpy(last_error, text, TUTTI__ERROR_BYTES);
    TUTTI__LOG(TUTTI__LOG_DEBUG, "%s: %s", tutti_strerror(status), last_error);
    return status;
}

/* Formats into a separate buffer: the last error itself may be an argument. */
tutti_status_t tutti__fail(tutti_status_t status, const char *fmt, ...)
{
    char text[TUTTI__ERROR_BYTES] = "";
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return keep(status, text, n < 0 ? 0 : (size_t)n);
}

tutti_status_t tutti__fail_errno(const char *fmt, ...)
{
    char text[TUTTI__ERROR_BYTES] = "", buffer[128];
    int error = errno;
    const char *reason = strerror_r(error, buffer, sizeof(buffer)); /* GNU's version */
    va_list args;
    size_t used;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);

    /* A long text is cut, so that the reason fits. */
    used = n < 0 ? 0 : (size_t)n;
    used = TUTTI__MIN(used, sizeof(text) - sizeof(buffer) - 3);
    n = snprintf(text + used, sizeof(text) - used, ": %s", reason);

    switch (error) {
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
        return keep(TUTTI_ERR_NO_MEMORY, text, used + (size_t)n);
    default:
        return keep(TUTTI_ERR_SYSTEM, text, used + (size_t)n);
    }
}
