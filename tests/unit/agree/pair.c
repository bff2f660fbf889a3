/* SPDX-License-Identifier: BSD-3-Clause */
/* See pair.h. */
#include "unit/agree/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

tutti__agree_t *pair[2];

static uint32_t self[2] = { 0, 1 };

uint32_t pair_rank(const void *owner)
{
    return *(const uint32_t *)owner;
}

void pair_send(void *owner, uint32_t link, uint32_t kind, const void *body, size_t bytes,
               int urgent)
{
    _Alignas(8) char copy[TUTTI__BODY_BYTES];

    (void)urgent;
    assert_int_equal(link, 0);
    assert_true(bytes <= sizeof(copy));
    memcpy(copy, body, bytes);
    tutti__agree_message(pair[1 - pair_rank(owner)], 0, kind, copy, bytes);
}

void pair_open(const tutti__agree_ops_t *ops, uint64_t bucket_bytes)
{
    static const uint32_t all[2] = { 0, 1 };
    static const tutti__agree_link_t down = { 1, 1, &all[1] }, up = { 0, 0, &all[0] };

    for (uint32_t r = 0; r < 2; r++) {
        tutti__agree_env_t env = { .rank = r,
                                   .size = 2,
                                   .parent = r == 0 ? -1 : 0,
                                   .nlinks = 1,
                                   .links = r == 0 ? &down : &up,
                                   .bucket_bytes = bucket_bytes,
                                   .ops = ops,
                                   .owner = &self[r] };

        assert_int_equal(tutti__agree_open(&env, &pair[r]), TUTTI_OK);
    }
}

int pair_close(void **state)
{
    (void)state;
    tutti__agree_close(pair[0]);
    tutti__agree_close(pair[1]);
    return 0;
}
