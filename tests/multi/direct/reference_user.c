/* SPDX-License-Identifier: BSD-3-Clause */
/* User-defined operations, for tests. See reference.h. */
#include "multi/direct/reference.h"

#include "ranks.h"

#include <string.h>

int reference_context;
static tutti_op_t user_ops[REFERENCE_USER_OPS];

void reference_affine(void *dst, const void *left, const void *right, size_t count,
                      tutti_dtype_t dtype, void *context)
{
    CHECK(context == &reference_context && dtype == TUTTI_UINT64);
    for (size_t i = 0; i < count; i++) {
        uint32_t l[2], r[2], to[2];

        memcpy(l, (const char *)left + 8 * i, 8);
        memcpy(r, (const char *)right + 8 * i, 8);
        to[0] = l[0] * r[0];
        to[1] = l[0] * r[1] + l[1];
        memcpy((char *)dst + 8 * i, to, 8);
    }
}

void reference_shifted_product(void *dst, const void *left, const void *right, size_t count,
                               tutti_dtype_t dtype, void *context)
{
    CHECK(context == &reference_context && dtype == TUTTI_UINT64);
    for (size_t i = 0; i < count; i++) {
        uint64_t l, r;

        memcpy(&l, (const char *)left + 8 * i, 8);
        memcpy(&r, (const char *)right + 8 * i, 8);
        l = (l + 1) * (r + 1) - 1;
        memcpy((char *)dst + 8 * i, &l, 8);
    }
}

void reference_left(void *dst, const void *left, const void *right, size_t count,
                    tutti_dtype_t dtype, void *context)
{
    (void)right;
    CHECK(context == &reference_context);
    if (dst != left)
        memcpy(dst, left, count * tutti_dtype_bytes(dtype));
}

void reference_create_ops(void)
{
    CHECK_OK(tutti_op_create(reference_affine, &reference_context, 0, &user_ops[REFERENCE_AFFINE]));
    CHECK_OK(tutti_op_create(reference_shifted_product, &reference_context, 1,
                             &user_ops[REFERENCE_SHIFTED_PRODUCT]));
    CHECK_OK(tutti_op_create(reference_left, &reference_context, 0, &user_ops[REFERENCE_LEFT]));
}

tutti_op_t reference_user_op(reference_user_t user)
{
    return user_ops[user];
}
