/* SPDX-License-Identifier: BSD-3-Clause */
/* See own_thread.h. */
#include "base/own_thread.h"

static _Thread_local int is_own;

int tutti__thread_is_own(void)
{
    return is_own;
}

void tutti__thread_set_own(void)
{
    is_own = 1;
}
