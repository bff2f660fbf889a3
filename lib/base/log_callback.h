/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines for the program's callback: tutti_log_set_callback. */
#ifndef TUTTI__BASE_LOG_CALLBACK_H
#define TUTTI__BASE_LOG_CALLBACK_H

#include "base/constants.h"
#include "base/log.h"

/* Hand a message over to the callback's thread, without waiting for the callback. If this is not
   possible, returns 0, and the caller writes the line to stderr. Any thread, under any lock. */
int tutti__log_hand_over(tutti__log_level_t level, const char *text);

#endif
