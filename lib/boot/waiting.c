/* SPDX-License-Identifier: BSD-3-Clause */
/* See waiting.h. The only state here is the interval of each thread. */
#include "boot/waiting.h"

#include "base/time.h"
#include "boot/net.h"

static __thread uint64_t interval_ns;

void tutti__waiting_every(uint64_t ms)
{
    interval_ns = tutti__net_span(ms);
}

int tutti__waiting_now(tutti__waiting_t *waiting, double *ret_waited_s)
{
    uint64_t now = tutti__now_ns(), next = interval_ns == 0 ? UINT64_MAX : now + interval_ns;

    if (waiting->begin_ns == 0) {
        waiting->begin_ns = now;
        waiting->due = next;
    }
    if (now < waiting->due)
        return 0;
    waiting->due = next;
    *ret_waited_s = (double)(now - waiting->begin_ns) * 1e-9;
    return 1;
}
