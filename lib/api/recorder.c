/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti_dump: see record.h. Any thread, and signal handlers. */
#include "record/record.h"

tutti_status_t tutti_dump(const char *path)
{
    return tutti__record_dump(path);
}
