/* SPDX-License-Identifier: BSD-3-Clause */
/* See small.h. */
#include "unit/sched/small.h"

#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

char why[1200];

void small_build(const small_t *small, tutti__sched_t **scheds)
{
    for (uint32_t r = 0; r < small->size; r++) {
        uint32_t nblocks = small->expect == TUTTI__EXPECT_BARRIER ? 2 : 1;
        tutti__build_t *b = tutti__build_begin("small", r, small->size, nblocks, 2, 1);

        small->put(b, r);
        if (tutti__build_end(b, &scheds[r]) != TUTTI_OK)
            fail_msg("%s", tutti_last_error());
    }
}

void small_free(const small_t *small, tutti__sched_t **scheds)
{
    for (uint32_t r = 0; r < small->size; r++)
        tutti__sched_free(scheds[r]);
}

tutti_status_t small_check(const small_t *small, tutti__sched_t **scheds, uint32_t credits,
                           uint32_t trips)
{
    static const uint32_t host_of[MOST_RANKS] = { 0 }, local_of[MOST_RANKS] = { 0, 1, 2, 3 };
    tutti__check_t all = {
        .expect = small->expect,
        .size = small->size,
        .scheds = scheds,
        .host_of = host_of,
        .local_of = local_of,
        .nhosts = 1,
        .credits = credits,
        .trips = trips,
    };

    return tutti__sched_check(&all, why, sizeof(why));
}

static tutti_status_t try(const small_t *small, uint32_t credits, uint32_t trips)
{
    tutti__sched_t *scheds[MOST_RANKS];
    tutti_status_t status;

    small_build(small, scheds);
    status = small_check(small, scheds, credits, trips);
    small_free(small, scheds);
    return status;
}

void good(const small_t *small, uint32_t credits, uint32_t trips)
{
    if (try(small, credits, trips) != TUTTI_OK)
        fail_msg("%s", why);
}

void bad(const small_t *small, uint32_t credits, uint32_t trips, const char *text)
{
    assert_int_equal(try(small, credits, trips), TUTTI_ERR_INTERNAL);
    if (strstr(why, text) == NULL)
        fail_msg("expected \"%s\", got: %s", text, why);
    assert_non_null(strstr(tutti_last_error(), why));
}
