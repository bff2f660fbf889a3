/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures a test's output on stderr. One capture at a time. */
#ifndef TESTS_UNIT_CAPTURE_H
#define TESTS_UNIT_CAPTURE_H

#include <stddef.h>

void capture_begin(void);
/* Restore stderr. The captured text is cut at room - 1 bytes. */
void capture_end(char *ret_text, size_t room);

#endif
