/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines for the program's callback: tutti_log_set_callback. */
#ifndef TUTTI__BASE_LOG_CALLBACK_H
#define TUTTI__BASE_LOG_CALLBACK_H

#include "base/constants.h"
#include "base/log.h"

/* Hand a message over. 0: there is no callback for this thread, so the line is for stderr. Any
   thread, under any lock; does not wait for the callback. */
int tutti__log_hand_over(tutti__log_level_t level, const char *text);

#endif
