/* SPDX-License-Identifier: BSD-3-Clause */
/* Dumps and traces: see record.h. Any thread; signal handlers may call tutti_dump. */
#include "record/record.h"

tutti_status_t tutti_dump(const char *path)
{
    return tutti__record_dump(path);
}

tutti_status_t tutti_trace_start(const char *path)
{
    if (path == NULL || path[0] == '\0')
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "path is %s", path == NULL ? "NULL" : "''");
    return tutti__record_trace_start(path);
}

tutti_status_t tutti_trace_stop(void)
{
    return tutti__trace_stop();
}
